"""Vision models in folders: what is recorded of an image, what its tokens are called, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from PIL import Image as Pillow

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.media.image import Image
from attnviz.models.reading.example import Example
from attnviz.models.reading.media_tokens import image_tokens
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.streams import Streams

pytestmark = pytest.mark.usefixtures("models_loaded_once")
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn picture of 96 x 64 pixels."""
    path = tmp_path_factory.mktemp("images") / "drawn.png"
    across, down = np.meshgrid(np.arange(96), np.arange(64))
    pixels = np.stack([across * 2, down * 3, np.where((across - 60) ** 2 + (down - 20) ** 2 < 150, 255, 30)], -1)
    Pillow.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def folder_of(where: Path, model: Any, processor: Any) -> Path:
    model.save_pretrained(where)
    processor.save_pretrained(where)
    return where


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = t.ViTModel(t.ViTConfig(**SMALL, image_size=[32, 48], patch_size=16))
    return folder_of(tmp_path_factory.mktemp("vit"), model, t.ViTImageProcessor(size={"height": 32, "width": 48}))


def all_weights(maps: LayerMaps) -> FloatArray:
    everything = slice(0, len(maps.key_tokens))
    return cell_maps(maps).window(maps.heads, everything, everything).weights


def recorded(folder: Path, photo: Path, **selection: Any) -> Recording:
    reader = open_reader(ModelSettings(model=str(folder)), "images")
    return reader.record(Example(image=photo), Selection(**selection))


def test_weights_are_those_of_the_model_and_patches_have_places(vit: Path, photo: Path) -> None:
    recording = recorded(vit, photo)
    tokens = recording.maps[0].key_tokens
    assert tokens.labels == ("[CLS]", "r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2")
    assert tokens.special.tolist() == [True] + [False] * 6
    assert tokens.places[[0, 3, 4]].tolist() == [[0, 0, 0, 0], [64, 0, 96, 32], [0, 32, 32, 64]]
    assert isinstance(tokens.canvas, Image)
    assert tokens.order == "grid"
    model: Any = t.ViTModel.from_pretrained(vit, attn_implementation="eager")
    pixels = t.ViTImageProcessor.from_pretrained(vit)(Pillow.open(photo), return_tensors="pt")
    with torch.no_grad():
        own = model(**pixels, output_attentions=True).attentions
    for maps, expected in zip(recording.maps, own, strict=True):
        np.testing.assert_allclose(all_weights(maps), expected[0].numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("has_place", "labels"),
    [((0, 0, 1, 0), ("[CLS]", "[extra 1]", "r0c0", "[extra 2]")), ((1, 0, 0), ("r0c0", "[extra 1]", "[extra 2]"))],
)
def test_tokens_without_a_place_are_numbered_from_1(has_place: tuple[int, ...], labels: tuple[str, ...]) -> None:
    places = np.array(has_place)[:, None] * np.array([0, 0, 8, 8])
    assert image_tokens(Image(np.zeros((8, 8, 3), dtype=np.uint8), 8, 8, "photo.png"), places).labels == labels


def test_recording_keeps_the_image_and_no_metadata(vit: Path, photo: Path, tmp_path: Path) -> None:
    save(recorded(vit, photo), tmp_path / "run.safetensors")
    image = load(tmp_path / "run.safetensors").maps[0].key_tokens.canvas
    assert isinstance(image, Image)
    np.testing.assert_array_equal(image.pixels, np.asarray(Pillow.open(photo)))
    assert image.title == "drawn.png"


def test_pooling_head_looks_with_a_probe(tmp_path: Path, photo: Path) -> None:
    model = t.SiglipVisionModel(t.SiglipVisionConfig(**SMALL, image_size=32, patch_size=16))
    folder = folder_of(tmp_path, model, t.SiglipImageProcessor(size={"height": 32, "width": 32}))
    pooling = [maps for maps in recorded(folder, photo).maps if len(maps.query_tokens) == 1]
    assert [maps.query_tokens.labels for maps in pooling] == [("[probe]",)]
    assert pooling[0].key_tokens.labels == ("r0c0", "r0c1", "r1c0", "r1c1")


