"""Scores shown in the page instead of weights."""

import numpy as np
import pytest

from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from tests.conftest import dense
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import NUMBERS, recording_of_words, report_of, sentence

pytestmark = pytest.mark.slow
SHOWN = "scene.current?.stage?.picture.shown.scale.scores"


def test_cells_of_an_open_head_become_its_scores_and_weights_again(show: Opener) -> None:
    known = recording_of_words(causal=True)
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'head=1.2'")
    opened.until("scene.current?.stage")
    opened.press("v")
    opened.until(SHOWN)
    maps = dense(known, 1)
    cells = np.array(opened.evaluate("[...scene.current.stage.picture.shown.values]")).reshape(7, 7)
    visible = np.broadcast_to(maps.visible, (7, 7))
    np.testing.assert_allclose(cells[visible], maps.scores[2][visible], atol=2e-6)
    assert (cells[~visible] == -2).all()
    scale = opened.evaluate("scene.current.stage.picture.shown.scale")
    assert scale["low"] == pytest.approx(maps.scores[2][visible].min(), abs=1e-6)
    assert scale["high"] == pytest.approx(maps.scores[2][visible].max(), abs=1e-6)
    assert opened.text("#legend").startswith("attention score")
    assert opened.text("#head-title").startswith("Head 1.2, scores")
    assert opened.evaluate("location.hash") == "#head=1.2&scores=shown"
    opened.press("v")
    opened.until(f"scene.current?.stage && !{SHOWN}")


def test_colours_of_scores_run_from_the_smallest_to_the_largest(show: Opener) -> None:
    opened = show(report_of(recording_of_words()))
    opened.evaluate("location.hash = 'head=0.1&scores=shown'")
    opened.until(SHOWN)
    ends = opened.evaluate(
        "(({ scale }) => [scale.low, 0, scale.high].map((value) => fractionOf(value, scale)))"
        "(scene.current.stage.picture.shown)"
    )
    low, high = dense(recording_of_words()).scores[1].min(), dense(recording_of_words()).scores[1].max()
    np.testing.assert_allclose(ends, [0, -low / (high - low), 1], atol=1e-6)


def test_scores_side_by_side_have_one_scale_and_are_listed(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'heads=0.1,1.2&together=side&scores=shown'")
    opened.until("scene.current?.stages?.length === 2")
    ends = "({ picture }) => [picture.shown.scale.low, picture.shown.scale.high]"
    scales = opened.evaluate(f"scene.current.stages.map({ends})")
    both = np.concatenate([dense(known).scores[1], dense(known, 1).scores[2]])
    np.testing.assert_allclose(scales, [[both.min(), both.max()]] * 2, atol=1e-6)
    opened.evaluate("pointTo({query: 4, key: 3}, 5, 5)")
    opened.until("document.querySelectorAll('.inspector dl').length > 1")
    listed = opened.page.locator(".inspector dl").nth(1).locator("dd").all_inner_texts()
    assert [float(text.replace("−", "-")) for text in listed] == pytest.approx(
        [dense(known).scores[1, 4, 3], dense(known, 1).scores[2, 4, 3]], abs=1e-4
    )


def test_scores_leave_special_tokens_out_and_a_word_has_none(show: Opener) -> None:
    known = recording_of_words()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'head=0.1&special=hidden&scores=shown'")
    opened.until("scene.current?.stage?.picture.shown.source")
    cells = np.array(opened.evaluate("[...scene.current.stage.picture.shown.values]")).reshape(5, 5)
    np.testing.assert_allclose(cells, dense(known).scores[1][1:6, 1:6], atol=2e-6)
    opened.press("w")
    opened.until("state.by === 'words'")
    assert opened.evaluate("state.scores") == "hidden"
    opened.press("v")
    opened.until("state.scores === 'shown'")
    assert opened.evaluate("state.by") == "tokens"


def test_page_without_scores_says_so_and_shows_weights(show: Opener) -> None:
    opened = show(build_report(sentence(), ReportOptions(medium=NUMBERS, reduce="mean")))
    opened.until("scene.current?.stage")
    opened.press("v")
    opened.until("state.scores === 'shown' && document.querySelector('.view .note')")
    assert "keeps no scores" in opened.text(".view .note")
    assert not opened.evaluate(SHOWN)


def test_buttons_of_open_heads_stand_in_one_line(page: Opened) -> None:
    page.resize(1440, 900)
    for place in ("head=1.2", "head=1.2&query=it", "head=0.1&scores=shown", "heads=0.1,1.2&together=side"):
        page.evaluate(f"location.hash = '{place}'")
        page.until(f"scene.current !== null && location.hash === '#{place}'")
        page.settle()
        tops = page.evaluate(
            "[...one('bar').children].filter((part) => part.offsetWidth).map((part) => part.offsetTop)"
        )
        assert max(tops) < 20, "in pixels: a second line begins lower"
        assert page.evaluate("one('choose-steps')?.closest('.side') !== null || state.scores === 'shown'"), place


def test_all_choices_of_a_phone_are_found_in_its_bar_without_scrolling_sideways(page: Opened) -> None:
    page.resize(390, 780)
    page.evaluate("location.hash = 'head=1.2'")
    page.until("scene.current !== null")
    beyond = "[...one('bar').querySelectorAll('button, summary')].filter((part) => part.offsetParent)"
    assert not page.evaluate(f"{beyond}.some((part) => part.getBoundingClientRect().right > innerWidth)")
    shown = page.text("#bar")
    assert all(label in shown for label in ("Matrix", "Table", "seen by", "Scores", "Look"))
    assert "Log" not in shown
    page.page.click("#look-narrow > summary")
    page.page.click("#choose-steps button:text-is('Log')")
    page.until("state.steps === 'log'")
    assert not page.evaluate(f"{beyond}.some((part) => part.getBoundingClientRect().right > innerWidth)")
    page.resize(1280, 850)
    page.until("one('choose-steps').closest('.side') !== null")
