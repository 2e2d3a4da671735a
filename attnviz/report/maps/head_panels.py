"""Builds the panels and exact numbers of chosen heads, and fits a report of the clearest of them to one screen."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnviz.base.errors import option
from attnviz.base.progress import track
from attnviz.maps.layer_maps import cell_maps, mean_visible_key_counts
from attnviz.maps.recording import ChosenHead, HeadKey, Recording, chosen_heads
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import PERCENT, SCORE, WEIGHT, Heading, Panel, Quantity, quantity_of, token_axis
from attnviz.report.picture.report import DrawingKind, DrawnReport, origin
from attnviz.report.picture.scales import LIFTED, scale_remarks, share_scales
from attnviz.report.picture.structure import LeftOutKeys
from attnviz.report.words.captions import (
    Notes,
    count_phrase,
    exactness_remarks,
    head_heading,
    mark_remarks,
    masked_remark,
    model_name,
    panel_remarks,
    recording_remarks,
    report_title,
)

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame


def drawn(
    kind: DrawingKind,
    recording: Recording,
    look: Look,
    panels: Iterable[Panel],
    caption: str,
    remarks: Iterable[str],
    title: str = "",
    **fields: Any,
) -> DrawnReport:
    """Returns a report that draws panels of a recording; adds the recording's title, remarks and origin."""
    return DrawnReport(
        kind=kind,
        title=title or report_title(recording, look),
        panels=tuple(panels),
        caption=caption,
        remarks=(*remarks, *recording_remarks(recording)),
        look=look,
        checks=exactness_remarks(recording),
        for_audience=dict.fromkeys(recording.advice, ""),
        **{"about": {"recording": origin(recording)}, **fields},
    )


def map_remarks(panels: Sequence[Panel], options: ReportOptions) -> tuple[str, ...]:
    """Returns the remarks on labels, cells and colours."""
    look, masked_look = options.look, options.medium.masked_look
    return (*mark_remarks(look.mark, panels), *panel_remarks(panels, masked_look), *scale_remarks(look, panels))


def with_fewer_remarks(report: DrawnReport, masked_look: str) -> Iterator[DrawnReport]:
    """Yields the report, then one without remarks on exact weights, then one also without those on masks and
    colours.
    """
    yield report
    for omitted_remarks in (report.checks, (*report.checks, masked_remark(masked_look), LIFTED)):
        yield replace(report, remarks=tuple(remark for remark in report.remarks if remark not in omitted_remarks))


def titled_panels(
    recording: Recording,
    heads: list[ChosenHead],
    quantities: list[Quantity],
    options: ReportOptions,
    notes: Notes,
) -> list[Panel]:
    """Returns the panels of these heads, titled with name and note; `share_scales` must set their colour scales."""
    return [
        panel
        for head in track(heads, "pooling heads")
        for panel in head_panels(head, quantities, options, head_heading(recording, head, notes.get(head.key, "")))
    ]