def test_windows_are_in_their_places_before_and_after_merging(tmp_path: Path, photo: Path) -> None:
    config = t.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4)
    folder = folder_of(tmp_path, t.SwinModel(config), t.ViTImageProcessor(size={"height": 64, "width": 64}))
    recording = recorded(folder, photo)
    assert [maps.layer for maps in recording.maps] == [0, 1, 2, 3]
    for maps, side in ((recording.maps[0], 16), (recording.maps[2], 8)):
        assert maps.key_tokens.places[-1].tolist() == [96 - 96 // side, 64 - 64 // side, 96, 64]
        sees = cell_maps(maps).visibility(0, slice(0, 1), slice(0, side * side))[0].reshape(side, side)
        assert sees[:4, :4].all()
        assert sees.sum() == 16  # r0c0 sees the patches of its window


def test_patches_that_overlap_are_cells_around_their_centres_and_keys_that_join_patches_are_larger(
    tmp_path: Path, photo: Path
) -> None:
    model = t.SegformerModel(
        t.SegformerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1] * 4, num_attention_heads=[1, 2, 2, 4])
    )
    folder = folder_of(tmp_path, model, t.SegformerImageProcessor(size={"height": 64, "width": 96}))
    recording = recorded(folder, photo)
    assert "Patches overlap; each is drawn as the cell around its centre." in recording.remarks
    assert [len(maps.query_tokens) for maps in recording.maps] == [384, 96, 24, 6]
    for maps in recording.maps:
        assert maps.key_tokens.labels == ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2")
    # the picture has the size of the model's input, in which the middle of r1c1 is pixel (32, 32)
    assert recording.maps[3].key_tokens.places[4].tolist() == [17, 17, 49, 64]
    # keys of the first layer are 8 x 8 patches with strides of 4 pixels
    np.testing.assert_allclose(recording.maps[0].key_tokens.places[4], [32, 32, 64, 64], atol=1)


def test_refuses_a_processor_that_makes_huge_images(tmp_path: Path, photo: Path) -> None:
    model = t.ViTModel(t.ViTConfig(**SMALL, image_size=32, patch_size=16))
    folder = folder_of(tmp_path, model, t.ViTImageProcessor(size={"height": 10**6, "width": 10**6}))
    with pytest.raises(
        AttnvizError, match=r"the image processor of .* has height 1000000; give a number from 0 to 4096"
    ):
        recorded(folder, photo)


def test_reads_the_vision_tower_of_a_model_of_both(tmp_path: Path, photo: Path) -> None:
    parts: dict[str, Any] = {
        "text_config": {**SMALL, "vocab_size": 20},
        "vision_config": {**SMALL, "image_size": 32, "patch_size": 16},
    }
    model = t.CLIPModel(t.CLIPConfig(**parts, projection_dim=8))
    folder = folder_of(tmp_path, model, t.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32))
    recording = recorded(folder, photo)
    [first, _] = recording.maps
    assert recording.tower == "picture"
    assert first.key_tokens.labels == ("[CLS]", "r0c0", "r0c1", "r1c0", "r1c1")
    assert first.key_tokens.places[1].tolist() == [16, 0, 48, 32]  # cropped to the middle of 96 x 64 pixels


