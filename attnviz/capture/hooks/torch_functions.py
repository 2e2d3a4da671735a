"""Finds the attention calls among the functions of torch that a thread has called.

The arguments of scaled dot-product attention and of torch's fused layers hold all of a call. Attention written by hand
is found in the flow of data from one function to the next.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from attnviz.capture.assembly.output_projection import ProjectionSearch
from attnviz.capture.assembly.windows import Windows, windows_of
from attnviz.capture.calls.arguments import (
    FUSED_ATTENTION,
    FUSED_LAYER,
    bind_dot_product,
    bind_fused,
    fused_attention_call,
    fused_layer_call,
)
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.calls.layout import layout_of_use
from attnviz.capture.calls.observed_calls import comes_from_elsewhere, kernel_call, kernel_layouts, use_call
from attnviz.capture.calls.readable import apart_from_the_run, why_unreadable
from attnviz.capture.flow.axes import FEATURES, is_all
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.capture.flow.functions import PICKING, tensors_in
from attnviz.capture.flow.lineage import NOTHING, Lineage
from attnviz.capture.flow.nodes import Candidate, Scores, Use
from attnviz.capture.flow.picked_rows import OperandPicks, PickedRows
from attnviz.capture.flow.products import PRODUCTS
from attnviz.capture.flow.sites import CallingModule, ModuleIndex
from attnviz.capture.flow.token_places import TokenPlaces

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
BuildCall = Callable[[], AttentionCall | None]
MIN_AXES = 2  # of queries and features
OTHER_HEADS = "weights whose axes do not fit the heads that the module says it has"
UNUSED = "a softmax whose result multiplies no values that were seen"


class StopForward(BaseException):
    """Ends a forward pass from within, once all that was chosen is recorded; no model catches it as an error.

    Args:
        listener: whose forward pass it ends.
    """

    def __init__(self, listener: object) -> None:
        super().__init__()
        self.listener = listener


class SeenCall(NamedTuple):
    """An attention call of a running model, not looked at yet.

    Attributes:
        caller: the module that made it.
        build: computes the call, ``None`` where it is no softmax over queries x keys; used for chosen layers alone.
        shape: of the queries or the weights, for messages.
        single: whether it has no axis of heads.
        queries: what its queries were computed from.
        keys: the same of its keys.
        is_additive: whether its scores are made of sums of queries and keys, and no products.
    """

    caller: CallingModule
    build: BuildCall
    shape: torch.Size
    single: bool = False
    queries: Lineage = NOTHING
    keys: Lineage = NOTHING
    is_additive: bool = False

    @property
    def may_be_step(self) -> bool:
        """Whether a recurrent decoder may have made its queries of its state."""
        return self.is_additive or self.queries.recurrent


class AttentionListener(Protocol):
    """Receives the attention calls of a forward pass."""

    def on_attention(self, call: SeenCall) -> None:
        """Receives one call."""

    def on_other(self, caller: CallingModule, shape: torch.Size, reason: str, is_attention: bool) -> None:
        """Receives what is no map of queries and keys.

        Args:
            caller: the module that computed it.
            shape: what it computed.
            reason: what it is.
            is_attention: whether it attends in another way.
        """

    def on_unreadable(self, caller: CallingModule, reason: str) -> None:
        """Receives an attention call on tensors that cannot be read, and what they are."""

    def on_further_product(self) -> None:
        """Receives that a product was computed that what attention gave does not enter."""

    def on_failure(self, error: Exception) -> None:
        """Receives what went wrong while a call was looked at, for the end of the block: the run goes on."""


class TorchCall(NamedTuple):
    """A function of torch that was called and has returned.

    Attributes:
        name: of the function, without that of an operator's overload: an exported module calls ``matmul.default``.
        func: the function.
        args: its arguments.
        kwargs: those given by name.
        result: what it returned.
        logsumexp: of each row of an attention kernel, where it gives it.
        overwritten: a copy of a softmax's input, where its output is written over that.
    """

    name: str
    func: Callable[..., Any]
    args: Arguments
    kwargs: Keywords
    result: Any
    logsumexp: Tensor | None = None
    overwritten: Tensor | None = None


class Looking(AbstractContextManager[None]):
    """A look at a run, apart from it.

    Args:
        listener: receives what goes wrong.
    """

    def __init__(self, listener: AttentionListener) -> None:
        self.listener, self.apart = listener, apart_from_the_run()

    def __enter__(self) -> None:
        self.apart.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        """Tells the listener of an error, and keeps it from the run."""
        self.apart.__exit__(kind, error, trace)
        if not isinstance(error, Exception):
            return False
        self.listener.on_failure(error)
        return True


class Observer:
    """Follows the functions that a thread calls, and reports every attention call of the modules in the index.

    Args:
        modules: the modules of a model.
        listener: receives the calls.
    """

    def __init__(self, modules: ModuleIndex, listener: AttentionListener) -> None:
        self.modules = modules
        self.listener = listener
        self.flow = DataFlow(modules.modules.values(), self._running, self._on_use, self._on_unused)
        self.cross: bool | None = None
        self.places = TokenPlaces()
        self.picked = PickedRows()
        self.windows: Windows | None = None
        self.search: ProjectionSearch | None = None
        self.ends_after_search = False
        self.closed = False

    def looking(self) -> "Looking":
        """The one door to a run: what goes wrong in the block never reaches the run, and waits for its end."""
        return Looking(self.listener)

    def see(self, call: TorchCall) -> None:
        """Looks at a call."""
        handler = HANDLERS.get(call.name)
        if handler is not None or (self.places.is_active and self.places.follows(call.name)):
            with self.looking():
                if handler is not None:
                    handler(self, call)
                else:
                    self.places.follow(call.name, call.func, call.args, call.kwargs, call.result)
        self._follow(call)
        if (self.picked.is_active or call.name in PICKING) and self.picked.follows(call.name, call.args):
            with self.looking():
                self.picked.follow(call.name, call.func, call.args, call.kwargs, call.result, self._rows_of, self._runs)
        if self.search is not None and self.search.is_looking and call.name in PRODUCTS:
            self._find_projection(self.search, call)

    def _follow(self, call: TorchCall) -> None:
        """Follows the flow of data through a call; of tensors that cannot be read nothing is known."""
        try:
            with torch._C.DisableTorchFunction():
                self.flow.see(call.name, call.args, call.kwargs, call.result, call.overwritten)
        except Exception as error:
            if why_unreadable(*tensors_in((call.args, tuple(call.kwargs.values()), call.result))) is None:
                self.listener.on_failure(error)

    def _rows_of(self, tensor: Tensor) -> list[int]:
        """The axes of a tensor along which rows may be picked: of tokens or texts, and of what depends on the input."""
        node = self.flow.node(tensor)
        if node.constant or tensor.dim() < MIN_AXES:
            return []
        rows = enumerate(tensor.shape[:-1] if node.fresh else tensor.shape)
        return [at for at, size in rows if size > 1 and not is_all(node.axes[at], FEATURES)]

    def _runs(self) -> nn.Module | None:
        running = self._running()
        return None if running is None else running.module

    def _picks_of(self, caller: CallingModule, queries: Tensor, keys: Tensor) -> OperandPicks | None:
        """Which rows queries and keys are that were picked from more; ``None`` where none were."""
        picks = OperandPicks(caller.module, self.picked.of(queries), self.picked.of(keys))
        return picks if picks.queries is not None or picks.keys is not None else None

    def _find_projection(self, search: ProjectionSearch, call: TorchCall) -> None:
        """Looks for the projection of what attention gave, and tells of a product that is none."""
        with self.looking():
            if not search.see(
                call.name, call.args, call.kwargs, call.result, lambda each: self.flow.node(each).constant
            ):
                self.listener.on_further_product()

    def holders(self) -> list[Candidate]:
        """What holds tensors of the run that may still be written over."""
        return list(self.flow.unused())

    def flush(self) -> None:
        """Reports what was normalised and multiplied nothing that was seen."""
        self.flow.flush()

    def _on_unused(self, candidate: Candidate) -> None:
        if self._is_unreadable(candidate.caller, candidate.before, candidate.after):
            return
        if not candidate.is_over_features and candidate.normaliser == "softmax":
            self.listener.on_other(candidate.caller, candidate.shape, UNUSED, True)

    def _running(self) -> CallingModule | None:
        return self.modules.running(self.cross)

    def _on_use(self, use: Use) -> None:
        """Reports a product that sums over what was normalised, as attention or as what it is."""
        with self.looking():
            self._report_use(use)

    def _report_use(self, use: Use) -> None:
        use = replace(use, candidate=replace(use.candidate))  # the flow lets go of its tensors once it is told
        candidate = use.candidate
        caller = self._kind_by_flow(candidate)
        if use.refusal is not None:
            attends = candidate.scores is not None or not candidate.is_over_features
            self.listener.on_other(caller, candidate.shape, use.refusal, attends)
            return
        if self._is_unreadable(caller, candidate.before, candidate.after, use.product.right, use.result):
            return
        layout = layout_of_use(use, self.modules.head_count(caller))
        if layout is None:
            self.listener.on_other(caller, candidate.shape, OTHER_HEADS, True)
            return
        self._find_windows_of(candidate.scores)
        scores = candidate.scores
        product = None if scores is None else scores.product
        picks = None if product is None else self._picks_of(caller, product.left, product.right)
        build = partial(use_call, use, layout, picks)
        lineages = (candidate.lineage,) if scores is None else (scores.left_lineage, scores.right_lineage)
        seen = SeenCall(caller, build, candidate.shape, layout.is_single, *lineages)
        self.listener.on_attention(seen._replace(is_additive=scores is None and candidate.paired))

    def _kind_by_flow(self, candidate: Candidate) -> CallingModule:
        elsewhere = self.cross is None and candidate.scores is not None and candidate.scores.kind_is_cross
        return self.modules.describe(candidate.caller.module, True) if elsewhere else candidate.caller

    def on_dot_product(self, call: TorchCall) -> None:
        """``scaled_dot_product_attention``."""
        given, output, logsumexp = bind_dot_product(*call.args, **call.kwargs), call.result, call.logsumexp
        queries, caller = given["query"], self.modules.running(self.cross)
        if caller is None or self._is_unreadable(caller, *given.values()):
            return
        nodes = [self.flow.node(given[name]) for name in ("query", "key")]
        if self.cross is None and comes_from_elsewhere(*nodes):
            caller = self.modules.describe(caller.module, True)
        self._find_windows(queries, given["key"])
        layouts = kernel_layouts(self.flow, given, self.modules.head_count(caller))
        single = queries.dim() <= MIN_AXES + 1 and not any(role == "heads" for axis in layouts[0] for _, role in axis)
        build = partial(kernel_call, given, output, logsumexp, layouts, self._picks_of(caller, queries, given["key"]))
        lineages = nodes[0].lineage, nodes[1].lineage
        self.listener.on_attention(SeenCall(caller, build, queries.shape, single, *lineages))

    def on_fused_layer(self, call: TorchCall) -> None:
        """An encoder layer in one kernel: its attention is computed again from its input and weights."""
        given = bind_fused(call.name, FUSED_LAYER, call.args, call.kwargs)
        self._report_fused(
            self.modules.running(cross=False), partial(fused_layer_call, given, call.result), given, "src"
        )

    def on_fused_attention(self, call: TorchCall) -> None:
        """``nn.MultiheadAttention`` in one kernel."""
        given = bind_fused(call.name, FUSED_ATTENTION, call.args, call.kwargs)
        caller = self.modules.running(cross=self.is_elsewhere(given["query"], given["key"]))
        self._report_fused(caller, partial(fused_attention_call, given, call.result), given, "query")

    def _report_fused(self, caller: CallingModule | None, build: BuildCall, given: Keywords, queries: str) -> None:
        """Reports a fused kernel; of nested tensors it takes, unlike others, those of texts one after the other."""
        plain = [value for value in given.values() if not (type(value) is Tensor and value.is_nested)]
        if caller is not None and not self._is_unreadable(caller, *plain):
            lineage = NOTHING if given[queries].is_nested else self.flow.node(given[queries]).lineage
            self.listener.on_attention(SeenCall(caller, build, given["qkv_weight"].shape, queries=lineage))

    def is_elsewhere(self, queries: Tensor, keys: Tensor) -> bool:
        """Whether keys are of another text than queries, of which both are known before they are projected."""
        if queries is keys or (queries.shape == keys.shape and torch.equal(queries, keys)):
            return False
        from_queries, from_keys = (self.flow.node(each).lineage.roots for each in (queries, keys))
        return not from_queries & from_keys

    def _find_windows_of(self, scores: Scores | None) -> None:
        """Finds the windows of a call written by hand, whose keys are the second operand of the product before it."""
        product = None if scores is None else scores.product
        if product is None or not product.left_letters.endswith(product.summed):
            return self._find_windows(None, None)
        transposed = not product.right_letters.endswith(product.summed)
        return self._find_windows(product.left, product.right, transposed=transposed)

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


HANDLERS: dict[str, Callable[[Observer, TorchCall], None]] = {
    "scaled_dot_product_attention": Observer.on_dot_product,
    "_transformer_encoder_layer_fwd": Observer.on_fused_layer,
    "_native_multi_head_attention": Observer.on_fused_attention,
}
