"""Observes every attention call that torch makes in a forward pass, without changing what it computes.

While the mode is active torch hands it each function that is called. The arguments of scaled dot-product attention and
of torch's fused layers hold all of a call; of attention written by hand its softmax does, once a matrix product has
used the weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnviz.attention.kernels import dot_product
from attnviz.capture.arguments import (
    FUSED_ATTENTION,
    FUSED_LAYER,
    bind_dot_product,
    bind_fused,
    bind_query_and_key,
    dot_product_call,
    einsum_operands,
    fused_attention_call,
    fused_layer_call,
    is_single,
    softmax_call,
)
from attnviz.capture.calls import AttentionCall
from attnviz.capture.sites import CallingModule, ModuleIndex

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Operands = tuple[Tensor, Tensor]
BuildCall = Callable[[], AttentionCall | None]
MIN_AXES = 2  # of queries and keys


class AttentionListener(Protocol):
    """Receives the attention calls of a forward pass."""

    def on_attention(self, caller: CallingModule, build: BuildCall, shape: torch.Size, single: bool) -> None:
        """Receives one call.

        Args:
            caller: the module that made it.
            build: computes the call, ``None`` where it is no softmax over queries x keys; used for chosen layers alone.
            shape: of the queries or the weights, for messages.
            single: whether it has no axis of heads.
        """


@dataclass(eq=False)
class PendingSoftmax:
    """A softmax that may turn out to be attention.

    Attributes:
        caller: the module that computed it.
        before: its input.
        after: its output.
        product: the operands of the last product before it.
        copies: tensors that hold its output, also after dropout or in another number type.
        dropped: whether dropout changed the output, so that values and result do not belong to ``after``.
    """

    caller: CallingModule
    before: Tensor
    after: Tensor
    product: Operands | None
    copies: list[Tensor] = field(default_factory=list)
    dropped: bool = False

    def is_in(self, tensor: object) -> bool:
        """Whether the tensor holds these weights, with or without their last key."""
        return isinstance(tensor, Tensor) and any(_same_memory(tensor, copy) for copy in (self.after, *self.copies))


class AttentionMode(TorchFunctionMode):
    """Reports every attention call of the modules in the index to a listener."""

    def __init__(self, modules: ModuleIndex, listener: AttentionListener) -> None:
        super().__init__()
        self.modules = modules
        self.listener = listener
        self.pending: PendingSoftmax | None = None
        self.product: Operands | None = None
        self.cross: bool | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        """Calls the function as it was called, and follows what may be attention."""
        handler = HANDLERS.get(getattr(func, "__name__", ""))
        if handler is not None:
            return handler(self, func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if self.pending is not None and args and isinstance(result, Tensor) and self.pending.is_in(args[0]):
            self._follow(func, result)
        return result

    def flush(self) -> None:
        """Reports a pending softmax as attention if its module looks like attention."""
        pending, self.pending = self.pending, None
        if pending is not None and pending.caller.is_attention_like and pending.after.dim() > MIN_AXES:
            self._report_softmax(pending, pending.after.shape[-1], None, None)

    def _follow(self, func: Callable[..., Any], result: Tensor) -> None:
        """Remembers the tensor that a function computed from the pending weights."""
        pending = self.pending
        if pending is not None and result.shape[:-1] == pending.after.shape[:-1] and not pending.is_in(result):
            pending.copies.append(result)
            pending.dropped |= "dropout" in getattr(func, "__name__", "")

    def on_dot_product(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """``scaled_dot_product_attention``."""
        given = bind_dot_product(*args, **kwargs)
        output, logsumexp = dot_product(func, given)
        self.flush()
        caller = self.modules.running(self.cross)
        if caller is not None:
            heads = self.modules.head_count(caller)
            queries = given["query"]
            self._report(
                caller,
                lambda: dot_product_call(given, output, logsumexp, heads),
                queries.shape,
                is_single(queries, heads),
            )
        return output

    def on_softmax(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """A softmax over the last axis, which a product may show to be attention."""
        after = func(*args, **kwargs)
        before = args[0] if args else kwargs["input"]
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(axis, int) or before.dim() < MIN_AXES or axis % before.dim() != before.dim() - 1:
            return after
        self.flush()
        caller = self.modules.running(self.cross)
        if caller is not None and before.is_floating_point():
            self.pending = PendingSoftmax(caller, before, after, self.product)
        self.product = None
        return after

    def on_product(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """A matrix product: of weights with values, where a softmax came before it."""
        result = func(*args, **kwargs)
        pending = self.pending
        given = (*args, *(value for name, value in kwargs.items() if name != "out"))
        operands = [value for value in given if isinstance(value, Tensor)][-2:]
        if len(operands) < 2:
            return result
        self.product = multiplied(func, operands[0], operands[1], args)
        if pending is None:
            return result
        weights, values = operands
        if pending.is_in(weights):
            plain = getattr(func, "__name__", "") != "einsum" and values.dim() == weights.dim()
            if plain or pending.caller.is_attention_like or func.__name__ == "einsum":
                self.pending = None
                known = (values, result) if plain and not pending.dropped else (None, None)
                self._report_softmax(pending, weights.shape[-1] if plain else pending.after.shape[-1], *known)
        elif pending.is_in(values):
            self.flush()
        return result

    def on_multi_head(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """``multi_head_attention_forward``: the mode stays active for the functions that it calls."""
        query, key = bind_query_and_key(*args, **kwargs)
        with replaced(functional, "has_torch_function", lambda tensors: False):
            self.cross = query is not key
            try:
                with self:
                    return func(*args, **kwargs)
            finally:
                self.cross = None

    def on_fused_layer(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """An encoder layer in one kernel: its attention is computed again from its input and weights."""
        output = func(*args, **kwargs)
        self.flush()
        given = bind_fused(func.__name__, FUSED_LAYER, args, kwargs)
        self._report(self.modules.running(cross=False), lambda: fused_layer_call(given), given["qkv_weight"].shape)
        return output

    def on_fused_attention(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """``nn.MultiheadAttention`` in one kernel."""
        output = func(*args, **kwargs)
        self.flush()
        given = bind_fused(func.__name__, FUSED_ATTENTION, args, kwargs)
        caller = self.modules.running(cross=given["query"] is not given["key"])
        self._report(caller, lambda: fused_attention_call(given), given["qkv_weight"].shape)
        return output

    def _report_softmax(self, pending: PendingSoftmax, keys: int, values: Tensor | None, output: Tensor | None) -> None:
        heads = self.modules.head_count(pending.caller)
        before, after, product = pending.before, pending.after, pending.product
        self._report(
            pending.caller,
            lambda: softmax_call(before[..., :keys], after[..., :keys], values, output, heads, product),
            after.shape,
            is_single(after, heads),
        )

    def _report(self, caller: CallingModule | None, build: BuildCall, shape: torch.Size, single: bool = False) -> None:
        if caller is not None:
            self.listener.on_attention(caller, build, shape, single)


HANDLERS: dict[str, Callable[[AttentionMode, Callable[..., Any], Arguments, Keywords], Any]] = {
    "scaled_dot_product_attention": AttentionMode.on_dot_product,
    "softmax": AttentionMode.on_softmax,
    "special_softmax": AttentionMode.on_softmax,
    "matmul": AttentionMode.on_product,
    "bmm": AttentionMode.on_product,
    "baddbmm": AttentionMode.on_product,
    "einsum": AttentionMode.on_product,
    "multi_head_attention_forward": AttentionMode.on_multi_head,
    "_transformer_encoder_layer_fwd": AttentionMode.on_fused_layer,
    "_native_multi_head_attention": AttentionMode.on_fused_attention,
}


def multiplied(func: Callable[..., Any], first: Tensor, second: Tensor, args: Arguments) -> Operands | None:
    """Operands as ``(..., rows, features)`` and ``(..., features, columns)``, ``None`` where they have other axes."""
    if getattr(func, "__name__", "") == "einsum":
        return einsum_operands(args[0], first, second) if isinstance(args[0], str) else None
    return (first, second) if first.dim() == second.dim() >= MIN_AXES else None


@contextmanager
def fused_kernels_allowed() -> Iterator[None]:
    """Lets torch's fused layers run under a mode, which torch would otherwise treat as overriding their functions."""
    with replaced(torch.overrides, "has_torch_function", _is_overridden):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces an attribute while the block runs."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def _is_overridden(tensors: Any) -> bool:
    """Whether any of the arguments is of a class that overrides torch's functions."""
    inert = torch._C._disabled_torch_function_impl
    return any(
        getattr(type(tensor), "__torch_function__", inert) is not inert and type(tensor) is not Tensor
        for tensor in tensors
    )


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors begin at the same place and have the same rows."""
    if a is b:
        return True
    if a.is_meta or b.is_meta or a.is_nested or b.is_nested or not a.dim():
        return False
    return a.data_ptr() == b.data_ptr() != 0 and a.numel() // max(a.shape[-1], 1) == b.numel() // max(b.shape[-1], 1)
