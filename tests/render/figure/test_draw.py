import io
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.figure.draw import figure
from attnviz.render.figure.picture import THEME_COLORS
from attnviz.render.formats import draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport, Report
from attnviz.text.tokens import tokenize
from tests.conftest import cells, random_maps
from tests.patience import PATIENCE
from tests.render.figure.examples import recorded, shown_texts, words
from tests.report.examples import drawn
from tests.today import todays

pytestmark = pytest.mark.slow

LONG_TITLE = "A title which goes on and on " * 8


def report_of(recording: Recording, table: str | None = None, **look: Any) -> DrawnReport:
    chosen = Look(**look)
    return drawn(build_report(recording, ReportOptions(table=table, look=chosen, medium=medium_of(".png", chosen))))


def compared(heads: int, **look: Any) -> DrawnReport:
    a, b = recorded(heads, words(7), words(7)), recorded(heads, words(7), words(7), causal=True, seed=1)
    return drawn(comparison_report(a, b, "--causal", ReportOptions(look=Look(**look))))


def pixels(report: Report) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(draw(report, ".png"))).convert("RGB"))


def cell_boxes(drawn: Any, panel: int, rows: int, columns: int) -> dict[tuple[int, int], tuple[slice, slice]]:
    """The pixels of each cell of a panel, less a margin of two, in a picture with the first row on top."""
    box = drawn.axes[panel].get_window_extent()
    height = drawn.bbox.height
    wide, high = box.width / columns, box.height / rows
    return {
        (row, column): (
            slice(round(height - box.y1 + row * high) + 2, round(height - box.y1 + (row + 1) * high) - 2),
            slice(round(box.x0 + column * wide) + 2, round(box.x0 + (column + 1) * wide) - 2),
        )
        for row in range(rows)
        for column in range(columns)
    }


def atlas_of(layers: int, heads: int, **look: Any) -> Report:
    tokens = tokenize("one two three two")
    maps = tuple(random_maps(tokens, layer=layer, heads=heads) for layer in range(layers))
    return heads_report(
        (Recording(maps=maps, model="a test"),), ReportOptions(look=Look(**look), medium=Medium(one_page=True))
    )


CASES: dict[str, Callable[[], Report]] = {
    "one head of one token": lambda: report_of(recorded(1, ["Life"], ["Life"])),
    "one head": lambda: report_of(recorded(1, words(7), words(7))),
    "more keys than queries": lambda: report_of(recorded(2, words(2), words(40))),
    "more queries than keys": lambda: report_of(recorded(2, words(40), words(2))),
    "eight heads": lambda: report_of(recorded(8, words(30), words(30)), theme="dark"),
    "thirty-two heads": lambda: report_of(recorded(32, words(3), words(3))),
    "five hundred tokens": lambda: report_of(recorded(2, words(500), words(500)), dpi=100),
    "long title": lambda: report_of(recorded(1, words(3), words(3)), title=LONG_TITLE),
    "title without spaces": lambda: report_of(recorded(1, words(3), words(3)), title="x" * 300),
    "long tokens": lambda: report_of(recorded(3, ["a" * 80, "b", "c" * 30], ["d" * 80, "e", "f" * 30, "g"])),
    "a slide": lambda: report_of(recorded(4, words(12), words(12)), size="13.333x7.5"),
    "a column of a paper": lambda: report_of(recorded(1, words(7), words(7)), size="3.3x2.8"),
    "a column of a journal": lambda: report_of(recorded(2, words(13), words(13)), size="column"),
    "comparison in a column": lambda: compared(4, size="3.25in", bare=True),
    "comparison on a journal's page": lambda: compared(4, size="page"),
    "an atlas in a column": lambda: atlas_of(2, 12, size="84mm"),
    "a poster": lambda: report_of(recorded(6, words(7), words(7)), size="40x30", dpi=30),
    "comparison": lambda: compared(4),
    "comparison on a slide": lambda: compared(4, size="13.333x7.5"),
    "scores": lambda: report_of(recorded(2, words(7), words(9), causal=True), table="scores"),
    "an atlas": lambda: atlas_of(2, 12),
    "an atlas of many heads": lambda: atlas_of(1, 300),
    "both": lambda: report_of(recorded(3, words(5), words(5)), table="both", size="13.333x7.5"),
}
TOKEN_CASES: dict[str, Callable[[], Report]] = {
    f"{style} of {heads} heads, {size}": partial(
        report_of, recorded(heads, words(12), words(14)), style=style, size=size
    )
    for style, heads, size in product(("arcs", "text"), (1, 5), (None, "16:9", "4x3", "column"))
}


