"""The page in a browser: every view opened, pointed at and clicked, tokens as text, and nothing asked of anyone."""

import io
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Report
from tests.conftest import LAYERS, dense, dense_maps
from tests.render.page.conftest import Opener, Shared
from tests.render.page.examples import HOSTILE, NUMBERS, large, report_of, with_labels

pytestmark = pytest.mark.slow

VIEWS = ("Matrix", "Arcs", "Text", "Table")


def crossed() -> Recording:
    """What the fixture ``recording`` is."""
    return Recording(maps=tuple(dense_maps(layer) for layer in range(LAYERS)), model="a test")


def comparison(recording: Recording) -> Report:
    other = Recording(maps=tuple(dense_maps(layer, causal=True, seed=5) for layer in range(LAYERS)), model="a test")
    return comparison_report(recording, other, "another seed", ReportOptions(medium=NUMBERS))


def test_click_on_a_thumbnail_opens_its_head_and_back_returns(shared: Shared) -> None:
    opened = shared(crossed)
    opened.resize(700, 800)
    opened.show_maps()
    assert opened.page.locator(".thumb").count() == 6
    opened.page.click(".thumb >> nth=4")
    opened.until("scene.current !== null")
    assert opened.text("#head-title") == "Head 1.1 cross"
    assert not opened.page.is_visible("#overview")
    opened.page.click("#back")
    assert opened.page.is_visible("#overview")
    assert opened.evaluate("document.activeElement.dataset.number") == "4"


def test_many_heads_of_one_layer_go_on_below_and_never_scroll_sideways(show: Opener) -> None:
    page = show(report_of(large(3, heads=50)))
    tops = page.evaluate("[...document.querySelectorAll('.thumb')].map((thumb) => thumb.getBoundingClientRect().top)")
    counts = [tops.count(top) for top in sorted(set(tops))]
    assert len(counts) > 1
    assert counts[-1] <= counts[0] == max(counts)
    assert page.evaluate("one('overview').scrollWidth <= one('overview').clientWidth")
    assert page.text(".grid .name") == "layer 0"


def test_pointing_at_a_cell_shows_query_key_weight_and_score(shared: Shared, recording: Recording) -> None:
    opened = shared(crossed)
    opened.open_head(4)
    opened.page.mouse.move(*opened.middle_of_cell(3, 5))
    opened.page.wait_for_selector(".tip:visible")
    weight, score = (getattr(dense(recording, 1), name)[1, 3, 5] for name in ("weights", "scores"))
    assert opened.text(".tip").split("\n") == [
        "q3 → k5",
        f"weight {100 * weight:.2f}% · score {score:.4f}".replace("-", "−"),
    ]
    assert opened.text(".inspector dd >> nth=0") == f"{100 * weight:.2f}%"


def test_click_on_a_token_lists_what_it_attends_to_strongest_first(show: Opener) -> None:
    recording = large(6)
    opened = show(report_of(recording))
    opened.open_head(1)
    x, y = opened.middle_of_cell(4, 0)
    opened.page.mouse.click(x - opened.evaluate("scene.current.stage.picture.cell"), y)
    weights = dense(recording).weights[1]
    listed = opened.page.locator(".inspector ul >> nth=0").locator("bdi").all_inner_texts()
    assert listed == [str(key) for key in np.argsort(-weights[4, :5])]
    listed = opened.page.locator(".inspector ul >> nth=1").locator("bdi").all_inner_texts()
    assert listed == [str(query) for query in np.argsort(-weights[4:, 4]) + 4]


def test_every_view_shows_hostile_tokens_as_text(show: Opener) -> None:
    opened = show(report_of(with_labels(HOSTILE, tuple(reversed(HOSTILE)))))
    opened.until("scene.current !== null")
    for view in VIEWS:
        opened.page.click(f"#choose-view button:text-is('{view}')")
        opened.until(f"state.view === '{view.lower()}'")
        opened.press("ArrowDown", "ArrowRight", "Enter")
        opened.evaluate("set({pin: null}); pin({query: 0, key: null})")
        assert HOSTILE[0] in opened.text("#inspector")
        assert opened.evaluate("svgOfView()").count("<script") == 0
        assert opened.page.locator("img").count() == 0
        assert opened.evaluate("document.scripts.length") == 4
    assert opened.text("thead th >> nth=-1") == HOSTILE[0]
    opened.open_head(0, "text")
    assert opened.page.locator(".words >> nth=0 >> .token").all_inner_texts()[:4] == list(HOSTILE[:4])


def test_page_decodes_the_numbers_of_the_recording(show: Opener) -> None:
    for tokens in (40, 360, 1300):
        recording = large(tokens)
        opened = show(report_of(recording))
        opened.open_head(1)
        maps = dense(recording)
        query, key = tokens - 3, int(maps.weights[1, -3].argmax())
        cell = f"{query} * {tokens} + {key}"
        assert opened.evaluate(f"scene.shown.values[{cell}]") == pytest.approx(maps.weights[1, query, key], abs=0.004)
        score = opened.evaluate(f"scene.shown.score({query}, {key})")
        assert score["value"] == pytest.approx(maps.scores[1, query, key], abs=score["error"] + 1e-4)
        assert opened.evaluate("scene.shown.values[1] === ABSENT")
        assert opened.evaluate("scene.shown.score(0, 1)") is None


