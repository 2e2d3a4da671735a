"""Attention is reported when a function of torch returns."""

import torch
from torch import nn

import attnviz


def test_fused_encoder_layer_attends_to_its_own_tokens() -> None:
    model = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True).eval()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(2, 5, 12))
    assert [maps.kind for maps in recording.maps] == ["self", "self"]
