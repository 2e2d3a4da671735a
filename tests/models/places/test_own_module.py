"""`attnviz.reading` of any module with a function from picture to input: places are measured, or said to be unknown."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow
from torch import Tensor, nn

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.models.places.token_inputs import features_at, whole_token_numbers
from attnviz.text.tokens import Tokens
from tests.models.places.vision_modules import (
    MODULES,
    REORDERED,
    UNKNOWN,
    Axis,
    MaskedAutoencoder,
    OfBatch,
    Patches,
    batch_of,
    stack,
)
from tests.models.places.vision_modules import WIDTH as WIDTH_OF_TOKEN

WIDTH, HEIGHT = 96, 64
PHOTO = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def weights_of(maps: LayerMaps) -> Any:
    everything = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    return cell_maps(maps).window(maps.heads, *everything).weights


def assert_placed(tokens: Tokens, axis: Axis | None, tolerance: int) -> None:
    if axis is None:
        assert not tokens.image_indices
        return
    rows, columns = axis.grid
    patches = slice(axis.before, len(axis) - axis.after)
    assert len(tokens) == len(axis)
    assert (tokens.medium >= 0).nonzero()[0].tolist() == list(range(patches.start, patches.stop))
    owners = tokens.medium[patches] - tokens.medium[patches].min(initial=len(axis))
    np.testing.assert_array_equal(owners, np.repeat(np.arange(axis.pictures), rows * columns))
    if not rows:
        return
    width, height = WIDTH / columns, HEIGHT / rows
    expected = [
        [column * width, row * height, (column + 1) * width, (row + 1) * height]
        for row in range(rows)
        for column in range(columns)
    ] * axis.pictures
    np.testing.assert_allclose(tokens.places[patches], expected, atol=tolerance)


@pytest.mark.parametrize("name", MODULES)
def test_places_are_measured_for_a_module_that_nobody_has_named(name: str) -> None:
    case = MODULES[name]
    torch.manual_seed(0)
    recording = attnviz.reading(case.build(), case.make, images=[PHOTO] * case.pictures, attention=case.attention)
    maps = recording.maps[-case.layers :]
    assert len(maps) == case.layers
    for layer_maps in maps:
        assert_placed(layer_maps.query_tokens, case.queries, case.tolerance)
        assert_placed(layer_maps.key_tokens, case.keys, case.tolerance)
    assert not any("numbered" in remark for remark in recording.remarks)


@pytest.mark.parametrize("name", UNKNOWN)
def test_places_that_cannot_be_known_are_not_guessed_and_the_reason_is_said(name: str) -> None:
    build, make, reason = UNKNOWN[name]
    recording = attnviz.reading(build(), make, images=[PHOTO])
    assert all(not maps.key_tokens.image_indices for maps in recording.maps)
    [remark] = recording.remarks
    assert remark.startswith("Tokens are numbered, not placed on the image, since")
    assert reason in remark


@pytest.mark.parametrize("name", REORDERED)
def test_rows_and_columns_have_their_labels_in_whatever_order_a_module_reads_them(name: str) -> None:
    recordings = []
    for build in REORDERED[name]:
        torch.manual_seed(0)
        recordings.append(attnviz.reading(build(), batch_of, images=[PHOTO]))
    for maps, expected in zip(*(recording.maps for recording in recordings), strict=True):
        assert maps.key_tokens.labels != expected.key_tokens.labels
        order = [expected.key_tokens.labels.index(label) for label in maps.key_tokens.labels]
        weights = weights_of(expected)[:, order][:, :, order]
        np.testing.assert_allclose(weights_of(maps), weights, atol=1e-5)


def test_patches_in_a_random_order_have_the_places_of_the_recorded_order() -> None:
    module = MaskedAutoencoder()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    recording = attnviz.reading(module, batch_of, images=[PHOTO])
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random numbers stay as they were
    labels = recording.maps[0].key_tokens.labels
    torch.manual_seed(4)  # whatever was drawn before, the same patches are drawn again
    assert attnviz.reading(module, batch_of, images=[PHOTO]).maps[0].key_tokens.labels == labels
    assert labels == ("[CLS]", *(f"r{place // 6}c{place % 6}" for place in module.order.tolist()))


def test_patches_beside_dropped_ones_keep_their_own_labels_and_places() -> None:
    kept = [place for place in range(24) if place % 6 not in (2, 4) and place // 6 != 1]
    whole, part = (
        attnviz.reading(MaskedAutoencoder(patches), batch_of, images=[PHOTO]).maps[0].key_tokens
        for patches in (list(range(24)), kept)
    )
    order = [0, *(1 + place for place in kept)]
    assert part.labels == tuple(whole.labels[place] for place in order)
    np.testing.assert_array_equal(part.places, whole.places[order])


@pytest.mark.parametrize(
    "form",
    [
        lambda pixels: pixels,
        lambda pixels: pixels[0],
        lambda pixels: pixels[0].numpy(),
        lambda pixels: (pixels,),
        lambda pixels: {"input": pixels[0].numpy().astype(np.float64), "labels": 3},
    ],
    ids=["tensor", "without texts", "array", "tuple", "mapping of more"],
)
def test_a_function_may_return_any_form_of_the_input(form: Any) -> None:
    torch.manual_seed(0)
    module = MODULES["timm ViT"].build()
    whole = attnviz.reading(module, batch_of, images=[PHOTO])
    recording = attnviz.reading(module, lambda image: form(batch_of(image)), images=[PHOTO])
    np.testing.assert_array_equal(recording.maps[0].key_tokens.places, whole.maps[0].key_tokens.places)
    with torch.no_grad(), attnviz.record(module) as recorded:
        module(batch_of(Pillow.fromarray(PHOTO)))
    for maps, expected in zip(recording.maps, recorded.maps, strict=True):
        np.testing.assert_allclose(weights_of(maps), weights_of(expected), atol=1e-6)


@pytest.mark.parametrize(
    ("read", "form"),
    [
        (lambda batch: batch["pixels"], lambda pixels: {"pixels": pixels, "label": "cat"}),
        (lambda batch: batch["pixels"], lambda pixels: {"batch": {"pixels": pixels[0].numpy()}}),
        (lambda batch: batch["pixels"], lambda pixels: ({"pixels": pixels},)),
        (lambda batch: batch["views"][1]["pixels"], lambda pixels: {"views": [None, {"pixels": pixels}]}),
        (lambda batch: batch[0].pixels, lambda pixels: {"batch": (Views(pixels, "left"),)}),
        (lambda batch: batch.pixel_values, lambda pixels: transformers.BatchFeature({"pixel_values": pixels})),
        (torch.stack, lambda pixels: [pixels[0]]),
    ],
    ids=["mapping", "by its name", "tuple", "deeper", "named tuple", "of transformers", "list"],
)
def test_a_module_may_take_what_the_function_returns_as_one_argument(read: Any, form: Any) -> None:
    torch.manual_seed(0)
    module = MODULES["timm ViT"].build()
    whole = attnviz.reading(module, batch_of, images=[PHOTO])
    recording = attnviz.reading(OfBatch(module, read), lambda image: form(batch_of(image)), images=[PHOTO])
    for maps, expected in zip(recording.maps, whole.maps, strict=True):
        np.testing.assert_array_equal(maps.key_tokens.places, expected.key_tokens.places)
        np.testing.assert_array_equal(weights_of(maps), weights_of(expected))


class Views(NamedTuple):
    pixels: Tensor
    side: str


class Halves(nn.Module):
    """Reads the halves of a picture as two texts, and keeps a table that it computes at first."""

    def __init__(self) -> None:
        super().__init__()
        self.vit, self.table = stack(1, count=12), torch.empty(0)

    def forward(self, pixels: Tensor) -> Tensor:
        if not len(self.table):
            self.table = torch.ones(1, 3, 1, 1)
        halves = torch.cat([pixels[..., :24], pixels[..., 24:]]) * self.table
        result: Tensor = self.vit(halves)
        return result


def test_texts_of_one_pass_have_places_of_their_own_and_the_module_can_still_be_trained() -> None:
    module = Halves().train()
    recording = attnviz.reading(module, batch_of, images=[PHOTO])
    lefts = {maps.item: maps.key_tokens.places[1:, 0].tolist() for maps in recording.maps}
    assert lefts == {0: [0, 16, 32] * 4, 1: [48, 64, 80] * 4}
    assert module.training
    module(torch.ones(1, 3, 32, 48)).sum().backward()  # a table of inference mode could not be part of it


class NestedHalves(nn.Module):
    """Attends in both halves at once, with an axis of windows behind that of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv = Patches(), nn.Linear(WIDTH_OF_TOKEN, 3 * WIDTH_OF_TOKEN)

    def projections(self, pixels: Tensor) -> Tensor:
        windows = self.embed(pixels).reshape(1, 4, 2, 3, -1).transpose(1, 2).reshape(1, 2, 12, -1)
        projected: Tensor = self.qkv(windows).reshape(1, 2, 12, 3, 4, -1)
        return projected.permute(3, 0, 4, 1, 2, 5)

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(*self.projections(pixels))


