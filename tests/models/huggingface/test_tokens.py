"""Tokens of a model's tokenizer: places without offsets, answers of broken bytes, and the marks of a chat."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.grouped import Units
from attnviz.models.huggingface.chat import tokenize_example, with_answer
from attnviz.models.huggingface.folder import VOCABULARIES
from attnviz.models.huggingface.replay import answer_tokens
from attnviz.models.huggingface.sound_reader import text_ids
from attnviz.models.huggingface.tokens import (
    special_mask,
    token_types,
    tokenize_text,
    tokenize_windows,
    tokens_of_ids,
    with_generated,
)
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.conversation import Conversation
from attnviz.text.server_answer import ServerAnswer
from attnviz.text.tokens import tokenize
from tests.models.huggingface.chats import STYLES, chat_tokenizer
from tests.text.made_tokenizers import MADE, TEXTS, made_tokenizer

pytestmark = pytest.mark.slow


@cache
def tokenizer_of(name: str) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made_tokenizer(name))  # type: ignore[no-untyped-call]


def without_offsets(folder: Path, kind: str) -> Any:
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["the", "cat", "likes", ".", *letters, *(f"##{letter}" for letter in letters)]
    if kind == "ProphetNet":
        (folder / "prophetnet.tokenizer").write_text(
            "\n".join(["[PAD]", "[X_SEP]", "[SEP]", "[CLS]", "[MASK]", "[UNK]", *words]) + "\n"
        )
        return transformers.ProphetNetTokenizer(str(folder / "prophetnet.tokenizer"))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    options: Any = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
    return transformers.BertJapaneseTokenizer(str(folder / "vocab.txt"), **options)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "read",
    [
        tokenize_text,
        lambda tokenizer, text: [token_types(tokenizer, text[:8], text[8:])],
        lambda tokenizer, text: tokenize_windows(tokenizer, [text[:8], text[8:]], 16, None),
        text_ids,
        lambda tokenizer, text: tokenize(text),
    ],
    ids=["a text", "a pair", "windows", "the words of a sound", "a seeded model"],
)
def test_text_whose_tokens_take_more_memory_than_is_free_is_refused(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Any, str], Any]
) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 100_000)
    tokenizer = tokenizer_of(next(iter(MADE)))
    assert read(tokenizer, "the cat sat on a mat")
    with pytest.raises(
        AttnvizError, match=r"tokens of 8000 characters would take .* of memory .*; give a part of them"
    ):
        read(tokenizer, "the cat " * 1000)


@pytest.mark.parametrize("kind", ["ProphetNet", "BertJapanese"])
def test_places_without_offsets_are_those_of_a_tokenizer_with_offsets(tmp_path: Path, kind: str) -> None:
    text = "X likes the kettle . Ünder  the\ncat 😀 taxes"
    tokens = tokenize_text(without_offsets(tmp_path, kind), text)
    words = Units.of(tokens, "words", special=False)
    assert words.labels == tuple(text.split())
    assert any((tmp_path / name).exists() for name in ("prophetnet.tokenizer", "vocab.txt"))
    assert any(Path("prophetnet.tokenizer").match(pattern) for pattern in VOCABULARIES)


@pytest.mark.parametrize("name", MADE)
@given(text=TEXTS)
@example(text=" แมวนั่งอยู่แมวนั่งอยู่ แมวนั่งอยู่")  # unknown, and then a word that it ends with
def test_words_of_decoded_ids_are_those_of_the_offsets(name: str, text: str) -> None:
    unknown = next((token for token in ("<unk>", "[UNK]") if made_tokenizer(name).token_to_id(token) is not None), None)
    tokenizer = transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=made_tokenizer(name), unk_token=unknown
    )
    assume(made_tokenizer(name).encode(text).ids)
    tokens = tokenize_text(tokenizer, text)
    assume("\u3000" not in text and "\u2028" not in text)  # an unknown token may be such a blank, which nothing shows
    found = tokens_of_ids(tokenizer, text, tokens.ids.tolist())
    is_told_apart = np.ones(len(tokens), dtype=bool)
    if name.startswith("words"):  # unknown tokens between two known ones share one place, and so one word
        _, numbers, counts = np.unique(found.places, axis=0, return_inverse=True, return_counts=True)
        is_told_apart = (counts[numbers.ravel()] == 1) | found.special
    assert found.words[is_told_apart].tolist() == tokens.words[is_told_apart].tolist()


def test_private_characters_that_are_special_tokens_are_named_by_their_role() -> None:
    tokens = tokenize_text(transformers.CanineTokenizer(), "a 😀")  # type: ignore[no-untyped-call]
    assert tokens.labels == ("[CLS]", "a", "␣", "😀", "[SEP]")
    assert tokens.special.tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("name", ["bytes", "bytes, trimmed", "pieces, as they are", "pieces, first after a space"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_answer_is_decoded_by_itself(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(name)
    prompt = data.draw(st.sampled_from(["Emoji 🫨", "x", "猫は", "a 👩", "the\n"]))
    answer = data.draw(
        st.lists(st.sampled_from(["🫨", "🫨🫨", " cat", "é", "猫", " ok.", "\n"]), min_size=1).map("".join)
    )
    prompt_tokens = tokenize_text(tokenizer, prompt)
    ids, before = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f"x{answer}", "x"))
    if ids[: len(before)] != before:
        return  # the answer's first letters were joined to the x
    ids = ids[len(before) :]
    tokens = with_generated(tokenizer, prompt_tokens, ids)
    assert tokens.text == prompt + answer
    covered = np.zeros(len(tokens.text), dtype=bool)
    for start, stop in tokens.offsets.tolist():
        covered[start:stop] = True
    assert covered[len(prompt) :].all()
    for count in range(1, len(ids)):  # an answer that is cut inside a character changes nothing before it
        cut = with_generated(tokenizer, prompt_tokens, ids[:count])
        assert (prompt + answer).startswith(cut.text.rstrip("\ufffd"))


def test_a_broken_byte_leaves_the_token_after_it_whole() -> None:
    tokenizer = tokenizer_of("pieces, as they are")
    broken = tokenizer.convert_tokens_to_ids("<0x9F>")
    ids = tokenizer("cat 🫨", add_special_tokens=False)["input_ids"]
    tokens = with_generated(tokenizer, tokenize_text(tokenizer, "x"), [broken, *ids, broken])
    assert tokens.text == "x\ufffdcat 🫨\ufffd"


def conversation_example(messages: list[tuple[str, str]]) -> Example:
    chat = Conversation(tuple({"role": role, "content": content} for role, content in messages))
    return Example.of_messages(chat, ModelSettings())


@pytest.mark.parametrize("style", STYLES)
def test_the_marks_of_a_chat_are_special_and_in_no_word_or_sentence(style: str) -> None:
    tokenizer = chat_tokenizer(style)
    messages = [("user", "Is it so? Yes."), ("assistant", "No.\r\n\r\nIt is"), ("user", "Who was Curie?")]
    example = conversation_example(messages)
    prompt, _ = tokenize_example(tokenizer, example)
    answer_ids = tokenizer(" A cat. It", add_special_tokens=False)["input_ids"]
    tokens = with_answer(with_generated(tokenizer, prompt, [*answer_ids, tokenizer.eos_token_id]), len(prompt), example)
    contents = [*(content for _, content in messages), "A cat. It"]
    sentences = ("Is it so?", "Yes.", "No.", "It is", "Who was Curie?", "A cat.", "It")
    lines = ("Is it so? Yes.", "No.", "It is", "Who was Curie?", "A cat. It")
    for by, expected in {
        "words": tuple(" ".join(contents).split()),
        "sentences": sentences,
        "lines": lines,
        "paragraphs": lines,
    }.items():
        units = Units.of(tokens, by)
        assert tuple(label for label in units.labels if label != "marks") == expected
        assert Units.of(tokens, by, special=False).labels == expected
        assert min(units.numbers.tolist()) >= 0
    replayed = answer_tokens(
        tokenizer, ServerAnswer(tuple(prompt.ids.tolist()), tuple(tokens.ids[len(prompt) :].tolist()))
    )
    assert replayed.special.tolist() == tokens.special.tolist()
    assert prompt.special.any()


def test_a_token_for_unknown_text_is_not_special(tmp_path: Path) -> None:
    tokenizer = without_offsets(tmp_path, "BertJapanese")
    ids = tokenizer("the 😀")["input_ids"]
    assert special_mask(tokenizer, ids).tolist() == [True, False, False, True]
