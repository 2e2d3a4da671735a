"""Turns a recording into a report of its chosen heads: maps with labels, tables, thumbnails, or exact numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from attnviz.base.errors import option
from attnviz.base.progress import track
from attnviz.maps.grouped import has_few_turns, regroup
from attnviz.maps.heads import ChosenHead, HeadKey, chosen_heads, heads_with_cells
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.report.maps.fitting import HeadSummaries, fit_first_heads, fit_screen, summarize_heads
from attnviz.report.maps.head_panels import drawn, head_cells, head_panels, map_remarks, titled_panels
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import PERCENT, SCORE, WEIGHT, Heading
from attnviz.report.picture.report import DrawnReport, ExactNumbers, Numbers, View, origin
from attnviz.report.picture.scales import (
    MAX_ROW_RATIO,
    MAX_THUMBNAIL_RATIO,
    lift_reach,
    scale_remarks,
    share_scales,
    shows_lift,
)
from attnviz.report.picture.structure import first_sentence, left_out_keys, turns_sentence
from attnviz.report.words.captions import (
    Notes,
    cut_remarks,
    group_title,
    heads_caption,
    item_noun,
    maps_suffix,
    panel_remarks,
    recording_remarks,
    report_title,
)
from attnviz.report.words.notes import names_of
from attnviz.text.named_groups import TURNS
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import first_words

MIN_MAP_CELLS = 32  # rows or columns that a map keeps, however many maps share a page
MAX_OVERVIEW_CELLS = 2048  # rows of cells in all, from the top to the bottom of an overview on one page
MAX_PAGE_MAPS = 32  # heads drawn as maps with labels on one page
MAX_HEADS_OF_A_TEXT = 6  # of a batch that stand in a row
MAX_NOTE_CHARACTERS = 32  # of the text of a batch in the title of a map
MAX_LED_MAPS = 4  # heads that are drawn if they are too many to measure, and it is known which come first
MAX_UNCHOSEN_MAPS = 16  # with more heads, and none chosen by the user, all become thumbnails
TABLE_QUANTITIES = {"scores": [SCORE], "weights": [WEIGHT], "both": [SCORE, WEIGHT]}
VIEWS: dict[str, View] = {"heatmap": "matrix", "arcs": "arcs", "text": "text"}

CellReport = DrawnReport | ExactNumbers


def build_report(
    recording: Recording,
    options: ReportOptions,
    original: Recording | None = None,
    first_heads: Sequence[HeadKey] = (),
) -> CellReport:
    """Returns the report of the chosen heads of a recording: exact numbers, or a picture if the medium draws maps.

    The picture shows an image or a text shaded by a row, arcs, tables of numbers, or else heatmaps, as the options say.
    """
    # An axis that the user did not restrict is drawn without the padding at the ends of its text.
    drops_padding = [span == (None, None) for span in (options.selection.queries, options.selection.keys)]
    selected_heads = [
        replace(
            head,
            queries=head.maps.query_tokens.unpadded if drops_padding[0] else head.queries,
            keys=head.maps.key_tokens.unpadded if drops_padding[1] else head.keys,
        )
        for head in filtered_heads_of(recording, options)
    ]
    if not options.medium.draws_maps:
        return _exact_numbers(recording, selected_heads, options)
    summaries = summarize_heads(original or recording, options)
    ranking = _ranked_heads_of(selected_heads, options)
    heads, notes = [head for head, _ in ranking], _title_notes(ranking, options, summaries)
    are_over_images = shows_images(heads, options)
    if options.look.drawn_style != "heatmap" or are_over_images:
        from attnviz.report.maps.rows import arcs_report, image_report, text_report

        if are_over_images:
            return image_report(recording, heads, options, notes)
        draw_rows = arcs_report if options.look.drawn_style == "arcs" else text_report
        return draw_rows(recording, heads, options, notes)
    if options.table is not None:
        quantities = TABLE_QUANTITIES[options.table]
        panels = titled_panels(
            recording, heads, quantities, divide_page(options, len(heads) * len(quantities)), notes={}
        )
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
    return _maps_of_heads(recording, ranking, options, summaries, notes, first_heads)


def _maps_of_heads(
    recording: Recording,
    ranking: list[tuple[ChosenHead, float]],
    options: ReportOptions,
    summaries: HeadSummaries | None,
    notes: Notes,
    first_heads: Sequence[HeadKey],
) -> DrawnReport:
    """Returns the maps of all heads if the user chose heads, the options ask for all, or all fit; else of some."""
    heads = [head for head, _ in ranking]
    draw_all = (
        partial(_thumbnails, recording, ranking, options, summaries)
        if _are_too_many(heads, options)
        else partial(_heatmaps, recording, heads, options, notes)
    )
    draws_some = options.medium.fits is not None or (bool(first_heads) and _are_too_many(heads, options))
    if not draws_some or options.all or chooses_heads(options):
        return draw_all()
    if summaries is not None:
        led_summaries = replace(summaries, first_heads=tuple(first_heads))
        return fit_screen(recording, heads, options, led_summaries, draw_all)
    if first_heads and (options.sort, options.top) == (None, None):
        ranks = {key: rank for rank, key in enumerate(first_heads)}
        led_heads = sorted(heads, key=lambda head: ranks.get(head.key, len(ranks)))
        return _first_heads(recording, led_heads, options, notes, MAX_LED_MAPS)
    is_ranked = (options.sort, options.top, options.filter) != (None, None, None)
    if recording.untrained and not is_ranked and not _are_too_many(heads, options):  # so none tells more than others
        return _first_heads(recording, heads, options, notes, len(heads))
    return draw_all()


def shows_images(heads: list[ChosenHead], options: ReportOptions) -> bool:
    """True if rows of weights are drawn over images: all keys have images, and no other style or table is chosen."""
    style = options.look.style or "text"
    have_images = all(any(isinstance(medium, Image) for medium in head.maps.key_tokens.media) for head in heads)
    return have_images and style == "text" and options.table is None


def _first_heads(
    recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes, count: int
) -> DrawnReport:
    """Returns the report of the first ``count`` heads, or of as many of them as fit on the screen."""
    return fit_first_heads(
        heads, recording, options, lambda some_heads: _heatmaps(recording, some_heads, options, notes), count
    )


def _title_notes(
    ranking: list[tuple[ChosenHead, float]], options: ReportOptions, summaries: HeadSummaries | None
) -> Notes:
    """Returns the note in each title by the head's key: the user's name for the head, then its metric or pattern."""
    names = names_of(options.look)
    quoted_names = {}
    for head, _ in ranking:
        if name := names.get(head.name):
            quoted_names[head.key] = f"“{name}”"
    notes = dict({} if summaries is None else summaries.notes)
    if options.sort is not None:
        metric = options.sort.removeprefix("-")
        notes = {head.key: f"{metric} {value:.2f}" for head, value in ranking}
    return notes | {key: f"{name}, {notes[key]}" if key in notes else name for key, name in quoted_names.items()}


def filtered_heads_of(recording: Recording, options: ReportOptions) -> list[ChosenHead]:
    """Returns the selected heads that pass the user's filter; all selected heads without a filter."""
    heads = chosen_heads(recording, options.selection)
    if options.filter is None:  # spares the import of metrics
        return heads
    from attnviz.metrics.measured_heads import filtered_heads

    return filtered_heads(heads, options.filter)


