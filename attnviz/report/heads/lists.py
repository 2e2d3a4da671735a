"""Builds reports of numbers of heads: a list with columns and bars, or maps of layers by heads, and rows for files."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.effects.controls import LEVEL, holm, least_draws
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Axis, Heading, Panel, Quantity
from attnviz.report.picture.report import DrawnReport, HeadList, Results, Summary
from attnviz.report.picture.scales import share_scales

UNKNOWN = "–"
METRIC_QUANTITIES = {
    "share": Quantity("share of a query's weight", ".2f"),
    "bits": Quantity("bits", ".2f"),
    "tokens": Quantity("tokens", ".1f"),
    "nats": Quantity("nats", ".2f"),
    "seconds": Quantity("seconds", ".3f"),
    "norm": Quantity("norm of the contributions", ".2f"),
    "times": Quantity("times an even share", ".1f"),
    "": Quantity("number", ".2f", any_sign=True),
    "change": Quantity("change without the head", "+.4f", centred=True, steps="sqrt"),
}
UNIT_ENDINGS = {
    "share": "",
    "bits": " in bits",
    "tokens": " in tokens",
    "nats": " in nats",
    "seconds": " in seconds",
    "norm": "",
    "times": "",
    "": "",
    "change": "",
}
MAX_PASSED = 4  # tests that a remark names
MAX_NUMBERED = 48  # cells of a picture that shows its numbers without being asked
HeadsReport = HeadList | DrawnReport
PICTURE_REMARKS = ("Rows are layers, columns are heads.",)
CHANGE_REMARKS = ("Rows are layers, columns are heads; colours are after minus before: red is more, blue is less.",)


class Column(NamedTuple):
    """A column of a list."""

    header: str  # the heading
    cells: Sequence[str]  # the text of each row
    # the length of the bar beside each cell, -1 to 1, ``None`` or NaN for no bar; ``None`` for a column without bars
    bars: Sequence[float | None] | None = None
    align: str = ">"  # ``<`` or ``>``


@dataclass(frozen=True, eq=False)
class FileNumbers:
    """Exact numbers for files, which are put together only if such a file is written."""

    as_rows: Callable[[], Sequence[Sequence[Any]]]  # returns the header and the rows below it
    as_json: Callable[[], dict[str, Any]]  # returns all numbers as JSON values


def listed(*columns: Column) -> Summary:
    """Returns the list with these columns, which have equally many cells."""
    bars = [[None] * len(column.cells) if column.bars is None else column.bars for column in columns]
    return Summary(
        header=tuple(column.header for column in columns),
        rows=tuple(zip(*(column.cells for column in columns), strict=True)),
        bars=tuple(
            tuple(None if bar is None or math.isnan(bar) else bar for bar in row) for row in zip(*bars, strict=True)
        ),
        align="".join(column.align for column in columns),
    )


def bar_lengths(numbers: Sequence[float]) -> list[float]:
    """Returns the length of each number's bar: its ratio to the largest absolute number, -1 to 1; NaN for NaN."""
    largest = max((abs(number) for number in numbers if not math.isnan(number)), default=0.0) or 1.0  # all empty
    return [number / largest for number in numbers]


def margin_text(margin: float) -> str:
    """Returns the margin, half of an interval, with ± before it; a dash if it is NaN."""
    return UNKNOWN if math.isnan(margin) else f"±{margin:.3f}"


def number_texts(numbers: Iterable[float], spec: str) -> list[str]:
    """Returns the numbers as ``spec`` formats them; "" for NaN."""
    return ["" if math.isnan(number) else format(number, spec) for number in numbers]


def replacement_words(by: str, texts: int) -> str:
    """Returns what replaces the output of a removed head: ``zero``, ``mean`` or another text, over so many texts."""
    mean = "its mean over the positions" if texts == 1 else "its mean over all positions of the texts"
    return {"zero": "zero", "mean": mean}.get(by, "its output on another text")


def p_text(p: float, draws: int) -> str:
    """Returns the p of a rank among so many draws, such as ``0.048 (least)`` if they can give no smaller one."""
    return f"{p:.2g} (least)" if draws and p == 1 / (1 + draws) else f"{p:.2g}"


