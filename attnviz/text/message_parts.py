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
    """Returns the parts of a message's content; a string is one part, and no content is an empty one.

    Args:
        content: the content, in JSON.
        number: the number of the message, for refusals.

    Raises:
        AttnvizError: if a part is not text, or a document has no text.
    """
    if not isinstance(content, list):
        content = [{"type": "text", "text": "" if content is None else content}]
    return [_read_part(part, number) for part in content] or [ContentPart("")]


def read_document(value: Any, name: str) -> ContentPart:
    """Returns the title, the label and the text of a document, as servers take it: a string, or an object with a text.

    Args:
        value: the document, in JSON; its title and text may be in ``document``, ``source`` or ``data``.
        name: the name of the document in refusals.

    Raises:
        AttnvizError: if the document has no text, or is not text.
    """
    if isinstance(value, str):
        value = {"text": value}
    title = label = ""
    while isinstance(value, Mapping):
        if value.get("type") == "base64":
            kind = printable(str(value.get("media_type")))[:MAX_KIND_CHARACTERS]
            raise AttnvizError(f"{name} holds {kind!r}, and only text is read; give its text")
        title = next((str(value[field]) for field in TITLE_FIELDS if value.get(field)), title)
        label = str(value.get("label") or label)
        nested_value = next((value[field] for field in NESTED_FIELDS if isinstance(value.get(field), Mapping)), None)
        if nested_value is None:
            break
        value = nested_value
    texts = [value.get(field) for field in DOCUMENT_TEXT_FIELDS] if isinstance(value, Mapping) else []
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is None:
        raise AttnvizError(f'{name} has no text; write {{"title": "…", "text": "…"}}')
    return ContentPart(text, title, label or title, is_document=True)


def _read_part(part: Any, number: int) -> ContentPart:
    """Returns a part of a message's content.

    Args:
        part: the part, in JSON.
        number: the number of the message, for refusals.

    Raises:
        AttnvizError: if it is neither a text nor a document with a text.
    """
    kind = part.get("type") if isinstance(part, dict) else part
    if kind == DOCUMENT:
        return read_document(part, f"a document of message {number}")
    if kind not in TEXT_TYPES or not isinstance(part.get("text"), str):
        printable_kind = printable(str(kind))[:MAX_KIND_CHARACTERS]
        raise AttnvizError(f"message {number} holds {printable_kind!r}, and only text is read; give a text")
    return ContentPart(part["text"])
