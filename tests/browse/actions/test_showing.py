from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from attnviz.browse.actions.finding import find
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.layout import open_map_pane, tiles
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.head import lay_out
from attnviz.maps.recording import Recording
from attnviz.metrics.combine import reduce_heads
from tests.browse import examples
from tests.browse.examples import after, previous_maps, shown_text, wide_recording
from tests.conftest import dense_maps

screen_of = partial(examples.screen_of, width=120, height=40)


def test_difference_is_of_the_second_marked_head_minus_the_first(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "space", "end", "space", "d")
    expected = dense_maps(1).weights[2] - dense_maps(0).weights[0]
    head = lay_out(screen, state)
    assert screen.session.names[state.head] == "1.2 − 0.0"
    assert np.allclose(head.panel.values, expected[: len(head.panel.values), : head.panel.values.shape[1]])
    assert np.allclose(head.shown.values, expected[0])
    assert head.scale.low == -head.scale.high
    shown = shown_text(screen, state)
    assert "change of weights" in shown
    low, high = (
        text for _, text in head.panel.quantity.ticks(head.scale)[:: len(head.panel.quantity.ticks(head.scale)) - 1]
    )
    assert f"shades: change of attention weight of “q0” (0) in 1.2 − 0.0, {low} to {high}" in shown


@pytest.mark.parametrize(("key", "how"), [("m", "mean"), ("M", "max")])
def test_marked_heads_together_are_those_of_reduce(recording: Recording, key: str, how: str) -> None:
    screen = screen_of(recording)
    state = after(screen, "space", "right", "space", "down", "space", key)
    heads = [(recording.maps[0], 0), (recording.maps[0], 1), (recording.maps[1], 1)]
    expected = reduce_heads(heads, how).window((0,), slice(0, 5), slice(0, 7)).weights[0]  # type: ignore[arg-type]
    assert np.allclose(lay_out(screen, state).row.weights, expected[0])
    assert state.marked_heads == ()


def test_rollout_without_marks_is_of_every_head_that_is_listed() -> None:
    screen = screen_of(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    state = after(screen, "R")
    assert screen.session.names[state.head] == "rollout of heads 0.4, 0.7, 1.4, 1.7"
    rows = [screen.session.row(state.head, state.view, query).weights.sum() for query in range(8)]
    assert np.allclose(rows, 1)


def test_heads_side_by_side_have_one_cursor_and_one_scale(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "space", "right", "space", "right", "space", "equals_sign")
    assert (state.head, state.heads_beside) == (0, (1, 2))
    head = lay_out(screen, press(screen, state, "down"))
    assert [panel.values.shape for panel in head.panels] == [head.panels[0].values.shape] * 3
    assert len({panel.scale for panel in head.panels}) == 1
    shown = shown_text(screen, press(screen, state, "down"))
    assert "heads 0.0, 0.1, 0.2" in shown
    assert "strongest keys of 0.0" in shown, "the list is of one head alone"
    for number in range(3):
        assert f"{dense_maps(0).weights[number, 1, 0]:.1%}" in shown


def test_escape_leaves_what_stands_beside_then_the_head(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "space", "right", "space", "equals_sign", "escape")
    assert (state.has_open_head, state.heads_beside) == (True, ())
    assert not press(screen, state, "escape").has_open_head


def test_what_heads_make_has_no_score_and_says_so(recording: Recording) -> None:
    screen = screen_of(recording)
    assert "no scores are kept" in after(screen, "m", "v").message
    assert "combines several" in shown_text(screen, after(screen, "m", "x"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["equals_sign", "space", "equals_sign"], ""),
        (["space", "d"], "a difference is of two heads: Space chooses one"),
        (["space", "m"], "to see the mean of heads, mark 2 to 6 with Space; marked now: 1"),
        (["R"], "rollout follows self-attention"),
    ],
)
def test_what_cannot_be_shown_together_is_told(recording: Recording, keys: list[str], said: str) -> None:
    assert said in after(screen_of(recording), *keys).message