def head_panels(
    head: ChosenHead,
    quantities: list[Quantity],
    options: ReportOptions,
    heading: Heading,
    group: str = "",
    left_out: LeftOutKeys | None = None,
) -> list[Panel]:
    """Returns one panel for each quantity of a head, pooled if the tokens outnumber the medium's cells.

    Panels of a table are not pooled, but cut to the medium's cells. Keys that are left out have no column at the ends,
    and a blank one between others, or none of their own if the panel is pooled. `share_scales` must set the colour
    scales.
    """
    maps, look = head.maps, options.look
    queries, keys = head.queries, head.keys
    if left_out is not None:
        other_keys = np.flatnonzero(~left_out.among(maps.key_tokens, keys)) + keys.start
        keys = slice(int(other_keys[0]), int(other_keys[-1]) + 1)
    if options.table is not None:  # whose numbers cannot be pooled
        queries, keys = (
            slice(span.start, min(span.stop, span.start + options.medium.max_cells)) for span in (queries, keys)
        )
    resolution = maps.resolution(queries, keys)
    block_sizes = (math.ceil(count / min(options.medium.max_cells, count)) for count in resolution)
    row_count, column_count = (math.ceil(count / size) for count, size in zip(resolution, block_sizes, strict=True))
    over_blocks = maps.pooled_source is not maps
    rows = token_axis(
        "blocks of queries" if over_blocks else "queries", maps.query_tokens, queries, row_count, look.mark
    )
    columns_name = "blocks of keys" if over_blocks else "keys"
    columns = token_axis(columns_name, maps.key_tokens, keys, column_count, look.mark, across=True)
    if options.table is None and (rows.pooled or columns.pooled):
        pools_maximum = look.pool == "max"
        overview = maps.overview(
            (head.head,), len(rows.labels), len(columns.labels), queries, keys, maximum=pools_maximum
        )
        pooled_weights = overview.maximum[0] if pools_maximum else overview.mean[0]
        values, visible = {WEIGHT: pooled_weights, PERCENT: pooled_weights}, overview.visible
    else:
        window = cell_maps(maps).window((head.head,), queries, keys)
        values = {SCORE: window.scores[0], WEIGHT: window.weights[0], PERCENT: window.weights[0]}
        visible = window.visible
    if left_out is not None and not columns.pooled:
        visible = visible & ~left_out.among(maps.key_tokens, keys)
    visible_counts = mean_visible_key_counts(maps, head.head, rows.edges) if maps.quantity == "weight" else None
    visible_key_counts = None if visible_counts is None else visible_counts.astype(np.float32)
    return [
        Panel(
            heading=replace(heading, aspect=f" {quantity.plural}") if len(quantities) > 1 else heading,
            values=values[quantity],
            visible=visible,
            rows=rows,
            columns=columns,
            quantity=quantity_of(maps, quantity),
            scale=ColorScale(0, 1),  # a placeholder
            group=group,
            pool=look.pool,
            visible_key_counts=visible_key_counts,
            units="blocks" if over_blocks else "tokens",
            zooms=not over_blocks and resolution == (queries.stop - queries.start, keys.stop - keys.start),
        )
        for quantity in quantities
    ]


MAX_NAMED_HEADS = 4  # the most heads that a sentence names
FIRST_TOKENS = (16, 12, 10, 8, 6)  # numbers of tokens to try where a text is a little too long for the screen
MAX_CUT_TOKENS = 40  # longer texts are pooled; of texts up to this length the first tokens are drawn
POOLED_CELLS = (40, 32, 24, 16, 12)
MIN_ROWS = 4
OF_REPEATS = ("induction", "duplicate token")  # patterns that need repeated tokens, so not a text's first tokens
LINES_A_GROUP = 3  # fewest lines of the screen that the heads of one layer need


@dataclass(frozen=True, eq=False)
class HeadSummaries:
    """The patterns of the selected heads."""

    heads: list[ChosenHead]  # the heads, in the order of the selection
    frame: "HeadFrame"  # their numbers and patterns, in the same order
    # the keys of the heads in which the answer stands out, which ``clearest`` puts first; empty if this is not known
    answering_heads: Sequence[HeadKey] = ()

    @cached_property
    def notes(self) -> Notes:
        """The note on each head's pattern, by the head's key; a head without a clear pattern has none."""
        return {head.key: row.note for head, row in zip(self.heads, self.frame.rows, strict=True) if row.note}

    @cached_property
    def clearest(self) -> list[ChosenHead]:
        """The heads in which the answer stands out, then the others, the clearest patterns first."""
        from attnviz.metrics.patterns import clearest_first

        patterns = (row.first_pattern for row in self.frame.rows)
        return answering_first(clearest_first(zip(self.heads, patterns, strict=True)), self.answering_heads)

    @property
    def summary(self) -> str:
        """The number of heads per pattern, as ``2 previous token, 31 sinks on [CLS], 38 mixed``.

        If only some blocks of queries were measured, the text says so.
        """
        from attnviz.metrics.patterns import pattern_counts

        stride = self.frame.stride
        stride_note = f" (measured over one in {stride} blocks of queries)" if stride > 1 else ""
        return pattern_counts(row.patterns for row in self.frame.rows) + stride_note

    @property
    def sentence(self) -> str:
        """The summary as a remark, with up to `MAX_NAMED_HEADS` of the clearest heads if any is clear."""
        clearest = [head for head in self.clearest[:MAX_NAMED_HEADS] if head.key in self.notes]
        examples = ", ".join(f"{head.name} ({self.notes[head.key]})" for head in clearest)
        return f"Patterns: {self.summary}{'; the clearest: ' if examples else ''}{examples}."


def answering_first(heads: Iterable[ChosenHead], answering_heads: Sequence[HeadKey]) -> list[ChosenHead]:
    """Returns the heads with those in which the answer stands out first, in the order of their keys."""
    ranks = {key: rank for rank, key in enumerate(answering_heads)}
    return sorted(heads, key=lambda head: ranks.get(head.key, len(ranks)))


