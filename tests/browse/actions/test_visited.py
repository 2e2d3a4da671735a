from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import open_head
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.visited import address_of, start_state, state_at
from attnviz.browse.session.state import State
from attnviz.maps.recording import Recording
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens
from tests.browse import examples
from tests.browse.examples import after, worded_recording
from tests.conftest import random_maps
from tests.languages import ADDRESSES
from tests.text.examples import drawn_tokens

screen_of = partial(examples.screen_of, width=120, height=40)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (["right", "enter", "home", "down", "right", "right"], "#head=0.1&query=q1&key=k2"),
        (["a", "r"], "#key=k0&direction=from"),
        (["enter", "down", "a"], "#query=q1"),
        (["a", "o"], "#query=q0&key=k6"),
        (["space", "right", "space", "equals_sign"], "#heads=0.0,0.1&together=side&query=q0&key=k0"),
        (["space", "right", "space", "M", "l"], "#heads=0.0,0.1&together=max&query=q0&key=k0&scale=linear"),
        (["space", "right", "space", "d", "c"], "#heads=0.0,0.1&together=difference&query=q0&key=k0&limits=head"),
        (["o", "r"], "#sort=-entropy"),
        (["o"], "#sort=entropy"),
        ([], "#view=maps"),
    ],
)
def test_place_is_written_as_the_page_does_and_read_back(recording: Recording, keys: list[str], place: str) -> None:
    screen = screen_of(recording)
    state = after(screen, *keys)
    assert address_of(screen, state) == place
    found = state_at(screen, State(), place)
    assert address_of(screen, found) == place
    assert (found.has_open_head, found.lens, found.direction) == (state.has_open_head, state.lens, state.direction)
    assert (found.head, found.heads_beside) == (state.head, state.heads_beside)


@pytest.mark.parametrize("example", ADDRESSES["read"], ids=lambda example: str(example["written"]))
def test_place_is_read_and_written_as_the_page_does(recording: Recording, example: dict[str, Any]) -> None:
    screen, shows = screen_of(recording), example["shows"]
    for address in (example["written"], *example["also"]):
        state = state_at(screen, State(), address)
        how, sources = screen.session.combination_of(state.head)
        heads = [screen.session.names[head] for head in (*sources, *state.heads_beside)] if state.has_open_head else []
        assert heads == shows["heads"]
        assert (how or "side") == shows.get("together", "side")
        for axis in {"query", "key"} & set(shows):
            assert getattr(state, axis) == shows[axis]
        view = state.view
        assert view.filter == shows.get("filter", "")
        assert f"{'-' if view.ascending else ''}{view.order or ''}" == shows.get("sort", "")
        assert (view.steps, view.own_scale) == (shows.get("scale", "sqrt"), shows.get("limits") == "head")
        assert address_of(screen, state) == example["written"]


def test_token_that_is_there_twice_or_is_a_number_is_written_by_its_place() -> None:
    recording = worded_recording()
    tokens = replace(recording.maps[0].query_tokens, labels=("it", "it", "7", "a b", "[SEP]"))
    maps = replace(recording.maps[0], query_tokens=tokens, key_tokens=tokens)
    screen = screen_of(Recording(maps=(maps,), model="a test"))
    state = replace(after(screen, "enter"), query=1, key=3)
    assert address_of(screen, state) == "#head=0.0&query=@1&key=a+b"
    found = state_at(screen, State(), "file:///tmp/x.html#head=0.0&query=@1&key=a+b")
    assert (found.query, found.key) == (1, 3)


