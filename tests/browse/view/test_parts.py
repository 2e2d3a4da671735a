"""Parts become lines in their columns and colours, beside and below each other; clicks find what stands there."""

import numpy as np
import pytest

from attnviz.browse.actions.keys import press
from attnviz.browse.actions.visited import start_state
from attnviz.browse.session.blocks import CellBlock, TokenRow
from attnviz.browse.session.state import Theme
from attnviz.browse.view.cells import Cells, cell_lines
from attnviz.browse.view.parts import PAPERS, Drawing, Hit, beside, padded_line, style_of, words
from attnviz.browse.view.text import ShadedTokens, running_text
from attnviz.maps.grouped import Units
from attnviz.maps.recording import Recording
from attnviz.render.terminal.lines import Line
from attnviz.report.picture.colors import ColorScale, colormap, luminance
from attnviz.report.picture.panels import PERCENT
from attnviz.text.tokens import Tokens
from tests.browse.examples import TRUE_COLOR, after, drawn_lines, screen_of, shown_text

ONE = CellBlock(np.ones((2, 3), dtype=np.float32), np.array([[True, False, True], [True, True, True]]))


def texts(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in line) for line in lines]


def test_words_fill_their_columns_and_are_cut_where_they_are_longer() -> None:
    spans = words("abc", 5), words("abc", 5, right=True), words("abcdef", 4), words("abc")
    assert [span.text for span in spans] == ["abc  ", "  abc", "abc…", "abc"]


def test_parts_are_filled_beside_each_other_and_answer_clicks_where_they_stand() -> None:
    button = Drawing([[words("ok")]], lambda x, y: Hit({"head": x}))
    part = beside((Drawing([[words("a")], [words("b")]]), 3), (button, 4))
    assert texts(part.lines) == ["a  ok  ", "b      "]
    hits = {(x, y): hit.changes["head"] for x in range(8) for y in range(5) if (hit := part.hit(x, y)) is not None}
    assert hits == {(3 + x, 0): x for x in range(4)}
    assert texts([padded_line([words("漢字")], 3)]) == ["漢 "]


def test_hidden_cells_are_drawn_in_their_columns() -> None:
    assert texts(cell_lines(Cells(ONE, ColorScale(0, 1), cell_width=2), 0))[0] == "██··██"


def test_numbers_stand_on_the_colour_of_their_value() -> None:
    numbers = (("1", "2", "3"), ("4", "5", "6"))
    cells = Cells(ONE, ColorScale(0, 1), cell_width=3, texts=numbers, cursor=(1, 2))
    first, second = cell_lines(cells, TRUE_COLOR)
    assert texts([first]) == ["  1  2  3"]
    assert first[0].paper == first[2].paper != first[1].paper
    assert second[2].paper != second[1].paper  # the cursor's


def test_cursor_of_a_text_is_underlined_and_a_token_is_clicked_where_it_stands() -> None:
    values, units = np.array([0.2, 0.9], dtype=np.float32), Units.of(Tokens.numbered(2, "word"))
    row = TokenRow(values, np.array([True, True]))
    part = running_text(ShadedTokens(units, row, PERCENT, ColorScale(0, 1), 1, "", axis="key"), 40, 3, TRUE_COLOR)
    [line] = part.lines
    assert [span.text for span in line if "underline" in span.style] == ["word1"]
    assert texts([line]) == [" word0 word1"]
    keys = [None if (hit := part.hit(x, 0)) is None else hit.changes["key"] for x in range(14)]
    assert keys == [None, *[0] * 5, None, *[1] * 5, None, None]


def test_ascii_has_no_other_character(recording: Recording) -> None:
    screen = screen_of(recording)
    assert shown_text(screen, after(screen, "enter", "x"), ascii=True).isascii()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("keys", [[], ["enter"], ["a"]])
def test_every_cell_has_the_themes_paper_and_ink_that_can_be_read(
    recording: Recording, theme: Theme, keys: list[str]
) -> None:
    screen = screen_of(recording, 120, 40, theme=theme)
    for line in drawn_lines(screen, after(screen, *keys, state=start_state(screen))):
        for span in line:
            style = style_of(span.ink, span.paper, span.style, theme)
            assert style.color is not None
            assert style.bgcolor is not None
            ink, paper = style.color.get_truecolor(), style.bgcolor.get_truecolor()
            if tuple(paper) == PAPERS[theme].paper and span.text.isalpha():
                light, dark = sorted((float(luminance(tuple(ink))), float(luminance(tuple(paper)))))[::-1]
                assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_theme_goes_round_and_begins_where_it_was_asked_to(recording: Recording) -> None:
    screen = screen_of(recording, theme="dark")
    state = start_state(screen)
    assert state.theme == "dark"
    assert [state.theme, *(state := press(screen, state, "h")).theme.split()] == ["dark", "terminal"]
    assert press(screen, state, "h").theme == "light"
    few = screen_of(recording, colors=16)
    assert press(few, start_state(few), "h").theme == "terminal"


def test_colormap_that_was_asked_for_is_drawn(recording: Recording) -> None:
    screen = screen_of(recording, colormap="magma")
    inks = {span.paper for line in drawn_lines(screen, press(screen, start_state(screen), "enter")) for span in line}
    assert inks & {tuple(color) for color in colormap("magma").tolist()}
