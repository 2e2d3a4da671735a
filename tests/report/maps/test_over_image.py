"""What one query of an image looks at: which query, which numbers, and which patches an outline encloses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.api.drawing import options_for_medium
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.metrics.combine import reduce_heads
from attnviz.render.figure.media import arrange_images
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.report.build import build_report as build_whole_report
from attnviz.report.maps.heatmaps import build_report
from attnviz.report.maps.over_image import MAX_SCREEN_IMAGES, mass_mask
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import query_box
from attnviz.report.picture.report import Heatmaps, ShadedText
from attnviz.text.selection import Selection
from tests.conftest import dense
from tests.report.image_examples import WIDTH, image_recording, words_and_images_recording


def report_of(recording: Recording, suffix: str = ".png", heads: str | None = None, **look: Any) -> ShadedText:
    options = ReportOptions(selection=Selection.parse(heads=heads), look=Look(**look))
    report = build_report(recording, options_for_medium(options, suffix))
    assert isinstance(report, ShadedText)
    return report


def test_without_a_query_the_class_token_looks_at_the_patches() -> None:
    recording = image_recording()
    [panel] = report_of(recording, heads="0.1").panels
    row = dense(recording).weights[1, 0]
    np.testing.assert_allclose(panel.values[0], row, rtol=1e-6)
    assert panel.visible[0].tolist() == [False] + [True] * 6  # [CLS] has no place to be drawn at
    assert panel.title == f"head 0.1 · {row[1:].sum():.0%} on image"
    assert query_box(panel) is None


def test_without_a_class_token_all_queries_look_in_the_mean() -> None:
    recording = image_recording(classes=False)
    report = report_of(recording, heads="0.2")
    weights = dense(recording).weights[2]
    np.testing.assert_allclose(report.panels[0].values[0], weights.mean(axis=0), rtol=1e-6)
    assert "the mean query" in report.caption


@pytest.mark.parametrize("query", ["r1c2", "6", "@89,79", "@60,40"])
def test_a_query_is_named_by_its_label_its_number_or_a_pixel(query: str) -> None:
    recording = image_recording()
    [panel] = report_of(recording, heads="0.0", query=query).panels
    np.testing.assert_allclose(panel.values[0], dense(recording).weights[0, 6], rtol=1e-6)
    assert query_box(panel) == (60, 40, 90, 80)


def test_refuses_a_pixel_that_the_model_does_not_read() -> None:
    with pytest.raises(AttnvizError, match="no patch at pixel 90,10; the model reads x 0 to 89, y 0 to 79"):
        report_of(image_recording(), query="@90,10")


def test_a_screen_shows_the_last_layer_and_says_so() -> None:
    recording = image_recording(layers=MAX_SCREEN_IMAGES // 3 + 1)
    report = report_of(recording, ".txt", height=24)
    assert {panel.group for panel in report.panels} == {"layer 4"}
    assert any(remark.startswith("Showing layer 4;") for remark in report.remarks)
    assert len(report_of(recording).panels) == len(recording.maps) * 3


def test_another_style_draws_the_matrix_of_patches() -> None:
    options = ReportOptions(look=Look(style="heatmap"))
    assert isinstance(build_report(image_recording(), options_for_medium(options, ".png")), Heatmaps)


@pytest.mark.parametrize(("suffix", "has_outline"), [(".pptx", True), (".png", True), (".txt", False)])
def test_figures_and_slides_have_an_outline_and_the_remark_on_it(suffix: str, has_outline: bool) -> None:
    report = report_of(image_recording(), suffix, heads="0.1")
    assert (report.panels[0].inside is not None) == has_outline
    assert any("The line encloses" in remark for remark in report.remarks) == has_outline


@given(st.integers(2, 40), st.integers(0, 2**16))
def test_outline_encloses_the_patches_of_the_mask_that_dino_published(count: int, seed: int) -> None:
    row = torch.softmax(torch.randn(1, count, generator=torch.Generator().manual_seed(seed)), dim=1)
    assert mass_mask(row[0].numpy()).tolist() == mask_of_dino(row)


def mask_of_dino(attentions: torch.Tensor, threshold: float = 0.6) -> list[bool]:
    """Returns the mask of facebookresearch/dino, ``visualize_attention.py``, line by line, of one head."""
    val, idx = torch.sort(attentions)
    val /= torch.sum(val, dim=1, keepdim=True)
    cumval = torch.cumsum(val, dim=1)
    th_attn = cumval > (1 - threshold)
    idx2 = torch.argsort(idx)
    return [bool(each) for each in th_attn[0][idx2[0]]]


def test_rollout_is_a_row_over_the_image_and_a_matrix_if_asked() -> None:
    recording = image_recording(layers=2)
    options = options_for_medium(ReportOptions(reduce="rollout", look=Look(query="r1c2")), ".png")
    report = build_whole_report(recording, options)
    assert isinstance(report, ShadedText)
    [panel] = report.panels
    heads = [(cell_maps(maps), head) for maps in recording.maps for head in maps.heads]
    [[expected]] = cell_maps(reduce_heads(heads, "rollout")).window((0,), slice(6, 7), slice(0, 7)).weights
    np.testing.assert_allclose(panel.values[0], expected, rtol=1e-6)
    name = "rollout of heads 0.0, 0.1, 0.2, 1.0, 1.1, 1.2"
    assert panel.title.startswith(f"{name} · ")
    assert f"What “r1c2” (6) looks at in the image, in the {name} of a ViT" in report.caption
    assert report.remarks[0].startswith("Rollout: the share of each input token")
    matrix = build_whole_report(recording, replace(options, look=Look(style="heatmap")))
    assert isinstance(matrix, Heatmaps)


def test_images_of_different_shapes_keep_their_shapes_in_a_figure() -> None:
    recording = words_and_images_recording()
    [maps] = recording.maps
    tokens = maps.key_tokens
    other = tokens.media[2]
    assert isinstance(other, Image)
    upright = replace(other, width=WIDTH // 4)
    tokens = replace(tokens, media=(*tokens.media[:2], upright), places=np.minimum(tokens.places, (30, 80, 30, 80)))
    report = report_of(replace(recording, maps=(replace(maps, query_tokens=tokens, key_tokens=tokens),)), heads="0.1")
    boxes = [image.box for image in arrange_images(picture_of(report), Ruler(("DejaVu Sans",))).content.places]
    assert [box.width / box.height for box in boxes] == pytest.approx([120 / 80, 30 / 80])
    assert "in the images" in report.caption
