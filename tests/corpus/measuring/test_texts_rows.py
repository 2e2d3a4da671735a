"""Rows weighed by one exponential a cell, beside the maps that a capture computes."""

import math

import pytest
import torch

from attnviz.capture.calls.attention_call import FactoredCall
from attnviz.corpus.measuring.text_batch import TextBatch
from attnviz.corpus.measuring.texts_grid import CachedGrids
from attnviz.corpus.measuring.texts_rows import SoftmaxRows, softmax_rows
from attnviz.text.tokens import tokenize

TEXT = "a b c d e f g"
HEADS = [0, 1, 2]


def weighed(call: FactoredCall) -> SoftmaxRows:
    batch = TextBatch([tokenize(TEXT, vocabulary_text=TEXT)] * 2, torch.device("cpu"))
    alone = [softmax_rows(call, [head], CachedGrids(batch, ()), slice(0, 2), slice(0, 7)) for head in HEADS]
    together = softmax_rows(call, HEADS, CachedGrids(batch, ()), slice(0, 2), slice(0, 7))
    found = alone if together is None else [together]
    return SoftmaxRows(
        *(torch.cat(each, dim=1) for each in zip(*(rows.softmax for rows in found if rows), strict=True))
    )


def calls() -> dict[str, FactoredCall]:
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 5)
    whole = FactoredCall(queries=queries, keys=keys, scale=2.0)
    by_head = torch.rand(2, 3, 7, 7) > 0.4
    by_head[0, 1, 4] = False
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    padding[1, ..., 5:] = False
    not_numbers = keys.clone()
    not_numbers[1, :, 5:] = math.nan
    return {
        "all seen": whole,
        "steep": FactoredCall(queries=queries, keys=keys, scale=300.0),
        "causal": FactoredCall(queries=queries, keys=keys, scale=2.0, causal=True),
        "sinks": FactoredCall(queries=queries, keys=keys, scale=2.0, causal=True, sinks=torch.tensor([9.0, -9.0, 0.0])),
        "a mask for each head": FactoredCall(queries=queries, keys=keys, scale=2.0, mask=by_head),
        "no number where hidden": FactoredCall(queries=queries, keys=not_numbers, scale=2.0, mask=padding),
    }


@pytest.mark.parametrize("name", calls())
def test_rows_are_those_of_the_maps_of_a_capture(name: str) -> None:
    call = calls()[name]
    rows, maps = weighed(call), call.maps(HEADS)
    torch.testing.assert_close(rows.weights, maps.weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.peak, maps.weights.amax(-1), atol=1e-5, rtol=0)
    entropy = -torch.special.xlogy(maps.weights, maps.weights).sum(-1) / math.log(2)
    has_key = maps.weights.sum(-1) > 0
    torch.testing.assert_close(rows.entropy[has_key], entropy[has_key], atol=1e-5, rtol=0)
    shown = maps.visible.expand_as(rows.scores)
    torch.testing.assert_close(rows.scores[shown], maps.scores[shown])
    assert not rows.scores[~shown].any()
    assert not rows.weights[~shown].any()


def test_what_a_causal_mask_hid_is_its_share_of_the_whole_softmax() -> None:
    call = calls()["causal"]
    hidden = (call.queries @ call.keys.mT * 2.0).softmax(-1).triu(1).sum(-1)
    torch.testing.assert_close(weighed(call).hidden, hidden, atol=1e-5, rtol=0)
