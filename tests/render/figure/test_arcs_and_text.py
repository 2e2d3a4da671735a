"""Arcs, and texts shaded by what a query attends to: of single heads, and of two to four heads in a hue each."""

import io
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.figure.arcs_and_text import arrange_arcs, arrange_text
from attnviz.render.figure.draw import figure
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import draw, medium_of, options_for_medium
from attnviz.render.terminal.draw import report_lines
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import HUES, mixed_hues, overlaid_strengths
from attnviz.report.picture.report import DrawnReport, Report
from attnviz.text.selection import Selection
from attnviz.text.tokens import tokenize
from tests.conftest import cells, random_maps
from tests.render.figure.examples import recorded, words
from tests.report.examples import drawn

pytestmark = pytest.mark.slow

RULER = Ruler(("DejaVu Sans",))
FIVE_HEADS = Recording(maps=(random_maps(tokenize("one two three four five"), heads=5, peak=3.0),), model="a test")


def report_of(recording: Recording, table: str | None = None, suffix: str = ".svg", **look: Any) -> DrawnReport:
    return drawn(build_report(recording, options_for_medium(ReportOptions(look=Look(**look), table=table), suffix)))


def test_arcs_join_each_query_at_the_left_to_its_visible_keys_at_the_right() -> None:
    recording = recorded(1, ["q0", "q1", "q2"], ["k0", "k1", "k2", "k3"], causal=True)
    report = report_of(recording, style="arcs")
    drawn = figure(report)
    at = {text.get_text(): text.get_position() for text in drawn.texts}
    lines, _ = drawn.findobj(LineCollection)
    seen = {}
    for (start, stop), color in zip(lines.get_segments(), lines.get_colors(), strict=True):
        query = min("q0 q1 q2".split(), key=lambda name: abs(at[name][1] - start[1]))
        key = min("k0 k1 k2 k3".split(), key=lambda name: abs(at[name][1] - stop[1]))
        assert at[query][0] < start[0] < stop[0] < at[key][0]
        seen[query, key] = np.asarray(color)[3]
    panel = report.panels[0]
    strengths = panel.scale.fraction(panel.values)
    wanted = {
        (f"q{row}", f"k{column}"): strengths[row, column]
        for row in range(3)
        for column in range(row + 1)
        if strengths[row, column] > 0.01
    }
    assert seen == pytest.approx(wanted)


def test_a_legend_has_lines_as_strong_as_those_of_their_weights() -> None:
    report = report_of(recorded(1, ["q0", "q1", "q2"], ["k0", "k1"]), style="arcs")
    drawn = figure(report)
    _, legend = drawn.findobj(LineCollection)
    scale, shown = report.panels[0].scale, [text.get_text() for text in drawn.texts]
    said = [(float(text[:-1]) / 100) for text in shown if text.endswith("%")]
    assert len(said) == len(legend.get_segments()) >= 2
    strengths = np.asarray(legend.get_colors())[:, 3]
    assert np.allclose(strengths / strengths[-1], scale.fraction(said) / scale.fraction(said[-1]), atol=0.1)
    widths: Any = legend.get_linewidth()
    assert (np.diff(widths) > 0).all()


def test_text_is_shaded_by_the_weights_of_its_query_and_masked_tokens_have_no_colour() -> None:
    recording = recorded(1, words(5), words(5), causal=True)
    report = report_of(recording, style="text", query="2")
    assert "“that” (2)" in report.panels[0].title
    boxes = [patch for patch in figure(report).findobj(Rectangle) if patch.get_width() < 3 and patch.get_height() < 1]
    weights = cells(recording).window((0,), slice(2, 3), slice(0, 5)).weights[0, 0]
    fills = [np.asarray(box.get_facecolor()) for box in boxes][-5:]
    wanted = report.panels[0].scale.rgb(weights) / 255
    assert np.allclose([tuple(fill)[:3] for fill in fills[:3]], wanted[:3], atol=1e-6)
    assert [fill[-1] for fill in fills] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("words_of_text", "flat"), [(8, True), (200, False)])
def test_the_bar_of_a_low_text_lies_below_it(words_of_text: int, flat: bool) -> None:
    drawn = figure(report_of(recorded(1, words(words_of_text), words(words_of_text)), style="text"))
    bar = next(axes for axes in drawn.axes if axes.images).get_position()
    place = bar.width * drawn.get_figwidth(), bar.height * drawn.get_figheight()
    lowest = min(text.get_position()[1] for text in drawn.texts if text.get_text() in words(words_of_text))
    assert (place[0] > place[1]) == flat
    assert (bar.y1 * drawn.get_figheight() < lowest) == flat


