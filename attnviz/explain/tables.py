"""Holds the values of an explanation, its steps and tables cut to a line's width, and works out single numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.printable import printable_line
from attnviz.models.reading.computation import Computation
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look

MAX_TABLE_ROWS = 12
MAX_ROW_LABEL_WIDTH = 14
MAX_COLUMN_LABEL_WIDTH = 8
GAP_SIGN = "…"
ABSENT_SIGN = "·"
MAX_TERMS = 4
PAIRS = 20_000  # random pairs of q and k; the standard error of the measured variance is then 1 to 2 %


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix ready to be drawn: numbers written as text, and the middle left out if it does not fit."""

    title: str  # the title above the table
    rows: tuple[str, ...]  # a label per row; ``…`` for the rows left out
    columns: tuple[str, ...]  # a label per column; ``…`` for the columns left out
    cells: tuple[tuple[str, ...], ...]  # the numbers as text, ``(rows, columns)``; ``·`` where there is none
    values: Float64Array  # the numbers, ``(rows, columns)``; NaN in the gap and where there is none
    scale: ColorScale | None = None  # the colour scale; ``None`` for a table without colours
    cut: str = ""  # a sentence about the rows and columns left out; empty if there are none
    starts_line: bool = False  # true if it does not stand beside the table before it

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
    """One step of the computation."""

    title: str  # the heading
    sentence: str  # the step in words
    formula: str  # the step as a formula in Unicode
    latex: str  # the formula in LaTeX
    before: str  # the shapes of the inputs, with named axes
    after: str  # the shapes of the outputs, with named axes
    tables: tuple[Table, ...] = ()  # the numbers
    examples: tuple[str, ...] = ()  # sentences that work out one number of the tables, and measurements
    name: str = ""  # the value of ``--step`` that chooses this step


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
    """The numbers of a table before it is cut to a width."""

    title: str  # the title of the table
    values: NDArray[Any]  # the numbers, ``(rows, columns)``
    rows: tuple[str, ...]  # a label per row
    columns: tuple[str, ...]  # a label per column
    visible: BoolArray | None = None  # True where there is a number, ``(rows, columns)``; ``None`` for everywhere
    scale: ColorScale | None = None  # the colour scale; ``None`` for a table without colours
    spec: str = ".4f"  # Python's format specification of a number

    @property
    def has_number(self) -> BoolArray:
        """True where there is a number, ``(rows, columns)``."""
        return np.ones(self.values.shape, dtype=bool) if self.visible is None else self.visible


def cut_table(matrix: Matrix, line_width: int) -> Table:
    """Returns the table of a matrix; its middle is left out if it exceeds ``line_width`` or ``MAX_TABLE_ROWS``.

    Three columns, with the gap, are shown even if they exceed the width.
    """
    numbers = matrix.values[matrix.has_number]
    number_width = 1
    if numbers.size:  # the smallest or the largest number has the most characters
        number_width = max(len(format(number, matrix.spec)) for number in (numbers.min(), numbers.max()))
    label_widths = (min(cell_len(label), MAX_COLUMN_LABEL_WIDTH) for label in matrix.columns)
    column_width = 1 + max(number_width, *label_widths)
    row_label_width = 1 + min(MAX_ROW_LABEL_WIDTH, max(cell_len(row) for row in matrix.rows))
    max_columns = max(3, (line_width - row_label_width) // column_width)  # the first, the gap and the last

    row_indices = keep_ends(len(matrix.rows), MAX_TABLE_ROWS)
    column_indices = keep_ends(len(matrix.columns), max_columns)
    kept = np.ix_(_with_zero_for_gap(row_indices), _with_zero_for_gap(column_indices))
    values = np.where(matrix.has_number[kept], matrix.values[kept].astype(np.float64), np.nan)
    values[[row is None for row in row_indices]] = np.nan
    values[:, [column is None for column in column_indices]] = np.nan
    cells: list[tuple[str, ...]] = []
    for row in row_indices:
        texts = []
        for column in column_indices:
            if row is None or column is None:
                texts.append(GAP_SIGN)
            elif matrix.has_number[row, column]:
                texts.append(format(matrix.values[row, column], matrix.spec))
            else:
                texts.append(ABSENT_SIGN)
        cells.append(tuple(texts))
    parts = [
        f"{count - len(indices) + 1} of {count} {name}"
        for indices, count, name in (
            (row_indices, len(matrix.rows), "rows"),
            (column_indices, len(matrix.columns), "columns"),
        )
        if None in indices
    ]
    return Table(
        title=matrix.title,
        rows=tuple(GAP_SIGN if row is None else matrix.rows[row] for row in row_indices),
        columns=tuple(GAP_SIGN if column is None else matrix.columns[column] for column in column_indices),
        cells=tuple(cells),
        values=values,
        scale=matrix.scale,
        cut=f"Cut in the middle: {' and '.join(parts)} are left out." if parts else "",
    )


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


def raw_scores(computation: Computation, head: int) -> FloatArray:
    """Returns the dot products of a head before they are scaled, ``(queries, keys)``."""
    return np.asarray(computation.queries[head] @ computation.keys[head].T)


def join_heads(features: FloatArray) -> FloatArray:
    """Returns the heads joined, ``(heads, tokens, width)`` to ``(tokens, heads * width)``, head 0 first."""
    return features.transpose(1, 0, 2).reshape(features.shape[1], -1)


def variance_table(width: int, line_width: int) -> Table:
    """Returns a table of the variance of q·k for independent normal features, before and after division by √width.

    Its columns are one, two and four times ``width``. The random features are equal in every run.
    """
    generator = np.random.default_rng(0)
    widths = (width, 2 * width, 4 * width)
    variances = []
    for head_width in widths:
        q, k = generator.standard_normal((2, PAIRS, head_width))
        variances.append(np.einsum("pf,pf->p", q, k).var())
    # Var(q·k / √width) = Var(q·k) / width
    scaled_variances = [variance / head_width for variance, head_width in zip(variances, widths, strict=True)]
    rows = np.array([variances, scaled_variances])
    title = f"variance by width, {PAIRS:,} pairs of normal vectors"
    return cut_table(Matrix(title, rows, ("q·k", "q·k/√width"), tuple(map(str, widths))), line_width)


def sum_of_products(left: FloatArray, right: FloatArray, bias: float | None = None) -> str:
    """Returns a dot product as text: its terms, or the largest few of many, and any bias."""
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    terms = [f"{with_decimals(factor)} × {with_decimals(other_factor)}" for factor, other_factor in pairs]
    return sum_of_terms(terms, left * right, "products") + ("" if bias is None else f" + bias {with_decimals(bias)}")


def sum_of_terms(terms: Sequence[str], values: FloatArray | Float64Array, noun: str) -> str:
    """Returns a sum as text: all terms, or the `MAX_TERMS` with the largest values of more terms, in their order."""
    if len(terms) <= MAX_TERMS:
        return " + ".join(terms)
    largest = sorted(np.argsort(-np.abs(values), kind="stable")[:MAX_TERMS].tolist())
    return f"{' + '.join(terms[index] for index in largest)} + … (the largest {MAX_TERMS} of {len(terms)} {noun})"


def with_decimals(value: float, decimals: int = 4) -> str:
    """Returns a number with four or other decimals, and − as its minus sign."""
    return f"{value:.{decimals}f}".replace("-", "−")
