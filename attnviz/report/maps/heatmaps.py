"""Draws chosen heads as maps with labels, as tables of numbers, or as thumbnails, as many as the medium shows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from attnviz.base.errors import option
from attnviz.base.progress import track
from attnviz.maps.recording import ChosenHead, HeadKey, Recording, chosen_heads
from attnviz.media.image import Image
from attnviz.report.maps.head_panels import (
    HeadSummaries,
    answering_first,
    drawn,
    fit_first_heads,
    fit_screen,
    head_panels,
    map_remarks,
    titled_panels,
)
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import PERCENT, SCORE, WEIGHT, Heading
from attnviz.report.picture.report import DrawnReport
from attnviz.report.picture.scales import (
    MAX_THUMBNAIL_RATIO,
    scale_remarks,
    share_scales,
)
from attnviz.report.picture.structure import left_out_keys
from attnviz.report.words.captions import (
    Notes,
    cut_remarks,
    group_title,
    heads_caption,
    item_noun,
    maps_suffix,
    panel_remarks,
)
from attnviz.text.tokens import first_words

MIN_MAP_CELLS = 32  # rows or columns that a map keeps, however many maps share a page
MAX_OVERVIEW_CELLS = 2048  # rows of cells in all, from the top to the bottom of an overview on one page
MAX_PAGE_MAPS = 32  # heads drawn as maps with labels on one page
MAX_HEADS_OF_A_TEXT = 6  # of a batch that stand in a row
MAX_NOTE_CHARACTERS = 32  # of the text of a batch in the title of a map
MAX_FIRST_MAPS = 4  # heads that a screen shows of too many: those in which the answer stands out, or random ones
MAX_UNCHOSEN_MAPS = 16  # with more heads, and none chosen by the user, all become thumbnails
Ranking = list[tuple[ChosenHead, float]]  # heads, each with its value of the metric by which they are sorted
TABLE_QUANTITIES = {"scores": [SCORE], "weights": [WEIGHT], "both": [SCORE, WEIGHT]}


def table_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions) -> DrawnReport:
    """Returns the report of heads as tables with every number written out."""
    quantities = TABLE_QUANTITIES[options.table or ""]
    panels = titled_panels(recording, heads, quantities, divide_page(options, len(heads) * len(quantities)), notes={})
    colored_panels = tuple(
        # Numbers without a unit keep at least the decimals of their format.
        panel
        if panel.quantity.unit or (panel.decimals or 0) >= panel.quantity.format_decimals
        else replace(panel, decimals=None)
        for panel in share_scales(panels, options.look)
    )
    return drawn(
        "tables",
        recording,
        options.look,
        colored_panels,
        heads_caption(recording, heads, panels),
        (*cut_remarks(heads[0], panels), *map_remarks(colored_panels, options)),
        across=2 if options.table == "both" else None,  # the scores of a head beside its weights
    )


def maps_report(
    recording: Recording,
    ranking: Ranking,
    options: ReportOptions,
    summaries: HeadSummaries | None,
    notes: Notes,
    answering_heads: Sequence[HeadKey],
) -> DrawnReport:
    """Returns the maps of all heads, as thumbnails if they are many; of some on a screen that they do not fit.

    A screen has all heads nevertheless if the user chose heads or asks for all. Else it has first those in which the
    answer stands out, whose keys are ``answering_heads``, or the clearest.
    """
    heads = [head for head, _ in ranking]
    max_maps: float = MAX_UNCHOSEN_MAPS
    if options.medium.one_page:
        max_maps = MAX_PAGE_MAPS
    elif options.chooses_heads or options.medium.has_slides:
        max_maps = math.inf
    are_thumbnails = len(heads) > max_maps

    def draw_maps(some_heads: list[ChosenHead]) -> DrawnReport:
        return _heatmaps(recording, some_heads, options, notes)

    def draw_all() -> DrawnReport:
        if are_thumbnails:
            return _thumbnails(recording, ranking, options, summaries)
        return draw_maps(heads)

    # Where no screen must be fitted, maps in which the answer stands out still say more than thumbnails of all heads.
    fits_all = options.medium.fits is None and not (answering_heads and are_thumbnails)
    if fits_all or options.all or options.chooses_heads:
        return draw_all()
    if summaries is not None:
        summaries = replace(summaries, answering_heads=answering_heads)
        return fit_screen(recording, heads, options, summaries, notes, draw_all)
    if answering_heads and (options.sort, options.top) == (None, None):
        ordered_heads = answering_first(heads, answering_heads)
        return fit_first_heads(ordered_heads, recording, options, draw_maps, MAX_FIRST_MAPS)
    is_ranked = (options.sort, options.top, options.filter) != (None, None, None)
    is_batch = len({head.maps.item for head in heads}) > 1
    if not recording.untrained or is_ranked or (are_thumbnails and is_batch):
        return draw_all()
    # Of random heads none tells more than others.
    if are_thumbnails and options.medium.fits is not None and len(heads) <= MAX_PAGE_MAPS * MAX_UNCHOSEN_MAPS:
        report = draw_all()
        if options.medium.fits(report):
            return report
    return fit_first_heads(heads, recording, options, draw_maps, MAX_FIRST_MAPS if are_thumbnails else len(heads))


def shows_images(heads: list[ChosenHead], options: ReportOptions) -> bool:
    """True if rows of weights are drawn over images: all keys have images, and no other style or table is chosen."""
    style = options.look.style or "text"
    have_images = all(any(isinstance(medium, Image) for medium in head.maps.key_tokens.media) for head in heads)
    return have_images and style == "text" and options.table is None


def filtered_heads_of(recording: Recording, options: ReportOptions) -> list[ChosenHead]:
    """Returns the selected heads that pass the user's filter; all selected heads without a filter."""
    heads = chosen_heads(recording, options.selection)
    if options.filter is None:  # spares the import of metrics
        return heads
    from attnviz.metrics.call_metrics import filtered_heads

    return filtered_heads(heads, options.filter)