@pytest.mark.parametrize(
    ("tokens", "lines"), [("i t r a i n s i t r a i n s s o", 1), ("one of " * 30, 5)], ids=["letters", "words"]
)
def test_a_text_fills_a_slide_in_letters_as_large_as_fit_and_stays_on_one_line_if_it_can(
    tokens: str, lines: int
) -> None:
    recording = recorded(1, tokens.split(), tokens.split())
    page = arrange_text(picture_of(report_of(recording, style="text", size="16:9")), RULER)
    boxes = [word.box for word in page.content.words if word.box]
    assert len({round(box.y, 3) for box in boxes}) == lines
    assert max(box.x + box.width for box in boxes) - min(box.x for box in boxes) > 0.75 * page.width


def test_a_query_is_a_number_or_a_token_and_the_last_one_if_not_given() -> None:
    recording = recorded(1, ["it", "was", "it"], ["a", "b"])
    assert "“it” (2)" in report_of(recording, style="text").panels[0].title
    assert "“was” (1)" in report_of(recording, style="text", query="was").panels[0].title
    last = report_of(recording, style="text", query="it")
    assert "“it” (2)" in last.panels[0].title
    assert "“it” is also at 0; query='@0' chooses the one at 0." in last.remarks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "arc"}, r"unknown style 'arc'; did you mean arcs\? Choose heatmap, arcs, text or overlay"),
        (
            {"style": "text", "query": "dog"},
            "no query 'dog' among the tokens; choose a token such as 'the', or a number from @0",
        ),
        ({"style": "text", "query": "5"}, "no query 5 among 5 tokens; choose 0 to 4"),
        ({"style": "arcs", "table": "scores"}, "table needs style='heatmap'"),
        ({"style": "arcs", "suffix": ".txt"}, "use -o arcs.svg"),
        ({"cmap": "virids"}, "unknown colormap 'virids'"),
        ({"limits": "1:0"}, "limits '1:0' are the wrong way round; write 0:1"),
        ({"limits": "0:0"}, "low and high are equal; write 0:0.5"),
        ({"limits": "all"}, "choose shared, head or two numbers such as 0:0.5"),
        ({"color_scale": "root"}, "unknown color_scale 'root'; choose linear, sqrt, log or lift"),
        ({"color_scale": "log", "table": "scores"}, "use linear, or table='weights'"),
        (
            {"color_scale": "log", "limits": "0:1"},
            "limits 0:1 are not a logarithmic scale; give positive numbers: 0.001:1",
        ),
        ({"font_size": 0.5}, "3 to 144 points"),
    ],
)
def test_refuses_what_is_none_and_says_what_works(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message.replace("(", r"\(")):
        report_of(recorded(1, words(5), words(5)), **options)


def test_refuses_more_than_arcs_can_show() -> None:
    with pytest.raises(AttnvizError, match="up to 120 tokens, not 130"):
        report_of(recorded(1, words(130), words(3)), style="arcs")
    with pytest.raises(AttnvizError, match="up to 16 heads, not 17"):
        report_of(recorded(17, words(2), words(3)), style="arcs")


def test_given_limits_and_heads_own_limits_are_taken_and_said() -> None:
    recording = recorded(2, words(3), words(100))
    given = report_of(recording, limits="0.1:0.5").panels
    assert {(panel.scale.low, panel.scale.high) for panel in given} == {(0.1, 0.5)}
    own = report_of(recording, limits="head")
    assert [panel.scale.high for panel in own.panels] == [float(panel.values.max()) for panel in own.panels]
    assert own.panels[0].scale != own.panels[1].scale
    assert any("its own scale" in remark for remark in own.remarks)


def test_logarithmic_colours_are_equally_far_apart_for_equal_ratios() -> None:
    scale = report_of(recorded(1, words(30), words(30)), color_scale="log").panels[0].scale
    steps = scale.fraction(scale.low * (scale.high / scale.low) ** np.linspace(0, 1, 5))
    assert np.allclose(np.diff(steps), 0.25)
    assert scale.fraction(0.0) == 0


def test_annotated_cells_hold_their_percentages() -> None:
    report = report_of(recorded(1, words(2), words(3)), annotate=True)
    said = [text.get_text() for text in figure(report).axes[0].texts if text.get_text().isdigit()]
    assert said == [f"{value:.0%}".rstrip("%") for value in report.panels[0].values.ravel()]


