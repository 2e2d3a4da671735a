"""Models in GGUF files: the same maps as from their folders, by every name that they have; bad ones are one line."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.battery.head_types import head_types
from attnviz.battery.probed_model import open_probed
from attnviz.cli.commands import main
from attnviz.corpus.batches import SurveyOptions
from attnviz.corpus.read import PassedTexts
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load
from attnviz.models.huggingface import gguf_file
from attnviz.models.huggingface.folder import describe_name, find_model, local_model, needs_download
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.report.survey.pictures import survey_remarks
from attnviz.text.selection import Selection
from tests.models.huggingface.gguf_models import TEMPLATE, VOCABULARY, small_model, write_gguf

pytestmark = pytest.mark.slow

DIGEST = "a1" * 32


def recording_of(model: Path | str, **settings: Any) -> Recording:
    return open_reader(ModelSettings(model=str(model), **settings)).record(Example(text="the cat sat"), Selection())


def weights_of(recording: Recording) -> NDArray[np.float32]:
    return np.stack([cell_maps(maps).window(maps.heads, slice(None), slice(None)).weights for maps in recording.maps])


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "small.gguf"
    write_gguf(path, small_model("llama"))
    return path


@pytest.fixture
def damaged(llama: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the file of which some bytes are others."""

    def write(change: Callable[[bytearray], Any]) -> Path:
        content = bytearray(llama.read_bytes())
        result = change(content)
        path = tmp_path / "small.gguf"
        path.write_bytes(content if result is None else result)
        return path

    return write


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_maps_are_those_of_the_module_that_was_written(kind: str, tmp_path: Path) -> None:
    model = small_model(kind)
    write_gguf(tmp_path / "small.gguf", model)
    (tmp_path / "tokenizer_config.json").write_text("{")  # what lies beside it is another model's
    recording = recording_of(tmp_path / "small.gguf")
    tokens = recording.maps[0].query_tokens
    assert tokens.ids.tolist() == [VOCABULARY.index(token) for token in ("the", "Ġcat", "Ġ", "s", "at")]
    with attnviz.record(model) as expected:
        model(input_ids=torch.tensor(tokens.ids[None]))
    np.testing.assert_allclose(weights_of(recording), weights_of(expected), atol=1e-6)
    assert (recording.model, recording.remarks) == ("small.gguf", ())


def test_rounded_weights_are_said_and_those_of_their_format(tmp_path: Path) -> None:
    model = small_model("llama")
    write_gguf(tmp_path / "whole.gguf", model)
    write_gguf(tmp_path / "rounded.gguf", model, GGMLQuantizationType.Q8_0)
    whole, rounded = (recording_of(tmp_path / name) for name in ("whole.gguf", "rounded.gguf"))
    difference = np.abs(weights_of(whole) - weights_of(rounded)).max()
    assert 0 < difference < 0.01
    remark = "The file's weights are rounded (Q8_0); they were dequantized to float32."
    assert rounded.remarks == (remark,)
    settings = ModelSettings(model=str(tmp_path / "rounded.gguf"))
    assert head_types(open_probed(settings)).remarks[0] == remark
    survey = SurveyRun(open_reader(settings, "texts"), SurveyOptions()).run(PassedTexts(["the cat sat"]))
    assert survey is not None
    save_survey(survey, tmp_path / "survey.safetensors")
    assert remark in survey_remarks(load_survey(tmp_path / "survey.safetensors"))


