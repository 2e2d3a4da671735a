import json
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from attnviz.base.errors import AttnvizError
from attnviz.text.tokens import Tokens, tokenize, tokens_of_encoding, visible_label

HOSTILE = "\x1b[31m [red] $x$ \t NUL\x00 \u202eabc e\u0301 👨‍👩‍👧 日本 </script>"


@pytest.mark.parametrize(
    ("tokenizer", "text", "labels", "ids"),
    [
        (
            "word",
            "Life is short, eat dessert first",
            ("Life", "is", "short", ",", "eat", "dessert", "first"),
            [1, 5, 6, 0, 3, 2, 4],  # in sorted order
        ),
        ("word", "the cat the", ("the", "cat", "the"), [1, 0, 1]),
        ("char", "e\u0301a 👨‍👩‍👧", ("e\u0301", "a", "␣", "👨‍👩‍👧"), [2, 1, 0, 3]),
        ("char", "aa", ("a", "a"), [0, 0]),  # equal neighbours are no pieces of one another
        ("byte", "a😀", ("a", "😀 1/4", "😀 2/4", "😀 3/4", "😀 4/4"), list("a😀".encode())),
    ],
)
def test_a_text_is_split_into_words_and_marks_characters_or_bytes(
    tokenizer: str, text: str, labels: tuple[str, ...], ids: list[int]
) -> None:
    tokens = tokenize(text, tokenizer)
    assert (tokens.labels, tokens.ids.tolist()) == (labels, ids)


def test_words_are_counted_at_white_space() -> None:
    assert tokenize("it's so, so").words.tolist() == [0, 0, 0, 1, 1, 2]


def test_offsets_give_each_token_back_from_the_text() -> None:
    text = "Grüße, 世界!  twice"
    tokens = tokenize(text)
    assert [text[start:stop] for start, stop in tokens.offsets] == ["Grüße", ",", "世界", "!", "twice"]


def test_a_tokenizer_file_neither_cuts_nor_pads_and_labels_come_from_the_text(tmp_path: Path) -> None:
    tokens = tokenize("one unknown three", word_tokenizer(tmp_path))
    assert tokens.labels == ("[CLS]", "one", "unknown", "three")
    assert tokens.special.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("text", "tokenizer", "message"),
    [
        ("", "word", "no tokens in"),
        ("  \n\t ", "word", "no tokens in"),
        ("Life", "words", "word, char, byte or the path"),
        ("Life", "tokenizer.json", r"cannot read .* as a tokenizer\.json"),
        ("caf\udce9", "word", "not valid UTF-8"),
    ],
)
def test_refuses_texts_and_tokenizers_that_give_no_tokens(
    in_folder: Path, text: str, tokenizer: str, message: str
) -> None:
    (in_folder / "tokenizer.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(AttnvizError, match=message):
        tokenize(text, tokenizer)


@pytest.mark.parametrize(
    ("piece", "label"),
    [
        (" the", "␣the"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x00", "\\x00"),
        ("\u202eabc", "\\u202eabc"),
        ("\u0301", "◌\u0301"),
        ("\xa0", "\\xa0"),
        ("[red]", "[red]"),
        ("$x$", "$x$"),
        ("👨‍👩‍👧", "👨‍👩‍👧"),
        ("\u200d", "\\u200d"),
    ],
)
def test_label_shows_what_the_piece_holds(piece: str, label: str) -> None:
    assert visible_label(piece) == label


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_no_label_holds_a_character_that_a_terminal_obeys(text: str) -> None:
    for name in ("char", "byte"):
        labels = tokenize(text, name).labels
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for label in labels for character in label)
        assert not any(character in "\u202a\u202b\u202d\u202e\u2066" for label in labels for character in label)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_characters_joined_are_the_text(text: str) -> None:
    tokens = tokenize(text, "char")
    assert "".join(text[start:stop] for start, stop in tokens.offsets) == text


@given(st.text(string.ascii_letters + " ,.", min_size=1).filter(lambda text: text.strip()))
def test_every_word_token_belongs_to_the_word_at_its_place(text: str) -> None:
    tokens = tokenize(text)
    words = text.split()
    assert all(label in words[word] for label, word in zip(tokens.labels, tokens.words.tolist(), strict=True))


def test_arrays_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        tokenize(HOSTILE).ids[0] = 7


def test_refuses_arrays_of_another_length() -> None:
    one = Tokens.numbered(1)
    with pytest.raises(AttnvizError, match=r"2 labels need ids of shape \(2,\), not \(1,\)"):
        replace(one, labels=("a", "b"))


def word_tokenizer(folder: Path) -> str:
    """A file of a tokenizer that cuts texts to two tokens and pads them to nine."""
    vocabulary = {"[CLS]": 0, "[UNK]": 1, "one": 2, "two": 3, "three": 4, "[PAD]": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9, pad_id=5, pad_token="[PAD]")
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


@pytest.mark.parametrize(
    ("tokenizer", "piece", "count"), [("word", "a ", 2_000_001), ("byte", "é", 2_000_001), ("x.json", "a", 8_000_001)]
)
def test_a_text_of_too_many_tokens_is_refused_before_they_are_made(tokenizer: str, piece: str, count: int) -> None:
    with pytest.raises(AttnvizError, match=r"the text has (more than 2000000 tokens|8000001 characters)"):
        tokenize(piece * count, tokenizer)


def test_a_long_token_has_a_short_label_and_its_whole_place() -> None:
    tokens = tokenize("a" * 100_000 + " b" + "\u0301" * 5000)
    assert [len(label) for label in tokens.labels] == [199, 199]
    assert tokens.offsets.tolist() == [[0, 100_000], [100_001, 105_002]]
    assert tokens.labels[0] == "a" * 99 + "…" + "a" * 99
    assert tokenize("a" * 200).labels == ("a" * 200,)


def test_tokens_of_a_pair_have_their_places_in_both_texts() -> None:
    tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "<s>": 2}, unk_token="one"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A:0 $B:1", special_tokens=[("<s>", 2)]
    )
    tokens = tokens_of_encoding("one two", tokenizer.encode("one two", "two one"), "two one")
    whole = "one two\ntwo one"
    assert [whole[start:stop] for start, stop in tokens.places[1:].tolist()] == ["one", "two", "two", "one"]
    assert [start for start, _ in tokens.places[1:].tolist()] == [0, 4, 8, 12]


def test_padding_at_both_ends_is_left_out_of_a_span_unless_there_is_nothing_else() -> None:
    tokens = tokenize("a b").padded(4)
    assert tokens.unpadded == slice(0, 2)
    assert tokens.take(np.array([2, 3])).unpadded == slice(0, 2)