def test_heads_over_other_tokens_are_not_shown_together(recording: Recording) -> None:
    screen = screen_of(Recording(maps=(previous_maps(0), recording.maps[1]), model="a test"))
    assert "these heads have different tokens" in after(screen, "space", "end", "space", "equals_sign").message


def test_combined_long_heads_are_read_as_sparsely_as_they_cost() -> None:
    session = Session(wide_recording(1, 12, 8))
    made = session.combine(tuple(range(12)), "mean")
    assert session.inspected_head(0).cost == 1
    assert session.inspected_head(made).cost == 12


def test_marks_and_the_filter_are_left_by_escape(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "space", "escape")
    assert state.marked_heads == ()
    filtered = replace(State(), view=replace(State().view, filter="layer:1"))
    assert press(screen, filtered, "escape").view.filter == ""


def test_chosen_head_is_the_second_where_one_is_marked(recording: Recording) -> None:
    screen = screen_of(recording)
    beside = after(screen, "space", "right", "equals_sign")
    assert (beside.head, beside.heads_beside) == (0, (1,))
    difference = after(screen, "space", "right", "d")
    assert screen.session.names[difference.head] == "0.1 − 0.0"
    mean = after(screen, "space", "right", "m")
    assert screen.session.names[mean.head] == "mean of heads 0.0, 0.1"
    two_marked = after(screen, "space", "right", "space", "right", "equals_sign")
    assert (two_marked.head, two_marked.heads_beside) == (0, (1,)), "the third head is chosen but not marked"


def test_heads_named_in_the_prompt_are_side_by_side_and_combined_from_there(recording: Recording) -> None:
    screen = screen_of(recording)
    state = find(screen, after(screen, "space"), "0.1, 1.2 0.1")
    assert (state.has_open_head, state.head, state.heads_beside, state.marked_heads) == (True, 1, (5,), ())
    assert state.message == "d shows their difference, m shows their mean"
    names = screen.session.names
    assert names[press(screen, state, "d").head] == "1.2 − 0.1"
    assert names[press(screen, find(screen, State(), "0.0, 0.1, 1.2"), "m").head] == "mean of heads 0.0, 0.1, 1.2"
    unknown = find(screen, after(screen, "space"), "0.1, 9.9")
    assert unknown.marked_heads == (0,)
    assert "no head, metric or token “0.1, 9.9”" in unknown.message
    many = screen_of(wide_recording(1, 7, 4))
    marked = find(many, State(), " ".join(many.session.names))
    assert (marked.marked_heads, marked.message) == (tuple(range(7)), "7 heads marked; m shows their mean")


def test_enter_goes_at_once_to_where_each_token_has_a_cell_and_then_deeper() -> None:
    screen = screen_of(wide_recording(1, 1, 900))
    whole = after(screen, "enter", "down", "right")
    near = press(screen, whole, "enter")
    pane = open_map_pane(screen.session, near, screen.size, screen.colors)
    assert not pane.queries.pooled
    assert not pane.keys.pooled
    before = open_map_pane(screen.session, press(screen, near, "minus"), screen.size, screen.colors)
    assert before.queries.pooled
    assert before.keys.pooled
    assert (near.query, near.key) == (whole.query, whole.key)
    assert press(screen, near, "enter").zoom == near.zoom + 1


@pytest.mark.parametrize(
    ("layers", "heads", "size", "rows", "seen"),
    [
        (18, 4, (120, 40), [12] * 6, 72),  # three layers in a row
        (18, 4, (80, 24), [12] * 6, 60),
        (6, 12, (120, 40), [12] * 6, 72),  # a layer in a row, where all can be seen so
        (4, 4, (120, 40), [4] * 4, 16),
        (12, 12, (120, 40), [12] * 12, 84),
    ],
)
def test_as_many_heads_are_seen_as_the_screen_can_hold(
    layers: int, heads: int, size: tuple[int, int], rows: list[int], seen: int
) -> None:
    session = Session(wide_recording(layers, heads, 6))
    grid = tiles(session, State(), Size(*size, text_lines=1))
    assert [len(row) for row in grid.rows] == rows
    assert [head for row in grid.rows for head in row] == list(range(layers * heads))
    assert len(grid.on_screen(0)) == seen
