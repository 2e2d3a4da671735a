"""The layout of pages of maps: titles are whole, and colour bars and their letters keep their places."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from attnviz.maps.recording import Recording
from attnviz.render.figure.draw import figure
from attnviz.render.figure.maps import arrange_maps
from attnviz.render.figure.page import Page, PlacedPanel
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import medium_of
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.heads.lists import labelled_panel
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Axis, Panel
from attnviz.report.picture.report import DrawnReport
from attnviz.report.picture.scales import share_scales
from attnviz.report.survey.tables import MAX_ROWS, SHARE
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import random_maps
from tests.report.examples import drawn

TEXT = "one two three two one two three two five six"


def recording(seed: int = 0) -> Recording:
    maps = tuple(random_maps(tokenize(TEXT), layer=layer, heads=12, seed=seed) for layer in range(6))
    return Recording(maps=maps, model="a test")


def options(**chosen: Any) -> ReportOptions:
    look = Look(size=chosen.pop("size", None))
    return ReportOptions(look=look, medium=medium_of(".png", look), **chosen)


def atlas_report(**chosen: Any) -> DrawnReport:
    return drawn(heads_report((recording(),), options(**chosen)))


def atlas(**chosen: Any) -> Page:
    return arrange_maps(picture_of(atlas_report(**chosen)), Ruler(("DejaVu Sans",)))


def compared(**chosen: Any) -> Page:
    report = comparison_report(recording(), recording(seed=9), "the change", options(top=1, sort="change", **chosen))
    return arrange_maps(picture_of(drawn(report)), Ruler(("DejaVu Sans",)))


@pytest.mark.parametrize("layout_of", [atlas, compared])
def test_titles_in_a_column_are_whole(layout_of: Any) -> None:
    layout = layout_of(size="column")
    assert [placed.title.replace("\n", " ") for placed in layout.content.panels] == [
        placed.panel.heading.shortened().text for placed in layout.content.panels
    ]


@pytest.mark.parametrize("layout_of", [atlas, compared])
def test_colour_bars_of_a_column_are_side_by_side_under_the_panels_with_small_letters(layout_of: Any) -> None:
    layout = layout_of(size="column")
    assert len(layout.bars) > 1
    lowest_panel = min(placed.box.y for placed in layout.content.panels)
    assert all(bar.box.y + bar.box.height < lowest_panel for bar in layout.bars)
    for left, right in pairwise(layout.bars):
        assert left.box.x + left.box.width < right.box.x
    assert all(bar.points <= layout.content.points for bar in layout.bars)


def test_the_header_of_a_summary_is_faint_and_its_numbers_are_not() -> None:
    styles = {line.text: (line.faint, line.bold) for line in compared().lines}
    assert styles["max variation"] == (True, False)
    [head] = {placed.panel.heading.head for placed in compared().content.panels}
    assert styles[head] == (False, False)


@pytest.mark.parametrize("layout_of", [atlas, compared])
def test_names_of_axes_are_no_larger_than_titles_or_labels(layout_of: Any) -> None:
    for size in (None, "column", "16:9"):
        layout = layout_of(size=size)
        assert layout.content.name_points <= max(layout.content.title_points, layout.content.points)


@pytest.mark.parametrize("chosen", [{}, {"all": True}, {"size": "16:9"}])
def test_colour_bars_beside_the_panels_leave_space_for_their_names(chosen: dict[str, Any]) -> None:
    bars = atlas(**chosen).bars
    for upper, lower in pairwise(bars):
        name = len(lower.name) * lower.points * 1.3 / 72
        assert upper.box.y - upper.points / 144 > lower.box.y + lower.box.height + name


def test_an_atlas_shows_eight_metrics_and_its_bars_say_which_panels_they_serve() -> None:
    report = drawn(heads_report((recording(),), options()))
    assert len(report.panels) == 8
    assert "Showing 8 of 14 metrics; use" in report.remarks[0]
    assert {panel.quantity.name for panel in report.panels} == {
        "entropy: bits",
        "distance: tokens",
        "all others: share of a query's weight",
    }
    assert len(drawn(heads_report((recording(),), options(all=True))).panels) == 14
    sorted_by_locality = drawn(heads_report((recording(),), options(sort="locality")))
    assert "locality" in {panel.title for panel in sorted_by_locality.panels}


TEXTS = ("one two", "one two three four", TEXT)


def batch() -> Page:
    maps = tuple(replace(random_maps(tokenize(text), heads=2), item=item) for item, text in enumerate(TEXTS))
    report = build_report(Recording(maps=maps, model="a test"), options())
    return arrange_maps(picture_of(drawn(report)), Ruler(("DejaVu Sans",)))


def test_texts_of_different_lengths_have_a_row_and_maps_of_one_size_each() -> None:
    layout = batch()
    sides = [placed.box.width for placed in layout.content.panels]
    assert max(sides) <= min(sides) * 1.01, "the map of the shortest text is as large as that of the longest"
    for text, (first, second) in zip(TEXTS, batched_pairs(layout), strict=True):
        assert first.box.y == pytest.approx(second.box.y)
        assert f"· {text[:30]}" in first.panel.title, "every map names its text"


def batched_pairs(layout: Page) -> list[tuple[PlacedPanel, PlacedPanel]]:
    return list(zip(layout.content.panels[::2], layout.content.panels[1::2], strict=True))


def test_short_texts_keep_their_tokens_beside_a_text_that_has_positions() -> None:
    maps = tuple(
        replace(random_maps(tokenize(text), heads=4), item=item)
        for item, text in enumerate((TEXT, " ".join([TEXT] * 20)))
    )
    report = build_report(Recording(maps=maps, model="a test"), options(size="column"))
    layout = arrange_maps(picture_of(drawn(report)), Ruler(("DejaVu Sans",)))
    texts = [placed.columns.texts for placed in layout.content.panels if placed.columns]
    assert any(set(shown) <= set(TEXT.split()) for shown in texts)
    assert any(all(text.isdigit() for text in shown) for shown in texts)


def test_space_beside_a_map_is_that_of_the_labels_that_are_shown() -> None:
    words = " ".join(f"a{'b' * 12 if place % 3 == 1 else place}" for place in range(60))
    report = build_report(
        Recording(maps=(random_maps(tokenize(words), heads=4),), model="a test"), options(size="16:9")
    )
    layout = arrange_maps(picture_of(drawn(report)), Ruler(("DejaVu Sans",)))
    placed = layout.content.panels[-1]
    assert placed.columns is not None
    shown = Ruler(("DejaVu Sans",)).longest_width(placed.columns.texts, layout.content.points)
    assert placed.columns.depth <= max(shown, layout.content.points * 1.18 / 72) + 0.01


def test_letters_of_a_colour_bar_are_no_larger_than_the_names_of_axes() -> None:
    layout = batch()
    assert all(bar.points <= layout.content.name_points for bar in layout.bars)


def test_a_head_on_a_slide_has_every_label_and_more_than_half_of_its_height() -> None:
    words = " ".join(f"word{place}" for place in range(34))
    report = drawn(build_report(Recording(maps=(random_maps(tokenize(words), heads=1),), model="a test"), options()))
    slide = (13.333 / 2, 6.5 / 2)  # a picture of a slide is laid out at half its size
    bare = replace(picture_of(report), title="", source="", remarks=(), look=Look(frame=slide, dpi=600))
    [placed] = arrange_maps(bare, Ruler(("DejaVu Sans",))).content.panels
    assert placed.rows is not None
    assert placed.columns is not None
    assert len(placed.rows.texts) == len(placed.columns.texts) == 34
    assert placed.box.height > 0.55 * 7.5 / 2


@pytest.mark.parametrize(
    ("label", "points"), [("it", 18), ("2 We walked all", 14), ("2 We walked all day in the hills", 12)]
)
def test_labels_of_rows_are_made_smaller_before_they_are_cut(label: str, points: float) -> None:
    rows = ("sentences", [label, "3 Then"])
    panel = labelled_panel("looks at", np.eye(2), rows, ("earlier sentences", ["1", "2"]), SHARE)
    picture = replace(picture_of(atlas_report()), panels=share_scales([panel, panel], Look()), title="")
    content = arrange_maps(picture, Ruler(("DejaVu Sans",))).content
    assert content.panels[0].rows is not None
    assert content.points == points
    assert (content.panels[0].rows.texts[0] == label) == (points > 12)


def test_the_line_around_a_thin_row_does_not_hide_it() -> None:
    tokens = Tokens.numbered(200)
    report = build_report(Recording(maps=(random_maps(tokens, heads=1),), model="a test"), options())
    assert isinstance(report, DrawnReport)
    [panel] = report.panels
    drawing = figure(replace(report, panels=(replace(panel, marked=(150, None)),)))
    axes = drawing.axes[0]
    [frame] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    pixels_of_line = frame.get_linewidth() * drawing.dpi / 72
    (left, bottom), (right, top) = frame.get_window_extent().get_points()
    row_top, row_bottom = axes.transData.transform([(0, 149.5), (0, 150.5)])[:, 1]
    assert row_top - row_bottom < 2 * pixels_of_line
    np.testing.assert_allclose([bottom, top], [row_bottom - pixels_of_line / 2, row_top + pixels_of_line / 2])
    assert left < axes.bbox.x0 < axes.bbox.x1 < right


def arranged_panels(*panels: Panel, **look: Any) -> tuple[PlacedPanel, ...]:
    report = DrawnReport(kind="maps", title="a title", panels=tuple(panels), caption="", look=Look(**look))
    return arrange_maps(picture_of(report), Ruler(("DejaVu Sans",))).content.panels


def panel_of(rows: tuple[str, list[str]], columns: tuple[str, list[str]]) -> Panel:
    values = np.linspace(0, 1, len(rows[1]) * len(columns[1])).reshape(len(rows[1]), len(columns[1]))
    return share_scales((labelled_panel("a title", values, rows, columns, SHARE),), Look())[0]


def test_every_head_of_a_survey_is_named_beside_its_offsets_and_under_its_classes() -> None:
    heads = [f"{number // 12 + 1}.{number % 12}" for number in range(MAX_ROWS)]
    offsets = [str(number) if number % 3 == 0 else "" for number in range(-20, 21)]
    classes = ["special", "first", "punctuation", "digits", "sentence-start", "same-token", "same-word"]
    by_offset, by_class = arranged_panels(
        panel_of(("head", heads), ("offsets key − query", offsets)), panel_of(("classes", classes), ("heads", heads))
    )
    assert by_offset.rows is not None
    assert by_class.columns is not None
    assert list(by_offset.rows.texts) == list(by_class.columns.texts) == heads


def test_maps_of_a_slide_are_stretched_where_it_has_free_space_and_others_are_square() -> None:
    tokens = [f"t{number}" for number in range(30)]
    panels = [panel_of(("queries", tokens), ("keys", tokens)) for _ in range(4)]
    for chosen in (panels[:1], panels):  # wider by up to four fifths, higher by up to a third
        for placed in arranged_panels(*chosen, size="16:9"):
            ratio = placed.box.width / placed.box.height
            assert 1.4 < ratio <= 1.9
    for placed in arranged_panels(*panels[:3], size="4:3"):
        assert 1 / 1.4 <= placed.box.width / placed.box.height <= 1.9
    assert all(placed.box.width == pytest.approx(placed.box.height, abs=0.02) for placed in arranged_panels(*panels))


def test_positions_of_a_pooled_map_are_no_larger_than_the_names_of_its_axes() -> None:
    edges = tuple(range(0, 3001, 100))
    axes = [Axis(name, tuple(map(str, edges[:-1])), edges, across=name == "keys") for name in ("queries", "keys")]
    panel = replace(panel_of(("queries", ["a"] * 30), ("keys", ["a"] * 30)), rows=axes[0], columns=axes[1])
    report = DrawnReport(kind="maps", title="a title", panels=(panel,), caption="", look=Look())
    layout = arrange_maps(picture_of(report), Ruler(("DejaVu Sans",)))
    assert axes[0].pooled
    assert layout.content.points <= layout.content.name_points


def test_the_name_of_an_axis_stands_below_its_own_labels_and_not_below_those_of_its_neighbours() -> None:
    tokens = [f"t{number}" for number in range(24)]
    long = panel_of(("queries", tokens), ("keys", [f"extraordinarily{token}" for token in tokens]))
    short = panel_of(("queries", tokens), ("heads", [str(number) for number in range(24)]))
    report = DrawnReport(kind="maps", title="a title", panels=(long, short), caption="", look=Look(dpi=72), across=2)
    shown = figure(report)
    shown.draw_without_rendering()
    for axes in shown.axes[:2]:
        [name] = [text for text in axes.texts if text.get_text().startswith(("keys", "heads"))]
        labels = min(text.get_window_extent().y0 for text in axes.get_xticklabels())
        assert 0 < labels - name.get_window_extent().y1 < 20
    assert shown.axes[0].get_window_extent().y0 == shown.axes[1].get_window_extent().y0, "side by side"
