"""The names of heads of a model with two towers."""

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.head_name import HeadName, refuse_other_tower
from attnviz.text.selection import Selection


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ("picture 0.3", Selection(pairs=((0, 3),), tower="picture")),
        (" text 14.3 , 2.1", Selection(pairs=((14, 3), (2, 1)), tower="text")),
        ("picture 0.3, picture 0.4", Selection(pairs=((0, 3), (0, 4)), tower="picture")),
        ("text 0,2-3", Selection(heads=(0, 2, 3), tower="text")),
        ("0.3", Selection(pairs=((0, 3),))),
        ("5.0-2,6.1", Selection(pairs=((5, 0), (5, 1), (5, 2), (6, 1)))),
        ("encoder:4.1 - 2", Selection(pairs=(HeadName(4, 1, "encoder"), HeadName(4, 2, "encoder")))),
    ],
)
def test_a_list_of_heads_names_its_tower_once_or_before_each(heads: str, expected: Selection) -> None:
    assert Selection.parse(heads=heads) == expected


@pytest.mark.parametrize("heads", ["picture 0.3,text 0.3", "0.3,picture 0.4", "text 1,picture 2"])
def test_refuses_heads_of_two_towers_in_one_list(heads: str) -> None:
    with pytest.raises(AttnvizError, match=r"are not all of one tower; write 'picture 0\.3,0\.4' or 'text 14"):
        Selection.parse(heads=heads)


@pytest.mark.parametrize("heads", ["picture", "picture ", "vision 0.3", "picture0.3", "picture text 0.3"])
def test_refuses_a_tower_without_heads_and_other_words(heads: str) -> None:
    with pytest.raises(AttnvizError, match=r"is not a list of numbers|is not a list of heads in one form"):
        Selection.parse(heads=heads)


def test_refuses_heads_of_a_tower_that_is_not_there() -> None:
    refuse_other_tower(None, "text", "llava", "")
    refuse_other_tower("text", "text", "llava", "")
    with pytest.raises(AttnvizError, match=r"heads of gpt have no tower; leave out 'text', as in 0\.3"):
        refuse_other_tower("text", "", "gpt", "")
    with pytest.raises(AttnvizError, match="name the picture tower, and this is the text tower of llava; add a photo"):
        refuse_other_tower("picture", "text", "llava", "add a photo")