def ranked_heads_of(heads: list[ChosenHead], options: ReportOptions) -> Ranking:
    """Returns the heads sorted by the metric and cut to the top few, each with its value; NaN without a metric."""
    if options.sort is None and options.top is None:
        return [(head, math.nan) for head in heads]
    from attnviz.metrics.call_metrics import ranked_heads

    return ranked_heads(heads, options.sort, options.top)


def divide_page(options: ReportOptions, panel_count: int) -> ReportOptions:
    """Returns the options with a page's cells divided among the panels, at least `MIN_MAP_CELLS` for each.

    A medium that is not one page leaves them unchanged.
    """
    if not options.medium.one_page:
        return options
    return limit_cells(options, max(options.medium.max_cells // math.ceil(math.sqrt(panel_count)), MIN_MAP_CELLS))


def _heatmaps(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> DrawnReport:
    """Returns the report of heads as maps with labels."""
    texts = {head.maps.item: words_of(head) for head in heads}
    title, title_notes = "", dict(notes)
    is_batch = options.medium.one_page and len(texts) > 1
    if is_batch:
        title = options.look.title or f"{len(texts)} {item_noun([head.maps for head in heads])}s"
        text_starts = {head.key: first_words(texts[head.maps.item], MAX_NOTE_CHARACTERS) for head in heads}
        title_notes = text_starts | title_notes
    panels = titled_panels(recording, heads, [PERCENT], divide_page(options, len(heads)), title_notes)
    colored_panels = share_scales(panels, options.look)
    heads_of_text = len(heads) // len(texts)
    return drawn(
        "maps",
        recording,
        options.look,
        colored_panels,
        heads_caption(recording, heads, panels),
        map_remarks(colored_panels, options),
        title,
        across=heads_of_text if is_batch and 1 < heads_of_text <= MAX_HEADS_OF_A_TEXT else None,
    )


def words_of(head: ChosenHead) -> str:
    """Returns the text of a head's queries on one line, or their labels if the text is not known."""
    tokens = head.maps.query_tokens
    return " ".join((tokens.text or " ".join(tokens.labels)).split())


def _thumbnails(
    recording: Recording,
    ranking: Ranking,
    options: ReportOptions,
    summaries: HeadSummaries | None,
) -> DrawnReport:
    """Returns the report of every head as a thumbnail: a row per layer."""
    heads = [head for head, _ in ranking]
    groups = [group_title(recording, head.maps) for head in heads]
    fills_rows = options.sort is not None or not are_adjacent(groups)
    small_options = thumbnail_options(heads, options, fills_rows)
    left_out = None if options.chooses_keys else left_out_keys(heads)
    panels = []
    for (head, value), group in track(list(zip(ranking, groups, strict=True)), "pooling heads"):
        suffix = maps_suffix(recording, head.maps)
        heading = Heading(head.name, number=head.head, names_group=not (recording.tower or suffix))
        if fills_rows:
            heading = replace(heading, name=f"{head.name}{suffix}", note="" if math.isnan(value) else f"{value:.2f}")
        panels += head_panels(head, [PERCENT], small_options, heading, group, left_out)
    largest_index = max(range(len(panels)), key=lambda index: panels[index].peak)
    example = heads[largest_index] if summaries is None else summaries.clearest[0]
    layer = example.maps.layer
    many_heads = sum(head.maps.layer == layer for head in heads) > MAX_UNCHOSEN_MAPS
    heads_option = f" {option('heads', f'0-{MAX_UNCHOSEN_MAPS - 1}')}" if many_heads else ""
    opening = (
        f"Use {option('heads', example.name)} to open one head, {option('layers', layer)}{heads_option} for a layer."
    )
    colored_panels = share_scales(panels, options.look, max_ratio=MAX_THUMBNAIL_RATIO, title_limits=False)
    return drawn(
        "thumbnails",
        recording,
        options.look,
        colored_panels,
        heads_caption(recording, heads, panels),
        (
            *order_remarks(options.sort),
            *(() if left_out is None else (left_out.sentence, f"{option('special', True)} draws all keys.")),
            *(() if summaries is None else (summaries.sentence,)),
            *(() if options.medium.has_lines else (opening,)),  # a terminal, where it can be typed at once
            *panel_remarks(panels, options.medium.masked_look),
            *scale_remarks(options.look, colored_panels),
        ),
        filled=fills_rows,
    )


def are_adjacent(groups: Sequence[str]) -> bool:
    """True if equal groups are adjacent, as the layers of heads in recorded order are."""
    return len(list(groupby(groups))) == len(set(groups))


def order_remarks(sort: str | None) -> tuple[str, ...]:
    """Returns the remark that names the metric by which thumbnails are sorted; empty if they are not."""
    if sort is None:
        return ()
    end_first = "smallest" if sort.startswith("-") else "largest"
    return (f"Sorted by {sort.removeprefix('-')}, {end_first} first; the number after each head is its value.",)


def thumbnail_options(heads: list[ChosenHead], options: ReportOptions, fills_rows: bool) -> ReportOptions:
    """Returns the options with as many cells per thumbnail as fit, at least `MIN_MAP_CELLS` if the medium allows
    them.
    """
    layers = len({(head.maps.layer, head.maps.kind, head.maps.item) for head in heads})
    rows = math.ceil(math.sqrt(len(heads))) if fills_rows else layers
    grows = options.medium.one_page and options.look.inches is None
    cells = MAX_OVERVIEW_CELLS // rows if grows else options.medium.max_cells
    return limit_cells(options, min(max(cells, MIN_MAP_CELLS), options.medium.thumbnail_cells))
