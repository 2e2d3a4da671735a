"""Follows what a model computes from one function of torch to the next, and finds attention by what is done with it.

Attention is a product of two things that gives scores, normalised over the rows of one of them, and a product that sums
what was normalised over as many rows. Where a softmax lacks one of these it is a classifier, a gate or something else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, ValuesView
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor, nn

from attnviz.capture.axes import (
    FEATURES,
    FIRST_MARK,
    MAX_REMEMBERED,
    TOKENS,
    UNKNOWN,
    Axes,
    Axis,
    Part,
    axis_of,
    best_known,
    broadcast,
    contiguous_strides,
    is_all,
    label_of,
    labels_in,
    rearranged,
    resized,
    unknown_axes,
    without_marks,
)
from attnviz.capture.lineage import NOTHING, Lineage, cut_axis, merged, piece_along
from attnviz.capture.products import PRODUCTS, Contraction, contraction, elementwise_sum
from attnviz.capture.sites import CallingModule

QUERY_FROM_END = 3  # where queries stand when they are multiplied with keys by broadcasting
MAX_OPEN = 8  # normalised tensors that may still turn out to be attention
SOFTMAXES = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution")
REDUCING = ("sum", "mean", "amax", "amin", "max", "min", "prod", "norm", "argmax")
CUTTING = ("__getitem__", "narrow", "split", "chunk")
NORMS = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm")
JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "stack")
OF_WEIGHTS = "weights that multiply other weights"  # as attention over landmarks does
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
CHANGING = frozenset(
    {*SOFTMAXES, *PRODUCTS, *REDUCING, "sigmoid", "embedding", "exp", "log_softmax", "_log_softmax"}
    | {"special_log_softmax", "logsumexp", "__setitem__", "scaled_dot_product_attention", *FILLED}
)  # functions that do more than to compute each number from the one in its place
Stage = Literal["maximum", "shifted", "powers", "sum", "log", "logsumexp"]
Normaliser = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Where scores come from: a product of two tensors.

    Attributes:
        product: the product; ``None`` where its operands are not kept.
        axes: of its result, with a mark for every part.
        left: the marks of the axes that only the first operand has.
        right: the same of the second.
        over_features: whether it is known to sum over features.
        projected: whether both operands are known to be projections.
        left_lineage: what the first operand was computed from.
        right_lineage: the same of the second.
    """

    product: Contraction | None
    axes: Axes
    left: frozenset[int]
    right: frozenset[int]
    over_features: bool
    projected: bool
    left_lineage: Lineage
    right_lineage: Lineage

    @property
    def kind_is_cross(self) -> bool:
        """Whether both operands are projections, and of inputs of which none is the same."""
        left, right = self.left_lineage.roots, self.right_lineage.roots
        return self.projected and bool(left and right) and not left & right

    def by_keys(self, key_marks: set[int]) -> "Scores":
        """The same with the operand that has these marks second."""
        if not key_marks & self.left:
            return self
        return Scores(
            None if self.product is None else self.product.swapped(),
            self.axes,
            self.right,
            self.left,
            self.over_features,
            self.projected,
            self.right_lineage,
            self.left_lineage,
        )


