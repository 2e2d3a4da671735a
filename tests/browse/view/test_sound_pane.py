"""Sounds under a row of a map: words, envelope, weights, seconds; which frames are drawn and chosen by a click."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.browse.drawing.draw import draw_screen
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.layout import map_lines, text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.open_head import click_in_head
from attnviz.browse.view.sound_pane import marked_seconds
from attnviz.maps.recording import Recording
from attnviz.metrics.alignment import with_spoken_words
from tests.conftest import random_maps
from tests.metrics.sound_examples import FRAME, frames, heard_recording, planted_maps, text_tokens

TRUE_COLOR = 2**24
WIDTH = 102  # a frame a column, between blank ones


def screen_of(height: int = 40, recording: Recording | None = None, colors: int = TRUE_COLOR) -> Screen:
    session = Session(recording or heard_recording())
    return Screen(session, Size(WIDTH, height, text_lines=9), colors)


def lines_of(screen: Screen, state: State, ascii: bool = False) -> list[str]:
    return ["".join(span.text for span in line) for line in draw_screen(screen, settle(screen, state), ascii)]


def pane_of(screen: Screen, state: State, ascii: bool = False) -> list[str]:
    """Returns the lines of the sound under an open head, without the caption."""
    start = 2 + map_lines(screen.size)
    return lines_of(screen, state, ascii)[start : start + text_lines(screen.size) - 1]


def test_pane_has_words_envelope_weights_and_seconds() -> None:
    words, high, low, weights, seconds = pane_of(screen_of(), State(has_open_head=True, query=4, key=70))
    assert words.split() == ["And", "so,", "my", "fellow"]
    assert high.strip()
    assert set(low.strip()) <= set(" ▁▂▃▄▅▆▇█")
    assert high.count("█") < low.count("█")  # amplitudes grow to the end
    assert not weights.strip()  # colours alone
    assert "▴ 1.41s fellow" in seconds
    assert seconds.index("▴") == 71


def test_weights_are_coloured_at_their_frames() -> None:
    screen = screen_of()
    line = draw_screen(screen, settle(screen, State(has_open_head=True, query=4)))[2 + map_lines(screen.size) + 3]
    papers = [span.paper for span in line for _ in span.text][1:101]
    assert len(papers) == 100
    greens = [0 if paper is None else paper[1] for paper in papers]
    brightest = [column for column, green in enumerate(greens) if green == max(greens)]
    assert (min(brightest), max(brightest)) == (60, 89)  # the frames that the row before “fellow” looks at


def test_few_colours_have_bars_and_ascii_has_no_other_character() -> None:
    *_, weights, _ = pane_of(screen_of(colors=16), State(has_open_head=True, query=4))
    assert set(weights[61:91]) != {" "}
    assert all(line.isascii() for line in pane_of(screen_of(), State(has_open_head=True), ascii=True))


def test_low_screen_has_no_line_of_words() -> None:
    envelope, weights, seconds = pane_of(screen_of(24), State(has_open_head=True, query=4))
    assert "fellow" not in envelope + weights
    assert "0s" in seconds or "▴" in seconds


def test_map_has_seconds_above_and_the_cursor_says_its_own() -> None:
    line = lines_of(screen_of(), State(has_open_head=True, query=4, key=70))[1]
    assert "▾ 1.41s" in line
    assert " 0s" in line


@pytest.mark.parametrize(("x", "key"), [(1, 0), (71, 70), (100, 99), (0, 5), (101, 5)])
def test_click_chooses_the_frame_of_its_column(x: int, key: int) -> None:
    screen = screen_of()
    state = settle(screen, State(has_open_head=True, query=2, key=5))
    assert click_in_head(screen, state, x, map_lines(screen.size) + 3).key == key


def test_joined_words_are_rows_and_columns() -> None:
    screen, view = screen_of(), View(words=True)
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
    before, marked, after = marked_seconds(seconds, (1.99, "1.99s"), "▾")
    assert marked == "1.99s ▾"
    assert len(before + marked) == 100
    assert after == ""
    before, marked, after = marked_seconds(seconds, None, "▾")
    assert before.startswith("0s")
    assert not marked + after


def test_recording_without_words_has_no_line_of_words() -> None:
    recording = Recording(maps=(planted_maps(),), model="drawn")
    assert with_spoken_words(recording) is recording
    lines = pane_of(screen_of(recording=recording), State(has_open_head=True, query=4))
    assert not any("fellow" in line for line in lines)
