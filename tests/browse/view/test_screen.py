from dataclasses import replace

import pytest

from attnviz.browse.moves.cursor import Screen, first_state
from attnviz.browse.moves.keys import ACTIONS, BINDINGS, HINTS, Binding, press
from attnviz.browse.moves.layout import tiles
from attnviz.browse.session.blocks import MAX_POOLED_CELLS
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.screen import hints
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from tests.browse.examples import (
    after,
    click,
    hover,
    long_recording,
    previous_maps,
    screen_of,
    shown_lines,
    shown_text,
    worded_recording,
)

OVERVIEW = """\
 4 heads  weights                                    a test
>0.4     0.7
@ ...... @ ......
 @@ .... @   ....
   @@ .. @     ..
     @@  @
1.4      1.7
@ ...... @ ......
 @@ .... @   ....
   @@ .. @     ..
     @@  @

 head 0.4: previous token 1.00  0%   ---++###@@ 100%
 Enter open  / find  o sort  f filter  ? keys  q quit"""

HEAD = """\
 head 0.4: previous token 1.00  weights              a test
       v 0                       | query 2 2
     0 @@..............          | key 0 0
     1 @@  ............          | weight 0.00%
     2>++@@  ..........          | score  0.0000
     3     @@  ........          |
     4       @@  ......          | strongest keys
     5         @@  ....          | 100.0% @@@@@@ 1
     6           @@  ..          | 0%   --++##@@ 100%
 shades: attention weight of "2" (2) in head 0.4, 0% to 100%
 0 1 2 3 4 5 6 7

 queries 0-6 of 8, keys 0-7 of 8
 + zoom  / find  a in all heads  Esc back  ? keys  q quit"""

SORTED = """\
 4 heads  weights · by previous                      a test
▸0.4 1.00      1.4 1.00       0.7 0.14       1.7 0.14"""


@pytest.fixture
def screen() -> Screen:
    """Two calls of a head that looks at the previous token and one that looks at the first, measured and pooled."""
    session = Session(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    screen = Screen(session, Size(60, 14), colors=0)
    while (group := session.ranking.next_unnamed_call()) is not None:
        session.ranking.name_patterns(group)
    state = first_state(screen)
    pixels = tiles(session, state, screen.size).pixels
    while session.thumbnails.compute(list(range(4)), state.view, pixels):
        pass
    return screen


def test_overview_says_what_the_chosen_head_does(screen: Screen) -> None:
    assert shown_text(screen, first_state(screen), ascii=True) == OVERVIEW


def test_head_shows_its_map_the_row_of_the_cursor_and_the_text(screen: Screen) -> None:
    state = first_state(screen)
    for key in ("enter", "down", "down"):
        state = press(screen, state, key)
    assert shown_text(screen, state, ascii=True) == HEAD


def test_sorted_heads_have_their_number_beside_their_name(screen: Screen) -> None:
    state = press(screen, first_state(screen), "slash")
    assert "or metric: induction" in shown_text(screen, state)
    state = replace(state, prompt=None, view=replace(state.view, order="previous"))
    assert shown_text(screen, state).startswith(SORTED)


def test_preview_of_a_long_map_is_said_until_it_is_refined() -> None:
    screen = Screen(Session(long_recording(1100)), Size(80, 24), colors=0)
    assert MAX_POOLED_CELLS < 1100**2
    state = press(screen, first_state(screen), "enter")
    assert " preview: 1 query in 65, 0% refined " in shown_text(screen, state)
    [block] = screen.session.unfinished_blocks
    while not block.is_finished:
        block.advance()
    screen.session.unfinished_blocks = []
    assert "preview" not in shown_text(screen, state)


def test_a_chosen_head_shades_the_text_and_has_its_numbers_beside() -> None:
    session = Session(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    screen = Screen(session, Size(120, 40, text_lines=1), colors=2**24)
    state = replace(first_state(screen), head=1)
    shown = shown_text(screen, state).splitlines()
    [caption] = [line for line in shown if "shades" in line]
    assert caption.startswith(" shades: mean of all queries in head 0.7, 0% to 100%: 0 100.0%"), (
        "0.7 looks at the first"
    )
    assert shown[shown.index(caption) + 1].split() == list("01234567")
    small = Screen(session, Size(60, 24, text_lines=None), colors=2**24)
    assert "shades" not in shown_text(small, state), "no space for it was asked for"


def test_the_mean_row_of_a_head_is_over_the_queries_that_see_the_key(causal_recording: Recording) -> None:
    session = Session(causal_recording)
    maps = causal_recording.maps[0]
    window = cell_maps(maps).window((1,), slice(0, 5), slice(0, 7))
    row = session.mean_row(1, State().view)
    for key in range(7):
        seen = window.visible[:, key]
        assert row.visible[key] == seen.any()
        if seen.any():
            assert row.values[key] == pytest.approx(window.weights[0, seen, key].mean(), abs=1e-6)


def test_a_long_head_is_not_read_whole_when_it_is_chosen() -> None:
    session = Session(long_recording(2048))
    screen = Screen(session, Size(120, 40, text_lines=5), colors=2**24)
    assert not session.has_short_maps
    assert "shades" not in shown_text(screen, first_state(screen))


BOUND = {key for binding in BINDINGS for key in binding.keys}


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("keys", [[], ["enter"], ["a"], ["space", "right", "space"], ["y"]])
def test_every_hint_is_a_button_where_it_stands(recording: Recording, width: int, keys: list[str]) -> None:
    screen = screen_of(recording, width)
    state = after(screen, *keys)
    line = shown_lines(screen, state)[-1] + " "
    for hint in hints(state, width):
        found = line.find(hint.text)
        if found >= 0:
            assert click(screen, state, found + 1, 23)[0] == hint.key
    assert click(screen, state, 0, 22)[0] in ("", "enter")


def test_help_and_the_end_are_always_named() -> None:
    for width in range(40, 200, 7):
        assert [hint.key for hint in hints(State(), width)][-2:] == ["question_mark", "q"]


@pytest.mark.parametrize("keys", [[], ["enter"], ["a"]])
def test_title_is_no_button(recording: Recording, keys: list[str]) -> None:
    screen = screen_of(recording, 120)
    state = after(screen, *keys)
    for x in (0, 3, 60, 119):
        assert click(screen, state, x, 0) == ("", state)
        assert hover(screen, state, x, 0) == ""


def test_description_of_a_cell_of_words_has_the_number_of_the_first_token() -> None:
    screen = screen_of(worded_recording())
    state = State(has_open_head=True, view=View(words=True))
    descriptions = [hover(screen, state, x, y) for x in range(80) for y in range(24)]
    assert any("cards (3) → playing (1)" in description for description in descriptions)


def test_palette_has_every_key_that_acts() -> None:
    assert {key for _, key in ACTIONS} <= BOUND
    assert len({name for name, _ in ACTIONS}) == len(ACTIONS)
    missing = [binding.label for binding in BINDINGS if not {key for _, key in ACTIONS} & set(binding.keys)]
    assert missing == [binding.label for binding in BINDINGS if binding.actions == ()]


def test_new_key_is_in_the_palette_without_another_word() -> None:
    assert Binding(("z",), "z", "does a thing", lambda screen, state, key: state).palette_entries == (
        ("does a thing", "z"),
    )


def test_hints_are_of_keys_that_act_and_each_stands_once() -> None:
    for hints_of_mode in HINTS.values():
        keys = [key for key, _ in hints_of_mode]
        assert set(keys) <= BOUND
        assert len(set(keys)) == len(keys)
