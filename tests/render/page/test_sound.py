"""Sounds in the page: seconds and the envelope over maps, words that are heard, and an interval that is kept."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.media.sound import Sound
from tests.conftest import dense
from tests.metrics.sound_examples import FRAME, frames, heard_recording
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import long_maps, report_of

pytestmark = pytest.mark.slow

INTERVAL = "0.20-0.60"
KEPT = slice(10, 30)  # frames whose middle is in the interval


def opened_at(show: Opener, address: str) -> Opened:
    opened = show(report_of(heard_recording()))
    opened.evaluate(f"location.hash = '{address}'")
    opened.until("scene.current?.stage && scene.strip?.drawn.length === 2")
    return opened


def test_page_holds_the_envelope_and_the_seconds_of_frames_and_words(show: Opener) -> None:
    known = heard_recording()
    opened = show(report_of(known))
    sound = known.maps[0].key_tokens.canvas
    assert isinstance(sound, Sound)
    text = "page.texts[page.heads[0].keys[0]]"
    assert opened.evaluate(f"[...bytesOf({text}.sound.envelope)]") == sound.envelope.tolist()
    assert opened.evaluate(f"{text}.seconds") == pytest.approx([FRAME / 2, FRAME])
    assert opened.evaluate(f"heardWords({text}).map(({{label}}) => label)") == ["And", "so,", "my", "fellow"]
    spoken = opened.evaluate("page.texts[page.heads[0].queries[0]].spoken")
    assert [word[:2] for word in spoken] == [[1, 2], [2, 4], [4, 5], [5, 6]]


def test_a_sound_opens_as_its_words_shaded_by_where_the_last_one_listens(show: Opener) -> None:
    known = heard_recording()
    opened = show(report_of(known))
    opened.evaluate("location.hash = 'view=maps'")
    opened.until("state.list === 'maps' && scene.asked?.whole && scene.strip?.drawn[0].words.shading.values")
    line = np.mean([maps.weights[head][5] for maps in map(dense, [known]) for head in range(len(maps.heads))], axis=0)
    spoken = opened.evaluate("page.texts[page.heads[0].queries[0]].spoken")
    middles = (np.arange(len(line)) + 0.5) * FRAME
    expected = np.zeros(len(known.maps[0].query_tokens))
    for first, stop, start, end in spoken:
        expected[int(first) : int(stop)] = line[(middles >= start) & (middles <= end)].sum()
    shaded = opened.evaluate("[...scene.strip.drawn[0].words.shading.values]")
    np.testing.assert_allclose(shaded, expected, rtol=1e-4, atol=1e-6)
    assert "what “fellow” attends to" in opened.text("#text > .note").replace("␣", "")


def test_query_is_found_by_its_word_and_the_word_is_said_over_the_envelope(show: Opener) -> None:
    opened = opened_at(show, "head=0.0&query=fellow")
    assert opened.evaluate("state.pin") == {"query": 5, "key": None}
    words, second = opened.evaluate("scene.strip.drawn[1].words.wordsNow()")
    assert words.startswith("fellow ")
    assert words.endswith(" s")
    assert 1.2 < second < 1.8


def test_rows_over_a_sound_are_high_and_their_columns_are_not_named_one_by_one(show: Opener) -> None:
    opened = opened_at(show, "head=0.0")
    assert opened.evaluate("scene.current.stage.picture.tall") >= 9
    assert opened.evaluate("scene.current.stage.picture.names.columns") == "keys, in seconds →"


def test_interval_restricts_map_shades_shares_and_thumbnails(show: Opener) -> None:
    opened = opened_at(show, f"head=0.0&query=2&seconds={INTERVAL}")
    weights = dense(heard_recording()).weights[0]
    picture = "scene.current.stage.picture"
    assert opened.evaluate(f"{picture}.shown.columns") == KEPT.stop - KEPT.start
    values = np.array(opened.evaluate(f"[...{picture}.shown.values]")).reshape(len(weights), -1)
    np.testing.assert_allclose(values, weights[:, KEPT], rtol=1e-5)
    shaded = np.array(opened.evaluate("[...scene.strip.drawn[1].words.shading.values]"))
    assert (np.flatnonzero(shaded != -2) == np.arange(100)[KEPT]).all()
    share = float(opened.text("#pointed .list .hint").split("%")[0])
    assert share == pytest.approx(100 * weights[2, KEPT].sum(), abs=0.01)
    opened.evaluate(f"location.hash = 'view=maps&seconds={INTERVAL}'")
    opened.until("state.head === null && document.querySelector('.overview .thumb canvas')")
    width = opened.evaluate("document.querySelector('.overview .thumb canvas').width")
    assert width == pytest.approx(opened.evaluate("page.heads[0].thumbnail[1]") * 0.2, abs=2)


def test_interval_fills_a_map_whose_cells_are_computed(show: Opener) -> None:
    computed = long_maps()
    count = len(computed.key_tokens)
    maps = replace(computed, key_tokens=frames(count=count, heard=count))
    opened = show(report_of(Recording(maps=(maps,), model="drawn")))
    opened.evaluate("location.hash = 'head=4.0&query=7&seconds=0.50-1.50'")  # a chosen row is revealed where it is
    picture = "scene.current.stage.picture"
    opened.until(f"scene.current?.stage && {picture}.factor > 1.5")
    left, width = opened.evaluate(f"(({{ stage }}) => [stage.area.x, stage.width - {picture}.left])(scene.current)")
    wide = opened.evaluate(f"{picture}.wide")
    assert left / wide == pytest.approx(0.5 / FRAME, abs=2)
    assert width / wide == pytest.approx(1 / FRAME, abs=4)


@pytest.mark.parametrize("place", [".waveform-canvas", ".stage-over"])
def test_dragging_over_an_envelope_keeps_an_interval_and_escape_lets_go_of_it(show: Opener, place: str) -> None:
    opened = opened_at(show, "head=0.0")
    box = opened.page.locator(place).bounding_box()
    left, width = opened.evaluate(
        "(({ left, wide, shown }) => [left, wide * shown.columns])(scene.current.stage.picture)"
    )
    if place == ".waveform-canvas":
        left, width = 0, box["width"]
    mouse, y = opened.page.mouse, box["y"] + 40
    mouse.move(box["x"] + left + 0.25 * width, y)
    mouse.down()
    mouse.move(box["x"] + left + 0.4 * width, y, steps=3)
    mouse.move(box["x"] + left + 0.5 * width, y)
    mouse.up()
    opened.until("state.interval && scene.current?.stage.picture.shown.source")
    assert opened.evaluate("state.interval") == pytest.approx([0.5, 1], abs=0.02)
    assert "seconds=0." in opened.evaluate("location.hash")
    mouse.move(2, 2)
    opened.until("!state.mark")
    opened.press("Escape")
    opened.until("!state.interval && !scene.current?.stage.picture.shown.source")


def test_shift_and_arrows_keep_an_interval_from_the_chosen_frame_on(show: Opener) -> None:
    opened = opened_at(show, "head=0.0")
    opened.evaluate("set({ mark: { query: 2, key: 10 } })")
    opened.press("Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowLeft")
    opened.until("state.interval && scene.current?.stage.picture.shown.source")
    assert opened.evaluate("state.interval") == pytest.approx([10 * FRAME, 12 * FRAME])
    opened.press("Shift+ArrowLeft", "Shift+ArrowLeft")
    opened.until("!state.interval")


def test_shift_and_an_arrow_keep_the_chosen_word(show: Opener) -> None:
    opened = opened_at(show, "head=0.0&query=fellow")
    start, end = opened.evaluate("(({ start, end }) => [start, end])(heardOf(textOf(0, 'query'), 5))")
    opened.press("Shift+ArrowRight")
    opened.until("state.interval")
    assert opened.evaluate("state.interval") == [start, end]
    opened.press("Shift+ArrowRight")
    opened.until(f"state.interval[1] > {end}")
    assert opened.evaluate("state.interval[1]") == pytest.approx(end + FRAME)


def test_touch_of_the_button_shows_the_whole_sound_again(show: Opener) -> None:
    opened = opened_at(show, f"head=0.0&seconds={INTERVAL}")
    opened.page.locator("#switches button", has_text="0.20–0.60 s").click()
    opened.until("!state.interval")
    assert "seconds" not in opened.evaluate("location.hash")


def test_saved_picture_has_seconds_and_no_frame_is_named(show: Opener) -> None:
    opened = opened_at(show, "head=0.0")
    drawn = opened.evaluate("svgOfView()")
    assert ">1.0 s<" in drawn or ">1 s<" in drawn
    assert "keys, in seconds" in drawn
