"""Images in a terminal under the weights of one query."""

from dataclasses import replace
from typing import Any

import pytest

from attnviz.api.drawing import draw
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.render.terminal.draw import ineffective_options
from attnviz.render.terminal.over_image import image_lines
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import ShadedText
from tests.conftest import random_maps
from tests.report.image_examples import (
    HEIGHT,
    WIDTH,
    image_recording,
    tokens_of_words_and_images,
    words_and_images_recording,
)


def test_images_of_different_height_stand_side_by_side() -> None:
    tokens = tokens_of_words_and_images()
    text, first_image, _ = tokens.media
    assert isinstance(first_image, Image)
    low_image = Image(first_image.pixels, 3 * WIDTH, HEIGHT, "low.png")
    maps = random_maps(replace(tokens, media=(text, first_image, low_image)), seed=4, peak=2, causal=True)
    report = build_report(Recording(maps=(maps,), model="a model"), ReportOptions(look=Look(width=80)))
    assert isinstance(report, ShadedText)
    lines = list(image_lines(list(report.panels), Look(width=80)))
    drawn_lines = ["".join(span.text for span in line) for line in lines]
    assert len({len(line) for line in drawn_lines if line}) == 1  # also below the low image
    assert len(drawn_lines) > 10


def drawn_text(recording: Recording, width: int, **look: Any) -> str:
    return draw(recording, ".txt", width=width, **look).decode()


def test_without_colors_a_legend_says_what_shades_are_and_a_remark_that_the_image_is_not_drawn() -> None:
    recording = image_recording()
    plain_text, colored_text = (drawn_text(recording, 80, heads="0.0", colors=colors) for colors in (0, 256))
    assert "  attention weight" in plain_text  # the legend
    assert "Shades show what" in plain_text
    assert "the image is not drawn" in plain_text.replace("\n", " ")
    assert "Colours" not in plain_text
    assert "Colours show what" in colored_text
    assert "Shades" not in colored_text


def test_shades_depend_on_the_scale_and_its_limits() -> None:
    report = build_report(image_recording(), ReportOptions(look=Look(width=80)))
    assert ineffective_options(report) == ("cmap",)


@pytest.mark.parametrize("is_ascii", [False, True])
def test_titles_that_are_too_long_for_one_line_have_two_and_lose_no_share(is_ascii: bool) -> None:
    recording = image_recording()
    narrow_lines = drawn_text(recording, 60, ascii=is_ascii).splitlines()
    names = 2  # after the heading and an empty line
    assert narrow_lines[names].split() == ["head", "0.0", "head", "0.1", "head", "0.2"]
    assert narrow_lines[names + 1].count("on image") == 3


def test_images_of_one_head_stand_side_by_side() -> None:
    titles = [line for line in drawn_text(words_and_images_recording(), 80).splitlines() if "on image" in line]
    assert all(line.count("on image 1") == line.count("on image 2") == 1 for line in titles)
