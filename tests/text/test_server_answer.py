"""Answers of servers in the forms that vLLM, SGLang and llama.cpp give them, and what cannot be replayed."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.subject import Kind, Subject
from attnviz.text.server_answer import ServerAnswer, read_answer

PROMPT, IDS, LOGPROBS = (5, 6, 7), (8, 9), (-0.5, -1.25)
CONTENT = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.25}]
FINAL = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": []}]}
CHUNKS: list[dict[str, Any]] = [
    {"prompt_token_ids": [5, 6, 7], "choices": [{"index": 0, "delta": {"role": "assistant"}}]},
    {"choices": [{"index": 0, "token_ids": [8], "logprobs": {"content": CONTENT[:1]}}]},
    {"choices": [{"index": 0, "token_ids": [9], "logprobs": {"content": CONTENT[1:]}}]},
    FINAL,
]
FORMS: dict[str, Any] = {
    "vLLM chat": {
        "prompt_token_ids": [5, 6, 7],
        "choices": [{"message": {"role": "assistant"}, "token_ids": [8, 9], "logprobs": {"content": CONTENT}}],
    },
    "vLLM completion": {
        "choices": [
            {"prompt_token_ids": [5, 6, 7], "token_ids": [8, 9], "logprobs": {"token_logprobs": [-0.5, -1.25]}},
        ]
    },
    "tokens named by ids": {
        "prompt_token_ids": [5, 6, 7],
        "choices": [
            {
                "logprobs": {
                    "content": [{"token": f"token_id:{i}", "logprob": p} for i, p in zip(IDS, LOGPROBS, strict=True)]
                }
            }
        ],
    },
    "SGLang generate": {
        "text": "ab",
        "output_ids": [8, 9],
        "meta_info": {
            "input_token_logprobs": [[None, 5, None], [-1.0, 6, None], [-2.0, 7, None]],
            "output_token_logprobs": [[-0.5, 8, None], [-1.25, 9, None]],
        },
    },
    "SGLang chat": {
        "sglext": {"input_ids": [5, 6, 7], "output_ids": [[8, 9]]},
        "choices": [{"logprobs": {"content": CONTENT}}],
    },
    "llama.cpp completion": {
        "prompt": [5, 6, 7],
        "content": "ab",
        "tokens": [8, 9],
        "completion_probabilities": [{"id": 8, "logprob": -0.5}, {"id": 9, "logprob": -1.25}],
    },
    "llama.cpp chat": {
        "prompt_token_ids": [5, 6, 7],
        "choices": [{"logprobs": {"content": [{"id": 8, "logprob": -0.5}, {"id": 9, "logprob": -1.25}]}}],
    },
    "chunks": CHUNKS,
    "chunks that repeat the prompt with what was written": [
        {
            "choices": [
                {"index": 0, "prompt_token_ids": [5, 6, 7], "token_ids": [8], "logprobs": {"content": CONTENT[:1]}}
            ]
        },
        {
            "choices": [
                {"index": 0, "prompt_token_ids": [5, 6, 7, 8], "token_ids": [9], "logprobs": {"content": CONTENT[1:]}}
            ]
        },
        FINAL,
    ],
}


def write(folder: Path, content: Any, name: str = "answer.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_server_gives_the_same_ids_and_log_probabilities(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, FORMS[form])
    assert Subject.of(str(path)).kind is Kind.ANSWER
    assert read_answer(path) == ServerAnswer(PROMPT, IDS, LOGPROBS)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_a_stream_is_read_line_by_line(suffix: str, tmp_path: Path) -> None:
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS) + "data: [DONE]\n\n"
    path = write(tmp_path, stream, f"answer{suffix}")
    assert Subject.of(str(path)).kind is Kind.ANSWER
    assert read_answer(path) == ServerAnswer(PROMPT, IDS, LOGPROBS)


def test_a_stream_of_llama_cpp_is_joined(tmp_path: Path) -> None:
    chunks = [{"content": "a", "tokens": [8], "stop": False}, {"content": "b", "tokens": [9], "stop": False}]
    path = write(tmp_path, [*chunks, {"content": "", "tokens": [], "stop": True, "prompt": [5, 6, 7]}])
    assert read_answer(path) == ServerAnswer(PROMPT, IDS)


def test_unknown_and_infinite_log_probabilities_are_not_compared(tmp_path: Path) -> None:
    answer = {
        "prompt_token_ids": [5],
        "choices": [{"token_ids": [8, 9, 3], "logprobs": {"token_logprobs": [None, -9999, -1]}}],
    }
    logprobs = read_answer(write(tmp_path, answer)).logprobs
    assert logprobs is not None
    assert [math.isnan(number) for number in logprobs] == [True, True, False]


def test_the_first_of_several_answers_is_read_and_said(tmp_path: Path) -> None:
    choices = [{"index": 1, "token_ids": [1]}, {"index": 0, "token_ids": [8, 9]}]
    answer = read_answer(write(tmp_path, {"prompt_token_ids": [5, 6, 7], "choices": choices}))
    assert answer.ids == IDS
    assert answer.remarks == ("The first of 2 answers is shown.",)


def test_log_probabilities_of_another_number_are_left_out_and_said(tmp_path: Path) -> None:
    broken = {"prompt_token_ids": [5], "choices": [{"token_ids": [8, 9], "logprobs": {"token_logprobs": [-1]}}]}
    answer = read_answer(write(tmp_path, broken))
    assert answer.logprobs is None
    assert answer.remarks == ("The answer has 1 log-probabilities for 2 tokens, so they were not compared.",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]}, "no token ids for the answer"),
        ({"choices": [{"token_ids": [8, 9]}]}, "not of the prompt"),
        ({"prompt_token_ids": [5], "choices": [{"token_ids": [8, -1]}]}, "'-1' is not a token id"),
        (
            {"prompt_token_ids": [5], "choices": [{"token_ids": [2**31]}]},
            "'2147483648' is not a token id; give whole numbers from 0 to 2147483647",
        ),
        ({"prompt_token_ids": [5], "choices": [{"token_ids": [8, 2.5]}]}, "'2.5' is not a token id"),
        ({"prompt_token_ids": [5], "choices": [{"token_ids": [True]}]}, "'True' is not a token id"),
        (
            {"prompt_token_ids": [1], "choices": [{"logprobs": {"content": [{"token": "token_id:" + "9" * 5000}]}}]},
            "no token ids for the answer",
        ),
        ({"prompt_token_ids": [1], "choices": [{"token_ids": 5}]}, "no token ids for the answer"),
        ({"prompt_token_ids": 5, "choices": [{"token_ids": [5]}]}, "not of the prompt"),
        (f'{{"prompt_token_ids": [1], "choices": [{{"token_ids": [{"9" * 5000}]}}]}}', "."),
        (f'{{"prompt_token_ids": [1], "choices": [{{"token_ids": [{"9" * 400}]}}]}}', "."),
        (CHUNKS[:3], "ends before its answer does"),
        ({**CHUNKS[0], "object": "chat.completion.chunk"}, "ends before its answer does"),
        ("".join(f"data: {json.dumps(chunk)}\n" for chunk in CHUNKS)[:-25], "line 4 cannot be read"),
        ('{"choices": [{"token_ids": [8, 9', "line 1 cannot be read"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_line(content: Any, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    assert Subject.of(str(path)).kind is Kind.ANSWER
    with pytest.raises(AttnvizError, match=reason) as refused:
        read_answer(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"messages": [{"role": "user", "content": '"choices": [1], "token_ids": [1]'}]}, Kind.CHAT),
        ({"format": "attnviz numbers", "heads": [{"keys": {"tokens": ["a"]}}]}, Kind.FILE),
    ],
)
def test_chats_and_numbers_are_no_answers(content: Any, kind: Kind, tmp_path: Path) -> None:
    assert Subject.of(str(write(tmp_path, content))).kind is kind
