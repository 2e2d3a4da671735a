"""HeadView: one head of a computation, which makes tables of its numbers as wide as there is room."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.explain.tables import Matrix, Table, cut_table
from attnviz.explain.worked_examples import raw_scores
from attnviz.models.reading.computation import Computation
from attnviz.report.picture.colors import ColorScale


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head of a computation, and how wide its tables may be.

    Attributes:
        computation: of the head's layer.
        number: the head's own.
        room: characters of a line.
    """

    computation: Computation
    number: int
    room: int

    @property
    def width(self) -> int:
        """The width of a query and a key in each head."""
        return int(self.computation.queries.shape[2])

    @property
    def visible(self) -> BoolArray:
        """Whether each cell is visible to the head, ``(queries, keys)``."""
        return self.computation.visible_to(self.number)

    @property
    def raw(self) -> FloatArray:
        """The dot products before the scale, ``(queries, keys)``."""
        return raw_scores(self.computation, self.number)

    def features(self, title: str, values: FloatArray, rows: tuple[str, ...], first: int = 0) -> Table:
        """The table of vectors of features, one a token, its columns numbered from ``first``."""
        columns = tuple(str(first + column) for column in range(values.shape[1]))
        return cut_table(Matrix(title, values, rows, columns), self.room)

    def cells(self, title: str, values: FloatArray, *, masked: bool = False, low: float | None = None) -> Table:
        """The table of queries by keys, coloured; with a mask, hidden cells are absent."""
        visible = self.visible if masked else np.ones_like(self.visible)
        shown = values[visible] if visible.any() else np.zeros(1)
        low, high = float(shown.min()) if low is None else low, float(shown.max())
        scale = ColorScale(low, high if high > low else low + 1)
        rows, columns = self.computation.tokens.labels, self.computation.key_tokens.labels
        return cut_table(Matrix(title, values, rows, columns, visible, scale), self.room)
