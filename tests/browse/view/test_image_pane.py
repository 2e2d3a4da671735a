"""Images under a row of a map: where they are drawn, what is framed, which patch a click chooses."""

from dataclasses import replace

import pytest

from attnviz.browse.drawing.draw import draw_screen
from attnviz.browse.drawing.graphics import PixelSpan
from attnviz.browse.drawing.themes import CURSOR_COLOR
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.layout import map_lines, text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.open_head import click_in_head
from attnviz.maps.recording import Recording
from attnviz.render.terminal.lines import Line
from attnviz.render.terminal.media import FRAME
from tests.conftest import dense
from tests.report.image_examples import image_recording, spectrogram_recording, words_and_images_recording

TRUE_COLOR = 2**24
WIDTH, HEIGHT = 60, 27  # an image of 120 x 80 pixels has 11 lines and 33 columns there, its patches 8 x 5.5


def screen_of(
    colors: int = TRUE_COLOR,
    character: tuple[int, int] | None = None,
    height: int = HEIGHT,
    width: int = WIDTH,
    recording: Recording | None = None,
) -> Screen:
    session = Session(recording or image_recording())
    return Screen(session, Size(width, height, character, session.text_lines(width), session.has_images), colors)


def image_of(screen: Screen, state: State) -> list[Line]:
    """Returns the lines of the image under an open head."""
    lines = draw_screen(screen, settle(screen, state))
    start = 2 + map_lines(screen.size)
    return lines[start : start + text_lines(screen.size) - 1]


def colors_of(lines: list[Line]) -> set[tuple[int, int, int] | None]:
    return {color for line in lines for span in line for color in (span.ink, span.paper)}


def test_an_image_has_half_of_the_screen_below_the_map() -> None:
    lines = image_of(screen_of(), State(has_open_head=True, query=2, key=4))
    assert len(lines) == 11
    drawn = ["".join(span.text for span in line) for line in lines]
    assert {len(line) for line in drawn} == {WIDTH}
    assert {line.rstrip()[1:].strip("▀") for line in drawn} == {""}
    assert {len(line.rstrip()) for line in drawn} == {34}


def test_weights_over_an_image_are_scaled_to_the_largest_of_the_row() -> None:
    screen, state = screen_of(width=90), State(has_open_head=True, query=2, key=4)
    caption = next(text for text in text_of(screen, state) if "shades: " in text)
    largest = dense(image_recording()).weights[0, 2].max()
    assert f"0% to {100 * largest:.2g}%" in caption
    scores = next(text for text in text_of(screen, replace(state, view=View(scores=True))) if "shades: " in text)
    assert "%" not in scores


def text_of(screen: Screen, state: State) -> list[str]:
    return ["".join(span.text for span in line) for line in draw_screen(screen, settle(screen, state))]


def test_a_spectrogram_has_its_seconds_in_the_line_below_it() -> None:
    screen = screen_of(recording=spectrogram_recording())
    lines = image_of(screen, State(has_open_head=True, query=2, key=4))
    *drawn, seconds = ["".join(span.text for span in line).rstrip() for line in lines]
    assert {len(line) for line in drawn} == {31}  # 10 lines, and a column before them
    assert seconds.split() == ["0s", "1s", "2s"]
    assert (seconds.index("0s"), seconds.index("1s")) == (1, 11)


def test_query_and_cursor_are_framed_where_they_have_a_patch() -> None:
    screen = screen_of()
    both = colors_of(image_of(screen, State(has_open_head=True, query=2, key=4)))
    assert {FRAME, CURSOR_COLOR} <= both
    neither = colors_of(image_of(screen, State(has_open_head=True, query=0, key=0)))
    assert not {FRAME, CURSOR_COLOR} & neither


def test_few_colours_get_shades_and_the_query_its_letter() -> None:
    lines = image_of(screen_of(colors=16), State(has_open_head=True, query=2, key=4))
    text = "\n".join("".join(span.text for span in line) for line in lines)
    assert text.count("Q") == 1
    assert "▀" not in text


def test_a_terminal_with_pixels_gets_pixels() -> None:
    lines = image_of(screen_of(character=(8, 16)), State(has_open_head=True, query=2, key=4))
    spans = [span for line in lines for span in line if isinstance(span, PixelSpan)]
    assert len(spans) == 11
    assert spans[0].pixels(8).shape == (16, 33 * 8, 4)


def test_a_low_screen_has_the_labels_of_patches() -> None:
    lines = image_of(screen_of(height=12), State(has_open_head=True))
    assert "r0c0" in "".join(span.text for line in lines for span in line)


@pytest.mark.parametrize(
    ("x", "y", "key"), [(1, 1, 1), (9, 1, 2), (1, 11, 4), (20, 11, 6), (30, 3, None), (50, 3, None)]
)
def test_a_click_on_a_patch_moves_the_cursor_to_it(x: int, y: int, key: int | None) -> None:
    screen = screen_of()
    state = settle(screen, State(has_open_head=True, query=0, key=0))
    clicked = click_in_head(screen, state, x, map_lines(screen.size) + y)
    assert clicked.key == (0 if key is None else key)


def words_of(screen: Screen, state: State) -> list[str]:
    """Returns the lines beside two images, which are as high as the pane, without their pixels."""
    return [line[line.rfind("▀") + 1 :].strip() for line in image_text(screen, state)]


@pytest.mark.parametrize("width", [110, 70])
def test_words_stand_beside_images_below_the_share_of_each(width: int) -> None:
    recording = words_and_images_recording()
    query = 15
    screen = screen_of(width=width, recording=recording)
    row = dense(recording).weights[0, query]
    shares = row[:6].sum(), row[7:13].sum()
    lines = words_of(screen, State(has_open_head=True, query=query, key=0))
    assert lines[:3] == [
        f"{shares[0]:.0%} on image 1",
        f"{shares[1]:.0%} on image 2",
        f"{1 - sum(shares):.0%} on words",
    ]
    assert " ".join(lines[3:]).split() == ["<sep>what", "is", "red"]


def test_scores_have_no_share() -> None:
    state = State(has_open_head=True, query=15, key=0, view=View(scores=True))
    text = " ".join(words_of(screen_of(width=110, recording=words_and_images_recording()), state))
    assert "%" not in text
    assert "what is red" in text


def test_a_click_on_a_word_beside_images_moves_the_cursor_to_it() -> None:
    screen = screen_of(width=110, recording=words_and_images_recording())
    state = settle(screen, State(has_open_head=True, query=15, key=0))
    [line] = [text for text in image_text(screen, state) if "what is" in text]
    y = image_text(screen, state).index(line)
    clicked = click_in_head(screen, state, line.index("is"), map_lines(screen.size) + 1 + y)
    assert clicked.key == 14
    share_line = click_in_head(screen, state, line.index("is"), map_lines(screen.size) + 1)
    assert share_line.key == 0


def image_text(screen: Screen, state: State) -> list[str]:
    return ["".join(span.text for span in line) for line in image_of(screen, state)]


def test_the_mean_of_a_causal_head_has_no_share_of_images() -> None:
    screen = screen_of(width=110, recording=words_and_images_recording())
    text = " ".join("".join(span.text for span in line) for line in draw_screen(screen, settle(screen, State())))
    assert "what is red" in " ".join(text.replace("▀", " ").split())
    assert "on image" not in text
