"""Every attention call that torch makes in a forward pass, seen from beside it: nothing that it computes is changed.

While the mode is active torch shows it each of its functions. Scaled dot-product attention and torch's fused layers
say what they attend to; of attention written by hand the softmax does, if a matrix product then uses what came out.
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
    bind_dot_product,
    bind_pair,
    dot_product_call,
    einsum_pair,
    fused_call,
    is_single,
    softmax_call,
)
from attnviz.capture.calls import AttentionCall
from attnviz.capture.sites import Place, Places

Arguments = tuple[Any, ...]
Options = dict[str, Any]
Pair = tuple[Tensor, Tensor]
NEVER_MIXED = 2  # axes: a softmax over fewer is no map of queries x keys


class Listener(Protocol):
    """What is told of the calls."""

    def hears(self, place: Place, build: Callable[[], AttentionCall | None], shape: torch.Size, single: bool) -> None:
        """A call was made at the place; ``build`` gives it, or ``None`` where it is no queries x keys softmax.

        Args:
            place: the module that made it.
            build: gives the call; only called where its layer was chosen.
            shape: of the queries or the weights, for messages.
            single: whether it has no axis of heads.
        """


@dataclass(eq=False)
class Pending:
    """A softmax that may turn out to be attention.

    Attributes:
        place: the module that computed it.
        before: what went in.
        after: what came out.
        product: what was multiplied last before it.
        copies: tensors that hold what came out, or what dropout or another number type made of it.
        dropped: whether dropout changed it, so that the product no longer shows what it was.
    """

    place: Place
    before: Tensor
    after: Tensor
    product: Pair | None
    copies: list[Tensor] = field(default_factory=list)
    dropped: bool = False

    def is_in(self, tensor: object) -> bool:
        """Whether the tensor holds these weights, perhaps without their last key."""
        return isinstance(tensor, Tensor) and any(_same_memory(tensor, copy) for copy in (self.after, *self.copies))


class AttentionMode(TorchFunctionMode):
    """Tells a listener of every attention call of the modules in ``places``."""

    def __init__(self, places: Places, listener: Listener) -> None:
        super().__init__()
        self.places = places
        self.listener = listener
        self.pending: Pending | None = None
        self.product: Pair | None = None
        self.cross: bool | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Arguments = (), kwargs: Options | None = None
    ) -> Any:
        """Calls the function as it was called, and looks at what it was if it may be attention."""
        handler = HANDLERS.get(getattr(func, "__name__", ""))
        if handler is not None:
            return handler(self, func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if self.pending is not None and args and isinstance(result, Tensor) and self.pending.is_in(args[0]):
            self._follow(func, result)
        return result

    def flush(self) -> None:
        """Tells of a softmax that no product used, where its module's name says that it attends."""
        pending, self.pending = self.pending, None
        if pending is not None and pending.place.is_attention_like and pending.after.dim() > NEVER_MIXED:
            self._tell_softmax(pending, pending.after.shape[-1], None, None)

    def _follow(self, func: Callable[..., Any], result: Tensor) -> None:
        """Remembers what a function made of the weights that await their product."""
        pending = self.pending
        if pending is not None and result.shape[:-1] == pending.after.shape[:-1] and not pending.is_in(result):
            pending.copies.append(result)
            pending.dropped |= "dropout" in getattr(func, "__name__", "")

    def on_dot_product(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """``scaled_dot_product_attention``."""
        given = bind_dot_product(*args, **kwargs)
        output, logsumexp = dot_product(func, given)
        self.flush()
        place = self.places.nearest(self.cross)
        if place is not None:
            heads = self.places.head_count(place)
            queries = given["query"]
            self.listener.hears(
                place,
                lambda: dot_product_call(given, output, logsumexp, heads),
                queries.shape,
                is_single(queries, heads),
            )
        return output

    def on_softmax(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """A softmax over the last axis, which a product may show to be attention."""
        after = func(*args, **kwargs)
        before = args[0] if args else kwargs["input"]
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(axis, int) or before.dim() < NEVER_MIXED or axis % before.dim() != before.dim() - 1:
            return after
        self.flush()
        place = self.places.nearest(self.cross)
        if place is not None and before.is_floating_point():
            self.pending = Pending(place, before, after, self.product)
        self.product = None
        return after

    def on_product(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
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
            if plain or pending.place.is_attention_like or func.__name__ == "einsum":
                self.pending = None
                known = (values, result) if plain and not pending.dropped else (None, None)
                self._tell_softmax(pending, weights.shape[-1] if plain else pending.after.shape[-1], *known)
        elif pending.is_in(values):
            self.flush()
        return result

    def on_multi_head(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """``multi_head_attention_forward``: the functions that it calls are shown to this mode as well."""
        query, key = bind_pair(*args, **kwargs)
        with replaced(functional, "has_torch_function", lambda tensors: False):
            self.cross = query is not key
            try:
                with self:
                    return func(*args, **kwargs)
            finally:
                self.cross = None

    def on_fused_layer(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """An encoder layer in one kernel: its attention is worked out from its input and weights."""
        output = func(*args, **kwargs)
        self.flush()
        place = self.places.nearest(cross=False)
        source, _, heads, weight, bias = args[:5]
        norm = (args[9], args[10], args[11]) if args[8] else None
        mask, mask_type = args[-2:]
        if place is not None:
            self.listener.hears(
                place,
                lambda: fused_call((source,) * 3, heads, weight, bias, norm, mask, mask_type),
                weight.shape,
                False,
            )
        return output

    def on_fused_attention(self, func: Callable[..., Any], args: Arguments, kwargs: Options) -> Any:
        """``nn.MultiheadAttention`` in one kernel."""
        output = func(*args, **kwargs)
        self.flush()
        place = self.places.nearest(cross=args[0] is not args[1])
        heads, weight, bias = args[4:7]
        mask, mask_type = args[9], args[12] if len(args) > 12 else kwargs.get("mask_type")
        if place is not None:
            self.listener.hears(
                place, lambda: fused_call(args[:3], heads, weight, bias, None, mask, mask_type), weight.shape, False
            )
        return output

    def _tell_softmax(self, pending: Pending, keys: int, values: Tensor | None, output: Tensor | None) -> None:
        heads = self.places.head_count(pending.place)
        after = pending.after
        self.listener.hears(
            pending.place,
            lambda: softmax_call(pending.before[..., :keys], after[..., :keys], values, output, heads, pending.product),
            after.shape,
            is_single(after, heads),
        )


HANDLERS: dict[str, Callable[[AttentionMode, Callable[..., Any], Arguments, Options], Any]] = {
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


def multiplied(func: Callable[..., Any], first: Tensor, second: Tensor, args: Arguments) -> Pair | None:
    """The operands of a product as ``(..., rows, features)`` and ``(..., features, columns)``, if they can be."""
    if getattr(func, "__name__", "") == "einsum":
        return einsum_pair(args[0], first, second) if isinstance(args[0], str) else None
    return (first, second) if first.dim() == second.dim() >= NEVER_MIXED else None


@contextmanager
def fused_kernels_allowed() -> Iterator[None]:
    """Lets torch's fused layers run as they would without a mode: it takes them for overridden functions else."""
    with replaced(torch.overrides, "has_torch_function", _is_overridden):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """The attribute replaced for a while."""
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
