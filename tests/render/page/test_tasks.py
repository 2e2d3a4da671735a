"""What a reader asks a page, in how few actions: clicks, keys, hovers, choices in a list, typed words."""

from dataclasses import dataclass

import numpy as np
import pytest

from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.combine import reduce_heads
from tests.conftest import dense
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import PREVIOUS, SENTENCE, large, long_maps, report_of, sentence

pytestmark = pytest.mark.slow

IT = SENTENCE.index("it")


@dataclass
class Hand:
    """What a reader does to a page, counted."""

    opened: Opened
    actions: int = 0

    def click(self, selector: str, *modifiers: str) -> None:
        self.actions += 1
        self.opened.page.click(selector, modifiers=list(modifiers))

    def token(self, text: str) -> None:
        self.click(f".text-strip .token:text-is('{text}') >> nth=0")

    def hover(self, query: int, key: int) -> None:
        self.actions += 1
        self.opened.page.mouse.move(*self.opened.middle_of_cell(query, key))

    def cell(self, query: int, key: int) -> None:
        self.actions += 1
        self.opened.page.mouse.click(*self.opened.middle_of_cell(query, key))

    def key(self, key: str) -> None:
        self.actions += 1
        self.opened.press(key)

    def word(self, text: str) -> None:
        self.actions += 1
        self.opened.page.keyboard.type(text)

    def choose(self, selector: str, value: str) -> None:
        self.actions += 1
        self.opened.page.select_option(selector, value)


def weights_of(recording: Recording) -> np.ndarray:
    """Of all heads, layer after layer: ``(heads, queries, keys)``."""
    return np.concatenate([dense(recording, layer).weights for layer in range(len(recording.maps))])


def test_head_that_attends_to_the_previous_token_is_named_and_one_choice_brings_it_first(page: Opened) -> None:
    hand = Hand(page)
    layer, head = PREVIOUS
    assert hand.opened.page.locator(".thumb").nth(4 * layer + head).text_content().startswith("previous 1.00")
    hand.choose("#sort", "previous")
    assert hand.opened.page.text_content(".thumb >> nth=0").strip() == f"{layer}.{head} 1.00"
    assert hand.actions == 1


def test_what_it_attends_to_in_all_heads_and_in_the_mean_of_each_layer_is_one_click(page: Opened) -> None:
    recording = sentence()
    hand = Hand(page)
    hand.token("it")
    hand.opened.until("scene.shown?.whole")
    assert hand.actions == 1
    weights = weights_of(recording)[:, IT]
    shown = [hand.opened.evaluate(f"Array.from(scene.shown.lineOf({row}))") for row in range(12)]
    np.testing.assert_allclose(shown, weights, rtol=1e-6)
    means = [dense(recording, layer).weights[:, IT].mean(axis=0) for layer in range(3)]
    shown = [hand.opened.evaluate(f"Array.from(scene.shown.lineOf({12 + 1 + layer}))") for layer in range(3)]
    np.testing.assert_allclose(shown, means, rtol=1e-5)
    listed = hand.opened.page.locator(".inspector ul:not(.layers) bdi").all_inner_texts()
    assert listed == [SENTENCE[key] for key in np.argsort(-weights.mean(axis=0), kind="stable")[:8]]


def test_who_looks_at_it_and_what_sorts_by_a_second_token(page: Opened) -> None:
    recording = sentence()
    hand = Hand(page)
    hand.token("it")
    hand.click(".text-strip .token:text-is('cat')", "Shift")
    hand.opened.until("scene.shown?.whole && state.pin.key === 1")
    order = np.argsort(-weights_of(recording)[:, IT, 1], kind="stable")
    assert hand.opened.evaluate("scene.shown.heads") == order.tolist()
    hand.key("r")
    hand.opened.until("scene.shown?.axis === 'key' || scene.shown?.place === 1")
    assert hand.actions == 3
    hand.opened.press("Escape")
    hand.token("it")
    hand.key("r")
    hand.opened.until("scene.shown?.whole && scene.shown.axis === 'key'")
    np.testing.assert_allclose(
        hand.opened.evaluate("Array.from(scene.shown.lineOf(3))"), weights_of(recording)[3][:, IT], rtol=1e-6
    )


def test_two_heads_stand_side_by_side_with_one_cursor(page: Opened) -> None:
    recording = sentence()
    hand = Hand(page)
    hand.click(".thumb >> nth=1")
    hand.opened.until("scene.shown?.number === 1")
    assert "Shift and click another head: both stand side by side." in hand.opened.text(".inspector .hint >> nth=0")
    hand.click(".thumb[data-number='6']", "Shift")
    hand.opened.until("scene.current?.stages?.length === 2")
    assert hand.actions == 2
    assert hand.opened.page.locator(".side-by-side figcaption").all_inner_texts() == [
        "Head 0.1",
        "Head 1.2 · previous token 1.00",
    ]
    hand.opened.evaluate("pointTo({query: 4, key: 3}, 5, 5)")
    weights = weights_of(recording)
    said = [f"{100 * weights[number, 4, 3]:.2f}%" for number in (1, 6)]
    assert [text for text in hand.opened.page.locator(".inspector dd").all_inner_texts() if text in said][-2:] == said
    hand.opened.evaluate("scene.current.stages[0].zoom(3)")
    hand.opened.until("scene.current.stages.every((stage) => stage.picture.factor > 1.2)")


