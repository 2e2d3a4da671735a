"""Holds the values of an explanation: its steps, and their tables cut to the width of a line."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.printable import printable_line
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look

MAX_TABLE_ROWS = 12
MAX_ROW_LABEL_WIDTH = 14
MAX_COLUMN_LABEL_WIDTH = 8
GAP_SIGN = "…"
ABSENT_SIGN = "·"


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix ready to be drawn: numbers written as text, and the middle left out if it does not fit.

    Attributes:
        title: the title above the table.
        rows: a label per row; ``…`` for the rows left out.
        columns: a label per column; ``…`` for the columns left out.
        cells: the numbers as text, ``(rows, columns)``; ``·`` where there is none.
        values: the numbers, ``(rows, columns)``; NaN in the gap and where there is none.
        scale: the colour scale; ``None`` for a table without colours.
        cut: a sentence about the rows and columns left out; empty if there are none.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    values: Float64Array
    scale: ColorScale | None = None
    cut: str = ""

    @property
    def gap(self) -> int | None:
        """The index of the column that marks the gap; ``None`` if no columns are left out."""
        gaps = [column for column in range(len(self.columns)) if all(row[column] == GAP_SIGN for row in self.cells)]
        return gaps[0] if gaps else None

    @property
    def width(self) -> int:
        """The terminal columns that the widest cell needs."""
        return max(max(len(cell) for cell in row) for row in self.cells)


@dataclass(frozen=True)
class Step:
    """One step of the computation.

    Attributes:
        title: the heading.
        sentence: the step in words.
        formula: the step as a formula in Unicode.
        latex: the formula in LaTeX.
        before: the shapes of the inputs, with named axes.
        after: the shapes of the outputs, with named axes.
        tables: the numbers.
        examples: sentences that work out one number of the tables, and measurements.
        name: the value of ``--step`` that chooses this step.
    """

    title: str
    sentence: str
    formula: str
    latex: str
    before: str
    after: str
    tables: tuple[Table, ...] = ()
    examples: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The computation of a head step by step, ready to be drawn.

    Attributes:
        title: the heading, by default the start of the text.
        head: the head, as ``layer.head``.
        steps: the steps, in the order of the computation.
        remarks: notes below the last step, such as where the numbers come from.
        look: how the explanation is drawn.
    """

    title: str
    head: str
    steps: tuple[Step, ...]
    remarks: tuple[str, ...]
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", printable_line(self.title))


def shape(**sizes: int) -> str:
    """Returns a shape with named axes as text: ``(heads 4, queries 6, keys 6)``."""
    return f"({', '.join(f'{name} {size}' for name, size in sizes.items())})"


@dataclass(frozen=True, eq=False)
class Matrix:
    """The numbers of a table before it is cut to a width.

    Attributes:
        title: the title of the table.
        values: the numbers, ``(rows, columns)``.
        rows: a label per row.
        columns: a label per column.
        visible: True where there is a number, ``(rows, columns)``; ``None`` for everywhere.
        scale: the colour scale; ``None`` for a table without colours.
        spec: Python's format specification of a number.
    """

    title: str
    values: NDArray[Any]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    visible: BoolArray | None = None
    scale: ColorScale | None = None
    spec: str = ".4f"

    @property
    def has_number(self) -> BoolArray:
        """True where there is a number, ``(rows, columns)``."""
        return np.ones(self.values.shape, dtype=bool) if self.visible is None else self.visible


def cut_table(matrix: Matrix, line_width: int) -> Table:
    """Returns the table of a matrix; its middle is left out if it exceeds ``line_width`` or ``MAX_TABLE_ROWS``.

    Three columns, with the gap, are shown even if they exceed the width.
    """
    max_columns = max(3, _columns_that_fit(matrix, line_width))  # the first, the gap and the last
    row_indices = keep_ends(len(matrix.rows), MAX_TABLE_ROWS)
    column_indices = keep_ends(len(matrix.columns), max_columns)
    return Table(
        title=matrix.title,
        rows=tuple(GAP_SIGN if row is None else matrix.rows[row] for row in row_indices),
        columns=tuple(GAP_SIGN if column is None else matrix.columns[column] for column in column_indices),
        cells=tuple(tuple(_cell(matrix, row, column) for column in column_indices) for row in row_indices),
        values=_shown_values(matrix, row_indices, column_indices),
        scale=matrix.scale,
        cut=_cut_sentence(row_indices, len(matrix.rows), column_indices, len(matrix.columns)),
    )


def _columns_that_fit(matrix: Matrix, line_width: int) -> int:
    """Returns the number of columns of equal width that fit a line beside the row labels; 0 or less if none fits."""
    numbers = matrix.values[matrix.has_number]
    number_width = 1
    if numbers.size:  # the smallest or the largest number has the most characters
        number_width = max(len(format(number, matrix.spec)) for number in (numbers.min(), numbers.max()))
    label_widths = (min(cell_len(label), MAX_COLUMN_LABEL_WIDTH) for label in matrix.columns)
    column_width = 1 + max(number_width, *label_widths)
    row_label_width = 1 + min(MAX_ROW_LABEL_WIDTH, max(cell_len(row) for row in matrix.rows))
    return (line_width - row_label_width) // column_width


def _cell(matrix: Matrix, row: int | None, column: int | None) -> str:
    """Returns the text of a cell: its number, or a sign in the gap and for a missing number."""
    if row is None or column is None:
        return GAP_SIGN
    return format(matrix.values[row, column], matrix.spec) if matrix.has_number[row, column] else ABSENT_SIGN


def _shown_values(matrix: Matrix, rows: list[int | None], columns: list[int | None]) -> Float64Array:
    """Returns the numbers of the shown rows and columns; NaN in the gap and for a missing number."""
    cells = np.ix_(_with_zero_for_gap(rows), _with_zero_for_gap(columns))
    values = np.where(matrix.has_number[cells], matrix.values[cells].astype(np.float64), np.nan)
    values[[row is None for row in rows]] = np.nan
    values[:, [column is None for column in columns]] = np.nan
    return values


def keep_ends(count: int, max_count: int) -> list[int | None]:
    """Returns all indexes below ``count``, or ``max_count`` items if there are more: the first and the last ones.

    ``None`` between them marks the gap.
    """
    if count <= max_count:
        return list(range(count))
    first_count = max_count // 2
    return [*range(first_count), None, *range(count - (max_count - 1 - first_count), count)]


def _with_zero_for_gap(indexes: list[int | None]) -> list[int]:
    """Returns the indexes with 0 in place of ``None``."""
    return [0 if index is None else index for index in indexes]


def _cut_sentence(rows: list[int | None], row_count: int, columns: list[int | None], column_count: int) -> str:
    """Returns a sentence on the rows and columns that are left out; empty if there are none."""
    parts = [
        f"{count - len(indexes) + 1} of {count} {name}"
        for indexes, count, name in ((rows, row_count, "rows"), (columns, column_count, "columns"))
        if None in indexes
    ]
    return f"Cut in the middle: {' and '.join(parts)} are left out." if parts else ""
