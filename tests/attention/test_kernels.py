"""The kernel that gives the log-sum-exp gives the same output to the bit, and is taken where torch takes it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz.attention import kernels
from attnviz.attention.kernels import (
    attention_and_logsumexp,
    attention_with_logsumexp,
    fused_attention,
    has_fused_attention,
)
from tests import room

QUERIES, KEYS = 37, 41
MASK = torch.rand(2, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.4


def factors(heads: int = 6, key_heads: int = 6, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    torch.manual_seed(0)
    query = torch.randn(2, heads, QUERIES, 8, dtype=dtype)
    key, value = torch.randn(2, 2, key_heads, KEYS, 8, dtype=dtype).unbind()
    return {"query": query, "key": key, "value": value}


def scores(given: dict[str, Any]) -> Tensor:
    """Scaled scores in float64, −inf where hidden."""
    found: Tensor
    query, key = given["query"].double(), given["key"].double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    found = query @ key.transpose(-1, -2) * (given.get("scale") or 8**-0.5)
    mask = given.get("attn_mask")
    if given.get("is_causal"):
        mask = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
    if mask is None:
        return found
    return found.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else found + mask


def room_of(given: dict[str, Any]) -> float:
    found = scores(given)
    return room.of_sums(float(found[found.isfinite()].abs().max()), roundings=8)  # of 8 products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"is_causal": True, "scale": 0.7},
        {"attn_mask": MASK},
        {"attn_mask": MASK[0, 0]},
        {"attn_mask": torch.zeros(2, 1, QUERIES, KEYS).masked_fill(~MASK, -torch.inf)},
    ],
    ids=["full", "causal", "bool mask", "bool mask of two axes", "number mask"],
)
def test_output_is_torchs_own_and_logsumexp_that_of_the_scores(rest: dict[str, Any], dtype: torch.dtype) -> None:
    given = factors(dtype=dtype) | rest
    if "attn_mask" in given and given["attn_mask"].is_floating_point():
        given["attn_mask"] = given["attn_mask"].to(dtype)
    output, logsumexp = attention_with_logsumexp(functional.scaled_dot_product_attention, given)
    assert torch.equal(output, functional.scaled_dot_product_attention(**given))
    assert logsumexp is not None
    torch.testing.assert_close(logsumexp.double(), scores(given).logsumexp(-1), atol=room_of(given), rtol=0)


def test_grouped_queries_share_keys() -> None:
    given = factors(6, 2) | {"enable_gqa": True}
    output, logsumexp = attention_with_logsumexp(functional.scaled_dot_product_attention, given)
    assert torch.equal(output, functional.scaled_dot_product_attention(**given))
    assert logsumexp is not None
    torch.testing.assert_close(logsumexp.double(), scores(given).logsumexp(-1), atol=room_of(given), rtol=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given | {"dropout_p": 0.5},
        lambda given: given | {"value": given["value"][..., :4]},
        lambda given: {name: tensor.bfloat16() for name, tensor in given.items()},
        lambda given: {name: tensor[0] for name, tensor in given.items()},
        lambda given: {name: tensor.to("meta") for name, tensor in given.items()},
    ],
    ids=["dropout", "narrow values", "bfloat16", "three axes", "no numbers"],
)
def test_calls_that_torch_computes_otherwise_are_left_to_it(change: Any) -> None:
    given = change(factors())
    torch.manual_seed(2)
    output, logsumexp = attention_with_logsumexp(functional.scaled_dot_product_attention, given)
    assert logsumexp is None
    torch.manual_seed(2)
    expected = functional.scaled_dot_product_attention(**given)
    assert expected.is_meta or torch.equal(output, expected)


def test_gradients_flow_through_the_kernel() -> None:
    given = factors()
    given["query"].requires_grad_()
    output, _ = attention_with_logsumexp(functional.scaled_dot_product_attention, given)
    [found] = torch.autograd.grad(output.square().sum(), given["query"])
    [expected] = torch.autograd.grad(functional.scaled_dot_product_attention(**given).square().sum(), given["query"])
    assert torch.equal(found, expected)


class Called(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of the operations that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("flash", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_kernels_of_cuda_take_these_arguments_and_give_a_logsumexp_for_each_query(
    flash: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "can_use_flash_attention", lambda given: flash)
    with FakeTensorMode(), Called() as called:
        queries = torch.empty(1, 3, QUERIES, 8, dtype=dtype, device="cuda")
        keys, values = torch.empty(2, 1, 3, KEYS, 8, dtype=dtype, device="cuda").unbind()
        output, logsumexp = fused_attention(queries, keys, values, causal=False, scale=0.4)
    assert f"aten._scaled_dot_product_{'flash' if flash else 'efficient'}_attention.default" in called.names
    assert (output.shape, output.dtype) == (queries.shape, dtype)
    assert (logsumexp.shape, logsumexp.dtype) == (queries.shape[:3], torch.float32)


def test_cuda_has_a_kernel_where_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        for flash, efficient in ((False, False), (True, False), (False, True)):
            monkeypatch.setattr(kernels, "can_use_flash_attention", lambda given, flash=flash: flash)
            monkeypatch.setattr(kernels, "can_use_efficient_attention", lambda given, efficient=efficient: efficient)
            assert has_fused_attention(8, torch.float32, torch.device("cuda")) is (flash or efficient)
    assert has_fused_attention(8, torch.float32, torch.device("cpu"))
    assert not has_fused_attention(8, torch.float32, torch.device("meta"))


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_on_a_cpu_is_torchs_own(causal: bool) -> None:
    given = factors()
    given["key"], given["value"] = given["key"][:, :, :QUERIES], given["value"][:, :, :QUERIES]
    query, key, value = given.values()
    output, logsumexp = fused_attention(query, key, value, causal=causal, scale=0.7)
    expected = functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=0.7)
    assert torch.equal(output, expected)
    assert logsumexp.shape == query.shape[:3]


def test_logsumexp_where_no_kernel_gives_it_is_computed_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys, values = torch.randn(3, 1, 2, 40, 4).unbind()
    expected = attention_and_logsumexp(queries, keys, values, scale=0.5, causal=True)
    kernel = functional.scaled_dot_product_attention
    monkeypatch.setattr(kernels, "has_logsumexp_kernel", lambda device: False)
    monkeypatch.setattr(kernels, "has_fused_attention", lambda *given: False)
    monkeypatch.setattr(kernels, "MAX_BAND_QUERIES", 9)
    found = attention_and_logsumexp(queries, keys, values, scale=0.5, causal=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found[0], kernel(queries, keys, values, is_causal=True, scale=0.5))
