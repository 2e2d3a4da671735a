"""Labels of a recording's tokens: those given where their number fits, else numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.options import CaptureOptions
from attnviz.maps.dense import DenseMaps
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

QUERIES, KEYS = ("a", "b", "c"), ("s", "t", "u", "v")


def labels(kind: Any, part: Any, queries: int, keys: int, **options: Any) -> list[tuple[str, ...]]:
    site = CallSite(0, None, "layers.0", kind, "layers", part)
    call = CapturedCall(site, (0,), (2, 1, queries, keys), None, [None, None], DenseMaps, [{}, {}])
    tokens = CaptureOptions(selection=Selection(), **options).tokens_of(call, item=1)
    return [each.labels for each in tokens]


def test_self_attention_has_the_same_labels_on_both_sides() -> None:
    assert labels("self", "decoder", 3, 3, tokens=QUERIES, context=KEYS) == [QUERIES, QUERIES]


def test_cross_attention_looks_at_the_context() -> None:
    assert labels("cross", "cross", 3, 4, tokens=QUERIES, context=KEYS) == [QUERIES, KEYS]


def test_encoder_reads_the_context_where_there_is_one() -> None:
    assert labels("self", "encoder", 4, 4, tokens=QUERIES, context=KEYS) == [KEYS, KEYS]
    assert labels("self", "encoder", 3, 3, tokens=QUERIES) == [QUERIES, QUERIES]


def test_labels_of_another_number_are_left_out() -> None:
    assert labels("cross", "cross", 2, 4, tokens=QUERIES, context=KEYS) == [("0", "1"), KEYS]


def test_each_text_of_a_batch_has_its_own_labels() -> None:
    texts = [Tokens.numbered(3), Tokens.numbered(2)]
    assert labels("self", "decoder", 2, 2, tokens=texts) == [("0", "1"), ("0", "1")]


def test_refuses_an_unknown_part() -> None:
    with pytest.raises(AttnvizError, match="unknown attention 'both'; choose encoder, decoder or cross"):
        CaptureOptions(selection=Selection(), attention="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("by_hand", [False, True])
def test_queries_and_keys_that_are_kept_beside_whole_maps_make_their_scores(by_hand: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    block = CaptureBlock(module, CaptureOptions(selection=Selection(heads=(0, 2)), factors=True))
    inputs = torch.randn(1, 5, 12)
    with torch.inference_mode(), block:
        module(inputs, inputs, inputs, need_weights=by_hand)
    [maps] = block.recording().maps
    assert isinstance(maps, DenseMaps)
    factors = maps.score_factors()
    assert factors is not None
    scores = factors.scale * factors.queries[:] @ factors.keys[list(factors.key_heads)].swapaxes(1, 2)
    np.testing.assert_allclose(scores, maps.scores, rtol=1e-4, atol=1e-6)
