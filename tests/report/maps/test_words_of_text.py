"""Words that a tokenizer split are found, and near ones are proposed."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.report.maps.arcs_and_text import find_query
from attnviz.text.tokens import Tokens

TEXT = "The Whale saw a whale."
PIECES = ("[CLS]", "The", "Wh", "##ale", "saw", "a", "wh", "##ale", ".")
OFFSETS = ((0, 0), (0, 3), (4, 6), (6, 9), (10, 13), (14, 15), (16, 18), (18, 21), (21, 22))


@pytest.fixture
def tokens() -> Tokens:
    words = np.array([-1, 0, 1, 1, 2, 3, 4, 4, 4])
    special = np.array([True] + [False] * 8)
    return Tokens.of_text(
        text=TEXT, labels=PIECES, ids=np.arange(9), offsets=np.array(OFFSETS), words=words, special=special
    )


@pytest.mark.parametrize(
    ("name", "place", "remark"),
    [
        ("whale", 7, "“whale” is 2 tokens, 6 to 7; the last is the query here."),
        ("Whale", 3, "“Whale” is 2 tokens, 2 to 3; the last is the query here."),
        ("WHALE", 3, "“WHALE” is 2 tokens, 2 to 3; the last is the query here; it is also at 7."),
        ("a whale", 7, "“a whale” is 3 tokens, 5 to 7; the last is the query here."),
        ("the", 1, "“the” is in token 1."),
    ],
)
def test_a_word_of_several_tokens_is_found(tokens: Tokens, name: str, place: int, remark: str) -> None:
    assert find_query(tokens, name) == (place, remark)


@pytest.mark.parametrize(
    ("name", "near"), [("whael", "did you mean whale? Choose"), ("xyz", "choose"), (" ", "choose")]
)
def test_a_near_word_is_proposed(tokens: Tokens, name: str, near: str) -> None:
    with pytest.raises(AttnvizError) as refusal:
        find_query(tokens, name)
    assert str(refusal.value) == f"no query {name!r} among the tokens; {near} a token or a number from 0 to 8"


def test_a_part_of_a_word_is_none(tokens: Tokens) -> None:
    with pytest.raises(AttnvizError, match="no query 'hal'"):
        find_query(tokens, "hal")
