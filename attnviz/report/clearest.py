"""The first answer about heads that a screen does not hold: what they do, and the clearest of them as maps."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from attnviz.maps.heads import ChosenHead
from attnviz.maps.recording import Recording
from attnviz.report.captions import (
    counted,
    fidelity_remarks,
    mark_remarks,
    model_name,
    panel_remarks,
    recording_remarks,
    report_title,
)
from attnviz.report.head_panels import titled_panels
from attnviz.report.heads_known import HeadsKnown
from attnviz.report.numbers import origin
from attnviz.report.options import ReportOptions, with_cells
from attnviz.report.panels import PERCENT
from attnviz.report.report import Heatmaps, Thumbnails
from attnviz.report.scales import scale_remarks, share_scales

FIRST_TOKENS = (16, 12, 10, 8, 6)  # of a text that is a little too long for the screen
MAX_CUT_TOKENS = 40  # of a text of which the first ones are drawn; a longer one is pooled
POOLED_CELLS = (40, 32, 24, 16, 12)
MIN_ROWS = 4
LINES_A_GROUP = 3  # of heads of a layer, at least


def screenful(
    recording: Recording,
    heads: list[ChosenHead],
    options: ReportOptions,
    known: HeadsKnown,
    whole: Callable[[], Heatmaps | Thumbnails],
) -> Heatmaps | Thumbnails:
    """All heads where the screen holds them, else what they do and as many of the clearest as it holds.

    Args:
        recording: what is shown.
        heads: its chosen heads.
        options: whose medium says what fits.
        known: what the heads do.
        whole: draws all heads.
    """
    fits = options.medium.fits or (lambda report: True)
    groups = len({(head.maps.layer, head.maps.kind) for head in heads})
    if LINES_A_GROUP * groups <= (options.look.height or groups * LINES_A_GROUP):
        report = whole()
        if fits(report):
            return report
    by_key = {head.key: head for head in heads}
    clearest = [by_key[one.head.key] for one in known.clearest if one.head.key in by_key]
    drawn = (_report(recording, clearest, options, known, *size) for size in _sizes(_length(clearest[0])))
    shorter = (each for report in drawn for each in (report, _without_checks(report, recording)))
    last = None
    for last in shorter:
        if fits(last):
            break
    assert last is not None
    return last


def _length(head: ChosenHead) -> int:
    """Tokens of the longer side."""
    queries, keys = (len(range(span.start, span.stop)) for span in (head.queries, head.keys))
    return max(queries, keys)


def _sizes(length: int) -> Iterator[tuple[int, int]]:
    """How many heads and how many rows of each to try, what tells most first."""
    smaller = [rows for rows in (FIRST_TOKENS if length <= MAX_CUT_TOKENS else POOLED_CELLS) if rows < length]
    whole = [length] if length <= MAX_CUT_TOKENS else []
    yield from product((4, 3, 2), whole)
    yield from ((heads, rows) for rows in smaller for heads in (4, 3))
    yield from ((2, rows) for rows in smaller)
    yield from ((1, rows) for rows in (*whole, *smaller, MIN_ROWS))


def _report(
    recording: Recording, clearest: list[ChosenHead], options: ReportOptions, known: HeadsKnown, count: int, rows: int
) -> Heatmaps:
    """So many of the clearest heads, each with so many of its first tokens, or pooled to so many cells."""
    length, heads = _length(clearest[0]), clearest[:count]
    if length <= MAX_CUT_TOKENS:
        heads = [replace(head, queries=_first(head.queries, rows), keys=_first(head.keys, rows)) for head in heads]
    panels = titled_panels(recording, heads, [PERCENT], with_cells(options, rows), known.notes)
    colored = share_scales(panels, options.look)
    return Heatmaps(
        title=report_title(recording, options.look),
        panels=colored,
        caption=_caption(recording, heads, clearest, known),
        remarks=(
            f"--all draws every head, --heads {heads[0].name} one; attnviz heads lists what each does.",
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(panels),
            *scale_remarks(options.look, colored),
            *recording_remarks(recording),
        ),
        look=options.look,
        about={"recording": origin(recording)},
    )


def _first(span: slice, count: int) -> slice:
    return slice(span.start, min(span.stop, span.start + count))


def _without_checks(report: Heatmaps, recording: Recording) -> Heatmaps:
    """The report without the sentence that says that all is well."""
    checked = [remark for remark in fidelity_remarks(recording) if not remark.startswith("Warning")]
    return replace(report, remarks=tuple(remark for remark in report.remarks if remark not in checked))


def _caption(recording: Recording, heads: list[ChosenHead], clearest: list[ChosenHead], known: HeadsKnown) -> str:
    """What all heads do, and which of them are drawn."""
    shown, whole = heads[0], clearest[0]
    which = f"drawn are the {len(heads)} clearest" if len(heads) > 1 else "drawn is the clearest"
    if _length(shown) < _length(whole):
        over = f"{which} over the first {_length(shown)} of {_length(whole)} tokens (rows: queries, columns: keys)"
    else:
        queries, keys = (counted(span.stop - span.start, name) for span, name in _sides(shown))
        over = f"{which}, {queries} (rows) over {keys} (columns)"
    return f"{len(clearest)} heads of {model_name(recording)}: {known.summary}; {over}."


def _sides(head: ChosenHead) -> tuple[tuple[slice, str], tuple[slice, str]]:
    return (head.queries, "queries"), (head.keys, "keys")
