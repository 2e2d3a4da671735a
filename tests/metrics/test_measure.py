"""Needs of metrics in words."""

import pytest

from attnviz.metrics.measure import Need, sentence_of, students_t
from attnviz.metrics.metrics import METRICS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("entropy", "queries that see two keys or more"),
        ("special", "special tokens such as [CLS]"),
        ("previous", "self-attention over two tokens or more"),
        ("next", "self-attention that is not causal"),
        ("induction", "self-attention, token ids and a repeat"),
        ("block", "self-attention and two sentences"),
        ("pair", "a pair of texts"),
        ("hidden", "a causal mask and all scores"),
    ],
)
def test_a_metric_says_what_it_needs(name: str, words: str) -> None:
    assert METRICS[name].reason == words


def test_a_sequence_is_named_where_the_tokens_are_none() -> None:
    needs = {Need.SELF_ATTENTION, Need.TWO_TOKENS, Need.SEQUENCE}
    assert sentence_of(needs) == "self-attention over two tokens or more"
    assert sentence_of(needs, in_sequence=False) == "self-attention over two tokens or more and tokens in a sequence"
    assert sentence_of({Need.TWO_TOKENS}) == "over two tokens or more"


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (11, 2.2010), (30, 2.0423), (199, 1.9720)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert students_t(freedom) == pytest.approx(expected, abs=1e-4)
