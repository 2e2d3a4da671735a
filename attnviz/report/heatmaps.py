"""A recording to a report: its chosen heads as maps with labels, or as thumbnails."""

import math
from collections import Counter
from dataclasses import replace

from attnviz.base.progress import track
from attnviz.maps.heads import head_name, select_heads
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.head_table import rank_heads
from attnviz.report.arcs_and_text import styled_heads
from attnviz.report.captions import (
    cut_remarks,
    group_title,
    head_title,
    heads_caption,
    mark_remarks,
    panel_remarks,
    recording_remarks,
    text_title,
)
from attnviz.report.head_panels import head_cells, head_panels
from attnviz.report.numbers import HeadCells, Numbers, origin
from attnviz.report.options import ReportOptions, with_cells
from attnviz.report.panels import PERCENT, SCORE, WEIGHT, Drawing
from attnviz.report.report import Report
from attnviz.report.scales import scale_remarks, share_scales

SMALLEST_MAP = 32  # cells a side, however many maps are on a page
OVERVIEW = 2048  # cells below each other in an overview on one page
MOST_PANELS = 32  # heads drawn as maps with labels on one page
MOST_MAPS = 16  # heads drawn as maps with labels; where more are there and none was chosen, all become thumbnails


def build_report(recording: Recording, options: ReportOptions) -> Report:
    """The report of the chosen heads of a recording.

    Raises:
        AttnvizError: if the selection names what is not there.
    """
    heads = rank_heads(select_heads(recording, options.selection), options.sort, options.top)
    cells = tuple(head_cells({"": maps}, head, options) for maps, head in heads)
    if options.look.style != "heatmap" and options.medium.draws_maps:
        drawing = styled_heads(recording, heads, cells, options)
    elif is_overview(heads, options):
        drawing = draw_overview(recording, heads, cells, options)
    else:
        drawing = draw_maps(recording, heads, cells, options)
    return Report(
        title=options.look.title or text_title(recording),
        panels=share_scales(drawing.panels, options.look),
        caption=drawing.caption,
        remarks=(
            *drawing.remarks,
            *(scale_remarks(options.look) if drawing.panels else ()),
            *recording_remarks(recording),
        ),
        style=drawing.style,
        across=drawing.across,
        look=options.look,
        numbers=Numbers({"recording": origin(recording)}, cells),
    )


def draw_maps(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: tuple[HeadCells, ...], options: ReportOptions
) -> Drawing:
    """Heads as maps with labels, or as tables; as neither for a medium that takes the numbers themselves."""
    options = share_page(options, len(heads) * (2 if options.table == "both" else 1))
    quantities = {"scores": [SCORE], "weights": [WEIGHT], "both": [SCORE, WEIGHT], None: [PERCENT]}[options.table]
    panels = [
        panel
        for maps, head in track(heads if options.medium.draws_maps else [], "pooling heads")
        for panel in head_panels(maps, head, quantities, options, head_title(recording, maps, head))
    ]
    return Drawing(
        panels=panels,
        caption=heads_caption(recording, cells, panels),
        remarks=(
            *cut_remarks(cells[0], panels),
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(panels),
        ),
        style="map" if options.table is None else "table",
        across=2 if options.table == "both" else None,
    )


def share_page(options: ReportOptions, panels: int) -> ReportOptions:
    """The options with as many cells as each of so many panels has room for."""
    if not options.medium.one_page:
        return options
    return with_cells(options, max(options.medium.max_cells // math.ceil(math.sqrt(panels)), SMALLEST_MAP))


def is_overview(heads: list[tuple[LayerMaps, int]], options: ReportOptions) -> bool:
    """Whether these heads are too many to draw as maps with labels: on one page, or unless they were chosen."""
    chosen = options.selection.heads is not None or options.selection.pairs is not None
    fits = len(heads) <= MOST_PANELS if options.medium.one_page else chosen or len(heads) <= MOST_MAPS
    return options.medium.draws_maps and options.table is None and not fits


def draw_overview(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: tuple[HeadCells, ...], options: ReportOptions
) -> Drawing:
    """Many heads as thumbnails, a row for each layer."""
    down = len({(maps.layer, maps.kind, maps.item) for maps, _ in heads})
    medium = options.medium
    room = OVERVIEW // down if medium.one_page and options.look.size is None else medium.max_cells
    small = with_cells(options, min(max(room, SMALLEST_MAP), medium.thumbnail_cells))
    panels = [
        replace(panel, group=group_title(recording, maps))
        for maps, head in track(heads, "pooling heads")
        for panel in head_panels(maps, head, [PERCENT], small, head_name(maps, head))
    ]
    example = max(panels, key=lambda panel: panel.peak).title
    return Drawing(
        panels=panels,
        caption=heads_caption(recording, cells, panels),
        remarks=(
            f"One head opens with --heads {example}, a layer with --layers {example.split('.')[0]} --heads 0-3.",
            *panel_remarks(panels),
        ),
        style="overview",
        across=max(Counter(panel.group for panel in panels).values()),
    )
