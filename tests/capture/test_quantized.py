"""A module of which torch has quantized the linear maps: recorded as it computes, and refused by its reason."""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from tests import small_models

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch.ao's, of its end
IDS = {"input_ids": torch.tensor([[3, 4, 5, 6, 7]])}


@pytest.fixture(scope="module")
def quantized() -> Any:
    torch.manual_seed(0)
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small_models.GROUPED))
    quantize: Any = torch.ao.quantization.quantize_dynamic
    return quantize(model.eval(), {nn.Linear}, dtype=torch.qint8)


def test_maps_are_those_of_its_own_eager_path(quantized: Any) -> None:
    bare = quantized(**IDS).logits
    with torch.no_grad(), attnviz.record(quantized, dense=True) as recording:
        observed = quantized(**IDS).logits
    assert torch.equal(bare, observed)
    quantized.set_attn_implementation("eager")
    attentions = quantized(**IDS, output_attentions=True).attentions
    quantized.set_attn_implementation("sdpa")
    for maps, attention in zip(recording.maps, attentions, strict=True):
        weights = cell_maps(maps).window(maps.heads, slice(None), slice(None)).weights
        torch.testing.assert_close(torch.tensor(weights), attention[0].detach(), rtol=0, atol=1e-6)


def test_what_needs_its_projection_is_refused_as_it_is_quantized(quantized: Any) -> None:
    reason = "its part o_proj is quantized, so what it adds cannot be split among heads"
    with pytest.raises(AttnvizError, match=reason), torch.no_grad(), attnviz.record(quantized, values=True):
        quantized(**IDS)
    with pytest.raises(AttnvizError, match=reason):
        attnviz.ablate(quantized, IDS)
