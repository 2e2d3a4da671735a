"""Boxes become lines: each kind in its columns, beside and below each other."""

import numpy as np
import pytest

from attnviz.browse.drawing.draw import draw
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.state import Size
from attnviz.browse.view.boxes import (
    Box,
    BoxColumn,
    BoxRow,
    Cells,
    FixedBox,
    Paragraph,
    ScreenView,
    ShareBar,
    StyledText,
)
from attnviz.render.terminal.lines import Line
from attnviz.report.picture.colors import ColorScale

ONE = CellBlock(np.ones((2, 3), dtype=np.float32), np.array([[True, False, True], [True, True, True]]))


def lines_of(*boxes: Box, size: tuple[int, int] = (12, 4), colors: int = 0) -> list[Line]:
    return draw(ScreenView(boxes, Size(*size), colors))


def text_of(*boxes: Box, size: tuple[int, int] = (12, 4)) -> list[str]:
    return ["".join(span.text for span in line) for line in lines_of(*boxes, size=size)]


def test_words_fill_their_columns_and_are_cut_where_they_are_longer() -> None:
    left, right = StyledText("abc", 5), StyledText("abc", 5, right=True)
    assert text_of(BoxRow((left, StyledText("|"))), BoxRow((right, StyledText("|"))), StyledText("abcdef", 4)) == [
        "abc  |      ",
        "  abc|      ",
        "abc…        ",
        " " * 12,
    ]


def test_boxes_beside_each_other_are_as_tall_as_the_tallest() -> None:
    tall = FixedBox(BoxColumn((StyledText("a"), StyledText("b"))), width=3)
    assert text_of(BoxRow((tall, StyledText("|"))))[:2] == ["a  |        ", "b           "]


def test_box_is_cut_to_its_height_and_filled() -> None:
    three = BoxColumn((StyledText("a"), StyledText("b"), StyledText("c")))
    assert text_of(FixedBox(three, height=2), StyledText("end"))[:3] == [
        "a" + " " * 11,
        "b" + " " * 11,
        "end" + " " * 9,
    ]
    assert text_of(FixedBox(StyledText("a"), height=2), StyledText("end"))[2].startswith("end")


@pytest.mark.parametrize("size", [(1, 1), (5, 2), (40, 12)])
def test_every_screen_has_the_size_of_the_terminal(size: tuple[int, int]) -> None:
    drawn = text_of(StyledText("a long line of words"), StyledText("漢字"), StyledText("last"), size=size)
    assert len(drawn) == size[1]
    if size[0] > 1:
        assert {len(line.replace("漢字", "wide")) for line in drawn} == {size[0]}


def test_bar_and_hidden_cells_are_drawn_in_their_columns() -> None:
    drawn = text_of(BoxRow((ShareBar(1, 2, 4), StyledText("|"))), Cells(ONE, ColorScale(0, 1), cell_width=2))
    assert drawn[0].startswith("██  |")
    assert drawn[1].startswith("██  ██")


def test_numbers_stand_on_the_colour_of_their_value() -> None:
    texts = (("1", "2", "3"), ("4", "5", "6"))
    cells = Cells(ONE, ColorScale(0, 1), cell_width=3, texts=texts, cursor=(1, 2))
    [first, second, *_] = lines_of(cells, colors=2**24)
    assert "".join(span.text for span in first).startswith("  1  2  3")
    assert first[0].paper == first[2].paper != first[1].paper
    assert second[2].paper != second[1].paper  # the cursor's


def test_cursor_of_a_text_is_underlined() -> None:
    values = np.array([0.2, 0.9], dtype=np.float32)
    pieces = ((None, " "), (0, "one"), (None, " "), (1, "two"))
    text = Paragraph((pieces,), values, np.array([True, True]), ColorScale(0, 1), cursor=1)
    [line, *_] = lines_of(text, colors=2**24)
    assert [span.text for span in line if "underline" in span.style] == ["two"]
