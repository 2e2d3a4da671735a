from dataclasses import replace
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import first_state, ranked_keys, settle
from attnviz.browse.moves.finding import filter_heads, find, matching_metrics
from attnviz.browse.moves.keys import BINDINGS
from attnviz.browse.moves.layout import open_map_levels, open_map_pane, tiles
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.recording import Recording
from attnviz.metrics.metrics import METRICS
from attnviz.text.selection import Selection
from tests.browse.examples import TRUE_COLOR, after, other_recording, screen_of, wide_recording, worded_recording
from tests.conftest import dense_maps


def test_no_key_is_bound_twice() -> None:
    keys = [key for binding in BINDINGS for key in binding.keys]
    assert len(keys) == len(set(keys))


def test_arrows_move_over_heads_and_layers(recording: Recording) -> None:
    screen = screen_of(recording)
    assert after(screen, "right", "right").head == 2
    assert after(screen, "right", "down").head == 4
    assert after(screen, "right", "right", "right").head == 3
    assert after(screen, "left").head == 0
    assert after(screen, "end").head == 5


def test_enter_opens_a_head_and_escape_closes_it(recording: Recording) -> None:
    screen = screen_of(recording)
    opened = after(screen, "right", "enter")
    assert (opened.has_open_head, opened.head) == (True, 1)
    assert not after(screen, "escape", state=opened).has_open_head


def test_in_a_head_arrows_move_over_queries_and_keys(recording: Recording) -> None:
    state = after(screen_of(recording), "enter", "down", "down", "right", "right", "right")
    assert (state.query, state.key) == (2, 3)
    state = after(screen_of(recording), "enter", *["down"] * 9, *["right"] * 9)
    assert (state.query, state.key) == (4, 6)


def test_tab_goes_through_heads_with_the_cursor_where_it_was(recording: Recording) -> None:
    state = after(screen_of(recording), "enter", "down", "tab")
    assert (state.head, state.query) == (1, 1)
    assert after(screen_of(recording), "enter", "shift+tab").head == 5


def test_words_keep_the_cursor_on_its_tokens() -> None:
    screen = screen_of(worded_recording())
    state = after(screen, "enter", "right", "right", "right", "w")
    assert state.view.words
    assert screen.session.units(0, state.view)[1].labels[state.key] == "cards"
    state = after(screen, "t", state=state)
    assert screen.session.units(0, state.view)[1].labels[state.key] == "cards"


def test_toggle_that_changes_nothing_says_why(recording: Recording) -> None:
    assert "no token is special" in after(screen_of(recording), "enter", "t").message
    assert "--with B" in after(screen_of(recording), "d").message
    assert "weights" in after(screen_of(recording), "v", "l").message


def test_difference_needs_another_recording_and_leaves_scores(recording: Recording) -> None:
    state = after(screen_of(recording, other=other_recording()), "v", "d")
    assert state.view.difference
    assert not state.view.scores


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
    asked = after(screen, "enter", "backslash")
    state = find(screen, asked, "K3")
    assert (state.query, state.key) == (0, 3)
    state = find(screen, asked, "k")
    assert state.key == 0
    assert after(screen, "n", "n", "n", state=state).key == 3
    assert after(screen, "N", state=state).key == 6
    assert "no key" in find(screen, asked, "zebra").message


def test_found_is_a_query_first_and_a_whole_token_before_a_part_of_one() -> None:
    screen = screen_of(worded_recording())  # [CLS] play ##ing cards [SEP]
    state = find(screen, after(screen, "enter", "slash"), "s")
    assert (state.query, state.key) == (0, 0)  # no token is s, and none begins so: the first that holds it
    assert find(screen, after(screen, "enter", "slash"), "card").query == 3


def test_where_no_query_is_called_so_the_keys_of_another_text_are_searched(recording: Recording) -> None:
    state = find(screen_of(recording), after(screen_of(recording), "enter", "slash"), "k3")
    assert (state.query, state.key) == (0, 3)


def test_head_is_found_by_its_name(recording: Recording) -> None:
    screen = screen_of(recording)
    assert find(screen, State(), "1.2").head == 5
    assert "0.0 to 1.2" in find(screen, State(), "7.7").message


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


@pytest.mark.parametrize("keys", [["plus"] * 2, ["plus"] * 20, ["plus", "pagedown", "end"], ["plus"] * 3 + ["0"]])
def test_cursor_stays_on_the_screen(keys: list[str]) -> None:
    screen = screen_of(wide_recording(1, 2, 300))
    state = after(screen, "enter", "shift+down", "shift+right", *keys)
    shown = open_map_pane(screen.session, state, screen.size, TRUE_COLOR)
    assert shown.queries.start <= state.query < shown.queries.stop <= 300
    assert shown.keys.start <= state.key < shown.keys.stop <= 300