def p_remarks(tests: Sequence[tuple[str, float, int]], draws: str = "sets") -> list[str]:
    """Returns a remark on each least p, and on which of several tests pass if p is corrected for their number.

    Args:
        tests: the name of each test, its p, and the number of draws that it is a rank among.
        draws: what was drawn, in the plural.
    """
    counts = sorted({count for _, p, count in tests if count and p == 1 / (1 + count)}, reverse=True)
    least = [
        f"p = {1 / (1 + count):.2g} is the least that {count} {draws[: -1 if count == 1 else None]} can give"
        for count in counts
    ]
    remarks = [f"{' and '.join(least)}."] if least else []
    if len(tests) > 1:
        corrected = holm([p for _, p, _ in tests])
        passed = [name for (name, _, _), p in zip(tests, corrected, strict=True) if p <= LEVEL]
        more = f" with {len(passed) - MAX_PASSED} more" if len(passed) > MAX_PASSED else ""
        said = f"that of {', '.join(passed[:MAX_PASSED])} is{more}" if passed else "no p is"
        can_pass = any(len(tests) / (1 + count) <= LEVEL for _, _, count in tests)
        takes = "" if can_pass else f", which takes {least_draws(len(tests))} {draws} for each test"
        remarks.append(f"{len(tests)} tests: corrected for their number (Holm), {said} {LEVEL} or less{takes}.")
    return [" ".join(remarks)] if remarks else []


def layers_by_heads(rows: Sequence[HeadRow], values: Sequence[float], title: str, quantity: Quantity) -> Panel:
    """Returns a panel of layers by heads, blank where a layer lacks a head; `share_scales` must set its colour
    scale.
    """
    layers = sorted({(row.layer, row.module, row.kind, row.part) for row in rows})
    heads = sorted({row.head for row in rows})
    cells = np.full((len(layers), len(heads)), np.nan, dtype=np.float32)
    for row, value in zip(rows, values, strict=True):
        cells[layers.index((row.layer, row.module, row.kind, row.part)), heads.index(row.head)] = value
    layer_labels = [
        (f"{part}:{layer}" if part else f"{layer}") + ("" if kind == "self" else f" {kind}")
        for layer, _, kind, part in layers
    ]
    return labelled_panel(title, cells, ("layers", layer_labels), ("heads", list(map(str, heads))), quantity)


def labelled_panel(
    title: str,
    values: FloatArray | Float64Array,
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
    quantity: Quantity,
) -> Panel:
    """Returns a panel of numbers with labels, in which NaN is blank; `share_scales` must set its colour scale.

    Args:
        values: ``(rows, columns)``.
    """
    cells = values.astype(np.float32)
    return Panel(
        heading=Heading(title),
        values=cells,
        visible=~np.isnan(cells),
        rows=_axis(*rows),
        columns=replace(_axis(*columns), across=True),
        quantity=quantity,
        scale=ColorScale(0, 1),  # a placeholder
    )


def _axis(name: str, labels: Sequence[str]) -> Axis:
    """Returns an axis with one cell per label."""
    return Axis(name=name, labels=tuple(labels), edges=tuple(range(len(labels) + 1)), dense=name == "heads")


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadResults:
    """Numbers of heads with all that a list or a picture of them needs, before one of the two is chosen."""

    title: str  # the heading, unless the user gave one
    caption: str  # the result in one sentence
    remarks: tuple[str, ...]  # sentences about the numbers for the reader
    results: HeadFrame | Results  # all numbers, exact
    summary: Callable[[], Summary]  # builds the list
    panels: Callable[[], Sequence[Panel]]  # builds the panels of the picture
    refusal: str = ""  # the message that refuses a page and says what to do; "" for a table of heads, which has a page
    has_page: bool = False  # True if a page draws the list itself
    list_remarks: tuple[str, ...] = ()  # remarks of the list only, before the others
    picture_remarks: tuple[str, ...] = PICTURE_REMARKS  # remarks of the picture only, before the others
    about: dict[str, object] = field(default_factory=dict)  # the origin of the numbers, as JSON values

    def report(self, options: ReportOptions) -> HeadsReport:
        """Returns the list if the medium lists heads, or for a page if ``has_page``; else the picture.

        The picture is an atlas for a table of heads, else heatmaps, which show their numbers if they have at most
        `MAX_NUMBERED` cells.
        """
        look, title = options.look, options.look.title or self.title
        fields: dict[str, Any] = {"title": title, "caption": self.caption, "look": look}
        if options.medium.lists_heads or (self.has_page and not options.medium.draws_maps):
            remarks = (*(self.list_remarks if options.medium.lists_heads else ()), *self.remarks)
            return HeadList(**fields, remarks=remarks, results=self.results, summary=self.summary())
        if self.refusal and not options.medium.draws_maps:
            raise AttnvizError(self.refusal)
        panels = share_scales(self.panels(), look)
        fields |= {"panels": panels, "remarks": (*self.picture_remarks, *self.remarks), "about": self.about}
        if isinstance(self.results, HeadFrame):
            return DrawnReport(kind="atlas", **fields, results=self.results)
        if sum(panel.values.size for panel in panels) <= MAX_NUMBERED:
            fields["look"] = replace(look, annotate=True)
        return DrawnReport(kind="maps", **fields)
