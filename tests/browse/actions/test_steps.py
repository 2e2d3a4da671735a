"""Keys that go from one written token to the next: the row that decided it, and what it looked at."""

from dataclasses import replace

import numpy as np
import pytest
from textual.pilot import Pilot

from attnviz.browse.actions.keys import press
from attnviz.browse.app import Browser
from attnviz.browse.session.state import State
from attnviz.maps.recording import Recording
from attnviz.text.groups import Groups
from attnviz.text.named_groups import with_generated_from
from attnviz.text.tokens import Tokens
from tests.browse import examples
from tests.browse.examples import screen_of
from tests.browse.player import played, until
from tests.metrics.examples import maps_of

COUNT, PROMPT = 8, 5
TURNS = Groups(np.array([-1, 0, 0, 1, 1, 2, 2, 2]), ("1 user", "2 tool result", "3 answer"))


def weights() -> np.ndarray:
    """Rows of a head: step 4 looks at key 3, step 5 at keys 1 and 2, step 6 at key 6, which the model wrote."""
    rows = np.eye(COUNT)
    rows[4:7] = 0
    rows[4, [3, 0]] = 0.75, 0.25
    rows[5, [1, 2]] = 0.5, 0.5
    rows[6, [6, 1]] = 0.75, 0.25
    return rows[None]


def recording(generated: bool = True) -> Recording:
    tokens = replace(Tokens.numbered(COUNT, "t"), groups={"turns": TURNS} if generated else {})
    tokens = with_generated_from(tokens, PROMPT) if generated else tokens
    return Recording(maps=(maps_of(weights(), tokens, np.tri(COUNT, dtype=bool)),), model="m")


def after(shown: Recording, *keys: str) -> State:
    return examples.after(screen_of(shown), *keys)


def test_each_step_says_what_its_row_looked_at() -> None:
    messages, places = [], []
    for count in (1, 2, 3):
        state = after(recording(), *["full_stop"] * count)
        assert state.has_open_head
        messages.append(state.message)
        places.append((state.query, state.key))
    assert messages == [
        "step 1 of 3: t5 ← 2 tool result 75% · t3 75% · own 0%",
        "step 2 of 3: t6 ← 1 user 100% · t1 50%, t2 50% · own 0%",
        "step 3 of 3: t7 ← 1 user 25% · t6 75%, t1 25% · own 75%",
    ]
    assert places == [(4, 3), (5, 1), (6, 6)]


def test_the_ends_and_the_way_back() -> None:
    assert after(recording(), *["full_stop"] * 4).message == "this is the last step"
    back = after(recording(), "full_stop", "full_stop", "comma")
    assert (back.query, back.message[:11]) == (4, "step 1 of 3")
    assert after(recording(), "full_stop", "comma").message == "this is the first step"


def test_joined_tokens_have_a_step_a_unit() -> None:
    on = screen_of(recording(), unit_name="turns")
    state = press(on, press(on, State(), "enter"), "w")
    labels = on.session.units(0, state.view)[0].labels
    state = press(on, state, "full_stop")
    assert labels[state.query] == "2 tool result"  # its last token decided the first written one
    state = press(on, state, "full_stop")
    assert labels[state.query] == "3 answer"


def test_a_text_without_a_prompt_has_a_step_a_token() -> None:
    state = after(recording(generated=False), "full_stop")
    assert state.message.startswith("step 1 of 7: t1 ←")
    assert "own" not in state.message


def test_a_model_that_sees_later_tokens_has_no_steps() -> None:
    tokens = Tokens.numbered(3, "t")
    both_ways = Recording(maps=(maps_of(np.full((1, 3, 3), 1 / 3), tokens),), model="m")
    state = after(both_ways, "full_stop")
    assert "steps need a model that writes from left to right" in state.message
    assert not after(both_ways, "P").playing


@pytest.mark.slow
def test_steps_are_played_to_the_last_and_a_key_stops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.browse.app.SECONDS_A_STEP", 0.01)
    ends: list[tuple[int, bool]] = []

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        canvas = browser
        await pilot.press("P")
        await until(pilot, lambda: not canvas.state.playing)
        ends.append((canvas.state.query, canvas.state.playing))
        monkeypatch.setattr("attnviz.browse.app.SECONDS_A_STEP", 1000)
        await pilot.press("home", "escape", "P", "down")
        ends.append((canvas.state.query, canvas.state.playing))

    played(recording(), play)
    assert ends[0] == (6, False)
    assert not ends[1][1]