@cache
def drawn_case(name: str) -> Any:
    drawn = figure((CASES | TOKEN_CASES)[name]())
    drawn.draw_without_rendering()
    return drawn


@pytest.mark.parametrize("name", [*todays(CASES, one_in=2), *todays(TOKEN_CASES, one_in=4)])
def test_no_text_overlaps_another_or_leaves_the_page(name: str) -> None:
    drawn = drawn_case(name)
    page = drawn.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(drawn)]
    for said, box in boxes:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.width and box.y1 <= page.height
        assert inside, f"{said!r} leaves the page: {box} in {page}"
    for (said, one), (other, two) in combinations(boxes, 2):
        apart = one.x1 <= two.x0 + 1 or two.x1 <= one.x0 + 1 or one.y1 <= two.y0 + 1 or two.y1 <= one.y0 + 1
        assert apart, f"{said!r} overlaps {other!r}"


@pytest.mark.parametrize("name", [name for name in todays(CASES, one_in=2) if name not in ("scores", "both")])
def test_no_text_covers_a_map(name: str) -> None:
    drawn = drawn_case(name)
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(drawn)]
    for axes in drawn.axes:
        map_box = axes.get_window_extent().padded(-1)
        assert not [said for said, box in boxes if box.overlaps(map_box)]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_cell_has_the_colour_of_its_weight_and_masked_cells_are_absent(
    causal_recording: Recording, theme: str
) -> None:
    report = report_of(causal_recording, theme=theme, dpi=72)
    picture, drawn = pixels(report), figure(report)
    for number, panel in enumerate(report.panels):
        wanted = panel.scale.rgb(panel.values)
        for (row, column), box in cell_boxes(drawn, number, 5, 7).items():
            seen = picture[box].reshape(-1, 3)
            if column <= row:
                assert (seen == wanted[row, column]).all()
            else:
                papers = [hex_rgb(THEME_COLORS[theme][name]) for name in ("absent", "hatch")]
                assert (seen >= np.min(papers, axis=0)).all()
                assert (seen <= np.max(papers, axis=0)).all()
                assert len(np.unique(seen, axis=0)) > 1, "hatched, so that it is no colour of the scale"


@pytest.mark.parametrize("name", [name for name in CASES if "column of a journal" in name or "in a column" in name])
def test_a_column_has_its_width_and_letters_of_six_points_or_more(name: str) -> None:
    drawn = drawn_case(name)
    width = {"a column of a journal": 3.5, "comparison in a column": 3.25, "an atlas in a column": 84 / 25.4}[name]
    assert drawn.get_figwidth() == pytest.approx(width)
    sizes = [float(text.get_fontsize()) for text in shown_texts(drawn)]
    assert min(sizes) >= 6
    assert max(sizes) <= 14.8, "the title's, where there is one"


def hex_rgb(color: str) -> list[int]:
    return list(bytes.fromhex(color[1:]))


