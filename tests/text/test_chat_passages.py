"""Passages of a chat: documents, parts of messages and the question, told apart and put in the reverse order.

They are read in the forms of several servers; what is no text is refused in a line.
"""

from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.conversation import Conversation
from attnviz.text.passages import ContentPart, content_parts, read_document

TEXTS = ["the king lives here", "my bike is red", "which is red?"]
PARTS: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": text} for text in TEXTS]}
DOCUMENTS: tuple[Any, ...] = ({"title": "king", "text": TEXTS[0]}, TEXTS[1], {"title": "king", "text": "snow"})


def passages(chat: Conversation) -> dict[str, str]:
    """The text of each passage, by its label."""
    texts: dict[str, str] = {}

    def collect(label: str, text: str) -> str:
        texts[label] = texts.get(label, "") + text
        return text

    chat.changed(collect)
    return {each.label: texts[each.turn][each.start : each.stop] for each in chat.passages}


def test_parts_of_a_message_are_passages_and_the_last_is_the_question() -> None:
    chat = Conversation((PARTS,))
    assert passages(chat) == {"1.1 user": TEXTS[0], "1.2 user": TEXTS[1], "question": TEXTS[2]}
    assert chat.turns() == {"1 user": "\n".join(TEXTS)}


def test_documents_stand_beside_the_messages_and_equal_titles_are_told_apart() -> None:
    chat = Conversation(({"role": "user", "content": "which is red?"},), documents=DOCUMENTS)
    assert passages(chat) == {
        "king": f"king{TEXTS[0]}",
        "2 document": TEXTS[1],
        "king (2)": "kingsnow",
        "question": "which is red?",
    }
    assert "documents" in chat.turns()


def test_a_tool_result_of_several_parts_has_passages() -> None:
    result = {"role": "tool", "content": PARTS["content"][:2]}
    chat = Conversation(({"role": "user", "content": "which is red?"}, result))
    assert list(passages(chat)) == ["question", "2.1 tool result", "2.2 tool result"]


def test_a_chat_of_whole_messages_has_no_passages() -> None:
    answer = {"role": "assistant", "content": PARTS["content"]}
    assert Conversation(({"role": "user", "content": "which is red?"}, answer)).passages == ()


def test_another_question_keeps_the_passages() -> None:
    changed = Conversation((PARTS,), documents=DOCUMENTS).with_question("N/A")
    assert changed is not None
    assert passages(changed) == {
        **passages(Conversation((PARTS,), documents=DOCUMENTS)),
        "question": "N/A",
    }
    whole = Conversation(({"role": "user", "content": "which?"}, {"role": "assistant", "content": "b"}))
    assert whole.with_question("N/A") == Conversation(({"role": "user", "content": "N/A"}, whole.messages[1]))


def test_passages_in_the_reverse_order_keep_their_labels_and_the_question_its_place() -> None:
    chat = Conversation((PARTS,), documents=DOCUMENTS)
    reversed_chat = chat.with_passages_reversed()
    assert reversed_chat is not None
    expected = passages(chat)
    assert passages(reversed_chat) == expected
    order = ["king (2)", "2 document", "king", "1.2 user", "1.1 user", "question"]
    assert [each.label for each in reversed_chat.passages] == order
    assert reversed_chat.messages[0]["content"] == "\n".join([TEXTS[1], TEXTS[0], TEXTS[2]])
    assert Conversation((PARTS,)).with_passages_reversed() is not None
    assert Conversation(({"role": "user", "content": PARTS["content"][1:]},)).with_passages_reversed() is None


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
