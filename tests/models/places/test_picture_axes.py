"""Detectors, segmenters and SAM in folders: objects and prompts look at a picture whose patches have places."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
t: Any = transformers  # whose constructors have no types
CLASSES = ("person", "car", "cat")
WIDTH, HEIGHT = 320, 200
NAMES = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: number for number, name in enumerate(CLASSES)}}
SMALL = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "num_queries": 6,
}  # fmt: skip
DEPTHS = {"embedding_size": 16, "hidden_sizes": [16, 16, 32, 32], "depths": [1] * 4, "layer_type": "basic"}
SIZE = {"shortest_edge": 160, "longest_edge": 256}
SWIN = {"image_size": 96, "patch_size": 4, "embed_dim": 16, "depths": [1] * 4, "num_heads": [2, 2, 4, 4]}
STAGES = ["stage1", "stage2", "stage3", "stage4"]


def detr(object_count: int = 6) -> tuple[Any, Any]:
    backbone = t.ResNetConfig(**DEPTHS, out_features=["stage4"])
    config = t.DetrConfig(backbone_config=backbone, **SMALL | {"num_queries": object_count}, **NAMES)
    model = t.DetrForObjectDetection(config)
    model.class_labels_classifier.bias.data[2] = 3.2
    return model, t.DetrImageProcessorPil(size=SIZE)


def detr_of_40() -> tuple[Any, Any]:
    return detr(40)  # as many objects as patches


def rt_detr() -> tuple[Any, Any]:
    backbone = t.RTDetrResNetConfig(**DEPTHS, out_features=STAGES[1:])
    sizes = {name: SMALL[name] for name in SMALL if name != "encoder_layers"}
    config = t.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[16, 32, 32], encoder_layers=1,
        decoder_in_channels=[32] * 3, num_denoising=0, anchor_image_size=None, **sizes, **NAMES,
    )  # fmt: skip
    return t.RTDetrForObjectDetection(config), t.RTDetrImageProcessorPil(size={"height": 160, "width": 160})


def yolos() -> tuple[Any, Any]:
    config = t.YolosConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=[96, 128],
        patch_size=16, num_detection_tokens=6, **NAMES,
    )  # fmt: skip
    return t.YolosForObjectDetection(config), t.YolosImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 160})


def mask2former() -> tuple[Any, Any]:
    config = t.Mask2FormerConfig(
        backbone_config=t.SwinConfig(**SWIN, window_size=4, out_features=STAGES), feature_size=32, hidden_dim=32,
        mask_feature_size=32, encoder_feedforward_dim=48, encoder_layers=1, decoder_layers=4, num_attention_heads=4,
        dim_feedforward=48, num_queries=6, **NAMES,
    )  # fmt: skip
    processor = t.Mask2FormerImageProcessorPil(size={"shortest_edge": 128, "longest_edge": 224}, size_divisor=32)
    return t.Mask2FormerForUniversalSegmentation(config), processor


def sam() -> tuple[Any, Any]:
    prompt = {"hidden_size": 32, "image_size": 128, "patch_size": 16, "mask_input_channels": 4}
    config = t.SamConfig(
        vision_config={
            "hidden_size": 32, "output_channels": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 128, "patch_size": 16, "window_size": 4, "global_attn_indexes": [1], "num_pos_feats": 16,
        },
        prompt_encoder_config=prompt,
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4, "iou_head_hidden_dim": 32},
    )  # fmt: skip
    masks = {"mask_size": {"longest_edge": 32}, "mask_pad_size": {"height": 32, "width": 32}}
    images = t.SamImageProcessorPil(size={"longest_edge": 128}, pad_size={"height": 128, "width": 128}, **masks)
    return t.SamModel(config), t.SamProcessor(images)


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "street.png"
    Pillow.fromarray(np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models, as they are saved by their own classes."""
    saved = {}
    for make in (detr, detr_of_40, rt_detr, yolos, mask2former, sam):
        torch.manual_seed(0)
        model, processor = make()
        saved[make.__name__] = folder = tmp_path_factory.mktemp(make.__name__)
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return saved


def recorded(folder: Path, photo: Path, **settings: Any) -> Recording:
    return open_reader(ModelSettings(model=str(folder), **settings), "images").record(Example(image=photo), Selection())


# name: what is recorded, the rows and columns of patches in each layer; queries without a place, how many there are
CASES: dict[str, tuple[str, str | None, list[tuple[int, int]], str, int]] = {
    "DETR, objects to patches": ("detr", None, [(5, 8)] * 2, "object 0", 6),
    "DETR, as many objects as patches": ("detr_of_40", None, [(5, 8)] * 2, "object 39", 40),
    "DETR, patches": ("detr", "encoder", [(5, 8)] * 2, "", 0),
    "DETR, objects": ("detr", "decoder", [(0, 0)] * 2, "object 0", 6),
    "RT-DETR, whose objects sample patches": ("rt_detr", None, [(5, 5)], "", 0),
    "YOLOS, objects among patches": ("yolos", None, [(6, 9)] * 2, "object 0", 7),
    "Mask2Former, patches of three sizes": ("mask2former", None, [(4, 7), (8, 14), (16, 28)], "object 0", 6),
    "SAM, tokens to patches": ("sam", None, [(5, 8)] * 3, "point 0", 7),
    "SAM, patches to tokens": ("sam", "decoder", [(0, 0)] * 4, "point 0", 7),
}


