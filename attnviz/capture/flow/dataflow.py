"""Follows what a model computes from one function of torch to the next, and finds attention by what is done with it.

Attention is a product of two things that gives scores, normalised over the rows of one of them, and a product that sums
what was normalised over as many rows. Where a softmax lacks one of these it is a classifier, a gate or something else.
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
    Axis,
    Part,
    filled_in,
    is_all,
    label_of,
    labels_in,
    rearranged,
    resized,
    unknown_axes,
    without_marks,
)
from attnviz.capture.flow.functions import REDUCING, RESHAPING, SEQUENCES, axis_of_call, is_view, node_after, tensors_in
from attnviz.capture.flow.lineage import NOTHING, Lineage, merged
from attnviz.capture.flow.nodes import Candidate, Node, Normaliser, Use, is_of, key_axis, note_mixing
from attnviz.capture.flow.product_nodes import has_own_axes, product_node, uses_of
from attnviz.capture.flow.products import PRODUCTS, Contraction, contraction, elementwise_sum
from attnviz.capture.flow.remembered import BY_ARGUMENTS, PROJECTIONS, key_of, node_as_before, remember
from attnviz.capture.flow.sites import CallingModule
from attnviz.capture.flow.softmax_steps import steps_after

MAX_OPEN = 8  # normalised tensors that may still turn out to be attention
SOFTMAXES = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
FILLED = (
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
FUSED = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")  # kernels that compute more than attention
RECURRENT = frozenset(
    {"gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"}
)
CHANGING = frozenset(
    {*SOFTMAXES, *PRODUCTS, *REDUCING, *RESHAPING, "sigmoid", "embedding", "exp", "log_softmax", "_log_softmax"}
    | {"special_log_softmax", "logsumexp", "__setitem__", "scaled_dot_product_attention", *FILLED}
)  # functions that do more than to compute each number from the one in its place


FOUND_EACH_TIME = (CHANGING - PROJECTIONS.keys()) | RECURRENT | {*FUSED} | BY_ARGUMENTS
MIN_SWEPT = 1024  # tensors that are known at least before those that are gone are looked for


class _Known(ref[Tensor]):
    """A tensor that a node is known of, without keeping it."""

    __slots__ = ("key", "node")
    key: int
    node: Node


class DataFlow:
    """What is known of the tensors of a forward pass.

    Args:
        modules: of the model, whose parameters and buffers are constants.
        running: gives the module that runs now.
        on_use: receives what turns out to be attention, or to look like it.
        on_unused: receives what was normalised and multiplies nothing that was seen.
    """

    def __init__(
        self,
        modules: Iterable[nn.Module],
        running: Callable[[], CallingModule | None],
        on_use: Callable[[Use], None],
        on_unused: Callable[[Candidate], None],
    ) -> None:
        self.running, self.on_use, self.on_unused = running, on_use, on_unused
        self.constants = {id(each) for module in modules for each in _constants_of(module)}
        self.known: dict[int, _Known] = {}
        self.swept_at = MIN_SWEPT
        self.open: list[Candidate] = []
        self.marks = count(1)
        self.roots = count()

    def see(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any, overwritten: Tensor | None = None
    ) -> None:
        """Follows a function of torch that has returned; ``overwritten`` is what it has written its result over."""
        inputs = tensors_in((*args, *kwargs.values()) if kwargs else args)
        if not inputs or name in FOUND_EACH_TIME or not isinstance(result, Tensor):
            return self._find(name, inputs, args, kwargs, result, overwritten)
        if len(inputs) == 1 and self._passed_on(name, inputs[0], result):
            return None
        nodes = list(map(self.node, inputs))
        key = key_of(name, inputs, nodes, result) if self._is_new(result, inputs) else None
        node = None if key is None else node_as_before(key, nodes)
        if node is not None:
            return self._keep_while_there(result, node)
        self._find(name, inputs, args, kwargs, result, overwritten)
        if key is not None:
            remember(key, self.node(result))
        return None

    def _find(
        self,
        name: str,
        inputs: list[Tensor],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        overwritten: Tensor | None,
    ) -> None:
        """Finds out what is known of the result of a function."""
        if name in SOFTMAXES or name == "sigmoid":
            return self._normalised(inputs[0], result, axis_of_call(args, kwargs), name, overwritten)
        if name == "scaled_dot_product_attention":
            return self.note_attention(inputs[0], inputs[2], result)
        if name == "__setitem__":
            return self._written(args[0], args[2])
        if name == "copy_" and args[0]._base is not None:
            self._written(args[0], args[1])
        product = contraction(name, args, kwargs) if name in PRODUCTS and inputs else None
        if product is None and name in ("sum", "nansum") and inputs:
            product = self._broadcast_product(inputs[0], args, kwargs)
        if product is not None and isinstance(result, Tensor):
            return self._multiplied(name, product, result)
        for output in tensors_in(result if isinstance(result, SEQUENCES) else (result,)):
            if self._is_new(output, inputs):
                self._follow(name, inputs, output, args, kwargs)
                if name in FUSED or name in RECURRENT:
                    node = self.node(output)
                    node.lineage = node.lineage.attended if name in FUSED else node.lineage._replace(recurrent=True)
        return None

    def _passed_on(self, name: str, source: Tensor, result: Tensor) -> bool:
        """Whether a function changes numbers alone, of one tensor of which nothing but its axes is known."""
        if source.shape != result.shape or source.stride() != result.stride():
            return False
        node = self.node(source)
        if node.is_involved or not self._is_new(result, [source]):
            return False
        if result is not source:
            self._keep_while_there(result, node)
        return True

    def _is_new(self, output: Tensor, inputs: list[Tensor]) -> bool:
        """Whether the result is not known yet, from a function within the one that returned it."""
        known = self.known.get(id(output))
        return known is None or known() is not output or any(output is each for each in inputs)

    def node(self, tensor: Tensor) -> Node:
        """What is known of a tensor."""
        known = self.known.get(id(tensor))
        if known is not None and known() is tensor:
            return known.node
        constant = id(tensor) in self.constants or isinstance(tensor, nn.Parameter)
        held = None if constant else self._held_by(tensor)
        if held is not None and held.after is not None:  # a view of weights that was made out of sight
            axes = rearranged(held.axes, held.after.stride(), tensor.shape, tensor.stride())
            node = Node(axes, self.node(held.after).lineage, weights=(held,))
        else:
            node = Node(
                unknown_axes(tensor.shape),
                NOTHING if constant else Lineage(1 << next(self.roots)),
                constant,
                fresh=True,
            )
        self._keep(tensor, node)
        return node

    def _held_by(self, tensor: Tensor) -> Candidate | None:
        """The normalised tensor that this one is a view of."""
        return next((each for each in self.unused() if each.after is not None and is_view(each.after, tensor)), None)

    def unused(self) -> Iterator[Candidate]:
        """What was normalised and has not multiplied anything."""
        return (candidate for candidate in self.open if not candidate.used)

    def note_attention(self, queries: Tensor, values: Tensor, result: Tensor) -> None:
        """Follows a function that computes attention, ``(..., tokens, features)``."""
        query, value = self.node(queries), self.node(values)
        if result.dim() != queries.dim():
            return self._keep(result, Node(unknown_axes(result.shape), query.lineage.attended))
        axes = (*query.axes[:-1], resized(value.axes[-1], result.shape[-1]))
        return self._keep(result, Node(tuple(map(without_marks, axes)), query.lineage.attended))

    def note_same(self, source: Tensor, result: Tensor) -> None:
        """Follows a function that computes each number from the one in its place, out of sight."""
        self._keep(result, self.node(source))

    def _keep(self, tensor: Tensor, node: Node) -> None:
        known = _Known(tensor, self._forget)
        known.key, known.node = id(tensor), node
        self.known[known.key] = known

    def _keep_while_there(self, tensor: Tensor, node: Node) -> None:
        """Keeps a node that holds no tensors, and need not go at once with its own."""
        known = _Known(tensor)
        known.key, known.node = id(tensor), node
        self.known[known.key] = known
        if len(self.known) > self.swept_at:
            self.known = {key: each for key, each in self.known.items() if each() is not None}
            self.swept_at = max(MIN_SWEPT, 2 * len(self.known))

    def _forget(self, known: ref[Tensor]) -> None:
        if isinstance(known, _Known) and self.known.get(known.key) is known:
            del self.known[known.key]

    def _written(self, target: Tensor, value: object) -> None:
        """Numbers written into a tensor, such as keys into a cache: it, and what it is a part of, is what they are."""
        if not isinstance(value, Tensor):
            return
        other = self.node(value)
        for tensor in (target, target._base):
            if tensor is not None:
                node = self.node(tensor)
                lineage, constant = merged((node.lineage, other.lineage)), node.constant and other.constant
                axes = filled_in(node.axes, other.axes)
                self._keep(tensor, replace(node, axes=axes, lineage=lineage, constant=constant))

    def _normalised(
        self, before: Tensor, after: Tensor, axis: int | None, name: str, overwritten: Tensor | None
    ) -> None:
        """A softmax or sigmoid of a tensor, which may be attention."""
        node = self.node(before)
        sigmoid = name == "sigmoid"
        if sigmoid:
            axis = key_axis(node)
        if axis is None or before.dim() < 2 or not before.is_floating_point():
            return self._follow(name, [before], after, (), {})
        held = before if overwritten is None else overwritten
        return self._found(held, after, axis % before.dim(), node, "sigmoid" if sigmoid else "softmax", literal=True)

    def _found(
        self, before: Tensor, after: Tensor, axis: int, node: Node, normaliser: Normaliser, literal: bool
    ) -> None:
        caller, axis = self.running(), axis % before.dim()
        axes = tuple(self._marked(each) for each in node.axes)
        result = Node(axes, node.lineage, paired=node.paired)
        self._keep(after, result)
        if caller is None:
            return
        scores = node.scores
        if scores is not None:
            key_marks = labels_in(node.axes[axis : axis + 1])
            scores = scores.by_keys(key_marks) if is_of(scores, key_marks) else None
        hopeless = scores is None and is_all(node.axes[axis], FEATURES)
        candidate = Candidate(
            caller=caller,
            before=None if hopeless else before,
            after=None if hopeless else after,
            axis=axis,
            axes=axes,
            before_axes=node.axes,
            scores=scores,
            paired=node.paired,
            unseen=node.fresh or node.constant,
            shape=after.shape,
            lineage=node.lineage,
            normaliser=normaliser,
            literal=literal,
        )
        result.weights = (candidate,)
        self.open = [*(each for each in self.open if not each.used), candidate]
        if len(self.open) > MAX_OPEN:
            self._give_up(self.open.pop(0))

    def flush(self) -> None:
        """Gives up all that was normalised and multiplied nothing."""
        for candidate in self.unused():
            self._give_up(candidate)
        self.open.clear()

    def _give_up(self, candidate: Candidate) -> None:
        if not candidate.absorbed:
            self.on_unused(candidate)
        self._close(candidate)

    def _close(self, candidate: Candidate) -> None:
        candidate.before = candidate.after = candidate.scores = None
        candidate.used = True

    def _marked(self, axis: Axis) -> Axis:
        """The axis with a mark of its own for each part."""
        return tuple(Part(part.size, next(self.marks) * FIRST_MARK + label_of(part.label)) for part in axis)

    def _multiplied(self, name: str, product: Contraction, result: Tensor) -> None:
        """A product: of a projection, of scores, or of weights and values."""
        left, right = self.node(product.left), self.node(product.right)
        uses = list(uses_of(product, left, right, result)) if left.weights or right.weights else []
        self._keep(result, product_node(name, product, left, right, result, uses, self._marked))
        for use in uses:
            use.candidate.used = True
            self.on_use(use)
            self._close(use.candidate)

    def _broadcast_product(self, summed: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
        """The product of which this is the sum, where its operands were multiplied by broadcasting."""
        factors = self.node(summed).multiplied
        dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if factors is None or dims is None:
            return None
        axes = [dims] if isinstance(dims, int) else list(dims)
        keep = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
        product = elementwise_sum(*factors, axes, keep)
        return product if has_own_axes(product, self.node(product.left), self.node(product.right)) else None

    def _follow(
        self, name: str, inputs: list[Tensor], result: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Any other function: its result has what its inputs have, as far as the axes show."""
        if not inputs or name in FILLED:
            made_by_model = self.running() is not None  # else it is what the model is called with
            return self._keep(result, Node(unknown_axes(result.shape), constant=True)) if made_by_model else None
        nodes = [self.node(each) for each in inputs]
        node = node_after(name, inputs, nodes, result, args, kwargs)
        self._keep(result, node)
        note_mixing(name, nodes, node)
        node.steps = steps = steps_after(name, inputs, nodes, result, args, kwargs)
        if steps is not None and steps.stage == "softmax":
            self._found(steps.before, result, steps.axis or 0, self.node(steps.before), "softmax", literal=False)
        return None


def _constants_of(module: nn.Module) -> tuple[Tensor | None, ...]:
    """The module's own parameters and buffers."""
    return (*module._parameters.values(), *module._buffers.values())