@dataclass(eq=False)
class Candidate:
    """A normalised tensor that may turn out to be attention.

    Attributes:
        caller: the module that computed it.
        before: what was normalised.
        after: the result.
        axis: which axis it was normalised over.
        axes: of the result, with a mark for every part.
        before_axes: of what was normalised.
        scores: where they come from; ``None`` where that is no product.
        paired: whether they were computed from pairs of tokens in another way, such as a sum of two tensors.
        unseen: whether it is not known how they were computed.
        shape: of the result.
        lineage: what it was computed from.
        normaliser: what normalised them.
        literal: whether a function of torch did, or several that must be checked to be one.
        used: whether it has been reported.
    """

    caller: CallingModule
    before: Tensor | None
    after: Tensor | None
    axis: int
    axes: Axes
    before_axes: Axes
    scores: Scores | None
    paired: bool
    unseen: bool
    shape: torch.Size
    lineage: Lineage
    normaliser: Normaliser = "softmax"
    literal: bool = True
    used: bool = False

    @property
    def key_marks(self) -> set[int]:
        """The marks of the axis that was normalised."""
        return labels_in(self.axes[self.axis : self.axis + 1])

    @property
    def is_over_features(self) -> bool:
        """Whether it is known that features were normalised."""
        return is_all(self.axes[self.axis], FEATURES)

    def is_in(self, labels: set[int]) -> bool:
        """Whether a tensor of axes with these labels still has that of the keys."""
        return not self.used and (not self.key_marks or bool(self.key_marks & labels))

    def is_first_key(self, name: str, result: Tensor) -> bool:
        """Whether a function cut the weights to those of one key, as where another was a sink."""
        cut = name in CUTTING and result.dim() == len(self.axes) and result.shape[self.axis] == 1
        return cut and not self.used

    def refusal(self, values: "Node | None") -> str | None:
        """Why it is no attention although something is summed by it; ``None`` where it is."""
        if self.scores is not None:
            return "attention over channels" if self.is_over_features and not self.scores.over_features else None
        if self.is_over_features:
            return f"a {self.normaliser} over features"
        if self.normaliser != "softmax" or not (self.paired or self.unseen):
            return f"a {self.normaliser} of numbers that no product of queries and keys gave"
        if values is not None and values.scores is not None and not self.paired:
            return f"a {self.normaliser} whose result multiplies a product made of keys and values"
        return None


@dataclass(eq=False)
class Steps:
    """How far a softmax written as several functions has come.

    Attributes:
        before: what it is a softmax of.
        stage: what of it was computed: the largest score of each row, what remains without that, powers, their sum, the
            logarithm of it all, or that of the sum.
        axis: the axis of the sum.
    """

    before: Tensor
    stage: Stage
    axis: int | None = None


@dataclass(eq=False, slots=True)
class Node:
    """What is known of a tensor.

    Attributes:
        axes: what its axes stand for.
        lineage: what it was computed from.
        constant: whether it was computed from parameters and buffers alone, without a product.
        fresh: whether it was first seen as an operand, so that its axes have not been split.
        paired: whether it was computed from pairs of tokens.
        scores: the product that gives it, but for what does not change its axes.
        weights: the normalised tensors that it holds.
        steps: of a softmax written as several functions.
        multiplied: the operands of a product by broadcasting, which a sum may complete.
    """

    axes: Axes
    lineage: Lineage = NOTHING
    constant: bool = False
    fresh: bool = False
    paired: bool = False
    scores: Scores | None = None
    weights: tuple[Candidate, ...] = ()
    steps: Steps | None = None
    multiplied: tuple[Tensor, Tensor] | None = None

    @property
    def is_involved(self) -> bool:
        """Whether what is computed from each of its numbers has not the same node."""
        return self.fresh or bool(self.weights or self.scores or self.steps or self.multiplied)


class _Known(ref[Tensor]):
    """A tensor that a node is known of, without keeping it."""

    __slots__ = ("key", "node")
    key: int
    node: Node


@dataclass(frozen=True, eq=False)
class Use:
    """A product that sums over what was normalised.

    Attributes:
        candidate: what was normalised.
        product: the product, the weights its first operand.
        result: what it gave.
        weights: what is known of the first operand.
        refusal: why it is no attention; ``None`` where it is.
    """

    candidate: Candidate
    product: Contraction
    result: Tensor
    weights: Node
    refusal: str | None


