"""Attention is reported when a function of torch returns."""

from typing import Any

import torch
from torch import Tensor, nn

import attnviz


class FusedLayer(nn.TransformerEncoderLayer):
    """An encoder layer that always runs as one kernel."""

    def forward(self, source: Tensor) -> Tensor:  # type: ignore[override]
        attention = self.self_attn
        modules = self.norm1, self.norm2, self.linear1, self.linear2
        after = [parameter for module in modules for parameter in module.parameters()]
        arguments: list[Any] = [
            *(source, 12, 3, attention.in_proj_weight, attention.in_proj_bias, *attention.out_proj.parameters()),
            *(False, False, 1e-5, *after),
        ]
        result: Tensor = torch._transformer_encoder_layer_fwd(*arguments)
        return result


def test_fused_encoder_layer_attends_to_its_own_tokens() -> None:
    model = FusedLayer(12, 3, 16, batch_first=True).eval()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(2, 5, 12))
    assert [maps.kind for maps in recording.maps] == ["self", "self"]
