"""Observes kernels that bypass torch's functions, through the attention interface of transformers that calls them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.capture.calls import AttentionCall, FactoredCall, SoftmaxCall
from attnviz.capture.sites import CallingModule
from attnviz.capture.torch_functions import AttentionMode, BuildCall, replaced

VISIBLE_TO_TORCH = "sdpa"  # the implementation of which torch's mode sees all arguments


@contextmanager
def interface_observed(mode: AttentionMode) -> Iterator[None]:
    """Reports the calls that models make through transformers' interface to the mode's listener.

    While the block runs the interface wraps each function that it hands out; after it the interface is as before.
    """
    table: Any = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
    if not hasattr(table, "get_interface"):
        yield
        return
    original = table.get_interface

    def get_interface(name: str | None, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = original(name, default)
        return function if name == VISIBLE_TO_TORCH else partial(_observed_call, mode, function)

    table.get_interface = get_interface
    try:
        yield
    finally:
        del table.get_interface


def _observed_call(
    mode: AttentionMode,
    function: Callable[..., Any],
    module: nn.Module,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Any,
    **options: Any,
) -> Any:
    """Calls the function as it was called, and reports one call: the one that torch saw in it, else the whole."""
    mode.flush()
    visible = _VisibleCalls()
    with replaced(mode, "listener", visible):
        result = function(module, queries, keys, values, mask, **options)
        mode.flush()
    build = partial(_factored_call, module, queries, keys, values, mask, result, options)
    with torch._C.DisableTorchFunction():  # what the listener computes is no call of the model's
        if len(visible.calls) == 1:
            caller, build_visible, shape, single = visible.calls[0]
            mode.listener.on_attention(caller, partial(_with_factors, build_visible, build), shape, single)
        else:
            mode.listener.on_attention(mode.modules.describe(module), build, queries.shape, False)
    return result


def _with_factors(build_visible: BuildCall, build: Callable[[], FactoredCall]) -> AttentionCall | None:
    """The call that torch saw, a softmax together with what may be its factors."""
    call = build_visible()
    return replace(call, factors=build()) if isinstance(call, SoftmaxCall) else call


class _VisibleCalls:
    """The calls that torch sees while a kernel runs: one is the attention itself, several are steps towards it."""

    def __init__(self) -> None:
        self.calls: list[tuple[CallingModule, BuildCall, torch.Size, bool]] = []

    def on_attention(self, caller: CallingModule, build: BuildCall, shape: torch.Size, single: bool) -> None:
        self.calls.append((caller, build, shape, single))


def _factored_call(
    module: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, mask: Any, result: Any, options: dict[str, Any]
) -> FactoredCall:
    """The call by its factors; causality and window count only where no mask already contains them."""
    visible, by_position = _mask_of(mask, queries, keys)
    if visible is not None:
        visible = visible[..., : keys.shape[2]]
    scale = options.get("scaling")
    causal = options.get("is_causal")
    output = result[0].transpose(1, 2)  # (batch, queries, heads, features) -> (batch, heads, queries, features)
    return FactoredCall(
        queries=queries,
        keys=keys,
        values=values,
        output=output if output.shape[:3] == queries.shape[:3] and not options.get("dropout") else None,
        scale=queries.shape[-1] ** -0.5 if scale is None else scale,
        mask=visible,
        causal=by_position and bool(getattr(module, "is_causal", False) if causal is None else causal),
        window=options.get("sliding_window") if by_position else None,
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )


def _mask_of(mask: Any, queries: Tensor, keys: Tensor) -> tuple[Tensor | None, bool]:
    """The mask, broadcast to ``(batch, heads, queries, keys)``, and whether positions hide further cells."""
    if mask is None:
        return None, True
    if isinstance(mask, Tensor):
        return (mask.bool()[:, None, None, :], True) if mask.dim() == 2 else (mask, False)
    from torch.nn.attention.flex_attention import create_mask

    size = (len(queries), 1, queries.shape[2], keys.shape[2])
    return create_mask(mask.mask_mod, *size, device=str(queries.device)).to(torch.bool), False
