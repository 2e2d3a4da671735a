"""Hues of heads on tokens, and weights over an image: colours, outlines and bands."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.api.drawing import draw
from attnviz.render.formats import options_for_medium
from attnviz.report.build import build_report
from attnviz.report.picture.colors import ABSENT_FADED, FADED, ColorScale, colormap, luminance
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import HUES, band_tops, mixed_hues, outline_segments, overlay_pixels, panel_image
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from tests.report.image_examples import HEIGHT, WIDTH, image_recording, spectrogram_recording, tokens_of_image


def test_a_head_alone_has_its_hue_and_no_weight_is_white() -> None:
    strengths = np.array([[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0]])
    mixed = mixed_hues(strengths)
    assert mixed[:2].tolist() == [list(HUES[0]), list(HUES[1])]
    assert mixed[2].tolist() == [255, 255, 255]
    assert np.all(mixed[3] > np.array(HUES[0])), "half a weight is half as dark"


def test_a_token_of_two_heads_is_darker_than_of_either_and_nan_is_none() -> None:
    both, one = (mixed_hues(np.array([[0.6], [other]]))[0] for other in (0.6, np.nan))
    assert np.all(both <= one)
    assert np.any(both < one)


def panel_of_one_bright_patch() -> Panel:
    options = ReportOptions(selection=Selection.parse(heads="0.0"), look=Look(color_scale="linear"))
    report = build_report(image_recording(), options_for_medium(options, ".png"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    [panel] = report.panels
    return replace(panel, values=np.array([[0, 0, 0, 0, 0, panel.scale.high, 0]], dtype=np.float32))


def test_the_strong_patch_has_the_colour_of_its_weight_and_what_no_token_reads_fades() -> None:
    panel = panel_of_one_bright_patch()  # r1c1: x 30 to 60, y 40 to 80
    pixels = overlay_pixels(panel, HEIGHT, WIDTH).astype(int)
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    faded = 255 - (1 - FADED) * (1 - ABSENT_FADED) * (255.0 - panel_image(panel).grey[:, 90:])
    np.testing.assert_allclose(pixels[:, 90:], np.repeat(faded[..., None], 3, axis=2), atol=1)
    blue = pixels[..., 2] - pixels[..., 0]
    bright = np.argwhere(blue > 80)
    assert (bright.min(axis=0).tolist(), bright.max(axis=0).tolist()) == ([40, 30], [79, 59])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_legend_has_the_colours_that_are_seen_over_the_commonest_grey_and_they_can_be_told_apart(theme: str) -> None:
    look = Look(color_scale="linear", theme=theme)
    options = ReportOptions(selection=Selection.parse(heads="0.0"), look=look)
    recording = image_recording()
    report = build_report(recording, options_for_medium(options, ".png"))
    assert isinstance(report, DrawnReport)
    [panel] = report.panels
    image, places = panel_image(panel), panel.columns.places
    grey = float(np.median(image.grey))
    assert panel.scale.grey == grey
    assert places is not None

    # Over an image of this grey alone, the smallest and the largest weight have the colours at the ends of the legend.
    one_grey = replace(image, pixels=np.full_like(image.pixels, 128))  # in the middle between black and white: 128
    values = np.array([[0, 0, 0, 0, 0, panel.scale.high, 0]], dtype=np.float32)
    pixels = overlay_pixels(
        replace(panel, values=values, columns=replace(panel.columns, canvas=one_grey)), HEIGHT, WIDTH
    )
    low, high = pixels[10, 10].astype(int), pixels[60, 45].astype(int)
    np.testing.assert_allclose([low, high], replace(panel.scale, grey=128.0).colors[[0, -1]], atol=1)
    np.testing.assert_allclose(panel.scale.rgb([0.0, panel.scale.high]), panel.scale.colors[[0, -1]])


@pytest.mark.parametrize("name", ["ink", "ink-dark", "viridis", "inferno", "cividis", "Blues"])
def test_the_largest_weight_stands_out_from_the_smallest_on_any_photograph(name: str) -> None:
    scale = ColorScale(0, 1, name)
    smallest, largest = (
        luminance([scale.over_image(colormap(name)[end], grey) for grey in range(256)]) for end in (0, -1)
    )
    darker, brighter = (largest, smallest) if scale.ground else (smallest, largest)
    assert darker.max() < brighter.min()
    assert ((brighter + 0.05) / (darker + 0.05)).min() > 3, "the contrast of WCAG 2.1 for graphics"


def test_lines_enclose_patches_and_do_not_part_them() -> None:
    places = tokens_of_image().places
    inside = np.array([False, True, True, False, False, False, False])  # r0c0 and r0c1
    lines = outline_segments(places, inside)
    assert len(lines) == 6
    assert ((30, 0), (30, 40)) not in lines


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".pptx", ".html", ".txt", ".json", ".csv"])
def test_every_format_takes_a_recording_of_an_image(suffix: str) -> None:
    content = draw(image_recording(), suffix)
    assert content
    assert content == draw(image_recording(), suffix)
    if suffix == ".html":
        assert b"data:image/jpeg;base64," in content
        assert b"[0, 0, 30, 40]" in content or b"[0,0,30,40]" in content


def test_terminal_without_colours_shades_the_patches() -> None:
    lines = draw(image_recording(), ".txt", heads="0.0", ascii=True, width=24, query="r0c1").decode().splitlines()
    assert lines[2].startswith("head 0.0")
    rows = lines[3:11]
    assert {row[18:24] for row in rows} == {"......"}  # the right quarter is cropped away
    assert sum("Q" in row for row in rows) == 1


def test_spectrogram_has_its_seconds_below_and_its_bands_said() -> None:
    lines = draw(spectrogram_recording(), ".txt", heads="0.0", ascii=True, width=48, query="r0c1").decode().splitlines()
    assert "% on spectrogram" in lines[2]
    assert lines[19].split() == ["0s", "1s", "2s"]
    assert lines[19].index("1s") == 48 // 3  # of three seconds
    assert "bands rise from b0 to b1." in " ".join(lines)
    assert "spectrogram" not in draw(image_recording(), ".txt").decode()


def test_bands_begin_at_the_tops_of_patches_and_a_picture_has_none() -> None:
    reports = [build_report(each, ReportOptions()) for each in (spectrogram_recording(), image_recording())]
    assert [band_tops(report.panels[0]) for report in reports if isinstance(report, DrawnReport)] == [[0, 40], []]


def test_figure_of_a_spectrogram_names_seconds_and_bands() -> None:
    svg = draw(spectrogram_recording(), ".svg", heads="0.0").decode()
    assert all(f">{label}<" in svg for label in ("0 s", "1 s", "2 s", "b0", "b1"))
