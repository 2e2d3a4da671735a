"""The values of an explanation: its steps, with their tables already cut to size."""

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
    """A matrix as it is shown: every number written out, the middle left out where it is too long.

    Attributes:
        title: over it.
        rows: a label a row; ``…`` for the rows left out.
        columns: a label a column; ``…`` for the columns left out.
        cells: ``(rows, columns)``, the numbers as they are written; ``·`` where absent.
        values: ``(rows, columns)``, the numbers; NaN where there is none.
        scale: their colours; ``None`` where the table has none.
        cut: what was left out, as a sentence, or nothing.
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
        """The column that stands for those left out."""
        gaps = [column for column in range(len(self.columns)) if all(row[column] == GAP_SIGN for row in self.cells)]
        return gaps[0] if gaps else None

    @property
    def width(self) -> int:
        """Columns of a terminal that the widest cell takes."""
        return max(max(len(cell) for cell in row) for row in self.cells)


@dataclass(frozen=True)
class Step:
    """One step of the computation.

    Attributes:
        title: its heading.
        sentence: what happens, in words.
        formula: what happens, in signs.
        latex: the same for a page that typesets it.
        before: the shapes that go in, in named axes.
        after: the shapes that come out.
        tables: the computation.
        examples: one number of them worked out by hand, and what was measured.
        name: as ``--step`` takes it.
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
    """A computation step by step, every choice made.

    Attributes:
        title: the heading: the text.
        head: the head that is shown, as ``layer.head``.
        steps: in the order in which they are computed.
        remarks: what a reader must know besides.
        look: how it is drawn.
    """

    title: str
    head: str
    steps: tuple[Step, ...]
    remarks: tuple[str, ...]
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", printable_line(self.title))


def shape(**sizes: int) -> str:
    """A shape in named axes: ``(heads 4, queries 6, keys 6)``."""
    return f"({', '.join(f'{name} {size}' for name, size in sizes.items())})"


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers that a table is made of.

    Attributes:
        title: over it.
        values: ``(rows, columns)``.
        rows: a label a row.
        columns: a label a column.
        visible: ``(rows, columns)``, where there is a number; ``None`` for everywhere.
        scale: colours of the values.
        spec: Python's format for a number.
    """

    title: str
    values: NDArray[Any]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    visible: BoolArray | None = None
    scale: ColorScale | None = None
    spec: str = ".4f"

    @property
    def seen(self) -> BoolArray:
        """Where there is a number, ``(rows, columns)``."""
        return np.ones(self.values.shape, dtype=bool) if self.visible is None else self.visible


def cut_table(matrix: Matrix, room: int) -> Table:
    """The table of a matrix, cut in the middle to at most ``room`` characters a line and ``MAX_TABLE_ROWS`` rows."""
    rows = keep_ends(len(matrix.rows), MAX_TABLE_ROWS)
    columns = keep_ends(len(matrix.columns), max(3, _columns_that_fit(matrix, room)))
    return Table(
        title=matrix.title,
        rows=tuple(GAP_SIGN if row is None else matrix.rows[row] for row in rows),
        columns=tuple(GAP_SIGN if column is None else matrix.columns[column] for column in columns),
        cells=tuple(tuple(_cell(matrix, row, column) for column in columns) for row in rows),
        values=_kept_values(matrix, rows, columns),
        scale=matrix.scale,
        cut=_cut_sentence(rows, len(matrix.rows), columns, len(matrix.columns)),
    )


def _columns_that_fit(matrix: Matrix, room: int) -> int:
    """How many columns a line has room for, each as wide as the longest number or label."""
    shown = matrix.values[matrix.seen]
    longest = max(len(format(end, matrix.spec)) for end in (shown.min(), shown.max())) if shown.size else 1
    width = 1 + max(longest, *(min(cell_len(label), MAX_COLUMN_LABEL_WIDTH) for label in matrix.columns))
    label = 1 + min(MAX_ROW_LABEL_WIDTH, max(cell_len(row) for row in matrix.rows))
    return (room - label) // width


def _cell(matrix: Matrix, row: int | None, column: int | None) -> str:
    if row is None or column is None:
        return GAP_SIGN
    return format(matrix.values[row, column], matrix.spec) if matrix.seen[row, column] else ABSENT_SIGN


def _kept_values(matrix: Matrix, rows: list[int | None], columns: list[int | None]) -> Float64Array:
    """The numbers of the rows and columns that are kept, NaN where there is none or the cut is."""
    places = np.ix_(_filled(rows), _filled(columns))
    values = np.where(matrix.seen[places], matrix.values[places].astype(np.float64), np.nan)
    values[[row is None for row in rows]] = np.nan
    values[:, [column is None for column in columns]] = np.nan
    return values


def keep_ends(count: int, most: int) -> list[int | None]:
    """The indexes of a list of ``count`` cut in the middle to ``most`` places, ``None`` where the cut is."""
    if count <= most:
        return list(range(count))
    first = most // 2
    return [*range(first), None, *range(count - (most - 1 - first), count)]


def _filled(kept: list[int | None]) -> list[int]:
    return [0 if index is None else index for index in kept]


def _cut_sentence(rows: list[int | None], row_count: int, columns: list[int | None], column_count: int) -> str:
    parts = [
        f"{count - len(kept) + 1} of {count} {name}"
        for kept, count, name in ((rows, row_count, "rows"), (columns, column_count, "columns"))
        if None in kept
    ]
    return f"Cut in the middle: {' and '.join(parts)} are left out." if parts else ""