def test_rows_are_queries_and_columns_are_keys(recording: Recording) -> None:
    drawn = figure(report_of(recording))
    drawn.draw_without_rendering()
    first = drawn.axes[0]
    assert [text.get_text() for text in first.get_yticklabels()] == ["q0", "q1", "q2", "q3", "q4"]
    below = next(axes for axes in drawn.axes if axes.get_xticklabels())
    assert [text.get_text() for text in below.get_xticklabels()] == ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]
    tops = [text.get_window_extent().y0 for text in first.get_yticklabels()]
    assert tops == sorted(tops, reverse=True), "the first query is on top"


def test_cells_are_square() -> None:
    for axes in figure(report_of(recorded(3, words(5), words(7)))).axes[:3]:
        box = axes.get_window_extent()
        assert box.width / 7 == pytest.approx(box.height / 5)


def test_a_fixed_size_is_kept_and_its_content_is_in_the_middle() -> None:
    report = report_of(recorded(1, words(7), words(7)), size="13.333x7.5", dpi=100)
    assert pixels(report).shape == (750, 1333, 3)
    drawn = figure(report)
    drawn.draw_without_rendering()
    left = min(text.get_window_extent().x0 for text in shown_texts(drawn) if text.get_text() == "queries")
    right = max(text.get_window_extent().x1 for text in drawn.axes[-1].get_yticklabels())
    assert left == pytest.approx(1333 - right, abs=30)


def test_triples_stay_whole_and_stand_side_by_side_where_that_makes_them_larger() -> None:
    report = compared(4, size="13.333x7.5")
    assert [panel.title for panel in report.panels[:3]] == [
        "3.0 without --causal",
        "3.0 with --causal",
        "3.0 with − without",
    ]
    boxes = [axes.get_window_extent() for axes in figure(report).axes[:12]]
    rows = sorted({round(box.y0) for box in boxes}, reverse=True)
    assert [rows.index(round(box.y0)) for box in boxes] == [0] * 6 + [1] * 6


def test_few_tokens_are_all_labelled_and_many_carry_positions_or_every_third_and_say_so() -> None:
    few, many, thinned = (
        figure(report_of(recorded(heads, words(count), words(count)), dpi=dpi))
        for heads, count, dpi in ((1, 30, 200), (1, 500, 100), (8, 30, 200))
    )
    assert len(few.axes[0].get_yticklabels()) == 30
    assert [text.get_text() for text in many.axes[0].get_yticklabels()][:3] == ["0", "50", "100"]
    assert "keys, by position" in [text.get_text() for text in many.axes[0].texts]
    names = {text.get_text() for axes in thinned.axes for text in axes.texts}
    assert names == {"queries, every 3rd", "keys, every 3rd"}
    assert [text.get_text() for text in thinned.axes[0].get_yticklabels()] == words(30)[::3]


def test_pooled_maps_are_said_and_labelled_by_position() -> None:
    report = report_of(recorded(1, words(300), words(700)), dpi=40)
    drawn = figure(report)
    assert report.panels[0].columns.pooled
    assert any("Pooled" in text.get_text() for text in drawn.texts)
    assert drawn.axes[0].get_xticklabels()[1].get_text() in ("50", "100", "200")


def test_maps_on_one_page_share_its_pixels() -> None:
    side = [report_of(recorded(heads, words(600), words(600)), dpi=100).panels[0].values.shape[0] for heads in (1, 4)]
    assert side[0] == 600
    assert side[1] == 300


def test_tokens_are_plain_text() -> None:
    labels = ["$x_1$", r"\frac{1}{2}", "a_b^c", "<&>", "[bold]", "%"]
    recording = recorded(1, labels, labels)
    drawn = figure(report_of(recording, title=r"$\alpha$ costs $5"))
    drawn.draw_without_rendering()
    assert [text.get_text() for text in drawn.axes[0].get_yticklabels()] == labels
    assert not any(text.get_parse_math() or text.get_usetex() for text in shown_texts(drawn))
    for label in ("$x_1$", "&lt;&amp;&gt;"):
        assert label in draw(report_of(recording), ".svg").decode()


