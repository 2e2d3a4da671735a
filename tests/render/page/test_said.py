"""What the page says and offers is what it shows."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.groups import Groups
from attnviz.text.selection import Grouping
from tests.conftest import random_maps
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import KEYS, NUMBERS, QUERIES, SENTENCE, large, long_maps, report_of, sentence

pytestmark = pytest.mark.slow


def at(page: Opened, address: str, condition: str) -> None:
    page.evaluate(f"location.hash = '{address}'")
    page.until(condition)
    page.settle()


def test_a_link_with_a_token_has_the_scores_it_names(page: Opened) -> None:
    at(page, "head=1.2&query=it&scores=shown", "scene.current?.stage?.picture.shown.scale.scores")
    assert "attention score" in page.text("#legend")
    assert "Scores" in page.text("#switches")


def test_the_legend_of_heads_with_scales_of_their_own_says_whose_numbers_it_has(page: Opened) -> None:
    own = "; these numbers are of Head {}, each head has a scale of its own"
    at(page, "view=maps&limits=head", "state.limits === 'head' && state.list === 'maps'")
    assert own.format("0.0") in page.text("#legend")
    at(page, "heads=1.1,0.2&together=side&limits=head", "scene.current?.stages?.length === 2")
    assert own.format("1.1") in page.text("#legend")
    at(page, "view=maps&limits=shared", "state.limits === 'shared'")
    assert "of its own" not in page.text("#legend")


def test_search_says_what_it_does_not_find_and_shows_nothing_else(page: Opened) -> None:
    at(page, "view=maps", "state.head === null && state.list === 'maps'")
    page.press("/")
    page.page.keyboard.type("dzz")
    assert page.text("#found") == "No token has “dzz”."
    assert page.evaluate("[state.pin, state.list]") == [None, "maps"]
    page.page.fill("#find", "dog")
    assert page.text("#found") == "“dog”, 1 of 1; Enter shows it"
    assert page.evaluate("state.list") == "maps"
    page.press("Enter")
    page.until("state.list === 'lens' && scene.shown")
    assert page.text("#head-title") == "What “dog” looks at in all heads"
    page.page.fill("#find", "dogz")
    assert page.evaluate("state.pin") is None
    page.page.fill("#find", "")
    page.evaluate("document.activeElement.blur()")


def test_lift_is_offered_where_it_is_drawn(page: Opened) -> None:
    found = "[...document.querySelectorAll('#choose-steps button')]"
    offered = f"{found}.map((button) => [button.textContent, button.ariaPressed])"
    for address, lifts in (
        ("head=1.1&scale=lift", True),
        ("head=1.1&view=arcs&scale=lift", False),
        ("head=1.1&view=text&scale=lift", False),
        ("heads=0.1,1.1&together=difference&scale=lift", False),
    ):
        page.evaluate(f"followAddress('#{address}')")
        page.settle()
        buttons = dict(page.evaluate(offered))
        assert ("Lift" in buttons) == lifts, address
        assert buttons["Lift" if lifts else "√"] == "true", address


def test_rows_sorted_by_a_second_token_say_so(page: Opened) -> None:
    at(page, "view=lens&query=it&key=cat", "state.list === 'lens' && state.pin?.key === 1")
    assert page.evaluate("document.querySelector('#sort').selectedOptions[0].textContent") == "by “cat”"


def test_bars_of_overlaid_heads_have_the_hue_of_their_head(page: Opened) -> None:
    at(page, "heads=0.1,1.2&together=overlay&query=it", "scene.shown?.all?.length === 2 && state.pin")
    hue_of = (
        "((probe) => (color) => (probe.style.background = color, probe.style.background))(document.createElement('i'))"
    )
    bars, hues = page.evaluate(
        f"(() => {{ const hueOf = {hue_of}; const {{ key, colors }} = scene.shown.shades(state.pin);"
        " const drawn = [...document.querySelectorAll('#pointed .list b')].map((bar) => bar.style.background);"
        " return [drawn, strongestOf(key, drawn.length).map((place) => hueOf(colors[place]))]; })()"
    )
    assert bars == hues
    assert len(set(bars)) == 2


def test_means_of_layers_name_their_layer(page: Opened) -> None:
    at(page, "view=lens&query=it", "scene.shown?.whole")
    labels = page.page.locator("#pointed .layers bdi").all_inner_texts()
    assert [label.partition(":")[0] for label in labels] == ["layer 0", "layer 1", "layer 2"]


def test_numbers_of_a_pointed_head_are_said_whole_and_the_others_counted(page: Opened) -> None:
    at(page, "view=maps", "state.head === null && state.list === 'maps'")
    page.resize(800, 850)
    page.page.hover(".thumb >> nth=6")
    page.until("scene.pointed?.number === 6")
    assert page.evaluate("one('keys-hint').scrollWidth <= one('keys-hint').clientWidth")
    *_, numbers, rest = page.text("#keys-hint").rpartition(" · ")[2].split(", ")
    assert re.fullmatch(r"[a-z-]+ [0-9.]+", numbers)
    listed = page.text("#keys-hint").count(", ")
    known = page.evaluate("METRIC_NAMES.filter((name) => !Number.isNaN(numbersOf(6)[name])).length")
    assert rest == f"{known - listed} more in Numbers"
    page.page.mouse.move(2, 2)
    page.until("scene.pointed === null")
    page.resize(1280, 850)


def test_heads_side_by_side_say_what_they_do_and_so_does_their_file(page: Opened) -> None:
    at(page, "heads=0.1,1.2&together=side", "scene.current?.stages?.length === 2")
    assert page.page.locator(".side-by-side figcaption").all_inner_texts()[1] == "Head 1.2 · previous token 1.00"
    assert "Head 1.2 · previous token 1.00" in page.evaluate("svgOfView()")


def test_direction_turns_only_where_it_is_shown(page: Opened) -> None:
    at(page, "view=maps", "state.head === null && state.list === 'maps'")
    page.press("r")
    assert page.evaluate("state.direction") == "to"


def test_the_open_head_is_told_among_chosen_ones(page: Opened) -> None:
    at(page, "head=1.1", "scene.current && state.head === 5")
    page.evaluate("set({ chosen: [1, 5, 9] })")
    page.settle()
    outlines = page.evaluate(
        "[1, 5].map((number) => document.querySelector(`.thumb[data-number='${number}'] .picture`))"
        ".map((picture) => getComputedStyle(picture).outline)"
    )
    assert len(set(outlines)) == 2


def test_zoom_at_a_query_goes_to_what_it_sees(show: Opener) -> None:
    opened = show(report_of(large(200)))
    opened.open_head(0)
    opened.evaluate("set({ pin: { query: 20, key: null } })")
    for _ in range(6):
        opened.press("+")
    seen = opened.evaluate(
        "(() => { const { stage } = scene.current; const { left, top } = stage.picture.fixed;"
        " const [first, last] = stage.picture.span('key', stage.area);"
        " return stage.picture.factor > 3 && first <= 20; })()"
    )
    assert seen


def test_numbers_in_lists_have_no_more_digits_than_those_of_their_cell(show: Opener) -> None:
    opened = show(report_of(Recording(maps=(long_maps(),), model="a test")))
    opened.open_head(1)
    opened.evaluate(f"set({{ pin: {{ query: {QUERIES - 1}, key: {KEYS - 2} }} }})")
    opened.until("document.querySelector('#pointed .list:not(.awaited) button')")
    listed, error = opened.evaluate(
        "(() => { const button = document.querySelector('#pointed .list button');"
        " const { query, key } = button.dataset;"
        " return [button.querySelector('span').textContent,"
        " 100 * scene.shown.sides[0].errorAt(Number(query), Number(key))]; })()"
    )
    digits = len(listed.rstrip("%").partition(".")[2])
    assert 10**-digits >= error or digits == 0, (listed, error)
    note = opened.text(".text-strip + .note, .text .note")
    largest = note.partition("Shaded 0 to ")[2].partition("%")[0]
    assert largest == listed.rstrip("%"), note


def test_turns_can_be_read_and_the_page_begins_with_the_answer(show: Opener) -> None:
    tokens = sentence().maps[0].query_tokens
    starts = np.cumsum([0, *(len(label) + 1 for label in SENTENCE[:-1])])
    placed = replace(
        tokens,
        places=np.stack([starts, starts + list(map(len, SENTENCE))], axis=1),
        medium=np.zeros(len(SENTENCE), dtype=np.int64),
        groups={"turns": Groups(np.array([-1, 0, 0, 0, -1, 1, 1, 1, 1, 2, 2, -1]), ("1 user", "2 tool", "3 answer"))},
    )
    maps = random_maps(placed, heads=2, peak=0.8, seed=0)
    recording = Recording(maps=(maps,), model="a test")
    options = ReportOptions(medium=NUMBERS, grouping=Grouping(by="turns"))
    opened = show(build_report(recording, options))
    assert "cat sat because" in opened.text("#text").replace("\n", " ")
    assert opened.page.locator(".turn-name").all_inner_texts() == ["marks", "1 user", "2 tool", "3 answer"]
    assert opened.page.inner_text(".answer").startswith("3 answer looked most at ")
    assert opened.page.locator(".answer").bounding_box()["y"] < 100
    opened.open_head(1, "text")
    opened.page.click(".text-large .turn-text:has-text('because')")
    opened.until("state.pin?.query === 1")
    opened.settle()
    chosen = opened.page.locator(".text-large .turn.chosen .turn-name").all_inner_texts()
    assert chosen == ["1 user"]
    opened.open_head(1)
    assert "Scores" not in opened.text("#bar")
    assert opened.evaluate("quantitiesOf(scene.shown).map(({ name }) => name)") == ["weight"]
