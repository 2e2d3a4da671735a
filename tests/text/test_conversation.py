"""Messages are read as servers take them, and every part that is no text is refused in a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.conversation import Conversation, is_conversation, read_conversation

USER = {"role": "user", "content": "How high is it?"}
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": '{"query": "a tower"}'}}]}


def read(tmp_path: Path, value: Any) -> Conversation:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(value))
    assert is_conversation(path) == ('"role":' in json.dumps(value))
    return read_conversation(path)


@pytest.mark.parametrize("value", [[USER, CALL], {"model": "m", "messages": [USER, CALL]}])
def test_a_list_and_an_object_are_read(tmp_path: Path, value: Any) -> None:
    chat = read(tmp_path, value)
    assert chat.turns() == {"1 user": "How high is it?", "2 tool call": "search a tower"}
    assert chat.messages[1]["tool_calls"][0]["function"]["arguments"] == {"query": "a tower"}
    assert (chat.title, chat.is_answered, chat.answer_label) == ("How high is it?", True, "3 answer")


def test_parts_of_text_are_joined_and_thinking_is_a_turn() -> None:
    parts = [{"type": "text", "text": "How high"}, {"type": "text", "text": "is it?"}]
    thought = {"role": "assistant", "content": "<think>hm</think>330 m"}
    chat = Conversation(({"role": "user", "content": parts}, thought))
    assert chat.turns() == {"1 user": "How high\nis it?", "2 thinking": "hm", "2 assistant": "330 m"}
    unchanged = chat.changed(lambda label, text: text).messages
    assert unchanged[1]["content"] == thought["content"]


def test_equal_messages_are_two_turns() -> None:
    assert list(Conversation((USER, USER)).turns()) == ["1 user", "2 user"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the chat has no messages; give"),
        ({"messages": {}}, 'has no list of messages; write {"messages": [{…}, …]}'),
        ([USER, "hello"], "has no list of messages"),
        ({"messages": [USER], "tools": "search"}, "has no list of tools"),
        ([{"role": "bot\x1b[31m", "content": "a"}], r"message 1 has the unknown role 'bot\\x1b[31m'; choose"),
        ([{"role": ["a"], "content": "a"}], "message 1 has the unknown role"),
        ([{"role": {"a": 1}, "content": "a"}], "message 1 has the unknown role"),
        ({"messages": [USER], "documents": ["a"] * 1001}, "the chat has 1001 documents; give at most 1000"),
        (
            [{"role": "user", "content": [{"type": "document", "title": "a", "text": "b"}] * 1001}],
            "the chat has more than 1000 passages; give at most 1000",
        ),
        ([{"content": "a", "x": '"role":'}], "message 1 has the unknown role 'None'; choose"),
        ([USER, {"role": "user", "content": " \n"}], "message 2 (user) is empty; give it a text"),
        ([{"role": "assistant", "content": None}], "message 1 (assistant) is empty"),
        ([{"role": "user", "content": 7}], "message 1 has '7' in place of a text; write \"content\": ["),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "message 1 holds 'image_url', and only text is read"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "a tool call of message 1 has no name"),
        ([{"role": "assistant", "tool_calls": "search"}], "tool_calls of message 1 is not a list"),
        ([{"role": "assistant", "content": "a", "reasoning": 7}], "the reasoning of message 1 is not a text"),
        ([{"role": "user", "content": "\ud800"}], "the text is not valid UTF-8"),
    ],
)
def test_refusals_are_one_line(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(AttnvizError, match=r"\w") as refused:
        read(tmp_path, value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_many_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.text.conversation.MAX_MESSAGES", 2)
    with pytest.raises(AttnvizError, match="the chat has 3 messages; give at most 2"):
        Conversation((USER, USER, USER))


def test_other_files_are_no_conversations(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"format": "attnviz effects"}')
    (tmp_path / "text.json").write_text('he said "role": a')
    (tmp_path / "late.json").write_text(json.dumps([" " * 2**16, {"role": "user"}]))  # no more of a file is read
    others = [tmp_path / name for name in ("other.json", "text.json", "late.json", "none")]
    assert not any(map(is_conversation, [*others, tmp_path]))
