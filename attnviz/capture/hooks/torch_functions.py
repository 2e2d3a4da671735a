"""Finds attention calls among the torch functions that a thread calls.

Scaled dot-product attention and torch's fused layers have all of a call in their arguments. Attention written by hand
is found in the dataflow from one function to the next. Each way gives a finding, which the observer hands on.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attnviz.base.arrays import BoolArray
from attnviz.capture.assembly.output_projection import ProjectionSearch
from attnviz.capture.assembly.windows import Windows, attention_windows
from attnviz.capture.calls.arguments import (
    FUSED_ATTENTION,
    FUSED_LAYER,
    bind_dot_product,
    bind_fused,
    fused_call,
    hidden_from_run,
    unreadable_kind,
)
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.calls.layout import FOLDED_AXES, BatchShape, layout_of_queries, layout_of_use, plain_layouts
from attnviz.capture.calls.observed_calls import kernel_call, use_call
from attnviz.capture.calls.recurrence import ObservedRecurrence
from attnviz.capture.flow.axes import FEATURES, NOTHING, Lineage, have_separate_inputs, is_all
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.capture.flow.functions import GATHERING, TorchCall, tensors_in
from attnviz.capture.flow.moved_rows import PLACING, GatheredRows, OperandGathers, TokenPlaces
from attnviz.capture.flow.nodes import Use, WeightsCandidate
from attnviz.capture.flow.products import PRODUCTS
from attnviz.capture.flow.sites import CallingModule, ModuleIndex

BuildCall = Callable[[], AttentionCall | None]
MIN_AXES = 2  # queries and features
MAX_FUNCTIONS = 2**17  # functions of a pass that are compared; a longer pass counts as new
DOT_PRODUCT = "scaled_dot_product_attention"
FUSED_ENCODER = "_transformer_encoder_layer_fwd"
OTHER_HEADS = "weights whose axes do not fit the module's number of heads"
UNUSED = "a softmax whose result multiplies no observed values"


class StopForward(BaseException):
    """Ends a forward pass once all chosen calls are recorded; no ``except Exception`` of a model catches it."""

    def __init__(self, receiver: object) -> None:
        super().__init__()
        self.receiver = receiver


class ObservedCall(NamedTuple):
    """An attention call of a running model whose maps are not computed yet."""

    caller: CallingModule  # the module that made it
    # Returns the call; ``None`` if it is not a softmax over queries x keys. Not called for every call.
    build: BuildCall
    shape: torch.Size  # the shape of the queries or the weights, for messages
    is_single_head: bool = False  # True if it has no axis of heads
    queries: Lineage = NOTHING  # the lineage of its queries
    keys: Lineage = NOTHING  # the lineage of its keys
    is_additive: bool = False  # True if its scores are sums of queries and keys, not products
    selects: bool = False  # True if its mask hides keys that a top-k did not choose
    extra_keys: tuple[str, ...] = ()  # the labels of its last keys if these have no token
    windows: Windows | None = None  # the windows of its text that it attends in; ``None`` if it has none
    is_plain: bool = False  # True if all but its tensors is the same in a pass that repeats this one

    @property
    def may_be_step(self) -> bool:
        """True if a recurrent decoder may have computed the queries from its state."""
        return self.is_additive or self.queries.recurrent

    @property
    def may_be_part(self) -> bool:
        """True if it may be the first chunk of its queries, or a step of a recurrent decoder."""
        return self.may_be_step or any(piece.is_first for piece in self.queries.pieces)


class OtherResult(NamedTuple):
    """A normalised tensor that is no attention map over queries and keys."""

    caller: CallingModule  # the module that computed it
    shape: torch.Size
    kind: str  # a noun phrase that describes it
    is_attention: bool  # True if the module attends in another way
    layer: int | None = None  # the number of the module's block; ``None`` if it has none

    @property
    def module(self) -> str:
        """The path of the module."""
        return self.caller.name

    @property
    def description(self) -> str:
        """The kind and the shape, for messages."""
        return f"{self.kind} {tuple(self.shape)}"


class UnreadableCall(NamedTuple):
    """An attention call on tensors that cannot be read; their kind is a noun phrase."""

    caller: CallingModule
    kind: str


Finding = ObservedCall | OtherResult | UnreadableCall | ObservedRecurrence


class Receiver(Protocol):
    """Receives what is found in a forward pass."""

    def receive(self, finding: Finding) -> None:
        """Receives a finding."""

    def batches_of(self, caller: CallingModule, queries: Lineage) -> Collection[BatchShape]:
        """Returns the shapes that the batch of a call may have, given the lineage of its queries; empty if unknown."""

    def keep_copies(self, target: Tensor) -> None:
        """Copies what it holds of the memory of a tensor that will be overwritten."""

    def begin_verification(self) -> None:
        """Receives that the model verifies drafts from now on."""

    def end_verification(self, tokens: int | None) -> None:
        """Receives the number of tokens that the model has read and kept at the end; ``None`` if unknown."""

    def note_padding(self, padding: BoolArray | None) -> None:
        """Receives the mask of the model's inputs, ``(texts, tokens)``, False for padding; ``None`` for no mask."""

    def on_failure(self, error: Exception) -> None:
        """Receives an error raised while a call was observed, which must not interrupt the run."""


