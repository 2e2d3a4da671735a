"""Two to four heads in one picture, each in its own hue: arcs, and the text that one query shades."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.figure.arcs_and_text import arrange_arcs, arrange_text
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import draw, medium_of
from attnviz.render.terminal.draw import report_lines
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import HUES, mixed_hues, overlaid_strengths
from attnviz.report.picture.report import Arcs, Report, ShadedText
from attnviz.text.selection import Selection
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps

RULER = Ruler(("DejaVu Sans",))
TEXT = Recording(maps=(random_maps(tokenize("one two three four five"), heads=5, peak=3.0),), model="a test")


def overlaid(heads: str, suffix: str = ".svg", **look: Any) -> Report:
    chosen = Look(style="overlay", **look)
    options = ReportOptions(selection=Selection.parse(heads=heads), look=chosen, medium=medium_of(suffix, chosen))
    return build_report(TEXT, options)


def test_arcs_of_heads_join_the_same_two_columns_each_in_its_hue() -> None:
    report = overlaid("0.0,0.3")
    assert isinstance(report, Arcs)
    layout = arrange_arcs(picture_of(report), RULER)
    hued = [strokes for strokes in layout.content.strokes if strokes.hue is not None]
    assert [strokes.hue for strokes in hued] == list(HUES[:2])
    tokens = [word for word in layout.content.words if word.box is None]
    assert sum(word.text == "three" for word in tokens) == 2, "queries and keys stand there once"
    edges = {tuple(np.round(strokes.ends[:, end, 0], 6)) for strokes in hued for end in (0, 1)}
    assert len({x for places in edges for x in places}) == 2, "lines of all heads begin and end at the same columns"
    names = {word.text: word.fill for word in layout.content.words if word.box is not None}
    assert [fill for name, fill in names.items() if name.startswith("head 0.3")] == [HUES[1]]


def test_a_text_has_the_mixed_hues_of_the_heads_and_their_names() -> None:
    report = overlaid("0.0,0.3,0.4", query="three")
    assert isinstance(report, ShadedText)
    layout = arrange_text(picture_of(report), RULER)
    fills = [word.fill for word in layout.content.words if word.box is not None]
    assert fills[:3] == list(HUES[:3])
    expected = mixed_hues(overlaid_strengths(report.panels))
    assert [list(fill or ()) for fill in fills[3:]] == expected.tolist()


def test_a_terminal_without_colour_says_whose_each_weight_is() -> None:
    report = overlaid("0.0,0.3", ".txt", query="three", width=200)
    lines = ["".join(span.text for span in line) for line in report_lines(report)]
    assert sum("one" in line and "two" in line for line in lines if "“" not in line) <= 2, "one text, and the title"
    assert isinstance(report, ShadedText)
    place = int(np.argmax(report.panels[1].values[0]))
    number = report.panels[1].quantity.text(float(report.panels[1].values[0, place]))
    assert any(f"0.3 {number}" in line for line in lines)


def test_every_figure_of_an_overlay_is_drawn() -> None:
    for suffix in (".png", ".svg", ".pdf", ".pptx"):
        assert draw(overlaid("0.0,0.3", suffix), suffix)


@pytest.mark.parametrize("heads", ["0.0", "0.0,0.1,0.2,0.3,0.4"])
def test_one_head_and_five_are_refused(heads: str) -> None:
    with pytest.raises(AttnvizError, match=r"draws two to 4 heads, not \d; choose some"):
        overlaid(heads)


def test_a_page_is_refused() -> None:
    with pytest.raises(AttnvizError, match=r"a page cannot draw style='.*'; use -o overlay"):
        overlaid("0.0,0.3", ".html")


def test_hues_are_told_apart_by_a_reader_who_sees_no_red_or_no_green() -> None:
    # Lightness, and yellow against blue, are what such a reader sees of a colour.
    seen = [(0.21 * red + 0.72 * green + 0.07 * blue, (red + green) / 2 - blue) for red, green, blue in HUES]
    distances = [max(abs(one[0] - other[0]), abs(one[1] - other[1])) for one, other in combinations(seen, 2)]
    assert min(distances) > 20, "of 255"
