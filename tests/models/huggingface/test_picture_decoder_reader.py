"""Models that write about a picture by a decoder of their own: what each word looks at, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow
from tokenizers import Tokenizer, models, pre_tokenizers

from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
t: Any = transformers  # whose constructors have no types
TEXT = "a red door"
NAMES = ["<unk>", "<pad>", "<s>", "</s>", *TEXT.split()]
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ENDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
SEQ = {
    "vocab_size": 7, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48,
    "max_position_embeddings": 64, **ENDS,
}  # fmt: skip
SQUARE = {"height": 96, "width": 96}
GRID = [f"r{row}c{column}" for row in range(6) for column in range(6)]


def with_decoder(encoder: Any, decoder: Any) -> Any:
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 1, 3
    return t.VisionEncoderDecoderModel(config)


def trocr() -> tuple[Any, Any]:
    encoder = t.ViTConfig(**SMALL, image_size=96, patch_size=16)
    model = with_decoder(encoder, t.TrOCRConfig(**SEQ, cross_attention_hidden_size=32))
    return model, t.ViTImageProcessorPil(size=SQUARE)


def donut() -> tuple[Any, Any]:
    swin = {"image_size": [128, 96], "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
    encoder_sizes = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
    model = with_decoder(
        t.DonutSwinConfig(**swin, window_size=4), t.MBartConfig(**SEQ, **encoder_sizes, is_encoder_decoder=False)
    )
    return model, t.DonutImageProcessorPil(size={"height": 128, "width": 96}, do_align_long_axis=False)


def blip() -> tuple[Any, Any]:
    config = t.BlipConfig(
        vision_config={**SMALL, "image_size": 96, "patch_size": 16},
        text_config={**SMALL, "vocab_size": 7, "encoder_hidden_size": 32, "sep_token_id": 3, **ENDS},
        projection_dim=32, image_text_hidden_size=32,
    )  # fmt: skip
    return t.BlipForConditionalGeneration(config), t.BlipImageProcessorPil(size=SQUARE)


def git() -> tuple[Any, Any]:
    vision = {**SMALL, "image_size": 96, "patch_size": 16}
    model = t.GitForCausalLM(t.GitConfig(vision_config=vision, **SMALL, vocab_size=7, **ENDS))
    return model, t.CLIPImageProcessorPil(size=SQUARE, do_center_crop=False)


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "door.png"
    Pillow.fromarray(np.random.default_rng(0).integers(0, 255, (192, 192, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models, as they are saved by their own classes, with a tokenizer of seven words."""
    encoder = Tokenizer(models.WordLevel({name: number for number, name in enumerate(NAMES)}, unk_token="<unk>"))
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    roles = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), NAMES, strict=False))
    saved = {}
    for make in (trocr, donut, blip, git):
        torch.manual_seed(0)
        model, processor = make()
        saved[make.__name__] = folder = tmp_path_factory.mktemp(make.__name__)
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        t.PreTrainedTokenizerFast(tokenizer_object=encoder, **roles).save_pretrained(folder)
    return saved


def recorded(folder: Path, photo: Path, text: str = "", **settings: Any) -> Recording:
    example = Example(text, images=(photo,)) if text else Example(image=photo)
    use: Any = "pictures" if text else "images"
    return open_reader(ModelSettings(model=str(folder), **settings), use).record(example, Selection())


@pytest.mark.parametrize("name", ["trocr", "donut", "blip", "git"])
def test_words_look_at_patches_in_their_places(name: str, folders: dict[str, Path], photo: Path) -> None:
    recording = recorded(folders[name], photo, TEXT)
    assert len(recording.maps) == 2
    for maps in recording.maps:
        keys, queries = maps.key_tokens, maps.query_tokens
        assert queries.labels[-3:] == ("a", "red", "door")
        placed = np.flatnonzero(keys.medium == keys.image_indices[0])
        rows, columns = (12, 12) if name == "donut" else (6, 6)
        assert [keys.labels[index] for index in placed] == [
            f"r{row}c{column}" for row in range(rows) for column in range(columns)
        ]
        assert keys.places[placed[-1]].tolist() == [192 - 192 // columns, 192 - 192 // rows, 192, 192]


@pytest.mark.parametrize("attention", ["cross", "decoder", "encoder"])
def test_weights_are_those_of_the_model(attention: str, folders: dict[str, Path], photo: Path) -> None:
    recording = recorded(folders["trocr"], photo, TEXT, attention=attention)
    model = t.VisionEncoderDecoderModel.from_pretrained(folders["trocr"], attn_implementation="eager").eval()
    pixels = t.AutoImageProcessor.from_pretrained(folders["trocr"])(Pillow.open(photo), return_tensors="pt")
    ids = torch.tensor([[2, *map(NAMES.index, TEXT.split())]])
    with torch.no_grad():
        output = model(**pixels, decoder_input_ids=ids, output_attentions=True)
    for maps, own in zip(recording.maps, getattr(output, f"{attention}_attentions"), strict=True):
        window = cell_maps(maps).window(maps.heads, slice(0, own.shape[2]), slice(0, own.shape[3]))
        np.testing.assert_allclose(window.weights, own[0].numpy(), atol=1e-5)


def test_without_a_text_the_decoder_reads_what_it_wrote(folders: dict[str, Path], photo: Path) -> None:
    recording = recorded(folders["trocr"], photo, generate=3)
    model = t.VisionEncoderDecoderModel.from_pretrained(folders["trocr"]).eval()
    pixels = t.AutoImageProcessor.from_pretrained(folders["trocr"])(Pillow.open(photo), return_tensors="pt")
    written = model.generate(**pixels, max_new_tokens=3, do_sample=False, num_beams=1)[0].tolist()
    ids = recording.maps[0].query_tokens.ids.tolist()
    assert ids == written[: len(ids)]
    assert len(ids) >= len(written) - 1  # perhaps without the end


def test_a_command_draws_what_a_word_looks_at_and_refuses_to_remove_heads(
    folders: dict[str, Path], photo: Path, shell: Streams
) -> None:
    drawn = shell.json("show", TEXT, str(photo), "--model", str(folders["blip"]), "--heads", "1.2")
    assert "For the other attention: --attention encoder or --attention decoder." in drawn["remarks"]
    with pytest.raises(
        AttnvizError, match=r"heads of .* are drawn, but not removed: its text depends on what it wrote"
    ):
        open_reader(ModelSettings(model=str(folders["blip"])), "labels").read(Example(image=photo))


@pytest.mark.parametrize("name", ["trocr", "donut"])
def test_why_and_ablation_ask_for_the_word_after_a_given_text(
    name: str, folders: dict[str, Path], photo: Path, shell: Streams
) -> None:
    asked = (TEXT, str(photo), "--model", str(folders[name]))
    why = shell.json("why", *asked)
    model = t.VisionEncoderDecoderModel.from_pretrained(folders[name]).eval()
    pixels = t.AutoImageProcessor.from_pretrained(folders[name])(Pillow.open(photo), return_tensors="pt").pixel_values
    with torch.no_grad():
        logits = model(pixel_values=pixels, decoder_input_ids=torch.tensor([[2, 4, 5, 6]])).logits[0, -1]
    assert why["candidates"][0]["token"] == int(logits.argmax())
    assert why["candidates"][0]["logit"] == pytest.approx(float(logits.max()), abs=1e-5)
    assert abs(why["residue"]) < 1e-5
    assert {part.partition(" ")[0] for part in why["leading_heads"]} <= {"decoder", "cross"}
    assert len(shell.json("ablate", *asked)["effects"]) == (22 if name == "donut" else 24)  # heads of all three parts