def test_every_name_of_a_file_opens_the_same_model(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama, studio = tmp_path / "ollama", tmp_path / "studio"
    for folder in (ollama / "blobs", ollama / "manifests/registry.ollama.ai/library/small", studio / "someone/small"):
        folder.mkdir(parents=True)
    (ollama / f"blobs/sha256-{DIGEST}").write_bytes(llama.read_bytes())
    layers = [
        {"mediaType": "application/vnd.ollama.image.params", "digest": "sha256:" + "0" * 64},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"},
    ]
    (ollama / "manifests/registry.ollama.ai/library/small/7b").write_text(json.dumps({"layers": layers}))
    write_gguf(studio / "someone/small/small.gguf", small_model("llama"), shards=3)
    (studio / "someone/small/mmproj-small.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("OLLAMA_MODELS", str(ollama))
    monkeypatch.setattr(gguf_file, "LM_STUDIO_FOLDERS", (str(studio),))
    shard = studio / "someone/small/small-00002-of-00003.gguf"
    expected = weights_of(recording_of(llama))
    for name in ("small:7b", "someone/small", str(llama.parent), str(shard)):
        assert not needs_download(name)
        np.testing.assert_array_equal(weights_of(recording_of(name)), expected)
    assert describe_name("small:7b") == "small:7b"
    assert describe_name(str(llama.parent)) == "small.gguf"
    shard.unlink()
    with pytest.raises(
        AttnvizError, match=r"'small-00002-of-00003.gguf' is missing, one of the 3 shards of 'someone/small'; copy it"
    ):
        find_model("someone/small")
    (ollama / f"blobs/sha256-{DIGEST}").unlink()
    with pytest.raises(AttnvizError, match=r"the weights of 'small:7b' are not in .*; run ollama pull small:7b"):
        local_model("small:7b")
    for content in ("[]", '{"layers": 3}', '{"layers": [3, {"mediaType": "application/vnd.ollama.image.model"}]}'):
        (ollama / "manifests/registry.ollama.ai/library/small/7b").write_text(content)
        with pytest.raises(AttnvizError, match=r"names no weights of 'small:7b'; get it again with ollama pull"):
            local_model("small:7b")


def test_chat_and_answer_use_the_template_and_the_head_of_the_file(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: Callable[..., Path]
) -> None:
    saved = tmp_path / "run.safetensors"
    assert main(["show", "cat", "--model", str(llama), "--chat", "--generate", "2", "-o", str(saved)]) == 0
    labels = "".join(load(saved).maps[0].query_tokens.labels).replace("␣", " ")
    assert labels.startswith("the cat cat")  # the template's word, the text, and what the template ends with
    assert len(labels) > len("the cat cat")
    without = damaged(lambda content: content.replace(b"tokenizer.chat_template", b"tokenizer.chat_templete"))
    assert TEMPLATE.encode() in without.read_bytes()
    assert main(["show", "cat", "--model", str(without), "--chat"]) == 1
    assert "this model has no chat template" in capsys.readouterr().err


def number_at(start: int | bytes, skipped: int, pattern: str, value: int) -> Callable[[bytearray], None]:
    """Changes the number that is some bytes after a place, or after a key and the number of its type."""

    def change(content: bytearray) -> None:
        begin = start if isinstance(start, int) else content.index(start) + len(start) + 4
        struct.pack_into(pattern, content, begin + skipped, value)

    return change


def as_adapter(content: bytearray) -> bytes:
    size = struct.pack("<Q", len("small"))
    named = content.replace(size + b"small", struct.pack("<Q", len("adapter")) + b"adapter")
    return bytes(named.replace(b"general.name", b"general.type"))


REFUSALS: dict[str, tuple[Callable[[bytearray], Any], str]] = {
    "cut in its tensors": (lambda content: content[:-500], "is cut off: its tensors take"),
    "cut in its metadata": (lambda content: content[:300], "is cut off or damaged; copy it again"),
    "empty": (lambda _: b"", "is cut off or damaged"),
    "another format": (lambda _: b"PK" + bytes(50), "is no GGUF file"),
    "of the first version": (number_at(4, 0, "<I", 1), "is of version 1, not 2 or 3"),
    "counts tensors": (number_at(8, 0, "<Q", 2**60), "counts 1152921504606846976 tensors, above the limit of 100000"),
    "counts a few tensors more": (number_at(8, 0, "<Q", 90_000), "is cut off or damaged"),
    "counts metadata": (number_at(16, 0, "<Q", 2**60), "counts 1152921504606846976 metadata, above the limit"),
    "a key without end": (number_at(24, 0, "<Q", 2**62), "is cut off or damaged"),
    "tokens without end": (number_at(b"ggml.tokens", 4, "<Q", 2**40), "is cut off or damaged"),
    "types without end": (number_at(b"ggml.token_type", 4, "<Q", 2**60), "is cut off or damaged"),
    "layers": (
        number_at(b"llama.block_count", 0, "<I", 2**31),
        "has llama.block_count 2.14748e+09, above the limit of 1024",
    ),
    "heads": (number_at(b"attention.head_count", 0, "<I", 2**31), "above the limit of 1000000"),
    "width": (number_at(b"embedding_length", 0, "<I", 2**20), "they do not belong together"),
    "architecture": (
        lambda content: content.replace(b"llama", b"lamax"),
        "architecture lamax is not supported yet; give the folder of its safetensors",
    ),
    "adapter": (as_adapter, "is an adapter and no model; give the folder of its safetensors"),
    "tensors on one another": (lambda content: content.replace(b"blk.1", b"blk.0"), "cannot load"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_bad_file_is_one_line(case: str, damaged: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    change, says = REFUSALS[case]
    assert main(["show", "the cat", "--model", str(damaged(change))]) == 1
    said = capsys.readouterr()
    assert says in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_model_in_the_place_of_a_text_is_called_one(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--file", str(llama)]) == 1
    assert "is a model; give a text, and the model with --model model.gguf" in capsys.readouterr().err
