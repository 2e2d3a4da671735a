"""The filter of heads: every word must hold; a wrong word is refused with the example of a right one."""

import math

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.metrics.measure import DescribedHead, parse_filter
from tests.languages import FILTERS

HEADS, METRICS = [DescribedHead(**head) for head in FILTERS["heads"]], FILTERS["metrics"]


@pytest.mark.parametrize(("text", "left"), FILTERS["kept"].items(), ids=list(FILTERS["kept"]))
def test_filter_leaves_the_heads_for_which_every_word_holds(text: str, left: list[str]) -> None:
    passes = parse_filter(text, METRICS)
    assert [head.name for head in HEADS if passes(head)] == left


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("previus>0.5", "unknown metric 'previus'; did you mean previous?"),
        ("s>0.5", "choose sink or self"),
        ("previous>", "'previous>' is no test of a head; write one as 'sink>0.5 layer:3-5'"),
        ("layer:x", "'x' is not a list of numbers; write one such as 0-3,7"),
        ("kind:both", "write kind:self or kind:cross"),
        ("colour:red", "is no test of a head"),
    ],
)
def test_what_is_no_word_is_refused_with_one_that_is(text: str, said: str) -> None:
    with pytest.raises(AttnvizError) as refused:
        parse_filter(text, METRICS)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", FILTERS["refused"])
def test_what_the_page_refuses_is_refused(text: str) -> None:
    with pytest.raises(AttnvizError, match=r"choose|write|did you mean"):
        parse_filter(text, METRICS)


def test_head_without_the_number_is_left_out_and_comes_back_with_a_minus() -> None:
    head = DescribedHead("0.0", 0, 0, "self", "", {"previous": math.nan})
    assert not parse_filter("previous<2", METRICS)(head)
    assert parse_filter("-previous<2", METRICS)(head)


def test_refusal_shows_an_example_with_a_metric_that_the_heads_have() -> None:
    with pytest.raises(AttnvizError, match=r"write one as 'on-picture>0.5 layer:3-5'$"):
        parse_filter("colour:red", ("on-picture", "border"))
