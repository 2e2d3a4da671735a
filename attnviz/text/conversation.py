"""Reads conversations, in the messages of OpenAI-compatible servers, and finds the turn of each text."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from attnviz.base.errors import AttnvizError, choices
from attnviz.base.printable import printable
from attnviz.base.reading import parse_json, read_json, read_start
from attnviz.media.text import refuse_surrogates
from attnviz.text.named_groups import QUESTION
from attnviz.text.passages import (
    DOCUMENTS,
    MAX_PARTS,
    PART_SEPARATOR,
    TURN_KINDS,
    TurnPart,
    chat_passages,
    content_parts,
    question_number,
    read_document,
    with_parts_reversed,
    with_question_part,
)

THINKING, TOOL_CALL, TOOLS, ANSWER = "thinking", "tool call", "tools", "answer"
THOUGHT_IN_TEXT = re.compile(r"(<think>)(.*?)(</think>)", re.DOTALL)
THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")
TOOL_TEXT_FIELDS = ("name", "description")  # of a tool's definition: values that a template writes as text
MAX_MESSAGES = 10_000
MAX_ROLE_CHARACTERS = 40
ROLE = re.compile(rb'"role"\s*:')  # in the first bytes of a file, tells that it has messages
MAX_SEARCHED_BYTES = 2**16

Change = Callable[[str, str], str]  # returns the new text, given the label of its turn and the text


class TemplateInputs(NamedTuple):
    """The inputs of a chat template, as JSON objects."""

    messages: list[dict[str, Any]]  # the messages
    tools: list[Any]  # the definitions of tools
    documents: list[dict[str, str]]  # the documents, each with ``title`` and ``text``


@dataclass(frozen=True)
class Conversation:
    """The messages of a chat, and the definitions of the tools that its model may call.

    Raises:
        AttnvizError: if there are no messages or more than ``MAX_MESSAGES``; if a message has an unknown role, no text,
            or content that is not text; if a tool call or document is malformed; or if a text has a surrogate.
    """

    # the messages as JSON objects: ``role`` with ``content``, ``reasoning_content`` or ``tool_calls``
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()  # the definitions of tools as JSON objects; empty if there are none
    # texts beside the messages that the chat template may write, as strings or JSON objects
    documents: tuple[Any, ...] = ()
    # the messages before their contents were joined, which may have several parts
    original_messages: tuple[Mapping[str, Any], ...] = field(init=False, repr=False, compare=False)
    # the documents, the parts of messages, and the question; empty without documents and parts
    passages: tuple[TurnPart, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.messages:
            raise AttnvizError('the chat has no messages; give {"messages": [{"role": "user", "content": "…"}]}')
        if len(self.messages) > MAX_MESSAGES:
            raise AttnvizError(f"the chat has {len(self.messages)} messages; give at most {MAX_MESSAGES}")
        if len(self.documents) > MAX_PARTS:
            raise AttnvizError(f"the chat has {len(self.documents)} documents; give at most {MAX_PARTS}")
        documents = [read_document(value, f"document {number}") for number, value in enumerate(self.documents, 1)]
        checked_messages = (_checked_message(message, number) for number, message in enumerate(self.messages, 1))
        document_fields = (
            {"title": document.title, "text": document.text, "label": document.label} for document in documents
        )
        object.__setattr__(self, "original_messages", self.messages)
        object.__setattr__(self, "messages", tuple(checked_messages))
        object.__setattr__(self, "documents", tuple(document_fields))
        object.__setattr__(self, "passages", chat_passages(self.original_messages, documents))
        self.changed(_without_surrogates)  # each text goes through the check; the result is not needed

    @classmethod
    def from_question(cls, text: str) -> Self:
        """Returns a conversation of one message, in which the user asks ``text``."""
        if _is_chat_json(text):
            raise AttnvizError("the text is a chat in JSON; write it to a file, and give its name: chat.json")
        return cls(({"role": "user", "content": text},))

    @property
    def title(self) -> str:
        """The text of the user's last message; if the user wrote none, the last text of any message; "" for no text."""
        messages_with_text = [message for message in self.messages if message.get("content")]
        questions = [message for message in messages_with_text if message["role"] == "user"]
        candidates = questions or messages_with_text
        return str(candidates[-1]["content"]) if candidates else ""

    @property
    def is_answered(self) -> bool:
        """True if the last message has the role ``assistant``, so that the model has answered."""
        return bool(self.messages[-1]["role"] == "assistant")

    @property
    def answer_label(self) -> str:
        """The label of the turn that a model writes after these messages, such as ``3 answer``."""
        return f"{len(self.messages) + 1} {ANSWER}"

    def changed(self, change: Change) -> TemplateInputs:
        """Returns the inputs of a template with each text of a turn replaced by ``change(label, text)``.

        A label is the number of the message, from 1, and the kind of the turn: ``2 user``, ``3 thinking``; texts of
        tools have the label ``tools``, and those of documents ``documents``. ``change`` is called in the order of the
        texts, first those of tools and of documents.
        """
        tools = [_changed_tool(tool, change) for tool in self.tools]
        documents = [
            {name: change(DOCUMENTS, document[name]) for name in ("title", "text")} for document in self.documents
        ]
        messages = []
        for number, original in enumerate(self.messages, 1):
            message = dict(original)
            for name in THINKING_FIELDS:
                if message.get(name):
                    message[name] = change(f"{number} {THINKING}", message[name])
            if message["content"]:
                message["content"] = _changed_content(message, number, change)
            if message.get("tool_calls"):
                label = f"{number} {TOOL_CALL}"
                message["tool_calls"] = [_changed_call(call, label, change) for call in message["tool_calls"]]
            messages.append(message)
        return TemplateInputs(messages, tools, documents)

    def with_question(self, question: str) -> Self | None:
        """Returns the conversation with another question in place of the user's last; ``None`` if the user wrote none.

        In a message of several parts, only the last part that is not a document is replaced, or else the last part.
        """
        number = question_number(self.original_messages)
        if number is None:
            return None
        message = with_question_part(self.original_messages[number - 1], number, question)
        return type(self)(
            (*self.original_messages[: number - 1], message, *self.original_messages[number:]),
            self.tools,
            self.documents,
        )

    def with_passages_reversed(self) -> Self | None:
        """Returns the conversation with the passages of each message, and the documents, in the reverse order.

        Each keeps its label. Returns ``None`` if there are fewer than two passages besides the question.
        """
        if sum(passage.label != QUESTION for passage in self.passages) < 2:
            return None
        messages = [
            with_parts_reversed(message, number, self.passages)
            for number, message in enumerate(self.original_messages, 1)
        ]
        labels = [passage.label for passage in self.passages if passage.turn == DOCUMENTS]
        documents = [{**document, "label": label} for document, label in zip(self.documents, labels, strict=True)]
        return type(self)(tuple(messages), self.tools, tuple(reversed(documents)))

    def turns(self) -> dict[str, str]:
        """Returns the text of each turn by its label, without blank turns; texts of one turn are joined."""
        texts: dict[str, list[str]] = {}

        def collect(label: str, text: str) -> str:
            """Adds a text that is not blank to its turn in ``texts``, and returns it unchanged."""
            if text.strip():
                texts.setdefault(label, []).append(text)
            return text

        self.changed(collect)
        return {label: " ".join(parts) for label, parts in texts.items()}


