"""What is on the screen, decided and in cells: words, bars and cells of maps, beside and below each other."""

from typing import NamedTuple

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.state import Size, Theme
from attnviz.report.picture.colors import ColorScale

Piece = tuple[int | None, str]  # of which token, and what is written


class Words(NamedTuple):
    """A run of text.

    Attributes:
        text: as it is written.
        width: columns that it fills, cut where it is longer; ``None`` for as many as it takes.
        style: as rich names styles.
        right: at the right of its columns.
    """

    text: str
    width: int | None = None
    style: str = ""
    right: bool = False


class Wrapped(NamedTuple):
    """A text in lines of so many columns, each after a space, broken between words.

    Attributes:
        text: as it is written.
        width: columns of a line.
        style: as rich names styles.
    """

    text: str
    width: int
    style: str = ""


class ShareBar(NamedTuple):
    """A bar in eighths of a column.

    Attributes:
        value: its length.
        most: the value that fills all columns.
        width: columns.
        style: as rich names styles.
    """

    value: float
    most: float
    width: int
    style: str = ""


class PictureArea(NamedTuple):
    """Where a picture is drawn.

    Attributes:
        lines: of the screen.
        columns: of the screen.
        character: width and height of a character in pixels.
        cells: rows and columns of cells over one character; ``None`` stretches the cells to the area.
    """

    lines: int
    columns: int
    character: tuple[int, int]
    cells: tuple[int, int] | None = None


class Cells(NamedTuple):
    """Values in their colours.

    Attributes:
        block: the values, and which of them are visible.
        scale: their colours.
        cell: columns of a cell.
        rows_a_line: 2 draws two rows on a line.
        cursor: the row and the column of the cell under the cursor.
        texts: what is written in each cell, where its number is.
        bright: of a small map the cells that are on the screen, ``(rows, columns)``; the others are darkened.
        area: where it is drawn in pixels; ``None`` draws characters.
    """

    block: CellBlock
    scale: ColorScale
    cell: int = 1
    rows_a_line: int = 1
    cursor: tuple[int, int] | None = None
    texts: tuple[tuple[str, ...], ...] | None = None
    bright: BoolArray | None = None
    area: PictureArea | None = None


class Paragraph(NamedTuple):
    """A row as running text, each token on the colour of its value.

    Attributes:
        lines: the pieces of each.
        values: of every token.
        visible: which tokens are seen.
        scale: the colours of the values.
        cursor: the token under the cursor.
    """

    lines: tuple[tuple[Piece, ...], ...]
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int


class Beside(NamedTuple):
    """Parts from left to right."""

    boxes: "tuple[Box, ...]"


class Below(NamedTuple):
    """Parts from top to bottom."""

    boxes: "tuple[Box, ...]"


class Sized(NamedTuple):
    """A box in so many columns or lines: filled with blanks, and cut after its last line.

    Attributes:
        box: the box.
        width: columns; ``None`` for its own.
        height: lines; ``None`` for its own.
    """

    box: "Box"
    width: int | None = None
    height: int | None = None


Box = Words | Wrapped | ShareBar | Cells | Paragraph | Beside | Below | Sized


class Body(NamedTuple):
    """What stands between the title and the keys.

    Attributes:
        title: what it shows, in words.
        box: the box.
        status: the line below it.
    """

    title: str
    box: Box
    status: Box


class ScreenView(NamedTuple):
    """The screen, decided: drawing it asks nothing else.

    Attributes:
        boxes: from top to bottom.
        size: of the terminal.
        colors: how many it has.
        theme: light, dark, or the terminal's own.
    """

    boxes: tuple[Box, ...]
    size: Size
    colors: int
    theme: Theme = "terminal"
