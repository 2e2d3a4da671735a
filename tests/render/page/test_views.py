"""Every view at every size: the kept token is seen, the address keeps it, files and paper hold the whole picture."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import ExactNumbers
from attnviz.report.picture.scales import LIFT_QUANTILE
from attnviz.report.words.notes import read_notes
from attnviz.text.tokens import Tokens
from tests.conftest import dense, random_maps
from tests.maps.examples import softmax
from tests.render.page.conftest import ARGUMENTS, CHROMIUM, Opened, Opener
from tests.render.page.examples import (
    HOSTILE,
    NUMBERS,
    SENTENCE,
    labelled,
    large,
    long_maps,
    report_of,
    sentence,
    with_labels,
)

pytestmark = pytest.mark.slow

BARS = "[...document.querySelectorAll('.stage')].filter((stage) => stage.offsetWidth > stage.clientWidth).length"
SHADES = """(() => {
    const canvas = document.querySelector('.text-large .words-shades'), bounds = canvas.getBoundingClientRect();
    const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return [...document.querySelectorAll('.text-large .token')].map((token) => {
        const {x, y, width} = token.getBoundingClientRect();
        const [across, down] = [x + width / 2 - bounds.x, y + 5 - bounds.y].map((part) => Math.round(part));
        return image.data[4 * (down * canvas.width + across) + 3] / 255;
    });
})()"""  # how strongly each token of the text is shaded
PARTS = ("image_blocks", "text_blocks")
SVG = "{http://www.w3.org/2000/svg}"


def test_kept_token_is_brought_into_view_in_every_view(show: Opener) -> None:
    opened = show(report_of(large(512, heads=2)))
    for view in ("matrix", "arcs", "text", "table"):
        opened.page.evaluate(f"location.hash = 'head=0.0&view={view}&query=400'")
        opened.until(f"scene.current && state.view === '{view}' && state.pin?.query === 400")
        if view == "arcs":
            top, step = opened.evaluate("[scene.current.stage.area.y, scene.current.stage.picture.step]")
            assert top < 400 * step + 30 < top + opened.evaluate("scene.current.stage.height")
        if view == "text":
            assert opened.page.locator(".text-large .token.chosen").is_visible()
        if view == "table":
            assert opened.page.locator(".choose input").input_value() == "400"


def test_a_picture_that_fits_has_no_scroll_bars(browser: Any, tmp_path: Path) -> None:
    started = browser.browser_type.launch(
        executable_path=CHROMIUM, args=ARGUMENTS, ignore_default_args=["--hide-scrollbars"]
    )
    opener = Opener(started, tmp_path)
    opened = opener(report_of(sentence()), viewport={"width": 1440, "height": 900})
    for address in ("view=maps", "head=x&number=1", "heads=0,1"):
        opened.page.evaluate(f"location.hash = '{address}'")
        opened.settle()
        assert opened.evaluate(BARS) == 0
    opened.open_head(1)
    opened.press("+", "+")
    opened.settle()
    assert opened.evaluate(BARS) == 1  # an enlarged picture can be scrolled
    opener.close()
    started.close()


def test_texts_and_tables_draw_only_what_is_seen(show: Opener) -> None:
    maps = long_maps(queries=1000, keys=1400)
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    for view in ("text", "table"):
        opened.open_head(0, view)
        assert opened.evaluate("document.querySelectorAll('.token').length") < 2_000
        assert opened.evaluate("document.querySelectorAll('tbody tr').length") < 100
    weights = maps.window((0,), slice(0, 1), slice(0, 1400)).weights[0, 0]
    rows = opened.page.locator("tbody tr:not([aria-hidden]) >> nth=0").locator("td, th").all_inner_texts()
    assert rows[0] == str(int(weights.argmax()))


def test_address_keeps_what_is_shown_and_a_person_can_write_it(page: Opened) -> None:
    page.page.evaluate("location.hash = 'head=1.2'")
    page.until("state.head === 6 && scene.current")
    assert page.page.title() == "Head 1.2 · previous token 1.00 · the cat sat because it was tired and the dog ran on"
    page.press("a")
    page.evaluate("pin({query: 4, key: 1})")
    page.page.click("#choose-steps button:text-is('Log')")
    page.until("location.hash === '#head=1.2&query=it&key=cat&scale=log'")
    page.page.reload()
    page.until("scene.current && state.pin && state.steps === 'log'")
    assert page.evaluate("[state.head, state.pin]") == [6, {"query": 4, "key": 1}]
    page.page.evaluate("location.hash = 'heads=0.1,1.2&together=mean'")
    page.until("state.together === 'mean' && scene.shown?.values")
    page.page.evaluate("location.hash = 'filter=layer:2&sort=-entropy'")
    page.until("document.querySelectorAll('.thumb').length === 4")


def test_enter_keeps_a_cell_after_its_head_was_opened_by_keyboard(page: Opened) -> None:
    page.page.focus(".thumb >> nth=0")
    page.press("ArrowRight", "Enter")
    page.until("state.head === 1 && scene.current")
    page.press("ArrowDown", "ArrowDown", "ArrowRight", "Enter")
    assert page.evaluate("state.pin") == {"query": 1, "key": 1}


def test_space_chooses_heads_and_equals_sign_shows_them_side_by_side(page: Opened) -> None:
    page.page.focus(".thumb >> nth=0")
    page.press("Space", "ArrowRight", "Space", "=")
    page.until("scene.current?.stages?.length === 2")


def test_cells_take_half_of_a_screen_with_every_label_and_the_numbers_are_seen_in_a_frame(show: Opener) -> None:
    tokens = replace(Tokens.numbered(36), labels=tuple(f"word{place}" for place in range(36)))
    maps = tuple(random_maps(tokens, layer=layer, heads=12, seed=layer) for layer in range(6))
    report = report_of(Recording(maps=maps, model="a test"))
    opened = show(report, viewport={"width": 1440, "height": 900})
    opened.open_head(3)
    opened.settle()
    cells = "scene.current.stage.picture.wide * 36 * scene.current.stage.picture.tall * 36"
    assert opened.evaluate(cells) >= 0.49 * 1440 * 900  # the room of a scroll bar is kept free
    labels = "['query', 'key'].map((axis) => picture.places(axis, area).length)"
    assert opened.evaluate(f"(({{ picture, area }}) => {labels})(scene.current.stage)") == [36, 36]
    assert opened.evaluate("scene.current.stage.element.getBoundingClientRect().bottom") <= 900
    opened.resize(900, 720)
    opened.evaluate("pin({query: 4, key: 5})")
    opened.settle()
    assert opened.page.locator(".inspector dd >> nth=0").bounding_box()["y"] < 700
    assert opened.evaluate("scene.current.stage.element.getBoundingClientRect().bottom") <= 720


def test_phone_says_the_numbers_of_a_touched_cell_where_they_are_seen(show: Opener) -> None:
    opened = show(report_of(sentence()), viewport={"width": 390, "height": 844}, has_touch=True)
    opened.open_head(1)
    opened.page.touchscreen.tap(*opened.middle_of_cell(3, 2))
    opened.until("state.pin !== null")
    box = opened.page.locator(".inspector dd >> nth=0").bounding_box()
    assert box["y"] + box["height"] <= 844
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


def test_saved_arcs_are_whole_and_saved_text_has_no_word_of_the_page(show: Opener) -> None:
    opened = show(report_of(large(60, heads=1, causal=False)), viewport={"width": 1000, "height": 500})
    opened.open_head(0, "arcs")
    texts = texts_of(opened.evaluate("svgOfView()"))
    assert texts.count("59") == 2
    opened.open_head(0, "text")
    texts = texts_of(opened.evaluate("svgOfView()"))
    assert {str(place) for place in range(60)} <= set(texts)
    assert not any("Point" in text for text in texts)


def texts_of(drawing: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("size", "millimetres", "pixels"),
    [("column", ("89mm", None), (1051, None)), ("slide", ("338.7mm", "190.5mm"), (1920, 1080))],
)
def test_saved_figure_has_the_size_that_is_asked_for_and_the_screen_stays(
    page: Opened, size: str, millimetres: tuple[str, str | None], pixels: tuple[int, int | None]
) -> None:
    page.evaluate(f"location.hash = 'head=1.2&size={size}'")
    page.until("scene.current !== null && state.size !== ''")
    before = page.evaluate(
        "[scene.current.stage.width, scene.current.stage.whole.width, scene.current.stage.picture.wide]"
    )
    drawing = ElementTree.fromstring(page.evaluate("svgOfView()"))
    assert drawing.get("width") == millimetres[0]
    assert millimetres[1] in (None, drawing.get("height"))
    texts = {"".join(element.itertext()) for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert texts > {"the", "tired", "Head 1.2 · previous token 1.00", "attention weight"}
    saved = page.evaluate("canvasOfView().then(({width, height}) => [width, height])")
    assert saved[0] == pixels[0]
    assert pixels[1] in (None, saved[1])
    after = page.evaluate(
        "[scene.current.stage.width, scene.current.stage.whole.width, scene.current.stage.picture.wide]"
    )
    assert after == before
    assert page.page.input_value("#save-size") == size


def test_tip_of_a_picture_with_several_cells_a_pixel_says_that_its_number_is_of_one_pair(show: Opener) -> None:
    opened = show(report_of(large(900, heads=1)))
    opened.until("scene.current !== null")
    tip = (
        "tipOf(scene.shown, {query: 5, key: 3}, scene.current.stage.picture).map((it) => it.textContent ?? it).join('')"
    )
    assert "of this one pair" in opened.evaluate(tip)
    opened.evaluate("(scene.current.stage.picture.factor = 40, scene.current.stage.fit())")
    assert "of this one pair" not in opened.evaluate(tip)


def test_paper_holds_every_head(show: Opener) -> None:
    maps = tuple(random_maps(Tokens.numbered(9), layer=layer, heads=12, seed=layer) for layer in range(2))
    opened = show(report_of(Recording(maps=maps, model="a test")))
    opened.page.emulate_media(media="print")
    opened.resize(700, 1000)
    rights = "[...document.querySelectorAll('.thumb .picture')].map((it) => it.getBoundingClientRect().right)"
    opened.until(f"Math.max(...{rights}) <= 700")
    assert len(opened.evaluate(rights)) == 24


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="poppler is not installed")
def test_paper_holds_the_cells_of_an_open_head_and_every_number(page: Opened, tmp_path: Path) -> None:
    page.open_head(3)
    page.page.pdf(path=tmp_path / "page.pdf", print_background=True)
    subprocess.run(["pdftoppm", "-r", "20", "-png", "-singlefile", "page.pdf", "page"], cwd=tmp_path, check=True)
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).reshape(-1, 3)
    assert (pixels.max(axis=1) - pixels.min(axis=1) > 20).mean() > 0.05  # in the colours of the palette
    page.evaluate("location.hash = 'view=numbers'")
    page.until("document.querySelector('.numbers-table')")
    page.page.emulate_media(media="print")
    page.resize(720, 1000)
    assert page.evaluate("document.querySelector('.numbers-table').getBoundingClientRect().right") <= 720


def test_a_frame_fades_at_its_right_edge_while_columns_are_beyond_it(page: Opened) -> None:
    goes_on = "document.querySelector('.scroll').matches('.goes-on')"
    for address in ("view=numbers", "head=0.0&view=table"):
        page.resize(500, 800)
        page.evaluate(f"location.hash = '{address}'")
        page.until("document.querySelector('.scroll td')")
        page.until(goes_on)
        page.evaluate("document.querySelector('.scroll').scrollTo({left: 10_000})")
        page.until(f"!{goes_on}")
        page.evaluate("document.querySelector('.scroll').scrollTo({left: 0})")
        page.until(goes_on)
        page.resize(2600, 800)
        page.until(f"!{goes_on}")


def test_an_address_names_heads_of_two_modules_by_their_part_of_the_model(show: Opener) -> None:
    maps = [
        replace(random_maps(Tokens.numbered(4), heads=2, seed=seed), module=f"{part}.0")
        for seed, part in enumerate(PARTS)
    ]
    recording = Recording(maps=tuple(maps), model="a test")
    opened = show(report_of(recording))
    names = [f"{part}:0.{head}" for part in PARTS for head in (0, 1)]
    assert opened.evaluate("page.heads.map(({ name }) => name)") == names
    for number, name in enumerate(names):
        opened.evaluate(f"location.hash = 'head={name}&query=1'")
        opened.until(f"scene.shown?.number === {number} && state.pin?.query === 1")
        assert name in opened.text("#head-title")
        values = opened.evaluate("[0, 1, 2].map((key) => scene.shown.at(1, key))")
        assert values == pytest.approx(maps[number // 2].weights[number % 2, 1, :3], abs=1e-3)
        opened.until(f"location.hash.includes('head={name}')")
    opened.evaluate("location.hash = 'heads=image_blocks:0.1,text_blocks:0.0&together=difference'")
    opened.until("String(state.chosen) === '1,2' && state.together === 'difference'")
    opened.evaluate("location.hash = 'view=maps&filter=text_blocks:0.1'")
    opened.until("String(listedHeads()) === '3'")


def test_tokens_stay_text_in_the_lens_and_wherever_heads_are_together(show: Opener) -> None:
    maps = with_labels(HOSTILE, HOSTILE).maps[0]
    two = tuple(replace(maps, layer=layer, module=f"layers.{layer}") for layer in range(2))
    opened = show(report_of(Recording(maps=two, model="a test")))
    opened.show_maps()
    opened.page.click(".text-strip .token >> nth=0")
    opened.until("scene.shown?.whole")
    assert HOSTILE[0] in opened.text("#head-title")
    for shown in ("numbers", "maps"):
        opened.evaluate(f"set({{list: '{shown}'}})")
    opened.evaluate("set({chosen: [0, 1]}); showTogether('side')")
    opened.until("scene.current?.stages?.length === 2")
    opened.evaluate("pin({query: 0, key: 1}); openShare()")
    assert "'</script><script>alert(1)</script>'" not in opened.page.title()
    assert opened.evaluate("[document.scripts.length, document.images.length]") == [5, 0]
    assert opened.evaluate("svgOfView()").count("<script") == 0


def test_shades_stay_where_colours_are_forced_and_text_is_large(show: Opener) -> None:
    opened = show(report_of(sentence()), forced_colors="active")
    opened.open_head(6, "text")
    opened.evaluate("pin({query: 4, key: null})")
    assert opened.evaluate(SHADES)[3] > 0.2
    adjusted = "getComputedStyle(document.querySelector('.text-large .words-line')).forcedColorAdjust"
    assert opened.evaluate(adjusted) == "none"  # else the browser paints a plate between shades and letters
    opened.evaluate("document.documentElement.style.fontSize = '32px'")
    opened.open_head(6)
    opened.evaluate("fitAll()")
    assert opened.evaluate("scene.current.stage.picture.wide * 12") >= 400


def test_text_is_shaded_as_strongly_as_it_is_attended_to(page: Opened) -> None:
    page.open_head(6, "text")
    page.evaluate("pointTo({query: 4, key: null})")
    weights = dense(sentence(), 1).weights[2, 4]
    np.testing.assert_allclose(page.evaluate(SHADES), 0.78 * np.sqrt(weights / weights.max()), atol=0.01)
    assert page.page.locator(".text-large .token.marked").all_inner_texts() == ["it"]


def test_lists_of_a_long_text_follow_the_pointer_and_keep_the_focus(show: Opener) -> None:
    maps = long_maps()
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    opened.open_head(0)
    opened.evaluate("pointTo({query: null, key: 7})")
    opened.page.wait_for_selector(".inspector h3:has-text('7” is attended to by') + ul li")
    opened.evaluate("pointTo({query: 9, key: 4})")
    opened.page.wait_for_selector(".inspector h3:has-text('4” is attended to by') + ul li")
    opened.page.focus(".inspector li:nth-child(2) button")
    opened.evaluate("pointTo({query: 9, key: 3})")
    cells = maps.window((0,), slice(9, 10), slice(3, 4))
    assert f"{100 * cells.weights[0, 0, 0]:.3f}"[:4] in opened.text(".inspector .numbers")
    assert opened.evaluate("document.activeElement.matches('.inspector li:nth-child(2) button')")


def test_zero_change_is_dark_on_dark_paper(show: Opener) -> None:
    opened = show(report_of(sentence()), color_scheme="dark")
    opened.evaluate("set({chosen: [0, 1]}); showTogether('difference')")
    opened.until("scene.shown?.scale.change && scene.shown.values")
    assert max(opened.evaluate("[...rgbOf(0, scene.shown.scale, 1)]")) < 60


def test_notes_of_a_file_are_stepped_through_and_saved_with_the_page(show: Opener, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("#head=1.2&query=it It looks back.\n\n#query=it </script><b>Everywhere</b>\n")
    report = build_report(sentence(), ReportOptions(medium=NUMBERS, look=Look(notes=str(file))))
    opened = show(report)
    opened.until("state.head === 6 && state.pin?.query === 4")
    assert opened.text("#story p") == "It looks back."
    opened.press("ArrowRight")
    opened.until("state.head === null && state.list === 'lens'")
    assert opened.text("#story p") == "</script><b>Everywhere</b>"
    opened.press("Escape")
    assert not opened.page.is_visible("#story")
    opened.page.click("#notes-open")
    opened.page.fill("#notes textarea", "Mine <i>too</i>")
    opened.page.click("#notes button:text-is('Pin a note to what is shown')")
    with opened.page.expect_download() as download:
        opened.page.click("#notes button:text-is('Save the page with its notes')")
    saved = download.value.path().read_text()
    again = opened.page.context.new_page()
    copy = tmp_path / "copy.html"
    copy.write_text(saved)
    wrong: list[str] = []
    again.on("pageerror", lambda error: wrong.append(str(error)))
    again.goto(copy.as_uri())
    Opened(again).until("page.notes.length > 2 && document.querySelectorAll('.thumb').length")
    assert json.loads(again.evaluate("JSON.stringify(page.notes)"))[2]["text"] == "Mine <i>too</i>"
    assert again.evaluate("[state.head, document.querySelectorAll('.thumb').length]") == [6, 12]
    assert wrong == []
    again.close()


@pytest.mark.parametrize(("text", "said"), [("It looks\n", "line 1 is not a note"), (None, "there is no file")])
def test_notes_that_are_none_are_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "notes.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AttnvizError, match=said):
        read_notes(str(file))
    with pytest.raises(AttnvizError, match="cannot read"):
        read_notes("\0")


def test_lift_compares_a_weight_with_what_uniform_attention_would_give(show: Opener) -> None:
    recording = large(40, heads=1)
    opened = show(report_of(recording))
    opened.page.evaluate("location.hash = 'scale=lift'")
    opened.until("state.steps === 'lift' && scene.shown")
    fraction = opened.evaluate("fractionOf(levelOf(0.1, scene.shown.scale, scene.shown.seen(9)), scene.shown.scale)")
    assert fraction == pytest.approx(0.5)
    assert "1×" in opened.text("#legend")
    assert np.isclose(opened.evaluate("scene.shown.seen(30)"), 31)


def test_colours_of_lift_reach_nearly_all_cells_of_all_heads(show: Opener) -> None:
    recording = large(70, heads=3)
    opened = show(report_of(recording))
    opened.until("state.steps === 'lift'")
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    seen = np.arange(1, 71)
    levels = (maps.weights * seen[:, None])[:, maps.visible & (seen > 1)[:, None]]
    high = opened.evaluate("sharedScale().high")
    assert high == pytest.approx(np.quantile(levels, LIFT_QUANTILE), rel=0.01)
    assert opened.evaluate("fractionOf(sharedScale().high, sharedScale())") == pytest.approx(1)


def test_sink_on_a_comma_is_named_whole_under_its_head(show: Opener) -> None:
    tokens = labelled(tuple("it was , they said , late".split()))
    maps = random_maps(tokens, heads=2, seed=0)
    scores = maps.scores.copy()
    scores[0, :, 2] += 9
    weights = softmax(scores, maps.visible, None)[0].astype(np.float32)
    recording = Recording(maps=(replace(maps, scores=scores, weights=weights),), model="a test")
    assert show(report_of(recording)).page.text_content(".thumb >> nth=0").strip() == "0.0 sink: , 1.00"


def test_arcs_are_as_strong_as_their_weights_where_colours_of_maps_are_of_lift(show: Opener) -> None:
    opened = show(report_of(large(90)))
    opened.open_head(0, "arcs")
    opened.evaluate("pin({query: 80, key: null})")
    drawn = """(() => {
        const lines = [...document.querySelectorAll(".stage-over > :last-child path")];
        const strengths = lines.map((line) => Number(line.getAttribute("stroke-opacity"))).sort((a, b) => b - a);
        return [strengths, [...scene.shown.line("query", 80)].filter((weight) => weight > 0).sort((a, b) => b - a)];
    })()"""
    found = {}
    for steps in ("sqrt", "lift"):
        opened.evaluate(f"set({{steps: '{steps}'}})")
        opened.until("scene.shown?.scale.steps === 'sqrt' && scene.current?.stage")
        strengths, weights = opened.evaluate(drawn)
        assert strengths == pytest.approx(np.sqrt(np.array(weights) / weights[0]).tolist(), abs=6e-4)
        found[steps] = len(strengths)
    assert found["lift"] == found["sqrt"] == 81


def names_of(opened: Opened) -> list[str]:
    """What stands under each thumbnail."""
    return [str(name).strip() for name in opened.page.locator(".thumb .names").all_text_contents()]


def test_page_written_with_sort_begins_in_that_order_and_heads_as_recorded_can_be_had_back(show: Opener) -> None:
    opened = show(report_of(sentence(), sort="previous"))
    numbers = [float(name.split()[1]) for name in names_of(opened)]
    assert len(numbers) == 12
    assert numbers == sorted(numbers, reverse=True)
    assert names_of(opened)[0] == "1.2 1.00"
    assert opened.evaluate("[document.querySelector('#sort').value, location.hash]") == ["previous", ""]
    assert opened.page.get_attribute(".thumb >> nth=0", "title").endswith("previous 1.00")
    opened.page.select_option("#sort", "")
    opened.until("document.querySelectorAll('.grid .name.across').length >= 4")
    numbered = [f"{layer}.{head}" for layer in range(3) for head in range(4)]
    listed = "[...document.querySelectorAll('.thumb')].map((one) => page.heads[one.dataset.number].name)"
    assert opened.evaluate(listed) == numbered
    assert opened.evaluate("location.hash") == "#sort="
    opened.page.reload()
    opened.until("document.querySelector('#sort').value === '' && document.querySelectorAll('.across').length >= 4")
    opened.evaluate("location.hash = ''")
    opened.until("document.querySelector('#sort').value === 'previous'")


def test_page_of_the_first_heads_of_an_order_has_them_as_recorded() -> None:
    report = build_report(sentence(), ReportOptions(medium=NUMBERS, sort="-previous", top=5))
    assert isinstance(report, ExactNumbers)
    places = [(head.maps.layer, head.head) for head in report.heads]
    assert len(places) == 5
    assert places == sorted(places)
    assert report.sort == "-previous"
    data = build_report(sentence(), ReportOptions(medium=Medium(draws_maps=False), sort="-previous", top=5))
    assert isinstance(data, ExactNumbers)
    assert data.sort == ""
    assert [(head.maps.layer, head.head) for head in data.heads] != places, "a file of numbers is in the order"


def test_no_number_under_a_thumbnail_is_cut(show: Opener) -> None:
    opened = show(report_of(sentence(6, 12)))
    wide = """[...document.querySelectorAll('.names > :not(.does)')].filter((part) => {
        const [inner, outer] = [part, part.parentElement].map((element) => element.getBoundingClientRect());
        return inner.width && (inner.right > outer.right + 0.5 || part.scrollWidth > part.clientWidth + 1);
    }).map((part) => part.parentElement.textContent)"""
    for place in ("", "sort=relative-entropy", "sort=previous", "filter=sink", "filter=layer:0-4"):
        opened.evaluate(f"location.hash = '{place}'")
        sort, _, chosen = place.partition("filter=")
        opened.until(f"state.filter === '{chosen}' && state.sort === '{sort.removeprefix('sort=')}'")
        for width in (1440, 1024, 390):
            opened.resize(width, 850)
            if sort:
                assert len(names_of(opened)) == 72
                assert opened.page.is_visible(".thumb .names >> nth=71")
            assert opened.evaluate(wide) == [], (place, width)


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("", ""),
        ("sort=previous", "Heads by previous"),
        ("sort=-previous&filter=layer:1", "4 of 12 heads by previous, smallest first: layer:1"),
    ],
)
def test_saved_overview_has_every_heads_name_and_what_it_is_sorted_by(page: Opened, place: str, title: str) -> None:
    page.evaluate(f"location.hash = '{place}'")
    page.until(f"document.querySelectorAll('.thumb').length === {4 if 'filter' in place else 12}")
    with page.page.expect_download() as download:
        page.page.click("#save-svg")
    drawing = ElementTree.fromstring(download.value.path().read_text())
    texts = {"".join(node.itertext()) for node in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert title in {"", *texts}
    assert ("1.2 1.00" if place else "previous 1.00") in texts
    assert {" ".join(name.split()) for name in names_of(page)} <= texts | {""}


def test_several_heads_are_titled_by_what_is_made_of_them(page: Opened) -> None:
    for together, title, legend in (
        ("side", "Heads 0.1, 1.2 side by side", "attention weight"),
        ("difference", "Head 1.2 − head 0.1", "difference of attention weight, 1.2 − 0.1"),
        ("mean", "Mean of heads 0.1, 1.2", "attention weight"),
        ("max", "Maximum of heads 0.1, 1.2", "attention weight"),
        ("rollout", "Rollout of heads 0.1, 1.2", "attention weight"),
    ):
        page.evaluate(f"location.hash = 'heads=0.1,1.2&together={together}'")
        page.until(f"state.together === '{together}' && state.pin === null && scene.current && scene.shown")
        page.settle()
        assert page.text("#head-title") == title
        assert page.page.title().startswith(f"{title} · ")
        assert page.text("#legend > span >> nth=0") == legend
        assert page.evaluate("titleOfFile()") == title
        page.evaluate("pin({query: 4, key: null})")
        assert {f"{title} · What “it” looks at", legend} <= set(texts_of(page.evaluate("svgOfView()")))


def test_the_text_shades_a_difference_of_heads_in_two_hues_by_its_sign(page: Opened) -> None:
    recording = sentence()
    page.evaluate("location.hash = 'heads=0.1,1.2&together=difference&query=it'")
    page.until("state.together === 'difference' && scene.shown && document.querySelector('.text-strip .token.chosen')")
    weights = [dense(recording, layer).weights[head, SENTENCE.index("it")] for layer, head in ((0, 1), (1, 2))]
    change = weights[1] - weights[0]
    shade = """(place) => {
        const {values, scale} = scene.strip.drawn[0].words.shading;
        return hueOf(values[place], scale);
    }"""
    hues = [page.page.evaluate(shade, place) for place in (int(change.argmax()), int(change.argmin()))]
    assert hues == ["more", "less"]


def test_lists_beside_several_heads_say_whose_they_are(page: Opened) -> None:
    recording = sentence()
    page.evaluate("location.hash = 'heads=0.1,1.2&together=side&query=it&key=cat'")
    page.until("scene.current?.stages?.length === 2 && document.querySelectorAll('.of-head').length")
    assert set(page.page.locator(".of-head").all_inner_texts()) == {"Mean of heads 0.1, 1.2"}
    mean = (dense(recording, 0).weights[1, 4] + dense(recording, 1).weights[2, 4]) / 2
    assert page.text("#text > .note").startswith(f"Shaded 0 to {100 * mean.max():.2f}%: what “it” attends to")
    assert page.page.locator("#text .shades-scale canvas").count() == 1  # the text has a legend of its own
    assert page.evaluate("scene.strip.drawn[0].words.shading.scale.high") == pytest.approx(mean.max(), rel=1e-4)
    place = page.evaluate("scene.current.stages[1].picture.placeOf({query: 4, key: 3})")
    bounds = page.page.locator(".stage-over").nth(1).bounding_box()
    cell = (bounds["x"] + place["x"] + place["width"] / 2, bounds["y"] + place["y"] + place["height"] / 2)
    page.page.mouse.move(*cell)  # a cell of the other head: numbers and shades are of what is under the pointer
    page.until("state.mark?.query === 4 && state.mark.key === 3")
    assert set(page.page.locator(".of-head").all_inner_texts()) == {"Head 1.2"}
    weight = f"{100 * dense(recording, 1).weights[2, 4, 3]:.2f}%"
    assert page.page.locator(".inspector dd").first.inner_text() == weight
    assert page.page.locator("text=/Shaded 0 .* head 1.2/").count() == 1
    page.page.locator("#text .token").nth(2).hover()  # the text is of all heads again
    page.until("scene.shown === scene.current.all")
    page.open_head(1)
    assert page.page.locator(".of-head").count() == 0


def test_a_medium_that_nothing_draws_is_refused(page: Opened) -> None:
    page.until("scene.strip")
    said = page.evaluate("""(() => {
        const text = {...page.texts[0], medium: "smell"};
        try { drawMedium(document.body, text, "", {}); } catch (error) { return error.message; }
    })()""")
    assert said == "nothing on this page draws a medium called smell"


def test_a_slider_goes_from_query_to_query_of_the_text(page: Opened) -> None:
    page.open_head(6, "text")
    slider = page.page.locator(".text-large input[type=range]")
    slider.fill("4")
    page.until("state.pin?.query === 4")
    assert slider.input_value() == "4"
    weights = dense(sentence(), 1).weights[2, 4]
    np.testing.assert_allclose(page.evaluate(SHADES), 0.78 * np.sqrt(weights / weights.max()), atol=0.01)
    slider.press("ArrowRight")
    page.until("state.pin?.query === 5")
    page.evaluate("keepToken({query: 2, key: null})")
    assert slider.input_value() == "2"


def test_layers_means_are_listed_beside_one_token_and_lead_to_their_rows(show: Opener) -> None:
    recording = sentence(layers=6, heads=12)
    opened = show(report_of(recording))
    opened.evaluate("location.hash = 'query=it'")
    opened.until("scene.shown?.whole && document.querySelectorAll('.layers li').length === 6")
    place = opened.evaluate("scene.shown.place")
    mean = dense(recording, 4).weights[:, place].mean(axis=0)
    name, colon, numbers = opened.text(".layers li:nth-child(5)").partition(":")
    assert (name, colon) == ("layer 4", ":")
    line = [name, *numbers.split()]
    assert line[1] == recording.maps[4].key_tokens.labels[int(mean.argmax())]
    assert float(line[2].rstrip("%")) == pytest.approx(100 * mean.max(), abs=0.01)
    before = opened.evaluate("scene.current.stage.element.scrollTop")
    opened.page.click(".layers li:nth-child(6) button")
    assert opened.evaluate("scene.current.stage.element.scrollTop") > before


@pytest.mark.parametrize(("tokens", "written"), [(4, True), (16, False)])
def test_many_numbers_that_round_to_zero_are_left_out_of_cells(show: Opener, tokens: int, written: bool) -> None:
    opened = show(report_of(large(tokens, heads=1, causal=False)))
    opened.resize(1920, 1080)
    opened.until("scene.current?.stage")
    opened.evaluate("scene.current.stage.picture.shown.values.fill(0.001)")
    texts = opened.evaluate(
        "(({ picture, area }) => picture.numbers(area).map(({ children }) => children[0]))(scene.current.stage)"
    )
    assert opened.evaluate("scene.current.stage.picture.numbered")
    assert texts == (["0"] * tokens**2 if written else [])


def test_command_of_a_kept_token_says_that_it_is_framed_in_the_link_alone(page: Opened) -> None:
    page.evaluate("location.hash = 'head=1.2&query=it'")
    page.until("state.pin !== null && scene.current !== null")
    page.page.click("#share-open")
    assert "It does not frame the kept token" in page.text("#share")


def test_a_view_of_a_short_text_takes_one_sheet_with_its_lists_and_caption(show: Opener) -> None:
    opened = show(report_of(sentence(layers=6, heads=12)))
    for place in ("query=it", "head=1.2&query=it", "heads=0.1,1.2&together=side", "view=maps"):
        opened.evaluate(f"location.hash = '{place}'")
        opened.until(f"location.hash === '#{place}' && (scene.current !== null || state.list === 'maps')")
        opened.settle()
        paper = opened.page.pdf(format="A4", print_background=True)
        assert paper.count(b"/Type /Page\n") == 1, place


@pytest.mark.parametrize(("tokens", "is_large"), [(12, True), (400, False)])
def test_a_short_text_has_larger_letters_in_its_view_than_in_the_strip(
    show: Opener, tokens: int, is_large: bool
) -> None:
    opened = show(report_of(large(tokens, heads=2)))
    opened.evaluate("location.hash = 'view=maps'")
    size = "parseFloat(getComputedStyle(document.querySelector('.words')).fontSize)"
    in_strip = opened.evaluate(size)
    opened.open_head(view="text")
    assert (opened.evaluate(size) > 1.4 * in_strip) == is_large
