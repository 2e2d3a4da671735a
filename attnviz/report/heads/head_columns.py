"""Formats numbers of heads: their units, the columns of a list, and a panel of layers by heads."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.metrics.head_frame import HeadRow
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Axis, Panel, Quantity
from attnviz.report.picture.report import Summary

Item = TypeVar("Item")
UNKNOWN = "–"
METRIC_QUANTITIES = {
    "share": Quantity("share of a query's weight", ".2f"),
    "bits": Quantity("bits", ".2f"),
    "tokens": Quantity("tokens", ".1f"),
    "nats": Quantity("nats", ".2f"),
    "seconds": Quantity("seconds", ".3f"),
    "norm": Quantity("norm of the contributions", ".2f"),
    "times": Quantity("times an even share", ".1f"),
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
    "change": "",
}


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a list.

    Attributes:
        header: the heading.
        cell: returns the text of an item's cell.
        bar: returns the length of the bar beside an item's cell, -1 to 1, or ``None`` for no bar; ``None`` for a column
            without bars.
        align: ``<`` or ``>``.
    """

    header: str
    cell: Callable[[Item], str]
    bar: Callable[[Item], float | None] | None = None
    align: str = ">"


def list_summary(items: Sequence[Item], columns: Sequence[Column[Item]]) -> Summary:
    """Returns a table with a row per item; the bar of a cell is ``None`` if its column has no bars."""
    return Summary(
        header=tuple(column.header for column in columns),
        rows=tuple(tuple(column.cell(item) for column in columns) for item in items),
        bars=tuple(tuple(column.bar(item) if column.bar else None for column in columns) for item in items),
        align="".join(column.align for column in columns),
    )


def bar_length(numbers: Sequence[float]) -> Callable[[float], float]:
    """Returns a function from a number to the length of its bar: its ratio to the largest absolute number, -1 to 1."""
    largest = max(map(abs, numbers), default=0.0) or 1.0  # all are 0: every bar is empty
    return lambda number: number / largest


def margin_text(margin: float) -> str:
    """Returns the margin, half of an interval, with ± before it; a dash if it is NaN."""
    return UNKNOWN if math.isnan(margin) else f"±{margin:.3f}"


def format_or_blank(number: float, spec: str) -> str:
    """Returns the number as ``spec`` formats it; "" if it is NaN."""
    return "" if math.isnan(number) else format(number, spec)


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
        title=title,
        values=cells,
        visible=~np.isnan(cells),
        rows=_axis(*rows),
        columns=_axis(*columns),
        quantity=quantity,
        scale=ColorScale(0, 1),  # a placeholder
    )


def _axis(name: str, labels: Sequence[str]) -> Axis:
    """Returns an axis with one cell per label."""
    return Axis(name=name, labels=tuple(labels), edges=tuple(range(len(labels) + 1)))
