"""Finds passages: the texts of files before a question, and the documents and parts of messages in a chat.

The content of a message is a text, or several parts, of which each text or document is a passage.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable, printable_line
from attnviz.base.reading import matching_files, read_json, read_text
from attnviz.media.text import refuse_surrogates
from attnviz.text.groups import Groups
from attnviz.text.named_groups import QUESTION, numbered_label
from attnviz.text.tokens import Tokens

SEPARATOR = "\n\n"
MAX_PASSAGES = 1_000


class Passage(NamedTuple):
    """A passage, or the question, as a part of the whole text."""

    label: str  # the name of the file or document, or ``question``
    start: int  # the index of its first character in the whole text
    stop: int  # the index of the character after its last one


def read_passages(pattern: str, question: str) -> tuple[str, tuple[Passage, ...]]:
    """Returns the texts of files and then the question as one text, and the place of each of them in it.

    Files are ordered by their paths; a file that shares its name with another is labelled by its path. A JSON
    file holds a list of texts, or of objects with ``title`` and ``text``, each of which is a passage.
    """
    option_text = option("passages", pattern)
    files = matching_files(pattern, MAX_PASSAGES, option_text)
    if not files:
        raise AttnvizError(f"{option_text} matches no files; give 1 to {MAX_PASSAGES}, such as 'docs/*.txt'")
    texts: dict[str, str] = {}
    names = [file.name for file in files]
    for file in files:
        name = printable_line(file.name if names.count(file.name) == 1 else str(file))
        if file.suffix.lower() != ".json":
            texts_of_file = [(name, read_text(file).strip())]
            if not texts_of_file[0][1]:
                raise AttnvizError(f"{str(file)!r} of {option_text} is empty; give files with a text")
        else:
            entries = read_json(file)
            if not isinstance(entries, list) or not entries:
                raise AttnvizError(f'{str(file)!r} of {option_text} is not a list of texts; write ["…", "…"]')
            _refuse_many(len(entries), option_text)
            texts_of_file, stem = [], name.removesuffix(file.suffix)
            for number, entry in enumerate(entries, start=1):
                document = read_document(entry, f"text {number} of {str(file)!r}")
                refuse_surrogates(document.text)
                label = printable_line(document.label) or f"{number} {stem}"
                texts_of_file.append((label, document.text.strip()))
        for label, text in texts_of_file:
            texts[numbered_label(label, texts.keys() | {QUESTION})] = text
            _refuse_many(len(texts), option_text)
    return placed_passages({**texts, QUESTION: question})


def _refuse_many(count: int, option_text: str) -> None:
    """Raises AttnvizError if there are more than `MAX_PASSAGES`."""
    if count > MAX_PASSAGES:
        raise AttnvizError(f"{option_text} holds {count} passages; give at most {MAX_PASSAGES}")


def placed_passages(texts: Mapping[str, str]) -> tuple[str, tuple[Passage, ...]]:
    """Returns one text, the given texts joined by blank lines, and the place of each text in it."""
    passages, start = [], 0
    for label, text in texts.items():
        passages.append(Passage(label, start, start + len(text)))
        start += len(text) + len(SEPARATOR)
    return SEPARATOR.join(texts.values()), tuple(passages)


def passage_groups(tokens: Tokens, passages: Sequence[Passage], start: int = 0) -> Groups:
    """Returns the passages as groups of tokens.

    A token is in the passage of its first visible character; a blank token is in the passage of its first character.
    A token is in no passage if it has no characters, or if this character is outside of all passages.
    """
    starts = np.array([passage.start + start for passage in passages])
    stops = np.array([passage.stop + start for passage in passages])
    pieces = [tokens.text[piece_start:piece_stop] for piece_start, piece_stop in tokens.offsets.tolist()]
    blanks_before = [len(piece) - len(piece.lstrip()) if piece.strip() else 0 for piece in pieces]
    first_characters = tokens.offsets[:, 0] + np.array(blanks_before, dtype=np.int64)
    numbers = np.searchsorted(starts, first_characters, side="right") - 1
    in_passage = (numbers >= 0) & (first_characters < stops[numbers]) & (first_characters < tokens.offsets[:, 1])
    return Groups(np.where(in_passage, numbers, -1).astype(np.int64), tuple(passage.label for passage in passages))


TEXT_TYPES = ("text", "input_text", "output_text")  # of parts, in the interfaces of servers
DOCUMENT = "document"
NESTED_FIELDS = ("document", "source", "data")  # of a document, which may hold its title and its text
TITLE_FIELDS = ("title", "name", "id")
DOCUMENT_TEXT_FIELDS = ("text", "data", "snippet", "content", "contents")
MAX_KIND_CHARACTERS = 40
MAX_PARTS = 1_000  # of a chat: documents, and parts of messages that are passages
PART_SEPARATOR = "\n"  # between the texts of a message
TURN_KINDS = {  # the kind of turn of the content of a message, by its role
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool result",
}
DOCUMENTS = "documents"  # the turn of documents beside the messages


class ContentPart(NamedTuple):
    """A part of a message's content, or a document beside the messages."""

    text: str  # its text
    title: str = ""  # the title of a document, which a chat template may write; "" for a text, or if it has none
    label: str = ""  # the name of a document in pictures: its ``label``, else its title; "" without either
    is_document: bool = False  # True for a document, False for a text of the message itself


