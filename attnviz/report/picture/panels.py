"""What is drawn: matrices with their axes, and the quantity that their numbers are."""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.maps.layer_maps import LayerMaps
from attnviz.media.medium import Medium
from attnviz.media.text import LABELS_ALONE
from attnviz.report.picture.colors import ColorScale
from attnviz.streaming.overview import block_edges
from attnviz.text.landmarks import landmarks
from attnviz.text.named_groups import Mark
from attnviz.text.tokens import Tokens

MAX_DECIMALS = 6  # of a number in a cell
MAX_WRITTEN_OUT = 10_000_000  # in a cell; of a larger number the first digits and the power are written
TIMES = "×"
NOTE = " · "  # between a head and what is known of it, in a title


@dataclass(frozen=True)
class Quantity:
    """What the numbers of a panel are, and how one is written.

    Attributes:
        name: as the legend says it.
        spec: Python's format for a number; a percent sign is left out inside cells.
        unit: what stands behind a number outside of cells.
        is_weight: whether it is a share of what a query attends to.
        centred: whether its colours lie around 0.
        rounded: whether cells have two digits of the largest, as those of percentages have.
    """

    name: str
    spec: str
    unit: str = ""
    is_weight: bool = False
    centred: bool = False
    rounded: bool = False

    def named(self, name: str) -> "Quantity":
        """The quantity with another name."""
        return replace(self, name=name)

    def text(self, value: float) -> str:
        """The value with its unit, and more digits where it would be rounded to nothing."""
        if self.unit == TIMES:
            return f"{_rounded(value, 2)}{TIMES}"
        finer = (format(value, self.spec.replace("0%", f"{digits}%")) for digits in (0, 2, 4, 6))
        return next((written for written in finer if float(written.rstrip("%"))), format(value, self.spec))

    def cell(self, value: float, decimals: int | None = None) -> str:
        """The value as a cell shows it, without a unit: with its own decimals, or so many."""
        if np.isnan(value):
            return "NaN"
        shown = value * 100 if self.unit == "%" else value
        if MAX_WRITTEN_OUT < abs(shown) < math.inf:
            return format(shown, "+.1e" if self.spec.startswith("+") else ".1e")
        if decimals is None:
            return format(value, self.spec).rstrip("%")
        text = format(value, re.sub(r"\.\d", f".{decimals}", self.spec)).rstrip("%")
        return re.sub(r"^([+-]?)0\.", r"\1.", text) if self.unit == "%" else text

    def decimals(self, largest: float) -> int | None:
        """The decimals with which cells up to the largest show two digits of it; ``None`` for its own."""
        most = abs(largest) * (100 if self.unit == "%" else 1)
        if not 0 < most < math.inf:
            return None
        needed = min(max(1 - math.floor(math.log10(most)), 0), MAX_DECIMALS)
        return needed if self.unit or self.rounded or needed > self.own_decimals else None

    @property
    def own_decimals(self) -> int:
        """The decimals of its format."""
        return int(re.sub(r"\D", "", self.spec))

    def ticks(self, scale: ColorScale, most: int = 6) -> tuple[tuple[float, str], ...]:
        """Values along a scale as it shows them: with as many digits as tell them apart."""
        values = scale.ticks(most)
        times, sign = (100 if self.unit == "%" else 1), ("+" if self.spec.startswith("+") else "")
        written = ([_rounded(value * times, digits) for value in values] for digits in range(2, 9))
        texts = next((each for each in written if len(set(each)) == len(each)), list(map(str, values)))
        texts = [f"{sign if value > 0 else ''}{text}{self.unit}" for value, text in zip(values, texts, strict=True)]
        if scale.clipped:
            texts[-1] = f"≥{texts[-1]}"
        return tuple(zip(values, texts, strict=True))


def _rounded(value: float, digits: int) -> str:
    """The value with so many significant digits, without zeros behind them."""
    if not math.isfinite(value) or value == 0:
        return f"{value + 0.0:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


PERCENT = Quantity("attention weight", ".0%", "%", is_weight=True)
WEIGHT = Quantity("attention weight", ".4f", is_weight=True)
SCORE = Quantity("attention score", ".4f")
CONTRIBUTION = Quantity("contribution ‖α f(x)‖", ".3f", rounded=True)
CHANGE = Quantity("change of attention weight", "+.0%", "%", centred=True)
CONTRIBUTION_CHANGE = Quantity("change of contribution ‖α f(x)‖", "+.3f", centred=True, rounded=True)
CHANGES = (CHANGE, CONTRIBUTION_CHANGE)
LOGIT = Quantity("adds to the logit", "+.2f", centred=True)
EFFECT = Quantity("change without a head", "+.3f", centred=True)
LIFT = Quantity("lift: times uniform attention", ".1f", TIMES)


def quantity_of(maps: LayerMaps, wanted: Quantity) -> Quantity:
    """What the numbers of these maps are where weights, or their change, would be drawn as ``wanted``."""
    if maps.quantity == "weight" or wanted is SCORE:
        return wanted
    return CONTRIBUTION_CHANGE if wanted is CHANGE else CONTRIBUTION


