"""Groups by name: given by a tokenizer, or found in the text."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.grouped import Units, landmarks
from attnviz.text.groups import Groups
from attnviz.text.named_groups import labelled_matches, named_groups
from attnviz.text.tokens import Tokens, tokenize

TEXT = "Chapter 1\n  It was so. Ah\n\nChapter 2\nNo more."


def labels(by: str, text: str = TEXT, tokenizer: str = "word") -> tuple[str, ...]:
    return Units.of(tokenize(text, tokenizer), by).labels


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("lines", ("Chapter 1", "It was so. Ah", "Chapter 2", "No more.")),
        ("paragraphs", ("Chapter 1 It was so. Ah", "Chapter 2 No more.")),
        ("sentences", ("Chapter 1", "It was so.", "Ah", "Chapter 2", "No more.")),
        (r"^Chapter \d", ("Chapter 1 It was so. Ah", "Chapter 2 No more.")),
        ("It|No", ("Chapter 1", "It was so. Ah Chapter 2", "No more.")),
    ],
)
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_groups_cover_the_text_and_are_called_by_their_first_words(
    by: str, expected: tuple[str, ...], tokenizer: str
) -> None:
    assert labels(by, tokenizer=tokenizer) == expected


def test_a_long_group_is_called_by_as_many_words_as_can_be_read() -> None:
    [label] = labels("lines", "word " * 100)
    assert (len(label) <= 30, label[:9], label[-1]) == (True, "word word", "…")


def test_indentation_belongs_to_its_line_and_a_line_end_to_the_line_before() -> None:
    units = Units.of(tokenize("a\n  b", "char"), "lines")
    assert units.numbers.tolist() == [0, 0, 1, 1, 1]
    assert units.as_tokens().offsets.tolist() == [[0, 1], [4, 5]]  # without the white space around


@pytest.mark.parametrize("blank", ["\n", " \n", "\n "])
def test_blank_lines_are_read_once_and_begin_no_paragraph(blank: str) -> None:
    text = blank * 200_000 + "one" + blank * 200_000 + "two" + blank * 200_000
    assert [label for _, label in labelled_matches(text, "paragraphs", "by")] == ["¶ 1", "¶ 2"]


def test_special_tokens_are_in_no_line() -> None:
    tokens = replace(tokenize("[CLS] a b [SEP]".replace("[", "").replace("]", "")), special=np.array([1, 0, 0, 1]) > 0)
    assert Units.of(tokens, "lines").labels == ("CLS", "a b", "SEP")


def test_groups_with_labels_of_their_own_keep_them_wherever_their_tokens_stand() -> None:
    turns = Groups(np.array([0, 1, 1, 0]), ("user", "assistant"))
    units = Units.of(replace(tokenize("a b c d"), groups={"turns": turns}), "turns")
    assert units.labels == ("user", "assistant")
    assert units.reduce(np.add, np.array([[1, 10, 100, 1000]]), axis=1).tolist() == [[1001, 110]]


@pytest.mark.parametrize("by", ["texts", "Verse"])
def test_tokens_without_such_groups_have_none(by: str) -> None:
    assert named_groups(tokenize(TEXT), by) is None


@pytest.mark.parametrize("by", ["lines", "paragraphs", "sentences", "x"])
def test_tokens_without_a_text_have_no_groups_of_it(by: str) -> None:
    assert named_groups(Tokens.numbered(3), by) is None


def test_landmarks_go_by_the_same_names() -> None:
    assert landmarks(tokenize("It was. So it is."), "sentences") == ((0, "It was."), (3, "So it is."))
    assert landmarks(tokenize("un able", "char"), "word") == ((0, "un"), (2, "able"))
    assert landmarks(tokenize("a b"), "texts") == ()


def test_a_pattern_without_an_end_is_given_up_by_the_name_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.bounded.MAX_SECONDS", 0.3)
    with pytest.raises(AttnvizError, match=r"the search for by '\(a\+\)\+\$' does not end in 0\.3 seconds"):
        named_groups(tokenize(f"{'a' * 40}!"), "(a+)+$")