PROJECTIONS = {"linear": 0, "embedding": 0, "addmm": 1}  # functions of each token, with the index of their input


class RepeatedPasses:
    """Compares the functions that a forward pass calls, by name and order, with those of the two passes before.

    Of functions of tokens it also compares the shapes, as a model may fold the heads of a single query in another way.

    A decoder calls the same functions for each token that it writes. The origins of its queries and keys are then those
    of the pass before, and need not be followed from function to function again.

    Attributes:
        is_repeat: True while the present pass calls what two equal passes before it called.
    """

    def __init__(self) -> None:
        self.is_repeat = False
        self._is_plain = True  # False if the present pass has other attention than plain calls
        self._names: list[object] = []  # of the functions in the present pass, in order, some with a shape
        self._calls: list[ObservedCall] = []
        self._last_names: list[object] = []
        self._last_calls: list[ObservedCall] = []
        self._function_index = self._call_index = 0

    def begin_pass(self, *, may_repeat: bool) -> None:
        """Begins a pass, which is a repeat as long as it calls what the last two passes called, if these are equal."""
        if not self.is_repeat:
            is_equal = self._names == self._last_names and len(self._names) < MAX_FUNCTIONS
            self._last_names, self._last_calls = self._names, self._calls
            self.is_repeat = is_equal and self._is_plain and bool(self._calls)
        self.is_repeat &= may_repeat
        self._names, self._calls, self._is_plain = [], [], True
        self._function_index = self._call_index = 0

    def advance(self, name: str, args: Sequence[Any]) -> bool:
        """Notes the next function of the present pass; True if the pass is a repeat with it, which ends otherwise."""
        noted: object = name
        inputs = args[PROJECTIONS[name] :] if name in PROJECTIONS else ()
        if inputs and type(inputs[0]) is Tensor:
            with torch._C.DisableTorchFunction():  # other modes of the user must not see this
                noted = name, None if inputs[0].is_nested else inputs[0].shape
        if self.is_repeat:
            if self._last_names[self._function_index : self._function_index + 1] == [noted]:
                self._function_index += 1
                return True
            self.end_repeat()
        if len(self._names) < MAX_FUNCTIONS:
            self._names.append(noted)
        return False

    def end_repeat(self) -> None:
        """Ends a repeat: the rest of the pass is followed, and the pass after it is no repeat."""
        self.is_repeat = self._is_plain = False

    def note_finding(self, finding: "Finding | None") -> None:
        """Keeps a plain call for a pass that repeats it: all but its tensors, and their places in longer ones."""
        if isinstance(finding, ObservedCall) and finding.is_plain:
            queries, keys = finding.queries._replace(pieces=()), finding.keys._replace(pieces=())
            self._calls.append(finding._replace(build=lambda: None, queries=queries, keys=keys))
        elif not isinstance(finding, OtherResult) or finding.kind != UNUSED:  # which no pass looks for again
            self._is_plain = False

    def next_call(self) -> ObservedCall:
        """Returns the next attention call of the pass that is repeated."""
        self._call_index += 1
        return self._last_calls[self._call_index - 1]