def test_windows_behind_the_heads_are_read_one_after_the_other() -> None:
    module, pixels = NestedHalves(), torch.rand(1, 3, 32, 48, requires_grad=True)
    rows = features_at(module, [""], {"pixels": pixels}, "keys", (12, 12), texts=2)
    assert rows is not None
    _, keys, _ = module.projections(pixels)  # (texts, heads, windows, tokens, features)
    torch.testing.assert_close(rows, keys[0].permute(1, 2, 0, 3).reshape(24, -1))


def test_a_number_of_no_token_belongs_to_several() -> None:
    gradient = np.ones(4)
    assert whole_token_numbers(gradient, np.array([1.0, 2.0, 3.0, 3.0]), count=3, max_unsure=0) is not None
    for beyond in (0.0, 4.0, 2.5):
        assert whole_token_numbers(gradient, np.array([1.0, 2.0, 3.0, beyond]), count=3, max_unsure=0) is None


def test_an_image_processor_of_transformers_may_serve_any_module() -> None:
    processor: Any = transformers.ViTImageProcessor(size={"height": 32, "width": 48})
    recording = attnviz.reading(ReadsPixels(), processor, images=[PHOTO])
    assert_placed(recording.maps[0].key_tokens, Axis(before=1), tolerance=0)


class ReadsPixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vit = stack(1)

    def forward(self, pixel_values: Tensor) -> Tensor:
        result: Tensor = self.vit(pixel_values)
        return result


def test_a_reading_of_any_module_is_drawn_ablated_and_explained() -> None:
    torch.manual_seed(0)
    case = MODULES["a robot's policy"]
    recording = attnviz.reading(case.build(), case.make, images=[PHOTO, PHOTO])
    report = attnviz.build_report(recording, attnviz.ReportOptions())
    assert report.title == "image 1, image 2"
    assert report.caption.startswith("What “[CLS]” looks at in the images, in 2 heads of Policy;")
    assert len(attnviz.ablate(recording.live.model, recording).rows) == 2
    assert "r0c1" in attnviz.explanation(recording, "0.1")
    objects = attnviz.reading(MODULES["DETR, objects"].build(), batch_of, images=[PHOTO])
    assert objects.maps[0].query_tokens.labels == ("query 0", "query 1", "query 2", "query 3", "query 4")
    assert "query 3" in attnviz.explanation(objects, "1.0")
    with pytest.raises(AttnvizError, match="the model has no self-attention over a picture"):
        attnviz.survey(objects.live.model, batch_of, images=[PHOTO])
