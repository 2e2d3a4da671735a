"""Panels: matrices with their axes, visibility, quantity and colour scale."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.maps.layer_maps import LayerMaps
from attnviz.media.medium import Medium
from attnviz.media.sound import Sound
from attnviz.media.text import EMPTY_TEXT
from attnviz.report.picture.colors import ColorScale, Steps
from attnviz.streaming.overview import block_edges, pool_weights
from attnviz.text.named_groups import Mark
from attnviz.text.tokens import Tokens

MAX_DECIMALS = 6  # in cells
MAX_WRITTEN_OUT = 10_000_000  # larger numbers are written with an exponent in cells
TIMES = "×"
NOTE = " · "  # separates a head's name from its metric or pattern in a title
HEAD = "head"


@dataclass(frozen=True)
class Quantity:
    """The quantity that a panel's numbers measure, and how a number of it is written."""

    name: str  # its name in the legend
    spec: str  # Python's format for a number; cells leave out the percent sign
    unit: str = ""  # the unit written after a number outside of cells
    is_weight: bool = False  # True if it is a share of a query's attention
    centred: bool = False  # True if its colour scale is centred on 0
    rounded: bool = False  # True if cells show two significant digits of the largest number, as percentages do
    any_sign: bool = False  # True if its linear colour scale goes from the smallest value to the largest
    steps: Steps = "linear"  # the spacing of colours along its scale, unless the user chooses another
    # a number of it in a sentence: ``weight`` or ``contribution``; "" if captions do not name the largest one
    noun: str = ""
    plural: str = ""  # its numbers in the title of a table that shows several quantities

    def with_name(self, name: str) -> "Quantity":
        """Returns this quantity under another name."""
        return replace(self, name=name)

    def text(self, value: float) -> str:
        """Returns the value with its unit; a percentage below 1 has two decimals, or up to six if they are zeros.

        A value in times (×) has two significant digits.
        """
        if self.unit == TIMES:
            return f"{_rounded(value, 2)}{TIMES}"
        counts = (2, 4, 6) if 0 < abs(value) < 0.01 else (0,)
        candidates = (format(value, self.spec.replace("0%", f"{digits}%")) for digits in counts)
        return next((text for text in candidates if float(text.rstrip("%"))), format(value, self.spec))

    def cell(self, value: float, decimals: int | None = None) -> str:
        """Returns the value as a cell shows it, without a unit; values above `MAX_WRITTEN_OUT` have an exponent.

        A percentage with overridden decimals loses a zero before its point: ``.5``.
        """
        if np.isnan(value):
            return "NaN"
        number = value * 100 if self.unit == "%" else value
        if MAX_WRITTEN_OUT < abs(number) < math.inf:
            return format(number, "+.1e" if self.spec.startswith("+") else ".1e")
        if decimals is None:
            return format(value, self.spec).rstrip("%")
        text = format(value, re.sub(r"\.\d", f".{decimals}", self.spec)).rstrip("%")
        return re.sub(r"^([+-]?)0\.", r"\1.", text) if self.unit == "%" else text

    def decimals(self, largest: float) -> int | None:
        """Returns the decimals that cells need to show two digits of ``largest``; ``None`` to keep those of ``spec``.

        They are kept if ``largest`` is 0 or not finite, or if they suffice and the quantity has no unit and is not
        ``rounded``.
        """
        magnitude = abs(largest) * (100 if self.unit == "%" else 1)
        if not 0 < magnitude < math.inf:
            return None
        needed_count = min(max(1 - math.floor(math.log10(magnitude)), 0), MAX_DECIMALS)
        return needed_count if self.unit or self.rounded or needed_count > self.format_decimals else None

    @property
    def format_decimals(self) -> int:
        """The number of decimals in ``spec``."""
        return int(re.sub(r"\D", "", self.spec))

    @lru_cache(maxsize=256)  # noqa: B019 - quantities are few, and live as long as the process
    def ticks(self, scale: ColorScale, max_ticks: int = 6) -> tuple[tuple[float, str], ...]:
        """Returns tick values along a scale, each with its label; labels have enough digits to differ.

        A label ends with the unit, and begins with a plus if the quantity has signs and the value is above 0. If the
        scale leaves out larger values, the last label begins with ≥.
        """
        values = scale.ticks(max_ticks)
        factor = 100 if self.unit == "%" else 1
        plus = "+" if self.spec.startswith("+") else ""
        numbers = [value * factor for value in values]
        # Two to eight significant digits are tried; if ticks are still alike, numbers are written in full.
        candidates = ([_rounded(number, digits) for number in numbers] for digits in range(2, 9))
        texts = next(
            (labels for labels in candidates if len(set(labels)) == len(labels)),
            list(map(str, numbers)),
        )
        texts = [f"{plus if value > 0 else ''}{text}{self.unit}" for value, text in zip(values, texts, strict=True)]
        if scale.clipped:
            texts[-1] = f"≥{texts[-1]}"
        return tuple(zip(values, texts, strict=True))


