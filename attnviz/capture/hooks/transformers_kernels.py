"""Observes kernels that bypass torch's functions, by wrapping them in the attention interface of transformers."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, FactoredCall
from attnviz.capture.calls.layout import BatchShape
from attnviz.capture.calls.readable import unreadable_kind
from attnviz.capture.flow.lineage import Lineage
from attnviz.capture.flow.sites import CallingModule
from attnviz.capture.hooks.observing_mode import observers
from attnviz.capture.hooks.patches import Patch
from attnviz.capture.hooks.torch_functions import AttentionListener, BuildCall, ObservedCall, Observer

VISIBLE_TO_TORCH = "sdpa"  # torch's function mode observes all arguments of this implementation


def _interface() -> Any:
    """Returns the class that hands kernels to transformers models; ``None`` if it was not imported."""
    return getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)


def _interface_with_getter() -> Any:
    """Returns the interface, if it has a function that hands out kernels."""
    interface = _interface()
    return interface if interface is not None and hasattr(interface, "get_interface") else None


def _kernel_table() -> Any:
    """Returns the class whose items are kernels, in versions of transformers without such a function."""
    interface = None if _interface_with_getter() is not None else _interface()
    return next((base for base in getattr(interface, "__mro__", ()) if "__getitem__" in vars(base)), None)


def _with_observed_getter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the interface's function, which wraps each kernel that it hands out in observed threads."""

    def get_interface(table: Any, name: str | None, default: Callable[..., Any]) -> Callable[..., Any]:
        return _observed_kernel(original(table, name, default), name)

    return get_interface


def _with_observed_items(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the table's ``__getitem__``, which wraps kernels; other tables of this class hold no kernels."""

    def __getitem__(table: Any, name: str) -> Any:
        item = original(table, name)
        return _observed_kernel(item, name) if isinstance(table, _interface()) else item

    return __getitem__


def _observed_kernel(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """Returns a kernel that reports its calls; the kernel itself if torch shows them or nobody observes."""
    return function if name == VISIBLE_TO_TORCH or not observers() else partial(_call_observed, function)


TRANSFORMERS_PATCHES = (
    Patch(_interface_with_getter, "get_interface", _with_observed_getter),
    Patch(_kernel_table, "__getitem__", _with_observed_items),
)


def _call_observed(
    function: Callable[..., Any],
    module: nn.Module,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Any,
    **options: Any,
) -> Any:
    """Calls the kernel, and reports one call: the only one observed inside it, else the kernel's own.

    Args:
        function: the kernel.
        module: the module that attends.
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``.
        values: ``(batch, key heads, keys, features)``.
        mask: a tensor, a block mask of flex attention, or ``None``.
        options: further arguments of the kernel.
    """
    with ExitStack() as stack:
        observed_calls = [(observer, stack.enter_context(_collect_calls(observer))) for observer in observers()]
        result = function(module, queries, keys, values, mask, **options)
    build = partial(_factored_call, module, queries, keys, values, mask, result, options)
    for observer, calls in observed_calls:
        with observer.guarded():
            if len(calls) == 1:
                observer.listener.on_attention(calls[0]._replace(build=partial(_with_factors, calls[0].build, build)))
            elif reason := unreadable_kind(queries, keys, values, mask):
                observer.listener.on_unreadable(observer.modules.describe(module), reason)
            else:
                lineage = observer.flow.node(queries).lineage
                call = ObservedCall(observer.modules.describe(module), build, queries.shape, queries=lineage)
                observer.listener.on_attention(call)
    return result


@contextmanager
def _collect_calls(observer: Observer) -> Iterator[list[ObservedCall]]:
    """Yields a list that receives the calls observed in the block, in place of the listener."""
    listener = _VisibleCalls(observer.listener)
    observer.listener = listener
    try:
        yield listener.calls
    finally:
        observer.listener = listener.listener


def _with_factors(build_visible: BuildCall, build: Callable[[], FactoredCall]) -> AttentionCall | None:
    """Returns the observed call, a softmax with the kernel's factors; the kernel's call if it cannot be built."""
    call = build_visible()
    if call is None:
        return build()
    return replace(call, factors=build()) if isinstance(call, DenseCall) else call


class _VisibleCalls:
    """A listener that collects the calls observed inside a kernel: one is the attention, several are steps towards it.

    Args:
        listener: the observer's own listener.
    """

    def __init__(self, listener: AttentionListener) -> None:
        self.listener = listener
        self.calls: list[ObservedCall] = []

    def on_attention(self, call: ObservedCall) -> None:
        self.calls.append(call)

    def on_other(self, caller: CallingModule, shape: torch.Size, reason: str, is_attention: bool) -> None:
        """Ignores other softmaxes inside the kernel."""

    def batches_of(self, caller: CallingModule, queries: Lineage) -> Collection[BatchShape]:
        return self.listener.batches_of(caller, queries)

    def on_unreadable(self, caller: CallingModule, reason: str) -> None:
        """Ignores unreadable tensors inside the kernel: its own arguments decide."""

    def on_further_product(self) -> None:
        """Ignores products inside the kernel, which the output of attention does not enter."""

    def on_failure(self, error: Exception) -> None:
        self.listener.on_failure(error)


def _factored_call(
    module: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, mask: Any, result: Any, options: dict[str, Any]
) -> FactoredCall:
    """Returns the call by its factors; causality and window count only if no mask already contains them.

    Args:
        module: the module that attends.
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``.
        values: ``(batch, key heads, keys, features)``.
        mask: the mask that the kernel was given.
        result: the result of the kernel; the first item is the output.
        options: further arguments of the kernel.
    """
    visible, by_position = _mask_and_positions(mask, queries, keys)
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


def _mask_and_positions(mask: Any, queries: Tensor, keys: Tensor) -> tuple[Tensor | None, bool]:
    """Returns the mask, broadcast to ``(batch, heads, queries, keys)``, and True if positions hide further cells."""
    if mask is None:
        return None, True
    if isinstance(mask, Tensor):
        return (mask.bool()[:, None, None, :], True) if mask.dim() == 2 else (mask, False)
    from torch.nn.attention.flex_attention import create_mask

    size = (len(queries), 1, queries.shape[2], keys.shape[2])
    return create_mask(mask.mask_mod, *size, device=str(queries.device)).to(torch.bool), False
