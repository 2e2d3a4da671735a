"""HeadFrame: numbers of heads. A row is a head or a set of heads, a column is a measure of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.head_filter import DescribedHead, parse_filter
from attnviz.metrics.measure import Measure, margin_of_mean, named_measure
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import MIXED, Pattern

HeadName = tuple[int, int]  # layer and head
HeadSet = tuple[HeadName, ...]
NUMBERS = ("values", "spreads", "margins", "counts", "deciles")  # the arrays of a frame


@dataclass(frozen=True)
class HeadRow:
    """A head, or a set of heads, that a row of numbers belongs to.

    Attributes:
        heads: layer and head of each.
        kind: ``self`` or ``cross``.
        module: the name of its module.
        patterns: what it does, the clearest first; empty where that is not known.
    """

    heads: HeadSet
    kind: str = "self"
    module: str = ""
    patterns: tuple[Pattern, ...] = ()

    @property
    def name(self) -> str:
        """The heads as they are written everywhere: ``layer.head``, joined by ``+``."""
        return "+".join(f"{layer}.{head}" for layer, head in self.heads)

    @property
    def title(self) -> str:
        """The name, and the kind where that is not ``self``."""
        return self.name if self.kind == "self" else f"{self.name} {self.kind}"

    @property
    def layer(self) -> int:
        """The layer of the first head."""
        return self.heads[0][0]

    @property
    def head(self) -> int:
        """The number of the first head."""
        return self.heads[0][1]

    @property
    def pattern(self) -> str:
        """What it does, in plain words."""
        return ", ".join(map(str, self.patterns))

    @property
    def first_pattern(self) -> Pattern:
        """The clearest pattern."""
        return self.patterns[0] if self.patterns else MIXED

    @property
    def note(self) -> str:
        """What a heading says of the head; "" where nothing is clear."""
        return "" if self.first_pattern == MIXED else str(self.first_pattern)


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadFrame:
    """Numbers of heads.

    Attributes:
        rows: what the rows stand for.
        measures: what the columns say.
        values: ``(rows, measures)``; NaN where a row has no such number.
        spreads: ``(rows, measures)``, the standard deviation over texts; ``None`` where it is not known.
        margins: ``(rows, measures)``, half of the 95 % interval of each value; ``None`` where it is not known.
        counts: ``(rows, measures)``, how many texts each value is a mean of; ``None`` where it is not known.
        deciles: ``(rows, measures, 11)``, from the smallest number of a text to the largest; ``None`` likewise.
        texts: how many texts were measured.
        every: of how many blocks of queries one was measured.
        whole: the frame that these rows were chosen from; ``None`` for all rows.
    """

    rows: tuple[HeadRow, ...]
    measures: tuple[Measure, ...]
    values: Float64Array
    spreads: Float64Array | None = None
    margins: Float64Array | None = None
    counts: IntArray | None = None
    deciles: Float64Array | None = None
    texts: int = 1
    every: int = 1
    whole: "HeadFrame | None" = None

    def __post_init__(self) -> None:
        shape = len(self.rows), len(self.measures)
        for name in NUMBERS:
            numbers = getattr(self, name)
            if numbers is not None and numbers.shape[:2] != shape:
                raise ValueError(f"{name} of shape {numbers.shape} for {shape[0]} rows and {shape[1]} measures")
            if numbers is not None:
                numbers.flags.writeable = False

    @property
    def measured(self) -> int:
        """How many rows there were before some were chosen."""
        return len((self.whole or self).rows)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(measure.name for measure in self.measures)

    @cached_property
    def present(self) -> tuple[Measure, ...]:
        """The measures that any row had before some were chosen."""
        values = (self.whole or self).values
        return tuple(each for each, column in zip(self.measures, values.T, strict=True) if not np.isnan(column).all())

    @property
    def absent(self) -> tuple[Measure, ...]:
        """The measures that no row had."""
        return tuple(measure for measure in self.measures if measure not in self.present)

    def place(self, name: str) -> int:
        """The place of the row of this name."""
        return next(place for place, row in enumerate(self.rows) if row.name == name)

    def column(self, name: str, of: str = "values") -> Float64Array:
        """The values of a measure, ``(rows,)``, or its ``spreads``, ``margins``, ...; NaN where they are not known."""
        numbers = getattr(self, of)
        return _unknown(len(self.rows)) if numbers is None else numbers[:, self.names.index(name)]

    def value(self, row: str, measure: str) -> float:
        """One value, by the names of its row and its measure."""
        return float(self.values[self.place(row), self.names.index(measure)])

    def numbers_of(self, place: int, of: str = "values") -> dict[str, Any]:
        """Returns the numbers of a row by the names of the measures: its values, or its ``spreads``, ``margins``, ...

        Each of the ``deciles`` is a list.
        """
        return dict(zip(self.names, getattr(self, of)[place].tolist(), strict=True))

    @cached_property
    def single(self) -> dict[HeadName, float]:
        """The values of the first measure of single heads, by layer and head."""
        return {
            row.heads[0]: float(value)
            for row, value in zip(self.rows, self.values[:, 0], strict=True)
            if len(row.heads) == 1
        }

    def ranked(self, name: str) -> list[int]:
        """The places of the rows, those with the largest value of a measure first, equal ones by layer and head."""
        values = self.column(name).tolist()
        return sorted(range(len(self.rows)), key=lambda place: (-values[place], self.rows[place].heads))

    def take(self, places: Sequence[int]) -> "HeadFrame":
        """The rows at these places, in this order."""
        rows = tuple(self.rows[place] for place in places)
        return replace(self, rows=rows, whole=self.whole or self, **self._numbers(lambda each: each[list(places)]))

    def select(self, names: Iterable[str]) -> "HeadFrame":
        """The columns of these names, in this order."""
        places = [self.names.index(name) for name in names]
        measures = tuple(self.measures[place] for place in places)
        return replace(self, measures=measures, whole=None, **self._numbers(lambda each: each[:, places]))

    def _numbers(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> dict[str, Any]:
        """The arrays that there are, each changed."""
        found = {name: getattr(self, name) for name in NUMBERS}
        return {name: change(each) for name, each in found.items() if each is not None}

    def beside(self, other: "HeadFrame") -> "HeadFrame":
        """The rows with the values of another frame before their own; NaN where that has no row of these heads."""
        places = {row.heads: place for place, row in enumerate(other.rows)}
        found = [places.get(row.heads, len(other.rows)) for row in self.rows]
        return self.with_columns(other.measures, np.vstack([other.values, _unknown(1, len(other.measures))])[found])

    def with_columns(self, measures: tuple[Measure, ...], values: Float64Array) -> "HeadFrame":
        """The rows with these ``(rows, measures)`` before their own values; their spreads and margins are not known."""
        unknown = self._numbers(lambda each: np.concatenate([_unknown(*values.shape, *each.shape[2:]), each], axis=1))
        joined = unknown | {"values": np.concatenate([values, self.values], axis=1)}
        return replace(self, measures=(*measures, *self.measures), **joined)

    def __sub__(self, other: "HeadFrame") -> "HeadFrame":
        """What is larger here than in another frame, of the rows and measures that both have.

        Texts are taken as independent: the square of a margin is the sum of those of both.
        """
        after, before = matched(self, other)
        margins = None
        if after.margins is not None and before.margins is not None:
            pairs = zip(after.margins.flat, before.margins.flat, strict=True)
            margins = np.array([math.hypot(*pair) for pair in pairs], dtype=np.float64).reshape(after.values.shape)
        return replace(
            after, values=after.values - before.values, margins=margins, spreads=None, counts=None, deciles=None
        )

    def chosen(self, sort: str | None = None, top: int | None = None, filter: str | None = None) -> "HeadFrame":
        """Returns the rows that `places` names."""
        return self.take(self.places(sort, top, filter))

    def places(self, sort: str | None = None, top: int | None = None, filter: str | None = None) -> list[int]:
        """Returns the places of the rows that a filter leaves, in the order of a measure.

        Args:
            sort: the measure whose largest value comes first, or with a minus before it, the smallest; NaN is last.
            top: how many are kept.
            filter: which are kept before that, as `attnviz.metrics.head_filter` reads it.

        Raises:
            AttnvizError: for an unknown measure, one that no row has, a filter that is none or leaves no row, or
                fewer rows than one.
        """
        measure = None if sort is None else named_measure(sort, self.measures)
        kept = list(range(len(self.rows))) if filter is None else self.filtered(filter)
        if filter is not None and not kept:
            none_left = f"{option('filter')} {filter!r} leaves none of {len(self.rows)} heads"
            raise AttnvizError(f"{none_left}; leave it out to see their numbers")
        if top is not None and top < 1:
            raise AttnvizError(f"{option('top', top)} leaves no head; 1 or more works")
        if measure is not None and np.isnan(self.column(measure.name)[kept]).all():
            raise AttnvizError(f"no head has the metric {measure.name!r} here: it needs {measure.reason}")
        return (kept if sort is None else self.sorted(kept, sort))[:top]

    def sorted(self, places: Sequence[int], sort: str) -> list[int]:
        """Sorts these places by a measure, written as `places` takes it; places of equal values keep their order."""
        values = self.column(sort.removeprefix("-"))[list(places)]
        order = np.argsort(values if sort.startswith("-") else -values, kind="stable")
        return [places[place] for place in order.tolist()]

    def filtered(self, filter: str) -> list[int]:
        """Returns the places of the rows for which every word of a filter holds, as `parse_filter` reads it."""
        kept = parse_filter(filter, self.names)
        return [place for place, head in enumerate(self._described) if kept.keeps(head)]

    @cached_property
    def _described(self) -> tuple[DescribedHead, ...]:
        """What a filter looks at, of each row."""
        numbers = (dict(zip(self.names, row, strict=True)) for row in self.values.tolist())
        return tuple(
            DescribedHead(row.layer, row.head, row.kind, row.pattern, each)
            for row, each in zip(self.rows, numbers, strict=True)
        )


def _unknown(*shape: int) -> Float64Array:
    return np.full(shape, np.nan)


def frame_of_samples(measures: tuple[Measure, ...], samples: Sequence[Mapping[HeadName, Float64Array]]) -> HeadFrame:
    """Means over texts with their margins: a row for each head of the first sample.

    Args:
        measures: what the samples are.
        samples: one a measure: the numbers of each head, ``(texts,)``; NaN for a text without one.
    """
    heads = list(samples[0])
    return HeadFrame(
        rows=tuple(HeadRow((head,)) for head in heads),
        measures=measures,
        values=np.array([[np.nanmean(each[head]) for each in samples] for head in heads]),
        margins=np.array([[margin_of_mean(each[head]) for each in samples] for head in heads]),
        counts=np.array([[len(each[head]) for each in samples] for head in heads]),
    )


def matched(one: HeadFrame, other: HeadFrame) -> tuple[HeadFrame, HeadFrame]:
    """Both frames with the rows and measures that both have, in the order of the second."""
    rows = {row.heads: place for place, row in enumerate(one.rows)}
    common = [place for place, row in enumerate(other.rows) if row.heads in rows]
    names = [name for name in other.names if name in one.names]
    there = other.take(common).select(names)
    return one.take([rows[row.heads] for row in there.rows]).select(names), there


def metrics_first(measures: Iterable[Measure]) -> list[Measure]:
    """The measures as files list them: metrics of attention, then what stands beside them."""
    return sorted(measures, key=lambda measure: not isinstance(measure, Metric))
