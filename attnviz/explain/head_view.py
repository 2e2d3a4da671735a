"""Makes tables of one head's numbers, no wider than a line."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.explain.tables import Matrix, Table, cut_table
from attnviz.explain.worked_examples import raw_scores
from attnviz.models.reading.computation import Computation
from attnviz.report.picture.colors import ColorScale


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head of a computation, and the width of its tables.

    Attributes:
        computation: the numbers of the head's layer.
        number: the head's number in its layer, from 0.
        line_width: the most characters on a line of a table.
    """

    computation: Computation
    number: int
    line_width: int

    @property
    def width(self) -> int:
        """The number of features of a query and of a key in each head."""
        return int(self.computation.queries.shape[2])

    @property
    def visible(self) -> BoolArray:
        """The cells that the mask leaves visible to the head, ``(queries, keys)``."""
        return self.computation.visible_to(self.number)

    @property
    def raw_scores(self) -> FloatArray:
        """The dot products before they are scaled, ``(queries, keys)``."""
        return raw_scores(self.computation, self.number)

    def features(self, title: str, values: FloatArray, rows: tuple[str, ...], first: int = 0) -> Table:
        """Returns a table of feature vectors, one per token.

        Args:
            values: the vectors, ``(tokens, features)``.
        """
        columns = tuple(str(first + column) for column in range(values.shape[1]))
        return cut_table(Matrix(title, values, rows, columns), self.line_width)

    def cells(self, title: str, values: FloatArray, *, masked: bool = False, low: float | None = None) -> Table:
        """Returns a coloured table of queries by keys.

        Args:
            values: the numbers, ``(queries, keys)``.
        """
        visible = self.visible if masked else np.ones_like(self.visible)
        shown_values = values[visible] if visible.any() else np.zeros(1)
        low, high = float(shown_values.min()) if low is None else low, float(shown_values.max())
        scale = ColorScale(low, high if high > low else low + 1)
        rows, columns = self.computation.tokens.labels, self.computation.key_tokens.labels
        return cut_table(Matrix(title, values, rows, columns, visible, scale), self.line_width)
