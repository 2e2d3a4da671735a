"""The command why: of a text, of a saved recording of it, and as numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.models.huggingface.picture_models import QUESTION, word_tokenizer
from tests.streams import Streams

TEXT = "the cat sat. the cat"


def test_a_recording_is_explained_as_the_text_that_it_was_made_from(in_folder: Path, shell: Streams) -> None:
    said = shell.words("why", TEXT)
    assert "Heads 1.0 and 1.1 copy “sat” (3): +10.67, +9.50 of 19.05." in said
    assert "No model was given, so this is the trained model" in said
    shell.run("show", TEXT, "--model", "trained", "-o", "run.safetensors")
    again = shell.words("why", "run.safetensors")
    assert "No model was given" not in again
    assert again == said.replace(said[said.index("No model was given") :], "").strip()


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> str:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    kind: Any = transformers.MarianConfig
    config = kind(vocab_size=20, d_model=24, pad_token_id=0, decoder_start_token_id=0, **layers, **heads)
    torch.manual_seed(0)
    folder, model = tmp_path_factory.mktemp("marian"), transformers.MarianMTModel(config)
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("read", [("--context", "is the table on ?"), ("--generate", "4")])
def test_a_recording_of_an_encoder_decoder_is_explained_with_both_its_texts(
    read: tuple[str, str], marian: str, in_folder: Path, shell: Streams
) -> None:
    text = (QUESTION, *read, "--model", marian)
    said = shell.json("why", *text)
    assert any(adds != 0 for adds in said["context_sources"])
    shell.run("show", *text, "--attention", "cross", "-o", "run.safetensors")
    assert shell.json("why", "run.safetensors") == said


def test_a_recording_that_lacks_what_the_model_reads_is_refused_with_what_it_lacks(
    in_folder: Path, shell: Streams
) -> None:
    Path("texts.txt").write_text("the cat sat\nthe dog\n")
    shell.run("show", "--batch", "texts.txt", "-o", "run.safetensors")
    line = shell.refused("why", "run.safetensors")
    said = (
        "holds 2 texts, and this command explains one; give one of them, such as 'the cat sat', or for attnviz why all"
    )
    assert f"{said} of them with --batch FILE, and --model seeded" in line


def test_numbers_are_those_of_the_sum(shell: Streams) -> None:
    content = shell.json("why", TEXT, "--token", "cat", "--versus", "the", "--queries", ":6")
    logit = content["logit"]
    assert (logit["position"], logit["label"], logit["versus_label"]) == (5, "cat", "the")
    parts = sum(part["adds"] for part in logit["parts"])
    assert parts == pytest.approx(logit["logit"], abs=1e-4)
    assert parts + content["residue"] == pytest.approx(logit["logit"], abs=1e-9)
    assert sum(content["sources"]) + content["unplaced"] == pytest.approx(content["sums"]["head"], abs=1e-6)
