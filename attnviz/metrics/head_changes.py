"""Lists the changes between two frames of heads: each number before and after, with the margin of the difference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.metrics.head_frame import HeadFrame, HeadRow, common_frames
from attnviz.metrics.measure import NORMAL_95, Measure, finite_number


@dataclass(frozen=True)
class NumberChange:
    """One number of a head, or of a set of heads, in two frames.

    Attributes:
        row: the head, or the set of heads.
        measure: the measure of the number.
        before: the number in the first frame.
        after: the number in the second frame.
        margin: half of the 95 % interval of the difference; NaN if either number comes from a single text.
        texts: the numbers of texts that ``before`` and ``after`` are means of.
    """

    row: HeadRow
    measure: Measure
    before: float
    after: float
    margin: float
    texts: tuple[int, int]

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
    """The changes between two tables of heads.

    Attributes:
        changes: one for each number that both tables have, in the order in which they are listed.
        remarks: sentences about both tables for the reader.
        about: the name and version of the file format, and the origin of both tables, as JSON values.
        of_sets: True for one number of sets of heads, False for several numbers of single heads.
    """

    changes: tuple[NumberChange, ...]
    remarks: tuple[str, ...]
    about: Mapping[str, Any]
    of_sets: bool = False

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
        return {**self.about, "remarks": list(self.remarks), "changes": list(map(self._json, self.changes))}

    def _json(self, change: NumberChange) -> dict[str, Any]:
        """Returns a change as JSON values; a margin or number of standard errors that is not finite is ``None``."""
        numbers = {
            "before": change.before,
            "after": change.after,
            "difference": change.difference,
            "margin": finite_number(change.margin),
        }
        if self.of_sets:
            return {"heads": change.name.split("+"), **numbers}
        certainty = {"standard_errors": finite_number(change.clearness), "texts": list(change.texts)}
        return {"head": change.name, "metric": change.measure.name, **numbers, **certainty}


def number_changes(before: HeadFrame, after: HeadFrame) -> list[NumberChange]:
    """Returns the changes of the numbers that both frames have, row by row in the order of ``before``.

    A number that is NaN in one of the frames is left out. Empty if the frames share no numbers.
    """
    common_after, common_before = common_frames(after, before)
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
