"""Pieces of a text find their places by alignment, whatever a tokenizer changed or did not know."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.text.piece_places import TextPiece, piece_places
from tests.text.made_tokenizers import TEXTS


def places(text: str, *pieces: str | None) -> list[str]:
    spans = piece_places(text, [TextPiece(piece) for piece in pieces])
    return [text[start:stop] for start, stop in spans]


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("X likes tax", ["x", " likes", " tax"], ["X", "likes", "tax"]),
        ("a the tax", ["a", None, " tax"], ["a", "the", "tax"]),
        ("my rattle a day", ["my", None, " a", " day"], ["my", "rattle", "a", "day"]),
        ("the odd pair sat", ["the", None, None, " sat"], ["the", "odd", "pair", "sat"]),
        ("one two three sat", [None, None, " sat"], ["one two three", "one two three", "sat"]),
        ("Café naïve", ["cafe", " naive"], ["Café", "naïve"]),
        ("a… ﬁn", ["a", "...", " fi", "n"], ["a", "…", "ﬁ", "n"]),
        ("ＡＢ x", ["ab", " x"], ["ＡＢ", "x"]),
        ("a b", ["a", " ", "b", "zzz"], ["a", " ", "b", ""]),
        ("แมวนั่งอยู่ The cat", ["แมวนงอย", None, " cat"], ["แมวนั่งอย", "The", "cat"]),
        (" แมวนั่งอยู่แมวนั่งอยู่ แมวนั่งอยู่", [None, " แมวนงอย"], ["แมวนั่งอยู่แมวนั่งอยู่", "แมวนั่งอย"]),
        ("我們走吧！好", ["我", None, " 走", " 吧", " !", " 好"], ["我", "們", "走", "吧", "！", "好"]),
        ("猫は座った。", [" 猫", " は", None, " た", " 。"], ["猫", "は", "座っ", "た", "。"]),
        ("b x at the end", [None, " at", " the", " end", "x"], ["b x", "at", "the", "end", ""]),
    ],
)
def test_pieces_are_aligned_in_order(text: str, pieces: list[str | None], expected: list[str]) -> None:
    assert places(text, *pieces) == expected


def test_a_special_token_has_a_place_only_where_the_text_has_it() -> None:
    text = "a [MASK] b"
    pieces = [
        TextPiece("[CLS]", True),
        TextPiece("a"),
        TextPiece("[MASK]", True),
        TextPiece(" b"),
        TextPiece("[SEP]", True),
    ]
    assert [text[start:stop] for start, stop in piece_places(text, pieces)] == ["", "a", "[MASK]", "b", ""]


@given(text=TEXTS, lower=st.booleans(), accents=st.booleans(), unknown=st.sets(st.integers(0, 40), max_size=3))
def test_words_keep_their_places_whatever_case_accents_and_unknown_words(
    text: str, lower: bool, accents: bool, unknown: set[int]
) -> None:
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    pieces = [text[start:stop] for start, stop in spans]
    if lower:
        pieces = [piece.lower() for piece in pieces]
    if not accents:
        decomposed = [unicodedata.normalize("NFD", piece) for piece in pieces]
        pieces = ["".join(letter for letter in piece if unicodedata.category(letter) != "Mn") for piece in decomposed]
    for index, piece in enumerate(pieces):
        before = pieces[max((known for known in range(index) if known not in unknown), default=-1) + 1 : index]
        if unknown and piece.casefold() in "".join(before).casefold():
            return  # a word that stands in the unknown ones before it may be that one, too
    found = piece_places(
        text, [TextPiece(None if index in unknown else f" {piece}") for index, piece in enumerate(pieces)]
    )
    for index, (span, expected) in enumerate(zip(found, spans, strict=True)):
        if index not in unknown:
            assert span[0] == expected[0]
        elif {index - 1, index + 1}.isdisjoint(unknown):
            assert span == expected
