"""Images and sounds under weights in a figure: which way up they are drawn, their titles, outlines and sizes."""

import io
from base64 import b64decode
from dataclasses import replace
from re import findall
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from attnviz.api.drawing import figure
from attnviz.render.figure.maps import MAX_ASPECT_RATIO, MAX_SOUND_RATIO
from attnviz.render.figure.media import images_content
from attnviz.render.figure.page import arrange_tokens
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Heading
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from tests.metrics.sound_examples import heard_recording
from tests.report.image_examples import HEIGHT, WIDTH, image_recording, words_and_images_recording

ONE_HEAD = Selection.parse(heads="0")
RULER = Ruler(("DejaVu Sans",))


def report_of_one_bright_patch(suffix: str) -> DrawnReport:
    """Returns the report of one head, with all weight on r1c1: x 30 to 60, y 40 to 80."""
    options = ReportOptions(selection=Selection.parse(heads="0.0"), look=Look(color_scale="linear"))
    report = build_report(image_recording(), options_for_medium(options, suffix))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    [panel] = report.panels
    bright = np.array([[0, 0, 0, 0, 0, panel.scale.high, 0]], dtype=np.float32)
    return replace(report, panels=(replace(panel, values=bright, inside=None),))


def bright_area(pixels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the first and the last row and column of pixels in ink."""
    ink = np.argwhere(pixels[..., 2].astype(int) - pixels[..., 0] > 80)
    return ink.min(axis=0), ink.max(axis=0)


def test_bright_patch_of_a_png_is_at_its_place_in_the_image() -> None:
    report = report_of_one_bright_patch(".png")
    pixels = np.asarray(Pillow.open(io.BytesIO(draw(report, ".png"))).convert("RGB"))
    [image] = arrange_tokens(picture_of(report), images_content, RULER).content.panels
    box, dpi = image.box, report.look.pixels_per_inch
    columns = slice(round(box.x * dpi), round((box.x + box.width) * dpi))
    top = pixels.shape[0] - round((box.y + box.height) * dpi)
    first, last = bright_area(pixels[top : top + round(box.height * dpi), columns])
    scale = box.width * dpi / WIDTH
    np.testing.assert_allclose(first / scale, (40, 30), atol=0.5)
    np.testing.assert_allclose((last + 1) / scale, (HEIGHT, 60), atol=0.5)


def test_bright_patch_of_an_svg_is_low_in_the_image() -> None:
    svg = draw(report_of_one_bright_patch(".svg"), ".svg").decode()
    images = [Pillow.open(io.BytesIO(b64decode(data))) for data in findall(r"data:image/png;base64,([^\"]+)", svg)]
    [image] = [each for each in images if each.width / each.height == pytest.approx(WIDTH / HEIGHT, rel=0.02)]
    pixels = np.asarray(image.convert("RGB"))
    assert "scale(1 -1)" in svg, "matplotlib stores the lowest row first, and turns the image over"
    first, last = bright_area(pixels[::-1])
    np.testing.assert_allclose(first / image.width * WIDTH, (40, 30), atol=0.5)
    np.testing.assert_allclose((last + 1) / image.width * WIDTH, (HEIGHT, 60), atol=0.5)


def test_title_wider_than_its_image_takes_two_lines_and_is_not_cut_inside_a_number() -> None:
    recording = image_recording(layers=2)
    options = options_for_medium(ReportOptions(), ".png")
    report = build_report(recording, options)
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    panels = tuple(replace(panel, group=str(index // 16)) for index, panel in enumerate(report.panels * 6))[:32]
    images = arrange_tokens(picture_of(replace(report, panels=panels)), images_content, RULER)
    texts = [line.text for line in images.content.lines]
    assert "head 0.1" in texts
    assert not any("…" in text for text in texts)


def test_long_titles_of_images_have_two_lines_of_letters_that_can_be_read_just_above_their_image() -> None:
    report = build_report(words_and_images_recording(), options_for_medium(ReportOptions(), ".png"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    first, *others = report.panels
    short = replace(first, heading=replace(first.heading, note=""))
    eight = (short, *others, *others[:2])  # four stand side by side
    content = arrange_tokens(picture_of(replace(report, panels=eight)), images_content, RULER).content
    assert {line.points for line in content.lines} == {content.lines[0].points}
    assert content.lines[0].points > 9
    assert [line.text for line in content.lines[:2]] == ["head 0.0", "head 0.0 · 57% on image 2, 23%"]
    last_of_second = content.lines[2]
    assert content.lines[0].y == pytest.approx(last_of_second.y)
    assert all(
        line.x + RULER.width(line.text, line.points) <= place.box.x + place.box.width + 0.01
        for line, place in ((content.lines[0], content.panels[0]), (last_of_second, content.panels[1]))
    )


def test_tiny_images_keep_the_names_of_their_heads() -> None:
    options = options_for_medium(ReportOptions(look=Look(size="column")), ".png")
    report = build_report(image_recording(layers=2), options)
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    panels = [replace(panel, group=str(index // 16)) for index, panel in enumerate(report.panels * 20)][:96]
    named = tuple(
        replace(panel, heading=Heading(f"{index // 16}.{index % 16}", note="99% on image"))
        for index, panel in enumerate(panels)
    )
    images = arrange_tokens(picture_of(replace(report, panels=named)), images_content, RULER)
    texts = {line.text for line in images.content.lines}
    assert {f"{layer}.{head}" for layer in range(6) for head in range(16)} <= texts


@pytest.mark.parametrize(("layers", "heads_of_layer", "rows"), [(2, 1, 1), (2, 3, 2), (8, 3, 4)])
def test_layers_are_rows_of_images_and_a_wide_page_has_several_in_a_row_where_they_are_larger(
    layers: int, heads_of_layer: int, rows: int
) -> None:
    selection = Selection.parse(layers=f"0-{layers - 1}", heads=",".join(map(str, range(heads_of_layer))))
    options = options_for_medium(ReportOptions(selection=selection, look=Look(size="16:9")), ".png")
    report = build_report(image_recording(layers=layers), options)
    assert isinstance(report, DrawnReport)
    images = arrange_tokens(picture_of(report), images_content, RULER).content.panels
    assert len(images) == layers * heads_of_layer
    assert len({round(image.box.y, 3) for image in images}) == rows


def test_one_image_fills_the_height_of_a_page_of_fixed_size() -> None:
    look = Look(size="16:9", frame=(13.333, 6.0))
    report = build_report(image_recording(), options_for_medium(ReportOptions(selection=ONE_HEAD, look=look), ".png"))
    assert isinstance(report, DrawnReport)
    wordless = replace(picture_of(report), title="", source="", remarks=())
    [image] = arrange_tokens(wordless, images_content, RULER).content.panels
    assert 5 < image.box.height < 6


def size_of_axes(**options: Any) -> tuple[float, float]:
    """Returns width and height in inches of the first axes of the figure of head 0.0."""
    drawn = figure(heard_recording(), heads="0.0", **options)
    box, (width, height) = drawn.axes[0].get_position(), drawn.get_size_inches()
    return box.width * width, box.height * height


@pytest.mark.parametrize("options", [{}, {"size": "16:9"}])
def test_map_over_frames_is_high(options: dict[str, str]) -> None:
    width, height = size_of_axes(**options)
    assert width / height == pytest.approx(MAX_SOUND_RATIO, rel=0.1)
    assert MAX_SOUND_RATIO < MAX_ASPECT_RATIO


def test_row_over_a_sound_grows_with_the_page() -> None:
    _, small = size_of_axes(query="fellow")
    _, large = size_of_axes(query="fellow", size="16:9")
    assert large > 1.5 * small


@pytest.mark.parametrize(("count", "across"), [(3, 3), (4, 4), (5, 3), (6, 3), (7, 4), (8, 4), (9, 3), (20, 5)])
def test_images_stand_in_rows_that_leave_little_space_empty(count: int, across: int) -> None:
    report = build_report(words_and_images_recording(), options_for_medium(ReportOptions(), ".png"))
    assert isinstance(report, DrawnReport)
    panels = (report.panels * 4)[:count]
    placed = arrange_tokens(picture_of(replace(report, panels=panels)), images_content, RULER).content.panels
    assert len({round(place.box.x, 3) for place in placed}) == across
