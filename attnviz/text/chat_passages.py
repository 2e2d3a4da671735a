"""Finds the passages of a chat: its documents, the parts of its messages, and the question."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnviz.base.printable import printable_line
from attnviz.text.message_parts import DOCUMENT, SEPARATOR, ContentPart, content_parts
from attnviz.text.named_groups import QUESTION, numbered_label

TURN_KINDS = {  # the kind of turn of the content of a message, by its role
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool result",
}
DOCUMENTS = "documents"  # the turn of documents beside the messages


class TurnPart(NamedTuple):
    """A passage of a chat: a part of a turn, or all of it.

    Attributes:
        turn: the label of the turn.
        label: the label of the passage; ``question`` for the question.
        start: the index of its first character in the text of the turn.
        stop: the index of the character after its last one.
    """

    turn: str
    label: str
    start: int
    stop: int


def question_number(messages: tuple[Mapping[str, Any], ...]) -> int | None:
    """Returns the number, from 1, of the user's last message; ``None`` if the user wrote none."""
    asked = [number for number, message in enumerate(messages, 1) if message.get("role") == "user"]
    return asked[-1] if asked else None


def _question_part(parts: list[ContentPart]) -> int:
    """Returns the index of the last part that is no document, which is the question; of the last part without one."""
    texts = [place for place, part in enumerate(parts) if not part.is_document]
    return texts[-1] if texts else len(parts) - 1


def chat_passages(messages: tuple[Mapping[str, Any], ...], documents: list[ContentPart]) -> tuple[TurnPart, ...]:
    """Returns the documents, the parts of messages that have several parts, and the question; empty without any.

    Args:
        messages: the messages, whose content may be a list of parts.
        documents: the documents beside the messages.
    """
    labels: list[str] = []
    passages = _document_passages(documents, labels)
    asked = question_number(messages)
    for number, message in enumerate(messages, 1):
        passages += _message_passages(message, number, number == asked, labels)
    has_passages = any(passage.label != QUESTION for passage in passages)
    return tuple(passages) if has_passages else ()


def _message_passages(message: Mapping[str, Any], number: int, is_asked: bool, labels: list[str]) -> list[TurnPart]:
    """Returns the parts of a message as passages, if it has several or a document, and the question if it has that.

    Args:
        message: the message.
        number: the number of the message.
        is_asked: True if its last text is the question.
        labels: the labels that other passages have, to which those of the parts are added.
    """
    parts, kind = content_parts(message.get("content"), number), TURN_KINDS[message["role"]]
    question_part = _question_part(parts) if is_asked else None
    has_passages = message["role"] != "assistant" and (len(parts) > 1 or parts[0].is_document)
    passages, start = [], 0
    for place, part in enumerate(parts):
        is_question = place == question_part and not part.is_document
        if has_passages or is_question:
            label = QUESTION if is_question else _added_label(part.label or f"{number}.{place + 1} {kind}", labels)
            passages.append(TurnPart(f"{number} {kind}", label, start, start + len(part.text)))
        start += len(part.text) + len(SEPARATOR)
    return passages


def _document_passages(documents: list[ContentPart], labels: list[str]) -> list[TurnPart]:
    """Returns the passages of documents, whose titles and texts follow each other in one turn.

    Args:
        documents: the documents.
        labels: the labels that other passages have, to which those of the documents are added.
    """
    passages, start = [], 0
    for number, document in enumerate(documents, 1):
        stop = start + len(document.title) + len(document.text)
        passages.append(TurnPart(DOCUMENTS, _added_label(document.label or f"{number} document", labels), start, stop))
        start = stop
    return passages


def _added_label(label: str, labels: list[str]) -> str:
    """Returns a label on one line that neither another passage nor the question has, and adds it to the labels."""
    name = numbered_label(printable_line(label), (*labels, QUESTION))
    labels.append(name)
    return name


def with_question_part(message: Mapping[str, Any], number: int, question: str) -> dict[str, Any]:
    """Returns message ``number`` with another text as its question: its last text part, or all of its content."""
    content = message.get("content")
    parts = list(content) if isinstance(content, list) else [None]
    parts[_question_part(content_parts(content, number))] = {"type": "text", "text": question}
    return {**message, "content": parts}


def with_parts_reversed(message: Mapping[str, Any], number: int, passages: Sequence[TurnPart]) -> Mapping[str, Any]:
    """Returns a message with its passages in the reverse order; each keeps its label.

    Args:
        message: the message; one of fewer than two parts is returned unchanged.
        number: the number of the message.
        passages: the passages of the chat.
    """
    turn = f"{number} {TURN_KINDS[message['role']]}"
    labels = [passage.label for passage in passages if passage.turn == turn]
    parts = content_parts(message.get("content"), number)
    if len(labels) != len(parts) or len(parts) < 2:
        return message
    titled: list[dict[str, Any]] = [
        {"type": "text", "text": part.text}
        if label == QUESTION
        else {"type": DOCUMENT, "label": label, "text": part.text}
        for label, part in zip(labels, parts, strict=True)
    ]
    places = [place for place, label in enumerate(labels) if label != QUESTION]
    reversed_parts = list(titled)
    for place, mirrored_place in zip(places, reversed(places), strict=True):
        reversed_parts[place] = titled[mirrored_place]
    return {**message, "content": reversed_parts}