def test_table_writes_each_visible_number_into_its_cell() -> None:
    recording = recorded(1, words(4), words(6), causal=True)
    report = report_of(recording, table="scores")
    drawn = figure(report)
    numbers = {
        (round(text.get_position()[1]), round(text.get_position()[0])): text.get_text()
        for text in drawn.axes[0].texts
        if "." in text.get_text()
    }
    scores = cells(recording).window((0,), slice(0, 4), slice(0, 6)).scores[0]
    assert numbers == {(row, column): f"{scores[row, column]:.4f}" for row in range(4) for column in range(row + 1)}


def test_nan_has_a_colour_of_its_own() -> None:
    recording = recorded(1, words(2), words(3))
    recording.maps[0].weights.setflags(write=True)  # type: ignore[attr-defined]
    recording.maps[0].weights[0, 1, 2] = np.nan  # type: ignore[attr-defined]
    report = report_of(recording)
    box = cell_boxes(figure(report), 0, 2, 3)[1, 2]
    assert (pixels(report)[box] == (255, 0, 200)).all()


def test_caption_and_remarks_are_in_the_metadata() -> None:
    report = report_of(recorded(1, words(3), words(4), causal=True), dpi=40, title="A & B")
    said = " ".join((report.caption, *report.remarks))
    assert Image.open(io.BytesIO(draw(report, ".png"))).info["Description"] == said
    assert report.caption in draw(report, ".svg").decode()
    assert b"/Subject" in draw(report, ".pdf")


def test_vector_formats_keep_text_and_cells_as_they_are_and_no_viewer_blurs_large_maps() -> None:
    report = report_of(recorded(1, words(3), ["k0", "k6"]))
    svg, pdf = draw(report, ".svg").decode(), draw(report, ".pdf")
    assert ">k6</text>" in svg
    assert svg.count("<image") == 1, "the colour bar alone"
    assert b"/FontFile2" in pdf
    large = draw(report_of(recorded(1, words(120), words(120)), dpi=50), ".svg").decode()
    assert large.count("<image") == 2
    assert "image-rendering:pixelated" in large
    assert len(large) < 400_000


def test_drawing_leaves_pyplot_and_torch_alone() -> None:
    code = (
        "import sys; from attnviz.report.build import *; "
        "from attnviz.render.formats import draw; from tests.conftest import *;"
        "draw(build_report(Recording(maps=(dense_maps(),), model='m'), ReportOptions()), '.png');"
        "assert not {'matplotlib.pyplot', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_figure_names_its_model_and_bare_leaves_all_words_to_the_caption(recording: Recording) -> None:
    named, bare = (
        [text.get_text() for text in shown_texts(figure(report_of(recording, bare=bare)))] for bare in (False, True)
    )
    assert f"Model: {recording.model}." in named
    assert not {f"Model: {recording.model}.", recording.maps[0].query_tokens.text} & set(bare)
    assert len(bare) < len(named)


def test_numbers_that_would_not_be_legible_are_left_out_with_a_remark_which_a_bare_figure_has_not() -> None:
    drawn = figure(report_of(recorded(2, words(60), words(60)), table="scores", size="8x6", dpi=60))
    assert not any("." in text.get_text() and text.get_text()[-1].isdigit() for text in drawn.axes[0].texts)
    assert any("too small for numbers" in text.get_text() for text in drawn.texts)
    crowded = recorded(8, words(40), words(40))
    said = figure(report_of(crowded, annotate=True, size="column"))
    assert any("too small for numbers" in text.get_text() for text in shown_texts(said))
    with pytest.raises(AttnvizError, match="too small for numbers, and bare"):
        figure(report_of(crowded, annotate=True, size="column", bare=True))


def test_a_figure_calls_hatched_what_it_hatches() -> None:
    said = " ".join(text.get_text() for text in shown_texts(figure(report_of(recorded(1, words(7), words(7), True)))))
    assert "Hatched cells are masked" in " ".join(said.split())
    assert "Blank cells" not in said