def test_ablation_measures_what_the_class_token_loses_without_a_head(vit: Path, photo: Path, shell: Streams) -> None:
    effects = shell.json("ablate", str(photo), "--model", str(vit), "--heads", "0.1")
    assert any("Measured at [CLS]" in remark for remark in effects["remarks"])
    reader: Any = open_reader(ModelSettings(model=str(vit)), "images")
    inputs, model = reader.read(Example(image=photo)).inputs, reader.module
    names = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and "attention" in name]
    projection = model.get_submodule(next(name for name in names if "output" in name or "o_proj" in name))
    width = model.config.hidden_size // model.config.num_attention_heads

    def without_head(module: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        changed = args[0].clone()
        changed[..., width : 2 * width] = 0
        return (changed,)

    with torch.no_grad():
        before = model(**inputs).last_hidden_state[:, 0]
        with_hook = projection.register_forward_pre_hook(without_head)
        after = model(**inputs).last_hidden_state[:, 0]
        with_hook.remove()
    expected = 1 - torch.nn.functional.cosine_similarity(before, after).item()
    assert expected > 1e-6
    assert effects["effects"][0]["effect"] == pytest.approx(expected, rel=1e-2, abs=1e-6)


def test_refuses_what_does_not_fit(vit: Path, photo: Path, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="the seeded model reads text"):
        open_reader(ModelSettings(), "images")
    with pytest.raises(AttnvizError, match="reads pictures or sounds and no text; give one with"):
        open_reader(ModelSettings(model=str(vit))).read(Example("a text"))
    with pytest.raises(AttnvizError, match="does not apply to images"):
        open_reader(ModelSettings(model=str(vit), generate=3), "images")
    (vit / "preprocessor_config.json").rename(tmp_path / "kept.json")
    try:
        with pytest.raises(AttnvizError, match=r"has no preprocessor_config.json, so it reads no images"):
            recorded(vit, photo)
    finally:
        (tmp_path / "kept.json").rename(vit / "preprocessor_config.json")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    names = {0: "tabby, tabby cat", 1: "dog", 2: "temple"}
    config = t.ViTConfig(
        **SMALL, image_size=[32, 48], patch_size=16, id2label=names, label2id={name: id for id, name in names.items()}
    )
    folder = tmp_path_factory.mktemp("classifier")
    with torch.no_grad():
        model: Any = t.ViTForImageClassification(config)
        model.classifier.weight.mul_(30)
    return folder_of(folder, model, t.ViTImageProcessor(size={"height": 32, "width": 48}))


def test_ablation_of_a_classifier_measures_the_logit_of_its_label(
    classifier: Path, photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model: Any = t.ViTForImageClassification.from_pretrained(classifier)
    pixels = t.ViTImageProcessor.from_pretrained(classifier)(Pillow.open(photo), return_tensors="pt")
    with torch.no_grad():
        logits = model(**pixels).logits[0]
        answer = int(logits.argmax())
        model.vit.layers[1].attention.o_proj.weight[:, 8:16] = 0  # the columns that read head 1
        changes = model(**pixels).logits[0] - logits
    label = model.config.id2label[answer]
    out = tmp_path / "effects.json"
    assert main(["ablate", str(photo), "--model", str(classifier), "-o", str(out)]) == 0
    effects = json.loads(out.read_text())
    assert (effects["metric"], effects["token"]) == ("logit", label)
    assert effects["baseline"] == pytest.approx(float(logits[answer]), abs=1e-5)
    [row] = [row for row in effects["effects"] if row["heads"] == ["1.1"]]
    assert row["effect"] == pytest.approx(float(changes[answer]), abs=1e-5)
    share = f"{float(logits.softmax(-1)[answer]):.0%}"
    assert f"The model answers {label!r}, with a probability of {share}." in effects["remarks"]
    reader = open_reader(ModelSettings(model=str(classifier)), "labels")
    assert [reader.find_token(name, Tokens.numbered(1)).id for name in ("Tabby cat", "DOG", "2")] == [0, 1, 2]
    capsys.readouterr()
    assert main(["ablate", str(photo), "--model", str(classifier), "--token", "temple", "-o", str(out), "--force"]) == 0
    [row] = [row for row in json.loads(out.read_text())["effects"] if row["heads"] == ["1.1"]]
    assert row["effect"] == pytest.approx(float(changes[2]), abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--token", "bird"], "has no label 'bird'; use 'tabby, tabby cat', 'dog' or 'temple'"),
        (["--metric", "logit:dog"], "--metric logit takes its token from --token; write --token dog"),
        (
            ["--metric", "kl", "--token", "dog"],
            "--token is read by --metric loss, accuracy or logit, and the metric is 'kl'",
        ),
        (["--token", "dog", "--versus", "dog"], "'dog' is compared with itself"),
        (
            ["--metric", "accuracy", "--token", "dog", "--versus", "temple"],
            "--versus temple subtracts a logit; use --metric",
        ),
        (["--metric", "loss"], "the model reads no token ids"),
        (["--queries", "3:5"], "no tokens at --queries 3:5"),
    ],
)
def test_ablation_of_a_classifier_refuses_what_it_cannot_measure(
    arguments: list[str], line: str, classifier: Path, photo: Path, shell: Streams
) -> None:
    assert line in shell.refused("ablate", str(photo), "--model", str(classifier), *arguments)


def test_ablation_without_labels_measures_features(vit: Path, photo: Path, tmp_path: Path, shell: Streams) -> None:
    out = tmp_path / "effects.json"
    assert main(["ablate", str(photo), "--model", str(vit), "-o", str(out)]) == 0
    assert json.loads(out.read_text())["metric"] == "cosine"
    assert "--token dog needs an image classifier, which" in shell.refused(
        "ablate", str(photo), "--model", str(vit), "--token", "dog"
    )
