"""The place of each token in its image, measured, against the layouts that these models are known to have."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.models.places.image_places import grey_ramp, measured_places, nearest_middles, token_of_pixel
from attnviz.models.places.token_inputs import UnknownPlacesError, in_precision

SIZE = (640, 427)  # of the image
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
STAGES: dict[str, Any] = {"hidden_sizes": [8, 16, 24, 32], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 4]}
PATCHES = {**SMALL, "intermediate_size": 64, "image_size": 64, "patch_size": 16}


def resized_axis(rows: int, columns: int) -> Any:
    return t.ViTImageProcessor(size={"height": rows, "width": columns})


def cropped(side: int) -> Any:
    return t.CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})


def widened() -> Any:
    return t.BitImageProcessor(size={"shortest_edge": 80}, crop_size={"height": 70, "width": 112})


DINO = {**SMALL, "image_size": 70, "patch_size": 14}
# name: configuration, model, processor, tokens without a place before and after, rows, columns, first column's left
MODELS: dict[str, tuple[Any, Any, Any, int, int, int, int, int]] = {
    "ViT": (t.ViTConfig(**PATCHES), t.ViTModel, resized_axis(64, 64), 1, 0, 4, 4, 0),
    "DeiT": (t.DeiTConfig(**PATCHES), t.DeiTModel, resized_axis(64, 64), 2, 0, 4, 4, 0),
    "BEiT": (t.BeitConfig(**PATCHES), t.BeitModel, resized_axis(64, 64), 1, 0, 4, 4, 0),
    "SigLIP": (t.SiglipVisionConfig(**PATCHES), t.SiglipVisionModel, resized_axis(64, 64), 0, 0, 4, 4, 0),
    "CLIP, cropped": (t.CLIPVisionConfig(**PATCHES), t.CLIPVisionModel, cropped(64), 1, 0, 4, 4, 101),
    "DINOv2 with registers": (
        t.Dinov2WithRegistersConfig(**DINO, num_register_tokens=4),
        t.Dinov2WithRegistersModel,
        widened(),
        5,
        0,
        5,
        8,
        16,
    ),
    "YOLOS, not square": (
        t.YolosConfig(**{**PATCHES, "image_size": [64, 96]}, num_detection_tokens=5),
        t.YolosModel,
        resized_axis(64, 96),
        1,
        5,
        4,
        6,
        0,
    ),
    "Swin": (
        t.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4),
        t.SwinModel,
        resized_axis(64, 64),
        0,
        0,
        8,
        8,
        0,
    ),
}


def places_in(
    config: Any, kind: Any, processor: Any, dtype: torch.dtype = torch.float32, size: tuple[int, int] = SIZE
) -> np.ndarray[Any, Any]:
    torch.manual_seed(0)
    model = kind(config).eval().to(dtype)

    def process(image: Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = processor(image, return_tensors="pt")["pixel_values"]
        return pixels.to(dtype)

    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return measured_places(model, process(Image.fromarray(noise)), process, size)


@pytest.mark.parametrize("name", MODELS)
def test_places_are_those_of_the_known_layout(name: str) -> None:
    config, kind, processor, before, after, rows, columns, left = MODELS[name]
    places = places_in(config, kind, processor)
    assert len(places) == before + rows * columns + after
    placed = places[:, 2] > 0
    assert np.flatnonzero(placed).tolist() == list(range(before, before + rows * columns))
    grid = places[placed].reshape(rows, columns, 4)
    assert abs(grid[0, 0, 0] - left) <= 1  # pixels of the image
    assert (np.diff(grid[:, :, 0], axis=1) > 0).all()  # columns go to the right
    assert (np.diff(grid[:, :, 1], axis=0) > 0).all()  # rows go down
    np.testing.assert_array_equal(grid[:, :-1, 2], grid[:, 1:, 0])  # neighbours meet
    np.testing.assert_array_equal(grid[:-1, :, 3], grid[1:, :, 1])
    assert np.ptp(grid[..., 2] - grid[..., 0]) <= 6  # and are about as wide


def test_a_resized_image_is_covered_to_its_borders() -> None:
    places = places_in(*MODELS["ViT"][:3])[1:].reshape(4, 4, 4)
    assert places[0, 0].tolist() == [0, 0, 160, 107]
    assert places[3, 3].tolist() == [480, 320, 640, 427]


def test_patches_of_a_small_image_are_whole_pixels_or_refused() -> None:
    places = places_in(*MODELS["ViT"][:3], size=(12, 8))[1:].reshape(4, 4, 4)
    assert places[0, 0].tolist() == [0, 0, 3, 2]
    assert places[3, 3].tolist() == [9, 6, 12, 8]
    with pytest.raises(AttnvizError, match="5000 x 3 pixels is too small or too thin: the model's patches are smaller"):
        places_in(*MODELS["ViT"][:3], size=(5000, 3))


def test_half_precision_gives_the_same_places_and_the_model_keeps_its_weights() -> None:
    config, kind, processor, *_ = MODELS["ViT"]
    whole, half = (places_in(config, kind, processor, dtype) for dtype in (torch.float32, torch.bfloat16))
    assert np.abs(whole - half).max() <= 3


def test_keys_of_other_tokens_move_no_place() -> None:
    config = t.PvtConfig(image_size=128, **STAGES)  # queries of 32 x 32 patches, keys of 4 x 4
    places = places_in(config, t.PvtModel, resized_axis(128, 128))
    assert not places[0].any()  # [CLS]
    assert places[1].tolist() == [0, 0, 160, 107]
    assert places[16].tolist() == [480, 320, 640, 427]


def test_a_token_that_overlaps_others_has_the_cell_around_its_centre() -> None:
    model: Any = t.SegformerModel(t.SegformerConfig(**STAGES))  # kernels of 7, 3, 3, 3; strides of 4, 2, 2, 2

    def features_of(pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = model.eval()(pixels).last_hidden_state[0].flatten(1).T
        return features

    tokens = token_of_pixel(model, torch.zeros(1, 3, 128, 192), features_of)
    assert (tokens.count, tokens.overlap) == (24, True)
    centres = np.arange(24).reshape(4, 6)  # of row r and column c at pixel (32 r, 32 c), as padding places them
    numbers = nearest_middles(tokens.numbers)[0].max(axis=0)
    np.testing.assert_array_equal(numbers[::32, ::32], centres)
    cells = np.minimum((np.arange(192) + 15) // 32, 5)  # whose edges are between middles; the last reaches the border
    np.testing.assert_array_equal(numbers[0], cells)
    np.testing.assert_array_equal(numbers[:, 0] // 6, np.minimum(cells[:128], 3))


def test_refuses_an_output_without_tokens() -> None:
    with pytest.raises(UnknownPlacesError, match="not one row or map of tokens"):
        places_in(t.DPTConfig(**PATCHES), WithoutTokens, resized_axis(64, 64))


class WithoutTokens(torch.nn.Linear):
    """A model whose output has no features of tokens."""

    def __init__(self, config: Any) -> None:
        super().__init__(2, 3)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return pixel_values


def test_refuses_queries_that_are_no_part_of_the_image() -> None:
    sides = {
        f"{side}_{size}": count for side in ("encoder", "decoder") for size, count in (("ffn_dim", 64), ("layers", 1))
    }
    sizes: dict[str, Any] = {"d_model": 32, **sides}
    backbone = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])  # type: ignore[call-arg]
    config = t.DetrConfig(backbone_config=backbone, **sizes, num_queries=7)
    with pytest.raises(UnknownPlacesError, match="no token of the model's output belongs to a part"):
        places_in(config, t.DetrModel, resized_axis(64, 64))


def test_refuses_a_random_order_of_patches() -> None:
    config = t.ViTMAEConfig(**PATCHES, mask_ratio=0.0)
    with pytest.raises(UnknownPlacesError, match="draws random numbers"):
        places_in(config, t.ViTMAEModel, resized_axis(64, 64))


@pytest.mark.parametrize(("direction", "axis"), [("across", 1), ("down", 0)])
def test_grey_values_are_coordinates_and_take_little_more_memory_than_their_image(direction: Any, axis: int) -> None:
    tracemalloc.start()
    try:
        image = grey_ramp((2000, 1000), direction)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 2000 * 1000 * 3  # bytes of the image; 100 megapixels fit into memory
    pixels = np.asarray(image)
    assert pixels.shape == (1000, 2000, 3)
    side = pixels.shape[axis]
    shades = np.rint((np.arange(side) + 0.5) / side * 255)
    assert (np.moveaxis(pixels, axis, 0) == shades[:, None, None]).all()


def test_tensors_of_low_precision_are_raised_in_the_block_and_each_gets_its_own_dtype_back() -> None:
    module = torch.nn.Linear(3, 2).bfloat16()
    module.register_buffer("frequencies", torch.tensor([1 / 3]))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with in_precision(module, torch.float64):
        assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float64}
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name])
    with in_precision(module.double(), torch.float32):
        assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float64}