@dataclass(frozen=True, eq=False)
class Axis:
    """The rows or columns of a panel.

    Attributes:
        name: ``queries`` or ``keys``.
        labels: one a cell: the token's, or the number of the block's first token where pooled.
        edges: ``(cells + 1,)``, the token at which each cell begins, and the end.
        marks: landmarks that are written instead of the labels, each with its token; empty where there are none.
        canvas: what a row of weights along the axis is drawn over.
        places: ``(cells, numbers)``, where each cell stands in it; ``None`` where pooled.
    """

    name: str
    labels: tuple[str, ...]
    edges: tuple[int, ...]
    marks: tuple[Mark, ...] = ()
    canvas: Medium = LABELS_ALONE
    places: IntArray | None = None

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

    def cell_of(self, token: int) -> int | None:
        """The cell of a token; ``None`` where it is not on the axis."""
        within = self.edges[0] <= token < self.edges[-1]
        return bisect_right(self.edges, token) - 1 if within else None

    def middle(self, cell: int) -> int:
        """The token in the middle of a cell."""
        return (self.edges[cell] + self.edges[cell + 1] - 1) // 2


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix as it is drawn.

    Attributes:
        title: over it, such as ``head 0.3``, or ``head 0.3 · previous token 0.98``.
        values: ``(rows, columns)``.
        visible: ``(rows, columns)``; a cell that is not visible is drawn as absent.
        rows: the queries.
        columns: the keys.
        quantity: what the values are.
        scale: their colours; panels that share a scale have equal ones.
        group: what an overview draws in one row, such as ``layer 2``, or the head of a text; empty elsewhere.
        pool: what a cell that stands for several tokens shows of its block: ``mean`` or ``max``.
        units: what rows and columns stand for where each has its own.
        zooms: whether a part of it can be shown cell by cell.
        seen: ``(rows,)``, how many keys each query may see, those beyond the columns too; of a block of queries the
            mean; ``None`` where that has no meaning.
        decimals: of the numbers in cells; ``None`` for those of the quantity.
        lift: whether colours stand for multiples of uniform attention, and not for the values.
        marked: the tokens of a query and of a key that are outlined, ``None`` for none.
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
    units: str = "tokens"
    zooms: bool = True
    seen: FloatArray | None = None
    decimals: int | None = None
    lift: bool = False
    marked: tuple[int | None, int | None] = (None, None)

    @property
    def outline(self) -> tuple[int, int, int, int] | None:
        """First row, first column, rows and columns of what is marked: a cell, a row or a column."""
        query, key = (
            None if token is None else axis.cell_of(token)
            for axis, token in zip((self.rows, self.columns), self.marked, strict=True)
        )
        if query is None and key is None:
            return None
        rows, columns = self.values.shape
        top, high = (0, rows) if query is None else (query, 1)
        left, wide = (0, columns) if key is None else (key, 1)
        return top, left, high, wide

    @property
    def name(self) -> str:
        """Its title without what is known of the head."""
        return self.title.partition(NOTE)[0]

    @property
    def pooled(self) -> bool:
        """Whether a cell stands for several weights."""
        return self.rows.pooled or self.columns.pooled

    @property
    def level(self) -> Quantity:
        """What the colours stand for."""
        return LIFT if self.lift else self.quantity

    @property
    def levels(self) -> FloatArray:
        """What the colours stand for in each cell, ``(rows, columns)``."""
        if not self.lift or self.seen is None:
            return self.values
        return np.asarray(self.values * self.seen[:, None])

    def cell(self, value: float) -> str:
        """A value as a cell of this panel shows it."""
        return self.quantity.cell(value, self.decimals)

    @property
    def has_choices(self) -> bool:
        """Whether any query sees several keys, so that its weights are not 1 by definition."""
        return self.seen is None or bool(self.visible[self.seen > 1].any())

    @cached_property
    def telling(self) -> BoolArray:
        """The visible cells of queries that see several keys, ``(rows, columns)``; all where no query does."""
        if self.seen is None or (self.seen > 1).all() or not self.has_choices:
            return self.visible
        several: BoolArray = self.visible & (self.seen > 1)[:, None]
        return several

    @cached_property
    def peak(self) -> float:
        """The largest telling value above −1 that is finite; −1 where there is none."""
        largest = float(np.max(self.values, where=self.telling, initial=-1.0))
        if math.isfinite(largest):
            return largest
        return float(np.max(self.values, where=self.telling & np.isfinite(self.values), initial=-1.0))


def token_axis(name: str, tokens: Tokens, span: slice, max_cells: int, mark: str | None = None) -> Axis:
    """The axis over a span of tokens, pooled to at most ``max_cells`` cells, with the landmarks asked for."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, max_cells))
    starts = edges[:-1].tolist()
    labels = tokens.labels[span] if len(starts) == count else tuple(str(start) for start in starts)
    marks = landmarks(tokens, mark) if mark is not None else ()
    within = tuple(one for one in marks if span.start <= one[0] < span.stop)
    return Axis(
        name=name,
        labels=labels,
        edges=tuple(edges.tolist()),
        marks=within,
        canvas=tokens.canvas,
        places=tokens.places[span] if len(starts) == count else None,
    )
