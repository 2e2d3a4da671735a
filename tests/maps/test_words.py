"""Maps over words, and without special tokens: each number worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.maps.words import Grouping, regroup
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize, tokens_of_pieces


def tokens() -> Tokens:
    """[CLS] un | able | it: the middle two are one word."""
    special = np.array([True, False, False, False])
    return tokens_of_pieces(
        "unable it", [1, 2, 3, 4], ["[CLS]", "a", "b", "c"], [(0, 0), (0, 2), (2, 6), (7, 9)], special
    )


WEIGHTS = [[0.4, 0.1, 0.2, 0.3], [0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0]]


def recording() -> Recording:
    weights = np.array([WEIGHTS, np.array(WEIGHTS)[::-1]], dtype=np.float32)
    maps = DenseMaps(
        layer=1,
        module="m",
        heads=(3, 5),
        query_tokens=tokens(),
        key_tokens=tokens(),
        scores=np.log(weights + 1).astype(np.float32),
        weights=weights,
        visible=np.ones((4, 4), dtype=bool),
    )
    return Recording(maps=(maps,), model="a test")


def regrouped(table: str | None = None, selection: Selection | None = None, **how: bool) -> tuple[DenseMaps, Recording]:
    grouped = regroup(recording(), selection or Selection(), Grouping(**how), table)
    maps = grouped.maps[0]
    assert isinstance(maps, DenseMaps)
    return maps, grouped


def test_weight_to_a_word_is_summed_over_its_keys_and_averaged_over_its_queries() -> None:
    maps, grouped = regrouped(words=True)
    assert maps.query_tokens.labels == ("[CLS]", "unable", "it")
    np.testing.assert_allclose(maps.weights[0], [[0.4, 0.3, 0.3], [0.4, 0.35, 0.25], [0.0, 1.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    assert "summed over its tokens as keys" in grouped.remarks[0]


def test_special_tokens_are_hidden_and_rows_keep_what_is_left() -> None:
    maps, grouped = regrouped(no_special=True)
    np.testing.assert_allclose(maps.weights[0], np.array(WEIGHTS)[1:, 1:], atol=1e-6)
    np.testing.assert_allclose(maps.scores[0], np.log(np.array(WEIGHTS)[1:, 1:] + 1), atol=1e-6)
    assert "[CLS]" in grouped.remarks[0]
    assert "no longer sum to 100%" in grouped.remarks[0]


def test_rows_are_renormalized_only_by_asking() -> None:
    maps, grouped = regrouped(no_special=True, renormalize=True)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(maps.weights[0, 0], np.array([0.1, 0.1, 0.1]) / 0.3, atol=1e-6)
    assert "divided by what is left" in grouped.remarks[0]


def test_only_chosen_heads_are_regrouped() -> None:
    maps, _ = regrouped(words=True, selection=Selection(pairs=((1, 5),)))
    assert maps.heads == (5,)
    np.testing.assert_allclose(maps.weights[0, 0], [0.0, 1.0, 0.0], atol=1e-6)


def test_nothing_asked_changes_nothing() -> None:
    one = recording()
    assert regroup(one, Selection(), Grouping()) is one


def test_refuses_scores_of_words() -> None:
    with pytest.raises(AttnvizError, match="--table weights works"):
        regrouped("scores", words=True)


def test_nothing_is_said_to_be_hidden_where_no_special_token_is() -> None:
    plain = replace(recording().maps[0], query_tokens=tokenize("a b c d"), key_tokens=tokenize("a b c d"))
    grouped = regroup(replace(recording(), maps=(plain,)), Selection(), Grouping(no_special=True))
    assert grouped.remarks == ("No special token is there to hide.",)
