"""Finds the attention calls among the functions of torch that a thread has called.

The arguments of scaled dot-product attention and of torch's fused layers hold all of a call; of attention written by
hand its softmax does, once a matrix product has used the weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from attnviz.capture.arguments import (
    FUSED_ATTENTION,
    FUSED_LAYER,
    bind_dot_product,
    bind_fused,
    dot_product_call,
    einsum_operands,
    fused_attention_call,
    fused_layer_call,
    is_single,
    softmax_call,
)
from attnviz.capture.calls import AttentionCall, SoftmaxCall
from attnviz.capture.overwriting import intact
from attnviz.capture.readable import apart_from_the_run, why_unreadable
from attnviz.capture.sites import CallingModule, ModuleIndex
from attnviz.capture.token_places import TokenPlaces
from attnviz.capture.windows import Windows, windows_of

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Operands = tuple[Tensor, Tensor]
BuildCall = Callable[[], AttentionCall | None]
MIN_AXES = 2  # of queries and keys


class StopForward(BaseException):
    """Ends a forward pass from within, once all that was chosen is recorded; no model catches it as an error.

    Args:
        listener: whose forward pass it ends.
    """

    def __init__(self, listener: object) -> None:
        super().__init__()
        self.listener = listener


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

    def on_unreadable(self, caller: CallingModule, reason: str) -> None:
        """Receives an attention call on tensors that cannot be read, and what they are."""

    def on_failure(self, error: Exception) -> None:
        """Receives what went wrong while a call was looked at, for the end of the block: the run goes on."""


@dataclass(frozen=True, eq=False)
class TorchCall:
    """A function of torch that was called and has returned.

    Attributes:
        func: the function.
        args: its arguments.
        kwargs: those given by name.
        result: what it returned.
        logsumexp: of each row of an attention kernel, where it gives it.
        overwritten: a copy of a softmax's input, where its output is written over that.
    """

    func: Callable[..., Any]
    args: Arguments
    kwargs: Keywords
    result: Any
    logsumexp: Tensor | None = None
    overwritten: Tensor | None = None

    @property
    def name(self) -> str:
        """The function's name, without that of an operator's overload: an exported module calls ``matmul.default``."""
        return getattr(self.func, "__name__", "").partition(".")[0]


@dataclass(eq=False)
class PendingSoftmax:
    """A softmax that may turn out to be attention.

    Attributes:
        caller: the module that computed it.
        before: its input.
        after: its output.
        product: the operands of the last product before it.
        unreadable: why its tensors cannot be read, ``None`` where they can.
        copies: tensors that hold its output, also after dropout or in another number type.
        dropped: whether dropout changed the output, so that values and result do not belong to ``after``.
    """

    caller: CallingModule
    before: Tensor
    after: Tensor
    product: Operands | None
    unreadable: str | None = None
    copies: list[Tensor] = field(default_factory=list)
    dropped: bool = False

    def is_in(self, tensor: object) -> bool:
        """Whether the tensor holds these weights, with or without their last key."""
        return isinstance(tensor, Tensor) and any(_same_memory(tensor, copy) for copy in (self.after, *self.copies))


class Observer:
    """Follows the functions that a thread calls, and reports every attention call of the modules in the index.

    Args:
        modules: the modules of a model.
        listener: receives the calls.
    """

    def __init__(self, modules: ModuleIndex, listener: AttentionListener) -> None:
        self.modules = modules
        self.listener = listener
        self.pending: PendingSoftmax | None = None
        self.product: Operands | None = None
        self.cross: bool | None = None
        self.places = TokenPlaces()
        self.windows: Windows | None = None
        self.closed = False

    @contextmanager
    def looking(self) -> Iterator[None]:
        """The one door to a run: what goes wrong in the block never reaches the run, and waits for its end."""
        try:
            with apart_from_the_run():
                yield
        except Exception as error:
            self.pending = self.product = None
            self.listener.on_failure(error)

    def see(self, call: TorchCall) -> None:
        """Looks at a call."""
        handler = HANDLERS.get(call.name)
        if handler is None and self.pending is None and not self.places.follows(call.name):
            return
        with self.looking():
            if handler is not None:
                handler(self, call)
            else:
                if self.places.follows(call.name):
                    self.places.follow(call.func, call.args, call.kwargs, call.result)
                self._follow(call)

    def holders(self) -> list[PendingSoftmax]:
        """What holds tensors of the run that may still be written over."""
        return [] if self.pending is None else [self.pending]

    def flush(self) -> None:
        """Reports a pending softmax as attention if its module looks like attention."""
        pending, self.pending = self.pending, None
        if pending is not None and pending.caller.is_attention_like and pending.after.dim() > MIN_AXES:
            self._report_softmax(pending, pending.after.shape[-1], None, None)

    def _follow(self, call: TorchCall) -> None:
        """Remembers the tensor that a function computed from the pending weights."""
        pending, result = self.pending, call.result
        if pending is None or not call.args or not isinstance(result, Tensor) or not pending.is_in(call.args[0]):
            return
        if result.shape[:-1] == pending.after.shape[:-1] and not pending.is_in(result):
            pending.copies.append(result)
            pending.dropped |= "dropout" in call.name

    def on_dot_product(self, call: TorchCall) -> None:
        """``scaled_dot_product_attention``."""
        self.flush()
        given, output, logsumexp = bind_dot_product(*call.args, **call.kwargs), call.result, call.logsumexp
        caller = self.modules.running(self.cross)
        if caller is None or self._is_unreadable(caller, *given.values()):
            return
        heads = self.modules.head_count(caller)
        queries = given["query"]
        self._find_windows(queries, given["key"])
        self._report(
            caller,
            lambda: dot_product_call(given, output, logsumexp, heads),
            queries.shape,
            is_single(queries, heads),
        )

    def on_softmax(self, call: TorchCall) -> None:
        """A softmax over the last axis, which a product may show to be attention."""
        before = call.args[0] if call.args else call.kwargs["input"]
        axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        if not isinstance(axis, int) or before.dim() < MIN_AXES or axis % before.dim() != before.dim() - 1:
            return
        self.flush()
        caller = self.modules.running(self.cross)
        if caller is not None and before.is_floating_point():
            unreadable = why_unreadable(before, call.result)
            held = before if call.overwritten is None else call.overwritten
            self.pending = PendingSoftmax(caller, held, call.result, self.product, unreadable, [call.result])
        self.product = None

    def on_product(self, call: TorchCall) -> None:
        """A matrix product: of weights with values, where a softmax came before it."""
        pending = self.pending
        given = (*call.args, *(value for name, value in call.kwargs.items() if name != "out"))
        operands = [value for value in given if isinstance(value, Tensor)][-2:]
        if len(operands) < 2:
            return
        weights, values = operands
        readable = why_unreadable(weights, values, call.result) is None
        self.product = multiplied(call.name, weights, values, call.args) if readable else None
        if pending is None:
            return
        if pending.is_in(weights):
            plain = call.name != "einsum" and values.dim() == weights.dim()
            if plain or pending.caller.is_attention_like or call.name == "einsum":
                self.pending = None
                known = (values, call.result) if plain and readable and not pending.dropped else (None, None)
                self._report_softmax(pending, weights.shape[-1] if plain else pending.after.shape[-1], *known)
        elif pending.is_in(values):
            self.flush()

    def on_fused_layer(self, call: TorchCall) -> None:
        """An encoder layer in one kernel: its attention is computed again from its input and weights."""
        self.flush()
        given = bind_fused(call.name, FUSED_LAYER, call.args, call.kwargs)
        self._report_fused(self.modules.running(cross=False), lambda: fused_layer_call(given, call.result), given)

    def on_fused_attention(self, call: TorchCall) -> None:
        """``nn.MultiheadAttention`` in one kernel."""
        self.flush()
        given = bind_fused(call.name, FUSED_ATTENTION, call.args, call.kwargs)
        caller = self.modules.running(cross=given["query"] is not given["key"])
        self._report_fused(caller, lambda: fused_attention_call(given, call.result), given)

    def _report_fused(self, caller: CallingModule | None, build: BuildCall, given: Keywords) -> None:
        """Reports a fused kernel; of nested tensors it takes, unlike others, those of texts one after the other."""
        plain = [value for value in given.values() if not (type(value) is Tensor and value.is_nested)]
        if caller is not None and not self._is_unreadable(caller, *plain):
            self._report(caller, build, given["qkv_weight"].shape)

    def _report_softmax(self, pending: PendingSoftmax, keys: int, values: Tensor | None, output: Tensor | None) -> None:
        if pending.unreadable is not None:
            self.listener.on_unreadable(pending.caller, pending.unreadable)
            return
        heads = self.modules.head_count(pending.caller)
        before, after, product = pending.before, pending.after, pending.product
        self._find_windows(*(product or (None, None)), transposed=True)
        self._report(
            pending.caller,
            lambda: _intact_call(before, after, keys, values, output, heads, product),
            after.shape,
            is_single(after, heads),
        )

    def _find_windows(self, queries: Tensor | None, keys: Tensor | None, *, transposed: bool = False) -> None:
        """Finds the windows of a call; a model whose first call has none is no longer followed."""
        self.windows = None
        if not self.places.is_active:
            return
        origins = [None if tensor is None else self.places.of(tensor) for tensor in (queries, keys)]
        if origins[0] is not None and origins[1] is not None:
            self.windows = windows_of(origins[0], origins[1].transposed() if transposed else origins[1])
        if self.windows is None:
            self.places.stop()

    def _is_unreadable(self, caller: CallingModule, *values: object) -> bool:
        reason = why_unreadable(*values)
        if reason is not None:
            self.listener.on_unreadable(caller, reason)
        return reason is not None

    def _report(self, caller: CallingModule | None, build: BuildCall, shape: torch.Size, single: bool = False) -> None:
        if caller is not None:
            self.listener.on_attention(caller, build, shape, single)


HANDLERS: dict[str, Callable[[Observer, TorchCall], None]] = {
    "scaled_dot_product_attention": Observer.on_dot_product,
    "softmax": Observer.on_softmax,
    "special_softmax": Observer.on_softmax,
    "matmul": Observer.on_product,
    "bmm": Observer.on_product,
    "baddbmm": Observer.on_product,
    "einsum": Observer.on_product,
    "_transformer_encoder_layer_fwd": Observer.on_fused_layer,
    "_native_multi_head_attention": Observer.on_fused_attention,
}


def _intact_call(
    before: Tensor,
    after: Tensor,
    keys: int,
    values: Tensor | None,
    output: Tensor | None,
    heads: int | None,
    product: Operands | None,
) -> SoftmaxCall | None:
    """The call of a softmax whose input or output may have been overwritten, of its first keys."""
    before, after, note = intact(before, after)
    call = softmax_call(before[..., :keys], after[..., :keys], values, output, heads, product)
    return call if call is None or not note else replace(call, note=note)


def multiplied(name: str, first: Tensor, second: Tensor, args: Arguments) -> Operands | None:
    """Operands as ``(..., rows, features)`` and ``(..., features, columns)``, ``None`` where they have other axes."""
    if name == "einsum":
        return einsum_operands(args[0], first, second) if isinstance(args[0], str) else None
    return (first, second) if first.dim() == second.dim() >= MIN_AXES else None


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors begin at the same place and have the same rows."""
    if a is b:
        return True
    if why_unreadable(a, b) is not None or not a.dim():
        return False
    return a.data_ptr() == b.data_ptr() != 0 and a.numel() // max(a.shape[-1], 1) == b.numel() // max(b.shape[-1], 1)
