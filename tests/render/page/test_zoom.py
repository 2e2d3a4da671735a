"""Long texts in the page: its numbers are those of Python's windows, whatever rule a score follows, at every zoom."""

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.attention.mask import Bias, Mask
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Selection
from tests.attention.biases import alibi_bias
from tests.maps.examples import factored
from tests.render.page.conftest import Opened, Opener, new_page
from tests.render.page.examples import FEATURES, KEYS, NUMBERS, PADDING, QUERIES, RULES, long_maps, report_of
from tests.today import todays

pytestmark = pytest.mark.slow
ONE_HEAD = "{ numbers: [scene.shown.number], how: null, side: 0 }"


@pytest.fixture(scope="module", params=todays(RULES, one_in=4))  # test_arithmetic.py tries all, without a browser
def ruled(show_to_all: Opener, request: Any) -> tuple[FactoredMaps, Opened]:
    """A page for each rule, which several tests look at."""
    maps = long_maps(**RULES[request.param])
    return maps, show_to_all(report_of(Recording(maps=(maps,), model="a test")))


def test_cells_computed_in_the_page_are_those_of_python_to_the_error_said(ruled: tuple[FactoredMaps, Opened]) -> None:
    maps, opened = ruled
    opened.open_head(2)
    rows, columns = slice(400, 404), slice(3, 610, 6)
    window = maps.window((5,), slice(400, 404), slice(0, KEYS))
    weights = np.where(window.visible, window.weights[0], -2)[:, columns]
    found = cells(opened, rows, columns)
    assert found["weights"] == pytest.approx(weights, abs=float(np.nanmax(found["weight_errors"])) + 1e-6)
    visible = window.visible[:, columns]
    assert np.array_equal(found["weights"] == -2, ~visible)
    misses = np.abs(found["scores"] - window.scores[0][:, columns])[visible]
    assert np.all(misses <= found["errors"][visible] + 1e-5)
    assert np.all(np.abs(found["weights"] - weights)[visible] <= found["weight_errors"][visible] + 1e-6)
    assert found["errors"][visible].max() < 0.02


def cells(opened: Opened, rows: slice, columns: slice) -> dict[str, np.ndarray]:
    """What the page says of some cells."""
    said = opened.evaluate(
        f"(() => {{ const [side] = scene.shown.sides; const all = []; for (let q = {rows.start}; q < {rows.stop}; q++)"
        f" for (let k = {columns.start}; k < {columns.stop}; k += {columns.step}) {{ const score = side.score(q, k);"
        " all.push([side.at(q, k), score?.value ?? 0, score?.error ?? 0, score ? side.errorAt(q, k) : 0]); }"
        " return all; })()"
    )
    table = np.array(said, dtype=np.float64).reshape(rows.stop - rows.start, -1, 4)
    return dict(zip(("weights", "scores", "errors", "weight_errors"), np.moveaxis(table, -1, 0), strict=True))


def test_part_that_the_worker_pools_is_the_overview_of_python(ruled: tuple[FactoredMaps, Opened]) -> None:
    maps, opened = ruled
    opened.open_head(1)
    overview = maps.overview((2,), 50, 37, slice(10, 523), slice(100, 600))
    found = part(opened, top=10, bottom=523, left=100, right=600, height=50, width=37)
    for name, values in (("mean", overview.mean), ("max", overview.maximum)):
        expected = np.where(overview.visible, values[0], -2)
        assert found[name] == pytest.approx(expected, rel=0.02, abs=1e-4), name
        assert np.array_equal(found[name] == -2, ~overview.visible), name


def test_long_heads_beside_each_other_and_as_one_are_computed_of_all_of_them(show: Opener) -> None:
    maps = long_maps(mask=Mask(causal=True, offset=80))
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    opened.evaluate("set({chosen: [0, 1, 2]}); showTogether('side')")
    opened.until("scene.current?.stages?.length === 3 && scene.current.stages.every(({ picture }) => picture.whole)")
    asked = {"top": 300, "bottom": 320, "left": 5, "right": 35, "height": 20, "width": 30}
    weights = maps.window((0, 2), slice(300, 320), slice(5, 35)).weights
    opened.evaluate("set({chosen: [0, 1]})")
    for how, expected in (
        ("mean", weights.mean(axis=0)),
        ("max", weights.max(axis=0)),
        ("difference", weights[1] - weights[0]),
    ):
        opened.evaluate(f"showTogether('{how}')")
        opened.until(f"scene.shown?.partOf?.how === '{how}' && scene.current?.stage?.picture.whole")
        found = part(opened, "scene.shown.partOf", **asked)["mean"]
        assert found == pytest.approx(expected, rel=0.02, abs=1e-4), how
        [shown] = opened.evaluate("[scene.shown.at(310, 7)]")
        assert shown == pytest.approx(expected[10, 2], rel=0.02, abs=1e-4), how


