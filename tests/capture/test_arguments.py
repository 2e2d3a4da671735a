"""Arguments of torch's own operators are read by name, whatever their place."""

import pytest
import torch

from attnviz.base.errors import AttnvizError
from attnviz.capture.arguments import FUSED_ATTENTION, FUSED_LAYER, bind_fused

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
    expected = r"calls _native_multi_head_attention without 'eps'.*set_fastpath_enabled\(False\) .* works"
    with pytest.raises(AttnvizError, match=expected):
        bind_fused(ATTENTION, FUSED_LAYER[3:], (), {"norm_first": True})