class DataFlow:
    """What is known of the tensors of a forward pass.

    Args:
        model: whose parameters and buffers are constants.
        running: gives the module that runs now.
        on_use: receives what turns out to be attention, or to look like it.
    """

    def __init__(
        self, model: nn.Module, running: Callable[[], CallingModule | None], on_use: Callable[[Use], None]
    ) -> None:
        self.running, self.on_use = running, on_use
        self.constants = {id(each) for module in model.modules() for each in _constants_of(module)}
        self.known: dict[int, _Known] = {}
        self.open: list[Candidate] = []
        self.marks = count(1)
        self.roots = count()

    def see(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any, overwritten: Tensor | None = None
    ) -> None:
        """Follows a function of torch that has returned; ``overwritten`` is what it has written its result over."""
        inputs = tensors_in((*args, *kwargs.values()) if kwargs else args)
        if len(inputs) == 1 and isinstance(result, Tensor) and self._passed_on(name, inputs[0], result):
            return None
        if name in SOFTMAXES or name == "sigmoid":
            return self._normalised(inputs[0], result, _axis_of(name, args, kwargs), name, overwritten)
        if name == "scaled_dot_product_attention":
            return self.note_attention(inputs[0], inputs[2], result)
        if name == "__setitem__":
            return self._written(args[0], args[2])
        product = contraction(name, args, kwargs) if inputs else None
        if product is None and name in ("sum", "nansum") and inputs:
            product = self._broadcast_product(inputs[0], args, kwargs)
        if product is not None and isinstance(result, Tensor):
            return self._multiplied(name, product, result)
        for output in tensors_in(result if isinstance(result, list | tuple) else (result,)):
            if self._is_new(output, inputs):
                self._follow(name, inputs, output, args, kwargs)
                if name in FUSED:
                    node = self.node(output)
                    node.lineage = node.lineage.attended
        return None

    def _passed_on(self, name: str, source: Tensor, result: Tensor) -> bool:
        """Whether a function changes numbers alone, of one tensor of which nothing but its axes is known."""
        if name in CHANGING or source.shape != result.shape or source.stride() != result.stride():
            return False
        node = self.node(source)
        if node.is_involved or not self._is_new(result, [source]):
            return False
        if result is not source:
            self._keep(result, node)
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
        return next((each for each in self.unused() if each.after is not None and _is_view(each.after, tensor)), None)

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

    def _keep(self, tensor: Tensor, node: Node) -> None:
        known = _Known(tensor, self._forget)
        known.key, known.node = id(tensor), node
        self.known[known.key] = known

    def _forget(self, known: ref[Tensor]) -> None:
        if isinstance(known, _Known) and self.known.get(known.key) is known:
            del self.known[known.key]

    def _written(self, target: Tensor, value: object) -> None:
        """Numbers written into a tensor."""
        if isinstance(value, Tensor):
            node = self.node(target)
            self._keep(target, replace(node, lineage=merged((node.lineage, self.node(value).lineage))))

    def _normalised(
        self, before: Tensor, after: Tensor, axis: int | None, name: str, overwritten: Tensor | None
    ) -> None:
        """A softmax or sigmoid of a tensor, which may be attention."""
        node = self.node(before)
        sigmoid = name == "sigmoid"
        if sigmoid:
            axis = _key_axis(node)
        if axis is None or before.dim() < 2 or not before.is_floating_point() or (sigmoid and node.scores is None):
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
            scores = scores.by_keys(key_marks) if _is_of(scores, key_marks) else None
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
            self._close(self.open.pop(0))

    def _close(self, candidate: Candidate) -> None:
        candidate.before = candidate.after = candidate.scores = None
        candidate.used = True

    def _marked(self, axis: Axis) -> Axis:
        """The axis with a mark of its own for each part."""
        return tuple(Part(part.size, next(self.marks) * FIRST_MARK + label_of(part.label)) for part in axis)

    def _multiplied(self, name: str, product: Contraction, result: Tensor) -> None:
        """A product: of a projection, of scores, or of weights and values."""
        left, right = self.node(product.left), self.node(product.right)
        uses = list(self._uses(product, left, right, result)) if left.weights or right.weights else []
        self._keep(result, self._product_node(name, product, left, right, result, uses))
        for use in uses:
            use.candidate.used = True
            self.on_use(use)
            self._close(use.candidate)

    def _uses(self, product: Contraction, left: Node, right: Node, result: Tensor) -> Iterator[Use]:
        for one, other, each in ((left, right, product), (right, left, product.swapped())):
            for candidate in one.weights:
                if not candidate.used and _sums_over(candidate, each, one):
                    of_weights = any(not held.used for held in other.weights)
                    refusal = OF_WEIGHTS if of_weights else candidate.refusal(other)
                    yield Use(candidate, each, result, one, refusal)

    def _product_node(
        self, name: str, product: Contraction, left: Node, right: Node, result: Tensor, uses: Sequence[Use]
    ) -> Node:
        kept = right.weights or (right.scores is not None and _is_alive(right.scores, right.axes))
        is_linear = (right.constant and not left.constant) or (name == "linear" and not right.lineage.roots)
        is_linear = is_linear or (left.constant and not right.constant and bool(kept))
        if uses:
            axes = tuple(map(without_marks, _axes_of(product, left, right, result)))
            scores = uses[0].candidate.scores
            queries = scores.left_lineage if scores is not None else merged((left.lineage, right.lineage))
            return Node(axes, queries.attended)
        if is_linear:
            return self._projected(name, product, left, right, result)
        return self._scored(product, left, right, result)

    def _projected(self, name: str, product: Contraction, left: Node, right: Node, result: Tensor) -> Node:
        """The product of a tensor and a parameter, whose own axes are features."""
        if left.constant and not right.constant and name != "linear":
            product, left, right = product.swapped(), right, left
        own = tuple(letter in product.left_letters for letter in product.letters)
        found = _with_features(_axes_of(product, left, right, result), own, result.shape)
        scores = (
            left.scores if left.scores is not None and left.scores.right and _is_alive(left.scores, found) else None
        )
        weights = tuple(each for each in left.weights if each.is_in(labels_in(found)))
        if scores is None and not weights:
            found = _shared_axes(found, own, left.fresh)
        lineage = merged((left.lineage, right.lineage))
        return Node(found, lineage, paired=left.paired, scores=scores, weights=weights)

    def _scored(self, product: Contraction, left: Node, right: Node, result: Tensor) -> Node:
        """The product of two tensors that both depend on the input."""
        axes = list(_axes_of(product, left, right, result))
        only: dict[bool, set[int]] = {True: set(), False: set()}
        for at, letter in enumerate(product.letters):
            in_left, in_right = letter in product.left_letters, letter in product.right_letters
            axes[at] = self._marked(axes[at])
            if in_left != in_right:
                only[in_left] |= labels_in(axes[at : at + 1])
        found = tuple(axes)
        features = [_summed_axis(product, node, letters) for node, letters in _sides(product, left, right)]
        if not product.summed or (_is_features(found, only[True]) and _is_features(found, only[False])):
            keep: Contraction | None = None
        else:
            keep = product
        scores = Scores(
            keep,
            found,
            frozenset(only[True]),
            frozenset(only[False]),
            any(is_all(axis, FEATURES) for axis in features),
            all(is_all(axis, FEATURES) for axis in features),
            left.lineage,
            right.lineage,
        )
        return Node(found, merged((left.lineage, right.lineage)), scores=scores)

    def _broadcast_product(self, summed: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
        """The product of which this is the sum, where its operands were multiplied by broadcasting."""
        factors = self.node(summed).multiplied
        dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if factors is None or dims is None:
            return None
        axes = [dims] if isinstance(dims, int) else list(dims)
        keep = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
        product = elementwise_sum(*factors, axes, keep)
        return product if self._has_own_axes(product) else None

    def _has_own_axes(self, product: Contraction) -> bool:
        """Whether an operand has an axis that the other lacks, weights aside: else it scales or hides numbers."""
        left, right = (
            {letter for letter, size in zip(letters, tensor.shape, strict=True) if size > 1}
            for letters, tensor in ((product.left_letters, product.left), (product.right_letters, product.right))
        )
        of_left, of_right = (any(not held.used for held in self.node(each).weights) for each in product[:2])
        if left == right:
            return _is_one_pair(product.left)
        return bool((left - right and not of_left) or (right - left and not of_right))

    def _follow(
        self, name: str, inputs: list[Tensor], result: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Any other function: its result has what its inputs have, as far as the axes show."""
        if not inputs or name in FILLED:
            made_by_model = self.running() is not None  # else it is what the model is called with
            return self._keep(result, Node(unknown_axes(result.shape), constant=True)) if made_by_model else None
        nodes = [self.node(each) for each in inputs]
        if name == "embedding":
            return self._embedded(nodes, inputs, result)
        axes = _axes_after(name, inputs, nodes, result, args, kwargs)
        paired = (name not in NORMS and any(each.paired for each in nodes)) or _pairs(name, inputs, nodes, result)
        scores = next((n.scores for n in nodes if n.scores is not None and _is_alive(n.scores, axes)), None)
        weights = _weights_of(name, nodes, axes, result)
        constant, lineage = all(n.constant for n in nodes), _lineage_after(inputs, nodes, result)
        node = Node(axes, lineage, constant, paired=paired, scores=scores, weights=weights)
        self._keep(result, node)
        if name in ("mul", "multiply", "mul_", "__mul__", "__rmul__") and len(inputs) == 2:
            one, other = inputs
            if (
                (one.shape != other.shape or _is_one_pair(one))
                and not any(n.constant for n in nodes)
                and one.dim()
                and other.dim()
            ):
                node.multiplied = (one, other)
        return self._follow_steps(name, inputs, nodes, result, node, args, kwargs)

    def _embedded(self, nodes: list[Node], inputs: list[Tensor], result: Tensor) -> None:
        """Rows of a table: the axes of their numbers are tokens."""
        ids = next((node for node, each in zip(nodes, inputs, strict=True) if not each.is_floating_point()), nodes[0])
        axes = tuple(axis_of(size, TOKENS) for size in result.shape[:-1])
        self._keep(result, Node((*axes, axis_of(result.shape[-1], FEATURES)), ids.lineage, ids.constant))

    def _follow_steps(
        self,
        name: str,
        inputs: list[Tensor],
        nodes: list[Node],
        result: Tensor,
        node: Node,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> None:
        """A softmax written as powers and their sum, or by its logarithm."""
        first = nodes[0].steps
        match name:
            case "exp" | "exp_" if first is not None and first.stage == "log" and first.axis is not None:
                return self._found(first.before, result, first.axis, self.node(first.before), "softmax", literal=False)
            case "amax" | "max" if nodes[0].scores is not None:
                node.steps = Steps(inputs[0], "maximum")
            case "exp" if result.is_floating_point() and nodes[0].scores is not None:
                shifted = first is not None and first.stage == "shifted"
                node.steps = Steps(first.before if shifted and first is not None else inputs[0], "powers")
            case "log_softmax" | "_log_softmax" | "special_log_softmax" | "logsumexp":
                stage: Stage = "logsumexp" if name == "logsumexp" else "log"
                node.steps = Steps(inputs[0], stage, _axis_of(name, args, kwargs))
            case "sum" if first is not None and first.stage == "powers":
                node.steps = replace(first, stage="sum", axis=_axis_of(name, args, kwargs))
            case "sub" | "__sub__" if len(nodes) == 2 and nodes[1].steps is not None:
                other = nodes[1].steps
                if other.stage in ("logsumexp", "maximum") and other.before is inputs[0]:
                    node.steps = replace(other, stage="log" if other.stage == "logsumexp" else "shifted")
            case "div" | "div_" | "__truediv__" | "true_divide" | "divide" if len(nodes) == 2:
                divisor = nodes[1].steps
                if first is not None and divisor is not None and _completes(first, divisor):
                    axis = (divisor.axis or 0) % inputs[0].dim()
                    return self._found(first.before, result, axis, nodes[0], "softmax", literal=False)
            case _ if (
                first is not None and result.shape == inputs[0].shape and first.stage in ("maximum", "powers", "sum")
            ):
                node.steps = first
            case "unsqueeze" | "view" | "reshape" | "__getitem__" | "expand" | "expand_as":
                node.steps = first
        return None


def _weights_of(name: str, nodes: Sequence[Node], axes: Axes, result: Tensor) -> tuple[Candidate, ...]:
    """What was normalised that is still in a result with these axes."""
    held = dict.fromkeys(each for node in nodes for each in node.weights if not each.used)
    if not held:
        return ()
    labels = labels_in(axes)
    return tuple(each for each in held if each.is_in(labels) or each.is_first_key(name, result))


def _completes(powers: Steps, divisor: Steps) -> bool:
    """Whether powers are divided by their own sum."""
    same = powers.before is divisor.before and divisor.axis is not None
    return same and (powers.stage, divisor.stage) == ("powers", "sum")


def _constants_of(module: nn.Module) -> Iterator[Tensor | None]:
    """The module's own parameters and buffers."""
    yield from module._parameters.values()
    yield from module._buffers.values()


def _is_one_pair(tensor: Tensor) -> bool:
    """Whether it may hold the features of one query and one key, ``(..., 1, 1, features)``."""
    return tensor.dim() > QUERY_FROM_END and tensor.shape[-QUERY_FROM_END:-1] == (1, 1)


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among values, and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple | ValuesView):
            found += tensors_in(value)
    return found


def _axis_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """The axis that a function is told to work on."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(axis, list | tuple) and len(axis) == 1:
        axis = axis[0]
    return axis if isinstance(axis, int) else None


def _key_axis(node: Node) -> int | None:
    """The last axis, where a product with scores made it."""
    if node.scores is None:
        return None
    left, right = node.scores.left, node.scores.right
    is_of_scores = labels_in(node.axes[-1:]) & (left | right) if node.axes[-1] else not (left and right)
    return len(node.axes) - 1 if is_of_scores else None


def _is_of(scores: Scores, key_marks: set[int]) -> bool:
    """Whether an axis with these marks is that of one operand; a single key has no mark, nor what was joined to it."""
    unmarked = all(mark < FIRST_MARK for mark in key_marks) and not (scores.left and scores.right)
    return unmarked or bool(key_marks & (scores.left | scores.right))


def _is_alive(scores: Scores, axes: Axes) -> bool:
    """Whether the axes are still those of the scores."""
    labels = labels_in(axes)
    return all(not marks or bool(marks & labels) for marks in (scores.left, scores.right))


@lru_cache(MAX_REMEMBERED)
def _with_features(axes: Axes, own: tuple[bool, ...], shape: torch.Size) -> Axes:
    """Axes of a projection, of which those that are not the operand's own are features."""
    return tuple(
        axis if is_own else axis_of(size, FEATURES) for axis, is_own, size in zip(axes, own, shape, strict=True)
    )


@lru_cache(MAX_REMEMBERED)
def _shared_axes(axes: Axes, own: tuple[bool, ...], fresh: bool) -> Axes:
    """Axes of a projection, of which it is the same along the operand's own."""
    return tuple(
        tuple(_shared(part, fresh) for part in axis) if is_own else axis for axis, is_own in zip(axes, own, strict=True)
    )


def _shared(part: Part, fresh: bool) -> Part:
    """A part of an axis along which a projection is the same: it is none of features any more."""
    label = label_of(part.label)
    if fresh and label == UNKNOWN:
        return Part(part.size, TOKENS)
    return Part(part.size, UNKNOWN if label == FEATURES else label)


def _sums_over(candidate: Candidate, product: Contraction, weights: Node) -> bool:
    """Whether a product sums over the axis that was normalised, and nothing else of the weights."""
    summed = [at for at, letter in enumerate(product.left_letters) if letter in product.summed]
    if len(summed) != 1:
        return False
    size, marks = product.left.shape[summed[0]], candidate.key_marks
    if not marks:
        return size == candidate.shape[candidate.axis] == 1
    labels = labels_in(weights.axes[summed[0] : summed[0] + 1])
    return (labels == marks or (size == 1 and not labels)) and size <= candidate.shape[candidate.axis]


def _sides(product: Contraction, left: Node, right: Node) -> tuple[tuple[Node, str], tuple[Node, str]]:
    return (left, product.left_letters), (right, product.right_letters)


def _summed_axis(product: Contraction, node: Node, letters: str) -> Axis:
    """What is summed over, as one axis."""
    return tuple(
        part for letter, axis in zip(letters, node.axes, strict=True) if letter in product.summed for part in axis
    )


def _is_features(axes: Axes, marks: set[int]) -> bool:
    parts = [part for axis in axes for part in axis if part.label in marks]
    return bool(parts) and all(label_of(part.label) == FEATURES for part in parts)


def _axes_of(product: Contraction, left: Node, right: Node, result: Tensor) -> Axes:
    """The axes of a product's result by its letters."""
    sides = ((product.left_letters, left.axes), (product.right_letters, right.axes))
    return _axes_by_letter(sides, product.letters, result.shape)


@lru_cache(MAX_REMEMBERED)
def _axes_by_letter(sides: tuple[tuple[str, Axes], ...], names: str, shape: torch.Size) -> Axes:
    axes = []
    for letter, size in zip(names, shape, strict=True):
        found = [
            axis
            for letters, given in sides
            for each, axis in zip(letters, given, strict=True)
            if each == letter and sum(part.size > 1 for part in axis)
        ]
        axes.append(best_known(found, size) if found else axis_of(size, UNKNOWN))
    return tuple(axes)


def _pairs(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> bool:
    """Whether a function combines two tensors of different tokens, each of which depends on the input.

    It adds one to each row of the other, or joins the features of tokens that were computed from unlike things.
    """
    moving = [(x, node) for x, node in zip(inputs, nodes, strict=True) if not node.constant and x.is_floating_point()]
    if len(moving) < 2:
        return False
    first, rows = moving[0], moving[0][0].shape[:-1]
    if name in JOINING:
        along_features = result.shape[:-1] == rows and result.shape != first[0].shape
        return along_features and any(node.lineage != first[1].lineage for _, node in moving[1:])
    return ("add" in name or "sub" in name) and any(each.shape != first[0].shape for each, _ in moving[1:])


def _lineage_after(inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> Lineage:
    """What a result was computed from: what its inputs were, or a piece of its one input."""
    lineage = merged([node.lineage for node in nodes])
    axis = cut_axis(inputs[0], result) if len(inputs) == 1 else None
    if axis is None or is_all(nodes[0].axes[axis], FEATURES) or not _is_view(inputs[0], result):
        return lineage
    return lineage.part(piece_along(inputs[0], result, axis))


def _axes_after(
    name: str,
    inputs: Sequence[Tensor],
    nodes: Sequence[Node],
    result: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Axes:
    """The axes of what a function computed that is no product."""
    source, axes, shape = inputs[0], nodes[0].axes, result.shape
    found: Axes | None = axes if result is source else None
    if found is None and name in CONVOLUTIONS:
        found = _convolved(nodes[0], shape)
    elif found is None and name in JOINING:
        found = _joined([node.axes for node in nodes], shape, _axis_of(name, args, kwargs) if name == "stack" else None)
    elif found is None and len(inputs) == 1:
        found = _moved(axes, source, result)
    if found is None and name in REDUCING and len(shape) == source.dim() - 1:
        found = _reduced(axes, shape, _axis_of(name, args, kwargs))
    if found is None and _fits(shape, inputs):
        found = broadcast(tuple(node.axes for node in nodes), shape)
    if found is None and len(shape) == source.dim():
        found = tuple(resized(axis, size) for axis, size in zip(axes, shape, strict=True))
    return unknown_axes(shape) if found is None else found


def _moved(axes: Axes, source: Tensor, result: Tensor) -> Axes | None:
    """The axes of a view or a reshaped copy; ``None`` of anything else."""
    if _is_view(source, result):
        return rearranged(axes, source.stride(), result.shape, result.stride())
    if result.shape != source.shape and result.numel() == source.numel():
        strides = contiguous_strides(source.shape), contiguous_strides(result.shape)
        return rearranged(axes, strides[0], result.shape, strides[1])
    return None


def _convolved(node: Node, shape: torch.Size) -> Axes:
    """The axes after a convolution, whose channels are features."""
    if len(node.axes) != len(shape):
        return unknown_axes(shape)
    axes = [resized(axis, size) for axis, size in zip(node.axes, shape, strict=True)]
    if node.fresh:
        axes = [tuple(Part(part.size, part.label or TOKENS) for part in axis) for axis in axes]
    return (axes[0], axis_of(shape[1], FEATURES), *axes[2:])


def _joined(operands: Sequence[Axes], shape: torch.Size, stacked: int | None) -> Axes:
    """The axes of tensors that were joined along one, or along a new one."""
    if stacked is not None and len(operands[0]) == len(shape) - 1:
        at = stacked % len(shape)
        operands = [(*axes[:at], axis_of(shape[at], UNKNOWN), *axes[at:]) for axes in operands[:1]]
    alike = [axes for axes in operands if len(axes) == len(shape)]
    return tuple(
        best_known([axes[at] for axes in alike if axes[at]], size) if size > 1 else () for at, size in enumerate(shape)
    )


def _fits(shape: torch.Size, inputs: Sequence[Tensor]) -> bool:
    """Whether the inputs may have been broadcast to the shape."""
    sizes = [tuple(each.shape) for each in inputs]
    if all(size == shape for size in sizes):
        return True
    if any(len(size) > len(shape) for size in sizes):
        return False
    aligned = [(1,) * (len(shape) - len(size)) + size for size in sizes]
    return all(max(column) == size for column, size in zip(zip(*aligned, strict=True), shape, strict=True))


def _is_view(source: Tensor, result: Tensor) -> bool:
    return source.dtype == result.dtype and source.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()


def _reduced(axes: Axes, shape: torch.Size, axis: int | None) -> Axes:
    """The axes without one."""
    if axis is None or len(shape) != len(axes) - 1:
        return unknown_axes(shape)
    return tuple(each for at, each in enumerate(axes) if at != axis % len(axes))
