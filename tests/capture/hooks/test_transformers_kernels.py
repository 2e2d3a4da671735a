"""Kernels that torch does not show: their calls are known from transformers' interface, and equal eager attention."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from tests.capture.architectures import EXPERTS, SHORT, Entry, build, inputs_of
from tests.small_models import GROUPED
from tests.today import todays

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
        has_sink = entry.name == "GptOss"
        weights = maps.weights[..., :-1] if has_sink else maps.weights
        assert np.abs(weights - expected)[:, real].max() < tolerance
        if has_sink:
            assert np.abs(maps.weights[..., -1] - (1 - expected.sum(-1)))[:, real].max() < tolerance


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_hidden_kernel_is_recorded_by_what_it_was_given(entry: Entry, kernel: str) -> None:
    check(entry, kernel)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(transformers.__version__ < "5", reason="torch 2.13 makes C++ of its mask that does not compile")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="torch compiles it for these alone"
)
@pytest.mark.parametrize("stance", ["force_eager", *todays(["default"], one_in=7)])  # compiling takes half a minute
def test_flex_attention_is_one_call_with_its_mask(stance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # what earlier runs left in it gave wrong outputs
    entry = Entry("Mistral", GROUPED | {"hidden_size": 64, "head_dim": 16, "sliding_window": 4})
    with torch.compiler.set_stance(stance):
        check(entry, "flex_attention")


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


Kernel = Callable[..., Any]


def hidden(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of scale 0.5 without torch's softmax, ``(batch, queries, heads, features)``."""
    powers = (torch.einsum("bhqf,bhkf->bhqk", query, key) * 0.5).exp() * (1 if mask is None else mask)
    return torch.einsum("bhqk,bhkf->bqhf", powers / powers.sum(-1, keepdim=True), value)


def interface_names(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float = 0.5
) -> Any:
    return hidden(query, key, value, attention_mask), None


def own_names(it: Any, q: Tensor, k: Tensor, v: Tensor, m: Any = None, *, scaling: float = 0.5) -> Any:
    return hidden(q, k, v, m), None


def any_arguments(*args: Any, **named: Any) -> Any:
    names = ("module", "query", "key", "value", "attention_mask")
    given = dict(zip(names, args, strict=False)) | named
    queries, keys, values, mask = (cast("Any", given.get(name)) for name in names[1:])
    return hidden(queries, keys, values, mask), None


def without_mask(module: Any, query: Tensor, key: Tensor, value: Tensor, scaling: float = 0.5, **_: Any) -> Any:
    return hidden(query, key, value), None


def output_alone(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **_: Any) -> Any:
    return [hidden(query, key, value, attention_mask)]


class Calling(torch.nn.Module):
    """A module of two heads that calls the kernel as ``call`` does."""

    is_causal = False

    def __init__(self, call: Kernel, mask: Tensor | None) -> None:
        super().__init__()
        self.call, self.mask = call, mask

    def forward(self, features: Tensor) -> Tensor:
        kernel = ALL_ATTENTION_FUNCTIONS.get_interface(attn_implementation=KERNEL, default=own_names)
        output: Tensor = self.call(kernel, self, features, self.mask)[0]
        return output


def by_position(kernel: Kernel, module: Any, x: Tensor, mask: Any) -> Any:
    return kernel(module, x, x, x, mask, scaling=0.5)


def mask_by_name(kernel: Kernel, module: Any, x: Tensor, mask: Any) -> Any:
    return kernel(module, x, x, x, attention_mask=mask, scaling=0.5)


def by_name(kernel: Kernel, module: Any, x: Tensor, mask: Any) -> Any:
    return kernel(module, query=x, key=x, value=x, attention_mask=mask, scaling=0.5)


def all_by_name(kernel: Kernel, module: Any, x: Tensor, mask: Any) -> Any:
    return kernel(scaling=0.5, attention_mask=mask, value=x, key=x, query=x, module=module)


def by_own_names(kernel: Kernel, module: Any, x: Tensor, mask: Any) -> Any:
    return kernel(module, v=x, k=x, q=x, m=mask)


MASK = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
CALLS: list[tuple[Kernel, Kernel, Tensor | None]] = [
    *((kernel, by_position, MASK) for kernel in (interface_names, own_names, any_arguments, output_alone)),
    *(
        (kernel, call, MASK)
        for kernel in (interface_names, any_arguments, partial(interface_names), output_alone)
        for call in (mask_by_name, by_name, all_by_name)
    ),
    (own_names, by_own_names, MASK),
    *((without_mask, call, None) for call in (mask_by_name, by_name, all_by_name)),
]


@pytest.mark.parametrize(("function", "call", "mask"), CALLS)
def test_a_kernel_is_recorded_however_it_names_and_gets_its_arguments(
    function: Kernel, call: Kernel, mask: Tensor | None, kernel: str
) -> None:
    AttentionInterface.register(kernel, function)
    model, features = Calling(call, mask), torch.randn(1, 2, 5, 4)
    with torch.no_grad():
        bare = model(features)
        with attnviz.record(model) as recording:
            output = model(features)
    assert torch.equal(output, bare)
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    assert np.array_equal(maps.visible, np.ones((5, 5)) if mask is None else np.tri(5))
    assert maps.fidelity is not None
    assert maps.fidelity < 1e-6


def test_a_kernel_of_other_arguments_runs_as_before_and_is_said_to_be_unreadable(kernel: str) -> None:
    AttentionInterface.register(kernel, lambda module, packed: (hidden(packed[0], packed[1], packed[2], MASK), None))
    model, features = Calling(lambda kernel, module, x, mask: kernel(module, (x, x, x)), None), torch.randn(1, 2, 5, 4)
    bare = model(features)
    with pytest.raises(AttnvizError, match="computes it on arguments that are not those"), attnviz.record(model):
        output = model(features)
    assert torch.equal(output, bare)


def test_packed_texts_do_not_see_each_other(kernel: str) -> None:
    ends = torch.tensor([0, 2, 5], dtype=torch.int32)
    apart = (torch.arange(5) < 2)[:, None] == (torch.arange(5) < 2)
    AttentionInterface.register(
        kernel, lambda module, query, key, value, mask, **_: (hidden(query, key, value, apart),)
    )
    model = Calling(
        lambda kernel, module, x, mask: kernel(
            module, x, x, x, mask, scaling=0.5, cu_seq_lens_q=ends, cu_seq_lens_k=ends
        ),
        None,
    )
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, 2, 5, 4))
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    assert np.array_equal(maps.visible, apart)
    assert maps.fidelity is not None
    assert maps.fidelity < 1e-6


@pytest.mark.filterwarnings("ignore")
def test_a_mask_of_more_keys_than_there_are_is_that_of_the_first(kernel: str) -> None:
    def first_keys(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **_: Any) -> Any:
        return hidden(query, key, value, mask[..., : key.shape[2]]), None

    AttentionInterface.register(KERNEL, first_keys)
    mask = torch.ones(1, 1, 5, 8, dtype=torch.bool).tril()
    model, features = Calling(by_position, mask), torch.randn(1, 2, 5, 4)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(features)
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    assert np.array_equal(maps.visible, np.tri(5, dtype=bool))
    assert maps.fidelity is not None
    assert maps.fidelity < 1e-6