def part(opened: Opened, of: str = ONE_HEAD, **asked: int) -> dict[str, np.ndarray]:
    """What the worker answers, its bands joined."""
    said = opened.evaluate(
        "new Promise((done) => { const bands = []; askWindow(" + of + ", " + str(asked) + ", (band) => {"
        " bands.push(band); if (band.last === " + str(asked["height"]) + ") done(['mean', 'max'].map((name) =>"
        " bands.flatMap(({ pooled }) => Array.from(pooled[0][name])))); }); })"
    )
    shape = asked["height"], asked["width"]
    return {name: np.array(each).reshape(shape) for name, each in zip(("mean", "max"), said, strict=True)}


def test_zoom_by_keys_goes_from_the_whole_to_single_cells_with_their_numbers(show: Opener) -> None:
    maps = long_maps(queries=1100, keys=1200)
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    opened.open_head(0)
    opened.until("scene.current.stage.picture.whole")
    assert opened.evaluate("scene.current.stage.picture.pooled")
    assert "mean of a block" in opened.text("#legend")
    opened.evaluate("pin({query: 800, key: 700}); scene.current.stage.element.focus()")
    for _ in range(30):
        opened.press("+")
    opened.evaluate("scene.current.reveal(state.pin)")
    opened.until("scene.current.stage.picture.whole && !scene.current.stage.picture.pooled")
    assert "block" not in opened.text("#legend")
    opened.page.mouse.move(*opened.middle_of_cell(800, 700) - scroll_of(opened))
    opened.page.wait_for_selector(".tip:visible")
    window = maps.window((0,), slice(800, 801), slice(700, 701))
    tip = opened.text(".tip").replace("−", "-")
    assert tip.startswith("800 → 700\nweight ")
    score, error = (float(number) for number in tip.split("score ")[1].split(" ± "))
    assert score == pytest.approx(window.scores[0, 0, 0], abs=error)
    assert float(tip.split("weight ")[1].split("%")[0]) / 100 == pytest.approx(
        window.weights[0, 0, 0], rel=0.05, abs=1e-7
    )


def scroll_of(opened: Opened) -> np.ndarray:
    return np.array(opened.evaluate("[scene.current.stage.element.scrollLeft, scene.current.stage.element.scrollTop]"))


def test_token_of_a_long_text_lists_what_it_attends_to_strongest_first(show: Opener) -> None:
    maps = long_maps(mask=Mask(causal=True))
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    opened.open_head(1)
    opened.evaluate("pin({query: 333, key: null})")
    listed = opened.page.locator(".inspector ul >> nth=0").locator("bdi").all_inner_texts()
    weights = maps.window((2,), slice(333, 334), slice(0, KEYS)).weights[0, 0]
    assert [int(key) for key in listed] == np.argsort(-weights)[:8].tolist()
    for view in ("arcs", "text", "table"):
        opened.open_head(1, view)
        opened.until("scene.current !== null")


def test_drag_moves_the_picture_and_chooses_nothing(show: Opener) -> None:
    opened = show(report_of(Recording(maps=(long_maps(),), model="a test")))
    opened.open_head(0)
    for _ in range(6):
        opened.press("+")
    before = scroll_of(opened)
    opened.page.mouse.move(600, 500)
    opened.page.mouse.down()
    opened.page.mouse.move(540, 460, steps=4)
    opened.page.mouse.up()
    assert (scroll_of(opened) - before).tolist() == pytest.approx([60, 40], abs=1)
    assert opened.evaluate("state.pin") is None


def test_comparison_of_long_texts_shows_their_difference(show: Opener) -> None:
    a, b = (Recording(maps=(long_maps(seed=seed),), model="a test") for seed in (3, 4))
    opened = show(comparison_report(a, b, "another seed", ReportOptions(medium=NUMBERS)))
    opened.open_head(0)
    opened.until("scene.current.stage.picture.whole")
    cell = (0,), slice(9, 10), slice(11, 12)
    before, after = (cell_maps(one.maps[0]).window(*cell).weights[0, 0, 0] for one in (a, b))
    assert opened.evaluate("scene.shown.at(9, 11)") == pytest.approx(after - before, abs=1e-3)


