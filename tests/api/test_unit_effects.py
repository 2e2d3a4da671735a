"""What units rest on: losses against masks set by hand, attention against the model's own, and planted copies."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
import transformers

import attnviz
from attnviz.api.unit_effects import unit_effects
from attnviz.base.errors import AttnvizError
from attnviz.effects.unit_effects import UnitEffects
from attnviz.metrics.unit_attention import units_of_text
from attnviz.models.huggingface import reader as hf_reader
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import LiveModel, open_reader
from attnviz.text.selection import Selection
from tests.models.huggingface.chats import chat_model, chat_tokenizer
from tests.models.huggingface.picture_models import qwen_folder
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
TEXT = "The king lives. My bike has two wheels. It is red. Snow falls in winter. My bike has"
SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "attn_implementation": "eager",
}  # fmt: skip
WINDOW = 6


def decoder(family: str, **settings: Any) -> Reader:
    torch.manual_seed(0)
    tokenizer = chat_tokenizer(None)
    config_class = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, config_class)(**SHAPE, vocab_size=len(tokenizer), **settings)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)  # so that tokens matter
    return LiveModel(model, tokenizer).reader(ModelSettings(model="m"), "predictions")


def llama() -> Reader:
    return decoder("Llama")


def gemma() -> Reader:
    reader = decoder(
        "Gemma3", sliding_window=WINDOW, pad_token_id=1, layer_types=["sliding_attention", "full_attention"] * 2
    )
    config: Any = reader.module.config
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}
    return reader


@contextmanager
def hidden_from_later_tokens(model: torch.nn.Module, hidden: np.ndarray) -> Iterator[None]:
    """Adds -inf to the mask that each attention module gets, where a later token looks at a hidden one."""
    count = len(hidden)
    last = int(np.flatnonzero(hidden)[-1]) if hidden.any() else count
    is_closed = torch.from_numpy((np.arange(count)[:, None] > last) & hidden)

    def close(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = kwargs["attention_mask"]  # (batch, 1, queries, keys), added to the scores
        return args, kwargs | {"attention_mask": mask.masked_fill(is_closed, torch.finfo(mask.dtype).min)}

    modules = [part for name, part in model.named_modules() if name.endswith("self_attn") and "visual" not in name]
    hooks = [part.register_forward_pre_hook(close, with_kwargs=True) for part in modules]
    assert hooks
    yield
    for hook in hooks:
        hook.remove()


def expected_losses(reader: Reader, example: Example, effects: UnitEffects, numbers: np.ndarray) -> Any:
    """The losses and divergences with masks set by hand, both ``(units, units)``."""
    prepared = reader.read(example)
    ids = torch.tensor(prepared.tokens.ids)

    def log_probabilities(hidden: np.ndarray) -> torch.Tensor:
        with torch.no_grad(), hidden_from_later_tokens(reader.module, hidden):
            logits: torch.Tensor = reader.module(**prepared.inputs).logits[0]
        return logits.double().log_softmax(-1)

    clean, count = log_probabilities(numbers == -2), len(effects.units)
    lost, divergence = (np.full((count, count), np.nan) for _ in range(2))
    for column in range(count):
        changed = log_probabilities(numbers == column)
        for row in range(column + 1, count):
            # the tokens of the unit that are predicted after a token that is not hidden
            tokens = [
                token for token in np.flatnonzero(numbers == row) if numbers[token - 1] != column and ids[token] >= 0
            ]
            if tokens:
                before, after = (torch.stack([table[token - 1] for token in tokens]) for table in (clean, changed))
                next_ids = torch.stack([ids[token] for token in tokens])[:, None]
                lost[row, column] = float((before - after).gather(1, next_ids).sum())
                divergence[row, column] = float((before.exp() * (before - after)).sum(1).mean())
    return lost, divergence


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (100, 160, 3), dtype=np.uint8)
    PIL.Image.fromarray(pixels).save(tmp_path / "drawn.png")
    return tmp_path / "drawn.png"


def picture_reader(folder: Path) -> Reader:
    model: Any = transformers.AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    for parameter in model.model.language_model.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)
    reader = open_reader(ModelSettings(model=str(folder)), "pictures")
    reader.__dict__["loaded"] = (model.eval(), reader.loaded[1])  # type: ignore[attr-defined]
    return reader


@pytest.mark.parametrize("kind", ["full mask", "sliding windows", "picture with positions of its own"])
def test_losses_are_those_of_masks_set_by_hand(kind: str, photo: Path) -> None:
    if kind.startswith("picture"):
        reader = picture_reader(qwen_folder(photo.parent))
        example = Example("what is on the table ? is the table on what . table is what", images=(photo,))
    else:
        reader, example = llama() if kind == "full mask" else gemma(), Example(TEXT)
    recording, effects = unit_effects(reader, example, Selection(), "sentences")
    units, answer = units_of_text(recording.maps[0].query_tokens, "sentences")
    assert answer == effects.answer == len(units) - 1
    assert ("drawn.png" in units.labels) == kind.startswith("picture")
    lost, divergence = expected_losses(reader, example, effects, units.numbers)
    assert np.nanmax(np.abs(lost)) > 0.1
    np.testing.assert_allclose(effects.lost, lost, atol=1e-4)
    np.testing.assert_allclose(effects.divergence, divergence, atol=1e-5)


def test_attention_of_chosen_heads_is_the_mean_of_blocks_of_the_models_own_weights() -> None:
    reader = gemma()
    recording, effects = unit_effects(reader, Example(TEXT), Selection.parse(heads="1.2,3.0"), "sentences")
    assert (effects.heads, effects.heads_by) == (("1.2", "3.0"), "choice")
    with torch.no_grad():
        output = reader.module(**reader.read(Example(TEXT)).inputs, output_attentions=True)
    weights = (output.attentions[1][0, 2] + output.attentions[3][0, 0]).double().numpy() / 2
    numbers = units_of_text(recording.maps[0].query_tokens, "sentences")[0].numbers
    expected = [[weights[numbers == row][:, numbers == key].sum(1).mean() for key in range(5)] for row in range(5)]
    np.testing.assert_allclose(effects.attention, expected, atol=1e-6)


def test_units_run_once_more_than_there_are_of_them() -> None:
    reader, calls = llama(), list[int]()
    text = " ".join(f"King {number} lives." for number in range(40))
    model: Any = reader.module
    model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    _, effects = unit_effects(reader, Example(text), Selection(), "sentences")
    assert effects.attention.shape == (40, 40)
    assert effects.passes == len(calls) == 41


TEXTS = {
    "a.txt": "The king lives in a castle by the sea.",
    "b.txt": "My bike has two wheels and a red bell.",
    "c.txt": "Snow falls in winter and children build a man.",
}


@pytest.mark.parametrize("copied", TEXTS)
def test_the_copied_passage_is_named_by_attention_by_controls_and_by_loss(
    copied: str, in_folder: Path, shell: Streams
) -> None:
    (in_folder / "docs").mkdir()
    for name, text in TEXTS.items():
        (in_folder / "docs" / name).write_text(text)
    question = " ".join(TEXTS[copied].split()[:6])
    found = shell.json("why", question, "--passages", "docs/*.txt", "--by", "passages")
    assert found["units"] == [*TEXTS, "question"]
    for numbers in (found["answer_attention"], found["answer_lost"], *found["controls"].values()):
        assert int(np.argmax(numbers)) == [*TEXTS].index(copied)
    assert set(found["controls"]) == {"reversed", "calibrated"}
    assert found["passes"] == 4 + 1 + 2


def test_a_planted_copy_is_what_the_last_sentence_rests_on() -> None:
    reader = open_reader(ModelSettings(model="trained"), "predictions")
    words = [f"w{number}" for number in range(40)]
    for seed in range(20):
        shuffle = random.Random(seed)
        shuffle.shuffle(words)
        sentences = [" ".join(words[start : start + 5]) + "." for start in range(0, 25, 5)]
        planted = shuffle.randrange(5)
        text = " ".join([*sentences, sentences[planted]])
        _, effects = unit_effects(reader, Example(text), Selection(), "sentences")
        assert int(effects.answer_lost.argmax()) == planted


@pytest.fixture
def chat(in_folder: Path) -> list[str]:
    """A chat with a tool's result, and a random model."""
    (in_folder / "qwen").mkdir()
    messages = [
        {"role": "user", "content": "What is the height of the tower?"},
        {"role": "tool", "content": "The tower is 330 m high."},
        {"role": "assistant", "content": "330 m."},
    ]
    (in_folder / "chat.json").write_text(json.dumps({"messages": messages}))
    return ["chat.json", "--model", chat_model(in_folder / "qwen", "qwen")]


