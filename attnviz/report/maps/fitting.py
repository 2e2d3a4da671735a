"""Fits a report to one screen: a summary of all heads, and maps of as many of the clearest as fit."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from attnviz.base.errors import option
from attnviz.maps.heads import ChosenHead
from attnviz.maps.recording import Recording
from attnviz.report.heads.head_summaries import HeadSummaries
from attnviz.report.maps.head_panels import titled_panels
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import PERCENT
from attnviz.report.picture.report import Heatmaps, Report, Thumbnails
from attnviz.report.picture.scales import LIFTED, scale_remarks, share_scales
from attnviz.report.words.captions import (
    MASKED,
    count_phrase,
    fidelity_remarks,
    mark_remarks,
    model_name,
    panel_remarks,
    recording_remarks,
    report_title,
)

FIRST_TOKENS = (16, 12, 10, 8, 6)  # numbers of tokens to try where a text is a little too long for the screen
MAX_CUT_TOKENS = 40  # longer texts are pooled; of texts up to this length the first tokens are drawn
POOLED_CELLS = (40, 32, 24, 16, 12)
MIN_ROWS = 4
OF_REPEATS = ("induction", "duplicate token")  # patterns that need repeated tokens, so not a text's first tokens
LINES_A_GROUP = 3  # fewest lines of the screen that the heads of one layer need


def fit_screen(
    recording: Recording,
    heads: list[ChosenHead],
    options: ReportOptions,
    summaries: HeadSummaries,
    draw_all: Callable[[], Heatmaps | Thumbnails],
) -> Heatmaps | Thumbnails:
    """Returns the report of all heads if it fits on the screen, else of as many of the clearest heads as fit.

    Args:
        recording: the recording to show.
        heads: its chosen heads.
        options: options whose medium tells if a report fits.
        summaries: the summary of what the heads do.
        draw_all: returns the report of all heads.
    """
    fits = options.medium.fits or (lambda report: True)
    group_count = len({(head.maps.layer, head.maps.kind) for head in heads})
    if not summaries.first and LINES_A_GROUP * group_count <= (options.look.height or group_count * LINES_A_GROUP):
        report = draw_all()
        if fits(report):
            return report
    by_key = {head.key: head for head in heads}
    clearest = [by_key[head.key] for head in summaries.clearest if head.key in by_key]
    length, max_cells = _longer_side(clearest[0]), options.medium.max_cells
    sizes = (
        _extents_with_last_row(length, max_cells)
        if summaries.first
        else _extents(length, max_cells, any(name in OF_REPEATS for name in summaries.names))
    )
    reports = (_clearest_report(recording, clearest, options, summaries, size) for size in sizes)
    candidates = (candidate for report in reports for candidate in _with_fewer_remarks(report, recording))
    return first_that_fits(candidates, fits)


def fit_first_heads(
    heads: list[ChosenHead],
    recording: Recording,
    options: ReportOptions,
    draw: Callable[[list[ChosenHead]], Heatmaps],
    count: int,
) -> Heatmaps:
    """Returns the report of the first ``count`` heads if it fits on the screen, else of as many of them as fit.

    It suits random weights, which are all alike. If not even one head fits, ``count`` heads are drawn.

    Args:
        heads: the chosen heads.
        recording: the recording of these heads.
        options: options whose medium tells if a report fits.
        draw: returns the report of some of the heads.
        count: the largest number of heads that are drawn.
    """
    fits = options.medium.fits or (lambda report: True)
    advice = f"Use {option('all', True)} to draw all {len(heads)} heads."
    full_report = draw(heads[:count])
    if count < len(heads):
        full_report = replace(full_report, remarks=(advice, *full_report.remarks))
    smaller_counts = range(min(count, len(heads)) - 1, 0, -1)
    smaller_reports = (draw(heads[:smaller_count]) for smaller_count in smaller_counts)
    reports_with_advice = (replace(report, remarks=(advice, *report.remarks)) for report in smaller_reports)
    reports = chain([full_report], reports_with_advice)
    candidates = (candidate for report in reports for candidate in _with_fewer_remarks(report, recording))
    fitting_report = first_that_fits(candidates, fits)
    return fitting_report if fits(fitting_report) else full_report


def first_that_fits(reports: Iterable[Heatmaps], fits: Callable[[Report], bool]) -> Heatmaps:
    """Returns the first report that fits on the screen, or the last one if none does; there must be one."""
    for report in reports:
        if fits(report):
            break
    return report


def _longer_side(head: ChosenHead) -> int:
    """Returns the number of queries or of keys of a head, whichever is larger."""
    return max(_count(head.queries), _count(head.keys))


class Extent(NamedTuple):
    """How much of a recording a report draws.

    Attributes:
        heads: the number of heads.
        rows: the number of rows of each map.
        part: the part of the text that the rows show.
        numbers: True if cells may show numbers.
    """

    heads: int
    rows: int
    part: Literal["whole", "first tokens", "last queries"] = "whole"
    numbers: bool = True


def _extents(length: int, max_cells: int, of_repeats: bool) -> Iterator[Extent]:
    """Yields the extents to try, most informative first: whole maps with numbers, whole maps, parts or pooled maps.

    Args:
        length: the number of tokens of the text.
        max_cells: the largest number of rows or columns of a map.
        of_repeats: True if heads look at repeated tokens, which the start of a text seldom has.
    """
    is_short = length <= MAX_CUT_TOKENS
    smaller_rows = [rows for rows in (FIRST_TOKENS if is_short else POOLED_CELLS) if rows < length]
    yield from (Extent(heads, length) for heads in (4, 3, 2) if is_short)
    yield from (Extent(heads, length, numbers=False) for heads in (4, 3) if length <= max_cells)
    if is_short and of_repeats:
        yield from (
            Extent(heads, rows, "last queries", numbers=False) for rows in smaller_rows for heads in (4, 3, 2, 1)
        )
    part: Literal["first tokens", "whole"] = "first tokens" if is_short else "whole"
    yield from (Extent(heads, rows, part, is_short) for rows in smaller_rows for heads in (4, 3))
    yield from (Extent(2, rows, part, is_short) for rows in smaller_rows)
    yield from (Extent(1, rows, part, is_short) for rows in (*([length] if is_short else []), *smaller_rows, MIN_ROWS))


def _extents_with_last_row(length: int, max_cells: int) -> Iterator[Extent]:
    """Yields the extents to try, most informative first, if the last row matters most: each extent has it.

    Args:
        length: the number of units of the text.
        max_cells: the largest number of rows or columns of a map.
    """
    if length > MAX_CUT_TOKENS:
        yield from (Extent(heads, rows) for rows in POOLED_CELLS for heads in (4, 3, 2, 1))
        return
    yield from (Extent(heads, length) for heads in (4, 3, 2, 1))
    yield from (Extent(heads, length, numbers=False) for heads in (2, 1) if length <= max_cells)
    smaller_rows = [rows for rows in (*FIRST_TOKENS, MIN_ROWS, 2, 1) if rows < length]
    yield from (Extent(1, rows, "last queries", numbers) for rows in smaller_rows for numbers in (True, False))


def _clearest_report(
    recording: Recording, clearest: list[ChosenHead], options: ReportOptions, summaries: HeadSummaries, extent: Extent
) -> Heatmaps:
    """Returns the report of the first of the clearest heads, as many and with as many rows as the extent allows."""
    heads = [_restricted_head(head, extent) for head in clearest[: extent.heads]]
    if extent.part != "last queries":
        options = limit_cells(options, extent.rows)
    panels = titled_panels(recording, heads, [PERCENT], options, summaries.notes)
    colored = share_scales(panels, options.look)
    return Heatmaps(
        title=report_title(recording, options.look),
        panels=colored,
        numbers=extent.numbers,
        caption=_caption(recording, heads, clearest, summaries),
        remarks=(
            f"Use {option('all', True)} for all, {option('heads', heads[0].name)} for one; attnviz heads lists what "
            "each does.",
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(panels),
            *scale_remarks(options.look, colored),
            *recording_remarks(recording),
        ),
        look=options.look,
        about={"recording": origin(recording)},
    )


def _restricted_head(head: ChosenHead, extent: Extent) -> ChosenHead:
    """Returns the head with the last queries or the first tokens alone if the extent says so; else unchanged."""
    queries, keys, count = head.queries, head.keys, extent.rows
    if extent.part == "last queries":
        return replace(head, queries=slice(max(queries.start, queries.stop - count), queries.stop))
    if extent.part == "first tokens":
        first_tokens = [slice(span.start, min(span.stop, span.start + count)) for span in (queries, keys)]
        return replace(head, queries=first_tokens[0], keys=first_tokens[1])
    return head


def _with_fewer_remarks(report: Heatmaps, recording: Recording) -> Iterator[Heatmaps]:
    """Yields the report, then without the remark on exact weights, then also without those on masks and colours.

    A warning that weights are not exact stays.
    """
    yield report
    passed_check = tuple(remark for remark in fidelity_remarks(recording) if not remark.startswith("Warning"))
    for omitted_remarks in (passed_check, (*passed_check, MASKED, LIFTED)):
        yield replace(report, remarks=tuple(remark for remark in report.remarks if remark not in omitted_remarks))


def _caption(
    recording: Recording, heads: list[ChosenHead], clearest: list[ChosenHead], summaries: HeadSummaries
) -> str:
    """Returns the caption: a summary of all heads, and the heads and tokens that are shown."""
    first_head, clearest_head = heads[0], clearest[0]
    selection = f"showing the {len(heads)} clearest" if len(heads) > 1 else "showing the clearest"
    if _longer_side(first_head) < _longer_side(clearest_head):
        tokens = f"the first {_longer_side(first_head)} of {_longer_side(clearest_head)} tokens"
        extent = f"{selection} over {tokens} (rows: queries, columns: keys)"
    else:
        queries, keys = (
            count_phrase(_count(first_head.queries), "queries"),
            count_phrase(_count(first_head.keys), "keys"),
        )
        if first_head.queries != clearest_head.queries:
            queries = (
                f"the last {_count(first_head.queries)} of {count_phrase(_count(clearest_head.queries), 'queries')}"
            )
        extent = f"{selection}: {queries} (rows) over {keys} (columns)"
    return f"{len(clearest)} heads of {model_name(recording)}: {summaries.summary}; {extent}."


def _count(span: slice) -> int:
    """Returns the number of tokens of a span."""
    return len(range(span.start, span.stop))
