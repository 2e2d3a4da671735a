"""The options of a capture: the part to record, and queries and keys beside whole maps."""

import numpy as np
import pytest
import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.labels import CaptureOptions
from attnviz.maps.cell_maps import DenseMaps
from attnviz.text.selection import Selection


def test_refuses_an_unknown_part() -> None:
    with pytest.raises(AttnvizError, match="unknown attention 'both'; choose encoder, decoder, cross or implicit"):
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
