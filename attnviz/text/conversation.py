"""Reads conversations: messages as OpenAI-compatible servers take them, with the turns that their texts belong to."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from attnviz.base.errors import AttnvizError, choices
from attnviz.base.printable import printable
from attnviz.base.reading import parse_json, read_json, read_start
from attnviz.media.text import refuse_surrogates

KINDS = {  # the kind of turn that the content of each role is
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool result",
}
THINKING, TOOL_CALL, TOOLS, ANSWER = "thinking", "tool call", "tools", "answer"
THOUGHT = re.compile(r"(<think>)(.*?)(</think>)", re.DOTALL)
THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")
TOOL_TEXTS = ("name", "description")  # the values of a tool's definition that are texts
MAX_MESSAGES = 10_000
MAX_ROLE_CHARACTERS = 40
ROLE = re.compile(rb'"role"\s*:')  # in the first bytes of a file of messages
MAX_SEARCHED_BYTES = 2**16

Change = Callable[[str, str], str]  # returns the new text, given the label of its turn and the text


@dataclass(frozen=True)
class Conversation:
    """The messages of a chat, and the definitions of the tools that its model may call.

    Attributes:
        messages: the messages as JSON objects: ``role`` with ``content``, ``reasoning_content`` or ``tool_calls``.
        tools: the definitions as JSON objects; empty for none.

    Raises:
        AttnvizError: if there are no messages, or one has an unknown role, no text, or something else than text.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.messages:
            raise AttnvizError('the chat has no messages; give {"messages": [{"role": "user", "content": "…"}]}')
        if len(self.messages) > MAX_MESSAGES:
            raise AttnvizError(f"the chat has {len(self.messages)} messages; give at most {MAX_MESSAGES}")
        checked = (_checked(message, number) for number, message in enumerate(self.messages, 1))
        object.__setattr__(self, "messages", tuple(checked))
        self.changed(_refuse_surrogates)

    @classmethod
    def of_question(cls, text: str) -> Self:
        """Returns a chat that consists of one message of the user.

        Raises:
            AttnvizError: if the text is itself a list of messages in JSON.
        """
        if _is_dialogue(text):
            raise AttnvizError(
                "the text is a list of messages in JSON; write it to a file, and give its name: chat.json"
            )
        return cls(({"role": "user", "content": text},))

    @property
    def title(self) -> str:
        """The last message of the user, else the last message with a text."""
        texts = [(message["role"], message["content"]) for message in self.messages if message.get("content")]
        asked = [text for role, text in texts if role == "user"]
        return str((asked or [text for _, text in texts] or [""])[-1])

    @property
    def is_answered(self) -> bool:
        """True if the last message is the model's."""
        return bool(self.messages[-1]["role"] == "assistant")

    @property
    def answer(self) -> str:
        """The label of the turn that the model would write next."""
        return f"{len(self.messages) + 1} {ANSWER}"

    def changed(self, change: Change) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns messages and tools with each text of a turn replaced by ``change(label, text)``.

        A label is the message's number, from 1, and the kind of its turn: ``2 user``, ``3 thinking``. Texts are changed
        in the order of the messages; those of tools come first.
        """
        tools = [_changed_tool(tool, change) for tool in self.tools]
        return [_changed(dict(one), number, change) for number, one in enumerate(self.messages, 1)], tools

    def turns(self) -> dict[str, str]:
        """Returns the text of each turn that has one, by its label, in the order of the messages."""
        texts: dict[str, list[str]] = {}

        def collect(label: str, text: str) -> str:
            if text.strip():
                texts.setdefault(label, []).append(text)
            return text

        self.changed(collect)
        return {label: " ".join(each) for label, each in texts.items()}


def _is_dialogue(text: str) -> bool:
    """True if a text is JSON as programs pass a chat on: messages with a role each, or an object of these."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        value = parse_json(text, "a chat")
    except AttnvizError:
        return False
    messages = value.get("messages", [value]) if isinstance(value, dict) else value
    return isinstance(messages, list) and any(isinstance(each, dict) and "role" in each for each in messages)


def is_conversation(path: Path) -> bool:
    """True if a file is JSON with messages, as far as its first bytes say."""
    start = read_start(path, MAX_SEARCHED_BYTES)
    return start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and ROLE.search(start) is not None


