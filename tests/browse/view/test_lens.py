from dataclasses import replace

import numpy as np
import pytest

from attnviz.browse.actions.cursor import Screen, settle
from attnviz.browse.actions.finding import find
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.layout import FIXED_LINES, lens_heads
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.lens import lay_out_lens
from attnviz.browse.view.parts import Hit
from attnviz.browse.view.screen import draw
from attnviz.maps.recording import Recording
from tests.browse.examples import (
    hit,
    hover,
    long_recording,
    previous_maps,
    screen_of,
    shown_text,
    wide_recording,
    worded_recording,
)
from tests.conftest import dense_maps
from tests.today import todays


def all_rows(screen: Screen, state: State) -> State:
    heads = lens_heads(screen.session, state)
    while screen.session.token_rows.compute(heads, state.view, state.token, state.direction):
        pass
    return settle(screen, state)


def lens_of(screen: Screen, query: int = 2, key: int = 0) -> State:
    return all_rows(screen, replace(press(screen, replace(State(), query=query), "a"), key=key))


@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_a_token_are_those_of_the_maps(causal_recording: Recording, turned: bool) -> None:
    screen = screen_of(causal_recording)
    state = lens_of(screen, query=2, key=3)
    if turned:
        state = all_rows(screen, press(screen, replace(state, query=3, key=2), "r"))
        assert (state.direction, state.key) == ("from", 3)
    weights = dense_maps(1, causal=True).weights[2]
    row = screen.session.token_rows.find(5, state.view, state.token, state.direction)
    assert row is not None
    assert np.array_equal(row.values, weights[:, 3] if turned else weights[2])


def test_mean_of_a_layer_is_over_the_heads_that_see_the_cell(causal_recording: Recording) -> None:
    screen = screen_of(causal_recording)
    state = lens_of(screen)
    mean = lay_out_lens(screen, state).mean([0, 1, 2])
    assert mean is not None
    assert np.allclose(mean.values, dense_maps(0, causal=True).weights[:, 2].mean(axis=0), atol=1e-6)
    assert mean.visible.tolist() == [True, True, True, False, False, False, False]


def test_sorted_by_the_weight_on_a_second_token_the_first_head_is_chosen(recording: Recording) -> None:
    screen = screen_of(recording)
    state = lens_of(screen, query=2, key=4)
    state = press(screen, state, "o")
    weights = [maps.weights[head, 2, 4] for maps in (dense_maps(0), dense_maps(1)) for head in range(3)]
    expected = sorted(range(6), key=lambda head: -weights[head])
    assert lens_heads(screen.session, state) == expected
    assert state.head == expected[0]
    assert lens_heads(screen.session, press(screen, state, "o")) == list(range(6))


def test_found_key_is_the_second_token(recording: Recording) -> None:
    screen = screen_of(recording)
    state = lens_of(screen)
    assert find(screen, state, "k5", "key").sort_token == 5


def test_a_query_and_a_key_are_found_by_one_line(recording: Recording) -> None:
    screen = screen_of(recording)
    state = find(screen, press(screen, State(), "slash"), "q3 > k5")
    weights = [dense_maps(layer).weights[head, 3, 5] for layer in range(2) for head in range(3)]
    assert (state.lens, state.query, state.sort_token, state.head) == (True, 3, 5, int(np.argmax(weights)))
    again = find(screen, state, "q2>k1")
    assert (again.lens, again.query, again.sort_token) == (True, 2, 1)
    opened = find(screen, press(screen, State(), "enter"), "q3>k5")
    assert (opened.has_open_head, opened.query, opened.key) == (True, 3, 5)
    for text in ("q3>zebra", "zebra>k5", "q3>", ">k5"):
        assert "no " in find(screen, State(), text).message
        assert not find(screen, State(), text).lens


def test_token_typed_among_all_heads_is_shown_in_all_of_them(recording: Recording) -> None:
    screen = screen_of(recording)
    state = find(screen, press(screen, State(), "slash"), "q3")
    assert (state.lens, state.has_open_head, state.query) == (True, False, 3)


def test_name_of_a_metric_is_a_token_where_the_text_has_it() -> None:
    maps = previous_maps(0)
    labels = ("in", *maps.query_tokens.labels[1:])
    tokens = replace(maps.query_tokens, labels=labels)
    recording = Recording(maps=(replace(maps, query_tokens=tokens, key_tokens=tokens),), model="a test")
    screen = screen_of(recording)
    assert find(screen, press(screen, State(), "slash"), "in").lens
    assert find(screen, press(screen, State(), "slash"), "ind").view.order == "induction"