def _is_chat_json(text: str) -> bool:
    """True if a text is JSON with at least one object that has a ``role``."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        value = parse_json(text, "a chat")
    except AttnvizError:
        return False
    messages = value.get("messages", [value]) if isinstance(value, dict) else value
    return isinstance(messages, list) and any(isinstance(message, dict) and "role" in message for message in messages)


def is_conversation(path: Path) -> bool:
    """True if a file begins as JSON and has a ``"role"`` in its first ``MAX_SEARCHED_BYTES``; no more is read."""
    start = read_start(path, MAX_SEARCHED_BYTES)
    return start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and ROLE.search(start) is not None


def read_conversation(path: Path) -> Conversation:
    """Reads a conversation from a JSON file: a list of messages, or an object with ``messages``.

    The object may also have ``tools`` and ``documents``.
    """
    value = read_json(path)
    chat = value if isinstance(value, dict) else {"messages": value}
    messages, tools = chat.get("messages"), chat.get("tools") or []
    for name, entries in (("messages", messages), ("tools", tools)):
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise AttnvizError(f'{str(path)!r} has no list of {name}; write {{"{name}": [{{…}}, …]}}')
    documents = chat.get("documents") or []
    if not isinstance(documents, list):
        raise AttnvizError(f'{str(path)!r} has no list of documents; write {{"documents": ["…", …]}}')
    assert isinstance(messages, list)
    return Conversation(tuple(messages), tuple(tools), tuple(documents))


def _checked_message(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns a message with its content as one string, and with the arguments of tool calls parsed from JSON."""
    role = message.get("role")
    if not isinstance(role, str) or role not in TURN_KINDS:
        printable_role = printable(str(role))[:MAX_ROLE_CHARACTERS]
        raise AttnvizError(
            f"message {number} has the unknown role {printable_role!r}; {choices(printable_role, tuple(TURN_KINDS))}"
        )
    checked_message = dict(message)
    checked_message["content"] = PART_SEPARATOR.join(
        part.text for part in content_parts(message.get("content"), number)
    )
    if "tool_calls" in message and message["tool_calls"] is None:
        del checked_message["tool_calls"]
    elif "tool_calls" in message:
        if not isinstance(message["tool_calls"], list):
            raise AttnvizError(f"tool_calls of message {number} is not a list; give a list of calls")
        checked_message["tool_calls"] = []
        for call in message["tool_calls"]:
            function = call.get("function", call) if isinstance(call, dict) else {}
            name = function.get("name") if isinstance(function, dict) else None
            if not isinstance(name, str) or not name.strip():
                raise AttnvizError(f"a tool call of message {number} has no name; write function.name")
            arguments = {} if function.get("arguments") is None else function["arguments"]
            if isinstance(arguments, str):
                with suppress(AttnvizError):
                    parsed_value = parse_json(arguments, "arguments")
                    arguments = parsed_value if isinstance(parsed_value, dict) else arguments
            parsed_call = {**function, "arguments": arguments}
            checked_message["tool_calls"].append(
                {**call, "function": parsed_call} if "function" in call else parsed_call
            )
    thoughts = [message.get(name) for name in THINKING_FIELDS]
    if not all(thought is None or isinstance(thought, str) for thought in thoughts):
        raise AttnvizError(f"the reasoning of message {number} is not a text; give a string")
    if not (checked_message["content"].strip() or checked_message.get("tool_calls") or any(thoughts)):
        raise AttnvizError(f"message {number} ({role}) is empty; give it a text, or leave it out")
    return checked_message


