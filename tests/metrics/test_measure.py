"""Needs of metrics in words."""

import pytest

from attnviz.metrics.measure import Need, sentence_of
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