def content_parts(content: Any, number: int) -> list[ContentPart]:
    """Returns the parts of a message's content; a string is one part, ``None`` and an empty list are an empty part."""
    text_part = {"type": "text", "text": "" if content is None else content}
    parts = content if isinstance(content, list) else [text_part]
    return [_read_part(part, number) for part in parts] or [ContentPart("")]


def read_document(value: Any, name: str) -> ContentPart:
    """Returns the title, the label and the text of a document, as servers take it: a string, or an object with a text.

    The innermost object with a title gives the title, and the innermost with a label the label; if none has a label,
    the title is the label.
    """
    document: Any = {"text": value} if isinstance(value, str) else value
    title = label = ""
    while isinstance(document, Mapping):
        if document.get("type") == "base64":
            kind = printable(str(document.get("media_type", "base64")))[:MAX_KIND_CHARACTERS]
            raise AttnvizError(f"{name} holds {kind!r}, and only text is read; give its text")
        title = next((str(document[field]) for field in TITLE_FIELDS if document.get(field)), title)
        label = str(document.get("label") or label)
        nested_objects = [document[field] for field in NESTED_FIELDS if isinstance(document.get(field), Mapping)]
        if not nested_objects:
            break
        document = nested_objects[0]
    texts = [document.get(field) for field in DOCUMENT_TEXT_FIELDS] if isinstance(document, Mapping) else []
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is None:
        raise AttnvizError(f'{name} has no text; write {{"title": "…", "text": "…"}}')
    return ContentPart(text, title, label or title, is_document=True)


def _read_part(part: Any, number: int) -> ContentPart:
    """Returns a part of a message's content: a text, or a document with its title and label."""
    fields = part if isinstance(part, dict) else {}
    kind = fields.get("type")
    if kind == DOCUMENT:
        return read_document(part, f"a document of message {number}")
    if kind in TEXT_TYPES and isinstance(fields.get("text"), str):
        return ContentPart(fields["text"])
    if isinstance(kind, str) and kind not in TEXT_TYPES:
        printable_kind = printable(kind)[:MAX_KIND_CHARACTERS]
        raise AttnvizError(f"message {number} holds {printable_kind!r}, and only text is read; give a text")
    value = printable(str(fields.get("text") if kind in TEXT_TYPES else part))[:MAX_KIND_CHARACTERS]
    raise AttnvizError(
        f'message {number} has {value!r} in place of a text; write "content": [{{"type": "text", "text": "…"}}]'
    )


class TurnPart(NamedTuple):
    """A passage of a chat: a part of a turn, or all of it."""

    turn: str  # the label of the turn
    label: str  # the label of the passage; ``question`` for the question
    start: int  # the index of its first character in the text of the turn
    stop: int  # the index of the character after its last one


