"""How heads are chosen, filtered and let go of, what a wrong link says, few heads at first, and a page of very many."""

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.report.picture.overlays import HUES
from attnviz.text.tokens import Tokens
from tests.conftest import dense, random_maps
from tests.render.page.conftest import Opened, Opener, Shared
from tests.render.page.examples import report_of, sentence

pytestmark = pytest.mark.slow


def many(layers: int = 12, heads: int = 20) -> Recording:
    maps = [random_maps(Tokens.numbered(6), layer=layer, heads=heads, seed=layer) for layer in range(layers)]
    return Recording(maps=tuple(maps), model="a test")


def test_link_to_what_the_page_does_not_have_says_so_until_the_reader_goes_on(page: Opened) -> None:
    page.evaluate("location.hash = 'head=9.9&query=zebra&sort=mass'")
    page.until("!document.getElementById('wrong').hidden")
    said = page.text("#wrong")
    assert said == "The link names what this page does not have: no head 9.9, no query “zebra”, no metric mass."
    page.page.click(".thumb >> nth=2")
    page.until("state.head === 2")
    assert page.evaluate("document.getElementById('wrong').hidden")


def test_hint_under_the_text_says_how_heads_are_chosen_and_let_go_of(page: Opened) -> None:
    assert "Click a head, then Shift and click another, to compare them." in page.text("#keys-hint")
    for number in (1, 6):
        page.page.hover(f".thumb >> nth={number}")
        page.page.click(f".thumb:nth-of-type({number + 1}) .tick")
    assert page.evaluate("state.chosen") == [1, 6]
    assert page.text("#keys-hint").startswith("2 heads are chosen: the buttons below show them together.")
    page.press("Escape")
    assert page.evaluate("state.chosen") == []
    assert page.page.locator(".thumb.taken").count() == 0


def test_open_head_is_one_of_those_that_are_shown_together(page: Opened) -> None:
    page.page.click(".thumb >> nth=1", modifiers=["Shift"])
    page.page.click(".thumb >> nth=7")
    page.page.click("#choose-together button:text-is('Side by side')")
    page.until("scene.current?.stages?.length === 2")
    assert page.text("#head-title") == "Heads 0.1, 1.3 side by side"


def test_heads_are_added_beside_an_open_one_and_taken_away_again(page: Opened) -> None:
    page.page.click(".thumb >> nth=1", modifiers=["Shift"])
    page.page.click(".thumb >> nth=7")
    page.until("scene.shown?.number === 7")
    for number, beside in ((2, [7, 2]), (4, [7, 2, 4]), (7, [2, 4]), (2, [])):
        page.page.click(f".thumb[data-number='{number}']", modifiers=["Shift"])
        drawn = "(scene.current?.stages ?? []).map(({ picture }) => picture.shown.number)"
        page.until(f"{drawn}.join() === {beside}.join()")
    assert page.evaluate("[state.head, state.together, ...state.chosen]") == [None, None, 4]
    page.evaluate("history.back()")
    page.until("scene.current?.stages?.length === 2")


def test_a_difference_of_two_heads_becomes_three_heads_side_by_side(page: Opened) -> None:
    page.evaluate("set({ chosen: [1, 6], together: 'difference' })")
    page.page.click(".thumb[data-number='8']", modifiers=["Shift"])
    page.until("scene.current?.stages?.length === 3 && state.together === 'side'")


def test_long_touches_choose_heads_and_a_short_one_shows_another_with_them(show: Opener) -> None:
    opened = show(report_of(sentence()), has_touch=True, viewport={"width": 390, "height": 780})
    for count, number in enumerate((3, 4), start=1):
        thumb = f".thumb >> nth={number}"
        box = opened.page.locator(thumb).bounding_box()
        place = {"clientX": box["x"] + 5, "clientY": box["y"] + 5, "pointerType": "touch", "bubbles": True}
        opened.page.dispatch_event(thumb, "pointerdown", place)
        opened.until(f"state.chosen.length === {count}")
        opened.page.dispatch_event(thumb, "pointerup", place)
        opened.page.dispatch_event(thumb, "click", place)
        assert opened.evaluate("[state.head, state.together, ...state.chosen]") == [None, None, 3, 4][: 2 + count]
    opened.page.tap(".thumb >> nth=5")
    opened.until("state.together === 'side' && scene.current?.stages?.length === 3")
    opened.evaluate("set({ chosen: [3], together: null })")
    opened.page.tap(".thumb >> nth=5")
    opened.until("state.together === 'side' && scene.current?.stages?.length === 2")
    assert opened.text(".inspector .hint >> nth=0").startswith("Touch a cell")
    assert not opened.page.locator(".answer, .caption").first.is_visible(), "both heads have its place"
    opened.page.tap("#choose-together button:text-is('Difference')")
    opened.until("state.together === 'difference'")