@pytest.mark.parametrize("how", ["Mean", "Max", "Difference", "Rollout"])
def test_chosen_heads_become_one_map(page: Opened, how: str) -> None:
    recording = sentence()
    hand = Hand(page)
    chosen = (1, 6)
    for number in chosen:
        hand.click(f".thumb >> nth={number}", "Shift")
    hand.click(f"#choose-together button:text-is('{how}')")
    hand.opened.until("scene.shown?.values?.length === 144")
    assert hand.actions == 3
    heads = [(cell_maps(recording.maps[number // 4]), number % 4) for number in chosen]
    if how == "Difference":
        first, second = (weights_of(recording)[number] for number in chosen)
        expected = second - first
    else:
        maps = reduce_heads(heads, {"Mean": "mean", "Max": "max", "Rollout": "rollout"}[how])
        expected = maps.window((0,), slice(0, 12), slice(0, 12)).weights[0]
    found = np.array(hand.opened.evaluate("Array.from(scene.shown.values)")).reshape(12, 12)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_exact_weight_and_score_of_a_cell(page: Opened) -> None:
    recording = sentence()
    hand = Hand(page)
    hand.click(".thumb >> nth=5")
    hand.opened.until("scene.current !== null")
    hand.hover(4, 2)
    hand.opened.page.wait_for_selector(".tip:visible")
    assert f"weight {100 * weights_of(recording)[5, 4, 2]:.2f}%" in hand.opened.text(".tip")
    assert hand.actions == 2


def test_token_is_found_among_512(show: Opener) -> None:
    hand = Hand(show(report_of(large(512, heads=2))))
    hand.key("/")
    hand.word("400")
    hand.opened.until("state.pin?.query === 400")
    assert hand.actions == 2
    assert hand.opened.page.locator(".text-strip .token.chosen").inner_text() == "400"
    top, bottom = hand.opened.evaluate(
        "(() => { const box = document.querySelector('.text-strip .words').getBoundingClientRect();"
        " const one = document.querySelector('.text-strip .chosen').getBoundingClientRect();"
        " return [one.top - box.top, box.bottom - one.bottom]; })()"
    )
    assert top >= -1
    assert bottom >= -1


def test_figure_is_saved_by_one_click_and_the_command_that_draws_it_is_copied_by_two(page: Opened) -> None:
    hand = Hand(page)
    with hand.opened.page.expect_download():
        hand.click("#save-svg")
    assert hand.actions == 1
    hand.opened.open_head(6, "text")
    hand.opened.evaluate("pin({query: 4, key: null})")
    hand.click("#share-open")
    fields = [field.input_value() for field in hand.opened.page.locator("#share textarea").all()]
    assert fields[0].endswith("#head=1.2&view=text&query=it")
    assert fields[1] == "attnviz show run.safetensors --heads 1.2 --query it --color-scale sqrt -o figure.svg"
    hand.click("#share button:text-is('Copy') >> nth=1")
    assert hand.actions == 3


def test_heads_are_listed_by_the_words_of_the_command_line(page: Opened) -> None:
    hand = Hand(page)
    hand.click("#filter")
    hand.word("previous>0.5")
    hand.opened.until("document.querySelectorAll('.thumb').length === 1")
    assert hand.actions == 2
    assert hand.opened.text(".thumb").startswith("1.2")
    hand.opened.page.fill("#filter", "previus>0.5")
    assert "no metric previus" in hand.opened.text("#wrong")
    hand.opened.page.fill("#filter", "")
    hand.opened.page.click("#choose-list button:text-is('Numbers')")
    hand.opened.page.click("thead button:text-is('previous')")
    assert hand.opened.text("tbody th >> nth=0") == "1.2"
    hand.opened.page.click("tbody tr >> nth=0 >> td >> nth=4")
    hand.opened.until("state.head === 6")


def test_why_a_weight_is_what_it_is_of_a_long_text(show: Opener) -> None:
    maps = long_maps()
    hand = Hand(show(report_of(Recording(maps=(maps,), model="a test"))))
    hand.opened.show_maps()
    hand.click(".thumb >> nth=1")
    hand.opened.until("scene.current?.stage?.picture.whole")
    hand.cell(0, 0)
    query, key = hand.opened.evaluate("[state.pin.query, state.pin.key]")
    assert hand.actions == 2
    rows = hand.opened.evaluate(
        "[...document.querySelectorAll('table.why tbody tr')].map((row) =>"
        " [...row.cells].map((cell) => cell.textContent.replace('−', '-')))"
    )
    shares = maps.factors.queries[1, query] * maps.factors.keys[maps.factors.key_heads[1], key] * maps.factors.scale
    order = np.argsort(-np.abs(shares))
    assert [int(row[0]) for row in rows[:12]] == order[:12].tolist()
    np.testing.assert_allclose([float(row[-1]) for row in rows[:12]], shares[order[:12]], rtol=2e-3, atol=2e-3)
    score = maps.window((2,), slice(query, query + 1), slice(key, key + 1)).scores[0, 0, 0]
    assert float(rows[-1][-1]) == pytest.approx(score, abs=5e-3)
    assert sum(float(row[-1]) for row in rows[:13]) == pytest.approx(score, abs=8e-3)
