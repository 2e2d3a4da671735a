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
    """Returns the interface if it was imported and has a function that hands out kernels; ``None`` otherwise."""
    interface = _interface()
    return interface if interface is not None and hasattr(interface, "get_interface") else None


def _kernel_table() -> Any:
    """Returns the class whose items are kernels; ``None`` if a function hands out kernels, or without transformers."""
    interface = None if _interface_with_getter() is not None else _interface()
    return next((base for base in getattr(interface, "__mro__", ()) if "__getitem__" in vars(base)), None)


def _with_observed_getter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a replacement of the function that hands out kernels; it applies `_observed_kernel` to each of them."""

    def get_interface(table: Any, name: str | None, default: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the kernel of this name, or the default one, as `_observed_kernel` returns it."""
        return _observed_kernel(original(table, name, default), name)

    return get_interface


def _with_observed_items(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a replacement of a table's ``__getitem__``; it applies `_observed_kernel` to each kernel.

    Items of tables that share the method, but are not of the interface's class, are no kernels: they stay as they are.

    Args:
        original: the method ``__getitem__`` of the table's class.
    """

    def __getitem__(table: Any, name: str) -> Any:
        """Returns the item of this name; a kernel as `_observed_kernel` returns it."""
        item = original(table, name)
        return _observed_kernel(item, name) if isinstance(table, _interface()) else item

    return __getitem__


def _observed_kernel(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """Returns a kernel that reports its calls; the kernel unchanged if torch shows its calls, or no observer is open.

    Args:
        function: the kernel.
        name: its name in the interface; ``None`` for the model's eager attention.
    """
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
    """Calls a kernel, reports one call to each observer, and returns the kernel's result.

    If exactly one call was observed inside the kernel, it is reported. Otherwise the kernel itself is reported as the
    call, or the kind of its tensors if they cannot be read.

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
            elif kind := unreadable_kind(queries, keys, values, mask):
                observer.listener.on_unreadable(observer.modules.describe(module), kind)
            else:
                observer.passes.is_plain = False
                lineage = observer.flow.node(queries).lineage
                call = ObservedCall(observer.modules.describe(module), build, queries.shape, queries=lineage)
                observer.listener.on_attention(call)
    return result


@contextmanager
def _collect_calls(observer: Observer) -> Iterator[list[ObservedCall]]:
    """Yields a list that collects the attention calls that the observer observes in the block.

    The observer's listener is replaced in the block, so that it does not receive them.
    """
    original_listener = observer.listener
    collector = _CallCollector(original_listener)
    observer.listener = collector
    try:
        yield collector.calls
    finally:
        observer.listener = original_listener


def _with_factors(build_observed: BuildCall, build_kernel_call: Callable[[], FactoredCall]) -> AttentionCall | None:
    """Returns the observed call, with the kernel's factors if it is dense; the kernel's call if none was observed.

    Args:
        build_observed: returns the call that was observed inside the kernel; ``None`` if it is no attention.
        build_kernel_call: returns the kernel's call, by its factors.
    """
    call = build_observed()
    if call is None:
        return build_kernel_call()
    return replace(call, factors=build_kernel_call()) if isinstance(call, DenseCall) else call


class _CallCollector:
    """A listener that collects the calls observed inside a kernel: one is the attention, several are steps towards it.

    Args:
        listener: the observer's own listener.
    """

    def __init__(self, listener: AttentionListener) -> None:
        self.listener = listener
        self.calls: list[ObservedCall] = []

    def on_attention(self, call: ObservedCall) -> None:
        """Keeps the call."""
        self.calls.append(call)

    def on_other(self, caller: CallingModule, shape: torch.Size, kind: str, is_attention: bool) -> None:
        """Ignores softmaxes inside the kernel that are no attention; arguments as for any listener."""

    def batches_of(self, caller: CallingModule, queries: Lineage) -> Collection[BatchShape]:
        """Returns the shapes that the observer's listener returns."""
        return self.listener.batches_of(caller, queries)

    def on_unreadable(self, caller: CallingModule, kind: str) -> None:
        """Ignores unreadable tensors inside the kernel: its own arguments decide."""

    def on_further_product(self) -> None:
        """Ignores products inside the kernel: the output of attention enters none of them."""

    def on_failure(self, error: Exception) -> None:
        """Hands an error to the observer's listener."""
        self.listener.on_failure(error)


def _factored_call(
    module: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, mask: Any, result: Any, options: dict[str, Any]
) -> FactoredCall:
    """Returns the call of a kernel, by its factors.

    It has causality and a window only if the mask does not hold them. Its output is ``None`` if the kernel applied
    dropout, or returned it in another shape. The first item of ``result`` is the output of the kernel; all other
    parameters are those of `_call_observed`.
    """
    full_mask, hides_by_position = _mask_and_positions(mask, queries, keys)
    scale = options.get("scaling")
    causal = options.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", False)
    output = result[0].transpose(1, 2)  # (batch, queries, heads, features) -> (batch, heads, queries, features)
    has_exact_output = output.shape[:3] == queries.shape[:3] and not options.get("dropout")
    return FactoredCall(
        queries=queries,
        keys=keys,
        values=values,
        output=output if has_exact_output else None,
        scale=queries.shape[-1] ** -0.5 if scale is None else scale,
        mask=None if full_mask is None else full_mask[..., : keys.shape[2]],  # a mask may be longer than the keys
        causal=hides_by_position and bool(causal),
        window=options.get("sliding_window") if hides_by_position else None,
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )


def _mask_and_positions(mask: Any, queries: Tensor, keys: Tensor) -> tuple[Tensor | None, bool]:
    """Returns the mask of a kernel with four axes, and True if causality and window hide further cells.

    They do if there is no mask, or if it is ``(batch, keys)``, which hides only padding.

    Args:
        mask: a tensor, a block mask of flex attention, or ``None``.
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``.

    Returns:
        The mask, which broadcasts to ``(batch, heads, queries, keys)``, or ``None`` if there is none; and the flag.
    """
    if mask is None:
        return None, True
    if isinstance(mask, Tensor):
        hides_only_padding = mask.dim() == 2
        return (mask.bool()[:, None, None, :], True) if hides_only_padding else (mask, False)
    from torch.nn.attention.flex_attention import create_mask

    size = (len(queries), 1, queries.shape[2], keys.shape[2])
    return create_mask(mask.mask_mod, *size, device=str(queries.device)).to(torch.bool), False