class _ObservationGuard(AbstractContextManager[None]):
    """Hides the computations of a block from the run, and reports its errors to the receiver instead of the run."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver, self.hidden_block = receiver, hidden_from_run()

    def __enter__(self) -> None:
        self.hidden_block.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        self.hidden_block.__exit__(kind, error, trace)
        if not isinstance(error, Exception):  # StopForward and interrupts are raised further
            return False
        self.receiver.on_failure(error)
        return True


class Observer:
    """Follows the functions that a thread calls, and reports every attention call of a model's modules."""

    def __init__(self, modules: ModuleIndex, receiver: Receiver, follows_gathers: bool = True) -> None:
        self.modules = modules
        self.receiver = receiver
        self.follows_gathers = follows_gathers  # False to leave gathered queries and keys in the order of their call
        # The dataflow between the functions, in which attention written by hand is found
        self.flow = DataFlow(modules.modules.values(), self.running_module)
        # True inside torch's function of multi-head cross-attention, False inside that of self-attention, ``None``
        # elsewhere
        self.cross: bool | None = None
        self.extra_keys: tuple[str, ...] = ()  # the labels of the keys that this function adds to those it is given
        self.token_places = TokenPlaces(self.flow.node)  # the token that each element of a tensor belongs to
        self.gathered_rows = GatheredRows()  # the rows that were gathered from longer tensors
        # Recognises passes that repeat the ones before, in which only attention is observed
        self.passes = RepeatedPasses()
        self.search: ProjectionSearch | None = None  # the search for output projections; ``None`` if none is needed
        self.stops_after_search = False  # True if the forward pass may end once all projections are found
        # The calls inside a kernel that runs; one is its attention, several are steps towards it
        self.kernel_calls: list[ObservedCall] | None = None
        self.kernel_functions: list[TorchCall] = []  # what that kernel computes after a call, such as a gate
        self.closed = False  # True if the observer must see no further calls

    def begin_pass(self, *, may_repeat: bool) -> None:
        """Begins a forward pass, whose tokens and rows are numbered anew."""
        self.passes.begin_pass(may_repeat=may_repeat)
        self.token_places = TokenPlaces(self.flow.node)
        self.gathered_rows = GatheredRows()  # rows that a cache gathered are those of later passes as they are

    # Each function that the thread calls

    def observe(self, call: TorchCall) -> None:
        """Observes a call of a torch function: as attention, and in the flow of tokens, data, rows and projections.

        In a repeated pass nothing but attention is observed.
        """
        if self.passes.is_repeat and call.name == DOT_PRODUCT:
            self._report_repeated_call(call)  # ends the repeat if another module made the call
        if self.passes.is_repeat:
            return
        recognize = RECOGNIZERS.get(call.name)
        if recognize is not None:
            with self.guarded():
                self.report(recognize(self, call))
        elif self.token_places.is_active and self.token_places.follows(call.name):
            with self.guarded():
                self.token_places.follow(call)

        # The dataflow, in which attention written by hand is found
        try:
            with torch._C.DisableTorchFunction():
                self.flow.follow_call(call)
        except Exception as error:  # unreadable tensors may raise any
            if unreadable_kind(*tensors_in((call.args, tuple(call.kwargs.values()), call.result))) is None:
                self.receiver.on_failure(error)
        if self.flow.findings:
            self._report_flow()

        may_gather = self.gathered_rows.is_active or call.name in GATHERING or call.name in PLACING
        if may_gather and self.follows_gathers and self.gathered_rows.follows(call.name, call.args):
            with self.guarded():
                self.gathered_rows.follow(call, self._gatherable_axes, self.running_module)

        # The output projection of a call, and what lies between
        if self.search is not None and self.kernel_calls:
            self.kernel_functions.append(call)
        elif self.search is not None and self.search.is_searching:
            with self.guarded():
                is_product = call.name in PRODUCTS
                is_projection = is_product and self.search.check(call, lambda tensor: self.flow.node(tensor).constant)
                may_stop = self.stops_after_search and self.kernel_calls is None and not self.search.pending
                if may_stop and is_product and not is_projection:
                    raise StopForward(self.receiver)
                if not is_projection:
                    self.search.follow(call)

    def guarded(self) -> "_ObservationGuard":
        """Returns a context manager for observing: its errors go to the receiver instead of the run."""
        return _ObservationGuard(self.receiver)

    def report(self, finding: Finding | None) -> None:
        """Hands a finding to the receiver; inside a kernel, whose arguments decide, calls alone are collected."""
        if self.kernel_calls is not None:
            if isinstance(finding, ObservedCall):
                self.kernel_calls.append(finding)
            return
        if not self.passes.is_repeat:
            self.passes.note_finding(finding)
        if finding is not None:
            self.receiver.receive(finding)

    # Attention that is one function

    def _dot_product(self, call: TorchCall) -> Finding | None:
        """Returns a call of ``scaled_dot_product_attention``; ``None`` outside the model's modules."""
        arguments, output, logsumexp = bind_dot_product(*call.args, **call.kwargs), call.result, call.logsumexp
        queries, caller = arguments["query"], self.modules.running(self.cross)
        if caller is None:
            return None
        kind = unreadable_kind(*arguments.values())
        if kind is not None:
            return UnreadableCall(caller, kind)
        nodes = [self.flow.node(arguments[name]) for name in ("query", "key")]
        are_projections = all(is_all(node.axes[-1], FEATURES) for node in nodes)
        lineages = nodes[0].lineage, nodes[1].lineage
        if self.cross is None and have_separate_inputs(*lineages, are_projections):
            caller = self.modules.describe(caller.module, cross=True)
        windows = self._windows_of(queries, arguments["key"])
        batches = self.receiver.batches_of(caller, nodes[0].lineage)
        layouts = layout_of_queries(nodes[0].axes, nodes[1].axes, self.modules.head_count(caller), batches)
        has_head_axis = any(role == "heads" for axis in layouts[0] for _, role in axis)  # an axis may be several joined
        is_single_head = queries.dim() <= MIN_AXES + 1 and not has_head_axis
        gathers = self._gathers_of(caller, queries, arguments["key"])
        build = partial(kernel_call, arguments, output, logsumexp, layouts, gathers)
        mask = arguments["attn_mask"]
        selects = mask is not None and self.flow.node(mask).selected
        observed_call = ObservedCall(
            caller, build, queries.shape, is_single_head, *lineages, False, selects, self.extra_keys, windows
        )
        # The tokens of windows, gathered rows, chunks and recurrent states must be followed in each pass.
        is_part = windows is not None or gathers is not None or observed_call.may_be_part
        has_usual_axes = layouts == plain_layouts(queries.shape, arguments["key"].shape)
        is_plain = has_usual_axes and not is_part and self.cross is None and self.search is None
        return observed_call._replace(is_plain=is_plain)

    def _report_repeated_call(self, call: TorchCall) -> None:
        """Reports an attention call of a repeated pass; ends the repeat instead if another module made the call."""
        with self.guarded():
            arguments, known_call = bind_dot_product(*call.args, **call.kwargs), self.passes.next_call()
            caller, shapes = self.modules.running(self.cross), (arguments["query"].shape, arguments["key"].shape)
            has_same_caller = caller is not None and caller.module is known_call.caller.module
            if has_same_caller and len(shapes[0]) == len(shapes[1]) == FOLDED_AXES:
                kind = unreadable_kind(*arguments.values())
                build = partial(kernel_call, arguments, call.result, call.logsumexp, plain_layouts(*shapes))
                repeated_call = known_call._replace(build=build, shape=shapes[0])
                self.report(repeated_call if kind is None else UnreadableCall(known_call.caller, kind))
                return
        self.passes.end_repeat()

    def _fused(self, call: TorchCall) -> Finding | None:
        """Returns the attention of torch's fused layers, computed again; ``None`` outside the model."""
        is_layer = call.name == FUSED_ENCODER
        arguments = bind_fused(call.name, FUSED_LAYER if is_layer else FUSED_ATTENTION, call.args, call.kwargs)
        source = arguments["src" if is_layer else "query"]
        is_cross = not is_layer and self.have_different_inputs(source, arguments["key"])
        caller = self.modules.running(cross=is_cross)
        if caller is None:
            return None
        kind = unreadable_kind(
            *(value for value in arguments.values() if not (type(value) is Tensor and value.is_nested))
        )
        if kind is not None:
            return UnreadableCall(caller, kind)
        build = partial(fused_call, arguments, call.result if is_layer else call.result[0])
        lineage = NOTHING if source.is_nested else self.flow.node(source).lineage
        return ObservedCall(caller, build, arguments["qkv_weight"].shape, queries=lineage)

    # Attention that the dataflow finds

    def _report_flow(self) -> None:
        """Reports the products and the unused softmaxes that the dataflow has found since the last report."""
        findings, self.flow.findings = self.flow.findings, []
        for finding in findings:
            with self.guarded():
                self.report(self._used(finding) if isinstance(finding, Use) else self._unused(finding))

    def _used(self, use: Use) -> Finding:
        """Returns a product that sums over a normalised axis: as attention, as something else, or as unreadable."""
        candidate, scores = use.candidate, use.candidate.scores
        caller = candidate.caller
        if self.cross is None and scores is not None and scores.have_separate_inputs:
            caller = self.modules.describe(caller.module, cross=True)
        if use.refusal is not None:
            is_attention = scores is not None or not candidate.is_over_features
            return OtherResult(caller, candidate.shape, use.refusal, is_attention)
        kind = unreadable_kind(candidate.logits, candidate.probabilities, use.product.right, use.result)
        if kind is not None:
            return UnreadableCall(caller, kind)
        queries = candidate.lineage if scores is None else scores.left_lineage
        layout = layout_of_use(use, self.modules.head_count(caller), self.receiver.batches_of(caller, queries))
        if layout is None:
            return OtherResult(caller, candidate.shape, OTHER_HEADS, is_attention=True)
        product = None if scores is None else scores.product
        if product is not None and product.left_letters.endswith(product.summed_letters):
            is_transposed = not product.right_letters.endswith(product.summed_letters)
            windows = self._windows_of(product.left, product.right, is_transposed=is_transposed)
        else:
            windows = self._windows_of(None, None)
        gather = None if product is None else self._gathers_of(caller, product.left, product.right)
        return ObservedCall(
            caller,
            partial(use_call, use, layout, gather),
            candidate.shape,
            layout.is_single_head,
            queries,
            NOTHING if scores is None else scores.right_lineage,
            is_additive=scores is None and candidate.from_token_pairs,
            selects=candidate.selects,
            extra_keys=self.extra_keys,
            windows=windows,
        )

    def _unused(self, candidate: WeightsCandidate) -> Finding | None:
        """Returns a softmax that no product used; ``None`` for another normalised tensor, and for one over features."""
        kind = unreadable_kind(candidate.logits, candidate.probabilities)
        if kind is not None:
            return UnreadableCall(candidate.caller, kind)
        if candidate.is_over_features or candidate.normaliser != "softmax":
            return None
        return OtherResult(candidate.caller, candidate.shape, UNUSED, is_attention=True)

    def flush(self) -> None:
        """Drops the normalised tensors that no product used, and reports the softmaxes among them."""
        self.flow.flush()
        self._report_flow()

    # What all of them ask

    def running_module(self) -> CallingModule | None:
        """Returns the module whose ``forward`` runs now, with its kind; ``None`` if none does."""
        return self.modules.running(self.cross)

    def have_different_inputs(self, queries: Tensor, keys: Tensor) -> bool:
        """True if queries and keys, before their projections, differ and were computed from no common input."""
        if queries is keys or (queries.shape == keys.shape and torch.equal(queries, keys)):
            return False
        query_roots, key_roots = (self.flow.node(tensor).lineage.roots for tensor in (queries, keys))
        return not query_roots & key_roots

    def _gathers_of(self, caller: CallingModule, queries: Tensor, keys: Tensor) -> OperandGathers | None:
        """Returns the rows of queries and keys that were gathered from longer tensors; ``None`` if none were."""
        gather = OperandGathers(caller.module, self.gathered_rows.of(queries), self.gathered_rows.of(keys))
        return gather if gather.queries is not None or gather.keys is not None else None

    def _gatherable_axes(self, tensor: Tensor) -> list[int]:
        """Returns the axes along which rows may be gathered: all that are larger than 1 and not features."""
        node = self.flow.node(tensor)
        if node.constant or tensor.dim() < MIN_AXES:
            return []
        sizes = tensor.shape[:-1] if node.is_unobserved else tensor.shape
        return [axis for axis, size in enumerate(sizes) if size > 1 and not is_all(node.axes[axis], FEATURES)]

    def _windows_of(
        self, queries: Tensor | None, keys: Tensor | None, *, is_transposed: bool = False
    ) -> Windows | None:
        """Returns the windows of a call; ``None`` if it has none, and then tokens are not followed any further."""
        if not self.token_places.is_active:
            return None
        windows = None
        origins = [None if tensor is None else self.token_places.of(tensor) for tensor in (queries, keys)]
        if origins[0] is not None and origins[1] is not None:
            key_numbers = origins[1].numbers.mT if is_transposed else origins[1].numbers
            windows = attention_windows(origins[0], origins[1]._replace(numbers=key_numbers))
        if windows is None:
            self.token_places.stop()
        return windows

    def end_kernel(self) -> None:
        """Follows what a kernel has computed after its attention, which is reported only now."""
        functions, self.kernel_functions = self.kernel_functions, []
        for call in functions:
            if self.search is not None:
                self.search.follow(call)


RECOGNIZERS: dict[str, Callable[[Observer, TorchCall], Finding | None]] = {
    DOT_PRODUCT: Observer._dot_product,
    FUSED_ENCODER: Observer._fused,
    "_native_multi_head_attention": Observer._fused,
}