@pytest.mark.parametrize("case", CASES)
def test_objects_and_prompts_have_names_and_patches_have_places(
    case: str, folders: dict[str, Path], photo: Path
) -> None:
    name, attention, grids, label, unplaced = CASES[case]
    recording = recorded(folders[name], photo, attention=attention)
    assert len(recording.maps) == len(grids)
    assert not any(remark.startswith("Tokens are numbered") for remark in recording.remarks)
    if name == "sam":
        assert any(remark.startswith("Layer 0 of vision_encoder.layers attends within") for remark in recording.remarks)
    for maps, (rows, columns) in zip(recording.maps, grids, strict=True):
        keys, queries = maps.key_tokens, maps.query_tokens
        is_placed = keys.medium >= 0 if isinstance(keys.canvas, Image) else np.zeros(len(keys), dtype=bool)
        placed = np.flatnonzero(is_placed).tolist()
        assert len(placed) == rows * columns
        assert [keys.labels[index] for index in placed] == [
            f"r{row}c{column}" for row in range(rows) for column in range(columns)
        ]
        if rows:
            assert keys.places[placed[-1], 2:].tolist() == [WIDTH, HEIGHT]
        tokens = keys if attention == "decoder" else queries
        assert np.count_nonzero(tokens.medium < 0 if isinstance(tokens.canvas, Image) else np.ones(len(tokens))) == (
            unplaced
        )
        assert not label or any(text.startswith(label) for text in tokens.labels)


def test_weights_of_objects_are_those_of_the_model_and_names_are_what_it_finds(
    folders: dict[str, Path], photo: Path
) -> None:
    recording = recorded(folders["detr"], photo)
    model = t.DetrForObjectDetection.from_pretrained(folders["detr"], attn_implementation="eager").eval()
    processor = t.AutoImageProcessor.from_pretrained(folders["detr"])
    with torch.no_grad():
        output = model(**processor(Pillow.open(photo), return_tensors="pt"), output_attentions=True)
    for maps, own in zip(recording.maps, output.cross_attentions, strict=True):
        window = cell_maps(maps).window(maps.heads, slice(0, 6), slice(0, 40))
        np.testing.assert_allclose(window.weights, own[0].numpy(), atol=1e-5)
    [found] = processor.post_process_object_detection(output, threshold=0.0)
    objects = recording.maps[0].query_tokens
    is_found = (found["scores"] > 0.5).tolist()
    expected = [
        f"object {number}: {CLASSES[label]} {score:.2f}" if is_found[number] else f"object {number}"
        for number, (label, score) in enumerate(zip(found["labels"].tolist(), found["scores"].tolist(), strict=True))
    ]
    assert list(objects.labels) == expected
    assert objects.special.tolist() == [not found for found in is_found]
    assert any(is_found)


def test_the_place_of_a_patch_is_where_the_picture_changes_it_most(folders: dict[str, Path], photo: Path) -> None:
    keys = recorded(folders["detr"], photo).maps[0].key_tokens
    model = t.DetrForObjectDetection.from_pretrained(folders["detr"]).eval()
    processor = t.AutoImageProcessor.from_pretrained(folders["detr"])
    features: list[torch.Tensor] = []
    model.model.encoder.layers[0].register_forward_pre_hook(lambda _, args: features.append(args[0]))
    picture = np.asarray(Pillow.open(photo))
    for token in (9, 20, 30):
        left, top, right, bottom = keys.places[token]
        changed, (x, y) = picture.copy(), ((left + right) // 2, (top + bottom) // 2)
        changed[y - 3 : y + 4, x - 3 : x + 4] = 255 - changed[y - 3 : y + 4, x - 3 : x + 4]
        features.clear()
        for pixels in (picture, changed):
            with torch.no_grad():
                model(**processor(Pillow.fromarray(pixels), return_tensors="pt"))
        assert int((features[1] - features[0])[0].norm(dim=-1).argmax()) == token


@pytest.mark.parametrize(
    ("name", "attention", "message"),
    [
        ("rt_detr", "cross", r"has no cross attention: its objects read samples .*; choose encoder or decoder"),
        ("yolos", "cross", "attention=.cross. does not apply to images in .*; leave it out"),
    ],
)
def test_attention_that_a_model_does_not_have_is_refused_with_the_reason(
    name: str, attention: str, message: str, folders: dict[str, Path], photo: Path
) -> None:
    with pytest.raises(AttnvizError, match=message):
        recorded(folders[name], photo, attention=attention)


def test_a_command_draws_what_an_object_looks_at(folders: dict[str, Path], photo: Path, shell: Streams) -> None:
    model = ("--model", str(folders["detr"]))
    drawn = shell.json("show", str(photo), *model, "--heads", "1.2")
    assert drawn["remarks"][0].startswith("Patches overlap")
    assert any(remark.startswith("The model finds ") for remark in drawn["remarks"])
    assert any(
        remark == "For the other attention: --attention encoder or --attention decoder." for remark in drawn["remarks"]
    )
