from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import first_state, ranked_keys, settle
from attnviz.browse.actions.finding import filter_heads, find, matching_metrics
from attnviz.browse.actions.keys import ALWAYS, EVERYWHERE, HOLDS, KEYS, ROWS
from attnviz.browse.actions.layout import open_map_levels, open_map_pane, tiles
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.recording import Recording
from attnviz.metrics.metrics import METRICS
from attnviz.report.words.choices import FACTS, key_table, rows_of
from attnviz.text.selection import Selection
from tests.browse.examples import TRUE_COLOR, after, other_recording, screen_of, wide_recording, worded_recording
from tests.conftest import dense_maps


def test_browse_says_of_every_fact_that_its_keys_need_whether_it_holds() -> None:
    facts = {fact for key in KEYS for fact in key.needs}
    assert facts
    assert facts <= {*HOLDS, *ALWAYS} <= {*FACTS}


def test_no_key_is_bound_twice() -> None:
    keys = [name for key in KEYS for name in key.names]
    assert len(keys) == len(set(keys))


ENTROPY, STRONGEST = next(iter(METRICS)), int(dense_maps(0).weights[1, 0].argmax())
# What keys do, and what a text that is found after them does, if there is one, in a recording: fields of the state.
ANSWERS: dict[str, tuple[str, str, str | None, dict[str, Any]]] = {
    "right goes to the next head": ("dense", "right right", None, {"head": 2, "has_open_head": False}),
    "down goes to the next layer": ("dense", "right down", None, {"head": 4}),
    "the next head of the last one is in the next layer": ("dense", "right right right", None, {"head": 3}),
    "heads end at the first": ("dense", "left", None, {"head": 0}),
    "End is the last head": ("dense", "end", None, {"head": 5}),
    "Enter opens a head": ("dense", "right enter", None, {"has_open_head": True, "head": 1}),
    "at its strongest key": ("dense", "right enter", None, {"query": 0, "key": STRONGEST}),
    "Esc closes it": ("dense", "right enter escape", None, {"has_open_head": False, "head": 1}),
    "arrows move over queries and keys": ("dense", "enter home down down right right", None, {"query": 2, "key": 2}),
    "and end where the map does": ("dense", "enter" + " down" * 9 + " right" * 9, None, {"query": 4, "key": 6}),
    "Tab keeps the cursor": ("dense", "enter down tab", None, {"head": 1, "query": 1}),
    "the head before the first is the last": ("dense", "enter shift+tab", None, {"head": 5}),
    "t without special tokens": ("dense", "enter t", None, {"message": "there are no special tokens to hide here"}),
    "d without another recording": ("dense", "d", None, {"message": "a difference is of two heads"}),
    "l of scores": ("dense", "v l", None, {"message": "weights"}),
    "the difference leaves scores": ("other", "v d", None, {"view.difference": True, "view.scores": False}),
    "o sorts by the first metric": ("dense", "o", None, {"view.order": ENTROPY}),
    "O goes back": ("dense", "o O", None, {"view.order": None}),
    "r reverses": ("dense", "o r", None, {"view.ascending": True}),
    "o acts on Tab": ("dense", "enter o", None, {"message": "Tab opens heads by entropy, the largest first"}),
    "r acts on Tab": ("dense", "enter o r", None, {"message": "the smallest first"}),
    "O acts on Tab": ("dense", "enter o O", None, {"message": "order of layers"}),
    "words have no scores": ("words", "enter w home right v", None, {"view.words": False, "view.scores": True}),
    "and scores no words": (
        "words",
        "enter v home right right w",
        None,
        {"view.words": True, "view.scores": False, "key": 1},
    ),
    "w of all heads": ("words", "w", None, {"message": "that is for an open head: Enter opens one"}),
    "x of all heads": ("dense", "x", None, {"message": "choose a cell of an open head first"}),
    "g of all heads": ("dense", "g", None, {"message": "that is for an open head"}),
    "c of one token": ("dense", "a c", None, {"message": "all that is shown has one scale", "view.own_scale": False}),
    "p of single cells": ("dense", "enter p", None, {"message": "each cell is one query", "view.mean": False}),
    "a part of a token is found": ("words", "enter home slash", "s", {"query": 0, "key": 0}),
    "the start of a token comes first": ("words", "enter slash", "card", {"query": 3}),
    "keys are searched where no query is called so": ("dense", "enter slash", "k3", {"query": 0, "key": 3}),
    "a head is found by its name": ("dense", "slash", "1.2", {"head": 5}),
    "an unknown head": ("dense", "slash", "7.7", {"message": "0.0 to 1.2"}),
    "the beginning of a metric sorts by it": ("dense", "slash", "ind", {"view.order": "induction"}),
    "one of several metrics": ("dense", "slash", "s", {"message": "no head, metric or token"}),  # self, sink, spread
    "a minus reverses": ("dense", "slash", "-peak", {"view.order": "peak", "view.ascending": True}),
    "layer is the order of layers": ("dense", "o r slash", "layer", {"view.order": None, "view.ascending": False}),
}


