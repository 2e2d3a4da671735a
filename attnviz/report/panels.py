"""What is drawn: matrices with their axes, and the quantity that their numbers are."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.report.colors import ColorScale
from attnviz.streaming.overview import block_edges
from attnviz.text.landmarks import Mark, landmarks
from attnviz.text.tokens import Tokens


@dataclass(frozen=True)
class Quantity:
    """What the numbers of a panel are, and how one is written.

    Attributes:
        name: as the legend says it.
        spec: Python's format for a number; a percent sign is left out inside cells.
    """

    name: str
    spec: str

    def text(self, value: float) -> str:
        """The value with its unit, and more digits where it would be rounded to nothing."""
        finer = (format(value, self.spec.replace("0%", f"{digits}%")) for digits in (0, 2, 4, 6))
        return next((written for written in finer if float(written.rstrip("%"))), format(value, self.spec))

    def cell(self, value: float) -> str:
        """The value as a cell shows it, without a unit."""
        return "NaN" if np.isnan(value) else format(value, self.spec).rstrip("%")

    def tick(self, value: float, step: float) -> str:
        """The value as a scale shows it beside others a step away: with as many decimals as tell them apart."""
        percent = "%" if self.spec.endswith("%") else "f"
        decimals = max(0, math.ceil(-math.log10(step * (100 if percent == "%" else 1)) - 1e-9))
        sign = "+" if self.spec.startswith("+") and value > 0 else ""
        return f"{value + 0.0:{sign}.{decimals}{percent}}"


PERCENT = Quantity("attention weight", ".0%")
WEIGHT = Quantity("attention weight", ".4f")
SCORE = Quantity("attention score", ".4f")
CHANGE = Quantity("change of attention weight", "+.0%")


@dataclass(frozen=True, eq=False)
class Axis:
    """The rows or columns of a panel.

    Attributes:
        name: ``queries`` or ``keys``.
        labels: one a cell: the token's, or the number of the block's first token where pooled.
        edges: ``(cells + 1,)``, the token at which each cell begins, and the end.
        marks: landmarks that are written instead of the labels, each with its token; empty where there are none.
    """

    name: str
    labels: tuple[str, ...]
    edges: tuple[int, ...]
    marks: tuple[Mark, ...] = ()

    @property
    def pooled(self) -> bool:
        """Whether a cell stands for several tokens."""
        return self.edges[-1] - self.edges[0] > len(self.labels)

    def marked(self) -> tuple[str, ...]:
        """The first landmark in each cell, one a cell; nothing where there is none."""
        labels = [""] * len(self.labels)
        for token, label in reversed(self.marks):
            labels[bisect_right(self.edges, token) - 1] = label
        return tuple(labels)

    def middle(self, cell: int) -> int:
        """The token in the middle of a cell."""
        return (self.edges[cell] + self.edges[cell + 1] - 1) // 2


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix as it is drawn.

    Attributes:
        title: over it, such as ``head 0.3``.
        values: ``(rows, columns)``.
        visible: ``(rows, columns)``; a cell that is not visible is drawn as absent.
        rows: the queries.
        columns: the keys.
        quantity: what the values are.
        scale: their colours; panels that share a scale have equal ones.
        group: what an overview draws in one row, such as ``layer 2``, or the head of a text; empty elsewhere.
        pool: what a cell that stands for several tokens shows of its block: ``mean`` or ``max``.
        zooms: whether a part of it can be shown cell by cell.
    """

    title: str
    values: FloatArray
    visible: BoolArray
    rows: Axis
    columns: Axis
    quantity: Quantity
    scale: ColorScale
    group: str = ""
    pool: str = "mean"
    zooms: bool = True

    @property
    def pooled(self) -> bool:
        """Whether a cell stands for several weights."""
        return self.rows.pooled or self.columns.pooled

    @cached_property
    def peak(self) -> float:
        """The largest visible value above −1 that is finite; −1 where there is none."""
        largest = float(np.max(self.values, where=self.visible, initial=-1.0))
        if math.isfinite(largest):
            return largest
        return float(np.max(self.values, where=self.visible & np.isfinite(self.values), initial=-1.0))


def token_axis(name: str, tokens: Tokens, span: slice, max_cells: int, mark: str | None = None) -> Axis:
    """The axis over a span of tokens, pooled to at most ``max_cells`` cells, with the landmarks asked for."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, max_cells))
    starts = edges[:-1].tolist()
    labels = tokens.labels[span] if len(starts) == count else tuple(str(start) for start in starts)
    marks = landmarks(tokens, mark) if mark is not None else ()
    within = tuple(one for one in marks if span.start <= one[0] < span.stop)
    return Axis(name=name, labels=labels, edges=tuple(edges.tolist()), marks=within)
