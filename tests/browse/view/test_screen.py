from dataclasses import replace

import numpy as np
import pytest
from textual.pilot import Pilot

from attnviz.browse.actions.cursor import Screen, first_state
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.layout import tiles
from attnviz.browse.app import Browser
from attnviz.browse.session.blocks import MAX_POOLED_CELLS
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.browse.view.screen import whole
from attnviz.maps.recording import Recording
from attnviz.text.groups import Groups
from tests.browse.examples import (
    after,
    hover,
    long_recording,
    previous_maps,
    screen_of,
    shown_text,
    worded_recording,
)
from tests.browse.player import after_play, no_save, played, shown, until
from tests.conftest import dense_maps

OVERVIEW = """\
 4 heads  weights . without "0", 50% (t)             a test
>0.4   0.7
 .....  .....
@@@ ..     ..
   @@@
1.4    1.7
 .....  .....
@@@ ..     ..
   @@@

 shades: what 7 looks at in head 0.4, 0% to 100%: 6 100.0%
 0 1 2 3 4 5 6 7
 head 0.4: previous token 1.00  0%   ---++###@@ 100%
? keys q quit enter open / find a in all heads o sort f filt"""

HEAD = """\
 head 0.4: previous token 1.00  weights              a test
       v 0                       | query 2 2
       0 1 2 3 4 5 6 7           | key 0 0
     0 @@..............          | weight 0.00%
     1 @@  ............          | score  0.0000
     2>++@@  ..........          |
     3     @@  ........          | strongest keys
     4       @@  ......          | 100.0% @@@@@@ 1
     5         @@  ....          |>  0.0%        0
     6           @@  ..          | 0%   --++##@@ 100%
 shades: attention weight of "2" (2) in head 0.4, 0% to 100%
 0 1 2 3 4 5 6 7
 queries 0-6 of 8, keys 0-7 of 8
? keys q quit + zoom in / find \\ key a in all heads g strong"""