@pytest.mark.parametrize("claim", ANSWERS)
def test_keys_and_found_texts_are_answered(recording: Recording, claim: str) -> None:
    name, keys, text, fields = ANSWERS[claim]
    screen = screen_of(recording, other=other_recording() if name == "other" else None)
    screen = screen_of(worded_recording()) if name == "words" else screen
    state = after(screen, *keys.split())
    state = state if text is None else find(screen, state, text)
    for field, value in fields.items():
        found = attrgetter(field)(state)
        assert value in found if field == "message" else found == value


def test_metrics_are_gone_through_and_those_of_patterns_are_listed_first(recording: Recording) -> None:
    screen = screen_of(recording)
    assert after(screen, *["o"] * (len(screen.session.ranking.names) + 1)).view.order is None
    assert matching_metrics("", METRICS)[:2] == ["induction", "previous"]


def test_words_keep_the_cursor_on_its_tokens() -> None:
    screen = screen_of(worded_recording())
    state = after(screen, "enter", "home", "right", "right", "right", "w")
    assert state.view.words
    assert screen.session.units(0, state.view)[1].labels[state.key] == "cards"
    state = after(screen, "t", state=state)
    assert screen.session.units(0, state.view)[1].labels[state.key] == "cards"


def test_strongest_key_is_the_largest_weight(recording: Recording) -> None:
    screen = screen_of(recording)
    weights = dense_maps(0).weights[0, 0]
    state = after(screen, "enter", "end", "g")
    places = [int(place) for place in weights.argsort()[::-1]]
    assert ranked_keys(screen, state) == places
    assert state.key == (places[0] if places[0] != 6 else places[1])


def test_strongest_key_comes_first_wherever_the_cursor_was_and_then_the_next(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "down", "right", "right")
    order = ranked_keys(screen, state)
    assert order[0] != state.key
    state = after(screen, "g", state=state)
    assert state.key == order[0]
    assert after(screen, "g", "g", state=state).key == order[2]
    assert after(screen, "down", "up", "right", "left", "g", state=state).key in order[:2]


def test_masked_keys_are_never_listed(causal_recording: Recording) -> None:
    screen = screen_of(causal_recording)
    assert ranked_keys(screen, after(screen, "enter", "down")) in ([0, 1], [1, 0])


def test_found_token_takes_the_cursor_and_n_goes_on(recording: Recording) -> None:
    screen = screen_of(recording)
    asked = after(screen, "enter")
    state = find(screen, asked, "K3", "key")
    assert (state.query, state.key) == (0, 3)
    state = find(screen, asked, "k", "key")
    assert state.key == 0
    assert after(screen, "n", "n", "n", state=state).key == 3
    assert after(screen, "N", state=state).key == 6
    assert "no key" in find(screen, asked, "zebra", "key").message


def test_heads_are_sorted_by_the_metric_of_that_name_the_first_chosen(recording: Recording) -> None:
    screen = screen_of(recording)
    screen.session.ranking.measure("peak")
    state = find(screen, State(), "peak")
    assert state.view.order == "peak"
    assert state.head == screen.session.ranking.order(state.view)[0]
    assert after(screen, "r", state=state).head == screen.session.ranking.order(state.view)[-1]


def test_each_zoom_shows_less_until_every_cell_is_a_number() -> None:
    screen = screen_of(wide_recording(1, 2, 300))
    every = open_map_levels(screen.session, State(has_open_head=True), screen.size, TRUE_COLOR)
    assert (every[0].rows, every[0].columns) == (300, 300)
    sizes = [(level.rows * level.columns, -level.form.cell_width) for level in every]
    assert sizes == sorted(sizes, reverse=True)
    assert every[-1].form.cell_width == 4


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
@pytest.mark.parametrize("keys", [["plus"] * 2, ["plus"] * 20, ["plus", "pagedown", "end"], ["plus"] * 3 + ["0"]])
def test_cursor_stays_on_the_screen_of_any_size(keys: list[str], size: tuple[int, int]) -> None:
    screen = screen_of(wide_recording(1, 2, 300))
    resized = replace(screen, size=Size(*size))
    state = settle(resized, after(screen, "enter", "shift+down", "shift+right", *keys))
    shown = open_map_pane(resized.session, state, resized.size, TRUE_COLOR)
    assert shown.queries.start <= state.query < shown.queries.stop <= 300
    assert shown.keys.start <= state.key < shown.keys.stop <= 300


