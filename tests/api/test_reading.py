"""`attnviz.reading`: it records what the command line records of the same model, and leaves the model unchanged."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import attnviz
from attnviz.api.reading import few_remarks
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.places.token_inputs import OwnValueAttention, coded_gradients
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests.api.examples import word_tokenizer

t: Any = transformers  # whose constructors have no types
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def processor() -> Any:
    return t.ViTImageProcessor(size={"height": 32, "width": 48})


@pytest.fixture
def vit() -> Any:
    torch.manual_seed(0)
    return t.ViTModel(t.ViTConfig(**SMALL, image_size=[32, 48], patch_size=16)).eval()


@pytest.fixture
def pixels() -> Any:
    return np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)


def assert_same_maps(recording: Recording, expected: Recording) -> None:
    assert [maps.layer for maps in recording.maps] == [maps.layer for maps in expected.maps]
    for maps, expected_maps in zip(recording.maps, expected.maps, strict=True):
        for tokens, expected_tokens in (
            (maps.query_tokens, expected_maps.query_tokens),
            (maps.key_tokens, expected_maps.key_tokens),
        ):
            assert tokens.labels == expected_tokens.labels
            np.testing.assert_array_equal(tokens.places, expected_tokens.places)
        everything = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
        weights, expected_weights = (
            cell_maps(each).window(each.heads, *everything).weights for each in (maps, expected_maps)
        )
        np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


def test_an_array_an_image_and_a_file_give_what_the_folder_gives(
    vit: Any, processor: Any, pixels: Any, tmp_path: Path
) -> None:
    Pillow.fromarray(pixels).save(tmp_path / "photo.png")
    vit.save_pretrained(tmp_path / "vit")
    processor.save_pretrained(tmp_path / "vit")
    reader = open_reader(ModelSettings(model=str(tmp_path / "vit")), "images")
    expected = reader.record(Example(image=tmp_path / "photo.png"), Selection())
    file = Pillow.open(tmp_path / "photo.png")
    titles = []
    for image in (pixels, Pillow.fromarray(pixels), file, tmp_path / "photo.png", str(tmp_path / "photo.png")):
        recording = attnviz.reading(vit, processor, images=[image])
        assert_same_maps(recording, expected)
        canvas = recording.maps[0].key_tokens.canvas
        assert isinstance(canvas, Image)
        np.testing.assert_array_equal(canvas.pixels, pixels)
        titles.append(canvas.title)
    assert titles == ["image", "image", "photo.png", "photo.png", "photo.png"]
    assert attnviz.draw(recording, ".png", heads="1.3")[:4] == b"\x89PNG"
    assert "spatial-entropy" in recording.head_table()


def test_layers_and_heads_are_chosen_and_the_model_is_unchanged(vit: Any, processor: Any, pixels: Any) -> None:
    vit.train()
    before = {name: value.clone() for name, value in vit.state_dict().items()}
    with torch.inference_mode():  # a caller often has it on
        recording = attnviz.reading(vit, processor, images=[pixels], layers=[1], heads=[2], values=True)
    assert [(maps.layer, maps.heads) for maps in recording.maps] == [(1, (2,))]
    assert recording.model == "ViTModel"
    assert attnviz.contributions(recording).maps[0].quantity == "contribution"
    assert all(module.training for module in vit.modules())
    assert all(torch.equal(value, before[name]) for name, value in vit.state_dict().items())
    assert all(weight.grad is None and weight.requires_grad for weight in vit.parameters())


def test_a_reading_is_saved_without_its_model(vit: Any, processor: Any, pixels: Any, tmp_path: Path) -> None:
    recording = attnviz.reading(vit, processor, images=[pixels], name="Acme 2")
    assert "Acme 2" in attnviz.draw(recording, ".svg", heads="0.1").decode()
    recording.save(tmp_path / "look.safetensors")
    assert_same_maps(attnviz.load(tmp_path / "look.safetensors"), recording)


def test_a_classifier_is_recorded_without_its_head(vit: Any, processor: Any, pixels: Any) -> None:
    classifier = t.ViTForImageClassification(vit.config)
    recording = attnviz.reading(classifier, processor, images=[pixels])
    assert recording.model == "ViTForImageClassification"
    assert recording.maps[0].key_tokens.labels[:2] == ("[CLS]", "r0c0")


@pytest.mark.parametrize("head", ["DINOv3ViTModel", "DINOv3ViTBackbone"])
def test_a_model_whose_layers_have_the_name_of_a_base_model_is_recorded_whole(head: str, pixels: Any) -> None:
    torch.manual_seed(0)
    config = t.DINOv3ViTConfig(**SMALL, image_size=32, patch_size=16)
    recording = attnviz.reading(getattr(t, head)(config).eval(), t.ViTImageProcessor(size=32), images=[pixels])
    assert recording.model == head
    assert [len(maps.key_tokens) for maps in recording.maps] == [5, 5]  # [CLS] and four patches


def test_a_text_alone_needs_only_a_tokenizer() -> None:
    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    model = t.GPT2LMHeadModel(t.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=4, n_positions=16))
    recording = attnviz.reading(model, tokenizer, "life is short")
    assert recording.maps[1].key_tokens.labels == ("life", "is", "short")
    with pytest.raises(AttnvizError, match=r"a .* reads no images; give the model's processor"):
        attnviz.reading(model, tokenizer, "life", [Pillow.new("RGB", (8, 8))])


def test_half_precision_returns_to_each_weight_with_its_own_dtype(vit: Any, processor: Any, pixels: Any) -> None:
    vit.bfloat16()
    vit.register_buffer("frequencies", torch.rand(5))  # float32, as rotary frequencies are
    before = {name: value.clone() for name, value in vit.state_dict().items()}
    frequencies = vit.frequencies.clone()
    recording = attnviz.reading(vit, processor, images=[pixels])
    assert recording.maps[0].key_tokens.labels[1] == "r0c0"
    assert vit.frequencies.dtype == torch.float32
    assert torch.equal(vit.frequencies, frequencies)
    assert all(torch.equal(value, before[name]) for name, value in vit.state_dict().items())
    assert {weight.dtype for weight in vit.parameters()} == {torch.bfloat16}


def test_half_precision_returns_after_a_failure(vit: Any) -> None:
    vit.half()

    def fail(leaf: torch.Tensor) -> torch.Tensor:
        assert next(vit.parameters()).dtype == leaf.dtype == torch.float32
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # any error
        coded_gradients(vit, torch.zeros(1, 3, 32, 48, dtype=torch.float16), fail, OwnValueAttention())
    assert {weight.dtype for weight in vit.parameters()} == {torch.float16}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "there is nothing to read; give text, images or sounds"),
        ({"images": "photo.png"}, r"images needs a list; write images=\[photo\] for one"),
        ({"images": np.zeros((4, 4, 3), np.uint8)}, "images needs a list"),
        ({"images": [Pillow.new("RGB", (8, 8))] * 2}, "there are 2 images without a text; give text, or one image"),
        (
            {"images": [np.zeros((4, 4), np.uint8)]},
            r"image 1 is of type ndarray of shape \(4, 4\) and type uint8; give",
        ),
        ({"images": [np.zeros((4, 4, 3))]}, "type float64; give a path, a PIL image, or an array"),
        ({"images": [np.zeros((0, 4, 3), np.uint8)]}, r"shape \(0, 4, 3\)"),
        ({"images": [torch.zeros(3, 4, 4)]}, "image 1 is of type Tensor of shape"),
        ({"images": [None]}, "image 1 is of type NoneType; give a path"),
        ({"images": ["none.png"]}, "no image file 'none.png'; give a PNG, JPEG or WebP"),
        ({"text": "life is short"}, "a ViTImageProcessor.* splits no text; give the model's tokenizer or processor"),
    ],
)
def test_what_cannot_be_read_is_refused(vit: Any, processor: Any, arguments: Any, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.reading(vit, processor, **arguments)


@pytest.mark.parametrize(
    ("module", "make", "text", "message"),
    [
        (torch.nn.Linear(2, 2), None, None, r"Linear needs a function that .*, not NoneType"),
        (torch.nn.Linear(2, 2), lambda image: {"pixels": 1}, None, r"returns dict without a tensor that Linear takes"),
        (torch.nn.Linear(2, 2), lambda image: (torch.ones(2), 3), None, r"Linear takes input, and not 2 arguments by"),
        (torch.nn.Linear(2, 2), lambda image: torch.ones(1, 3), None, r"Linear fails on .*, input \(1, 3\): mat1"),
        (torch.nn.Linear(2, 2), lambda image: torch.ones(2), "a text", r"Linear does not read text; give image"),
    ],
)  # fmt: skip
def test_what_no_module_can_read_is_refused_in_a_line(
    pixels: Any, module: Any, make: Any, text: str | None, message: str
) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.reading(module, make, text, images=[pixels])


def test_a_compiled_model_and_a_function_that_expects_one_of_several_images_are_refused(pixels: Any) -> None:
    module = torch.nn.Linear(2, 2)
    compiled: Any = torch.compile(module, backend="eager")
    with pytest.raises(AttnvizError, match="the model is compiled; record"):
        attnviz.reading(compiled, lambda image: torch.ones(2), images=[pixels])
    with pytest.raises(AttnvizError, match=r"with 2 images the function gets a list of them, .*'convert'; let it"):
        attnviz.reading(module, lambda image: torch.ones(2) * image.convert("L").width, images=[pixels, pixels])


@pytest.mark.parametrize("has_decoder", [True, False])
def test_pieces_of_bytes_are_labelled_by_what_they_write(has_decoder: bool) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if has_decoder:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["it rains on the café"] * 3, trainers.BpeTrainer(show_progress=False))
    torch.manual_seed(0)
    recording = attnviz.reading(TinyLanguageModel(), tokenizer, "it rains café")
    assert recording.maps[0].key_tokens.labels == ("it", "␣rains", "␣café")
    assert recording.maps[0].key_tokens.places.tolist() == [[0, 2], [2, 8], [8, 13]]
    candidates = recording.why(checks=False).candidates
    assert not any("Ġ" in candidate.label or not candidate.label for candidate in candidates)


class TinyLanguageModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(64, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.table(ids)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        attended: torch.Tensor = self.attention(hidden, hidden, hidden, attn_mask=mask)[0]
        logits: torch.Tensor = (hidden + attended) @ self.table.weight.T
        return logits


def test_patches_that_a_model_shuffles_have_the_places_of_the_recorded_run(pixels: Any) -> None:
    sizes = SMALL | {"image_size": 32, "patch_size": 8}
    model = t.ViTMAEModel(t.ViTMAEConfig(**sizes, mask_ratio=0.5))
    orders: list[torch.Tensor] = []
    model.embeddings.random_masking = _noted(model.embeddings.random_masking, orders)
    square = t.ViTImageProcessor(size={"height": 32, "width": 32})
    recording = attnviz.reading(model, square, images=[pixels])
    kept = orders[-1].argsort()[:8].tolist()  # the last run measures, and repeats the recorded one
    assert recording.maps[0].key_tokens.labels == ("[CLS]", *(f"r{place // 4}c{place % 4}" for place in kept))
    assert sum(torch.equal(order, orders[-1]) for order in orders) > 1


def _noted(masking: Any, orders: list[torch.Tensor]) -> Any:
    def noted(*arguments: Any, **options: Any) -> Any:
        result = masking(*arguments, **options)
        orders.append(result[2][0])  # the place of each patch among the shuffled ones
        return result

    return noted


@pytest.mark.parametrize(
    ("said", "remarks"),
    [
        ("aaab", ["a", "b"]),
        ("aaabc", ["a", "b", "c"]),
        ("aaabcd", ["a", "b", "2 more such remarks are on other prompts."]),
        ("", []),
    ],
)
def test_remarks_on_single_prompts_are_counted_after_the_first(said: str, remarks: list[str]) -> None:
    assert few_remarks(Counter(said), 3) == remarks
