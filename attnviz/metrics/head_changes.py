"""What changes between two frames of heads: each number with its difference, and how sure that is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.metrics.head_frame import HeadFrame, HeadRow, matched
from attnviz.metrics.measure import NORMAL_95, Measure, known_number


@dataclass(frozen=True)
class NumberChange:
    """One number of a head, or of a set of heads, in both frames.

    Attributes:
        row: whose number it is.
        measure: what it is.
        before: in the first frame.
        after: in the second.
        margin: half of the 95 % interval of the difference; NaN where one is of a single text.
        texts: how many texts each is a mean of.
    """

    row: HeadRow
    measure: Measure
    before: float
    after: float
    margin: float
    texts: tuple[int, int]

    @property
    def name(self) -> str:
        """The heads as they are written everywhere."""
        return self.row.name

    @property
    def difference(self) -> float:
        """How much larger it is after."""
        return self.after - self.before

    @property
    def clearness(self) -> float:
        """The difference in standard errors; 0 where these are not known."""
        if math.isnan(self.margin) or self.difference == 0:
            return 0.0
        return abs(self.difference) * NORMAL_95 / self.margin if self.margin > 0 else math.inf


@dataclass(frozen=True, eq=False)
class HeadChanges:
    """What changes between two tables of heads.

    Attributes:
        changes: of each number that both have, in the order in which they are listed.
        remarks: what a reader must know.
        about: what the tables are of, as JSON values, with the format and its version.
        of_sets: true for one number of sets of heads, false for several numbers of single heads.
    """

    changes: tuple[NumberChange, ...]
    remarks: tuple[str, ...]
    about: Mapping[str, Any]
    of_sets: bool = False

    def as_rows(self) -> list[list[Any]]:
        """A row for each change behind a header, numbers exact."""
        numbers = ["before", "after", "difference", "margin"]
        header = ["heads", *numbers] if self.of_sets else ["layer", "head", "metric", *numbers, "standard_errors"]
        return [header, *map(self._row, self.changes)]

    def _row(self, each: NumberChange) -> list[Any]:
        numbers = [each.before, each.after, each.difference, each.margin]
        if self.of_sets:
            return [each.name, *numbers]
        return [each.row.layer, each.row.head, each.measure.name, *numbers, each.clearness]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {**self.about, "remarks": list(self.remarks), "changes": list(map(self._json, self.changes))}

    def _json(self, each: NumberChange) -> dict[str, Any]:
        numbers = {
            "before": each.before,
            "after": each.after,
            "difference": each.difference,
            "margin": known_number(each.margin),
        }
        if self.of_sets:
            return {"heads": each.name.split("+"), **numbers}
        sure = {"standard_errors": known_number(each.clearness), "texts": list(each.texts)}
        return {"head": each.name, "metric": each.measure.name, **numbers, **sure}


def number_changes(before: HeadFrame, after: HeadFrame) -> list[NumberChange]:
    """The changes of all numbers that both frames have, row by row."""
    later, earlier = matched(after, before)
    differences = after - before
    counts = [
        [each.texts] * earlier.values.size if each.counts is None else each.counts.ravel().tolist()
        for each in (earlier, later)
    ]
    cells = ((row, measure) for row in differences.rows for measure in differences.measures)
    margins = [math.nan] * earlier.values.size if differences.margins is None else differences.margins.ravel().tolist()
    numbers = zip(earlier.values.ravel().tolist(), later.values.ravel().tolist(), margins, *counts, strict=True)
    return [
        NumberChange(row, measure, one, other, margin, (texts, others))
        for (row, measure), (one, other, margin, texts, others) in zip(cells, numbers, strict=True)
        if not (math.isnan(one) or math.isnan(other))
    ]