def _rounded(value: float, digits: int) -> str:
    """Returns the value with this many significant digits, without trailing zeros; digits before the point stay."""
    if not math.isfinite(value) or value == 0:
        return f"{value + 0.0:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


PERCENT = Quantity("attention weight", ".0%", "%", is_weight=True, steps="sqrt", noun="weight")
WEIGHT = Quantity("attention weight", ".4f", is_weight=True, steps="sqrt", noun="weight", plural="weights")
SCORE = Quantity("attention score", ".4f", any_sign=True, plural="scores")
CONTRIBUTION = Quantity("contribution ‖α f(x)‖", ".3f", rounded=True, steps="sqrt", noun="contribution")
IMPLICIT_ATTENTION = Quantity("implicit attention", "+.3f", centred=True, rounded=True, steps="sqrt")
CHANGE = Quantity("change of attention weight", "+.0%", "%", centred=True, steps="sqrt")
CONTRIBUTION_CHANGE = Quantity("change of contribution ‖α f(x)‖", "+.3f", centred=True, rounded=True, steps="sqrt")
IMPLICIT_CHANGE = replace(IMPLICIT_ATTENTION, name="change of implicit attention")
LOGIT = Quantity("adds to the logit", "+.2f", centred=True, steps="sqrt")
EFFECT = Quantity("change without a head", "+.3f", centred=True, steps="sqrt")
OTHER_QUANTITIES = {
    "contribution": (CONTRIBUTION, CONTRIBUTION_CHANGE),
    "implicit": (IMPLICIT_ATTENTION, IMPLICIT_CHANGE),
}
LIFT = Quantity("lift: times uniform attention", ".1f", TIMES, steps="log")


def quantity_of(maps: LayerMaps, weight_quantity: Quantity) -> Quantity:
    """Returns the quantity of these maps: ``weight_quantity`` for weights and for scores.

    For contributions and implicit attention it is their own quantity, or its change if ``weight_quantity`` is one.
    """
    if maps.quantity == "weight" or weight_quantity is SCORE:
        return weight_quantity
    own, change = OTHER_QUANTITIES[maps.quantity]
    return change if weight_quantity is CHANGE else own


@dataclass(frozen=True, eq=False)
class Axis:
    """The rows or columns of a panel."""

    name: str  # ``queries`` or ``keys``, or the name of what else the rows or columns are
    # one per cell: the token's label, or the number of the block's first token on a pooled axis
    labels: tuple[str, ...]
    edges: tuple[int, ...]  # ``(cells + 1,)``, the first token of each cell, and the end of the last
    marks: tuple[Mark, ...] = ()  # landmarks with their tokens, written instead of the labels; empty if there are none
    canvas: Medium = EMPTY_TEXT  # the medium (such as a text) that a row of weights along the axis can shade
    # ``(cells, numbers)``, the place of each cell in the medium; ``None`` on a pooled axis
    places: IntArray | None = None
    # of an axis of frames of a sound, the second at token 0 and the seconds between two tokens; else ``None``
    seconds: tuple[float, float] | None = None
    across: bool = False  # True for columns, whose labels stand below the cells
    # True if the labels are short, as numbers of heads are, so that they may stand close to each other
    dense: bool = False

    @property
    def pooled(self) -> bool:
        """True if a cell covers several tokens."""
        return self.edges[-1] - self.edges[0] > len(self.labels)

    def mark_labels(self) -> tuple[str, ...]:
        """Returns the first landmark in each cell, one per cell; "" if the cell has none."""
        labels = [""] * len(self.labels)
        for token, label in reversed(self.marks):  # so that the first one of a cell is written last
            labels[bisect_right(self.edges, token) - 1] = label
        return tuple(labels)

    def cell_of(self, token: int) -> int | None:
        """Returns the cell of a token; ``None`` if the token is not on the axis."""
        is_on_axis = self.edges[0] <= token < self.edges[-1]
        return bisect_right(self.edges, token) - 1 if is_on_axis else None

    def number_if_alike(self, cell: int) -> str:
        """Returns the number of a cell's first token, such as `` (6)``; "" if no other cell has its label."""
        return f" ({self.edges[cell]})" if self.labels.count(self.labels[cell]) > 1 else ""

    def middle(self, cell: int) -> int:
        """Returns the token in the middle of a cell."""
        return (self.edges[cell] + self.edges[cell + 1] - 1) // 2


