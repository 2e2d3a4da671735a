"""Answers of servers on tiny models: maps of the steps that wrote them, and log-probabilities that tell models."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.saved import load
from attnviz.models.huggingface.replay import answer_tokens, refuse_unknown_ids
from attnviz.models.huggingface.tokens import decoded_spans
from attnviz.text.server_answer import ServerAnswer
from tests.conftest import dense
from tests.models.huggingface.chats import chat_model, chat_tokenizer

pytestmark = pytest.mark.slow

PROMPT_TOKENS, NEW_TOKENS = 30, 20
TEXT = "Grüße, 中文 und 🙂! <|im_start|>user\nWhat  is it?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return chat_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def model(folder: str) -> Any:
    """The model of the folder with weights so large that its predictions differ from each other."""
    kind: Any = transformers.LlamaForCausalLM
    model = kind.from_pretrained(folder)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    return model.eval()


@pytest.fixture(scope="module")
def run(model: Any) -> tuple[Any, dict[str, Any]]:
    """The recording of the steps of a generation, and the answer that a server would give."""
    torch.manual_seed(1)
    prompt = torch.randint(25, 300, (1, PROMPT_TOKENS))
    with attnviz.record(model) as stepwise, torch.no_grad():
        output = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
            do_sample=False, return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    new = output.sequences[0, PROMPT_TOKENS:].tolist()
    logprobs = [float(step[0].log_softmax(-1)[i]) for step, i in zip(output.logits, new, strict=True)]
    content = [{"token": "", "logprob": number} for number in logprobs]
    choice = {"token_ids": new, "logprobs": {"content": content}, "finish_reason": "length"}
    return stepwise, {"prompt_token_ids": prompt[0].tolist(), "choices": [choice]}


@pytest.fixture
def answer(in_folder: Path, run: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    (in_folder / "answer.json").write_text(json.dumps(run[1]))
    return run[1]


def ids_of(answer: dict[str, Any]) -> list[int]:
    return [*answer["prompt_token_ids"], *answer["choices"][0]["token_ids"]]


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    return [entry["logprob"] for entry in answer["choices"][0]["logprobs"]["content"]]


def test_maps_are_those_of_the_steps(folder: str, run: tuple[Any, Any], answer: dict[str, Any], capsys: Any) -> None:
    assert main(["show", "answer.json", "--model", folder, "-o", "run.safetensors"]) == 0
    replayed = load("run.safetensors")
    for steps in run[0].maps:
        count = len(steps.query_tokens)
        assert count >= PROMPT_TOKENS + NEW_TOKENS - 1
        whole = dense(replayed, steps.layer).weights[:, :count, :count]
        np.testing.assert_allclose(whole, steps.weights, atol=5e-6)
    tokens = replayed.maps[0].key_tokens
    assert tokens.ids.tolist() == ids_of(answer)
    assert tokens.groups["generated"].numbers.tolist() == [0] * PROMPT_TOKENS + [1] * NEW_TOKENS
    assert "This is the model that wrote the answer" in replayed.remarks[0]


def test_log_probabilities_tell_models_apart(model: Any, answer: dict[str, Any]) -> None:
    def difference(candidate: Any) -> float:
        with torch.no_grad():
            logits = candidate(torch.tensor([ids_of(answer)])).logits[0].float().log_softmax(-1)
        ours = [float(logits[PROMPT_TOKENS - 1 + step, i]) for step, i in enumerate(ids_of(answer)[PROMPT_TOKENS:])]
        return float(np.abs(np.array(ours) - logprobs_of(answer)).mean())

    kind: Any = transformers.LlamaForCausalLM
    half = kind(model.config).eval()
    half.load_state_dict(model.state_dict())
    half.to(torch.bfloat16)
    for candidate in (model, half):
        said = replayed_remark(candidate, answer)
        assert "This is the model that wrote the answer" in said
        assert float(said.split("off by ")[1].split()[0]) == pytest.approx(difference(candidate), rel=0.3, abs=1e-5)
    torch.manual_seed(0)
    other = kind(model.config).eval()
    with pytest.raises(AttnvizError, match=rf"by {difference(other):.2f} on average"):
        replayed_remark(other, answer)


def replayed_remark(model: Any, answer: dict[str, Any]) -> str:
    recording = attnviz.replay(model, torch.tensor([ids_of(answer)]), logprobs=logprobs_of(answer))
    return recording.remarks[0]


def test_a_changed_log_probability_is_seen(model: Any, answer: dict[str, Any]) -> None:
    changed = [number - 0.2 for number in logprobs_of(answer)]
    recording = attnviz.replay(model, ids_of(answer), logprobs=changed)
    assert "nearly the model" in recording.remarks[0]
    assert "off by 0.2 on average" in recording.remarks[0]


def test_python_gives_the_maps_of_the_command(model: Any, folder: str, answer: dict[str, Any]) -> None:
    assert main(["show", "answer.json", "--model", folder, "-o", "run.safetensors"]) == 0
    model.train()
    recording = attnviz.replay(model, ids_of(answer), chat_tokenizer("llama"), prompt_length=PROMPT_TOKENS)
    assert model.training
    model.eval()
    saved = load("run.safetensors")
    for layer in saved.layers:
        ours, theirs = dense(recording, layer), dense(saved, layer)
        assert ours.key_tokens.labels == theirs.key_tokens.labels
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-5)


def test_a_token_of_several_bytes_and_special_tokens_keep_their_places() -> None:
    tokenizer = chat_tokenizer("llama")
    ids = tokenizer(TEXT)["input_ids"]
    text, spans = decoded_spans(tokenizer, ids)
    assert text == TEXT
    assert spans[-1][1] == len(TEXT)
    assert all(start <= stop for start, stop in spans)
    tokens = answer_tokens(tokenizer, ServerAnswer(tuple(ids[:3]), tuple(ids[3:])))
    assert tokens.ids.tolist() == ids
    split_again = tokenizer(TEXT, return_offsets_mapping=True)["offset_mapping"]
    whole = [place for place, (start, stop) in enumerate(split_again) if (start, stop) not in split_again[:place]]
    assert [spans[place] for place in whole if TEXT[slice(*spans[place])].isascii()] == [
        tuple(split_again[place]) for place in whole if TEXT[slice(*spans[place])].isascii()
    ]


def test_ids_that_would_be_split_otherwise_are_kept(folder: str, in_folder: Path) -> None:
    tokenizer = chat_tokenizer("llama")
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in "tower"]
    assert tokenizer("tower")["input_ids"] != letters
    (in_folder / "answer.json").write_text(
        json.dumps({"prompt_token_ids": letters, "choices": [{"token_ids": letters}]})
    )
    assert main(["show", "answer.json", "--model", folder, "-o", "run.safetensors"]) == 0
    assert load("run.safetensors").maps[0].key_tokens.labels == tuple("towertower")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "FOLDER", "--generate", "3"], "leave --generate out"),
        (["--model", "FOLDER", "--chat"], "leave --chat out"),
        (["--model", "FOLDER", "--set", "truncate"], "leave truncate out"),
        (["--model", "OTHER"], "is not the model that wrote this answer"),
        ([], "token ids of a server's answer"),
    ],
)
def test_other_models_and_options_that_would_change_the_ids_are_refused(
    options: list[str], reason: str, folder: str, answer: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    folders = {"FOLDER": folder, "OTHER": chat_model(tmp_path / "other", "llama") if "OTHER" in options else ""}
    capsys.readouterr()
    assert main(["show", "answer.json", *(folders.get(option, option) for option in options)]) == 1
    printed = capsys.readouterr()
    [line] = printed.err.splitlines()
    assert reason in line
    assert printed.out == ""


def test_ids_beyond_the_vocabulary_and_too_many_are_refused(folder: str, in_folder: Path, capsys: Any) -> None:
    for ids, reason in (([5, 500_000], "has the token id 500000"), ([5] * 600, "reads at most 512")):
        (in_folder / "answer.json").write_text(json.dumps({"prompt_token_ids": [5], "choices": [{"token_ids": ids}]}))
        assert main(["show", "answer.json", "--model", folder]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert reason in line


@pytest.mark.parametrize(
    ("ids", "options", "reason"),
    [
        ([], {}, "no token ids"),
        ([3, 1_000], {}, "token id 1000"),
        ([3.5], {}, "not a token id"),
        ([3, 4], {"logprobs": [-1.0, -2.0]}, "2 log-probabilities of 2 ids leave no prompt; give those of"),
        ([3, 4], {"prompt_length": 0, "logprobs": [-1.0, -2.0]}, "a prompt of 0 of 2 ids is impossible"),
        ([3, 4], {"prompt_length": 3}, "a prompt of 3 of 2 ids is impossible"),
        ([3, 4], {"prompt_length": 1, "logprobs": [-1.0, -1.0]}, "2 log-probabilities for 1 tokens"),
    ],
)
def test_python_refuses_ids_that_make_no_sense(
    ids: list[Any], options: dict[str, Any], reason: str, model: Any
) -> None:
    with pytest.raises(AttnvizError, match=reason):
        attnviz.replay(model, ids, **options)


def test_an_infinite_log_probability_of_the_server_is_left_out(model: Any, answer: dict[str, Any]) -> None:
    recording = attnviz.replay(model, ids_of(answer), logprobs=[math.nan, *logprobs_of(answer)[1:]])
    assert "This is the model" in recording.remarks[0]


def test_the_first_id_after_the_vocabulary_is_labelled_by_its_number_and_refused_by_a_model_without_it() -> None:
    tokenizer = chat_tokenizer("llama")
    size = len(tokenizer)
    answer = ServerAnswer((5, size - 1), (size,))
    last_label = tokenizer.convert_ids_to_tokens(size - 1)
    assert answer_tokens(tokenizer, answer).labels[1:] == (last_label, f"[{size}]")
    refuse_unknown_ids(answer, size + 1, "tiny")
    with pytest.raises(AttnvizError, match=f"tiny has only {size} tokens"):
        refuse_unknown_ids(answer, size, "tiny")
