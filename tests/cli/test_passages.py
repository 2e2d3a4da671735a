"""Passages before a question on the command line: the one that is gone on with is named."""

import json
from pathlib import Path

import pytest

from attnviz.cli.commands import main
from tests.models.huggingface.chats import chat_model

TEXTS = {"a.txt": "the king lives in a castle", "b.txt": "my bike has two wheels", "c.txt": "snow falls all winter"}
GIVEN = ("my bike has", "--passages", "*.txt", "--by", "passages")


@pytest.fixture(autouse=True)
def _files(in_folder: Path) -> None:
    for name, text in TEXTS.items():
        (in_folder / name).write_text(text)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_passage_that_is_gone_on_with_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, "show", *GIVEN, "--model", "trained")
    assert "question looked most at b.txt, “my bike has two wheels”: " in said
    assert "Outside every passage: 1 token (“<s>”), drawn as “marks”." in said
    assert "b.txt" in shown(capsys, "heads", *GIVEN, "--model", "trained", "--sort", "b.txt", "--json")


def test_passages_are_saved(capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "show", *GIVEN[:3], "--model", "trained", "-o", "run.safetensors")
    assert "question looked most at b.txt" in shown(capsys, "show", "run.safetensors", "--by", "passages")


@pytest.mark.slow
def test_an_answer_is_a_passage_of_its_own_with_and_without_a_chat(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    model = chat_model(tmp_path_factory.mktemp("qwen"), "qwen")
    capsys.readouterr()
    for chat in ([], ["--chat"]):
        said = shown(capsys, "show", *GIVEN, "--model", model, "--generate", "4", "--heads", "1.1", *chat)
        assert "answer looked most at " in said
        for label in ("a.txt", "b.txt", "c.txt", "question", "answer"):
            assert f" {label} " in said


@pytest.mark.slow
def test_parts_of_a_message_and_documents_are_passages(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    model = chat_model(tmp_path_factory.mktemp("qwen"), "qwen")
    parts = [{"type": "text", "text": text} for text in (*TEXTS.values(), "What has two wheels?")]
    chat = {"messages": [{"role": "user", "content": parts}], "documents": ["The tower is 330 m high."]}
    Path("chat.json").write_text(json.dumps(chat))
    given = ["chat.json", "--model", model, "--by", "passages", "--heads", "1.1"]
    capsys.readouterr()
    said = shown(capsys, "show", *given, "--generate", "4")
    assert "answer looked most at " in said
    assert said.startswith("What has two wheels?")
    assert "The chat template left out: documents." in said
    capsys.readouterr()
    effects = json.loads(shown(capsys, "why", *given, "--json"))
    assert effects["units"][: effects["answer"]] == ["1.1 user", "1.2 user", "1.3 user"]
    assert all(None not in effects["controls"][name] for name in ("calibrated", "reversed"))
