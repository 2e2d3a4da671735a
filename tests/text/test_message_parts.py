"""Parts of messages and documents are read in the forms of several servers; what is no text is refused in a line."""

from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.message_parts import ContentPart, content_parts, read_document


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("snow falls", ("snow falls", "")),
        ({"title": "Snow", "text": "snow falls"}, ("snow falls", "Snow")),
        ({"id": "a", "data": {"title": "Snow", "snippet": "snow falls"}}, ("snow falls", "Snow")),
        ({"type": "document", "document": {"id": "a", "data": "snow falls"}}, ("snow falls", "a")),
        ({"type": "document", "source": {"type": "text", "data": "snow falls"}, "title": "S"}, ("snow falls", "S")),
    ],
)
def test_a_document_has_its_text_and_its_title(document: Any, expected: tuple[str, str]) -> None:
    found = read_document(document, "document 1")
    assert (found.text, found.title, found.is_document) == (*expected, True)


def test_parts_are_texts_and_documents() -> None:
    document = {"type": "document", "label": "b", "text": "snow"}
    assert content_parts([{"type": "input_text", "text": "how?"}, document], 2) == [
        ContentPart("how?"),
        ContentPart("snow", label="b", is_document=True),
    ]
    assert content_parts(None, 2) == content_parts([], 2) == [ContentPart("")]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "document", "title": "a"}, 'a document of message 2 has no text; write {"title": "…", "text": "…"}'),
        ({"type": "document", "text": {"a": 1}}, "a document of message 2 has no text"),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}},
            "a document of message 2 holds 'application/pdf', and only text is read; give its text",
        ),
        ({"type": "image_url\x1b[31m"}, r"message 2 holds 'image_url\\x1b[31m', and only text is read"),
        (
            {"type": "document", "source": {"type": "base64", "data": "JV"}},
            "a document of message 2 holds 'base64', and only text is read; give its text",
        ),
        ("snow", "message 2 has 'snow' in place of a text; write \"content\": ["),
        ("text", "message 2 has 'text' in place of a text"),
        ("document", "message 2 has 'document' in place of a text"),
        ({"type": "text"}, "message 2 has 'None' in place of a text"),
    ],
)
def test_other_parts_are_refused(part: Any, said: str) -> None:
    with pytest.raises(AttnvizError, match=r"\w") as refused:
        content_parts([part], 2)
    assert said in str(refused.value)
    assert "\x1b" not in str(refused.value)
