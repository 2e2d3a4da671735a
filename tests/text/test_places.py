"""A name stands for one token: labels, words that a tokenizer split, numbers; near names are proposed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from attnviz.base.errors import AttnvizError, argument, format_options, option
from attnviz.text.places import find_place, place_name, spaces_before
from attnviz.text.tokens import Tokens, tokenize
from tests.languages import PLACES
from tests.report.image_examples import tokens_of_words_and_images
from tests.text.examples import drawn_tokens, labelled_tokens

TEXT = "The Whale saw a whale."
PIECES = ("[CLS]", "The", "Wh", "ale", "saw", "a", "wh", "ale", ".")
OFFSETS = ((0, 0), (0, 3), (4, 6), (6, 9), (10, 13), (14, 15), (16, 18), (18, 21), (21, 22))


@pytest.fixture
def tokens() -> Tokens:
    words = np.array([-1, 0, 1, 1, 2, 3, 4, 4, 4])
    special = np.array([True] + [False] * 8)
    return Tokens.of_text(
        text=TEXT, labels=PIECES, ids=np.arange(9), offsets=np.array(OFFSETS), words=words, special=special
    )


@pytest.mark.parametrize("example", PLACES, ids=lambda example: " ".join(example["labels"][:4]))
def test_names_stand_for_the_tokens_that_the_page_finds_too(example: dict[str, Any]) -> None:
    tokens = labelled_tokens(example["labels"], example["spaces"])
    assert [place_name(tokens, index) for index in range(len(tokens))] == example["written"]
    for name, place in example["named"].items():
        if place is None:
            with pytest.raises(AttnvizError, match=r"no query .*[Cc]hoose"):
                find_place(tokens, name)
        else:
            assert (name, find_place(tokens, name)[0]) == (name, place)


@given(drawn_tokens())
def test_every_token_is_found_by_the_name_that_is_written_for_it(tokens: Tokens) -> None:
    for index in range(len(tokens)):
        assert find_place(tokens, place_name(tokens, index))[0] == index
        assert find_place(tokens, f"@{index}")[0] == index


@pytest.mark.parametrize(
    ("name", "place", "remark"),
    [
        ("whale", 7, "“whale” is 2 tokens, 6 to 7; the last is the query here."),
        ("Whale", 3, "“Whale” is 2 tokens, 2 to 3; the last is the query here."),
        ("WHALE", 7, "“WHALE” is 2 tokens, 6 to 7; the last is the query here; it is also at 3."),
        ("a whale", 7, "“a whale” is 3 tokens, 5 to 7; the last is the query here."),
        ("the", 1, "“the” is in token 1."),
        ("ale", 7, "“ale” is also at 3; query='@3' chooses the one at 3."),
    ],
)
def test_a_remark_says_how_a_name_was_understood(tokens: Tokens, name: str, place: int, remark: str) -> None:
    found, said = find_place(tokens, name)
    assert (found, format_options(said, argument)) == (place, remark)


@pytest.mark.parametrize(
    ("name", "near"), [("whael", "did you mean whale? Choose"), ("xyz", "choose"), (" ", "choose")]
)
def test_a_near_word_is_proposed(tokens: Tokens, name: str, near: str) -> None:
    with pytest.raises(AttnvizError) as refusal:
        find_place(tokens, name)
    assert str(refusal.value) == f"no query {name!r} among the tokens; {near} a token, or a number from @0 to @8"


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        (("query 0", "query 1"), "among the tokens; choose a token such as 'query 0', or a number from @0 to @1"),
        (("0", "1", "2"), "among tokens without labels; choose 0 to 2"),
    ],
)
def test_labels_without_a_text_are_named_by_an_example(labels: tuple[str, ...], advice: str) -> None:
    with pytest.raises(AttnvizError, match=f"no query 'object 9' {advice}$"):
        find_place(Tokens.labelled(labels), "object 9")


def test_a_remark_advises_what_finds_the_other_token() -> None:
    tokens = tokenize("one two 4 7 one")
    assert find_place(tokens, "one") == (4, f"“one” is also at 0; {option('query', '@0')} chooses the one at 0.")
    assert find_place(tokens, "one", "key") == (0, f"“one” is also at 4; {option('key', '@4')} chooses the one at 4.")
    assert find_place(tokens, "@4") == (4, "")
    assert [find_place(tokens, name)[0] for name in ("4", "7", "3")] == [2, 3, 3]


@pytest.mark.parametrize(
    ("pieces", "gaps"),
    [
        (("a", " ", "b"), "- "),
        (("a", "\n", "b"), "-\n"),
        (("one", " two", "\n\n", "three"), "---\n"),  # a newline that is a token ends its line
        (("one.\n", "two"), "-\n"),
        (("one.\r\n", " two"), "-\n"),
        (("a\nb", "c"), "--"),
        (("\n", "a"), "-\n"),
    ],
)
def test_a_line_breaks_after_a_newline_between_tokens_or_at_the_end_of_one(pieces: tuple[str, ...], gaps: str) -> None:
    # Pieces of blanks alone lie between tokens in the first two rows, where there are fewer gaps than pieces.
    kept = [place for place, piece in enumerate(pieces) if len(gaps) == len(pieces) or piece.strip()]
    stops = np.cumsum([len(piece) for piece in pieces])
    offsets = np.array([[stops[place] - len(pieces[place]), stops[place]] for place in kept])
    count = np.arange(len(kept))
    tokens = Tokens.of_text(
        text="".join(pieces), labels=tuple(pieces[place] for place in kept), ids=count, offsets=offsets,
        words=count, special=count < 0,
    )  # fmt: skip
    assert spaces_before(tokens) == gaps


def test_patches_of_an_image_stand_apart_from_each_other_and_from_words() -> None:
    assert spaces_before(tokens_of_words_and_images()) == " " * 16