SORTED = """\
 4 heads  weights · by previous · without “0”, 50% (t)
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


@pytest.mark.slow
def test_screens_are_these(screen: Screen) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for expected, keys in ((OVERVIEW, []), (HEAD, ["enter", "home", *["up"] * 7, "down", "down"])):
            await pilot.press(*keys)
            await pilot.pause()
            await until(pilot, lambda: "~" not in shown(browser))  # which stands for a thumbnail that is to come
            assert [line.rstrip() for line in shown(browser).split("\n")] == expected.split("\n")

    after_play(Browser(screen.session, no_save, ascii=True), play, (60, 14))


def test_sorted_heads_have_their_number_beside_their_name(screen: Screen) -> None:
    state = first_state(screen)
    state = replace(state, view=replace(state.view, order="previous"))
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
    assert caption.startswith(" shades: what 7 looks at in head 0.7, 0% to 100%: 0 100.0%"), "0.7 looks at the first"
    assert shown[shown.index(caption) + 1].split() == list("01234567")
    small = Screen(session, Size(60, 24, text_lines=None), colors=2**24)
    assert "shades" not in shown_text(small, state), "no space for it was asked for"


@pytest.mark.parametrize("causal", [True, False])
def test_the_last_token_stands_for_a_causal_head_and_for_others_the_mean_of_queries_that_see_the_key(
    causal: bool,
) -> None:
    visible = np.tri(5, 7, k=0 if causal else 2, dtype=bool)  # of the others, the first query sees three keys
    weights = np.where(visible, dense_maps(0).weights, 0)
    maps = replace(dense_maps(0), weights=weights, visible=visible, kind="self")
    row = Session(Recording(maps=(maps,), model="a test")).standing_row(1, State().view)
    for key in range(7):
        queries = [4] if causal else [query for query in range(5) if visible[query, key]]
        assert row.visible[key] == visible[queries, key].any()
        if row.visible[key]:
            assert row.values[key] == pytest.approx(weights[1, queries, key].mean(), abs=1e-6)


def test_a_long_head_is_not_read_whole_when_it_is_chosen() -> None:
    session = Session(long_recording(2048))
    screen = Screen(session, Size(120, 40, text_lines=5), colors=2**24)
    assert not session.has_short_maps
    assert "shades" not in shown_text(screen, first_state(screen))


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 120])
def test_help_and_the_end_are_always_hinted_and_other_hints_are_of_the_place(recording: Recording, width: int) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for keys, hints in (
            ([], "open find"),
            (["enter"], "zoom in find"),
            (["escape", "a"], "open find"),
            (["escape", "space", "right", "space"], "side by side difference"),
            (["right", "space"], "side by side mean"),  # of three heads there is no difference
            (["y"], "row back command"),
        ):
            await pilot.press(*keys)
            await pilot.pause()
            shown_hints = [hint.description for hint in browser.footer.hints]
            assert " ".join(shown_hints[2 * ("y" not in keys) :]).startswith(hints), keys
            assert "y" in keys or shown(browser).split("\n")[-1].startswith("? keys q quit ")

    played(recording, play, (width, 24))


def test_description_of_a_cell_of_words_has_the_number_of_the_first_token() -> None:
    screen = screen_of(worded_recording())
    state = State(has_open_head=True, view=View(words=True))
    descriptions = [hover(screen, state, x, y) for x in range(80) for y in range(24)]
    assert any("cards (3) → playing (1)" in description for description in descriptions)


def resting_recording() -> Recording:
    """Two heads that rest on the first token; of the rest, one looks at the token before, and one at itself."""
    count = 8
    weights = np.zeros((2, count, count), dtype=np.float32)
    for head in range(2):
        weights[head, np.arange(count), np.maximum(np.arange(count) - 1 + head, 0)] = 0.3
    weights[..., 0] += 0.7
    weights /= weights.sum(axis=-1, keepdims=True)
    maps = replace(previous_maps(0), weights=weights, scores=weights)
    return Recording(maps=(maps,), model="a test")


def test_overview_leaves_out_the_keys_that_heads_rest_on_until_t_is_pressed() -> None:
    screen = screen_of(resting_recording())
    state = first_state(screen)

    def columns() -> list[int]:
        while screen.session.thumbnails.compute([0, 1], state.view, 20):
            pass
        thumbnails = [screen.session.thumbnails.find(head, state.view, 20) for head in range(2)]
        return [0 if thumbnail is None else thumbnail.values.shape[1] for thumbnail in thumbnails]

    assert "without “0”, 70% (t)" in shown_text(screen, state)
    assert columns() == [7, 7]
    row = screen.session.row(0, state.view, 3)
    state = press(screen, state, "t")
    assert "without" not in shown_text(screen, state)
    assert columns() == [8, 8]
    assert np.array_equal(row.weights, screen.session.row(0, state.view, 3).weights), "numbers stay"


@pytest.mark.slow
def test_what_stands_out_is_said_until_a_key_is_pressed() -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await until(pilot, lambda: bool(browser.state.message))
        assert browser.state.message.startswith("2 previous-token heads")
        await pilot.pause()
        lines = shown(browser).split("\n")
        assert lines[-1].startswith("? keys q quit"), "though the sentence has two lines"
        assert " ".join(line.strip() for line in lines[-3:-1]) == browser.state.message
        await pilot.press("right")
        assert browser.state.message == ""

    played(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"), play, (42, 24))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "ending"),
    [(40, ""), (50, " 2 of 3 layers attend."), (90, " 2 of 3 layers attend. Layer 2: Mamba 2, nothing to draw.")],
)
def test_layers_without_attention_are_said_after_what_stands_out_where_there_is_room(width: int, ending: str) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await until(pilot, lambda: bool(browser.state.message))
        assert browser.state.message == f"2 previous-token heads, 2 sinks on 0; clearest heads: 0.4, 1.4.{ending}"

    maps = (previous_maps(0), previous_maps(1))
    played(Recording(maps=maps, model="a test", silent_layers={2: "Mamba 2"}), play, (width, 24))


@pytest.mark.slow
@pytest.mark.parametrize("is_clicked", [True, False])
def test_phrases_of_what_stands_out_lead_to_their_heads_and_tokens(is_clicked: bool) -> None:
    maps = previous_maps(0)
    weights = maps.weights.copy()
    weights[1, 6] = 0
    weights[1, 6, 3] = 1
    pairs = replace(maps.key_tokens, groups={"pairs": Groups(np.arange(8) // 2)})
    calls = [replace(call, query_tokens=pairs, key_tokens=pairs) for call in (maps, previous_maps(1))]
    recording = Recording(maps=(replace(calls[0], weights=weights), calls[1]), model="a test")

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await until(pilot, lambda: bool(browser.state.message))
        await pilot.pause()
        browser.session.unit_name = "pairs"
        for phrase in ("1.4", "looks most at"):
            joined = replace(browser.state.view, words=True)
            assert len(browser.session.units(0, joined)[0]) == 4
            browser.show(replace(browser.state, view=joined))
            await pilot.pause()
            if is_clicked:
                lines = shown(browser).split("\n")
                y = next(y for y, line in enumerate(lines[-3:-1], len(lines) - 3) if phrase in line)
                await pilot.click(offset=(lines[y].index(phrase), y))
            else:
                commands = [*browser.get_system_commands(browser.screen)]
                next(command for command in commands if phrase in command.title).callback()
            state = browser.state
            assert state.has_open_head
            if phrase == "1.4":
                assert browser.session.names[state.head] == "1.4"
            else:
                assert (browser.session.names[state.head], state.query, state.key) == ("0.7", 6, 3)
            await pilot.press("escape")
            browser.show(replace(browser.state, message="".join(phrase.text for phrase in browser.session.phrases)))
            await pilot.pause()

    played(recording, play, (100, 24))


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40)])
@pytest.mark.parametrize("keys", [(), ("a",), ("enter",), ("enter", "x"), ("space", "right", "equals_sign")])
def test_screen_is_as_high_as_the_terminal(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    screen = screen_of(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"), *size)
    drawn, _ = whole(screen, after(screen, *keys))
    assert len(drawn.lines) == size[1]
