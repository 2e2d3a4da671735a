"""Reads the content of messages: a text, or several parts, of which each text or document is a passage."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable

TEXT_TYPES = ("text", "input_text", "output_text")  # of parts, in the interfaces of servers
DOCUMENT = "document"
NESTED_FIELDS = ("document", "source", "data")  # of a document, which may hold its title and its text
TITLE_FIELDS = ("title", "name", "id")
DOCUMENT_TEXT_FIELDS = ("text", "data", "snippet", "content", "contents")
MAX_KIND_CHARACTERS = 40
SEPARATOR = "\n"  # between the texts of a message


class ContentPart(NamedTuple):
    """A part of a message's content, or a document beside the messages.

    Attributes:
        text: its text.
        title: the title of a document, which a chat template may write; "" for a text, or if it has none.
        label: the name of a document in pictures: its ``label``, else its title; "" without either.
        is_document: True for a document, False for a text of the message itself.
    """

    text: str
    title: str = ""
    label: str = ""
    is_document: bool = False


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