def test_overview_scrolls_to_the_chosen_head() -> None:
    screen = screen_of(wide_recording(layers=12, heads=12, tokens=8))
    state = after(screen, *["down"] * 11)
    grid = tiles(screen.session, state, screen.size)
    assert state.head == 11 * 12
    assert state.head in grid.on_screen(state.top)
    assert after(screen, "home", state=state).top == 0


def test_documentation_lists_every_key_as_the_table_does() -> None:
    page = (Path(__file__).parents[3] / "docs" / "browse.md").read_text(encoding="utf-8")
    table = page.split("| key | does |\n|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == [f"| {keys} | {does} |" for keys, does in key_table("browse")]


def test_selected_queries_and_keys_are_where_a_head_opens() -> None:
    screen = screen_of(wide_recording(1, 2, 300))
    assert not first_state(screen).has_open_head
    selection = Selection(queries=(200, 210), keys=(100, 120))
    alone = replace(selection, pairs=((0, 1),))
    assert first_state(replace(screen, session=Session(screen.session.recording, None, alone))).has_open_head
    screen = replace(screen, session=Session(screen.session.recording, None, selection))
    state = after(screen, "enter")
    shown = open_map_pane(screen.session, state, screen.size, TRUE_COLOR)
    assert (state.query, state.key) == (200, 100)
    assert shown.queries.start <= 200 < 210 <= shown.queries.stop
    assert shown.keys.start <= 100 < 120 <= shown.keys.stop
    assert shown.queries.stop - shown.queries.start < 100
    assert after(screen, "0", state=state).zoom == 0


def test_tokens_that_are_not_there_are_refused(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match=r"no tokens at keys='90:95'; there are 7, so use 0:7 or a part of it"):
        Session(recording, None, Selection(keys=(90, 95)))


def test_terminal_without_room_answers_no_key(recording: Recording) -> None:
    screen = screen_of(recording, width=0, height=0)
    assert after(screen, "right", "enter", "slash") == State()


@pytest.mark.parametrize(
    ("size", "tokens", "cell", "pooled"),
    [((80, 24), 36, (1, 2), False), ((120, 40), 36, (2, 1), False), ((200, 60), 36, (4, 1), False)],
)
def test_cells_scroll_before_they_pool(size: tuple[int, int], tokens: int, cell: tuple[int, int], pooled: bool) -> None:
    screen = screen_of(wide_recording(1, 2, tokens), width=size[0], height=size[1])
    state = after(screen, "enter", *["down"] * 35, "end")
    shown = open_map_pane(screen.session, state, screen.size, TRUE_COLOR)
    assert (shown.form.cell_width, shown.form.rows_a_line) == cell
    assert shown.queries.pooled is shown.keys.pooled is pooled
    assert shown.queries.stop == shown.keys.stop == tokens


def test_filter_keeps_the_heads_for_which_every_word_holds(recording: Recording) -> None:
    screen = screen_of(recording)
    state = filter_heads(screen, replace(State(), head=1), "layer:1 -head:0")
    assert screen.session.ranking.order(state.view) == [4, 5]
    assert state.head == 4
    assert after(screen, "right", "right", state=state).head == 5
    assert filter_heads(screen, state, "").view.filter == ""
    assert "is no test of a head" in filter_heads(screen, state, "previous>").message
    assert "leaves none of 6 heads" in filter_heads(screen, state, "layer:7").message


def test_filter_by_numbers_waits_until_they_are_measured(recording: Recording) -> None:
    screen = screen_of(recording)
    ranking = screen.session.ranking
    state = filter_heads(screen, State(), "entropy>2.4")
    assert ranking.order(state.view) == list(range(6))
    while (group := ranking.next_unnamed_call(state.view)) is not None:
        ranking.name_patterns(group)
    kept = [head for head in range(6) if ranking.frame.column("entropy")[head] > 2.4]
    assert 0 < len(kept) < 6
    assert ranking.order(state.view) == kept


def test_every_key_of_the_table_does_something_here_and_hints_are_of_modes() -> None:
    names = {name for key in KEYS for name in key.names}
    assert len([key for row in rows_of("browse") for key in row.keys]) <= len(names)
    assert {row.name for row in rows_of("browse") if row.keys} - set(ROWS) == {"reverse", "side"}  # by r and d
    for mode in EVERYWHERE.split():
        assert [key.names[0] for key in KEYS if mode in key.modes.split()][:2] == ["question_mark", "q"]
