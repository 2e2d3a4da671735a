"""A text in a terminal, shaded by what one query attends to."""

import re

import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.api.drawing import options_for_medium
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from attnviz.render.terminal.draw import report_lines
from attnviz.report.maps.heatmaps import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps
from tests.render.figure.examples import recorded
from tests.render.terminal.examples import HOSTILE
from tests.report.examples import drawn

TRUE = 2**24


def report_at(
    width: int, colors: int = 0, text: str = "Life is short", query: str = "1", ascii: bool = False
) -> DrawnReport:
    recording = Recording(maps=(random_maps(tokenize(text), heads=1, causal=True),), model="a model")
    look = Look(width=width, colors=colors, style="text", query=query, ascii=ascii)
    return drawn(build_report(recording, options_for_medium(ReportOptions(look=look), ".txt")))


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("colors", [0, TRUE])
@pytest.mark.parametrize("ascii", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, colors: int, ascii: bool) -> None:
    lines = report_lines(report_at(width, colors, HOSTILE * 3, ascii=ascii))
    assert max(cell_len("".join(span.text for span in line)) for line in lines) <= width


def test_tokens_stand_on_the_colour_of_their_weight_and_masked_ones_on_none() -> None:
    report = report_at(80, TRUE)
    [panel] = report.panels
    spans = {span.text: span for line in report_lines(report)[3:4] for span in line}
    papers = [tuple(color) for color in panel.scale.rgb(panel.values[0]).tolist()]
    assert (spans["Life"].paper, spans["is"].paper) == (papers[0], papers[1])
    assert (spans["short"].paper, spans["short"].style) == (None, "dim")
    assert (spans["Life"].style, spans["is"].style) == ("", "underline")


def test_without_colour_the_weights_that_tell_are_written() -> None:
    report = report_at(80)
    [panel] = report.panels
    text = draw(report, ".txt").decode()
    assert f"Life ({panel.values[0, 0]:.0%}) is ({panel.values[0, 1]:.0%}) short" in text
    assert not re.search("\x1b", text)


def test_a_text_flows_over_lines_in_order() -> None:
    words = [f"w{number}" for number in range(60)]
    recording = recorded(1, words, words)
    look = Look(width=40, style="text")
    lines = (
        draw(build_report(recording, options_for_medium(ReportOptions(look=look), ".txt")), ".txt").decode().split("\n")
    )
    start = next(number for number, line in enumerate(lines) if line.endswith("attends to")) + 1
    said = " ".join(lines[start : lines.index("", start)])
    assert [word for word in said.split() if word.startswith("w")] == words
    assert np.all([len(line) <= 40 for line in lines])