def test_font_size_is_that_of_the_tokens() -> None:
    drawn = figure(report_of(recorded(1, words(3), words(3)), font_size=9.5))
    assert {text.get_fontsize() for text in drawn.axes[0].get_yticklabels()} == {9.5}


def test_transparent_figures_have_no_background() -> None:
    report = report_of(recorded(1, words(3), words(3)), suffix=".png", transparent=True, dpi=40)
    assert np.asarray(Image.open(io.BytesIO(draw(report, ".png"))).convert("RGBA"))[0, 0, 3] == 0
    many = report_of(recorded(33, words(3), words(3)), suffix=".png", transparent=True)
    assert np.asarray(Image.open(io.BytesIO(draw(many, ".png"))).convert("RGBA"))[0, 0, 3] == 0


def overlaid(heads: str, suffix: str = ".svg", **look: Any) -> Report:
    chosen = Look(style="overlay", **look)
    options = ReportOptions(selection=Selection.parse(heads=heads), look=chosen, medium=medium_of(suffix, chosen))
    return build_report(FIVE_HEADS, options)


def test_arcs_of_heads_join_the_same_two_columns_each_in_its_hue() -> None:
    report = overlaid("0.0,0.3")
    assert isinstance(report, DrawnReport)
    assert report.kind == "arcs"
    layout = arrange_arcs(picture_of(report), RULER)
    *hued, legend = layout.content.strokes
    assert [strokes.hue for strokes in hued] == list(HUES[:2])
    assert legend.hue is not None
    assert len(set(legend.hue)) == 1, "a grey, since the legend is of the lines of both heads"
    tokens = [word for word in layout.content.words if word.box is None]
    assert sum(word.text == "three" for word in tokens) == 2, "queries and keys stand there once"
    edges = {tuple(np.round(strokes.ends[:, end, 0], 6)) for strokes in hued for end in (0, 1)}
    assert len({x for places in edges for x in places}) == 2, "lines of all heads begin and end at the same columns"
    names = {word.text: word.fill for word in layout.content.words if word.box is not None}
    assert [fill for name, fill in names.items() if name.startswith("head 0.3")] == [HUES[1]]


def test_a_text_has_the_mixed_hues_of_the_heads_and_their_names() -> None:
    report = overlaid("0.0,0.3,0.4", query="three")
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    layout = arrange_text(picture_of(report), RULER)
    fills = [word.fill for word in layout.content.words if word.box is not None]
    assert fills[:3] == list(HUES[:3])
    expected = mixed_hues(overlaid_strengths(report.panels))
    assert [list(fill or ()) for fill in fills[3:]] == expected.tolist()


def test_a_terminal_without_colour_says_whose_each_weight_is() -> None:
    report = overlaid("0.0,0.3", ".txt", query="three", width=200)
    lines = ["".join(span.text for span in line) for line in report_lines(report)]
    assert sum("one" in line and "two" in line for line in lines if "“" not in line) <= 2, "one text, and the title"
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    place = int(np.argmax(report.panels[1].values[0]))
    number = report.panels[1].quantity.text(float(report.panels[1].values[0, place]))
    assert any(f"0.3 {number}" in line for line in lines)


def test_an_overlay_of_two_to_four_heads_is_drawn_in_every_figure_and_others_are_refused() -> None:
    for suffix in (".png", ".svg", ".pdf", ".pptx"):
        assert draw(overlaid("0.0,0.3", suffix), suffix)
    for heads in ("0.0", "0.0,0.1,0.2,0.3,0.4"):
        with pytest.raises(AttnvizError, match=r"draws 2 to 4 heads, not \d; choose some"):
            overlaid(heads)
    with pytest.raises(AttnvizError, match=r"a page cannot draw style='.*'; use -o overlay"):
        overlaid("0.0,0.3", ".html")


def test_hues_are_told_apart_by_a_reader_who_sees_no_red_or_no_green() -> None:
    # Lightness, and yellow against blue, are what such a reader sees of a colour.
    seen = [(0.21 * red + 0.72 * green + 0.07 * blue, (red + green) / 2 - blue) for red, green, blue in HUES]
    distances = [max(abs(one[0] - other[0]), abs(one[1] - other[1])) for one, other in combinations(seen, 2)]
    assert min(distances) > 20, "of 255"