def test_many_heads_beside_an_open_one_are_one_canvas(shared: Shared) -> None:
    opened = shared(many)
    opened.open_head(25)
    assert opened.page.locator(".side .thumb").count() == 0
    assert not opened.page.locator(".overview").is_visible()
    side = opened.evaluate("small.side + HEAD_GAP")
    opened.page.click(".small-overview", position={"x": 3.5 * side, "y": 2.5 * side})
    opened.until("scene.shown?.number === 43")
    opened.page.focus(".small-overview")
    opened.press("ArrowRight")
    opened.until("scene.shown?.number === 44")
    opened.press("Escape")
    opened.until("state.head === null")
    assert opened.page.locator(".thumb").count() == 240
    assert not opened.page.locator(".small-overview").is_visible()


def test_numbers_of_many_heads_are_drawn_where_they_are_seen(shared: Shared) -> None:
    opened = shared(many)
    opened.page.click("#choose-list button:text-is('Numbers')")
    rows = opened.page.locator("tbody tr[data-head]")
    assert 10 < rows.count() < 100
    assert opened.page.get_attribute("table", "aria-rowcount") == "241"
    opened.evaluate("document.querySelector('.scroll.fixed-rows').scrollTo(0, 1e6)")
    opened.until("document.querySelector('tbody tr[data-head=\"239\"]')")
    assert rows.count() < 100
    opened.page.click("tbody tr[data-head='239'] td >> nth=3")
    opened.until("state.head === 239")


def test_few_heads_begin_side_by_side_with_numbers(show: Opener) -> None:
    maps = random_maps(Tokens.numbered(4), heads=4)
    opened = show(report_of(Recording(maps=(maps,), model="a test")))
    opened.until("scene.current?.stages?.length === 4")
    assert opened.evaluate("scene.current.stages.every(({picture}) => picture.numbered)")
    assert opened.evaluate("location.hash") == ""
    opened.page.click("#back")
    opened.until("state.together === null")
    assert opened.evaluate("location.hash") == "#view=maps"
    opened.page.go_back()
    opened.until("scene.current?.stages?.length === 4")


def test_thumbnail_under_the_pointer_shades_the_text_and_says_its_numbers(page: Opened) -> None:
    recording = sentence()
    hint = page.text("#keys-hint")
    page.page.hover(".thumb >> nth=6")
    page.until("scene.pointed?.number === 6")
    assert page.text("#keys-hint").startswith("Head 1.2 · previous token 1.00 · entropy")
    weights, visible = dense(recording, 1).weights[2], dense(recording, 1).visible
    means = weights.sum(axis=0) / visible.sum(axis=0)
    shaded = page.evaluate("[...scene.strip.drawn[0].words.shading.values]")
    assert shaded == pytest.approx(means.tolist(), rel=1e-5)
    page.page.mouse.move(2, 2)
    page.until("scene.pointed === null")
    assert page.text("#keys-hint") == hint


def test_drag_over_a_histogram_filters_the_heads(page: Opened) -> None:
    page.page.click("#choose-list button:text-is('Numbers')")
    name = "previous"
    box = page.page.locator(f"svg[aria-label^='Histogram of {name},']").bounding_box()
    page.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 5)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] + 3, box["y"] + 5)
    page.page.mouse.up()
    low, high = (float(word.split("=")[1]) for word in page.evaluate("state.filter").split())
    values = page.evaluate(f"page.heads.map((_, head) => numberOf(head, '{name}'))")
    assert (low, high) == pytest.approx(((min(values) + max(values)) / 2, max(values)), abs=0.02)
    assert page.page.locator("tbody tr[data-head]").count() == sum(low <= value <= high for value in values) == 1
    box = page.page.locator(f"svg[aria-label^='Histogram of {name},']").bounding_box()
    page.page.mouse.click(box["x"] + 10, box["y"] + 5)
    assert page.evaluate("state.filter") == ""
    assert page.page.locator("tbody tr[data-head]").count() == 12