@pytest.mark.parametrize(
    ("choices", "shown"),
    [
        ("", {"words": True, "special": True, "scores": False}),
        ("&by=tokens", {"words": False, "special": True, "scores": False}),
        ("&by=words&scores=shown", {"words": True, "special": True, "scores": False}),
        ("&by=tokens&scores=shown&special=hidden", {"words": False, "special": False, "scores": True}),
        ("&size=column&of=contributions&number=0&seconds=1-2", {"words": True, "special": True, "scores": False}),
    ],
)
def test_choices_of_a_pages_address_are_read(choices: str, shown: dict[str, bool]) -> None:
    state = start_state(screen_of(worded_recording(), begins_joined=True, address=f"head=0.0{choices}"))
    assert state.has_open_head
    assert {name: getattr(state.view, name) for name in shown} == shown


@pytest.mark.parametrize("written", ["query=1 user", "query=1+user&key=2+model", "query=1%20user&by=turns"])
def test_turn_of_a_link_is_found_by_its_name_and_written_so(written: str) -> None:
    tokens = Tokens.numbered(7, "t")
    groups = {"turns": Groups(np.array([-1, 0, 0, 0, 1, 1, 1]), ("1 user", "2 model"))}
    maps = random_maps(replace(tokens, groups=groups), heads=2)
    screen = screen_of(Recording(maps=(maps,), model="a test"), unit_name="turns")
    state = state_at(screen, State(), f"head=0.1&{written}")
    rows, keys = (units.labels for units in screen.session.units(1, state.view))
    assert (state.has_open_head, rows[state.query], rows) == (True, "1 user", ("marks", "1 user", "2 model"))
    assert state_at(screen, State(), address_of(screen, state)) == state
    key = keys[state.key].replace(" ", "+")
    assert address_of(screen, state) == f"#head=0.1&query=1+user&key={key}&by=turns"


def test_place_is_where_the_inspector_begins(recording: Recording) -> None:
    state = start_state(screen_of(recording, address="head=1.2&query=3"))
    assert (state.has_open_head, state.head, state.query) == (True, 5, 3)
    assert start_state(screen_of(recording, address="query=q2")).lens
    assert not start_state(screen_of(recording)).has_open_head


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nonsense", "is not a place; use 'head=3.4&query=it' or"),
        ("head=7.7", r"no head '7.7'; choose 0.0 to 1.2"),
        ("query=zebra", "no query 'zebra' among the tokens"),
        ("key=99", "no key 99 among 7 tokens"),
        ("filter=previous>", "is no test of a head"),
        ("filter=layer:9", "leaves none of 6 heads"),
        ("sort=lenght", "unknown metric"),
        ("heads=0.0,1.1&together=rollout", "rollout follows"),
    ],
)
def test_place_that_is_none_is_refused_in_one_line(recording: Recording, place: str, said: str) -> None:
    with pytest.raises(AttnvizError, match=said):
        start_state(screen_of(recording, address=place))


@given(drawn_tokens())
def test_every_token_is_found_again_at_the_address_that_is_written_for_it(tokens: Tokens) -> None:
    maps = random_maps(tokens, heads=1)
    screen = screen_of(Recording(maps=(maps,), model="a test"))
    for index in range(len(tokens)):
        state = replace(open_head(screen, State()), query=index, key=len(tokens) - 1 - index)
        found = state_at(screen, State(), address_of(screen, state))
        assert (found.query, found.key) == (index, len(tokens) - 1 - index)


def test_places_are_gone_back_to_and_forward_again_with_their_cursors(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "right", "enter", "home", "down", "tab", "right")
    assert (state.head, state.query, state.key) == (2, 1, 1)
    back = press(screen, state, "b")
    assert (back.has_open_head, back.head, back.query, back.key) == (True, 1, 1, 0)
    first = press(screen, back, "ctrl+o")
    assert (first.has_open_head, first.head) == (False, 1)
    assert press(screen, first, "b").message == "this is the first place"
    again = press(screen, press(screen, first, "B"), "B")
    assert (again.head, again.query, again.key) == (2, 1, 1)
    assert press(screen, again, "B").message == "this is the last place"


def test_a_new_place_ends_what_was_gone_back_from(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "tab", "b", "a")
    assert state.future == ()
    assert [place.has_open_head for place in state.past] == [True, False]
