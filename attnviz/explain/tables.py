"""The values of an explanation: its steps, with their tables already cut to size."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.report.colors import ColorScale
from attnviz.report.look import Look

MOST_ROWS = 12
WIDEST_LABEL = 14
WIDEST_COLUMN_LABEL = 8
GAP = "…"
ABSENT = "·"


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
        gaps = [column for column in range(len(self.columns)) if all(row[column] == GAP for row in self.cells)]
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
        tables: the numbers.
        worked: one number of them worked out by hand, and what was measured.
        name: as ``--step`` takes it.
    """

    title: str
    sentence: str
    formula: str
    latex: str
    before: str
    after: str
    tables: tuple[Table, ...] = ()
    worked: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A computation told step by step, every choice made.

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


def shape(**sizes: int) -> str:
    """A shape in named axes: ``(heads 4, queries 6, keys 6)``."""
    return f"({', '.join(f'{name} {size}' for name, size in sizes.items())})"


def cut_table(
    title: str,
    values: NDArray[np.generic],
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    room: int,
    *,
    visible: BoolArray | None = None,
    scale: ColorScale | None = None,
    spec: str = ".4f",
) -> Table:
    """The table of a matrix, cut in the middle to at most ``room`` characters a line and ``MOST_ROWS`` rows.

    Args:
        title: over it.
        values: ``(rows, columns)``.
        rows: a label a row.
        columns: a label a column.
        room: characters of a line.
        visible: ``(rows, columns)``, where there is a number; ``None`` for everywhere.
        scale: colours of the values.
        spec: Python's format for a number.
    """
    seen = np.ones(values.shape, dtype=bool) if visible is None else visible
    shown = values[seen]
    widest = max(len(format(end, spec)) for end in (shown.min(), shown.max())) if shown.size else 1
    width = 1 + max(widest, *(min(cell_len(label), WIDEST_COLUMN_LABEL) for label in columns))
    label = 1 + min(WIDEST_LABEL, max(cell_len(row) for row in rows))
    kept_rows = keep_ends(len(rows), MOST_ROWS)
    kept_columns = keep_ends(len(columns), max(3, (room - label) // width))
    picked = values[np.ix_(_filled(kept_rows), _filled(kept_columns))].astype(np.float64)
    picked[~seen[np.ix_(_filled(kept_rows), _filled(kept_columns))]] = np.nan
    picked[[row is None for row in kept_rows]] = np.nan
    picked[:, [column is None for column in kept_columns]] = np.nan
    return Table(
        title=title,
        rows=tuple(GAP if row is None else rows[row] for row in kept_rows),
        columns=tuple(GAP if column is None else columns[column] for column in kept_columns),
        cells=tuple(
            tuple(
                GAP
                if row is None or column is None
                else format(values[row, column], spec)
                if seen[row, column]
                else ABSENT
                for column in kept_columns
            )
            for row in kept_rows
        ),
        values=picked,
        scale=scale,
        cut=_cut_sentence(kept_rows, len(rows), kept_columns, len(columns)),
    )


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
