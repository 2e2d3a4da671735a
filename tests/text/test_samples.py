import pytest

from attnviz.base.errors import AttnvizError
from attnviz.text.samples import read_sample, samples


def test_the_first_sample_is_the_one_used_where_no_text_is_given() -> None:
    assert read_sample(next(iter(samples()))) == "Life is short, eat dessert first"


def test_each_sample_has_something_to_show() -> None:
    texts = {name: read_sample(name) for name in samples()}
    assert texts["repeat"].count("The tide comes in and the tide goes out.") == 2
    assert " she " in texts["pronoun"]
    assert "\n    " in texts["code"]
    assert any(ord(character) > 0x1F000 for character in texts["scripts"])
    assert len(texts["long"].split()) >= 1000


def test_refuses_an_unknown_sample_and_lists_known() -> None:
    with pytest.raises(AttnvizError, match=r"unknown sample 'lief'; did you mean life\? choose life, pronoun"):
        read_sample("lief")