def summarize_heads(recording: Recording, options: ReportOptions) -> HeadSummaries | None:
    """Returns the patterns of the selected heads; ``None`` if they are not shown, not useful or not measured.

    Tables, sorted heads and the text style do not show patterns. Patterns of random weights or of several texts in one
    recording are not useful. Heads with too many cells are not measured, since that would take long.
    """
    shows_patterns = options.table is None and options.sort is None and options.look.drawn_style != "text"
    if not shows_patterns or recording.untrained or len({maps.item for maps in recording.maps}) > 1:
        return None
    # Patterns are measured over all queries and keys, whichever part is drawn.
    selection = replace(options.selection, queries=(None, None), keys=(None, None))
    heads = chosen_heads(recording, selection)
    from attnviz.metrics.call_metrics import pattern_frame

    frame = pattern_frame(heads)
    return None if frame is None or not heads else HeadSummaries(heads, frame)


def fit_screen(
    recording: Recording,
    heads: list[ChosenHead],
    options: ReportOptions,
    summaries: HeadSummaries,
    notes: Notes,
    draw_all: Callable[[], DrawnReport],
) -> DrawnReport:
    """Returns the report of all heads if it fits on the screen, else of as many of the clearest heads as fit.

    The report of all heads is not tried if the summaries know in which the answer stands out, or if the groups of heads
    need more lines than the screen has. If no report fits, returns the smallest one.
    """
    fits = options.medium.fits or (lambda report: True)
    group_count = len({(head.maps.layer, head.maps.kind) for head in heads})
    height = options.look.height
    groups_fit = not height or LINES_A_GROUP * group_count <= height
    if not summaries.answering_heads and groups_fit:
        report = draw_all()
        if fits(report):
            return report
    heads_by_key = {head.key: head for head in heads}
    clearest_heads = [heads_by_key[head.key] for head in summaries.clearest if head.key in heads_by_key]
    length, max_cells = _longer_side(clearest_heads[0]), options.medium.max_cells
    if summaries.answering_heads:
        extents = _extents_with_last_row(length, max_cells)
    else:
        finds_repeats = any(row.first_pattern.name in OF_REPEATS for row in summaries.frame.rows)
        extents = _extents(length, max_cells, finds_repeats)
    # On the smallest screens an answer leaves space for its map and the way to more alone.
    tried = [(extent, False) for extent in extents]
    tried += [(extent, True) for extent, _ in tried] if summaries.answering_heads else []
    for extent, is_brief in tried:
        shown_heads = []
        for head in clearest_heads[: extent.heads]:
            queries, keys = head.queries, head.keys
            if extent.part == "last queries":
                queries = slice(max(queries.start, queries.stop - extent.rows), queries.stop)
            elif extent.part == "first tokens":
                queries = slice(queries.start, min(queries.stop, queries.start + extent.rows))
                keys = slice(keys.start, min(keys.stop, keys.start + extent.rows))
            shown_heads.append(replace(head, queries=queries, keys=keys))
        panel_options = options if extent.part == "last queries" else limit_cells(options, extent.rows)
        panels = titled_panels(recording, shown_heads, [PERCENT], panel_options, notes)
        colored_panels = share_scales(panels, options.look)
        one_head = option("heads", shown_heads[0].name)
        advice = f"Use {option('all', True)} for all, {one_head} for one; attnviz heads lists what each does."
        smaller_report = drawn(
            "maps",
            recording,
            options.look,
            colored_panels,
            _caption(recording, shown_heads, clearest_heads, summaries, counts_patterns=not is_brief),
            (advice, *map_remarks(colored_panels, options)),
            numbers=extent.numbers,
        )
        smaller_report = replace(smaller_report, remarks=(advice,)) if is_brief else smaller_report
        for candidate in with_fewer_remarks(smaller_report, options.medium.masked_look):
            if fits(candidate):
                return candidate
    return candidate


def fit_first_heads(
    heads: list[ChosenHead],
    recording: Recording,
    options: ReportOptions,
    draw: Callable[[list[ChosenHead]], DrawnReport],
    count: int,
) -> DrawnReport:
    """Returns the report of the first ``count`` heads if it fits on the screen, else of as many of them as fit.

    If not even one head fits, ``count`` heads are drawn. A remark tells how to draw all heads if some are left out.
    """
    fits = options.medium.fits or (lambda report: True)
    reports = []
    for shown_count in range(min(count, len(heads)), 0, -1):
        report = draw(heads[:shown_count])
        if shown_count < len(heads):
            advice = f"Use {option('all', True)} to draw all {len(heads)} heads."
            report = replace(report, remarks=(advice, *report.remarks))
        for candidate in with_fewer_remarks(report, options.medium.masked_look):
            if fits(candidate):
                return candidate
        reports.append(report)
    return reports[0]


