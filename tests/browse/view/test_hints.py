import pytest

from attnviz.browse.clicks import click_result, description_at
from attnviz.browse.drawing.draw import draw_screen
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import ACTIONS, BINDINGS, Binding, press
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.hints import hints
from attnviz.maps.recording import Recording
from tests.browse.examples import worded_recording

BOUND = {key for binding in BINDINGS for key in binding.keys}


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("keys", [[], ["enter"], ["a"], ["space", "right", "space"], ["y"]])
def test_every_hint_is_a_button_where_it_stands(recording: Recording, width: int, keys: list[str]) -> None:
    screen = Screen(Session(recording), Size(width, 24), 2**24)
    state = State()
    for key in keys:
        state = press(screen, state, key)
    line = "".join(span.text for span in draw_screen(screen, state)[-1])
    for hint in hints(state, width):
        found = line.find(f" {hint.label} {hint.description}")
        if found >= 0:
            assert click_result(screen, state, found + 1, 23, is_double=False)[0] == hint.key
    assert click_result(screen, state, 0, 22, is_double=False)[0] in ("", "enter")


def test_help_and_the_end_are_always_named() -> None:
    for width in range(40, 200, 7):
        assert [hint.key for hint in hints(State(), width)][-2:] == ["question_mark", "q"]


@pytest.mark.parametrize("keys", [[], ["enter"], ["a"]])
def test_title_is_no_button(recording: Recording, keys: list[str]) -> None:
    screen = Screen(Session(recording), Size(120, 24), 2**24)
    state = State()
    for key in keys:
        state = press(screen, state, key)
    for x in (0, 3, 60, 119):
        assert click_result(screen, state, x, 0, is_double=False) == ("", state)
        assert description_at(screen, state, x, 0) == ""


def test_description_of_a_cell_of_words_has_the_number_of_the_first_token() -> None:
    screen = Screen(Session(worded_recording()), Size(80, 24), 2**24)
    state = State(has_open_head=True, view=View(words=True))
    descriptions = [description_at(screen, state, x, y) for x in range(80) for y in range(24)]
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


def test_hints_are_of_keys_that_act_and_each_has_a_rank_of_its_own() -> None:
    for binding in BINDINGS:
        assert {hint.key or binding.keys[0] for hint in binding.hints} <= set(binding.keys)
    ranks = [(hint.place, hint.rank) for binding in BINDINGS for hint in binding.hints]
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize(("keys", "prompt"), [([], "find: "), (["enter"], "find query: "), (["a"], "find query: ")])
def test_prompt_of_the_overview_finds_more_than_queries(recording: Recording, keys: list[str], prompt: str) -> None:
    screen = Screen(Session(recording), Size(120, 24), 2**24)
    state = State()
    for key in (*keys, "slash"):
        state = press(screen, state, key)
    assert "".join(span.text for span in draw_screen(screen, state)[-1]).strip().startswith(prompt.strip())
