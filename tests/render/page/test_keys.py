"""The page's keys, bar and list of actions: what the table of choices says, and nothing that means nothing."""

from pathlib import Path

import pytest

from attnviz.report.words.choices import key_table
from tests.render.page.conftest import Opened

pytestmark = pytest.mark.slow


def at(page: Opened, address: str, condition: str) -> None:
    page.evaluate("set({chosen: [], direction: 'to', steps: 'sqrt'})")
    page.evaluate(f"followAddress('#{address}')")
    page.until(condition)
    page.settle()
    page.evaluate("document.activeElement.blur()")


def test_documents_and_help_list_the_keys_of_the_table(page: Opened) -> None:
    table = key_table("page")
    written = Path("docs/page.md").read_text(encoding="utf-8").partition("| key | does |\n|---|---|\n")[2]
    assert written.partition("\n\n")[0].splitlines() == [f"| {keys} | {does} |" for keys, does in table]
    at(page, "view=maps", "state.list === 'maps'")
    page.press("?")
    rows = page.evaluate(
        "[...document.querySelectorAll('#keys tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    assert [(keys.strip(), does) for keys, does in rows] == table
    page.press("Escape")


def test_a_link_with_a_token_keeps_the_scores(page: Opened) -> None:
    at(page, "head=1.2&query=it&scores=shown", "scene.shown && scene.current?.stage?.picture.shown.scale.scores")
    assert page.evaluate("[state.scores, state.list]") == ["shown", "lens"]
    assert page.evaluate("addressOfView()") == "#head=1.2&query=it&scores=shown"
    page.press("v")
    page.until("!scene.current?.stage?.picture.shown.scale.scores")


def test_what_means_nothing_in_maps_turns_nothing_and_says_what_it_needs(page: Opened) -> None:
    at(page, "view=maps", "state.list === 'maps' && state.head === null")
    page.press("r")
    assert page.text("#wrong") == "Sort by a metric first: o."
    page.press("m")
    assert page.text("#wrong") == "Choose several heads first: Space chooses one."
    page.press("v")
    assert page.text("#wrong") == "No scores are kept of what is shown here."
    page.page.click(".text-strip .token:text-is('it')")
    page.until("scene.shown?.whole")
    assert page.evaluate("[state.direction, state.pin.key]") == ["to", None]
    assert page.page.locator("#wrong").is_hidden()


def test_the_direction_of_a_lens_that_was_left_does_not_turn_the_next_token(page: Opened) -> None:
    at(page, "query=it", "scene.shown?.whole")
    page.press("r")
    page.until("scene.shown?.axis === 'key' && scene.shown.whole")
    page.press("Escape")
    page.until("state.list === 'maps'")
    page.page.click(".text-strip .token:text-is('it')")
    page.until("scene.shown?.whole && scene.shown.axis === 'query'")
    assert page.text("#choose-direction [aria-pressed=true]") == "→ looks at"


def test_keys_go_on_to_the_next_value_that_is_offered(page: Opened) -> None:
    at(page, "head=1.2", "scene.current?.stage")
    shown = []
    for _ in range(4):
        page.press("l")
        shown.append(page.text("#choose-steps [aria-pressed=true]"))
    assert shown == ["Linear", "Log", "Lift", "√"]
    page.press("2")
    page.until("state.view === 'arcs'")
    assert page.page.locator("#choose-steps button").all_inner_texts() == ["√", "Linear", "Log"]
    page.press("c")
    assert page.text("#choose-limits [aria-pressed=true]") == "Per head"
    page.press("c", "1")
    page.until("state.view === 'matrix'")


def test_a_pressed_button_keeps_the_focus_while_the_bar_is_drawn_again(page: Opened) -> None:
    at(page, "head=1.2", "scene.current?.stage")
    page.page.focus("#choose-view button:text-is('Table')")
    page.press("Enter")
    page.until("state.view === 'table'")
    assert page.evaluate("document.activeElement.textContent") == "Table"


def test_heads_are_sorted_and_turned_round_by_keys(page: Opened) -> None:
    at(page, "view=maps", "state.list === 'maps' && state.head === null")
    page.press("o")
    first = page.evaluate("METRIC_NAMES[0]")
    assert page.evaluate("[state.sort, document.querySelector('#sort').value]") == [first, first]
    page.press("r")
    assert page.evaluate("state.sort") == f"-{first}"
    page.press("O")
    assert page.evaluate("state.sort") == ""


def test_the_list_of_actions_finds_by_words_and_has_what_can_be_done_here(page: Opened) -> None:
    at(page, "head=1.2", "scene.current?.stage")
    page.press("Control+k")
    page.page.keyboard.type("col log")
    assert page.page.locator(".actions-list button").all_inner_texts() == ["Steps of the colours: Log"]
    page.press("Enter")
    page.until("state.steps === 'log'")
    assert page.page.locator("#actions").is_hidden()
    assert page.evaluate("[state.found.text, state.unknown]") == ["", ""]  # nothing was looked for
    page.press("2")
    page.until("state.view === 'arcs'")
    page.press(":")
    assert page.page.locator(".actions-list button:has-text('Lift')").count() == 0
    page.press("Escape")