def _longer_side(head: ChosenHead) -> int:
    """Returns the number of queries or of keys of a head, whichever is larger."""
    return max(_count(head.queries), _count(head.keys))


class _Extent(NamedTuple):
    """How much of a recording a report draws."""

    heads: int  # the number of heads
    rows: int  # the number of rows of each map
    part: Literal["whole", "first tokens", "last queries"] = "whole"  # the part of the text that the rows show
    numbers: bool = True  # True if cells may show numbers


def _extents(length: int, max_cells: int, finds_repeats: bool) -> Iterator[_Extent]:
    """Yields the extents to try, most informative first: whole maps with numbers, whole maps, parts or pooled maps."""
    is_short = length <= MAX_CUT_TOKENS
    smaller_rows = [rows for rows in (FIRST_TOKENS if is_short else POOLED_CELLS) if rows < length]
    yield from (_Extent(heads, length) for heads in (4, 3, 2) if is_short)
    yield from (_Extent(heads, length, numbers=False) for heads in (4, 3, 2) if length <= max_cells)
    if is_short and finds_repeats:
        yield from (
            _Extent(heads, rows, "last queries", numbers=False) for rows in smaller_rows for heads in (4, 3, 2, 1)
        )
    part: Literal["first tokens", "whole"] = "first tokens" if is_short else "whole"
    yield from (_Extent(heads, rows, part, numbers=is_short) for rows in smaller_rows for heads in (4, 3))
    yield from (_Extent(2, rows, part, numbers=is_short) for rows in smaller_rows)
    yield from (
        _Extent(1, rows, part, numbers=is_short) for rows in (*([length] if is_short else []), *smaller_rows, MIN_ROWS)
    )


def _extents_with_last_row(length: int, max_cells: int) -> Iterator[_Extent]:
    """Yields the extents to try, most informative first, if the last row matters most; all of them include this row."""
    if length > MAX_CUT_TOKENS:
        yield from (_Extent(heads, rows) for rows in POOLED_CELLS for heads in (4, 3, 2, 1))
        return
    yield from (_Extent(heads, length) for heads in (4, 3, 2, 1))
    yield from (_Extent(heads, length, numbers=False) for heads in (2, 1) if length <= max_cells)
    smaller_rows = [rows for rows in (*FIRST_TOKENS, MIN_ROWS, 2, 1) if rows < length]
    yield from (
        _Extent(1, rows, "last queries", numbers=has_numbers) for rows in smaller_rows for has_numbers in (True, False)
    )


def _caption(
    recording: Recording,
    heads: list[ChosenHead],
    clearest_heads: list[ChosenHead],
    summaries: HeadSummaries,
    *,
    counts_patterns: bool = True,
) -> str:
    """Returns the caption: a summary of all heads, and the heads and tokens that are shown."""
    shown_head, full_head = heads[0], clearest_heads[0]
    clearest = f"the {len(heads)} clearest" if len(heads) > 1 else "the clearest"
    selection = f"showing {len(heads) if summaries.answering_heads else clearest}"
    has_first_query = shown_head.queries.start == full_head.queries.start
    if has_first_query and _longer_side(shown_head) < _longer_side(full_head):
        tokens = f"the first {_longer_side(shown_head)} of {_longer_side(full_head)} tokens"
        shown_part = f"{selection} over {tokens} (rows: queries, columns: keys)"
    else:
        queries = count_phrase(_count(shown_head.queries), "queries")
        keys = count_phrase(_count(shown_head.keys), "keys")
        if shown_head.queries != full_head.queries:
            all_queries = count_phrase(_count(full_head.queries), "queries")
            queries = f"the last {_count(shown_head.queries)} of {all_queries}"
        shown_part = f"{selection}: {queries} (rows) over {keys} (columns)"
    patterns = f": {summaries.summary}" if counts_patterns else ""
    return f"{count_phrase(len(clearest_heads), 'heads')} of {model_name(recording)}{patterns}; {shown_part}."


def _count(span: slice) -> int:
    """Returns the number of tokens in a range."""
    return len(range(span.start, span.stop))