def test_masked_cells_are_absent_not_zero(show: Opener, causal_recording: Recording) -> None:
    opened = show(report_of(causal_recording))
    opened.open_head(0)
    alphas = opened.evaluate(
        "(({ picture }) => Array.from(picture.images(scene.current.stage.area, 1)[0].canvas"
        ".getContext('2d').getImageData(0, 0, 7, 5).data)"
        ".filter((_, place) => place % 4 === 3))(scene.current.stage)"
    )
    assert (np.array(alphas).reshape(5, 7) > 0).tolist() == dense(causal_recording).visible.tolist()
    opened.page.mouse.move(*opened.middle_of_cell(0, 4))
    opened.page.wait_for_selector(".tip:visible")
    assert "masked" in opened.text(".tip")
    assert "masked" in opened.text("#legend")


def test_nan_is_drawn_in_its_own_colour_and_named(show: Opener, recording: Recording) -> None:
    maps = dense(recording)
    weights = maps.weights.copy()
    weights[0, 2, 3] = np.nan
    opened = show(report_of(Recording(maps=(replace(maps, weights=weights),), model="a test")))
    opened.open_head(0)
    pixel = opened.evaluate(
        "(({ picture }) => Array.from(picture.images(scene.current.stage.area, 1)[0].canvas"
        ".getContext('2d').getImageData(3, 2, 1, 1).data))"
        "(scene.current.stage)"
    )
    assert pixel[:3] == opened.evaluate("page.nanColor")
    opened.page.mouse.move(*opened.middle_of_cell(2, 3))
    opened.page.wait_for_selector(".tip:visible")
    assert "weight NaN" in opened.text(".tip")
    assert "NaN" in opened.text("#legend")


def test_keyboard_alone_opens_moves_finds_and_leaves(shared: Shared) -> None:
    opened = shared(crossed)
    opened.page.focus(".thumb >> nth=0")
    opened.press("ArrowRight", "ArrowDown", "Enter")
    opened.until("scene.current !== null && document.activeElement.id === 'head-title'")
    assert opened.text("#head-title") == "Head 1.1 cross"
    opened.press("ArrowDown", "ArrowDown", "ArrowRight")
    assert opened.evaluate("state.mark") == {"query": 1, "key": 1}
    assert opened.text("#spoken").startswith("q1 to k1: weight ")
    opened.press("/")
    opened.page.keyboard.type("k6")
    assert opened.evaluate("state.pin") == {"query": None, "key": 6}
    opened.press("Escape", "]")
    opened.until("scene.shown.number === 5")
    for key, view in (("2", "arcs"), ("3", "text"), ("4", "table"), ("1", "matrix")):
        opened.press(key)
        opened.until(f"state.view === '{view}'")
    opened.press("Escape", "Escape")
    opened.until("state.head === null")


def test_zoom_keeps_the_cell_under_the_pointer(show: Opener) -> None:
    opened = show(report_of(large(200)))
    opened.open_head(0)
    x, y = opened.middle_of_cell(150, 120)
    opened.page.mouse.move(x, y)
    before = opened.evaluate("state.mark")
    opened.page.keyboard.down("Control")
    for factor in (1, 2, 4, 8):
        opened.page.mouse.wheel(0, -200)
        opened.until(f"scene.current.stage.picture.factor > {factor}")
    opened.page.keyboard.up("Control")
    opened.page.mouse.move(x + 1, y)
    after = opened.evaluate("state.mark")
    assert abs(after["query"] - before["query"]) <= 1
    assert abs(after["key"] - before["key"]) <= 1
    opened.press("0")
    assert opened.evaluate("scene.current.stage.picture.factor") == 1


