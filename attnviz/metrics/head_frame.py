"""Defines the table of numbers of heads, where a row is a head or a set of heads, and the changes of two tables."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.measure import (
    NORMAL_95,
    DescribedHead,
    Measure,
    Need,
    example_noun,
    finite_number,
    margin_of_mean,
    named_measure,
    parse_filter,
    sentence_of,
)
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.metrics.patterns import MIXED, Pattern
from attnviz.text.head_name import HeadName

if TYPE_CHECKING:
    from attnviz.maps.layer_maps import LayerMaps

HeadSet = tuple[HeadName, ...]
NUMBERS = ("values", "spreads", "margins", "counts", "deciles")  # the array fields of a frame


@dataclass(frozen=True)
class HeadRow:
    """The head, or the set of heads, that a row of numbers belongs to."""

    heads: HeadSet  # the names of the heads
    kind: str = "self"  # the kind of attention, ``self`` or ``cross``
    module: str = ""  # the name of the attention module
    # the patterns found in its weights, the clearest first; empty if none were sought
    patterns: tuple[Pattern, ...] = ()
    given_name: str = ""  # the name that a user gave to the head; "" for none
    # The number of its text in a batch; ``None`` for means over texts, -1 for those over a corpus
    item: int | None = field(default=0, compare=False)

    @classmethod
    def of(cls, maps: "LayerMaps", head: int, patterns: tuple[Pattern, ...] = ()) -> Self:
        """Returns the row of a head of these maps."""
        return cls((HeadName(maps.layer, head, maps.part or ""),), maps.kind, maps.module, patterns, item=maps.item)

    @property
    def name(self) -> str:
        """The names of the heads, joined by ``+``."""
        return "+".join(map(str, self.heads))

    @property
    def title(self) -> str:
        """The name, followed by the kind of attention unless that is ``self``."""
        return self.name if self.kind == "self" else f"{self.name} {self.kind}"

    @property
    def layer(self) -> int:
        """The layer of the first head."""
        return self.heads[0].layer

    @property
    def head(self) -> int:
        """The number of the first head."""
        return self.heads[0].head

    @property
    def part(self) -> str:
        """The part of the model in the name of the first head; "" where the numbers are enough."""
        return self.heads[0].part

    @property
    def pattern(self) -> str:
        """The name that a user gave and the patterns in plain words, joined by commas."""
        quoted_name = (f"“{self.given_name}”",) if self.given_name else ()
        return ", ".join((*quoted_name, *map(str, self.patterns)))

    @property
    def first_pattern(self) -> Pattern:
        """The clearest pattern; ``mixed`` if there is none."""
        return self.patterns[0] if self.patterns else MIXED

    @property
    def note(self) -> str:
        """The clearest pattern for a heading, with the share of the sink beside it; "" if it is ``mixed``."""
        if self.first_pattern == MIXED:
            return ""
        return ", ".join(str(pattern) for pattern in self.patterns if pattern.name in (self.first_pattern.name, "sink"))


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadFrame:
    """A table of numbers of heads.

    Attributes:
        rows: the heads, or sets of heads.
        measures: the meaning and unit of each column.
        values: ``(rows, measures)``; NaN where a measure does not apply to a head.
        spreads: ``(rows, measures)``, the standard deviation over texts; ``None`` if unknown.
        margins: ``(rows, measures)``, half of the 95 % interval of each value; ``None`` if unknown.
        counts: ``(rows, measures)``, the number of texts that each value is a mean of; ``None`` if unknown.
        deciles: ``(rows, measures, 11)``, of the numbers of single texts, from the smallest to the largest; ``None`` if
            unknown.
        texts: the number of texts measured.
        stride: the stride over blocks of queries: 1 if all were measured, 4 for every fourth.
        full_frame: the frame that these rows were selected from; ``None`` if this frame has all rows.
    """

    rows: tuple[HeadRow, ...]
    measures: tuple[Measure, ...]
    values: Float64Array
    spreads: Float64Array | None = None
    margins: Float64Array | None = None
    counts: IntArray | None = None
    deciles: Float64Array | None = None
    texts: int = 1
    stride: int = 1
    full_frame: "HeadFrame | None" = None

    def __post_init__(self) -> None:
        """Makes the arrays read-only; raises ValueError if one does not fit the rows and measures."""
        shape = len(self.rows), len(self.measures)
        for name in NUMBERS:
            numbers = getattr(self, name)
            if numbers is not None and numbers.shape[:2] != shape:
                raise ValueError(f"{name} of shape {numbers.shape} for {shape[0]} rows and {shape[1]} measures")
            if numbers is not None:
                numbers.flags.writeable = False

    @property
    def total_rows(self) -> int:
        """The number of rows before any selection of rows."""
        return len((self.full_frame or self).rows)

    @property
    def example_noun(self) -> str:
        """The plural noun for what was measured: ``texts``, or ``pictures`` if a measure needs patches of images."""
        return example_noun(self.measures)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(measure.name for measure in self.measures)

    @cached_property
    def applicable(self) -> tuple[Measure, ...]:
        """The measures that apply to at least one row, counting the rows that were not selected."""
        values = (self.full_frame or self).values
        columns = zip(self.measures, values.T, strict=True)
        return tuple(measure for measure, column in columns if not np.isnan(column).all())

    @property
    def inapplicable(self) -> tuple[Measure, ...]:
        """The measures that apply to no row."""
        return tuple(measure for measure in self.measures if measure not in self.applicable)

    def row_index(self, name: str) -> int:
        """Returns the index of the row with this name, ``layer.head``; raises StopIteration if there is none."""
        return next(index for index, row in enumerate(self.rows) if row.name == name)

    def column(self, name: str, field: str = "values") -> Float64Array:
        """Returns the numbers of a measure, ``(rows,)``; NaN if the field is ``None``.

        Args:
            name: the name of the measure.
            field: the array field: ``values``, ``spreads``, ``margins`` or ``counts``; or ``deciles``, ``(rows, 11)``.
        """
        numbers = getattr(self, field)
        return _nan_array(len(self.rows)) if numbers is None else numbers[:, self.names.index(name)]

    def value(self, row: str, measure: str) -> float:
        """Returns one value, given the names of its row and its measure."""
        return float(self.values[self.row_index(row), self.names.index(measure)])

    def numbers_of(self, index: int, field: str = "values") -> dict[str, Any]:
        """Returns the numbers of a row by the names of the measures; the ``deciles`` of a measure are a list.

        Args:
            index: the index of the row.
            field: the array field, ``values`` or another; it must not be ``None``.
        """
        return dict(zip(self.names, getattr(self, field)[index].tolist(), strict=True))

    def ranked_rows(self, name: str) -> list[int]:
        """Returns the indices of the rows, the largest value of a measure first; equal values by layer and head."""
        values = self.column(name).tolist()
        return sorted(range(len(self.rows)), key=lambda index: (-values[index], self.rows[index].heads))

    def take(self, indices: Sequence[int]) -> "HeadFrame":
        """Returns the frame with the rows at these indices, in this order; `full_frame` is the frame with all rows."""
        rows = tuple(self.rows[index] for index in indices)
        arrays = self._changed_arrays(lambda array: array[list(indices)])
        return replace(self, rows=rows, full_frame=self.full_frame or self, **arrays)

    def select(self, names: Iterable[str]) -> "HeadFrame":
        """Returns the frame with the measures of these names alone, in this order; `full_frame` becomes ``None``."""
        indices = [self.names.index(name) for name in names]
        measures = tuple(self.measures[index] for index in indices)
        return replace(
            self, measures=measures, full_frame=None, **self._changed_arrays(lambda array: array[:, indices])
        )

    def _changed_arrays(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> dict[str, Any]:
        """Returns the result of ``change`` for each array field that is not ``None``, by the name of the field."""
        arrays = {name: getattr(self, name) for name in NUMBERS}
        return {name: change(array) for name, array in arrays.items() if array is not None}

    def with_columns_of(self, other: "HeadFrame") -> "HeadFrame":
        """Returns the frame with the values of another's columns in front, NaN for heads that ``other`` lacks.

        All other arrays, such as margins, are NaN in the new columns.
        """
        other_rows = {row.name: index for index, row in enumerate(other.rows)}
        sources = [other_rows.get(row.name, len(other.rows)) for row in self.rows]  # the last is NaN
        values_and_nan = np.vstack([other.values, _nan_array(1, len(other.measures))])
        return self.with_columns(other.measures, values_and_nan[sources])

    def with_names(self, names: Mapping[str, str]) -> "HeadFrame":
        """Returns the frame with the names that a user gave to heads; unchanged if ``names`` is empty.

        Heads that are not in ``names`` lose their names.
        """
        if not names:
            return self
        named_full_frame = None if self.full_frame is None else self.full_frame.with_names(names)
        given_names = (names.get(row.name, "") for row in self.rows)
        rows = tuple(replace(row, given_name=name) for row, name in zip(self.rows, given_names, strict=True))
        return replace(self, rows=rows, full_frame=named_full_frame)

    def with_columns(self, measures: tuple[Measure, ...], values: Float64Array) -> "HeadFrame":
        """Returns the frame with new columns before its own; all arrays but ``values`` are NaN there.

        Rows of `full_frame` that were not selected have NaN in these columns.

        Args:
            measures: the measures of the new columns.
            values: ``(rows, measures)``.
        """
        unknown = self._changed_arrays(
            lambda array: np.concatenate([_nan_array(*values.shape, *array.shape[2:]), array], axis=1)
        )
        columns = unknown | {"values": np.concatenate([values, self.values], axis=1)}
        full_frame = self.full_frame
        if full_frame is not None:
            full_values = _nan_array(len(full_frame.rows), len(measures))
            full_values[[full_frame.rows.index(row) for row in self.rows]] = values
            full_frame = full_frame.with_columns(measures, full_values)
        return replace(self, measures=(*measures, *self.measures), full_frame=full_frame, **columns)

    def __sub__(self, other: "HeadFrame") -> "HeadFrame":
        """Returns this frame's values less those of ``other``, where both have the row and measure.

        Rows and measures are in the order of ``other``. Spreads, counts and deciles are ``None``, and margins if either
        frame has none. A margin is √(a² + b²) of both margins, which assumes independent texts.
        """
        after, before = _common_frames(self, other)
        margins = None
        if after.margins is not None and before.margins is not None:
            pairs = zip(after.margins.flat, before.margins.flat, strict=True)
            margins = np.array([math.hypot(*pair) for pair in pairs], dtype=np.float64).reshape(after.values.shape)
        return replace(
            after, values=after.values - before.values, margins=margins, spreads=None, counts=None, deciles=None
        )

    def with_selected_rows(
        self, sort: str | None = None, top: int | None = None, filter: str | None = None
    ) -> "HeadFrame":
        """Returns the frame with the rows that `selected_rows` selects, in that order; its arguments are the same."""
        return self.take(self.selected_rows(sort, top, filter))

    def selected_rows(self, sort: str | None = None, top: int | None = None, filter: str | None = None) -> list[int]:
        """Returns the indices of the rows that pass a filter, sorted by a measure.

        Args:
            sort: the name of a measure, largest value first, or smallest first if the measure says so; a minus before
                it reverses this. NaN is always last. ``None`` keeps the order of the rows.
            top: the number of rows to keep after sorting; ``None`` for all.
            filter: a filter in the language of `attnviz.metrics.measure`; ``None`` for all rows.
        """
        measure = None
        if sort is not None:  # a metric of image patches is known by name also where there are none
            metric = METRICS.get(sort.removeprefix("-"))
            needs_patches = metric is not None and Need.PATCHES in metric.needs
            measure = named_measure(sort, (*self.measures, metric) if metric and needs_patches else self.measures)
        candidates = list(range(len(self.rows))) if filter is None else self.filtered_rows(filter)
        if filter is not None and not candidates:
            refusal = f"{option('filter')} {filter!r} leaves none of {len(self.rows)} heads"
            raise AttnvizError(f"{refusal}; leave it out to see their numbers")
        if measure is not None:
            is_absent = measure.name not in self.names
            if is_absent or np.isnan(self.column(measure.name)[candidates]).all():
                raise AttnvizError(
                    f"no head has the metric {measure.name!r} here: it needs {self.conditions_of(measure)}"
                )
        return (candidates if sort is None else self.sorted_rows(candidates, sort))[:top]

    def conditions_of(self, measure: Measure) -> str:
        """Returns the conditions under which a head has a measure, as the end of a sentence.

        Every text is a sequence, so that condition is named only if the frame has metrics of patches.
        """
        has_patches = any(Need.PATCHES in other.needs for other in self.measures)
        conditions = sentence_of(measure.needs, in_sequence=not has_patches)
        return (
            f"{conditions}; pooled maps have only what was measured as they were recorded"
            if measure.is_own
            else conditions
        )

    def sorted_rows(self, indices: Sequence[int], sort: str) -> list[int]:
        """Returns indices of rows sorted by a measure, stably.

        Args:
            indices: the indices of the rows to sort.
            sort: the name of the measure, largest value first, or smallest first if the measure says so; a minus before
                it reverses this. NaN is always last.
        """
        measure = named_measure(sort, self.measures)
        values = self.column(measure.name)[list(indices)]
        order = np.argsort(values if sort.startswith("-") != measure.smallest_first else -values, kind="stable")
        return [indices[index] for index in order.tolist()]

    def filtered_rows(self, filter: str) -> list[int]:
        """Returns the indices of the rows that pass a filter in the language of `attnviz.metrics.measure`."""
        passes = parse_filter(filter, self.names)
        return [index for index, head in enumerate(self._tested_fields) if passes(head)]

    @cached_property
    def _tested_fields(self) -> tuple[DescribedHead, ...]:
        numbers = (dict(zip(self.names, row, strict=True)) for row in self.values.tolist())
        return tuple(
            DescribedHead(row.name, row.layer, row.head, row.kind, row.pattern, row_numbers, row.item)
            for row, row_numbers in zip(self.rows, numbers, strict=True)
        )


def _nan_array(*shape: int) -> Float64Array:
    return np.full(shape, np.nan)


def frame_of_samples(measures: tuple[Measure, ...], samples: Sequence[Mapping[HeadName, Float64Array]]) -> HeadFrame:
    """Returns a frame of means over texts with their margins, with a row for each head of the first sample.

    Means and margins ignore NaN; counts include the texts without a number.

    Args:
        samples: for each measure, of one or more, the numbers of each head, ``(texts,)``; NaN for a text without one.
    """
    heads = list(samples[0])
    return HeadFrame(
        rows=tuple(HeadRow((head,)) for head in heads),
        measures=measures,
        values=np.array([[np.nanmean(sample[head]) for sample in samples] for head in heads]),
        margins=np.array([[margin_of_mean(sample[head]) for sample in samples] for head in heads]),
        counts=np.array([[len(sample[head]) for sample in samples] for head in heads]),
    )


def _common_frames(first: HeadFrame, second: HeadFrame) -> tuple[HeadFrame, HeadFrame]:
    """Returns both frames with only the rows and measures that both have, in the order of ``second``."""
    first_rows = {row.name: index for index, row in enumerate(first.rows)}
    common_rows = [index for index, row in enumerate(second.rows) if row.name in first_rows]
    names = [name for name in second.names if name in first.names]
    common_second = second.take(common_rows).select(names)
    common_first = first.take([first_rows[row.name] for row in common_second.rows]).select(names)
    return common_first, common_second


def metrics_first(measures: Iterable[Measure]) -> list[Measure]:
    """Returns the measures in the order of files: metrics of attention first, then effects and others."""
    return sorted(measures, key=lambda measure: not isinstance(measure, Metric))


@dataclass(frozen=True)
class NumberChange:
    """One number of a head, or of a set of heads, in two frames."""

    row: HeadRow  # the head, or the set of heads
    measure: Measure  # the measure of the number
    before: float  # the number in the first frame
    after: float  # the number in the second frame
    margin: float  # half of the 95 % interval of the difference; NaN if either number comes from a single text
    texts: tuple[int, int]  # the numbers of texts that ``before`` and ``after`` are means of

    @property
    def name(self) -> str:
        """The name of the row: ``layer.head``, joined by ``+``."""
        return self.row.name

    @property
    def difference(self) -> float:
        """The number after less the number before."""
        return self.after - self.before

    @property
    def clearness(self) -> float:
        """The absolute difference in standard errors: 0 if the margin is unknown, infinite if the margin alone is 0."""
        if math.isnan(self.margin) or self.difference == 0:
            return 0.0
        return abs(self.difference) * NORMAL_95 / self.margin if self.margin > 0 else math.inf


@dataclass(frozen=True, eq=False)
class HeadChanges:
    """The changes between two tables of heads."""

    # one for each number that both tables have, in the order in which they are listed
    changes: tuple[NumberChange, ...]
    remarks: tuple[str, ...]  # sentences about both tables for the reader
    about: Mapping[str, Any]  # the name and version of the file format, and the origin of both tables, as JSON values
    of_sets: bool = False  # True for one number of sets of heads, False for several numbers of single heads

    def as_rows(self) -> list[list[Any]]:
        """Returns a header and a row per change, with exact numbers."""
        numbers = ["before", "after", "difference", "margin"]
        header = (
            ["heads", *numbers] if self.of_sets else ["layer", "head", "module", "metric", *numbers, "standard_errors"]
        )
        rows = []
        for change in self.changes:
            row, head = [change.before, change.after, change.difference, change.margin], change.row
            if self.of_sets:
                rows.append([change.name, *row])
            else:
                rows.append([head.layer, head.head, head.module, change.measure.name, *row, change.clearness])
        return [header, *rows]

    def as_json(self) -> dict[str, Any]:
        """Returns the origin of both tables, the remarks and the changes as JSON values."""
        changes = list[dict[str, Any]]()
        for change in self.changes:  # a margin or number of standard errors that is not finite is null
            numbers = {
                "before": change.before,
                "after": change.after,
                "difference": change.difference,
                "margin": finite_number(change.margin),
            }
            if self.of_sets:
                changes.append({"heads": change.name.split("+"), **numbers})
            else:
                certainty = {"standard_errors": finite_number(change.clearness), "texts": list(change.texts)}
                changes.append({"head": change.name, "metric": change.measure.name, **numbers, **certainty})
        return {**self.about, "remarks": list(self.remarks), "changes": changes}


def number_changes(before: HeadFrame, after: HeadFrame) -> list[NumberChange]:
    """Returns the changes of the numbers that both frames have, row by row in the order of ``before``.

    A number that is NaN in one of the frames is left out. Empty if the frames share no numbers.
    """
    common_after, common_before = _common_frames(after, before)
    differences = after - before
    text_counts = [
        [frame.texts] * frame.values.size if frame.counts is None else frame.counts.ravel().tolist()
        for frame in (common_before, common_after)
    ]
    cells = ((row, measure) for row in differences.rows for measure in differences.measures)
    values = [frame.values.ravel().tolist() for frame in (common_before, common_after)]
    unknown_margins = [math.nan] * differences.values.size
    margins = unknown_margins if differences.margins is None else differences.margins.ravel().tolist()
    return [
        NumberChange(row, measure, value_before, value_after, margin, (texts_before, texts_after))
        for (row, measure), value_before, value_after, margin, texts_before, texts_after in zip(
            cells, *values, margins, *text_counts, strict=True
        )
        if not (math.isnan(value_before) or math.isnan(value_after))
    ]
