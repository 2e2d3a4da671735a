"""Defines the parts of a composed screen: texts, bars and cells of maps, in rows and columns of boxes."""

from typing import NamedTuple

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.state import Size, Theme
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Panel

Piece = tuple[int | None, str]  # a token and its text; None with the blanks between tokens


class StyledText(NamedTuple):
    """A run of text.

    Attributes:
        text: the text.
        width: columns to which the text is filled or cut; ``None`` for the width of the text.
        style: rich's name of the style.
        right: align to the right.
    """

    text: str
    width: int | None = None
    style: str = ""
    right: bool = False


class WrappedText(NamedTuple):
    """A text wrapped between words, with a space before each line.

    Attributes:
        text: the text.
        width: columns of a line.
        style: rich's name of the style.
    """

    text: str
    width: int
    style: str = ""


class ShareBar(NamedTuple):
    """A bar whose length shows a value, in eighths of a column.

    Attributes:
        value: the value that the bar shows.
        most: the value of a full bar.
        width: columns.
        style: rich's name of the style.
    """

    value: float
    most: float
    width: int
    style: str = ""


class PictureArea(NamedTuple):
    """The size of a picture in pixels.

    Attributes:
        lines: lines of the screen.
        columns: columns of the screen.
        character: width and height of a character in pixels.
        cells: rows and columns of cells per character; ``None`` stretches the cells to the area.
    """

    lines: int
    columns: int
    character: tuple[int, int]
    cells: tuple[int, int] | None = None


class Cells(NamedTuple):
    """The coloured cells of a map.

    Attributes:
        block: the values and their visibility.
        scale: the colour scale.
        cell_width: columns of a cell.
        rows_a_line: rows of cells per line, 1 or 2.
        cursor: the row and the column of the cell under the cursor; ``None`` for no cursor.
        texts: the text of each cell, such as its number; ``None`` for no text.
        bright_cells: False in cells of a minimap that are darkened, since they are off the screen, ``(rows, columns)``;
            ``None`` darkens none.
        area: the size in pixels; ``None`` draws characters.
    """

    block: CellBlock
    scale: ColorScale
    cell_width: int = 1
    rows_a_line: int = 1
    cursor: tuple[int, int] | None = None
    texts: tuple[tuple[str, ...], ...] | None = None
    bright_cells: BoolArray | None = None
    area: PictureArea | None = None


class Paragraph(NamedTuple):
    """A row of a map as running text; the colour of each token shows its value.

    Attributes:
        lines: the pieces of each line.
        values: the value of each token, ``(tokens,)``.
        visible: False for masked tokens, ``(tokens,)``.
        scale: the colour scale.
        cursor: the token under the cursor.
    """

    lines: tuple[tuple[Piece, ...], ...]
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int


class OverImage(NamedTuple):
    """An image, coloured by a row of a map.

    Attributes:
        panel: the row, whose keys are patches of the image; the query is framed if it is one of them.
        columns: columns of the screen.
        lines: lines of the screen.
        cursor: left, top, right and bottom of the patch under the cursor, in pixels of the image; ``None`` for none.
        character: width and height of a character in pixels; ``None`` draws half blocks or shades.
    """

    panel: Panel
    columns: int
    lines: int
    cursor: tuple[int, int, int, int] | None
    character: tuple[int, int] | None


class OverSound(NamedTuple):
    """The weights of a row of a map over the frames of a sound.

    Attributes:
        panel: the row, whose keys are frames of the sound.
        columns: columns of the screen.
        envelope_lines: lines of the envelope.
        words: the spoken words with the second at which each begins; empty for no line of words.
        cursor: the second under the cursor with its label; ``None`` for none.
    """

    panel: Panel
    columns: int
    envelope_lines: int
    words: tuple[tuple[float, str], ...]
    cursor: tuple[float, str] | None


class BoxRow(NamedTuple):
    """Boxes next to each other, from left to right."""

    boxes: "tuple[Box, ...]"


class BoxColumn(NamedTuple):
    """Boxes under each other, from top to bottom."""

    boxes: "tuple[Box, ...]"


class FixedBox(NamedTuple):
    """A box of a fixed size: filled with blanks to its width and height, and cut at its height.

    Attributes:
        box: the box.
        width: columns; ``None`` for the width of the box.
        height: lines; ``None`` for the height of the box.
    """

    box: "Box"
    width: int | None = None
    height: int | None = None


Box = StyledText | WrappedText | ShareBar | Cells | Paragraph | OverImage | OverSound | BoxRow | BoxColumn | FixedBox


class Body(NamedTuple):
    """The parts of a screen that depend on what is open.

    Attributes:
        title: the start of the title line.
        box: the box between the title and the status.
        status: the line below the box.
    """

    title: str
    box: Box
    status: Box


class ScreenView(NamedTuple):
    """A composed screen: all that is needed to draw it.

    Attributes:
        boxes: the boxes from top to bottom.
        size: the size of the terminal.
        colors: the number of colours of the terminal.
        theme: light, dark, or the terminal's own colours.
    """

    boxes: tuple[Box, ...]
    size: Size
    colors: int
    theme: Theme = "terminal"
