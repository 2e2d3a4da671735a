"""Words joined and special tokens left out in the page: the sums are those of attnviz --by words and --special."""

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from tests.conftest import dense
from tests.render.page.conftest import Opener
from tests.render.page.examples import WORD_LABELS, recording_of_words, report_of

pytestmark = pytest.mark.slow

UNITS = ([0], [1, 2], [3], [4, 5], [6])


def joined(maps: DenseMaps, head: int, units: tuple[list[int], ...]) -> np.ndarray:
    """Weights summed over the keys of a word, and their mean over its queries."""
    weights = np.where(maps.visible, maps.weights[head], 0)
    return np.array([[weights[np.ix_(rows, columns)].sum() / len(rows) for columns in units] for rows in units])


@pytest.mark.parametrize("causal", [False, True])
def test_words_are_sums_over_keys_and_means_over_queries(show: Opener, causal: bool) -> None:
    known = recording_of_words(causal)
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'head=1.2&by=words'")
    opened.until("scene.current?.stage?.picture.shown.source")
    assert opened.evaluate("scene.current.stage.picture.shown.keys.labels") == [
        "[CLS]",
        "unhappy",
        "cats",
        "sitting",
        "[SEP]",
    ]
    values = np.array(opened.evaluate("[...scene.current.stage.picture.shown.values]")).reshape(5, 5)
    np.testing.assert_allclose(
        np.where(values == -2, 0, values), joined(dense(known, 1), 2, UNITS), rtol=1e-5, atol=1e-7
    )


def test_special_tokens_are_left_out_of_maps_lists_shades_and_the_scale(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    assert opened.evaluate("page.leastHigh") == 1  # of 7 keys
    opened.evaluate("location.hash = 'head=0.1&limits=head'")  # who asks for a head's own scale gets it
    opened.until("scene.current?.stage && state.limits === 'head'")
    largest = dense(known).weights[1].max()
    assert opened.evaluate("scene.current.stage.picture.shown.scale.high") == pytest.approx(largest)
    opened.evaluate("page.leastHigh = 0.2; location.hash = 'head=0.1&query=cats'")
    opened.until("scene.current?.stage && state.pin")
    opened.press("t")
    opened.until("scene.current?.stage?.picture.shown.source")
    assert opened.evaluate("location.hash").endswith("&special=hidden")
    maps = dense(known)
    inner = maps.weights[1][1:6, 1:6]
    values = np.array(opened.evaluate("[...scene.current.stage.picture.shown.values]")).reshape(5, 5)
    np.testing.assert_allclose(values, inner, rtol=1e-6)
    assert opened.evaluate("scene.current.stage.picture.shown.scale.high") == pytest.approx(inner.max())
    listed = opened.page.locator("#pointed ul").first.locator("bdi").all_inner_texts()
    assert listed == [WORD_LABELS[1 + place] for place in np.argsort(-inner[2], kind="stable")]
    assert opened.evaluate("scene.strip.drawn[0].words.shading.values[0]") == -2
    opened.press("w")
    opened.until("scene.current?.stage?.picture.shown.columns === 3")
    opened.press("t", "w")
    opened.until("!scene.current?.stage?.picture.shown.source")


def test_cell_of_words_is_pointed_at_and_keeps_its_tokens(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'head=0.1&by=words&special=hidden'")
    opened.until("scene.current?.stage?.picture.shown.source")
    x, y = opened.middle_of_cell(3, 4)
    opened.page.mouse.move(x, y)
    share = joined(dense(known), 1, UNITS)[2, 3]
    assert opened.text(".tip") == f"cats → sitting\n{100 * share:.2f}%"
    opened.page.mouse.click(x, y)
    assert opened.evaluate("[state.pin.query, state.pin.key]") == [3, 4]


def test_one_token_in_all_heads_by_words(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'query=cats&by=words&special=hidden'")
    opened.until("scene.shown?.whole")
    weights = np.concatenate([dense(known, layer).weights for layer in range(2)])[:, 3]
    expected = np.stack([weights[:, columns].sum(axis=1) for columns in UNITS[1:4]], axis=1)
    shown = [opened.evaluate(f"[...scene.shown.lineOf({row})]") for row in range(8)]
    np.testing.assert_allclose(shown, expected, rtol=1e-5)
    for address, sizes, of_tokens in (  # sorted by what is shown, which the hidden tokens and parts of words are not
        ("query=cats&sort=weight", expected.max(axis=1), weights.max(axis=1)),
        ("query=cats&key=happy", expected[:, 0], weights[:, 2]),
    ):
        order = np.argsort(-sizes, kind="stable").tolist()
        assert order != np.argsort(-of_tokens, kind="stable").tolist()
        opened.evaluate(f"location.hash = '{address}&by=words&special=hidden'")
        opened.until(f"scene.shown?.whole && String(scene.shown.heads) === '{','.join(map(str, order))}'")


def test_table_and_arcs_are_of_words_as_the_matrix(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'head=0.1&view=table&query=sit&by=words&special=hidden'")
    opened.until("state.view === 'table' && document.querySelector('table.cells')")
    expected = joined(dense(known), 1, UNITS)[1:4, 1:4]
    cells = opened.page.locator("table.cells tbody td").all_inner_texts()
    shown = [float(text.split("%")[0]) / 100 for text in cells]
    np.testing.assert_allclose(np.reshape(shown, (3, 3)), expected, atol=6e-5)
    assert opened.page.locator("table.cells tbody th").all_inner_texts() == ["unhappy", "cats", "sitting"]

    opened.evaluate("location.hash = 'head=0.1&view=arcs&query=sit&by=words&special=hidden'")
    opened.until("state.view === 'arcs' && scene.current?.stage?.picture.linesOfAll")
    lines = opened.evaluate("scene.current.stage.picture.linesOfMark(state.pin).length")
    assert lines == 3
    drawn = opened.evaluate(
        "scene.current.stage.picture.linesOfAll[0].map((line) => [line.query, line.key, line.value])"
    )
    assert len(drawn) == 9
    for query, key, value in drawn:
        assert value == pytest.approx(expected[int(query), int(key)])
    place = opened.evaluate(
        "(({ x, y, height }) => [x, y + height / 2])(scene.current.stage.picture.placeOf(state.pin))"
    )
    bounds = opened.page.locator(".stage-view").bounding_box()
    opened.page.mouse.move(bounds["x"] + 40, bounds["y"] + place[1])
    assert opened.evaluate("state.mark") == {"query": 4, "key": None}
