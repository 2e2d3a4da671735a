"""Images and sounds under a row of a map: where they are drawn, what is framed, what a click chooses."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from attnviz.browse.actions.cursor import Screen, first_state, settle
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.layout import text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.graphics import PixelSpan
from attnviz.browse.view.parts import CURSOR_COLOR, padded_line, styled
from attnviz.browse.view.screen import draw
from attnviz.browse.view.text import marked_seconds
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.alignment import with_spoken_words
from attnviz.render.terminal.lines import Line
from attnviz.render.terminal.media import FRAME as FRAME_COLOR
from attnviz.report.picture.scales import EVEN_REACH
from tests.browse.examples import TRUE_COLOR, shown_lines, shown_text
from tests.conftest import dense, random_maps
from tests.metrics.sound_examples import FRAME, frames, heard_recording, planted_maps, text_tokens
from tests.report.image_examples import image_recording, spectrogram_recording, words_and_images_recording

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
    lines = draw(screen, settle(screen, state)).text.lines[1:]
    assert len(lines) == text_lines(screen.size) - 1
    return [padded_line(line, screen.size.width) for line in lines]


def hit(screen: Screen, state: State, x: int, y: int) -> Mapping[str, int]:
    """What a click changes at a place below the caption."""
    found = draw(screen, state).text.hit(x, 1 + y)
    return {} if found is None else found.changes


def colors_of(lines: list[Line]) -> set[tuple[int, int, int] | None]:
    return {color for line in lines for span in line for color in (span.ink, span.paper)}


def test_an_image_has_half_of_the_screen_below_the_map() -> None:
    lines = image_of(screen_of(), State(has_open_head=True, query=2, key=4))
    assert len(lines) == 11
    drawn = ["".join(span.text for span in line) for line in lines]
    assert {len(line) for line in drawn} == {WIDTH}
    assert {line.rstrip()[1:].strip("▀") for line in drawn} == {""}
    assert {len(line.rstrip()) for line in drawn} == {34}


def test_weights_over_an_image_are_scaled_to_the_largest_of_the_row_or_to_some_even_shares() -> None:
    screen, state = screen_of(width=90), State(has_open_head=True, query=2, key=4)
    caption = next(text for text in shown_lines(screen, settle(screen, state)) if "shades: " in text)
    row = dense(image_recording()).weights[0, 2]
    assert f"0% to {100 * max(row.max(), min(1, EVEN_REACH / len(row))):.3g}%" in caption
    scores = next(
        text
        for text in shown_lines(screen, settle(screen, replace(state, view=View(scores=True))))
        if "shades: " in text
    )
    assert "%" not in scores


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
    assert {FRAME_COLOR, CURSOR_COLOR} <= both
    neither = colors_of(image_of(screen, State(has_open_head=True, query=0, key=0)))
    assert not {FRAME_COLOR, CURSOR_COLOR} & neither


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
    assert hit(screen, state, x, y - 1) == ({} if key is None else {"key": key})


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
    assert " ".join(lines[3:]).split() == ["<sep>", "what", "is", "red"]


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
    assert hit(screen, state, line.index("is"), y) == {"key": 14}
    assert hit(screen, state, line.index("is"), 0) == {}, "a line of shares"


def image_text(screen: Screen, state: State) -> list[str]:
    return ["".join(span.text for span in line) for line in image_of(screen, state)]


def test_all_heads_stand_over_the_shares_of_the_last_word_and_a_head_opens_at_its_strongest_patch() -> None:
    screen = screen_of(width=110, recording=words_and_images_recording())
    state = first_state(screen)
    [maps] = words_and_images_recording().maps
    assert isinstance(maps, DenseMaps)
    row = maps.weights[0, 15]
    text = " ".join(shown_text(screen, state).replace("▀", " ").split())
    assert "shades: what red looks at in head 0.0" in text
    assert f"{row[:6].sum():.0%} on image 1" in text
    assert "what is red" in text
    opened = press(screen, state, "enter")
    assert (opened.query, opened.key) == (15, int(row.argmax()))


SOUND_WIDTH = 102  # a frame a column, between blank ones


def sound_screen(height: int = 40, recording: Recording | None = None, colors: int = TRUE_COLOR) -> Screen:
    return Screen(Session(recording or heard_recording()), Size(SOUND_WIDTH, height, text_lines=9), colors)


def pane_of(screen: Screen, state: State, ascii: bool = False) -> list[str]:
    """Returns the lines of the sound under an open head, without the caption."""
    lines = draw(screen, settle(screen, state)).text.lines[1:]
    return ["".join(text for text, _ in styled(line, ascii=ascii)) for line in lines]


def test_pane_has_words_envelope_weights_and_seconds() -> None:
    words, high, low, weights, seconds = pane_of(sound_screen(), State(has_open_head=True, query=4, key=70))
    assert words.split() == ["And", "so,", "my", "fellow"]
    assert high.strip()
    assert set(low.strip()) <= set(" ▁▂▃▄▅▆▇█")
    assert high.count("█") < low.count("█")  # amplitudes grow to the end
    assert not weights.strip()  # colours alone
    assert "▴ 1.41s fellow" in seconds
    assert seconds.index("▴") == 71


def test_weights_are_coloured_at_their_frames() -> None:
    screen = sound_screen()
    line = draw(screen, settle(screen, State(has_open_head=True, query=4))).text.lines[4]
    papers = [span.paper for span in line for _ in span.text][1:101]
    assert len(papers) == 100
    greens = [0 if paper is None else paper[1] for paper in papers]
    brightest = [column for column, green in enumerate(greens) if green == max(greens)]
    assert (min(brightest), max(brightest)) == (60, 89)  # the frames that the row before “fellow” looks at


def test_few_colours_have_bars_and_ascii_has_no_other_character() -> None:
    *_, weights, _ = pane_of(sound_screen(colors=16), State(has_open_head=True, query=4))
    assert set(weights[61:91]) != {" "}
    assert all(line.isascii() for line in pane_of(sound_screen(), State(has_open_head=True), ascii=True))


def test_low_screen_has_no_line_of_words() -> None:
    envelope, weights, seconds = pane_of(sound_screen(24), State(has_open_head=True, query=4))
    assert "fellow" not in envelope + weights
    assert "0s" in seconds or "▴" in seconds


def test_map_has_seconds_above_and_the_cursor_says_its_own() -> None:
    line = shown_lines(sound_screen(), settle(sound_screen(), State(has_open_head=True, query=4, key=70)))[1]
    assert "▾ 1.41s" in line
    assert " 0s" in line


@pytest.mark.parametrize(("x", "key"), [(1, 0), (71, 70), (100, 99), (0, 5), (101, 5)])
def test_click_chooses_the_frame_of_its_column(x: int, key: int) -> None:
    screen = sound_screen()
    state = settle(screen, State(has_open_head=True, query=2, key=5))
    assert hit(screen, state, x, 2).get("key", 5) == key


def test_joined_words_are_rows_and_columns() -> None:
    screen, view = sound_screen(), View(words=True)
    labels = screen.session.units(0, view)[1].labels
    assert labels[-2:] == ("fellow", "(pause)")
    state = State(has_open_head=True, query=4, key=len(labels) - 2, view=view)
    *_, seconds = pane_of(screen, state)
    assert "fellow" in seconds


def test_frames_after_the_sound_are_not_drawn() -> None:
    long = frames(count=100, heard=60)
    padded = replace(
        long,
        labels=tuple("[pad]" if medium < 0 else label for label, medium in zip(long.labels, long.medium, strict=True)),
    )
    session = Session(Recording(maps=(random_maps(text_tokens(), padded),), model="drawn"))
    assert len(session.units(0, View())[1]) == 60
    session.thumbnails.compute([0], View(), 100)
    thumbnail = session.thumbnails.find(0, View(), 100)
    assert thumbnail is not None
    assert thumbnail.values.shape[1] == 60


def test_label_stands_left_of_the_mark_at_the_end_of_the_line() -> None:
    seconds = np.linspace(0, 100 * FRAME, 101)
    before, marked, after = (span.text for span in marked_seconds(seconds, (1.99, "1.99s"), "▾"))
    assert marked == "1.99s ▾"
    assert len(before + marked) == 100
    assert after == ""
    [line] = marked_seconds(seconds, None, "▾")
    assert line.text.startswith("0s")


def test_recording_without_words_has_no_line_of_words() -> None:
    recording = Recording(maps=(planted_maps(),), model="drawn")
    assert with_spoken_words(recording) is recording
    lines = pane_of(sound_screen(recording=recording), State(has_open_head=True, query=4))
    assert not any("fellow" in line for line in lines)
