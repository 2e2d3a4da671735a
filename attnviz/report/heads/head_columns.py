"""Numbers of heads as a reader sees them: units, the columns of a list, and a panel of layers by heads."""

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
    "norm": Quantity("norm of what is moved", ".2f"),
    "change": Quantity("change without the head", "+.4f", centred=True),
}
UNIT_ENDINGS = {"share": "", "bits": " in bits", "tokens": " in tokens", "norm": "", "change": ""}


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a list.

    Attributes:
        header: over it.
        cell: what it says of an item.
        bar: length of the bar beside that, -1 to 1, ``None`` for none; ``None`` for a column without bars.
        align: ``<`` or ``>``.
    """

    header: str
    cell: Callable[[Item], str]
    bar: Callable[[Item], float | None] | None = None
    align: str = ">"


def listed(items: Sequence[Item], columns: Sequence[Column[Item]]) -> Summary:
    """A row an item."""
    return Summary(
        header=tuple(column.header for column in columns),
        rows=tuple(tuple(column.cell(item) for column in columns) for item in items),
        bars=tuple(tuple(column.bar(item) if column.bar else None for column in columns) for item in items),
        align="".join(column.align for column in columns),
    )


def share_of(numbers: Sequence[float]) -> Callable[[float], float]:
    """Returns a function that gives a number's bar: its share, with its sign, of the largest number's size."""
    most = max(map(abs, numbers), default=0.0) or 1.0
    return lambda number: number / most


def interval(margin: float) -> str:
    """The half of an interval with its sign, and a dash where it is not known."""
    return UNKNOWN if math.isnan(margin) else f"±{margin:.3f}"


def known(number: float, spec: str) -> str:
    """The number, or nothing where it is not known."""
    return "" if math.isnan(number) else format(number, spec)


def layers_by_heads(rows: Sequence[HeadRow], values: Sequence[float], title: str, quantity: Quantity) -> Panel:
    """A number of each head: a row a layer, a column a head.

    Args:
        rows: single heads.
        values: one a head.
        title: of the panel.
        quantity: what the numbers are.
    """
    layers = sorted({(row.layer, row.module, row.kind) for row in rows})
    heads = sorted({row.head for row in rows})
    cells = np.full((len(layers), len(heads)), np.nan, dtype=np.float32)
    for row, value in zip(rows, values, strict=True):
        cells[layers.index((row.layer, row.module, row.kind)), heads.index(row.head)] = value
    named = [f"{layer}" if kind == "self" else f"{layer} {kind}" for layer, _, kind in layers]
    return labelled_panel(title, cells, ("layers", named), ("heads", list(map(str, heads))), quantity)


def labelled_panel(
    title: str,
    values: FloatArray | Float64Array,
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
    quantity: Quantity,
) -> Panel:
    """A panel of numbers with a label for each row and column; NaN is absent.

    Args:
        title: over it.
        values: ``(rows, columns)``.
        rows: the name of the axis, and its labels.
        columns: the same.
        quantity: what the numbers are.
    """
    shown = values.astype(np.float32)
    return Panel(
        title=title,
        values=shown,
        visible=~np.isnan(shown),
        rows=_axis(*rows),
        columns=_axis(*columns),
        quantity=quantity,
        scale=ColorScale(0, 1),
    )


def _axis(name: str, labels: Sequence[str]) -> Axis:
    return Axis(name=name, labels=tuple(labels), edges=tuple(range(len(labels) + 1)))
