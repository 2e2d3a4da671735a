"""Arguments of torch's own operators are read by name, whatever their place."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.arguments import FUSED_ATTENTION, FUSED_LAYER, bind_fused
from attnviz.maps.layer_maps import cell_maps

ATTENTION = "_native_multi_head_attention"


def test_fused_arguments_have_the_names_of_the_operators_schema() -> None:
    given = bind_fused(ATTENTION, FUSED_ATTENTION, ("q", "k", "v", 12, 3, *"wbpc"), {"mask_type": 1})
    assert [given[name] for name in FUSED_ATTENTION] == ["q", "k", "v", 3, *"wbpc", None, 1]


def test_fused_arguments_are_the_same_by_place_and_by_name() -> None:
    order = [argument.name for argument in torch.ops.aten._transformer_encoder_layer_fwd.default._schema.arguments]
    by_place = bind_fused("_transformer_encoder_layer_fwd", FUSED_LAYER, tuple(order), {})
    assert by_place == bind_fused("_transformer_encoder_layer_fwd", FUSED_LAYER, (), {name: name for name in order})
    assert all(by_place[name] == name for name in FUSED_LAYER)


def test_refuses_a_fused_operator_of_other_arguments_and_says_what_works() -> None:
    expected = r"calls _native_multi_head_attention without 'eps'.*call .*set_fastpath_enabled\(False\) before"
    with pytest.raises(AttnvizError, match=expected):
        bind_fused(ATTENTION, FUSED_LAYER[3:], (), {"norm_first": True})


class Fused(nn.Module):
    """One fused call, as nn.MultiheadAttention makes it where nothing needs gradients."""

    num_heads = 3

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor, mask: Tensor, mask_type: int) -> Tensor:
        weights = self.project.weight, self.project.bias, self.out.weight, self.out.bias
        output: Tensor = torch._native_multi_head_attention(
            x, x, x, 12, self.num_heads, *weights, mask, False, True, mask_type
        )[0]
        return output


@pytest.mark.parametrize(("mask_type", "shape"), [(0, (5, 5)), (1, (2, 5)), (2, (2, 3, 5, 5))])
def test_a_fused_mask_hides_by_its_kind_of_queries_and_keys_of_keys_or_of_each_head(
    mask_type: int, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    hidden = torch.rand(shape) < 0.4
    hidden[..., 1] = False
    model = Fused().eval()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(2, 5, 12), hidden, mask_type)
    seen = ~(hidden[:, None, None] if mask_type == 1 else hidden).expand(2, 3, 5, 5).numpy()
    for maps in recording.maps:
        window = cell_maps(maps).window((0, 1, 2), slice(0, 5), slice(0, 5))
        assert np.array_equal(np.broadcast_to(window.visible, (3, 5, 5)), seen[maps.item])
        assert maps.fidelity is not None
        assert maps.fidelity < 1e-6


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_fused_layers_are_recorded_under_autocast(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 7, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        bare = model(x)
        with attnviz.record(model) as recording:
            output = model(x)
    assert torch.equal(bare, output)
    assert [maps.layer for maps in recording.maps] == [0, 0, 1, 1]
    assert all(maps.fidelity is not None and maps.fidelity < 0.1 for maps in recording.maps)  # of bfloat16


class FusedCross(Fused):
    """A fused call whose queries, keys and values are projected from different tokens."""

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:  # type: ignore[override]
        weights = self.project.weight, self.project.bias, self.out.weight, self.out.bias
        output: Tensor = torch._native_multi_head_attention(
            x, keys, values, 12, self.num_heads, *weights, None, True, False
        )[0]
        return output


def test_fused_queries_keys_and_values_are_projected_from_their_own_tokens() -> None:
    torch.manual_seed(0)
    model = FusedCross().eval()
    inputs = torch.randn(3, 2, 5, 12)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(*inputs)
    projected = inputs @ model.project.weight.view(3, 12, 12).mT.unsqueeze(1) + model.project.bias.view(3, 1, 1, 12)
    queries, keys, _ = projected.view(3, 2, 5, 3, 4).transpose(2, 3)
    weights = (queries @ keys.mT / 2).softmax(-1).detach().numpy()
    for maps in recording.maps:
        window = cell_maps(maps).window((0, 1, 2), slice(0, 5), slice(0, 5))
        np.testing.assert_allclose(window.weights, weights[maps.item], atol=1e-5)