def _ranked_heads_of(heads: list[ChosenHead], options: ReportOptions) -> list[tuple[ChosenHead, float]]:
    """Returns the heads sorted by the metric and cut to the top few, each with its value; NaN without a metric."""
    if options.sort is None and options.top is None:
        return [(head, math.nan) for head in heads]
    from attnviz.metrics.measured_heads import ranked_heads

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
        title = options.look.title or f"{len(texts)} {item_noun(heads[0].maps)}s"
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


def _are_too_many(heads: list[ChosenHead], options: ReportOptions) -> bool:
    """True if heads are too many for maps with labels; outside of one page, heads that the user chose never are."""
    if options.medium.one_page:
        return len(heads) > MAX_PAGE_MAPS
    return not chooses_heads(options) and len(heads) > MAX_UNCHOSEN_MAPS


def chooses_heads(options: ReportOptions) -> bool:
    """True if the user chose heads by their numbers."""
    return options.selection.heads is not None or options.selection.pairs is not None


def _thumbnails(
    recording: Recording,
    ranking: list[tuple[ChosenHead, float]],
    options: ReportOptions,
    summaries: HeadSummaries | None,
) -> DrawnReport:
    """Returns the report of every head as a thumbnail: a row per layer."""
    heads = [head for head, _ in ranking]
    groups = [group_title(recording, head.maps) for head in heads]
    fills_rows = options.sort is not None or not are_adjacent(groups)
    thumbnail_options = _thumbnail_options(heads, options, fills_rows)
    left_out = None if options.chooses_keys else left_out_keys(heads)
    panels = []
    for (head, value), group in track(list(zip(ranking, groups, strict=True)), "pooling heads"):
        suffix = maps_suffix(recording, head.maps)
        heading = Heading(head.name, number=head.head, names_group=not (recording.tower or suffix))
        if fills_rows:
            heading = replace(heading, name=f"{head.name}{suffix}", note="" if math.isnan(value) else f"{value:.2f}")
        panels += head_panels(head, [PERCENT], thumbnail_options, heading, group, left_out)
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
            *(() if options.medium.one_page else (opening,)),
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