def read_conversation(path: Path) -> Conversation:
    """Returns the conversation of a JSON file: a list of messages, or an object with ``messages`` and ``tools``.

    Raises:
        AttnvizError: if the file cannot be read, or holds no messages of text.
    """
    value = read_json(path)
    found = value if isinstance(value, dict) else {"messages": value}
    messages, tools = found.get("messages"), found.get("tools") or []
    for name, each in (("messages", messages), ("tools", tools)):
        if not isinstance(each, list) or not all(isinstance(one, dict) for one in each):
            raise AttnvizError(f'{str(path)!r} has no list of {name}; write {{"{name}": [{{…}}, …]}}')
    assert isinstance(messages, list)
    return Conversation(tuple(messages), tuple(tools))


def _checked(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns a message whose content is one string, and whose calls of tools have their arguments as objects."""
    role = message.get("role")
    if role not in KINDS:
        shown = printable(str(role))[:MAX_ROLE_CHARACTERS]
        raise AttnvizError(f"message {number} has the unknown role {shown!r}; {choices(shown, tuple(KINDS))}")
    checked = dict(message)
    checked["content"] = _content(message.get("content"), number)
    if "tool_calls" in message and message["tool_calls"] is None:
        del checked["tool_calls"]
    elif "tool_calls" in message:
        checked["tool_calls"] = _calls(message["tool_calls"], number)
    thoughts = [message.get(name) for name in THINKING_FIELDS]
    if not all(each is None or isinstance(each, str) for each in thoughts):
        raise AttnvizError(f"the reasoning of message {number} is not a text; give a string")
    if not (checked["content"].strip() or checked.get("tool_calls") or any(thoughts)):
        raise AttnvizError(f"message {number} ({role}) is empty; give it a text, or leave it out")
    return checked


def _content(content: Any, number: int) -> str:
    """Returns the content of a message as one string; the texts of several parts are joined by newlines."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": "" if content is None else content}]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            shown = printable(str(kind))[:MAX_ROLE_CHARACTERS]
            raise AttnvizError(f"message {number} holds {shown!r}, and only text is read; give a text")
    return "\n".join(part["text"] for part in parts)


def _calls(calls: Any, number: int) -> list[dict[str, Any]]:
    """Returns the calls of tools with their arguments as objects, which servers write as strings of JSON."""
    refusal = f"a tool call of message {number} has no name; write function.name"
    if not isinstance(calls, list):
        raise AttnvizError(f"tool_calls of message {number} is not a list; give a list of calls")
    found = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else {}
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"].strip():
            raise AttnvizError(refusal)
        given = {**function, "arguments": _arguments(function.get("arguments"))}
        found.append({**call, "function": given} if "function" in call else given)
    return found


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        parsed = parse_json(arguments, "arguments")
    except AttnvizError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _changed(message: dict[str, Any], number: int, change: Change) -> dict[str, Any]:
    """Returns a message with its texts changed."""
    for name in THINKING_FIELDS:
        if message.get(name):
            message[name] = change(f"{number} {THINKING}", message[name])
    if message["content"]:
        message["content"] = _changed_content(message, number, change)
    if message.get("tool_calls"):
        label = f"{number} {TOOL_CALL}"
        message["tool_calls"] = [_changed_call(call, label, change) for call in message["tool_calls"]]
    return message


def _changed_content(message: dict[str, Any], number: int, change: Change) -> str:
    """Returns the content of a message with its texts changed; the signs around its thinking stay."""
    label = f"{number} {KINDS[message['role']]}"
    if message["role"] != "assistant":
        return change(label, message["content"])
    parts, end = [], 0
    for thought in THOUGHT.finditer(message["content"]):
        parts += [change(label, message["content"][end : thought.start()]), thought[1]]
        parts += [change(f"{number} {THINKING}", thought[2]), thought[3]]
        end = thought.end()
    return "".join([*parts, change(label, message["content"][end:])])


def _changed_call(call: Mapping[str, Any], label: str, change: Change) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": _changed_call(call["function"], label, change)}
    return {**call, "name": change(label, call["name"]), "arguments": _changed_texts(call["arguments"], label, change)}


def _changed_texts(value: Any, label: str, change: Change) -> Any:
    """Returns a JSON value with all of its strings changed, except the names of an object."""
    if isinstance(value, str):
        return change(label, value)
    if isinstance(value, dict):
        return {name: _changed_texts(each, label, change) for name, each in value.items()}
    return [_changed_texts(each, label, change) for each in value] if isinstance(value, list) else value


def _changed_tool(tool: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Returns the definition of a tool with its names and descriptions changed, at any depth."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {each: changed(each, inner) for each, inner in value.items()}
        if isinstance(value, list):
            return [changed("", inner) for inner in value]
        return change(TOOLS, value) if isinstance(value, str) and name in TOOL_TEXTS else value

    return {name: changed(name, value) for name, value in tool.items()}


def _refuse_surrogates(label: str, text: str) -> str:
    refuse_surrogates(text)
    return text