def test_turns_of_a_chat_are_units_and_a_loaded_model_gives_the_numbers_of_the_command(
    chat: list[str], shell: Streams
) -> None:
    found = shell.json("why", *chat, "--by", "turns")
    assert found["units"] == ["1 user", "2 tool result", "3 assistant"]
    assert (found["answer"], found["passes"], found["controls"]) == (2, 4, {})
    assert "of qwen rests " in shell.words("why", *chat, "--by", "turns")

    line = ["What is it? The tower is high. What is it", *chat[1:], "--by", "sentences", "--heads", "0.0,1.1"]
    numbers = shell.json("why", *line)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(chat[2])
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat[2])
    effects = attnviz.reading(model, tokenizer, line[0]).why_units("sentences", heads="0.0,1.1")
    assert list(effects.units) == numbers["units"]
    for name in ("attention", "lost", "divergence"):
        given = [[np.nan if number is None else number for number in row] for row in numbers[name]]
        np.testing.assert_allclose(getattr(effects, name), given, atol=1e-5, err_msg=name)


def test_an_answer_is_generated_once_and_read_again_after_the_passages_in_reverse_order(
    chat: list[str], in_folder: Path, monkeypatch: pytest.MonkeyPatch, shell: Streams
) -> None:
    for name, text in TEXTS.items():
        (in_folder / name).write_text(text)
    generated, read = list[Any](), list[list[int]]()
    inputs_of = hf_reader.HuggingFaceReader.inputs_of

    def generate(*given: Any) -> list[int]:
        generated.append(given)
        return [300, 301, 302]

    def noted_inputs(self: hf_reader.HuggingFaceReader, ids: torch.Tensor, *mask: Any) -> dict[str, Any]:
        read.append(ids[0].tolist())
        return inputs_of(self, ids, *mask)

    monkeypatch.setattr(hf_reader, "generate", generate)
    monkeypatch.setattr(hf_reader.HuggingFaceReader, "inputs_of", noted_inputs)
    found = shell.json("why", "What is it?", *chat[1:], "--passages", "*.txt", "--by", "passages", "--generate", "3")
    assert found["units"][found["answer"] :] == ["answer"]
    assert None not in found["controls"]["reversed"]
    assert len(generated) == 1
    assert len({tuple(ids) for ids in read}) > 1
    assert {tuple(ids[-3:]) for ids in read} == {(300, 301, 302)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a b. a b", "--by", "tokens"], "--by tokens would hide each token; choose turns, passages or sentences"),
        (["a b. a b", "--by", "sentences", "--model", "seeded"], "the seeded model is untrained"),
        (["a b", "--by", "sentences"], "--by sentences needs two sentences or more"),
        (["a b. a b", "--by", "turns"], "--by turns needs a chat"),
        (["a b. a b", "--layers", "0"], "--layers choose where units look; add --by sentences, or leave them out"),
        (
            ["a b. a b", "--by", "sentences", "--token", "a"],
            "--token is about one token, and --by sentences about whole units",
        ),
        (
            ["a b. a b", "--by", "sentences", "--queries", ":1"],
            "--queries is about one token, and --by sentences about whole units",
        ),
    ],
)
def test_refusals_are_one_line(given: list[str], said: str, shell: Streams) -> None:
    assert said in shell.refused("why", *given)


def test_a_model_that_sees_later_tokens_is_refused() -> None:
    torch.manual_seed(0)
    tokenizer = chat_tokenizer(None)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    reader = LiveModel(transformers.BertForMaskedLM(config), tokenizer).reader(ModelSettings(model="m"), "predictions")
    with pytest.raises(AttnvizError, match="losses without units need a model that writes from left to right"):
        unit_effects(reader, Example(TEXT), Selection(), "sentences")
