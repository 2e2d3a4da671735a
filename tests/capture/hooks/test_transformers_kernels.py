"""Kernels that torch does not show: their calls are known from transformers' interface, and equal eager attention."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

import attnviz
from attnviz.maps.dense import DenseMaps
from tests.capture.architectures import EXPERTS, GROUPED, SHORT, Entry, build, inputs_of

pytestmark = pytest.mark.slow

KERNEL = "one_kernel"  # as flash attention is called: padding as the mask, positions as options


def one_kernel(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, **options: Any
) -> tuple[Tensor, None]:
    """Causal attention without torch's softmax, ``(batch, queries, heads, features)``."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (part.repeat_interleave(groups, 1) for part in (key, value))
    scores = torch.einsum("bhqf,bhkf->bhqk", query, keys) * scaling
    if options.get("softcap"):
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    count = query.shape[2]
    distance = torch.arange(count)[:, None] - torch.arange(count)
    visible = (distance >= 0) & (distance < (options.get("sliding_window") or count))
    visible = visible if mask is None else visible & mask.bool()[:, None, None, :]
    powers = scores.exp() * visible
    sinks = options.get("s_aux")
    total = powers.sum(-1, keepdim=True) + (0 if sinks is None else sinks.exp()[None, :, None, None])
    return torch.einsum("bhqk,bhkf->bqhf", powers / total, values), None


@pytest.fixture
def kernel() -> Iterator[str]:
    AttentionInterface.register(KERNEL, one_kernel)
    AttentionMaskInterface.register(KERNEL, lambda *_, attention_mask=None, **__: attention_mask)
    yield KERNEL
    del AttentionInterface._global_mapping[KERNEL], AttentionMaskInterface._global_mapping[KERNEL]


ENTRIES = [
    Entry("Llama", GROUPED),
    Entry("Mistral", GROUPED | {"sliding_window": 4}),
    Entry("Gemma2", GROUPED | {"sliding_window": 4, "query_pre_attn_scalar": 6}),
    Entry("GptOss", GROUPED | EXPERTS | {"sliding_window": 4}),
]


def check(entry: Entry, implementation: str, tolerance: float = 1e-5) -> None:
    model = build(entry, implementation)
    with torch.no_grad():
        bare = model(**inputs_of(entry))[0]
        with attnviz.record(model) as recording:
            output = model(**inputs_of(entry))[0]
        eager = build(entry, "eager")(**inputs_of(entry), output_attentions=True).attentions
    assert torch.equal(output, bare)
    assert len(recording.maps) == 4  # two layers over two texts, each once
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        assert maps.fidelity is not None
        assert maps.fidelity < 1e-5
        real = slice(0, SHORT if maps.item else None)
        expected = eager[maps.layer][maps.item].numpy()
        assert np.abs(maps.weights - expected)[:, real].max() < tolerance


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_hidden_kernel_is_recorded_by_what_it_was_given(entry: Entry, kernel: str) -> None:
    check(entry, kernel)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(transformers.__version__ < "5", reason="torch 2.13 makes C++ of its mask that does not compile")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="torch compiles it for these alone"
)
def test_flex_attention_is_one_call_with_its_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # what earlier runs left in it gave wrong outputs
    check(Entry("Mistral", GROUPED | {"hidden_size": 64, "head_dim": 16, "sliding_window": 4}), "flex_attention")


@pytest.mark.filterwarnings("ignore")
def test_the_interface_is_as_before_also_when_the_forward_raises(kernel: str) -> None:
    model = build(ENTRIES[0], kernel)
    with pytest.raises(IndexError), torch.no_grad(), attnviz.record(model):
        model(input_ids=torch.tensor([[999]]))
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)


@pytest.mark.filterwarnings("ignore")
def test_a_kernel_made_of_torchs_attention_is_heard_as_that(kernel: str) -> None:
    def doubled(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
        keys, values = (part.repeat_interleave(2, 1) for part in (key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query * 2, keys, values, is_causal=True).transpose(1, 2), None

    AttentionInterface.register(KERNEL, doubled)
    model = build(ENTRIES[0], kernel)
    with torch.no_grad(), attnviz.record(model, layers=[0]) as recording:
        model(input_ids=torch.arange(5)[None])
    assert recording.maps[0].fidelity is not None
    assert recording.maps[0].fidelity < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_a_mask_of_more_keys_than_there_are_is_that_of_the_first(kernel: str) -> None:
    class Cached(torch.nn.Module):
        num_heads, num_key_value_groups, is_causal = 2, 1, False

        def forward(self, features: Tensor) -> Tensor:
            kernel = ALL_ATTENTION_FUNCTIONS.get_interface(KERNEL, one_kernel)
            output: Tensor = kernel(self, features, features, features, mask, scaling=0.5)[0]
            return output

    def first_keys(
        module: Any, query: Tensor, key: Tensor, value: Tensor, given: Tensor, **_: Any
    ) -> tuple[Tensor, None]:
        powers = (torch.einsum("bhqf,bhkf->bhqk", query, key) * 0.5).exp() * given[..., : key.shape[2]]
        return torch.einsum("bhqk,bhkf->bqhf", powers / powers.sum(-1, keepdim=True), value), None

    AttentionInterface.register(KERNEL, first_keys)
    mask = torch.ones(1, 1, 5, 8, dtype=torch.bool).tril()
    model, features = Cached(), torch.randn(1, 2, 5, 4)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(features)
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    assert np.array_equal(maps.visible, np.tri(5, dtype=bool))
    assert maps.fidelity is not None
    assert maps.fidelity < 1e-6
