"""Figures as trees: a move patches marks alone, a part is saved as it is seen, and motion says where a map is from."""

from typing import Any

import pytest

from attnviz.maps.recording import Recording
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import large, long_maps, report_of

pytestmark = pytest.mark.slow

WATCHED = """(() => {
    window.changed = new Set();
    const [base, marks] = document.querySelector(".stage-over").children;
    const watch = (element, name) => new MutationObserver(() => changed.add(name)).observe(
        element, { subtree: true, childList: true, attributes: true, characterData: true });
    watch(base, "base"); watch(marks, "marks");
    const draw = CanvasRenderingContext2D.prototype.drawImage;
    CanvasRenderingContext2D.prototype.drawImage = function (...given) {
        if (this.canvas.className === "stage-base") changed.add("cells");
        draw.apply(this, given);
    };
})()"""


@pytest.mark.parametrize("address", ["head=1.2", "query=it"])
def test_a_move_of_the_pointer_changes_marks_alone(page: Opened, address: str) -> None:
    page.evaluate(f"location.hash = '{address}'")
    page.until("scene.current?.stage && (scene.shown.whole ?? true)")
    page.settle()
    page.evaluate(WATCHED)
    for query, key in ((3, 5), (4, 2)):
        page.page.mouse.move(*page.evaluate(MIDDLE.format(query, key)))
        page.settle()
    assert page.evaluate("[...changed]") == ["marks"]


MIDDLE = """(({{ picture, viewport }}) => {{
    const {{ x, y }} = viewport.getBoundingClientRect();
    return [x + picture.left + ({1} + 0.5) * picture.wide, y + picture.top + ({0} + 0.5) * picture.tall];
}})(scene.current.stage)"""


@pytest.mark.parametrize(("size", "width"), [("", None), ("column", 430 - 56), ("slide", 960 - 56)])
def test_a_part_that_is_enlarged_is_saved_with_the_same_cells(show: Opener, size: str, width: int | None) -> None:
    opened = show(report_of(large(60)))
    opened.open_head(0)
    opened.evaluate(f"set({{size: '{size}'}})")
    opened.evaluate("scene.current.stage.showAt({query: 40, key: 30}, 4, [400, 300])")
    stage, picture, area = opened.evaluate(
        "(({ area, picture }) => { const copy = picture.inFile();"
        " const format = chosenFormat(), room = format ? format.drawn - 2 * FRAME : 0;"
        " const saved = areaOf(scene.current.stage, copy, format, room, 900);"
        " const cells = (picture, { x, y, width, height }) => [x / picture.wide, y / picture.tall,"
        " (width - picture.left) / picture.wide, (height - picture.top) / picture.tall];"
        " return [cells(picture, area), cells(copy, saved), saved]; })(scene.current.stage)"
    )
    assert picture == pytest.approx(stage, abs=0.01)
    assert stage[0] > 1
    assert width in (None, round(area["width"]))


STEPS = """(({ picture, area }) =>
    [...new Set(picture.places("key", area).slice(1).map(({ place }, at) => place / (at + 1)))])"""


@pytest.mark.parametrize(("tokens", "width", "step"), [(40, 1280, 1), (300, 1280, 5), (900, 800, 50)])
def test_labels_of_long_axes_stand_in_round_steps_and_far_apart_are_positions(
    show: Opener, tokens: int, width: int, step: int
) -> None:
    opened = show(report_of(large(tokens, heads=2)), viewport={"width": width, "height": 850})
    opened.open_head(0)
    assert opened.evaluate(f"{STEPS}(scene.current.stage)") == [step]
    texts = opened.evaluate(
        "scene.current.stage.picture.places('key', scene.current.stage.area).map(({ text }) => text)"
    )
    assert texts[:3] == [str(step * place) for place in range(3)]


MOVES = """(() => {
    window.moves = [];
    const animate = Element.prototype.animate;
    Element.prototype.animate = function (frames, { duration }) {
        const { x, y, width, height } = this.getBoundingClientRect();
        moves.push([frames[0].transform, Math.round(width), Math.round(height), duration, this.style.left]);
        return animate.call(this, frames, { duration });
    };
})()"""


@pytest.mark.parametrize(("motion", "glides"), [("no-preference", 2), ("reduce", 0)])
def test_a_thumbnail_grows_into_its_map_and_shrinks_back(page: Opened, motion: Any, glides: int) -> None:
    page.page.emulate_media(reduced_motion=motion)
    page.show_maps()
    page.evaluate(MOVES)
    page.page.click(".thumb >> nth=6")
    page.until("scene.current?.stage")
    page.settle()
    page.page.click("#back")
    page.until("state.head === null && document.activeElement.matches('.thumb')")
    moves = page.evaluate("moves")
    assert len(moves) == glides
    if moves:
        grown, shrunk = moves
        assert grown[1] > 3 * shrunk[1]
        assert {grown[3], shrunk[3]} == {180}
        page.until("!document.querySelector('.gliding')")
    page.page.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize(("motion", "is_clicked"), [("no-preference", False), ("reduce", True)])
def test_enter_flies_to_a_cell_of_a_long_map(show: Opener, motion: Any, is_clicked: bool) -> None:
    opened = show(report_of(Recording(maps=(long_maps(queries=900, keys=950),), model="a test")))
    opened.page.emulate_media(reduced_motion=motion)
    opened.open_head(0)
    opened.until("scene.current.stage.picture.whole")
    opened.evaluate("scene.current.stage.element.focus(); set({mark: {query: 640, key: 250}})")
    if is_clicked:
        opened.evaluate("set({mark: null, pin: {query: 640, key: 250}})")
    opened.press("Enter")
    opened.until("scene.current.stage.picture.cell >= 30 && scene.current.stage.picture.whole")
    assert opened.evaluate("state.pin") == {"query": 640, "key": 250}
    assert is_seen(opened, 640, 250)
    opened.page.emulate_media(reduced_motion="no-preference")


def is_seen(opened: Opened, query: int, key: int) -> bool:
    return bool(
        opened.evaluate(
            f"(({{ picture, area }}) => {{ const {{ x, y }} = picture.placeOf({{ query: {query}, key: {key} }});"
            " return x > area.x + picture.left && x < area.x + area.width && y > area.y + picture.top"
            " && y < area.y + area.height; })(scene.current.stage)"
        )
    )


def test_labels_of_the_last_row_and_column_are_whole_where_they_are_marked(show: Opener) -> None:
    opened = show(report_of(large(300)))
    opened.open_head(0)
    opened.evaluate("set({ pin: { query: 299, key: 299 } })")
    opened.settle()
    beyond = opened.evaluate(
        "(() => { const { area } = scene.current.stage; const over = document.querySelector('.stage-over');"
        " const { left, top } = over.getBoundingClientRect();"
        " return [...over.querySelectorAll('text')].map((text) => text.getBoundingClientRect())"
        ".filter(({ right, bottom }) => right - left > area.width + 1 || bottom - top > area.height + 1).length; })()"
    )
    assert beyond == 0


@pytest.mark.parametrize("size", ["column", "page", "slide"])
def test_titles_of_heads_side_by_side_are_whole_in_a_saved_figure(page: Opened, size: str) -> None:
    page.evaluate(f"set({{ chosen: [1, 6, 2, 7], together: 'side', size: '{size}' }})")
    page.until("scene.current?.stages?.length === 4")
    texts = page.evaluate(
        "[...new DOMParser().parseFromString(svgOfView(), 'image/svg+xml').querySelectorAll('text')]"
        ".map((text) => text.textContent).join(' ')"
    )
    assert "Head 1.2 · previous token 1.00" in texts
