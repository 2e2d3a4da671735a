import io
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.figure.picture import THEME_COLORS, picture_of, rgb
from attnviz.render.figure.thumbnails import (
    COLOR_LEVELS,
    HATCH_INDEX,
    Sheet,
    arrange_thumbnails,
    paint_sheet,
    palette,
)
from attnviz.render.figure.words import POINTS_PER_INCH, PillowRuler
from attnviz.render.formats import draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.colors import NAN
from attnviz.report.picture.look import Look, parse_size
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import cells
from tests.patience import PATIENCE
from tests.report.examples import drawn
from tests.today import todays

ACROSS_LAYERS = ",".join(f"{layer}.{head}" for head in range(7) for layer in range(5))
UNNUMBERED = "Maps are too small for head numbers; use a larger size to see them."


@cache
def recorded(layers: int, heads: int, queries: int, keys: int, causal: bool = False) -> Recording:
    random = np.random.default_rng(0)
    visible = np.tri(queries, keys, dtype=bool) if causal else np.ones((queries, keys), dtype=bool)
    axes = {"query_tokens": Tokens.numbered(queries), "key_tokens": Tokens.numbered(keys)}
    maps = []
    for layer in range(layers):
        powers = np.where(visible, random.random((heads, queries, keys)) ** 4, 0).astype(np.float32)
        weights = (powers / powers.sum(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)
        numbers = {"heads": tuple(range(heads)), "scores": powers, "weights": weights, "visible": visible}
        maps.append(DenseMaps(layer=layer, module="m", **axes, **numbers))  # type: ignore[arg-type]
    return Recording(maps=tuple(maps), model="a test")


def report_of(recording: Recording, sort: str | None = None, **look: Any) -> DrawnReport:
    chosen = Look(**look)
    report = build_report(recording, ReportOptions(look=chosen, medium=medium_of(".png", chosen), sort=sort))
    assert isinstance(report, DrawnReport)
    assert report.kind == "thumbnails"
    return report


def arrange_sheet(picture: DrawnReport) -> Sheet:
    return paint_sheet(arrange_thumbnails(picture, PillowRuler()), picture.look.pixels_per_inch)


def sheet_of(report: DrawnReport) -> Sheet:
    return arrange_sheet(picture_of(report))


def text_width(text: str, size: int, bold: bool = False) -> float:
    """The width of a text in pixels."""
    return PillowRuler().width(text, size, bold) * POINTS_PER_INCH


def corner(sheet: Sheet, title: str) -> tuple[int, int]:
    """The upper left pixel of the thumbnail under a number: inside the frame below it."""
    [mark] = [mark for mark in sheet.texts if mark.text == title]
    y = round(mark.y)
    while sheet.pixels[y, round(mark.x)] > COLOR_LEVELS + 2:
        y += 1
    return y + 1, round(mark.x)


@pytest.mark.parametrize(
    ("layers", "heads", "size", "blocks"),
    [
        (18, 4, "16:9", 3),
        (18, 4, None, 2),
        (18, 4, "column", 2),
        (12, 12, "16:9", 2),
        (6, 12, None, 1),
        (40, 1, None, 5),
    ],
)
def test_layers_of_few_heads_stand_in_blocks_that_fill_the_page(
    layers: int, heads: int, size: str | None, blocks: int
) -> None:
    picture = picture_of(report_of(recorded(layers, heads, 8, 8), size=size))
    page = arrange_thumbnails(picture, PillowRuler())
    boxes = [placed.box for placed in page.content.panels]
    assert len({round(box.x, 3) for box in boxes}) == blocks * heads
    assert len({round(box.y, 3) for box in boxes}) == -(-layers // blocks)
    for first in range(0, len(boxes), heads):  # the heads of a layer stay side by side
        assert len({round(box.y, 3) for box in boxes[first : first + heads]}) == 1
    assert all(box.x >= 0 and box.x + box.width <= page.width for box in boxes)
    [bar] = page.bars
    assert sum(box.width * box.height for box in boxes) > 0.2 * page.width * page.height
    assert bar.box.width * bar.box.height < 3 * max(box.width * box.height for box in boxes)


@pytest.mark.parametrize("dpi", [100, 300])
def test_pixels_per_inch_change_the_pixels_of_a_sheet_and_not_its_inches(dpi: int) -> None:
    usual, chosen = (
        Image.open(io.BytesIO(draw(report_of(recorded(6, 12, 10, 10), dpi=each), ".png"))) for each in (None, dpi)
    )
    assert chosen.info["dpi"] == pytest.approx((dpi, dpi), abs=0.01)
    assert [side / dpi for side in chosen.size] == pytest.approx([side / 200 for side in usual.size], rel=0.05)


def test_a_sheet_of_too_many_pixels_names_the_pixels_per_inch_that_fit() -> None:
    with pytest.raises(AttnvizError, match=r"at dpi=2400 has \d+ million pixels, more than 150 million; use dpi=\d+"):
        draw(report_of(recorded(6, 12, 10, 10), dpi=2400), ".png")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_thumbnail_is_its_head_with_queries_down_and_keys_across(theme: str) -> None:
    report = report_of(recorded(5, 7, 4, 6, causal=True), theme=theme)
    picture = np.asarray(Image.open(io.BytesIO(draw(report, ".png"))).convert("RGB"))
    sheet = sheet_of(report)
    for panel in report.panels[::9]:
        y, x = corner(sheet, panel.title)
        run = int(np.argmax(sheet.pixels[y : y + 400, x] != sheet.pixels[y, x]))  # the first column has no equal cells
        for row in range(4):
            for column in range(6):
                seen = picture[y + run * row + run // 2, x + run * column + run // 2].astype(int)
                if column > row:
                    assert tuple(seen) in {rgb(THEME_COLORS[theme]["absent"]), rgb(THEME_COLORS[theme]["hatch"])}
                else:
                    wanted = panel.scale.rgb(panel.values[row, column]).astype(int)
                    assert np.abs(seen - wanted).max() <= 6, "one of the palette's steps"


def test_layers_run_down_and_heads_across_and_rows_are_named_only_where_the_heads_do_not_name_the_layer() -> None:
    report = report_of(recorded(5, 7, 4, 6))
    at = {mark.text: (mark.x, mark.y) for mark in sheet_of(report).texts}
    assert at["0.0"][1] == at["0.6"][1] < at["1.0"][1] < at["2.0"][1]
    assert at["0.0"][0] == at["2.0"][0] < at["0.1"][0] < at["0.6"][0]
    assert not {"layer 0", "layer 1", "layer 2"} & set(at)
    panels = (
        replace(panel, group=f"{panel.group}, cross", heading=replace(panel.heading, names_group=False))
        for panel in report.panels
    )
    named = replace(report, panels=tuple(panels))
    marks = {mark.text: mark for mark in sheet_of(named).texts}
    assert marks["layer 0, cross"].x < marks["0.0"].x


@pytest.mark.parametrize("size", todays([None, "16:9", "1:1", "4x3", "column"], one_in=2))
@pytest.mark.parametrize("shape", [(12, 12, 30, 30), (2, 40, 3, 9), (32, 32, 16, 16)])
def test_numbers_keep_clear_of_each_other_and_of_the_thumbnails(
    size: str | None, shape: tuple[int, int, int, int]
) -> None:
    report = report_of(recorded(*shape), size="page" if size == "column" and shape[0] == 32 else size)
    sheet = sheet_of(report)
    if size == "column":
        assert sheet.pixels.shape[1] in (3.5 * 200, 7 * 200)
    elif size is not None:
        width, height = parse_size(size, 200)
        assert sheet.pixels.shape == (round(height * 200), round(width * 200))
    titles = {panel.title for panel in report.panels}
    boxes = [
        (mark.x, mark.y, mark.x + text_width(mark.text, mark.size), mark.y + mark.size)
        for mark in sheet.texts
        if mark.text in titles
    ]
    rows: dict[float, list[tuple[float, ...]]] = {}
    for box in boxes:
        rows.setdefault(box[3], []).append(box)
        assert (sheet.pixels[round(box[1]) : round(box[3]), round(box[0])] > COLOR_LEVELS + 2).all(), "on paper"
        assert 0 <= box[0] <= box[2] <= sheet.pixels.shape[1]
    for row in rows.values():
        row.sort()
        assert all(one[2] <= two[0] for one, two in pairwise(row))


def test_the_same_report_gives_the_same_palette_picture_with_its_caption_and_a_vector_keeps_its_text() -> None:
    report = report_of(recorded(5, 7, 4, 6), title="$x$ ✓")
    assert draw(report, ".png") == draw(report, ".png")
    picture = Image.open(io.BytesIO(draw(report, ".png")))
    assert picture.mode == "P"
    assert picture.info["Description"] == " ".join((report.caption, *report.remarks))
    assert picture.info["Title"] == "$x$ ✓"
    svg = draw(report, ".svg").decode()
    assert svg.count("<image") == 2, "one of all thumbnails, and the colour bar"
    assert ">2.6</text>" in svg
    assert ">1.6</text>" in svg


def test_nan_and_absence_have_colours_of_their_own() -> None:
    recording = recorded.__wrapped__(5, 7, 4, 6, causal=True)  # not the one of other tests, since it is changed
    recording.maps[1].weights.setflags(write=True)  # type: ignore[attr-defined]
    recording.maps[1].weights[2, 3, 0] = np.nan  # type: ignore[attr-defined]
    report = report_of(recording)
    sheet, colors = sheet_of(report), palette(picture_of(report))
    assert (colors[sheet.pixels] == NAN).all(axis=-1).any()
    assert (sheet.pixels == HATCH_INDEX).any()
    assert "NaN: 1 cell is not a number, drawn pink (as ? without colour)." in report.remarks


def test_long_inputs_are_pooled_to_the_pixels_of_a_thumbnail_and_that_is_said() -> None:
    report = report_of(recorded(5, 7, 300, 200))
    assert report.panels[0].values.shape == (100, 100)
    assert any("Pooled: 300 x 200 tokens in 100 x 100 cells" in remark for remark in report.remarks)


@pytest.mark.parametrize(
    ("layers", "heads", "kind", "filled", "first"),
    [
        (3, "0-6", "maps", False, None),
        (5, "0-6", "thumbnails", False, ["0.0", "0.1", "0.2"]),
        (
            5,
            ",".join(f"{layer}.{head}" for head in range(7) for layer in range(5)),
            "thumbnails",
            True,
            ["0.0", "1.0", "2.0"],
        ),
    ],
    ids=["that fit a page", "of layers in turn", "across layers"],
)
def test_chosen_heads_that_fit_no_page_become_thumbnails_and_fill_rows_if_they_are_chosen_across_layers(
    layers: int, heads: str, kind: str, filled: bool, first: list[str] | None
) -> None:
    options = ReportOptions(selection=Selection.parse(heads=heads), medium=Medium(one_page=True))
    report = drawn(build_report(recorded(layers, 7, 2, 3), options))
    assert report.kind == kind
    if report.kind == "thumbnails":
        assert report.filled == filled
        assert [panel.title for panel in report.panels[:3]] == first


def test_an_overview_needs_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from tests.render.figure.test_thumbnails import *; "
        "draw(report_of(recorded(5, 7, 4, 6)), '.png'); assert not {'matplotlib', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("sort", [None, "change"])
def test_a_comparison_of_many_heads_is_an_overview_of_what_changed_and_fills_rows_if_it_is_sorted(
    sort: str | None,
) -> None:
    a, b = recorded(3, 7, 4, 6), recorded(3, 7, 4, 6, causal=True)
    report = comparison_report(a, b, "--causal", ReportOptions(medium=Medium(one_page=True), sort=sort))
    assert isinstance(report, DrawnReport)
    assert report.kind == "thumbnails"
    assert report.filled == bool(sort)
    if sort:
        assert report.remarks[0] == "Sorted by change, largest first; the number after each head is its value."
        assert report.summary is not None
        for panel, (head, variation, *_) in zip(report.panels, report.summary.rows, strict=True):
            assert panel.heading.name == head
            assert float(panel.heading.note) == pytest.approx(float(variation), abs=0.0006)
        return
    assert report.remarks[0].startswith("Each thumbnail shows the change, B − A")
    assert [panel.title for panel in report.panels] == [f"{layer}.{head}" for layer in range(3) for head in range(7)]
    assert {panel.group for panel in report.panels} == {"layer 0", "layer 1", "layer 2"}
    block = ((2,), slice(0, 4), slice(0, 6))
    wanted = cells(b, 1).window(*block).weights - cells(a, 1).window(*block).weights
    assert np.array_equal(report.panels[9].values, wanted[0])
    sheet = sheet_of(report)
    ends = [mark.x + text_width(mark.text, mark.size, mark.bold) for mark in sheet.texts if mark.anchor[0] == "l"]
    assert max(ends) <= sheet.pixels.shape[1]


def test_thumbnails_too_small_for_numbers_have_those_of_their_columns() -> None:
    small = {mark.text: mark for mark in sheet_of(report_of(recorded(9, 12, 30, 30), size="8x6", dpi=60)).texts}
    assert {"0", "11", "head", "layer 8"} <= set(small)
    assert "0.11" not in small
    assert small["0"].y == small["11"].y < small["layer 0"].y
    large = {mark.text for mark in sheet_of(report_of(recorded(9, 12, 30, 30), size="8x6", dpi=200)).texts}
    assert {"0.0", "8.11"} <= large
    assert "11" not in large


def test_columns_have_the_numbers_of_heads_whatever_their_titles_say() -> None:
    report = report_of(recorded(12, 12, 5, 5), size="2.6in")
    renamed = (
        replace(panel, heading=replace(panel.heading, name=f"{panel.heading.name} · mover 2.{index}"))
        for index, panel in enumerate(report.panels)
    )
    texts, renamed_texts = (
        {mark.text for mark in sheet_of(shown).texts} for shown in (report, replace(report, panels=tuple(renamed)))
    )
    assert {"0", "11", "head", "layer 8"} <= texts == renamed_texts


@pytest.mark.parametrize(
    ("sort", "dpi", "is_chequered", "says_so", "has_columns"),
    [(None, 60, False, False, True), (None, 60, True, True, False), ("previous", 40, False, True, False)],
    ids=["numbers of columns", "no column has one number", "sorted"],
)
def test_thumbnails_that_nothing_can_number_say_so(
    sort: str | None, dpi: int, is_chequered: bool, says_so: bool, has_columns: bool
) -> None:
    report = report_of(recorded(9, 12, 30, 30), sort=sort, size="8x6", dpi=dpi)
    if is_chequered:
        report = replace(report, panels=report.panels[1::2][:6] + report.panels[12::2])
    texts = [mark.text for mark in sheet_of(report).texts]
    assert (UNNUMBERED in " ".join(texts)) == says_so
    assert ("head" in texts) == has_columns


def test_a_long_row_of_heads_is_cut_into_bands_that_fill_the_page() -> None:
    sheet = sheet_of(report_of(recorded(1, 300, 2, 3)))
    places = {mark.text: (mark.y, mark.x) for mark in sheet.texts if mark.text.startswith("0.")}
    assert len(places) == 300
    across = len({x for _, x in places.values()})
    assert places["0.0"] == min(places.values())
    assert places[f"0.{across}"][0] > places[f"0.{across - 1}"][0]  # a new band
    assert 0.5 < sheet.pixels.shape[0] / sheet.pixels.shape[1] < 2


def test_layers_stay_whole_where_cutting_them_gains_little() -> None:
    sheet = sheet_of(report_of(recorded(12, 30, 2, 3)))
    places = {mark.text: mark.y for mark in sheet.texts}
    assert places["3.0"] == places["3.29"] < places["4.0"]


def test_more_heads_than_a_page_has_room_for_are_refused_and_one_head_is_told_of_no_fewer_heads() -> None:
    with pytest.raises(AttnvizError, match="720 heads do not fit that size; use a larger one, or fewer heads with"):
        sheet_of(report_of(recorded(12, 60, 2, 3), size="4x3", dpi=72))
    picture = picture_of(report_of(recorded(2, 60, 2, 3), size="2x2", dpi=20))
    with pytest.raises(AttnvizError, match=r"1 head does not fit that size; use a larger one$"):
        arrange_sheet(replace(picture, panels=picture.panels[:1], remarks=("remark " * 200,)))


@pytest.mark.parametrize("size", [None, "16:9", "page"])
def test_sorted_heads_fill_rows_in_their_order_each_with_its_name_and_number(size: str | None) -> None:
    report = report_of(recorded(6, 12, 20, 30), sort="previous", size=size)
    titles = [panel.title for panel in report.panels]
    numbers = [float(title.partition(" · ")[2]) for title in titles]
    assert numbers == sorted(numbers, reverse=True)
    sheet = sheet_of(report)
    marks = {mark.text: mark for mark in sheet.texts}
    read = sorted(titles, key=lambda title: (marks[title].y, marks[title].x))
    assert read == titles
    rows = [len(list(row)) for _, row in groupby(read, key=lambda title: marks[title].y)]
    assert len(rows) <= 9, "no row begins at a change of layer"
    assert set(rows[:-1]) == {rows[0]}
    assert not [text for text in marks if text.startswith("layer")]
    for one, two in pairwise(titles):
        if marks[one].y == marks[two].y:
            assert marks[one].x + text_width(one, marks[one].size) <= marks[two].x
    assert report.remarks[0] == "Sorted by previous, largest first; the number after each head is its value."


def test_names_stay_where_there_is_no_room_for_the_numbers_that_order_heads() -> None:
    report = report_of(recorded(6, 12, 20, 30), sort="-previous", size="2.6in")
    marks = {mark.text for mark in sheet_of(report).texts}
    assert {panel.heading.name for panel in report.panels} <= marks
    assert "Sorted by previous, smallest first;" in " ".join(report.remarks)
    assert "Maps are too small for the values by which heads are sorted" in " ".join(
        mark.text for mark in sheet_of(report).texts if mark.faint
    )


def test_a_column_has_whole_layers_in_a_row_over_its_colour_bar() -> None:
    report = report_of(recorded(6, 12, 20, 20), size="column")
    sheet = sheet_of(report)
    marks = {mark.text: mark for mark in sheet.texts}
    rows = {marks[f"layer {layer}"].y for layer in range(6)}
    assert len(rows) == 6, "one row for each layer"
    assert marks["attention weight"].y > max(rows), "the bar takes no width from the maps"
    assert marks["attention weight"].size <= marks["layer 0"].size


@pytest.mark.parametrize("look", [{}, {"size": "column"}], ids=["bar beside", "bar below"])
def test_bar_of_heads_with_their_own_scales_names_no_limits_of_one_head(look: dict[str, Any]) -> None:
    report = report_of(recorded(6, 6, 16, 16, causal=True), limits="head", **look)
    assert len({panel.scale for panel in report.panels}) == 36
    assert [panel.title for panel in report.panels[:2]] == ["0.0", "0.1"]
    texts = [mark.text for mark in sheet_of(report).texts]
    assert {"0%", "largest"} <= set(texts)
    assert [text for text in texts if text.endswith("%")] == ["0%"]
