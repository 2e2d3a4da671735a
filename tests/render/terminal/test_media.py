"""A row of weights over its medium in a terminal: a text in colours or with numbers, images, and a sound."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.api.drawing import draw
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.render.formats import options_for_medium
from attnviz.render.terminal.draw import ineffective_options, report_lines
from attnviz.render.terminal.media import BARS, shaded_texts, weight_spans
from attnviz.report.build import build_report
from attnviz.report.picture.colors import DIVERGING, ColorScale
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import CHANGE, Axis, Heading, Panel
from attnviz.report.picture.report import DrawnReport
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps
from tests.render.figure.examples import recorded
from tests.render.terminal.examples import HOSTILE
from tests.report.examples import drawn
from tests.report.image_examples import (
    HEIGHT,
    WIDTH,
    image_recording,
    tokens_of_words_and_images,
    words_and_images_recording,
)

TRUE = 2**24
FRAMES = 6


def report_at(width: int, colors: int = 0, text: str = "Life is short", ascii: bool = False) -> DrawnReport:
    recording = Recording(maps=(random_maps(tokenize(text), heads=1, causal=True),), model="a model")
    look = Look(width=width, colors=colors, style="text", query="1", ascii=ascii)
    return drawn(build_report(recording, options_for_medium(ReportOptions(look=look), ".txt")))


def drawn_text(recording: Recording, width: int, **look: Any) -> str:
    return draw(recording, ".txt", width=width, **look).decode()


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("colors", [0, TRUE])
@pytest.mark.parametrize("ascii", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, colors: int, ascii: bool) -> None:
    lines = report_lines(report_at(width, colors, HOSTILE * 3, ascii=ascii))
    assert max(cell_len("".join(span.text for span in line)) for line in lines) <= width


def test_tokens_stand_on_the_colour_of_their_weight_and_without_colour_their_weight_is_written() -> None:
    report = report_at(80, TRUE)
    [panel] = report.panels
    spans = {span.text: span for line in report_lines(report)[3:4] for span in line}
    papers = [tuple(color) for color in panel.scale.rgb(panel.values[0]).tolist()]
    assert [spans[word].paper for word in ("Life", "is", "short")] == [papers[0], papers[1], None]
    assert [spans[word].style for word in ("Life", "is", "short")] == ["", "underline", "dim"]
    lines = ["".join(span.text for span in line) for line in report_lines(report_at(80))]
    assert f"Life ({panel.values[0, 0]:.0%}) is ({panel.values[0, 1]:.0%}) short" in lines


def test_a_text_flows_over_lines_in_order() -> None:
    words = [f"w{number}" for number in range(60)]
    lines = drawn_text(recorded(1, words, words), 40, style="text").split("\n")
    start = next(number for number, line in enumerate(lines) if line.endswith("attends to")) + 1
    said = " ".join(lines[start : lines.index("", start)])
    assert [word for word in said.split() if word.startswith("w")] == words
    assert np.all([len(line) <= 40 for line in lines])


def test_images_of_different_height_stand_side_by_side() -> None:
    tokens = tokens_of_words_and_images()
    text, first_image, _ = tokens.media
    assert isinstance(first_image, Image)
    low_image = Image(first_image.pixels, 3 * WIDTH, HEIGHT, "low.png")
    maps = random_maps(replace(tokens, media=(text, first_image, low_image)), seed=4, peak=2, causal=True)
    report = build_report(Recording(maps=(maps,), model="a model"), ReportOptions(look=Look(width=80)))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    drawn_lines = ["".join(span.text for span in line) for line in shaded_texts(list(report.panels), Look(width=80))]
    assert len({len(line) for line in drawn_lines if line}) == 1  # also below the low image
    assert len(drawn_lines) > 10


@pytest.mark.parametrize(
    ("colors", "said", "unsaid"),
    [
        (0, ("  attention weight", "Shades show what", "the image is not drawn"), "Colours"),
        (256, ("Colours show what",), "Shades"),
    ],
)
def test_without_colors_a_legend_says_what_shades_are_and_a_remark_that_the_image_is_not_drawn(
    colors: int, said: tuple[str, ...], unsaid: str
) -> None:
    text = drawn_text(image_recording(), 80, heads="0.0", colors=colors).replace("\n", " ")
    assert all(words in text for words in said)
    assert unsaid not in text


def test_shades_depend_on_the_scale_and_its_limits() -> None:
    report = build_report(image_recording(), ReportOptions(look=Look(width=80)))
    assert ineffective_options(report) == ("cmap", "theme")


@pytest.mark.parametrize("is_ascii", [False, True])
def test_titles_that_are_too_long_for_one_line_have_two_and_lose_no_share(is_ascii: bool) -> None:
    names, shares = drawn_text(image_recording(), 60, ascii=is_ascii).splitlines()[2:4]
    assert names.split() == ["head", "0.0", "head", "0.1", "head", "0.2"]
    assert shares.count("on image") == 3


def test_images_of_one_head_stand_side_by_side() -> None:
    titles = [line for line in drawn_text(words_and_images_recording(), 80).splitlines() if "on image" in line]
    assert all(line.count("on image 1") == line.count("on image 2") == 1 for line in titles)


def test_a_column_of_several_frames_has_the_colour_of_its_largest_change_of_either_sign() -> None:
    changes = np.array([[0.1, -0.4, 0.3, 0.2, 0.0, -0.1]], dtype=np.float32)
    places = np.arange(FRAMES)[:, None] * 100 + np.array([0, 100])
    sound = Sound(np.full(10, 255, dtype=np.uint8), samples=600, rate=100)
    columns = Axis("keys", ("",) * FRAMES, tuple(range(FRAMES + 1)), canvas=sound, places=places)
    scale = ColorScale(-0.5, 0.5, DIVERGING, signed=True)
    rows = Axis("queries", ("",), (0, 1))
    panel = Panel(Heading(), changes, np.ones((1, FRAMES), bool), rows, columns, CHANGE, scale)
    spans = weight_spans(panel, np.linspace(0, 600, 4), BARS, has_colors=True)
    assert [span.paper for span in spans] == [tuple(color) for color in scale.rgb([-0.4, 0.3, -0.1]).tolist()]