def test_enter_opens_the_head_at_the_token_and_b_comes_back(recording: Recording) -> None:
    screen = screen_of(recording)
    state = lens_of(screen, query=3, key=2)
    opened = press(screen, press(screen, state, "down"), "enter")
    assert (opened.has_open_head, opened.head, opened.query, opened.key) == (True, 1, 3, 2)
    back = press(screen, opened, "b")
    assert (back.lens, back.has_open_head, back.query) == (True, False, 3)
    assert press(screen, back, "B").has_open_head
    assert press(screen, press(screen, state, "escape"), "b").lens


def test_lens_is_drawn_a_line_a_head_with_its_strongest_token() -> None:
    recording = Recording(maps=(previous_maps(0), previous_maps(1)), model="a test")
    screen = Screen(Session(recording), Size(68, 16), colors=0)
    drawn = shown_text(screen, lens_of(screen, query=2, key=1), ascii=True).split("\n")
    assert drawn[0].startswith(' what "2" (2) attends to  weights')
    rows = [line for line in drawn if "100.0%" in line]
    assert [line.split()[-1] for line in rows[:4]] == ["1", "0", "1", "0"]
    assert rows[0].startswith("> 0.4")


@pytest.mark.parametrize("size", todays([(40, 12), (80, 24), (120, 40), (200, 60)], one_in=2))
@pytest.mark.parametrize("tokens", [1, 3, 36, 50, 300])
def test_cursors_are_on_the_screen_at_any_size(size: tuple[int, int], tokens: int) -> None:
    screen = screen_of(wide_recording(4, 5, tokens), *size)
    state = lens_of(screen, query=0)
    for key in ("end", "shift+right", "shift+down", "pagedown", "shift+right", "shift+right", "shift+right"):
        state = press(screen, state, key)
        lens = lay_out_lens(screen, state)
        assert state.head in lens.shown_heads
        assert lens.pane.keys.start <= state.other_token < lens.pane.keys.stop
        assert len(lens.shown_heads) <= lens.pane.queries.cells <= size[1] - FIXED_LINES
        parts = draw(screen, state)
        assert len(parts.main.lines) + len(parts.text.lines) == size[1] - FIXED_LINES


def test_rows_of_a_long_map_come_in_slices_those_on_the_screen_first() -> None:
    screen = screen_of(long_recording(3000))
    state = press(screen, replace(State(), query=2999), "a")
    computed = screen.session.token_rows.compute([7, 8, 9], state.view, state.token, state.direction)
    assert computed[0] == 7
    window = screen.session.heads[7][0].window((7,), slice(2999, 3000), slice(0, 3000))
    row = screen.session.token_rows.find(7, state.view, 2999, "to")
    assert row is not None
    assert np.array_equal(row.values, window.weights[0, 0])
    assert "heads to come" in shown_text(screen, state)


def test_click_on_a_cell_chooses_its_head_and_token_and_on_the_name_opens_it(recording: Recording) -> None:
    screen = screen_of(recording)
    state = lens_of(screen)
    lens = lay_out_lens(screen, state)
    x = lens.pane.label_width + 1 + 3 * lens.pane.form.cell_width
    found = hit(screen, state, x, 3)
    assert found == Hit({"head": 2, "key": 3}, cell=(2, 2, 3))
    assert hit(screen, replace(state, head=2), 1, 3) == Hit({"head": 2}, opens=True)
    assert f"{dense_maps(0).weights[2, 2, 3]:.1%}" in hover(screen, state, x, 3)


@pytest.mark.parametrize("turned", [False, True])
def test_second_token_stays_where_tokens_become_words(turned: bool) -> None:
    screen = screen_of(worded_recording())
    state = replace(lens_of(screen, query=1, key=4), sort_token=None)
    state = press(screen, state, "r") if turned else state
    state = press(screen, replace(all_rows(screen, state), query=4 if turned else 1, key=1 if turned else 4), "o")
    assert state.sort_token == 4
    words = all_rows(screen, press(screen, state, "w"))
    assert words.sort_token == words.other_token == 3
    assert "[SEP]" in shown_text(screen, words)


def test_cross_attention_has_a_lens_of_its_own_heads(recording: Recording) -> None:
    other = Recording(maps=(previous_maps(0), *recording.maps[1:]), model="a test")
    screen = screen_of(other)
    assert lens_heads(screen.session, lens_of(screen)) == [0, 1]


@pytest.mark.parametrize(("layers", "said"), [(6, "──────"), (9, "── means of 5 of 9 layers ─")])
def test_means_of_all_layers_are_shown_or_counted(layers: int, said: str) -> None:
    screen = screen_of(wide_recording(layers, 3, 9))
    shown = shown_text(screen, lens_of(screen))
    assert shown.count("layer ") == (6 if layers == 6 else 5)
    assert said in shown
    assert f"shades: what “t2” (2) attends to in head {0}.{0}, 0% to " in shown
