import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.browse.actions.cursor import Screen, settle
from attnviz.browse.actions.keys import press
from attnviz.browse.session.state import State
from attnviz.browse.view.head import lay_out, side_part, why_lines
from attnviz.browse.view.parts import Hit
from attnviz.maps.recording import Recording
from tests.browse.examples import after, long_recording, screen_of, wide_recording


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


@pytest.mark.parametrize("size", [(100, 32), (130, 50)])
def test_click_on_the_minimap_goes_there_and_on_a_key_to_that_key(size: tuple[int, int]) -> None:
    screen = screen_of(wide_recording(1, 1, 300), *size)
    state = settle(screen, State(has_open_head=True, zoom=1, query=150, key=150))
    side = side_part(lay_out(screen, state))
    width = sum(len(span.text) for span in side.minimap.lines[0]) - 1
    assert width > 20
    for y in range(len(side.minimap.lines)):
        found = side.minimap.hit(width, y)
        assert found is not None
        assert abs(found.changes["query"] - 300 * y / len(side.minimap.lines)) < 300 / len(side.minimap.lines)
        assert 299 - 300 / width <= found.changes["key"] < 300
    assert side.minimap.hit(0, 0) is None
    for y, line in enumerate(side.keys.lines):
        listed = re.match(r"[ ▸] +[\d.]+% .* t(\d+) *$", "".join(span.text for span in line))
        assert listed is not None
        assert side.keys.hit(1, y) == Hit({"key": int(listed[1])})
