"""Vision-language models in folders: where their tokens stand in pictures, what is recorded, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow

import attnviz
from attnviz.api.recording import drawable
from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.grouped import Units, written_texts
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording, chosen_heads
from attnviz.maps.saved import load, save
from attnviz.media.image import Image
from attnviz.models.huggingface.picture_text_reader import load_text_processor
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.report.words.captions import model_name
from attnviz.text.conversation import Conversation
from attnviz.text.selection import Selection
from tests.models.huggingface.picture_models import QUESTION, TEXT, qwen_folder, word_tokenizer
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
t: Any = transformers  # whose constructors have no types


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn picture of 160 x 100 pixels."""
    path = tmp_path_factory.mktemp("images") / "drawn.png"
    Pillow.fromarray(np.random.default_rng(0).integers(0, 255, (100, 160, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LLaVA, whose processor cuts the middle 100 x 100 pixels of the picture into 5 x 5 patches."""
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("llava"), word_tokenizer("<image>")
    vision = {**{name: TEXT[name] for name in list(TEXT)[:4]}, "image_size": 70, "patch_size": 14}
    config = t.LlavaConfig(
        vision_config=t.CLIPVisionConfig(**vision), text_config=t.LlamaConfig(**TEXT),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    t.LlavaForConditionalGeneration(config).save_pretrained(folder)
    images = t.CLIPImageProcessorPil(size={"shortest_edge": 70}, crop_size={"height": 70, "width": 70})
    t.LlavaProcessor(
        images, tokenizer, patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen_folder(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def mllama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama 3.2 Vision: layer 1 attends to the patches of up to four tiles of 56 pixels by cross-attention."""
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("mllama"), word_tokenizer("<|image|>")
    ratios = [[across, down] for across in range(1, 5) for down in range(1, 5) if across * down <= 4]
    vision = {
        "hidden_size": 32, "attention_heads": 4, "num_hidden_layers": 2, "num_global_layers": 1, "image_size": 56,
        "intermediate_size": 64, "vision_output_dim": 64, "patch_size": 14, "max_num_tiles": 4,
        "intermediate_layers_indices": [0], "supported_aspect_ratios": ratios,
    }  # fmt: skip
    text = {**TEXT, "num_hidden_layers": 3, "cross_attention_layers": [1], "pad_token_id": 1}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    config = t.MllamaConfig(
        vision_config=vision, text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<|image|>")
    )
    t.MllamaForConditionalGeneration(config).save_pretrained(folder)
    images = t.MllamaImageProcessorPil(size={"height": 56, "width": 56}, max_image_tiles=4)
    t.MllamaProcessor(images, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BLIP-2: 6 latents read the picture, and its processor puts them before the text."""
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("blip"), word_tokenizer("<image>")
    small = {name: TEXT[name] for name in list(TEXT)[:4]}
    text = {"model_type": "opt", "vocab_size": 200, "hidden_size": 32, "ffn_dim": 64, "word_embed_proj_dim": 32}
    config = t.Blip2Config(
        vision_config={**small, "image_size": 64, "patch_size": 16},
        qformer_config={**small, "vocab_size": 200, "encoder_hidden_size": 32},
        text_config={**text, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 1},
        num_query_tokens=6,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    t.Blip2ForConditionalGeneration(config).save_pretrained(folder)
    images = t.BlipImageProcessorPil(size={"height": 64, "width": 64})
    t.Blip2Processor(images, tokenizer, num_query_tokens=6).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def florence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Florence 2: 16 patches and their mean are read by an encoder with the text, and a decoder writes."""
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("florence"), word_tokenizer(image_token="<image>")
    tokenizer.image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    vision = {"embed_dim": [16, 16, 32, 32], "depths": [1] * 4, "num_heads": [2, 2, 4, 4], "num_groups": [2, 2, 4, 4]}
    layers = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
    sizes = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in layers.items()}
    config = t.Florence2Config(
        vision_config={**vision, "window_size": 4, "projection_dim": 32},
        text_config={"model_type": "bart", "vocab_size": 200, "d_model": 32, **sizes, "max_position_embeddings": 64},
        image_token_id=tokenizer.image_token_id,
    )
    t.Florence2ForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": 128, "width": 128}
    images = t.CLIPImageProcessorPil(size=size, do_center_crop=False, image_seq_length=17)
    t.Florence2Processor(images, tokenizer, num_additional_image_tokens=0).save_pretrained(folder)
    return folder


def recorded(
    folder: Path, *photos: Path, text: str = QUESTION, layers: str | None = None, **settings: Any
) -> Recording:
    reader = open_reader(ModelSettings(model=str(folder), **settings), "pictures")
    return reader.record(Example(text, images=photos), Selection.parse(layers=layers))


def times_covered(boxes: IntArray) -> IntArray:
    """How many rectangles each pixel of the photo is in."""
    covered = np.zeros((100, 160), dtype=np.int64)
    for left, top, right, bottom in boxes:
        covered[top:bottom, left:right] += 1
    return covered


def all_weights(maps: LayerMaps) -> FloatArray:
    queries, keys = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    return cell_maps(maps).window(maps.heads, queries, keys).weights


@pytest.mark.parametrize("name", ["llava", "qwen", "mllama"])
@pytest.mark.parametrize("attention", [None, "picture"], ids=["text", "tower"])
def test_a_loaded_model_is_read_as_its_folder_is(
    name: str, attention: str | None, photo: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(name)
    expected = recorded(folder, photo, attention=attention)
    model = t.AutoModelForImageTextToText.from_pretrained(folder)
    recording = attnviz.reading(
        model, load_text_processor(folder), QUESTION, [np.asarray(Pillow.open(photo))], attention=attention
    )
    assert [maps.layer for maps in recording.maps] == [maps.layer for maps in expected.maps]
    for maps, expected_maps in zip(recording.maps, expected.maps, strict=True):
        assert maps.query_tokens.labels == expected_maps.query_tokens.labels
        assert maps.key_tokens.labels == expected_maps.key_tokens.labels
        np.testing.assert_array_equal(maps.key_tokens.places, expected_maps.key_tokens.places)
        np.testing.assert_allclose(all_weights(maps), all_weights(expected_maps), atol=1e-6)
    if attention is None:
        assert recording.remarks[0].endswith("For the picture tower: attention='picture'.")


@pytest.mark.parametrize("name", ["llava", "qwen", "mllama"])
def test_a_loaded_model_is_ablated_explained_and_generates_as_its_folder_does(
    name: str, photo: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(name)
    model = t.AutoModelForImageTextToText.from_pretrained(folder)
    reading = attnviz.reading(model, load_text_processor(folder), QUESTION, [photo], generate=2)
    expected = recorded(folder, photo, generate=2)
    assert reading.maps[-1].query_tokens.labels == expected.maps[-1].query_tokens.labels
    assert any("The last 2 tokens were generated" in remark for remark in reading.remarks)
    command = [QUESTION, str(photo), "--model", str(folder)]
    file = tmp_path / "effects.json"
    assert main(["ablate", *command, "--generate", "2", "--layers", "1", "-o", str(file)]) == 0
    effects = attnviz.ablate(model, reading, heads=Selection(layers=(1,)))
    saved = json.loads(file.read_text())
    assert effects.metric == saved["metric"]
    assert effects.baseline == pytest.approx(saved["baseline"], abs=1e-6)
    changes = {row.name: row.mean for row in effects.rows}
    assert changes == pytest.approx({row["heads"][0]: row["effect"] for row in saved["effects"]}, abs=1e-6)
    table, expected_table = reading.head_table(), drawable(expected).head_table()
    np.testing.assert_allclose(table["on-picture"], expected_table["on-picture"], atol=1e-6)
    reading = attnviz.reading(model, load_text_processor(folder), QUESTION, [photo])
    notes = tmp_path / "notes.md"
    assert main(["explain", *command, "--head", "0.1", "-o", str(notes)]) == 0
    name = type(model).__name__.replace("_", r"\_")
    assert attnviz.explanation(reading, "0.1").replace(name, folder.name) == notes.read_text()

    for gate in (weight for name, weight in model.named_parameters() if name.endswith("attn_gate")):
        torch.nn.init.ones_(gate)  # closed at first, so that pictures would add nothing
    why = attnviz.why(model, reading)
    assert abs(why.residue) < 1e-5
    assert [check.kind for check in why.checks] == ["heads", "source"]
    axis, sums = (why.tokens, why.sources) if why.context_tokens is None else (why.context_tokens, why.context_sources)
    assert np.count_nonzero(sums[axis.in_image]) > 10  # patches are sources, with places in the picture


def test_two_loaded_pictures_are_numbered_and_heads_lie_over_them(llava: Path, photo: Path) -> None:
    model = t.AutoModelForImageTextToText.from_pretrained(llava)
    picture = Pillow.open(photo).convert("RGB")
    recording = attnviz.reading(
        model, load_text_processor(llava), QUESTION, [picture.crop((0, 0, 100, 100)), picture], layers=[1]
    )
    tokens = recording.maps[0].key_tokens
    assert [medium.title for medium in tokens.media if isinstance(medium, Image)] == ["image 1", "image 2"]
    assert sum(label.startswith("2:r") for label in tokens.labels) == 25
    assert attnviz.draw(recording, ".svg", heads="1.0")[:5] == b"<?xml"


def test_parts_of_a_cropped_picture_are_where_the_processor_cut_them(llava: Path, photo: Path) -> None:
    tokens = recorded(llava, photo).maps[0].key_tokens
    parts = np.flatnonzero(tokens.medium == 1)
    assert tokens.labels[parts[0]] == "r0c0"
    assert tokens.labels[parts[-1]] == "r4c4"
    across, down = np.meshgrid(np.arange(5) * 20, np.arange(5) * 20)
    expected = np.stack([30 + across, down, 50 + across, down + 20], -1).reshape(25, 4)
    np.testing.assert_allclose(tokens.places[parts], expected, atol=2)
    words = [tokens.labels[index] for index in range(len(tokens)) if index not in parts]
    assert words == QUESTION.split()
    assert (tokens.ids[parts] == -1).all()


def test_merged_patches_of_a_whole_picture_meet(qwen: Path, photo: Path) -> None:
    tokens = recorded(qwen, photo).maps[0].key_tokens
    boxes = tokens.places[tokens.medium == 1]
    assert len(boxes) == 24  # 4 x 6 squares of 28 pixels of 112 x 168, read from 100 x 160
    assert boxes[0].tolist()[:2] == [0, 0]
    assert boxes[-1].tolist()[2:] == [160, 100]
    assert (times_covered(boxes) == 1).all()  # no seam between two parts, and no overlap


@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_weights_are_those_of_the_model(name: str, photo: Path, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(name)
    reader: Any = open_reader(ModelSettings(model=str(folder)), "pictures")
    prepared = reader.read(Example(QUESTION, images=(photo,)))
    model: Any = t.AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        own = model(**prepared.inputs, output_attentions=True).attentions
    recording = recorded(folder, photo)
    assert len(recording.maps) == len(own) == 2
    for maps, expected in zip(recording.maps, own, strict=True):
        np.testing.assert_allclose(all_weights(maps), expected[0].numpy(), atol=1e-5)


def test_generated_tokens_follow_and_selected_layers_are_those_of_the_text(llava: Path, photo: Path) -> None:
    recording = recorded(llava, photo, generate=3, layers="1")
    assert [maps.layer for maps in recording.maps] == [1]
    assert len(recording.maps[0].key_tokens) == 25 + len(QUESTION.split()) + 3
    reader: Any = open_reader(ModelSettings(model=str(llava), generate=3), "pictures")
    reader.module.generation_config.repetition_penalty = 1e-6  # a folder may ask for words that were said
    again = reader.record(Example(QUESTION, images=(photo,)), Selection(layers=(1,)))
    assert again.maps[0].key_tokens.labels == recording.maps[0].key_tokens.labels


def test_refuses_a_generated_token_that_stands_for_a_picture(
    llava: Path, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = open_reader(ModelSettings(model=str(llava), generate=2), "pictures")

    def generate(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.cat([input_ids, torch.tensor([[5, reader._picture_id]])], dim=1)

    monkeypatch.setattr(reader.module, "generate", generate)
    with pytest.raises(AttnvizError, match=r"token 2 that .* generates stands for a picture.*; use generate=1"):
        reader.record(Example(QUESTION, images=(photo,)), Selection())


def test_two_pictures_are_told_apart_and_saved(llava: Path, photo: Path, tmp_path: Path) -> None:
    save(recorded(llava, photo, photo), tmp_path / "run.safetensors")
    tokens = load(tmp_path / "run.safetensors").maps[0].key_tokens
    assert [isinstance(medium, Image) for medium in tokens.media] == [False, True, True]
    assert np.bincount(tokens.medium[tokens.medium > 0]).tolist() == [0, 25, 25]
    assert {"1:r0c0", "2:r4c4"} <= set(tokens.labels)


def test_the_tower_of_a_cropped_picture_has_its_patches_there(llava: Path, photo: Path) -> None:
    recording = recorded(llava, photo, attention="picture", layers="1")
    assert recording.tower == "picture"
    assert model_name(recording) == f"the picture tower of {recording.model}"
    [maps] = recording.maps
    assert "vision" in maps.module
    tokens, parts = maps.key_tokens, recorded(llava, photo).maps[0].key_tokens
    assert tokens.labels[:2] == ("[CLS]", "r0c0")
    np.testing.assert_allclose(tokens.places[1:], parts.places[parts.medium == 1], atol=2)


def test_four_patches_of_the_tower_are_merged_to_one_part(qwen: Path, photo: Path) -> None:
    for maps in recorded(qwen, photo, attention="picture").maps:  # the first layer has windows, the second has none
        boxes = maps.key_tokens.places
        tokens = recorded(qwen, photo).maps[0].key_tokens
        parts = tokens.places[tokens.medium == 1]
        assert len(boxes) == 4 * len(parts)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = (parts[:, None, :2] < centres).all(-1) & (centres < parts[:, None, 2:]).all(-1)
        assert inside.sum(axis=1).tolist() == [4] * len(parts)


def test_two_pictures_are_tiles_of_the_tower(llava: Path, photo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Pillow.new("RGB", (70, 70), "white").save(other)
    first, second, *_ = recorded(llava, photo, other, attention="picture").maps
    assert [maps.key_tokens.canvas.title for maps in (first, second)] == ["drawn.png", "other.png"]
    assert second.key_tokens.places[-1].tolist() == [56, 56, 70, 70]
    assert (first.item, second.item) == (0, 1)


def test_words_look_at_patches_by_cross_attention(mllama: Path, photo: Path, tmp_path: Path) -> None:
    [maps] = recorded(mllama, photo).maps
    assert (maps.kind, maps.layer) == ("cross", 1)
    keys, words = maps.key_tokens, maps.query_tokens
    assert words.labels[-len(QUESTION.split()) :] == tuple(QUESTION.split())
    whole_tiles = [keys.medium[start : start + 17].tolist() for start in range(0, len(keys), 17)]
    assert whole_tiles[0] == [-1] + [1] * 16  # one token of a tile is no patch
    assert keys.labels[:2] == ("[CLS]", "r0c0")
    assert (times_covered(keys.places[keys.medium == 1]) == 1).mean() > 0.95
    report = build_report(recorded(mllama, photo), ReportOptions(look=Look(query="table")))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    assert all("on words" not in panel.title and "% on image" in panel.title for panel in report.panels)


def test_cross_attention_of_generated_words_and_the_other_parts(mllama: Path, photo: Path) -> None:
    [maps] = recorded(mllama, photo, generate=2).maps
    assert len(maps.query_tokens) == len(recorded(mllama, photo).maps[0].query_tokens) + 2
    assert [maps.layer for maps in recorded(mllama, photo, attention="text").maps] == [0, 2]
    tower = recorded(mllama, photo, attention="picture").maps
    assert {"vision" in maps.module for maps in tower} == {True}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"generate": 4}, "cross_attentions"),
        ({"generate": 4, "attention": "cross"}, "cross_attentions"),
        ({"generate": 4, "attention": "decoder"}, "decoder_attentions"),
        ({"attention": "encoder"}, "encoder_attentions"),
        ({}, "encoder_attentions"),
    ],
    ids=["written", "cross", "decoder", "encoder", "default"],
)
def test_what_the_decoder_of_an_encoder_of_pictures_looks_at_is_the_models_own(
    florence: Path, photo: Path, settings: dict[str, Any], expected: str
) -> None:
    reader: Any = open_reader(ModelSettings(model=str(florence), **settings), "pictures")
    recording = reader.record(Example(QUESTION, images=(photo,)), Selection())
    model = t.Florence2ForConditionalGeneration.from_pretrained(florence, attn_implementation="eager").eval()
    inputs = reader.read(Example(QUESTION, images=(photo,))).inputs
    with torch.no_grad():
        attentions = getattr(model(**inputs, output_attentions=True), expected)
    assert len(recording.maps) == len(attentions) == 2
    for maps, attention in zip(recording.maps, attentions, strict=True):
        np.testing.assert_allclose(all_weights(maps), attention[0].numpy(), atol=1e-5)
        assert maps.key_tokens.labels.count("<image>") == (0 if expected == "decoder_attentions" else 17)


def test_a_picture_alone_is_refused_by_a_model_whose_picture_tower_takes_no_pixels(florence: Path, photo: Path) -> None:
    reader: Any = open_reader(ModelSettings(model=str(florence)), "images")
    with pytest.raises(AttnvizError, match="has no part that reads images alone; give a text too"):
        reader.record(Example(image=photo), Selection())


def test_latents_are_tokens_without_a_place_before_the_text(blip: Path, photo: Path) -> None:
    recording = recorded(blip, photo)
    tokens = recording.maps[0].key_tokens
    assert tokens.labels == ("<image>",) * 6 + tuple(QUESTION.split())
    assert not any(isinstance(medium, Image) for medium in tokens.media)
    assert recording.remarks[0].startswith("No token has a place in the picture: no pixel belongs to one token")


def test_latents_look_at_patches_and_attention_among_latents_is_left_out(blip: Path, photo: Path) -> None:
    recording = recorded(blip, photo, attention="picture")
    shapes = [(len(maps.query_tokens), maps.key_tokens.labels[:2]) for maps in recording.maps]
    assert sorted(shapes) == [(6, ("[CLS]", "r0c0")), (17, ("[CLS]", "r0c0")), (17, ("[CLS]", "r0c0"))]
    remark = (
        "Left out, since its keys are no patches of the first layer: qformer.encoder.layer.0.attention.attention and 1"
    )
    assert recording.remarks == (f"{remark} more.",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"attention": "decoder"},
            "attention='decoder' is of encoder-decoders; for .*, which reads text and pictures, choose text or picture",
        ),
        (
            {"attention": "cross"},
            "has its pictures among the tokens of the text, and no cross-attention; choose attention text or",
        ),
        (
            {"text": "<image> <image> what is"},
            "the number of '<image>' in the text is 2, and of pictures 1; write one",
        ),
        ({"layers": "7"}, "layer"),
    ],
)
def test_refuses_parts_marks_and_layers_that_it_has_not(
    llava: Path, photo: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AttnvizError, match=message):
        recorded(llava, photo, **options)


def test_title_has_the_shares_of_picture_and_words(llava: Path, photo: Path) -> None:
    recording = recorded(llava, photo)
    options = ReportOptions(selection=Selection.parse(heads="1.2"), look=Look(query="table"))
    report = build_report(recording, options)
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    maps, [panel] = recording.maps[1], report.panels
    row = maps.key_tokens.labels.index("table")
    [[weights]] = cell_maps(maps).window((2,), slice(row, row + 1), slice(0, len(maps.key_tokens))).weights
    on_image = weights[maps.key_tokens.medium == 1].sum()
    assert f"{on_image:.0%} on image, {1 - on_image:.0%} on words, most on" in panel.title
    assert panel.visible.sum() == 25


@pytest.mark.parametrize(
    ("library", "refusal"), [("torchvision", AttnvizError), ("num2words", ImportError)], ids=["torchvision", "another"]
)
def test_a_missing_library_of_a_processor_is_named(
    llava: Path, monkeypatch: pytest.MonkeyPatch, library: str, refusal: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError(f"the processor requires {library}")

    monkeypatch.setattr(t.AutoProcessor, "from_pretrained", fail)
    with pytest.raises(refusal, match=library):
        load_text_processor(llava)


def test_adjacent_pictures_are_two_to_a_model_that_joins_their_tokens(qwen: Path, photo: Path, tmp_path: Path) -> None:
    other_photo = tmp_path / "other.png"
    Pillow.open(photo).resize((120, 120)).save(other_photo)
    recording = recorded(qwen, photo, other_photo)
    assert recording.remarks[0].startswith("40 tokens are parts of the pictures.")
    tokens = recording.maps[0].key_tokens
    assert [int((tokens.medium == number).sum()) for number in (1, 2)] == [24, 16]
    start, image, end = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
    written = recorded(qwen, photo, other_photo, text=f"{start} {image} {end} {start} {image} {end} {QUESTION}")
    assert written.maps[0].key_tokens.labels == tokens.labels
    with pytest.raises(
        AttnvizError, match=r"two '<\|image_pad\|>' in the text are adjacent, and .* as one picture; write"
    ):
        recorded(qwen, photo, photo, text=f"{image} {image} {QUESTION}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen", r"cannot read this text and picture with .*: absolute aspect ratio must be"),
        ("llava", "5000 x 3 pixels is too small or too thin: the model's patches are smaller"),
    ],
)
def test_a_picture_that_the_processor_refuses_or_that_is_too_thin_is_no_fault_of_the_model(
    name: str, message: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    thin_picture = tmp_path / "thin.png"
    Pillow.new("RGB", (5000, 3)).save(thin_picture)
    with pytest.raises(AttnvizError, match=message):
        recorded(request.getfixturevalue(name), thin_picture)


def test_refuses_a_mark_without_a_picture(llava: Path) -> None:
    with pytest.raises(AttnvizError, match="give one with image"):
        open_reader(ModelSettings(model=str(llava))).record(Example("what is <image>"), Selection())


def test_a_chat_template_that_does_not_end_is_refused(
    llava: Path, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    folder = tmp_path / "model"
    shutil.copytree(llava, folder)
    (folder / "chat_template.jinja").write_text(loop, encoding="utf-8")
    monkeypatch.setattr("attnviz.base.bounded.MAX_SECONDS", 0.5)
    with pytest.raises(AttnvizError, match="the model's chat template does not end in"):
        recorded(folder, photo)


TEMPLATE = (
    "{% for m in messages %}<s> {{ m.role }} : {% for part in m.content %}"
    "{{ '<|vision_start|> <|image_pad|> <|vision_end|> ' if part.type == 'image' else part.text }}{% endfor %} "
    "</s> {% endfor %}{% if add_generation_prompt %}<s> assistant :{% endif %}"
)


def test_a_chat_has_its_turns_and_each_picture_is_one(qwen: Path, photo: Path, tmp_path: Path) -> None:
    folder, chat, output = (
        shutil.copytree(qwen, tmp_path / "model"),
        tmp_path / "chat.json",
        tmp_path / "run.safetensors",
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    turns = [("system", "is"), ("user", QUESTION), ("assistant", "the table"), ("user", "what ?")]
    chat.write_text(json.dumps([{"role": role, "content": text} for role, text in turns]), encoding="utf-8")
    pictures = [str(photo)] * 2
    assert main(["show", str(chat), *pictures, "--model", str(folder), "--generate", "3", "-o", str(output)]) == 0
    tokens = load(output).maps[0].query_tokens
    units = Units.of(tokens, "turns")
    said = dict(zip(units.labels, written_texts(units.as_tokens()), strict=True))
    told = {f"{number} {role}": text for number, (role, text) in enumerate(turns, 1)}
    assert said.pop("5 answer") is not None
    assert said == {"marks": "", **told, "2 picture 1": "drawn.png", "2 picture 2": "drawn.png"}
    assert list(units.labels)[1:4] == ["1 system", "2 picture 1", "2 picture 2"]
    for number in (1, 2):
        is_turn = units.numbers == units.labels.index(f"2 picture {number}")
        assert (is_turn == (tokens.medium == number)).all()


def test_a_text_and_its_picture_are_a_question_in_the_template(qwen: Path, photo: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(qwen, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    assert recorded(folder, photo).maps[0].query_tokens.groups["turns"].labels == ("1 user", "1 picture")
    example = Example(messages=Conversation.from_question(QUESTION), images=(photo,))
    reader = open_reader(ModelSettings(model=str(qwen)), "pictures")
    with pytest.raises(AttnvizError, match="has no chat template"):
        reader.read(example)


@pytest.mark.parametrize(("attention", "layer"), [(None, 1), ("picture", 0)])
@pytest.mark.parametrize("name", ["llava", "qwen", "mllama"])
def test_a_head_is_that_of_the_part_that_is_drawn(
    name: str, attention: str | None, layer: int, photo: Path, request: pytest.FixtureRequest
) -> None:
    reader = open_reader(ModelSettings(model=str(request.getfixturevalue(name)), attention=attention), "pictures")
    recording = reader.record(Example(QUESTION, images=(photo,)), Selection.parse(heads=f"{layer}.1"))
    assert {maps.layer for maps in recording.maps} == {layer}
    assert all(1 in maps.heads for maps in recording.maps)


@pytest.mark.parametrize(
    ("name", "attention", "module"),
    [
        ("llava", None, "model.language_model.layers.0.self_attn.o_proj"),
        ("llava", "picture", "model.vision_tower.encoder.layers.0.self_attn.out_proj"),
        ("qwen", "picture", "model.visual.blocks.0.attn.proj"),  # of windows that are computed one by one
    ],
)
def test_ablation_removes_heads_of_the_text_or_of_the_tower(
    name: str, attention: str | None, module: str, photo: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    reader: Any = open_reader(ModelSettings(model=str(folder)), "pictures")
    inputs = reader.read(Example(QUESTION, images=(photo,))).inputs
    model: Any = t.AutoModelForImageTextToText.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**inputs).logits[0, -1]
        token = int(logits.argmax())
        model.get_submodule(module).weight[:, 8:16] = 0  # the columns that read head 1
        change = float(model(**inputs).logits[0, -1, token] - logits[token])
    out, chosen = tmp_path / "effects.json", [] if attention is None else ["--attention", attention]
    assert main(["ablate", QUESTION, str(photo), "--model", str(folder), "-o", str(out), *chosen]) == 0
    effects = json.loads(out.read_text())
    assert effects["baseline"] == pytest.approx(float(logits[token]), abs=1e-5)
    assert sorted(row["heads"] for row in effects["effects"]) == [
        [f"{layer}.{head}"] for layer in (0, 1) for head in range(4)
    ]
    [row] = [row for row in effects["effects"] if row["heads"] == ["0.1"]]
    assert row["effect"] == pytest.approx(change, abs=1e-5)
    assert any("The model goes on with" in remark for remark in effects["remarks"])


@pytest.mark.parametrize(("tower", "has_vision_modules"), [("text", False), ("picture", True)])
def test_heads_name_their_tower(
    tower: str, has_vision_modules: bool, llava: Path, photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [QUESTION, str(photo), "--model", str(llava), "--heads", f"{tower} 1.2,1.3"]
    numbers, figure = tmp_path / "numbers.json", tmp_path / "heads.svg"
    assert main(["show", *model, "-o", str(numbers)]) == 0
    written = json.loads(numbers.read_text())
    assert written["recording"]["settings"]["tower"] == tower
    assert [head["name"] for head in written["heads"]] == ["1.2", "1.3"]
    assert {"vision" in head["module"] for head in written["heads"]} == {has_vision_modules}
    assert main(["show", *model, "-o", str(figure)]) == 0
    assert f">{tower} 1.2 · " in figure.read_text()
    assert main(["show", *model, "-o", str(page := tmp_path / "heads.html")]) == 0
    assert f'"tower":"{tower.capitalize()}"' in page.read_text()
    capsys.readouterr()
    for command in ("heads", "ablate"):
        assert main([command, *model]) == 0
        assert f"heads in the {tower} tower of" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("tower", ["text", "picture"])
def test_a_recording_refuses_heads_of_its_other_tower(tower: str, llava: Path, photo: Path, tmp_path: Path) -> None:
    save(recorded(llava, photo, attention=tower), tmp_path / "run.safetensors")
    recording = load(tmp_path / "run.safetensors")
    other_tower = {"text": "picture", "picture": "text"}[tower]
    assert chosen_heads(recording, Selection.parse(heads=f"{tower} 1.2"))[0].name == "1.2"
    with pytest.raises(
        AttnvizError, match=f"this is the {tower} tower of .*; record it with attention='{other_tower}'"
    ):
        chosen_heads(recording, Selection.parse(heads=f"{other_tower} 1.2"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["PHOTO", "--attention", "text"], "the picture tower, which --attention text is not; leave one"),
        ([], "this is the text tower of MODEL; add photo.jpg"),
        (["PHOTO", "--model", "trained-picture"], "heads of trained-picture have no tower; leave out"),
        (["--model", "trained"], "heads of trained have no tower; leave out 'picture', as in 0.3"),
    ],
)
def test_refuses_heads_of_the_picture_tower(
    arguments: list[str], message: str, llava: Path, photo: Path, shell: Streams
) -> None:
    names = {"PHOTO": str(photo)}
    model = [] if "--model" in arguments else ["--model", str(llava)]
    given = [names.get(argument, argument) for argument in arguments]
    assert message.replace("MODEL", str(llava)) in shell.refused(
        "show", "what is", *model, *given, "--heads", "picture 0.3"
    )


def test_ablation_in_python_names_the_tower_of_heads_of_one_number(llava: Path, photo: Path) -> None:
    reader: Any = open_reader(ModelSettings(model=str(llava)), "answers")
    inputs, positions = (prepared := reader.read(Example(QUESTION, images=(photo,)))).inputs, prepared.positions
    with pytest.raises(
        AttnvizError, match=r"could be 2 heads; write language_model:0\.1 or vision_tower\.encoder:0\.1"
    ):
        attnviz.ablate(reader.module, inputs, "kl", heads=["0.1"])
    effects = attnviz.ablate(reader.module, inputs, "kl", heads=["language_model:0.1"], positions=positions)
    only_text = attnviz.ablate(
        reader.module, inputs, "kl", module="model.language_model", heads=["0.1"], positions=positions
    )
    assert effects.rows[0].mean == pytest.approx(only_text["0.1"].mean, rel=1e-5)
    assert only_text["0.1"].mean > 0


def test_ablation_of_cross_attention_to_a_picture(mllama: Path, photo: Path) -> None:
    reader: Any = open_reader(ModelSettings(model=str(mllama)), "answers")
    prepared = reader.read(Example(QUESTION, images=(photo,)))
    assert (prepared.attention, reader.ablated_module) == ("cross", "model.language_model")
    options = {"attention": prepared.attention, "module": reader.ablated_module}
    effects = attnviz.ablate(reader.module, prepared.inputs, token=prepared.answer.id, **options)
    assert {row.heads[0][0] for row in effects.rows} == {1}  # the layer with cross-attention