@dataclass(frozen=True)
class Heading:
    """The title of a panel in its parts, of which a narrow panel leaves some out."""

    name: str = ""  # the number of a head, such as ``0.3``, or what else the panel shows
    noun: str = ""  # the word before the name: ``head``, or the tower of the head, such as ``text``; "" for none
    aspect: str = ""  # the part of the title after the name, with what separates both, such as `` scores``; "" for none
    note: str = ""  # the metric or pattern of the head, and the user's name for it; "" for none
    limits: str = ""  # the limits of the panel's own colour scale, such as ``: 0% to 54%``; "" if panels share a scale
    number: int | None = None  # the number of the head in its layer, in an overview of heads
    names_group: bool = False  # True if the name says what the panel's group does, as ``3.11`` in ``layer 3``

    @property
    def head(self) -> str:
        """The noun and the name, such as ``head 0.3``."""
        return f"{self.noun} {self.name}" if self.noun else self.name

    @property
    def short_head(self) -> str:
        """The name, after the tower if the head has one, but without the word ``head``."""
        return self.name if self.noun == HEAD else self.head

    @property
    def subject(self) -> str:
        """The title without note and limits, such as ``head 0.3 scores``."""
        return self.head + self.aspect

    @property
    def text(self) -> str:
        """The whole title on one line."""
        return NOTE.join(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The title in one line, or in two if there is a note, which is the second."""
        return (self.subject, self.note + self.limits) if self.note else (self.subject + self.limits,)

    def shortened(self) -> "Heading":
        """Returns the heading without the word ``head``."""
        return replace(self, noun="") if self.noun == HEAD else self

    def with_words(self, change: Callable[[str], str]) -> "Heading":
        """Returns the heading with each of its parts changed by a function."""
        name, noun, aspect, note, limits = map(change, (self.name, self.noun, self.aspect, self.note, self.limits))
        return replace(self, name=name, noun=noun, aspect=aspect, note=note, limits=limits)


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix, ready to be drawn."""

    heading: Heading  # its title in parts, such as ``head 0.3``, or ``head 0.3 · previous token 0.98``
    values: FloatArray  # ``(rows, columns)``, the numbers in the cells
    visible: BoolArray  # ``(rows, columns)``; a cell that is not visible is left blank
    rows: Axis  # the axis of the queries
    columns: Axis  # the axis of the keys
    quantity: Quantity  # the quantity of the values
    scale: ColorScale  # the colour scale; panels that share one have equal scales
    # panels of one group share a row of an overview, such as ``layer 2``, or the head of a text; else ""
    group: str = ""
    pool: str = "mean"  # how a cell that covers several tokens pools their values: ``mean`` or ``max``
    units: str = "tokens"  # the unit of rows and columns, such as ``tokens`` or ``words``
    zooms: bool = True  # True if a part of the map can be shown cell by cell
    # ``(rows,)``, the number of keys that each query may see, including those outside the columns; for a block of
    # queries their mean; ``None`` if it is not defined
    visible_key_counts: FloatArray | None = None
    decimals: int | None = None  # decimals of the numbers in cells; ``None`` for those of the quantity
    lift: bool = False  # True if colours show multiples of uniform attention instead of the values
    # the query and the key whose row, column or cell is outlined; ``None`` for no outline
    marked: tuple[int | None, int | None] = (None, None)
    # ``(columns,)``, the patches of an image that an outline encloses; ``None`` for no outline
    inside: BoolArray | None = None

    @property
    def outline(self) -> tuple[int, int, int, int] | None:
        """First row and column of the outlined part, and its height and width in cells; ``None`` for no outline."""
        marked_query, marked_key = self.marked
        query = None if marked_query is None else self.rows.cell_of(marked_query)
        key = None if marked_key is None else self.columns.cell_of(marked_key)
        if query is None and key is None:
            return None
        rows, columns = self.values.shape
        top, height = (0, rows) if query is None else (query, 1)
        left, width = (0, columns) if key is None else (key, 1)
        return top, left, height, width

    @property
    def title(self) -> str:
        """The title on one line."""
        return self.heading.text

    @property
    def pooled(self) -> bool:
        """True if a cell covers several weights."""
        return self.rows.pooled or self.columns.pooled

    @property
    def color_quantity(self) -> Quantity:
        """The quantity that the colours show: `LIFT` if ``lift`` is True, else the quantity of the values."""
        return LIFT if self.lift else self.quantity

    @property
    def levels(self) -> FloatArray:
        """The number that sets each cell's colour, ``(rows, columns)``: the value, or its lift if ``lift`` is True.

        Without ``visible_key_counts`` it is always the value.
        """
        if not self.lift or self.visible_key_counts is None:
            return self.values
        return np.asarray(self.values * self.visible_key_counts[:, None])

    def drawn_cells(self, height: int, width: int) -> tuple[FloatArray, BoolArray]:
        """Returns the levels in at most ``height`` x ``width`` pixels, and which are visible, ``(rows, columns)``.

        Cells that have less than a pixel are pooled as the panel's are: none is left out.
        """
        rows, columns = self.values.shape
        if rows <= height and columns <= width:
            return self.levels, self.visible
        blocks = pool_weights(self.levels[None], self.visible, min(rows, max(height, 1)), min(columns, max(width, 1)))
        shows_largest = self.pool == "max" and not self.scale.signed
        return (blocks.maximum if shows_largest else blocks.mean)[0], blocks.visible

    def cell(self, value: float) -> str:
        """Returns the value as a cell of this panel shows it."""
        return self.quantity.cell(value, self.decimals)

    @property
    def key_counts(self) -> FloatArray:
        """The number of keys that each query sees, ``(rows,)``; if they are not counted, of those in the columns."""
        counts = self.visible_key_counts
        return self.visible.sum(axis=1, dtype=np.float32) if counts is None else counts

    @property
    def varies(self) -> bool:
        """True if a query sees several keys, so that its weights are not 1 by definition, or keys are not counted."""
        return self.visible_key_counts is None or bool(self.visible[self.visible_key_counts > 1].any())

    @cached_property
    def informative(self) -> BoolArray:
        """The visible cells of queries that see several keys, ``(rows, columns)``.

        All visible cells if no query sees several, or visible keys are not counted.
        """
        if self.visible_key_counts is None or (self.visible_key_counts > 1).all() or not self.varies:
            return self.visible
        cells_with_choice: BoolArray = self.visible & (self.visible_key_counts > 1)[:, None]
        return cells_with_choice

    @cached_property
    def peak(self) -> float:
        """The largest finite value among the ``informative`` cells; −1 if none is larger."""
        largest = float(np.max(self.values, where=self.informative, initial=-1.0))
        if math.isfinite(largest):
            return largest
        return float(np.max(self.values, where=self.informative & np.isfinite(self.values), initial=-1.0))


def token_axis(
    name: str, tokens: Tokens, span: slice, max_cells: int, mark: str | None = None, *, across: bool = False
) -> Axis:
    """Returns the axis of a span of tokens, pooled to at most ``max_cells`` cells."""
    token_count = span.stop - span.start
    edges = span.start + block_edges(token_count, min(token_count, max_cells))
    starts = edges[:-1].tolist()
    seconds = seconds_of_frames(tokens)
    is_pooled = len(starts) < token_count
    labels = tuple(position_label(start, seconds) for start in starts) if is_pooled else tokens.labels[span]
    marks: tuple[Mark, ...] = ()
    if mark is not None:
        from attnviz.maps.grouped import landmarks

        marks = tuple((token, label) for token, label in landmarks(tokens, mark) if span.start <= token < span.stop)
    return Axis(
        name=name,
        labels=labels,
        edges=tuple(edges.tolist()),
        marks=marks,
        canvas=tokens.canvas,
        places=None if is_pooled else tokens.places[span],
        seconds=seconds,
        across=across,
    )


def position_label(token: int, seconds: tuple[float, float] | None) -> str:
    """Returns the position of a token as a label: its number, or its second if it is a frame of a sound."""
    return str(token) if seconds is None else f"{max(seconds[0] + token * seconds[1], 0.0):.2f}s"


def seconds_of_frames(tokens: Tokens) -> tuple[float, float] | None:
    """Returns the second at frame 0 and the seconds between two frames; ``None`` if no token is a frame of a sound.

    For fewer than three frames the seconds between them are given as 0.
    """
    sound = tokens.canvas
    if not isinstance(sound, Sound) or not (tokens.medium >= 0).any():
        return None
    middles = sound.middles(tokens.places[tokens.medium >= 0])
    if len(middles) < 3:
        return float(middles[0]), 0.0
    # The ends of the sound may cut the first and the last frame, so the step is measured between the others.
    first, last = (1, len(middles) - 2) if len(middles) > 3 else (0, 1)
    step = (middles[last] - middles[first]) / (last - first)
    return float(middles[1] - step), float(step)
