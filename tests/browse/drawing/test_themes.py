import pytest

from attnviz.browse.drawing.draw import draw_screen
from attnviz.browse.drawing.themes import PAPERS
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import press
from attnviz.browse.moves.place import start_state
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, Theme
from attnviz.maps.recording import Recording
from attnviz.report.picture.colors import colormap, luminance


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("keys", [[], ["enter"], ["a"], ["question_mark"]])
def test_every_cell_has_the_themes_paper_and_ink_that_can_be_read(
    recording: Recording, theme: Theme, keys: list[str]
) -> None:
    screen = Screen(Session(recording, theme=theme), Size(120, 40), 2**24)
    state = start_state(screen)
    for key in keys:
        state = press(screen, state, key)
    for line in draw_screen(screen, state):
        for span in line:
            assert span.ink is not None
            assert span.paper is not None
            if span.paper == PAPERS[theme].paper and span.text.isalpha():
                light, dark = sorted((float(luminance(span.ink)), float(luminance(span.paper))))[::-1]
                assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_theme_goes_round_and_begins_where_it_was_asked_to(recording: Recording) -> None:
    screen = Screen(Session(recording, theme="dark"), Size(80, 24), 2**24)
    state = start_state(screen)
    assert state.theme == "dark"
    assert [state.theme, *(state := press(screen, state, "h")).theme.split()] == ["dark", "terminal"]
    assert press(screen, state, "h").theme == "light"
    few = Screen(Session(recording), Size(80, 24), 16)
    assert press(few, start_state(few), "h").theme == "terminal"


def test_colormap_that_was_asked_for_is_drawn(recording: Recording) -> None:
    screen = Screen(Session(recording, colormap="dark-blue"), Size(80, 24), 2**24)
    inks = {span.paper for line in draw_screen(screen, press(screen, start_state(screen), "enter")) for span in line}
    assert inks & {tuple(color) for color in colormap("dark-blue").tolist()}