def test_heads_lie_over_each_other_in_a_hue_each(page: Opened) -> None:
    recording = sentence()
    page.evaluate("location.hash = 'heads=0.1,1.2,2.0&together=overlay&query=it'")
    page.until("scene.shown?.all?.length === 3 && state.pin")
    assert page.text("#head-title") == "Heads 0.1, 1.2, 2.0 overlaid"
    assert page.page.locator("#legend .swatch").count() >= 3
    query = page.evaluate("state.pin.query")
    rows = [dense(recording, layer).weights[head, query] for layer, head in ((0, 1), (1, 2), (2, 0))]
    shading = "scene.strip.drawn[0].words.shading"
    assert page.evaluate(f"[...{shading}.values]") == pytest.approx(np.max(rows, axis=0).tolist(), rel=1e-6)
    hues = page.evaluate("HUES")
    assert hues == ["#{:02x}{:02x}{:02x}".format(*hue) for hue in HUES], "those of figures"
    assert page.evaluate(f"{shading}.colors") == [hues[head] for head in np.argmax(rows, axis=0)]
    assert len(page.evaluate("scene.current.stage.picture.linesOfAll.map((lines) => lines.length)")) == 3
    svg = page.evaluate("svgOfView()")
    assert all(hue in svg for hue in hues[:3])
    assert "Head 1.2" in svg


SIZED = {
    "view=maps": {"layer", "head 0", "previous 1.00"},
    "sort=previous": {"Heads by previous"},
    "view=numbers": {"entropy"},
    "query=it": {"What “it” looks at in all heads", "layer 2, mean"},
    "head=1.2": {"tired", "100"},
    "head=1.2&view=arcs": {"queries", "tired"},
    "head=1.2&view=text&query=it": {"because"},
    "head=1.2&view=table&query=it": {"query \\ key"},
    "heads=0.1,1.2&together=side": {"Head 0.1", "Head 1.2 · previous", "token 1.00"},
    "heads=0.1,1.2&together=difference": {"Head 1.2 − head 0.1"},
    "heads=0.1,1.2&together=overlay": {"Head 0.1"},
}


