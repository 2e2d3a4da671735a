"""Attention in kernels that torch does not show: what transformers' attention interface gave them, and got back."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.capture.calls import AttentionCall, FactoredCall, SoftmaxCall
from attnviz.capture.sites import Place
from attnviz.capture.torch_functions import AttentionMode, replaced

SHOWN = "sdpa"  # the implementation that torch shows with all that it is given


@contextmanager
def interface_heard(mode: AttentionMode) -> Iterator[None]:
    """Tells the mode's listener of the calls that models of transformers make through the interface and torch hides.

    The interface hands out each function with an ear beside it while the block lasts, and is as before after it.
    """
    table: Any = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
    if not hasattr(table, "get_interface"):
        yield
        return
    found = table.get_interface

    def get_interface(name: str | None, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = found(name, default)
        return function if name == SHOWN else partial(_call, mode, function)

    table.get_interface = get_interface
    try:
        yield
    finally:
        del table.get_interface


def _call(
    mode: AttentionMode,
    function: Callable[..., Any],
    module: nn.Module,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Any,
    **options: Any,
) -> Any:
    """Calls the function as it was called, and tells of one call: the one that torch shows of it, else the whole."""
    mode.flush()
    shown = _Shown()
    with replaced(mode, "listener", shown):
        given = function(module, queries, keys, values, mask, **options)
        mode.flush()
    build = partial(_factored_call, module, queries, keys, values, mask, given, options)
    with torch._C.DisableTorchFunction():  # what the listener computes is no call of the model's
        if len(shown.calls) == 1:
            place, build_shown, shape, single = shown.calls[0]
            mode.listener.hears(place, partial(_with_factors, build_shown, build), shape, single)
        else:
            mode.listener.hears(mode.places.place(module), build, queries.shape, False)
    return given


def _with_factors(
    build_shown: Callable[[], AttentionCall | None], build: Callable[[], FactoredCall]
) -> AttentionCall | None:
    """The call that torch showed; a softmax beside what may be its factors."""
    call = build_shown()
    return replace(call, factors=build()) if isinstance(call, SoftmaxCall) else call


class _Shown:
    """The calls that torch shows while a kernel runs: one is the attention itself, several are steps towards it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Place, Callable[[], AttentionCall | None], torch.Size, bool]] = []

    def hears(self, place: Place, build: Callable[[], AttentionCall | None], shape: torch.Size, single: bool) -> None:
        self.calls.append((place, build, shape, single))


def _factored_call(
    module: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, mask: Any, given: Any, options: dict[str, Any]
) -> FactoredCall:
    """The call by its factors; position hides cells only where no mask says which are hidden."""
    visible, by_position = _mask_of(mask, queries, keys)
    if visible is not None:
        visible = visible[..., : keys.shape[2]]
    scale = options.get("scaling")
    causal = options.get("is_causal")
    output = given[0].transpose(1, 2)  # (batch, queries, heads, features) -> (batch, heads, queries, features)
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
    """The mask, broadcast to ``(batch, heads, queries, keys)``, and whether positions hide cells besides it."""
    if mask is None:
        return None, True
    if isinstance(mask, Tensor):
        return (mask.bool()[:, None, None, :], True) if mask.dim() == 2 else (mask, False)
    from torch.nn.attention.flex_attention import create_mask

    size = (len(queries), 1, queries.shape[2], keys.shape[2])
    return create_mask(mask.mask_mod, *size, device=str(queries.device)).to(torch.bool), False
