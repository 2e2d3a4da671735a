"""Units of text, over tokenizers as real ones are made, against splits of the text that know no tokens."""

import re

import numpy as np
import pytest
from hypothesis import given, settings

from attnviz.base.bounded import run_bounded
from attnviz.maps.grouped import Units
from attnviz.text.groups import unit_starts
from attnviz.text.tokens import Tokens, tokenize, tokens_of_encoding, visible_label
from tests.text.made_tokenizers import MADE, TEXTS, made_tokenizer

Spans = list[tuple[int, int]]
ENDS, WIDE_ENDS, CLOSING = ".!?…؟।", "。！？", "\"'”’)]」』»"


def lines_of(text: str) -> Spans:
    starts = np.cumsum([0, *map(len, text.splitlines(keepends=True))]).tolist()
    return [(start, start + len(line)) for start, line in zip(starts, text.splitlines(), strict=False)]


def paragraphs_of(text: str) -> Spans:
    spans: Spans = []
    ends_paragraph = True
    for start, stop in lines_of(text):
        if text[start:stop].strip():
            spans = [*spans, (start, stop)] if ends_paragraph else [*spans[:-1], (spans[-1][0], stop)]
        ends_paragraph = not text[start:stop].strip()
    return spans


def sentences_of(text: str) -> Spans:
    """Sentences by hand: a line is read letter by letter."""
    spans: Spans = []
    for line_start, line_stop in lines_of(text):
        start = place = line_start
        while place < line_stop:
            marks = ENDS if text[place] in ENDS else WIDE_ENDS if text[place] in WIDE_ENDS else ""
            place += 1
            if not marks:
                continue
            while place < line_stop and text[place] in marks:
                place += 1
            end = place
            while end < line_stop and text[end] in CLOSING:
                end += 1
            if marks is WIDE_ENDS or text[end : end + 1].isspace():
                spans.append((start, end))
                start = place = end
        spans.append((start, line_stop))
    return spans


REFERENCES = {
    "words": lambda text: [match.span() for match in re.finditer(r"\S+", text)],
    "sentences": sentences_of,
    "lines": lines_of,
    "paragraphs": paragraphs_of,
}


def stripped_spans(text: str, spans: Spans) -> Spans:
    pieces = [
        (start + len(text[start:stop]) - len(text[start:stop].lstrip()), text[start:stop]) for start, stop in spans
    ]
    return [(start, start + len(piece.strip())) for start, piece in pieces if piece.strip()]


def tokens_of(name: str, text: str) -> Tokens:
    return tokens_of_encoding(text, made_tokenizer(name).encode(text))


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=20, deadline=None)
@given(text=TEXTS)
def test_units_are_those_of_a_split_of_the_text(name: str, text: str) -> None:
    tokens = tokens_of(name, text)
    spans = [(start, stop) for start, stop in tokens.offsets.tolist()]
    first = [next((place for place in range(*span) if not text[place].isspace()), None) for span in spans]
    for by, split in REFERENCES.items():
        reference = stripped_spans(text, split(text))
        units = Units.of(tokens, by)
        numbers = units.numbers.tolist()
        assert min(numbers) >= 0, "every token is in a unit"
        unit_of_start: dict[int, int] = {}
        for place, number in zip(first, numbers, strict=True):
            if place is not None:
                [span_number] = [index for index, (start, stop) in enumerate(reference) if start <= place < stop]
                assert unit_of_start.setdefault(span_number, number) == number
        assert len(set(unit_of_start.values())) == len(unit_of_start), "no unit holds two"
        special = set(units.numbers[tokens.special].tolist())
        assert set(numbers) - special == set(unit_of_start.values()), "no unit is blank"
        written = units.as_tokens().offsets.tolist()
        for span_number, number in unit_of_start.items():
            start, stop = reference[span_number]
            touching = [span for span in spans if span[0] < stop and span[1] > start]
            covers = {place for span in touching for place in range(*span)} >= set(range(start, stop)) - {
                place for place in range(start, stop) if text[place].isspace()
            }
            straddles = any(text[a:start].strip() or text[stop:b].strip() for a, b in touching if a < start or b > stop)
            if covers and not straddles:
                unit_start, unit_stop = written[number]
                assert text[unit_start:unit_stop].strip() == text[start:stop], (by, tokens.labels)
                if by == "words":
                    assert units.labels[number] == visible_label(text[start:stop])


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=10, deadline=None)
@given(text=TEXTS)
def test_no_label_shows_a_sign_of_the_vocabulary(name: str, text: str) -> None:
    assert not set("".join(tokens_of(name, text).labels)) & set("▁ĠĊĉč")


@pytest.mark.parametrize(
    ("by", "text", "expected"),
    [
        ("sentences", "The cat sat. It ran.", ("The cat sat.", "It ran.")),
        ("sentences", "猫は座った。犬が走った。「はい。」と", ("猫は座った。", "犬が走った。", "「はい。」", "と")),
        ("sentences", "Title\r\n\r\nText", ("Title", "Text")),
        ("sentences", "Title\n \nText", ("Title", "Text")),
        ("sentences", "He said “No.” Then 3.14 e.g.x", ("He said “No.”", "Then 3.14 e.g.x")),
        ("paragraphs", "A b\r\n\r\nC d\r\ne", ("A b", "C d e")),
        ("lines", "a\r\n  b\rc\u2028d\n\n", ("a", "b", "c", "d")),
        ("words", " 12 cats\n", ("12", "cats")),
        (r"\s+b", "a\n\n b", ("a", "b")),
    ],
)
@pytest.mark.parametrize("tokenizer", ["char", "byte"])
def test_units_begin_at_visible_characters(by: str, text: str, expected: tuple[str, ...], tokenizer: str) -> None:
    assert Units.of(tokenize(text, tokenizer), by).labels == expected


def test_indentation_is_of_its_own_line_where_offsets_are_trimmed() -> None:
    tokens = tokens_of("bytes, trimmed", "if x:\n        y")
    assert "".join(tokens.labels) == "if␣x:⏎␣␣␣␣␣␣␣␣y"
    [before, indented] = Units.of(tokens, "lines").sizes.tolist()
    assert "".join(tokens.labels[:before]) == "if␣x:⏎␣␣"  # its last token begins with the line end
    assert "".join(tokens.labels[-indented:]) == "␣␣␣␣␣␣y"


def test_a_window_of_a_text_keeps_the_places_of_its_first_blanks() -> None:
    text = "x y" + " " * 12 + "z"
    encoding = made_tokenizer("bytes, trimmed").encode(text)
    whole = tokens_of_encoding(text, encoding)
    encoding.truncate(3)
    windows = [encoding, *encoding.overflowing]
    places = [tokens_of_encoding(text, window).offsets.tolist() for window in windows]
    assert [place for window in places for place in window][-1] == whole.offsets.tolist()[-1]
    assert all(text[start:stop].isspace() for start, stop in places[1][:1])
    assert places[1][0][0] >= 3


def test_a_space_that_the_tokenizer_put_before_a_word_is_no_part_of_it() -> None:
    labels = tokens_of("pieces, always after a space", "12 cats").labels
    assert not any("/" in label for label in labels), labels


def test_long_runs_of_marks_are_read_in_linear_time() -> None:
    runs = [f".{unit * 100_000}x" for unit in (".", "。", ".'", "'", "\n", "\n ", "\r\n", "!? ")]
    run_bounded(lambda: str([len(unit_starts(run, by)) for run in runs for by in REFERENCES]), "the search")