def test_every_view_is_saved_as_wide_as_a_column_with_all_that_is_in_it(page: Opened) -> None:
    for address, wanted in SIZED.items():
        page.evaluate(f"location.hash = '{address}&size=column'")
        page.until("state.size === 'column' && (scene.current || state.list === 'maps')")
        page.settle()
        if "query=it" in address and "head" not in address:
            page.until("scene.shown?.whole")
        drawing = ElementTree.fromstring(page.evaluate("svgOfView()"))
        assert drawing.get("width") == "89mm", address
        texts = {"".join(element.itertext()) for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
        assert wanted <= texts, address
        beyond = page.evaluate(BEYOND)
        assert beyond == [], address
        assert page.evaluate("canvasOfView().then(({ width }) => width)") == 1051, address


def test_a_saved_table_has_every_number_in_letters_that_can_be_read(page: Opened) -> None:
    for address, cells, is_open in (
        ("view=numbers", "tbody td:not(.pattern)", "state.head === null"),
        ("head=1.2&view=table", "tbody td", "state.head !== null && !document.querySelector('tbody td.pattern')"),
    ):
        page.evaluate(f"location.hash = '{address}&size=column'")
        page.until(f"state.size === 'column' && {is_open} && document.querySelector('{cells}')")
        drawing = ElementTree.fromstring(page.evaluate("svgOfView()"))
        texts = list(drawing.iter("{http://www.w3.org/2000/svg}text"))
        shown = [line for cell in page.page.locator(cells).all_inner_texts() for line in cell.split("\n")]
        assert Counter(shown) <= Counter("".join(text.itertext()) for text in texts), address
        assert min(float(text.get("font-size", 0)) for text in texts) >= 11
        assert "scale(" not in page.evaluate("svgOfView()")


# The texts of a file that are not seen whole in it.
BEYOND = """(() => {
    const box = document.body.appendChild(document.createElement("div"));
    box.innerHTML = svgOfView().replace(/width="89mm" height="[^"]*"/, "");
    box.firstChild.style.cssText = "position: fixed; left: 0; top: 0; width: 430px; height: auto";
    const texts = [...box.querySelectorAll("text")].filter((text) => {
        const { left, right, top } = text.getBoundingClientRect();
        return left < 0 || right > 430 || top < 0;
    }).map((text) => text.textContent);
    box.remove();
    return texts;
})()"""


PICTURES = """Object.fromEntries([...document.querySelectorAll(".thumb")].map(
    (thumb) => [thumb.dataset.number, thumb.querySelector('canvas').toDataURL()]))"""


def test_thumbnails_in_the_window_are_painted_at_once_and_others_when_the_browser_is_idle(shared: Shared) -> None:
    opened = shared(many)
    opened.resize(1280, 200)
    opened.evaluate("set({steps: 'log'})")
    opened.until("grid.painted.size === page.heads.length")
    painted = """[...document.querySelectorAll(".thumb")].map((thumb) => [
        thumb.getBoundingClientRect().top < innerHeight, grid.painted.has(Number(thumb.dataset.number))])"""
    at_once = opened.evaluate(f"(set({{steps: 'linear'}}), {painted})")
    assert all(is_painted for is_seen, is_painted in at_once if is_seen)
    assert not all(is_painted for _, is_painted in at_once)
    opened.until(f"{painted}.every(([_, isPainted]) => isPainted)")


# Of the thumbnails those whose cells on the diagonal are not what the one canvas shows in their place.
OTHER_ON_SHEET = """(() => {
    const pixelsOf = (canvas) => {
        const context = newCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        const { data, width } = context.getImageData(0, 0, canvas.width, canvas.height);
        return (x, y) => new Uint32Array(data.buffer)[Math.floor(y) * width + Math.floor(x)];
    };
    const sheet = document.querySelector(".sheet");
    const [seen, { left, top }] = [pixelsOf(sheet), sheet.getBoundingClientRect()];
    return [...document.querySelectorAll(".thumb")].filter((thumb) => {
        const canvas = paintedCanvas(Number(thumb.dataset.number));
        const [own, box] = [pixelsOf(canvas), thumb.querySelector(".picture").getBoundingClientRect()];
        const [x, y, step] = [box.left - left, box.top - top, box.width / canvas.width];
        return [...Array(canvas.width).keys()].some((cell) =>
            own(cell, cell) !== seen(x + (cell + 0.5) * step, y + (cell + 0.5) * step));
    }).map((thumb) => thumb.dataset.number);
})()"""


def test_thumbnails_without_names_are_one_canvas_that_shows_each_in_its_place(shared: Shared) -> None:
    opened = shared(many)
    opened.resize(1280, 200)  # most are painted when the browser is idle
    drawn = "[...document.querySelectorAll('#overview canvas')].filter((it) => it.offsetWidth).length"
    for steps in ("linear", "log"):
        opened.evaluate(f"set({{steps: '{steps}'}})")
        opened.until("grid.painted.size === page.heads.length")
        assert opened.evaluate(OTHER_ON_SHEET) == []
        assert opened.evaluate(drawn) == 1
    opened.evaluate("set({sort: 'entropy'})")
    opened.until("document.querySelector('.many')")
    assert opened.evaluate("getComputedStyle(document.querySelectorAll('.thumb')[239]).contentVisibility") == "auto"


def test_sorted_heads_keep_their_painted_thumbnails_and_other_colours_paint_new_ones(shared: Shared) -> None:
    opened = shared(many)

    def choose(changes: str) -> None:
        opened.evaluate(f"set({changes})")
        opened.until("grid.painted.size === page.heads.length")

    choose("{sort: '-entropy'}")
    first = opened.evaluate(PICTURES)
    opened.evaluate("window.before = [...document.querySelectorAll('.thumb canvas')]")
    choose("{sort: 'entropy'}")
    assert opened.evaluate("before.length === 240 && before.every((canvas) => canvas.isConnected)")
    order = opened.evaluate("[...document.querySelectorAll('.thumb')].map((thumb) => Number(thumb.dataset.number))")
    assert order == opened.evaluate("listedHeads()") != sorted(order)
    assert opened.evaluate(PICTURES) == first
    choose("{steps: 'log', sort: '-entropy'}")
    logarithmic = opened.evaluate(PICTURES)
    assert all(logarithmic[number] != picture for number, picture in first.items())
    choose("{sort: 'entropy', steps: begun.steps}")
    assert opened.evaluate(PICTURES) == first


def test_many_lines_of_a_token_are_few_elements_with_all_of_the_lines(page: Opened) -> None:
    page.open_head(1)
    page.evaluate("set({view: 'arcs'})")
    page.until("scene.current?.stage?.picture instanceof ArcsPicture")
    drawn = page.evaluate("""(() => {
        const { picture } = scene.current.stage;
        const lines = Array.from({ length: 400 }, (_, rank) => ({ query: 0, key: rank % 3, value: 0.9 - rank / 500 }));
        return [picture.linesOf([lines], picture.scale, 1), picture.linesOf([lines], picture.scale, 1, STRENGTHS)].map(
            (paths) => paths.map(({ properties }) => [properties.d, properties["stroke-opacity"]]));
    })()""")
    each, merged = drawn
    assert len(each) == 400
    assert len(merged) <= page.evaluate("STRENGTHS")
    assert "".join(path for path, _ in each) == "".join(path for path, _ in merged)
    merged_opacities = [opacity for path, opacity in merged for _ in range(path.count("M"))]
    assert all(0 <= own - other <= 1 / 32 + 0.001 for (_, other), own in zip(each, merged_opacities, strict=True))