def test_every_view_saves_itself_as_svg_and_png(shared: Shared) -> None:
    opened = shared(crossed)
    opened.resize(1280, 500)
    opened.show_maps()
    for view in ("overview", *VIEWS):
        if view != "overview":
            opened.open_head(1, view.lower())
        with opened.page.expect_download() as download:
            opened.page.click("#save-svg")
        drawing = ElementTree.fromstring(download.value.path().read_text())
        texts = ["".join(element.itertext()) for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert any(text.startswith("a test" if view == "overview" else "Head 0.1 cross") for text in texts), view
        assert set(texts) > ({"0", "1", "2"} if view == "overview" else {"q0", "k6"}), view
        with opened.page.expect_download() as download:
            opened.page.click("#save-png")
        picture = Image.open(io.BytesIO(download.value.path().read_bytes()))
        assert picture.width > 1000, view
        assert len(picture.convert("RGB").resize((200, 200)).getcolors(1 << 16) or []) > 20, view


def test_comparison_switches_between_a_b_and_their_difference(show: Opener, recording: Recording) -> None:
    opened = show(comparison(recording))
    assert opened.page.locator("#choose-side button[aria-pressed=true]").inner_text() == "B − A"
    opened.open_head(2)
    change = opened.evaluate("scene.shown.values[0]")
    values: list[float] = []
    for side in ("A", "B"):
        opened.page.click(f"#choose-side button:text-is('{side}')")
        opened.until(f"state.side === '{side}' && scene.shown.values === scene.shown.sides[{len(values)}].values")
        values.append(opened.evaluate("scene.shown.values[0]"))
    assert values[0] == pytest.approx(dense(recording).weights[2, 0, 0])
    assert change == pytest.approx(values[1] - values[0], abs=1e-6)
    opened.press("d")
    opened.until("state.side === 'change'")
    opened.page.mouse.move(*opened.middle_of_cell(1, 1))
    opened.page.wait_for_selector(".tip:visible")
    assert [
        name for name in ("weight A", "weight B", "change", "score A", "score B") if name in opened.text(".tip")
    ] == [
        "weight A",
        "weight B",
        "change",
        "score A",
        "score B",
    ]


def test_table_of_a_head_names_its_rows_and_columns_for_a_screen_reader(show: Opener, recording: Recording) -> None:
    opened = show(report_of(recording, table="both"))
    opened.page.click(".thumb >> nth=0")
    opened.until("scene.current !== null")
    assert opened.page.locator("thead th[scope=col]").all_inner_texts() == [
        "query \\ key",
        *(f"k{n}" for n in range(7)),
    ]
    assert opened.page.locator("tbody th[scope=row]").all_inner_texts() == [f"q{n}" for n in range(5)]
    weight, score = dense(recording).weights[0, 1, 2], dense(recording).scores[0, 1, 2]
    assert opened.text("tbody tr >> nth=1 >> td >> nth=2") == f"{100 * weight:.2f}%\n{score:.4f}".replace("-", "−")
    assert opened.evaluate("document.querySelector('caption').textContent").startswith(
        "Head 0.0 cross: Cross-attention of"
    )


def test_every_control_has_a_name(show: Opener, recording: Recording) -> None:
    opened = show(comparison(recording))
    for view in VIEWS:
        opened.open_head(0, view.lower())
        nameless = opened.evaluate(
            "[...document.querySelectorAll('button, input, select, [tabindex=\"0\"]')]"
            ".filter((it) => !(it.ariaLabel || it.textContent.trim() || it.labels?.length)).map((it) => it.outerHTML)"
        )
        assert nameless == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_that_was_asked_for_goes_before_the_readers(show: Opener, recording: Recording, theme: str) -> None:
    report = build_report(recording, ReportOptions(medium=NUMBERS, look=Look(theme=theme)))
    opened = show(report, color_scheme={"light": "dark", "dark": "light"}[theme])
    channel = int(opened.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (channel > 128) is (theme == "light")
    assert opened.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_readers_light_or_dark(show: Opener, recording: Recording, scheme: str) -> None:
    opened = show(report_of(recording), color_scheme=scheme)
    channel = int(opened.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (channel > 200) == (scheme == "light")


def test_phone_never_scrolls_sideways(show: Opener, recording: Recording) -> None:
    opened = show(report_of(recording), viewport={"width": 360, "height": 700}, has_touch=True)
    for number, view in ((None, ""), *((0, name.lower()) for name in VIEWS)):
        if number is not None:
            opened.open_head(number, view)
        assert opened.evaluate("document.documentElement.scrollWidth") <= 360
    for place in ("", "view=numbers", "query=q1"):
        opened.evaluate(f"followAddress('#{place}')")
        opened.settle()
        assert opened.evaluate("document.documentElement.scrollWidth") <= 360, place


def test_pointing_does_not_keep_the_reader_waiting(show: Opener) -> None:
    opened = show(report_of(large(512, heads=2)))
    processor = opened.page.context.new_cdp_session(opened.page)
    processor.send("Performance.enable", {"timeDomain": "threadTicks"})
    for view in ("matrix", "arcs", "text"):
        opened.open_head(0, view)
        opened.settle()
        before = seconds_worked(processor)
        opened.evaluate(
            """() => {
                for (let place = 5; place < 505; place += 10) {
                    const mark = state.view === "matrix" ? {query: place, key: 509 - place} : {query: place, key: null};
                    pointTo(null);
                    pointTo(mark, 100, 100);
                    document.body.offsetHeight;
                }
            }"""
        )
        assert 0 < (seconds_worked(processor) - before) / 50 < 0.1, view


def seconds_worked(processor: Any) -> float:
    """Seconds that the page has kept a processor busy, however many other programs share it."""
    metrics = {one["name"]: one["value"] for one in processor.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])