def question_number(messages: tuple[Mapping[str, Any], ...]) -> int | None:
    """Returns the number, from 1, of the last message of the user; ``None`` if the user wrote none."""
    user_numbers = [number for number, message in enumerate(messages, 1) if message.get("role") == "user"]
    return user_numbers[-1] if user_numbers else None


def _question_part(parts: list[ContentPart]) -> int:
    """Returns the index of the last part that is not a document; of the last part if all are documents."""
    text_indices = [index for index, part in enumerate(parts) if not part.is_document]
    return text_indices[-1] if text_indices else len(parts) - 1


def chat_passages(messages: tuple[Mapping[str, Any], ...], documents: list[ContentPart]) -> tuple[TurnPart, ...]:
    """Returns the passages of a chat: documents, then the parts of messages, with the question among them.

    Besides the question, a message has passages only if it has several parts or is a document; one of the assistant
    has none. Returns an empty tuple if there is no passage besides the question.
    """
    labels = set[str]()
    passages, start = [], 0  # the titles and texts of documents form the text of one turn
    for number, document in enumerate(documents, 1):
        stop = start + len(document.title) + len(document.text)
        passages.append(TurnPart(DOCUMENTS, _added_label(document.label or f"{number} document", labels), start, stop))
        start = stop

    question_message = question_number(messages)
    for number, message in enumerate(messages, 1):
        parts = content_parts(message.get("content"), number)
        kind = TURN_KINDS[message["role"]]
        question_part = _question_part(parts) if number == question_message else None
        has_passages = message["role"] != "assistant" and (len(parts) > 1 or parts[0].is_document)
        start = 0  # of the part, in the joined text of the message
        for index, part in enumerate(parts):
            is_question = index == question_part and not part.is_document
            if has_passages or is_question:
                label = QUESTION if is_question else _added_label(part.label or f"{number}.{index + 1} {kind}", labels)
                passages.append(TurnPart(f"{number} {kind}", label, start, start + len(part.text)))
            start += len(part.text) + len(PART_SEPARATOR)
    has_passages = any(passage.label != QUESTION for passage in passages)
    return tuple(passages) if has_passages else ()


def _added_label(label: str, labels: set[str]) -> str:
    """Adds a label to ``labels`` and returns it: on one line, with a number if another passage has it."""
    if len(labels) >= MAX_PARTS:
        raise AttnvizError(f"the chat has more than {MAX_PARTS} passages; give at most {MAX_PARTS}")
    name = numbered_label(printable_line(label), labels | {QUESTION})
    labels.add(name)
    return name


def with_question_part(message: Mapping[str, Any], number: int, question: str) -> dict[str, Any]:
    """Returns a message with another question in place of its last part that is not a document.

    A content that is not a list is replaced as a whole, and so is the last part if all are documents.
    """
    content = message.get("content")
    parts = list(content) if isinstance(content, list) else [None]  # the single part is replaced below
    parts[_question_part(content_parts(content, number))] = {"type": "text", "text": question}
    return {**message, "content": parts}


def with_parts_reversed(message: Mapping[str, Any], number: int, passages: Sequence[TurnPart]) -> Mapping[str, Any]:
    """Returns a message with its passages in the reverse order; each keeps its label, and the question its place."""
    turn = f"{number} {TURN_KINDS[message['role']]}"
    labels = [passage.label for passage in passages if passage.turn == turn]
    parts = content_parts(message.get("content"), number)
    if len(labels) != len(parts) or len(parts) < 2:
        return message
    labelled_parts: list[dict[str, Any]] = [
        {"type": "text", "text": part.text}
        if label == QUESTION
        else {"type": DOCUMENT, "label": label, "text": part.text}
        for label, part in zip(labels, parts, strict=True)
    ]
    passage_indices = [index for index, label in enumerate(labels) if label != QUESTION]
    reversed_parts = list(labelled_parts)
    for index, mirrored_index in zip(passage_indices, reversed(passage_indices), strict=True):
        reversed_parts[index] = labelled_parts[mirrored_index]
    return {**message, "content": reversed_parts}