def test_smaller_terminal_keeps_the_cursor_on_the_screen() -> None:
    screen = screen_of(wide_recording(1, 2, 300), width=120, height=40)
    state = after(screen, "enter", "plus", "plus", *["shift+down"] * 9)
    small = replace(screen, size=Size(60, 16))
    state = settle(small, state)
    shown = open_map_pane(screen.session, state, small.size, TRUE_COLOR)
    assert shown.queries.start <= state.query < shown.queries.stop


def test_overview_scrolls_to_the_chosen_head() -> None:
    screen = screen_of(wide_recording(layers=12, heads=12, tokens=8))
    state = after(screen, *["down"] * 11)
    grid = tiles(screen.session, state, screen.size)
    assert state.head == 11 * 12
    assert state.head in grid.on_screen(state.top)
    assert after(screen, "home", state=state).top == 0


def test_sorting_goes_through_the_metrics_and_back(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "o")
    assert state.view.order == next(iter(METRICS))
    assert after(screen, "O", state=state).view.order is None
    assert after(screen, *["o"] * (len(screen.session.ranking.names) + 1)).view.order is None
    assert after(screen, "o", "r").view.ascending


def test_documentation_lists_every_key_as_the_help_does() -> None:
    page = (Path(__file__).parents[3] / "docs" / "browse.md").read_text(encoding="utf-8")
    table = page.split("| key | does |\n|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == [f"| {binding.label} | {binding.description} |" for binding in BINDINGS]


def test_selected_queries_and_keys_are_where_a_head_opens() -> None:
    screen = screen_of(wide_recording(1, 2, 300))
    selection = Selection(queries=(200, 210), keys=(100, 120))
    screen = replace(screen, session=Session(screen.session.recording, None, selection))
    state = after(screen, "enter")
    shown = open_map_pane(screen.session, state, screen.size, TRUE_COLOR)
    assert (state.query, state.key) == (200, 100)
    assert shown.queries.start <= 200 < 210 <= shown.queries.stop
    assert shown.keys.start <= 100 < 120 <= shown.keys.stop
    assert shown.queries.stop - shown.queries.start < 100
    assert after(screen, "0", state=state).zoom == 0


def test_part_of_a_single_head_is_open_at_once(recording: Recording) -> None:
    alone = Selection(pairs=((1, 2),), keys=(2, 5))
    assert first_state(replace(screen_of(recording), session=Session(recording, None, alone))).has_open_head
    assert not first_state(screen_of(recording)).has_open_head


def test_tokens_that_are_not_there_are_refused(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match=r"no tokens at keys='90:95'; there are 7; use 0:7 or a part of it"):
        Session(recording, None, Selection(keys=(90, 95)))


def test_beginning_of_a_metric_sorts_by_it(recording: Recording) -> None:
    screen = screen_of(recording)
    assert find(screen, State(), "ind").view.order == "induction"
    assert "no head, metric or token" in find(screen, State(), "s").message  # self, sink, special, spread, stripe
    assert matching_metrics("", METRICS)[:2] == ["induction", "previous"]


def test_terminal_without_room_answers_no_key(recording: Recording) -> None:
    screen = screen_of(recording, width=0, height=0)
    assert after(screen, "right", "enter", "slash") == State()


def test_words_have_no_scores(recording: Recording) -> None:
    screen = screen_of(worded_recording())
    words = after(screen, "enter", "w")
    assert words.view.words
    assert after(screen, "v", state=words).message == "only tokens have scores; press w for tokens"
    assert not after(screen, "v", "w", state=words).view.words
    assert after(screen, "enter", "v", "w").message == "only tokens have scores; press v for weights, then w"
    assert not after(screen, "enter", "v", "w").view.words


def test_sorting_in_a_head_acts_on_tab_and_says_so(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "o")
    assert "Tab opens heads by entropy, the largest first" in state.message
    assert "the smallest first" in after(screen, "r", state=state).message
    assert "order of layers" in after(screen, "O", state=state).message


def test_layer_is_the_way_back_to_the_order_of_layers(recording: Recording) -> None:
    screen = screen_of(recording)
    state = find(screen, State(), "-peak")
    assert (state.view.order, state.view.ascending) == ("peak", True)
    assert find(screen, state, "layer").view.order is None


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