def _changed_content(message: dict[str, Any], number: int, change: Change) -> str:
    """Returns the content of a message, changed; in an answer each thought is a text of its own, and its tags stay."""
    label = f"{number} {TURN_KINDS[message['role']]}"
    if message["role"] != "assistant":
        return change(label, message["content"])
    parts: list[str] = []
    end = 0
    # Without the text after the last closing tag, each opening tag that is tried has one.
    last = message["content"].rfind("</think>") + len("</think>")
    for thought in THOUGHT_IN_TEXT.finditer(message["content"], 0, last):
        opening_tag, thought_text, closing_tag = thought.groups()
        parts += [change(label, message["content"][end : thought.start()]), opening_tag]
        parts += [change(f"{number} {THINKING}", thought_text), closing_tag]
        end = thought.end()
    return "".join([*parts, change(label, message["content"][end:])])


def _changed_call(call: Mapping[str, Any], label: str, change: Change) -> dict[str, Any]:
    """Returns a tool call with its name and the strings in its arguments changed; both may be in ``function``."""
    if "function" in call:
        return {**call, "function": _changed_call(call["function"], label, change)}
    return {**call, "name": change(label, call["name"]), "arguments": _changed_texts(call["arguments"], label, change)}


def _changed_texts(value: Any, label: str, change: Change) -> Any:
    """Returns a JSON value with all its strings changed, except names in objects; other values stay."""
    if isinstance(value, str):
        return change(label, value)
    if isinstance(value, dict):
        return {name: _changed_texts(part, label, change) for name, part in value.items()}
    return [_changed_texts(part, label, change) for part in value] if isinstance(value, list) else value


def _changed_tool(value: Any, change: Change, name: str = "") -> Any:
    """Returns a part of a tool's definition, in the field of a name, with its texts of ``TOOL_TEXT_FIELDS`` changed."""
    if isinstance(value, dict):
        return {inner_name: _changed_tool(inner, change, inner_name) for inner_name, inner in value.items()}
    if isinstance(value, list):
        return [_changed_tool(inner, change) for inner in value]
    return change(TOOLS, value) if isinstance(value, str) and name in TOOL_TEXT_FIELDS else value


def _without_surrogates(label: str, text: str) -> str:
    """Returns the text unchanged; raises AttnvizError if it has a surrogate, which UTF-8 cannot encode."""
    refuse_surrogates(text)
    return text
