"""Gives the exact numbers of chosen heads for files and for a page, which takes the colours of a figure of them."""

from collections.abc import Sequence
from dataclasses import replace

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import has_few_turns, regroup
from attnviz.maps.recording import ChosenHead, Recording, heads_with_cells
from attnviz.report.heads.head_numbers import with_page_numbers
from attnviz.report.maps.head_panels import head_panels
from attnviz.report.maps.heatmaps import MAX_PAGE_MAPS, are_adjacent, divide_page, ranked_heads_of, thumbnail_options
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Heading
from attnviz.report.picture.report import ExactNumbers, HeadCells, View, origin
from attnviz.report.picture.scales import MAX_ROW_RATIO, MAX_THUMBNAIL_RATIO, least_high, lift_reach, shows_lift
from attnviz.report.picture.structure import first_sentence, left_out_keys, row_of_last_token, turns_sentence
from attnviz.report.words.captions import heads_caption, recording_remarks, report_title
from attnviz.text.named_groups import TURNS
from attnviz.text.selection import Grouping, Selection

VIEWS: dict[str, View] = {"heatmap": "matrix", "arcs": "arcs", "text": "text"}


def exact_numbers(recording: Recording, selected_heads: list[ChosenHead], options: ReportOptions) -> ExactNumbers:
    """Returns the exact numbers of the heads, in the user's order; for a page that sorts heads, in recorded order."""
    look = options.look
    heads = [head for head, _ in ranked_heads_of(selected_heads, options)]
    # A page sorts heads by their metrics, which it has only if all heads have cells.
    sorts_heads = options.medium.sorts_heads and len(heads_with_cells(heads)) == len(heads)
    if sorts_heads:
        chosen_ids = set(map(id, heads))
        heads = [head for head in selected_heads if id(head) in chosen_ids]  # in recorded order
    query = None  # counted from the first query that is shown
    if look.query is not None:
        from attnviz.report.maps.rows import keys_of_patches
        from attnviz.text.places import find_place

        if options.medium.sorts_heads and keys_of_patches(heads, look.query):
            advice = f"leave {option('query')} out: a click on the word shows which patches look at it"
            raise AttnvizError(f"{look.query!r} is a key, and a page begins with a query; {advice}")
        shown_queries = range(heads[0].queries.start, heads[0].queries.stop)
        found_query, _ = find_place(heads[0].maps.query_tokens, look.query)
        query = found_query - shown_queries.start if found_query in shown_queries else None
    report = with_page_numbers(
        ExactNumbers(
            title=report_title(recording, look),
            caption=heads_caption(recording, heads, []),
            remarks=recording_remarks(recording),
            look=look,
            about={"recording": origin(recording)},
            heads=tuple(HeadCells.of({"": head}, options.table) for head in heads),
            view=VIEWS[look.drawn_style] if options.table is None else "table",
            query=query,
            sort=(options.sort or "") if sorts_heads else "",
        ),
        options,
    )
    if options.medium.sorts_heads:
        left_out = None if options.chooses_keys else left_out_keys(heads)
        report = replace(report, left_out=left_out)
        tells_patterns = not recording.untrained and len({maps.item for maps in recording.maps}) == 1
        if report.frame is not None and tells_patterns:
            last_row = None if options.chooses_heads else row_of_last_token(heads)
            report = replace(report, first_sentence=first_sentence(heads, report.frame, left_out, last_row))
    if options.medium.sorts_heads and look.drawn_style == "heatmap" and options.table is None and query is None:
        are_over_images = any(head.maps.key_tokens.image_indices for head in heads)
        report = replace(
            report,
            overview="lens" if are_over_images else "maps",
            by_turns=_by_turns(recording, report, heads, options),
        )
    return with_scales_of_figure(report, heads, options, len(heads))


def _by_turns(
    recording: Recording, report: ExactNumbers, heads: list[ChosenHead], options: ReportOptions
) -> ExactNumbers | None:
    """Returns the report of the same heads over the turns of a chat; ``None`` without turns, or with too many."""
    are_whole = all(
        (head.queries, head.keys) == (head.maps.query_tokens.unpadded, head.maps.key_tokens.unpadded) for head in heads
    )
    has_cells = len(heads_with_cells(heads)) == len(heads)
    is_plain = options.grouping.keeps_tokens and options.of == "weights" and are_whole and has_cells
    if not is_plain or options.grouping.by is not None or not has_few_turns(head.maps for head in heads):
        return None
    grouped, heads_by_turns = turns_of(recording, heads)
    by_turns = replace(
        report,
        heads=tuple(HeadCells.of({"": head}) for head in heads_by_turns),
        remarks=grouped.remarks[: len(grouped.remarks) - len(recording.remarks)],
        left_out=left_out_keys(heads_by_turns),
        first_sentence=() if recording.untrained else turns_sentence(heads_by_turns),
    )
    return with_scales_of_figure(by_turns, heads_by_turns, options, len(heads))


def turns_of(recording: Recording, heads: Sequence[ChosenHead]) -> tuple[Recording, list[ChosenHead]]:
    """Returns a chat's recording by turns, and the whole maps of its chosen heads, whose rows and columns are turns."""
    maps_by_id = {id(head.maps): head.maps for head in heads}
    grouped = regroup(replace(recording, maps=tuple(maps_by_id.values())), Selection(), Grouping(by=TURNS))
    grouped_by_id = dict(zip(maps_by_id, grouped.maps, strict=True))
    maps_and_heads = [(grouped_by_id[id(head.maps)], head.head) for head in heads]
    return grouped, [
        ChosenHead(maps, head, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))
        for maps, head in maps_and_heads
    ]


def with_scales_of_figure(
    report: ExactNumbers, heads: Sequence[ChosenHead], options: ReportOptions, panel_count: int
) -> ExactNumbers:
    """Returns a page's report with the limits of a figure of these heads, which has so many panels.

    So a page and a figure show the same number in the same colour. Returns the report unchanged for other media.
    """
    if not options.medium.sorts_heads:
        return report
    as_figure = replace(
        options, table=None, look=replace(options.look, mark=None), medium=replace(options.medium, one_page=True)
    )
    are_thumbnails = panel_count > MAX_PAGE_MAPS
    if are_thumbnails:
        fills_rows = options.sort is not None or not are_adjacent([f"{head.maps.layer}" for head in heads])
        as_figure = thumbnail_options(list(heads), as_figure, fills_rows)
    else:
        as_figure = divide_page(as_figure, panel_count)
    panels = [panel for head in heads for panel in head_panels(head, [PERCENT], as_figure, Heading(head.name))]
    max_ratio = MAX_THUMBNAIL_RATIO if are_thumbnails else MAX_ROW_RATIO
    return replace(
        report,
        shows_lift=shows_lift(panels, options.look, max_ratio),
        lift_reach=lift_reach(panels),
        least_high=least_high(panels),
    )
