"""Follows the dataflow of a model through torch's functions, and finds attention by its pattern of functions.

Attention is three steps: a product of two tensors gives scores; the scores are normalised over the rows of one of them;
a second product sums over the normalised axis. A softmax without one of these is a classifier, a gate or the like.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import ref

from torch import Tensor, nn

from attnviz.capture.flow.axes import (
    FEATURES,
    FIRST_MARK,
    NOTHING,
    Axis,
    Lineage,
    Part,
    axes_of_view,
    is_all,
    label_of,
    labels_in,
    merged_lineage,
    resized_axis,
    unknown_axes,
    with_labels_from,
    without_marks,
)
from attnviz.capture.flow.functions import (
    BY_ARGUMENTS,
    CONVOLUTIONS,
    POOLINGS,
    PROJECTIONS,
    REDUCING,
    RESHAPING,
    SEQUENCES,
    FollowedCall,
    TorchCall,
    axis_of_call,
    cache_key,
    cache_node,
    cached_node,
    is_view,
    joins_tokens,
    node_after,
    steps_after,
    tensors_in,
)
from attnviz.capture.flow.nodes import (
    Contraction,
    Node,
    Normaliser,
    Use,
    WeightsCandidate,
    is_axis_of_operand,
    key_axis,
    note_mixing,
)
from attnviz.capture.flow.products import PRODUCTS, contraction, elementwise_sum, has_own_axes, product_node, uses_of
from attnviz.capture.flow.sites import CallingModule

MAX_OPEN = 8  # normalised tensors kept until a product uses them
SOFTMAXES = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
GUMBEL: Normaliser = "gumbel_softmax"  # the softmax of logits to which it adds noise
NOISE = frozenset({"randn", "randn_like"})  # what a picture is denoised from is an input, wherever it is drawn
FILLING = (
    "new_zeros",
    "new_ones",
    "new_empty",
    "new_full",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
)
ALLOCATING = {*FILLING, "empty", "zeros", "ones", "full"}
FUSED = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")  # kernels that compute more than attention
RECURRENT = frozenset(
    {"gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"}
)
NOT_ELEMENTWISE = frozenset(
    {*SOFTMAXES, GUMBEL, *PRODUCTS, *REDUCING, *RESHAPING, "sigmoid", "embedding", "exp", "log_softmax", "_log_softmax"}
    | {"special_log_softmax", "logsumexp", "__setitem__", "scaled_dot_product_attention", *FILLING}
)  # functions that are not element-wise


CHANGING_LINEAGE = RECURRENT | POOLINGS | {*FUSED, *CONVOLUTIONS}
UNCACHED = (NOT_ELEMENTWISE - PROJECTIONS.keys()) | CHANGING_LINEAGE | BY_ARGUMENTS
RESULTS = (Tensor, *SEQUENCES)  # classes of results that hold tensors
MIN_SWEEP_SIZE = 1024  # dead references are swept only beyond this many tensors


class _NodeReference(ref[Tensor]):
    """A weak reference to a tensor, with its node."""

    __slots__ = ("key", "node")
    key: int
    node: Node


class DataFlow:
    """The nodes of all tensors of a forward pass."""

    def __init__(
        self,
        modules: Iterable[nn.Module],
        running_module: Callable[[], CallingModule | None],
    ) -> None:
        self.running_module = running_module
        self.findings: list[Use | WeightsCandidate] = []  # uses, and candidates that no product used
        self.constants = {id(tensor): tensor for module in modules for tensor in _constants_of(module)}
        self.references: dict[int, _NodeReference] = {}  # by the id of the tensor
        self.allocations: dict[int, ref[Tensor]] = {}  # new inference tensors, by their memory
        self.sweep_size = MIN_SWEEP_SIZE  # dead references are swept when there are more references than this
        self.open_candidates: list[WeightsCandidate] = []
        self.marks = count(1)  # the number of the next mark of a part
        self.roots = count()  # the number of the next input

    # A function has returned: its results get nodes.

    def follow_call(self, call: TorchCall) -> None:
        """Follows a call of a torch function that has returned: keeps a node for each tensor in its result.

        Adds each product that uses weights to `findings`. The result of a single input may share the input's node, and
        a call equal to an earlier one may reuse its node.
        """
        name, result = call.name, call.result
        inputs = tensors_in((*call.args, *call.kwargs.values()) if call.kwargs else call.args)
        if not inputs or name in UNCACHED or not isinstance(result, RESULTS):
            return self._compute_nodes(call, inputs, result)
        outputs = [result] if isinstance(result, Tensor) else tensors_in(result)
        for output in outputs:
            if len(inputs) == 1 and self._share_node(name, inputs[0], output):
                continue
            nodes = list(map(self.node, inputs))
            key = cache_key(name, inputs, nodes, output) if self._is_new(output, inputs) else None
            node = None if key is None else cached_node(key, inputs, nodes, output)
            if node is not None:
                self._keep_without_callback(output, node)
                continue
            self._compute_nodes(call, inputs, output)
            if key is not None:
                cache_node(key, self.node(output))
        return None

    def _share_node(self, name: str, source: Tensor, result: Tensor) -> bool:
        """Gives a function's result the node of its only input if both would be equal; returns True if it did."""
        if source.shape != result.shape or source.stride() != result.stride():
            return False
        node = self.node(source)
        if node.is_unobserved or node.holds_tensors or not self._is_new(result, [source]):
            return False
        if result is not source:
            self._keep_without_callback(result, node)
        return True

    def _compute_nodes(self, call: TorchCall, inputs: list[Tensor], result: Any) -> None:
        """Computes and keeps the nodes of a function's results, and of the tensor that the function writes into."""
        name, args, kwargs = call.name, call.args, call.kwargs
        if name in SOFTMAXES or name in ("sigmoid", GUMBEL):
            axis = axis_of_call(args, kwargs)
            if name == GUMBEL:  # its axis is the fifth argument, by default the last axis
                axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
            return self._follow_normalisation(inputs[0], result, axis, name, call.overwritten)
        if name == "scaled_dot_product_attention":
            return self.note_attention(inputs[0], inputs[2], result)
        if name == "__setitem__":
            return self._merge_written(args[0], args[2])
        if name in ALLOCATING and isinstance(result, Tensor) and result.is_inference():
            self.allocations[result.untyped_storage().data_ptr()] = ref(result)
        if name == "copy_" and self._base_of(args[0]) is not None:  # a write into a part of a tensor, such as a cache
            self._merge_written(args[0], args[1])
        product = contraction(name, args, kwargs) if name in PRODUCTS and inputs else None
        if product is None and name in ("sum", "nansum") and inputs:
            product = self._broadcast_product(inputs[0], args, kwargs)
        if product is not None and isinstance(result, Tensor):
            left, right = self.node(product.left), self.node(product.right)
            uses = list(uses_of(product, left, right, result)) if left.weights or right.weights else []
            self._keep(result, product_node(name, product, left, right, result, uses, self._with_new_marks))
            for use in uses:
                use.candidate.used = True
                self.findings.append(replace(use, candidate=replace(use.candidate)))
                self._drop_tensors(use.candidate)
            return None
        for output in tensors_in(result if isinstance(result, SEQUENCES) else (result,)):
            if self._is_new(output, inputs):
                self._follow(FollowedCall(name, inputs, list(map(self.node, inputs)), output, args, kwargs))
                if name in CHANGING_LINEAGE:
                    node = self.node(output)
                    node.lineage = _lineage_of_result(call, node.lineage)
        return None

    def _follow_normalisation(
        self, logits: Tensor, probabilities: Tensor, axis: int | None, name: str, overwritten: Tensor | None
    ) -> None:
        """Follows a softmax or sigmoid, whose result is a candidate for attention weights."""
        node = self.node(logits)
        normaliser: Normaliser = "sigmoid" if name == "sigmoid" else GUMBEL if name == GUMBEL else "softmax"
        normalised_axis = key_axis(node) if normaliser == "sigmoid" else axis
        if normalised_axis is None or logits.dim() < 2 or not logits.is_floating_point():
            return self._follow(FollowedCall(name, [logits], [node], probabilities, (), {}))
        kept_logits = logits if overwritten is None else overwritten
        return self._add_candidate(kept_logits, probabilities, normalised_axis, node, normaliser, by_one_function=True)

    def _broadcast_product(self, source: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
        """Returns the contraction that a product by broadcasting and a sum over axes of it compute together."""
        factors = self.node(source).broadcast_operands
        dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if factors is None or dims is None:
            return None
        axes = [dims] if isinstance(dims, int) else list(dims)
        keepdim = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
        product = elementwise_sum(*factors, axes, keepdim)
        return product if has_own_axes(product, self.node(product.left), self.node(product.right)) else None

    def _follow(self, call: FollowedCall) -> None:
        name, inputs, nodes, result, *_ = call
        if not inputs or name in FILLING:  # what the user makes outside of the model is an input of it
            if self.running_module() is not None and name not in NOISE:
                self._keep(result, Node(unknown_axes(result.shape), constant=True))
            return
        node = node_after(call)
        self._keep(result, node)
        note_mixing(name, nodes, node)
        node.steps = steps = steps_after(call)
        if steps is not None and steps.stage == "softmax":
            self._add_candidate(
                steps.logits, result, steps.axis or 0, self.node(steps.logits), "softmax", by_one_function=False
            )

    def _merge_written(self, target: Tensor, value: object) -> None:
        """Merges the node of a value into the node of the tensor that it was written to, such as a cache of keys."""
        if not isinstance(value, Tensor):
            return
        value_node = self.node(value)
        for tensor in (target, self._base_of(target)):
            if tensor is not None:
                node = self.node(tensor)
                lineage = merged_lineage((node.lineage, value_node.lineage))
                if node.lineage is not NOTHING:  # other rows remain, or were written over
                    pieces = tuple(piece for piece in node.lineage.pieces if piece in value_node.lineage.pieces)
                    lineage = lineage._replace(pieces=pieces)
                merged_node = replace(
                    node,
                    axes=with_labels_from(node.axes, value_node.axes),
                    lineage=lineage,
                    constant=node.constant and value_node.constant,
                    selected=node.selected or value_node.selected,
                )
                self._keep(tensor, merged_node)

    def _base_of(self, view: Tensor) -> Tensor | None:
        """Returns the tensor of which another one is a view; ``None`` for no view. Inference tensors do not tell it."""
        if view._base is not None or not view.is_inference():
            return view._base
        allocation = self.allocations.get(view.untyped_storage().data_ptr())
        base = None if allocation is None else allocation()
        return None if base is view else base

    def note_attention(self, queries: Tensor, values: Tensor, result: Tensor) -> None:
        """Follows a function that computes attention: its result has the queries' lineage, one attention call deeper.

        The axes of the result are those of the queries, with the features of the values; they are unknown if the result
        has another number of axes.
        """
        query_node, value_node = self.node(queries), self.node(values)
        if result.dim() != queries.dim():
            return self._keep(result, Node(unknown_axes(result.shape), query_node.lineage.after_attention))
        axes = (*query_node.axes[:-1], resized_axis(value_node.axes[-1], result.shape[-1]))
        return self._keep(result, Node(tuple(map(without_marks, axes)), query_node.lineage.after_attention))

    def note_elementwise(self, source: Tensor, result: Tensor) -> None:
        """Follows an element-wise function whose call was not observed: its result gets the node of its source."""
        self._keep(result, self.node(source))

    # Candidates wait for the product that uses them.

    def _add_candidate(
        self,
        logits: Tensor,
        probabilities: Tensor,
        axis: int,
        node: Node,
        normaliser: Normaliser,
        by_one_function: bool,
    ) -> None:
        """Marks the axes of a normalised tensor, and keeps it as a candidate for attention until a product uses it."""
        caller, axis = self.running_module(), axis % logits.dim()  # a negative axis counts from the end
        axes = tuple(map(self._with_new_marks, node.axes))
        result_node = Node(axes, node.lineage, from_token_pairs=node.from_token_pairs)
        self._keep(probabilities, result_node)
        if caller is None:
            return
        scores = node.scores
        if scores is not None:
            key_marks = labels_in(node.axes[axis : axis + 1])
            scores = scores.with_keys_second(key_marks) if is_axis_of_operand(scores, key_marks) else None
        is_over_features = scores is None and is_all(node.axes[axis], FEATURES)
        candidate = WeightsCandidate(
            caller=caller,
            logits=None if is_over_features else logits,
            probabilities=None if is_over_features else probabilities,
            axis=axis,
            axes=axes,
            logit_axes=node.axes,
            scores=scores,
            from_token_pairs=node.from_token_pairs,
            unobserved_input=node.is_unobserved or node.constant,
            selects=node.selected,
            shape=probabilities.shape,
            lineage=node.lineage,
            normaliser=normaliser,
            by_one_function=by_one_function,
        )
        result_node.weights = (candidate,)
        self.open_candidates = [*self.unused_candidates(), candidate]
        if len(self.open_candidates) > MAX_OPEN:
            self._give_up(self.open_candidates.pop(0))

    def _with_new_marks(self, axis: Axis) -> Axis:
        return tuple(Part(part.size, next(self.marks) * FIRST_MARK + label_of(part.label)) for part in axis)

    def unused_candidates(self) -> Iterator[WeightsCandidate]:
        """Yields the normalised tensors that no product has used."""
        return (candidate for candidate in self.open_candidates if not candidate.used)

    def _drop_tensors(self, candidate: WeightsCandidate) -> None:
        """Frees the tensors of a candidate and marks it as used, so that no later product counts as its use."""
        candidate.logits = candidate.probabilities = candidate.scores = None
        candidate.used = True

    def flush(self) -> None:
        """Drops all normalised tensors that no product used, and reports those that were not added to others."""
        for candidate in self.unused_candidates():
            self._give_up(candidate)
        self.open_candidates.clear()

    def _give_up(self, candidate: WeightsCandidate) -> None:
        """Drops the tensors of a candidate that no product used, and reports it unless it was added to another one."""
        if not candidate.absorbed:
            self.findings.append(replace(candidate))
        self._drop_tensors(candidate)

    # Each tensor has a node while it lives.

    def node(self, tensor: Tensor) -> Node:
        """Returns the node of a tensor; creates it if no observed function computed the tensor.

        Parameters and other tensors of the model's own get the node of a constant. A tensor that shares memory with an
        unused softmax result is a view of it. Any other tensor is an input.
        """
        reference = self.references.get(id(tensor))
        if reference is not None and reference() is tensor:
            return reference.node
        constant = id(tensor) in self.constants or isinstance(tensor, nn.Parameter)
        node = None
        for candidate in () if constant else self.unused_candidates():
            weights = candidate.probabilities
            if weights is not None and is_view(weights, tensor):  # made by code that cannot be observed
                axes = axes_of_view(candidate.axes, weights.stride(), tensor.shape, tensor.stride())
                node = Node(axes, self.node(weights).lineage, weights=(candidate,))
                break
        if node is None:
            node = Node(
                unknown_axes(tensor.shape),
                NOTHING if constant else Lineage(1 << next(self.roots)),  # the next free bit stands for this input
                constant,
                is_unobserved=True,
            )
        self._keep(tensor, node)
        return node

    def _is_new(self, output: Tensor, inputs: list[Tensor]) -> bool:
        """True if no inner function has given the output a node, or if the output is also an input."""
        reference = self.references.get(id(output))
        return reference is None or reference() is not output or any(output is tensor for tensor in inputs)

    def _keep(self, tensor: Tensor, node: Node) -> None:
        reference = _NodeReference(tensor, self._forget)
        reference.key, reference.node = id(tensor), node
        self.references[reference.key] = reference

    def _keep_without_callback(self, tensor: Tensor, node: Node) -> None:
        """Keeps a node that holds no tensors, without a callback; dead references are swept later."""
        reference = _NodeReference(tensor)
        reference.key, reference.node = id(tensor), node
        self.references[reference.key] = reference
        if len(self.references) > self.sweep_size:
            self.references = {key: entry for key, entry in self.references.items() if entry() is not None}
            self.sweep_size = max(MIN_SWEEP_SIZE, 2 * len(self.references))

    def _forget(self, reference: ref[Tensor]) -> None:
        if isinstance(reference, _NodeReference) and self.references.get(reference.key) is reference:
            del self.references[reference.key]


def _constants_of(module: nn.Module) -> list[Tensor]:
    """Returns a module's parameters and buffers, and whatever else a module without parts holds, such as scales."""
    # Beside its parts, a module may hold keys of an earlier pass.
    held = (module._parameters, module._buffers) if module._modules else vars(module).values()
    return tensors_in([list(value.values()) if isinstance(value, dict) else value for value in held])


def _lineage_of_result(call: TorchCall, lineage: Lineage) -> Lineage:
    """Returns the lineage of the result of a function of `CHANGING_LINEAGE`, given that of its inputs."""
    if call.name in FUSED:
        return lineage.after_attention
    if call.name in RECURRENT:
        return lineage._replace(recurrent=True)
    return lineage._replace(poolings=lineage.poolings + 1) if joins_tokens(call) else lineage
