from dataclasses import replace

import numpy as np

from attnviz.browse.drawing.draw import draw
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import press
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.boxes import ScreenView
from attnviz.browse.view.head_layout import lay_out
from attnviz.browse.view.why import why_lines
from attnviz.maps.recording import Recording
from tests.browse.examples import long_recording


def told(screen: Screen, state: State, room: int = 20) -> list[str]:
    lines = draw(ScreenView(tuple(why_lines(lay_out(screen, state), room)), Size(40, room), 0))
    drawn = ["".join(span.text for span in line).rstrip() for line in lines]
    return [line for line in drawn if line]


def test_shares_of_the_features_sum_to_the_score() -> None:
    screen = Screen(Session(long_recording(40)), Size(120, 40), 2**24)
    state = replace(press(screen, State(), "enter"), query=30, key=7)
    lines = told(screen, press(screen, state, "x"))
    shares = [float(line.split()[3]) for line in lines[2:] if line.split()[0].isdigit() and len(line.split()) > 3]
    rest = next(float(line.split()[-1]) for line in lines if "more" in line)
    score = screen.session.row(0, state.view, 30).scores[7]
    assert np.isclose(sum(shares) + rest, score, atol=0.01 * len(shares))
    assert np.isclose(float(lines[-1].split()[-1]), score, atol=0.006)
    assert [abs(share) for share in shares] == sorted(map(abs, shares), reverse=True)


def test_recording_of_weights_says_that_it_has_no_queries_and_keys(recording: Recording) -> None:
    screen = Screen(Session(recording), Size(80, 24), 2**24)
    state = press(screen, press(screen, State(), "enter"), "x")
    assert "record it with --set dense=false" in " ".join(line.strip() for line in told(screen, state))
    assert "Enter opens one" in press(screen, State(), "x").message
