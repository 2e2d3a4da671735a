import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.keys import press
from attnviz.browse.moves.layout import listed_lines
from attnviz.browse.session.state import State
from attnviz.browse.view.head import side_part, why_lines
from attnviz.browse.view.map import lay_out
from attnviz.maps.recording import Recording
from tests.browse.examples import after, click, long_recording, screen_of, side_column, wide_recording


def told(screen: Screen, state: State, room: int = 20) -> list[str]:
    lines = why_lines(lay_out(screen, state), room)
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_shares_of_the_features_sum_to_the_score() -> None:
    screen = screen_of(long_recording(40), 120, 40)
    state = replace(press(screen, State(), "enter"), query=30, key=7)
    lines = told(screen, press(screen, state, "x"))
    shares = [float(line.split()[3]) for line in lines[2:] if line.split()[0].isdigit() and len(line.split()) > 3]
    rest = next(float(line.split()[-1]) for line in lines if "more" in line)
    score = screen.session.row(0, state.view, 30).scores[7]
    assert np.isclose(sum(shares) + rest, score, atol=0.01 * len(shares))
    assert np.isclose(float(lines[-1].split()[-1]), score, atol=0.006)
    assert [abs(share) for share in shares] == sorted(map(abs, shares), reverse=True)


def test_recording_of_weights_says_that_it_has_no_queries_and_keys(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "x")
    assert "record it with --set dense=false" in " ".join(line.strip() for line in told(screen, state))
    assert "Enter opens one" in press(screen, State(), "x").message


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40)])
def test_click_answers_for_the_line_of_the_side_pane_that_is_drawn(size: tuple[int, int]) -> None:
    screen = screen_of(wide_recording(1, 1, 300), *size)
    state = settle(screen, State(has_open_head=True, zoom=1, query=150, key=150))
    head = lay_out(screen, state)
    drawn = ["".join(span.text for span in line) for line in side_part(head).lines]
    for y, line in list(enumerate(drawn))[listed_lines(screen.size) :]:
        _, clicked = click(screen, state, side_column(screen.size) + 1, 1 + y)
        if "▀" in line and y < len(drawn) - 1:  # the minimap
            assert clicked.key == 0
            assert clicked.query in range(300)
        elif listed := re.match(r"[ ▸] +[\d.]+% .* t(\d+) *$", line):
            assert (clicked.query, clicked.key) == (150, int(listed[1]))
        else:
            assert (clicked.query, clicked.key) == (150, 150)
