"""Checks of units: what the answer loses, and controls, where the truth is known."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.models.huggingface import reader as hf_reader
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.units import Units
from tests.models.huggingface.chats import chat_model
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
TEXTS = {
    "a.txt": "The king lives in a castle by the sea.",
    "b.txt": "My bike has two wheels and a red bell.",
    "c.txt": "Snow falls in winter and children build a man.",
}


@pytest.fixture
def passages(in_folder: Path) -> Path:
    (in_folder / "docs").mkdir()
    for name, text in TEXTS.items():
        (in_folder / "docs" / name).write_text(text)
    return in_folder


GIVEN = ["--model", "trained", "--passages", "docs/*.txt", "--by", "passages"]


@pytest.mark.parametrize("copied", TEXTS)
def test_the_copied_passage_is_named_by_share_by_calibration_and_by_loss(
    copied: str, passages: Path, shell: Streams
) -> None:
    question = " ".join(TEXTS[copied].split()[:6])
    units = shell.json("show", question, *GIVEN, "--check", "3")["units"]
    for name in ("shares", "lifts", "strongest", "calibrated", "reversed", "lost"):
        assert max(units, key=lambda unit: unit[name])["unit"] == copied, name


def test_only_the_first_units_are_hidden_and_the_caption_says_which_was_asked(passages: Path, shell: Streams) -> None:
    said = shell.words("show", "My bike has two wheels and a", *GIVEN, "--check", "2")
    assert "Where it looked: “question” of the trained model had" in said
    assert "What it lost: without the passage “b.txt” its log-probability falls by" in said
    assert ", the most of 2 passages." in said
    assert "A share shows where the answer looked; only a loss shows a cause." in said


def test_equal_beginnings_of_sentences_are_told_apart(shell: Streams) -> None:
    words = [f"w{number}" for number in range(30)]
    random.Random(3).shuffle(words)
    first, second = " ".join(words[:12]), " ".join(words[12:20])
    text = f"{first}. {second}. {first}"
    units = shell.json("show", text, "--model", "trained", "--by", "sentences", "--check", "2")["units"]
    assert [unit["unit"].startswith(words[0]) for unit in units] == [True, False]
    assert units[0]["lost"] > units[1]["lost"]


def test_turns_of_a_chat_are_checked(in_folder: Path, shell: Streams) -> None:
    (in_folder / "qwen").mkdir()
    model = chat_model(in_folder / "qwen", "qwen")
    messages = [
        {"role": "user", "content": "What is the height of the tower?"},
        {"role": "tool", "content": "The tower is 330 m high."},
        {"role": "assistant", "content": "330 m."},
    ]
    (in_folder / "chat.json").write_text(json.dumps({"messages": messages}))
    found = shell.json("show", "chat.json", "--model", model, "--by", "turns", "--check", "1")
    assert [unit["unit"] for unit in found["units"]] == ["1 user", "2 tool result"]
    assert sum(unit["lost"] is not None for unit in found["units"]) == 1
    assert all("reversed" not in unit for unit in found["units"])


def test_a_loaded_model_gives_the_numbers_of_the_command(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "qwen").mkdir()
    folder, text = chat_model(in_folder / "qwen", "qwen"), "What is it? The tower is high. What is it"
    capsys.readouterr()
    line = ["show", text, "--model", folder, "--by", "sentences", "--heads", "0.0,1.1", "--check", "1", "--json"]
    assert main(line) == 0
    units = json.loads(capsys.readouterr().out)["units"]
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    checks = attnviz.reading(model, tokenizer, text).check("sentences", 1, heads="0.0,1.1")
    assert checks.units == tuple(unit["unit"] for unit in units)
    for name in ("shares", "lifts", "strongest", "lost"):
        numbers = [np.nan if unit[name] is None else unit[name] for unit in units]
        np.testing.assert_allclose(getattr(checks, name), numbers, atol=1e-5, err_msg=name)
    with pytest.raises(AttnvizError, match="check hides units; add by='turns', passages or sentences"):
        attnviz.reading(model, tokenizer, text).check("tokens")


def test_a_loss_is_that_of_hiding_the_unit_from_all_later_tokens(shell: Streams) -> None:
    text = "w1 w2 w3. w4 w5 w1 w2. w3 w4"
    units = shell.json("show", text, "--model", "trained", "--by", "sentences", "--check", "2")["units"]
    reader = open_reader(ModelSettings(model="trained"), "predictions")
    tokens = reader.read(Example(text)).tokens
    sentences = Units.of(tokens, "sentences").numbers
    answer = np.flatnonzero(sentences == sentences[-1])
    rows = np.arange(len(tokens))

    def log_probability(sentence: int | None) -> float:
        hidden = (sentences == sentence) & (rows > 0)
        last = int(np.flatnonzero(hidden)[-1]) if hidden.any() else 0
        visible = (rows[:, None] >= rows) & ~((rows[:, None] > last) & hidden)
        mask = torch.from_numpy(visible)[None, None]
        with torch.inference_mode():
            logits = reader.module(torch.tensor(tokens.ids[None]), visible=mask)[0]
        return float(logits.double().log_softmax(-1)[answer - 1, tokens.ids[answer]].sum())

    numbers = [sentences[answer[0] - 1 - 5], sentences[answer[0] - 1]]
    lost = [log_probability(None) - log_probability(int(number)) for number in numbers]
    assert [unit["lost"] for unit in units] == pytest.approx(lost, abs=1e-4)


def test_an_answer_is_generated_once_and_read_again_after_the_passages_in_reverse_order(
    passages: Path, monkeypatch: pytest.MonkeyPatch, shell: Streams
) -> None:
    (passages / "qwen").mkdir()
    model = chat_model(passages / "qwen", "qwen")
    generated, read = list[Any](), list[list[int]]()
    inputs_of = hf_reader.HuggingFaceReader.inputs_of

    def generate(*given: Any) -> list[int]:
        generated.append(given)
        return [5, 6, 7]

    def noted_inputs(self: hf_reader.HuggingFaceReader, ids: torch.Tensor, *mask: Any) -> dict[str, Any]:
        read.append(ids[0].tolist())
        return inputs_of(self, ids, *mask)

    monkeypatch.setattr(hf_reader, "generate", generate)
    monkeypatch.setattr(hf_reader.HuggingFaceReader, "inputs_of", noted_inputs)
    line = ["show", "What is it?", "--model", model, "--passages", "docs/*.txt", "--by", "passages", "--generate", "3"]
    units = shell.json(*line, "--check", "1")["units"]
    assert all(unit["reversed"] is not None for unit in units)
    assert len(generated) == 1
    assert len({tuple(ids) for ids in read}) > 1
    assert {tuple(ids[-3:]) for ids in read} == {(5, 6, 7)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a b. a b"], "--check hides units; add --by turns"),
        (["a b. a b", "--by", "sentences"], "the seeded model is untrained"),
        (["a b", "--by", "sentences", "--model", "trained"], "--check needs two sentences or more"),
        (["a b. a b", "--by", "turns", "--model", "trained"], "--by turns needs a chat"),
        (["run.safetensors", "--by", "turns"], "a saved file holds none"),
        (
            ["a b. a", "--by", "sentences", "--model", "trained", "--sort", "previous"],
            "--sort does not apply to --check",
        ),
        (["a b. a", "--by", "sentences", "--model", "trained", "--queries", "1:"], "--queries does not apply to --ch"),
        (["a b. a", "--by", "sentences", "--model", "trained", "--logits", "a"], "--logits does not apply to --check"),
    ],
)
def test_refusals_are_one_line(given: list[str], said: str, in_folder: Path, shell: Streams) -> None:
    assert said in shell.refused("show", *given, "--check", "2")