def test_page_of_factors_is_about_as_large_as_they_are() -> None:
    maps, count = long_maps(queries=1000, keys=1000), 1000
    size = len(draw(report_of(Recording(maps=(maps,), model="a test")), ".html"))
    fixed = len(draw(report_of(Recording(maps=(factored(),), model="a test")), ".html"))
    factors = 2 * (maps.factors.queries.shape[0] + maps.factors.keys.shape[0]) * count * FEATURES
    labels = 3 * count * 8
    assert size - fixed - labels - 4 * 3 * count <= 1.2 * factors


def test_bias_given_cell_by_cell_is_pooled_and_said(show: Opener) -> None:
    explicit = np.random.default_rng(2).normal(size=(3, QUERIES, KEYS)).astype(np.float32)
    maps = long_maps(bias=Bias(explicit=explicit))
    report = report_of(Recording(maps=(maps,), model="a test"))
    report = replace(report, look=replace(report.look, max_size="200kB"))
    opened = show(report)
    opened.open_head(0)
    assert opened.evaluate("page.block") > 1
    assert "bias is stored cell by cell" in opened.text(".remarks")


def test_small_window_of_a_long_text_travels_as_exact_numbers(show: Opener) -> None:
    maps = long_maps()
    recording = Recording(maps=(maps,), model="a test")
    selection = Selection.parse(heads="2", queries="5:55", keys="7:67")
    opened = show(build_report(recording, ReportOptions(medium=NUMBERS, selection=selection)))
    opened.until("scene.current !== null")
    window = maps.window((2,), slice(5, 55), slice(7, 67))
    assert opened.evaluate("page.heads[0].factors.length") == 0
    assert opened.evaluate("scene.shown.at(3, 4)") == pytest.approx(window.weights[0, 3, 4])


def test_page_of_a_part_counts_its_rules_from_the_whole(show: Opener) -> None:
    slopes = alibi_bias(np.array([0.01, 0.02, 0.03], dtype=np.float32), QUERIES, KEYS)
    maps = long_maps(mask=Mask(causal=True, window=200, prefix=40, padding=PADDING), bias=slopes)
    selection = Selection.parse(heads="5", queries="25:530", keys="11:610")
    recording = Recording(maps=(maps,), model="a test")
    opened = show(build_report(recording, ReportOptions(medium=NUMBERS, selection=selection)))
    opened.until("scene.current !== null")
    window = maps.window((5,), slice(400, 404), slice(11, 610))
    found = cells(opened, slice(375, 379), slice(0, 599, 1))
    expected = np.where(window.visible, window.weights[0], -2)
    assert found["weights"] == pytest.approx(expected, rel=0.02, abs=1e-6)


def test_page_in_a_notebooks_frame_computes_its_cells(browser: Any, tmp_path: Path) -> None:
    inner = html.escape(draw(report_of(Recording(maps=(long_maps(),), model="a test")), ".html").decode(), quote=True)
    path = tmp_path / "notebook.html"
    path.write_text(f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{inner}" width=1000 height=700></iframe>')
    opened = Opened(new_page(browser, viewport={"width": 1100, "height": 800}))
    opened.page.on("console", lambda message: opened.wrong.append(message.text))
    opened.page.on("pageerror", lambda error: opened.wrong.append(str(error)))
    opened.page.goto(path.as_uri())
    frame = opened.page.frames[1]
    frame.evaluate("openHead(0, 'matrix')")
    Opened(frame).until("scene.current?.stage?.picture.whole")
    assert opened.wrong == []
    opened.page.context.close()


def test_pointing_at_a_token_looks_at_each_key_a_few_times(show: Opener) -> None:
    keys = 3000
    opened = show(report_of(Recording(maps=(long_maps(queries=60, keys=keys),), model="a test")))
    opened.open_head(1)
    sizes_asked = opened.evaluate(
        "(() => { const abs = Math.abs; let count = 0; Math.abs = (number) => (count++, abs(number));"
        " pointTo({query: 30, key: 7}, 9, 9); Math.abs = abs; return count; })()"
    )
    assert keys <= sizes_asked < 20 * keys
