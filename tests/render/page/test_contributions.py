"""The page of a recording that knows what its keys move: weights and contributions, and what is lost without a head."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.maps.derived import contribution_bound, contributions_of, mean_contribution
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import NUMBERS, large, long_maps, report_of, sentence

pytestmark = pytest.mark.slow


def moving(recording: Recording) -> Recording:
    """The recording with norms of what its keys move, some nought."""
    maps = []
    for each in recording.maps:
        norms = np.random.default_rng(each.layer).gamma(2, size=(len(each.heads), len(each.key_tokens)))
        norms[:, 1] = 0
        maps.append(replace(each, value_norms=norms.astype(np.float32)))
    return replace(recording, maps=tuple(maps))


def many() -> Recording:
    return large(40, heads=3)


def long() -> Recording:
    return Recording(maps=(long_maps(),), model="a test")


@pytest.mark.parametrize("source", [sentence, many, long])
def test_contributions_of_the_page_are_those_of_python(show: Opener, source: Any) -> None:
    recording = moving(source())
    opened = show(report_of(recording))
    maps = contributions_of(recording).maps[0]
    head = maps.heads[1]
    rows, columns = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    window = cell_maps(maps).window((head,), rows, columns)
    expected = window.weights[0] / max(contribution_bound(one) for one in contributions_of(recording).maps)
    query, key = 7, 4
    opened.evaluate(f"location.hash = 'number=1&of=contributions&query={query}'")
    opened.until("state.of === 'contribution' && scene.shown?.number === 1 && scene.current !== null")
    within = 1e-2 if isinstance(recording.maps[0], FactoredMaps) else 1e-5  # of queries and keys in float16
    seen, seeing = window.visible[query], window.visible[:, key]
    row = np.array(opened.evaluate(f"[...scene.shown.line('query', {query})]"))
    column = np.array(opened.evaluate(f"[...scene.shown.line('key', {key})]"))
    assert row[seen] == pytest.approx(expected[query][seen], abs=1e-5, rel=within)
    assert (row[~seen] == -2).all()
    assert column[seeing] == pytest.approx(expected[:, key][seeing], abs=1e-5, rel=within)
    assert "contribution" in opened.text("#legend")
    opened.evaluate("openLens()")
    opened.until("scene.shown?.whole === true")
    line = np.array(opened.evaluate("[...scene.shown.lineOf(scene.shown.heads.indexOf(1))]"))
    assert line == pytest.approx(row, abs=1e-6)
    opened.page.click("#choose-of button:text-is('Weights')")
    opened.until("state.of === 'weight' && scene.shown?.whole === true")
    weights = cell_maps(recording.maps[0]).window((head,), rows, columns).weights[0]
    line = np.array(opened.evaluate("[...scene.shown.lineOf(scene.shown.heads.indexOf(1))]"))
    assert line[seen] == pytest.approx(weights[query][seen], abs=1e-5, rel=within)


def test_page_of_weights_alone_offers_no_contributions_and_ignores_them_in_an_address(page: Opened) -> None:
    page.evaluate("location.hash = 'head=1.2&of=contributions'")
    page.until("scene.current !== null")
    assert page.evaluate("state.of") == "weight"
    assert not page.page.is_visible("#choose-of")


def test_command_of_contributions_draws_them(show: Opener) -> None:
    opened = show(report_of(moving(sentence())))
    opened.evaluate("location.hash = 'head=1.2&of=contributions'")
    opened.until("state.of === 'contribution' && scene.current !== null")
    opened.page.click("#share-open")
    assert "--of contributions --heads 1.2" in opened.evaluate("document.querySelectorAll('#share textarea')[1].value")
    assert "of=contributions" in opened.evaluate("document.querySelector('#share textarea').value")


def effects_file(folder: Path, heads: dict[str, float]) -> Path:
    path = folder / "effects.json"
    rows = [{"heads": name.split("+"), "effect": value, "texts": [value]} for name, value in heads.items()]
    about = {"format": "attnviz effects", "version": 1, "model": "a test", "metric": "loss", "by": "zero", "texts": 1}
    path.write_text(json.dumps(about | {"title": "", "baseline": 1.0, "remarks": [], "effects": rows}))
    return path


def test_effects_shade_sort_and_filter_heads_as_what_they_move_does(show: Opener, tmp_path: Path) -> None:
    path = effects_file(tmp_path, {"1.2": 2.5, "0.1": -0.75, "2.3": 0.01, "1.2+0.1": 9.0})
    recording = moving(sentence())
    report = build_report(recording, ReportOptions(medium=NUMBERS, look=Look(effects=str(path))))
    opened = show(report)
    opened.evaluate("location.hash = 'view=numbers&sort=effect'")
    opened.until("state.list === 'numbers' && document.querySelector('.numbers-table')")
    names = opened.page.locator(".numbers-table tbody th").all_inner_texts()
    assert names[:3] == ["1.2", "2.3", "0.1"]
    cell = opened.page.locator(".numbers-table tbody tr").nth(0).locator("td").nth(1)
    assert cell.inner_text() == "+2.5000"
    rows = "[...document.querySelectorAll('.numbers-table tbody tr')]"
    colors = opened.evaluate(f"{rows}.map((row) => row.cells[2].style.backgroundColor)")
    assert len({colors[0], colors[2], ""}) == 3
    moved = opened.page.locator(".numbers-table tbody tr").nth(0).locator("td").nth(2).inner_text()
    maps = contributions_of(recording).maps[1]
    assert float(moved) == pytest.approx(mean_contribution(cell_maps(maps), 2), abs=0.006)
    opened.evaluate("location.hash = 'filter=effect<-0.5'")
    opened.until("listedHeads().length === 1")
    assert opened.evaluate("page.heads[listedHeads()[0]].name") == "0.1"
    assert "an intervention" in opened.text(".remarks")
    opened.evaluate("location.hash = 'sort=effect'")
    opened.until("state.list === 'maps' && document.querySelectorAll('.thumb').length === 12")
    thumbs = opened.evaluate(
        "[...document.querySelectorAll('.thumb')].map((thumb) => ["
        " page.heads[thumb.dataset.number].name, thumb.firstChild.style.boxShadow, thumb.getAttribute('aria-label')])"
    )
    assert [name for name, _, _ in thumbs[:3]] == ["1.2", "2.3", "0.1"]
    more, little, less, none = (frame for _, frame, _ in thumbs[:4])
    assert [round(float(frame.split(",")[3].split(")")[0]), 2) for frame in (little, less)] == [0.15, 0.3]
    assert "rgb(176, 36, 58)" in more
    assert "rgba(29, 91, 158" in less
    assert none == ""
    assert thumbs[2][2].endswith("effect −0.7500")
    legend = "frames: change of loss without the head, red is more, blue is less"
    assert legend in opened.text("#legend")
    assert legend in opened.evaluate("svgOfView()").replace("\n", " ")


def test_effects_of_other_heads_and_files_that_hold_none_are_refused(tmp_path: Path) -> None:
    files = {
        str(
            effects_file(tmp_path, {"9.9": 1.0})
        ): "has effects of 9.9, but of none of the heads shown; measure the heads shown with attnviz ablate",
        str(tmp_path / "none.json"): "there is no file '.*none.json'",
    }
    for file, said in files.items():
        with pytest.raises(AttnvizError, match=said):
            build_report(sentence(), ReportOptions(medium=NUMBERS, look=Look(effects=file)))
