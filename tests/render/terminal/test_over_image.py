"""Images in a terminal under the weights of one query."""

from dataclasses import replace

from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.render.terminal.over_image import image_lines
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import ShadedText
from tests.conftest import random_maps
from tests.report.image_examples import HEIGHT, WIDTH, tokens_of_words_and_images


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