def _thumbnail_options(heads: list[ChosenHead], options: ReportOptions, fills_rows: bool) -> ReportOptions:
    """Returns the options with as many cells per thumbnail as fit, at least `MIN_MAP_CELLS` if the medium allows
    them.
    """
    layers = len({(head.maps.layer, head.maps.kind, head.maps.item) for head in heads})
    rows = math.ceil(math.sqrt(len(heads))) if fills_rows else layers
    grows = options.medium.one_page and options.look.inches is None
    cells = MAX_OVERVIEW_CELLS // rows if grows else options.medium.max_cells
    return limit_cells(options, min(max(cells, MIN_MAP_CELLS), options.medium.thumbnail_cells))


def _exact_numbers(recording: Recording, selected_heads: list[ChosenHead], options: ReportOptions) -> ExactNumbers:
    """Returns the exact numbers of the heads, in the user's order; for a page that sorts heads, in recorded order."""
    from attnviz.report.heads.head_numbers import with_page_numbers

    look = options.look
    heads = [head for head, _ in _ranked_heads_of(selected_heads, options)]
    # A page sorts heads by their metrics, which it has only if all heads have cells.
    sorts_heads = options.medium.sorts_heads and len(heads_with_cells(heads)) == len(heads)
    if sorts_heads:
        chosen_ids = set(map(id, heads))
        heads = [head for head in selected_heads if id(head) in chosen_ids]  # in recorded order
    query = None  # counted from the first query that is shown
    if look.query is not None:
        from attnviz.text.places import find_place

        shown_queries = range(heads[0].queries.start, heads[0].queries.stop)
        place, _ = find_place(heads[0].maps.query_tokens, look.query)
        query = place - shown_queries.start if place in shown_queries else None
    report = with_page_numbers(
        ExactNumbers(
            title=report_title(recording, look),
            caption=heads_caption(recording, heads, []),
            remarks=recording_remarks(recording),
            look=look,
            numbers=Numbers(
                {"recording": origin(recording)}, tuple(head_cells({"": head}, options.table) for head in heads)
            ),
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
            report = replace(report, first_sentence=first_sentence(heads, report.frame, left_out))
    if options.medium.sorts_heads and look.drawn_style == "heatmap" and options.table is None and query is None:
        are_over_images = any(isinstance(medium, Image) for head in heads for medium in head.maps.key_tokens.media)
        report = replace(
            report,
            overview="lens" if are_over_images else "maps",
            by_turns=None if are_over_images else _by_turns(recording, report, heads, options),
        )
    return with_colors_of_figure(report, heads, options, len(heads))


def _by_turns(
    recording: Recording, report: ExactNumbers, heads: list[ChosenHead], options: ReportOptions
) -> ExactNumbers | None:
    """Returns the report of the same heads over the turns of a chat; ``None`` without turns, or with too many."""
    calls = {id(head.maps): head.maps for head in heads}
    are_whole = all(
        (head.queries, head.keys) == (head.maps.query_tokens.unpadded, head.maps.key_tokens.unpadded) for head in heads
    )
    has_cells = len(heads_with_cells(heads)) == len(heads)
    is_plain = (
        options.grouping in (Grouping(), Grouping(special=True)) and options.of == "weights" and are_whole and has_cells
    )
    if not is_plain or not has_few_turns(calls.values()):
        return None
    grouping = Grouping(by=TURNS)
    grouped = regroup(replace(recording, maps=tuple(calls.values())), Selection(), grouping)
    grouped_maps = dict(zip(calls, grouped.maps, strict=True))
    heads_by_turns = [
        ChosenHead(maps, head.head, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))
        for head in heads
        for maps in (grouped_maps[id(head.maps)],)
    ]
    by_turns = replace(
        report,
        numbers=Numbers(report.numbers.about, tuple(head_cells({"": head}, None) for head in heads_by_turns)),
        remarks=grouped.remarks[: len(grouped.remarks) - len(recording.remarks)],
        left_out=left_out_keys(heads_by_turns),
        first_sentence=() if recording.untrained else turns_sentence(heads_by_turns),
    )
    return with_colors_of_figure(by_turns, heads_by_turns, options, len(heads))


def with_colors_of_figure(
    report: ExactNumbers, heads: Sequence[ChosenHead], options: ReportOptions, panel_count: int
) -> ExactNumbers:
    """Returns a page's report with the colours of a figure of these heads, which has so many panels.

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
        as_figure = _thumbnail_options(list(heads), as_figure, fills_rows)
    else:
        as_figure = divide_page(as_figure, panel_count)
    panels = [panel for head in heads for panel in head_panels(head, [PERCENT], as_figure, Heading(head.name))]
    max_ratio = MAX_THUMBNAIL_RATIO if are_thumbnails else MAX_ROW_RATIO
    return replace(report, shows_lift=shows_lift(panels, options.look, max_ratio), lift_reach=lift_reach(panels))
