"""What changes between two frames of heads: each number with its difference, and how sure that is."""

import math
from dataclasses import dataclass

from attnviz.metrics.head_frame import HeadFrame, HeadRow, matched
from attnviz.metrics.measure import NORMAL_95, Measure


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
