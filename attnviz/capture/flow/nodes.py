"""What is known of a tensor while a model runs: its axes, what it was computed from, and the attention in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnviz.capture.flow.axes import FEATURES, FIRST_MARK, Axes, is_all, labels_in
from attnviz.capture.flow.lineage import NOTHING, Lineage
from attnviz.capture.flow.products import Contraction
from attnviz.capture.flow.sites import CallingModule

CUTTING = ("__getitem__", "narrow", "split", "chunk")
Stage = Literal["maximum", "shifted", "powers", "sum", "log", "logsumexp", "softmax"]
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
        mixed: whether others were added to it.
        absorbed: whether it was added to another one.
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
    mixed: bool = False
    absorbed: bool = False

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
            logarithm of it all, that of the sum, or all of it.
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
        return self.fresh or self.holds_more

    @property
    def holds_more(self) -> bool:
        """Whether more is known than axes and lineage: it holds tensors, or what was computed from them."""
        return bool(self.weights or self.scores or self.steps or self.multiplied)


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


def weights_of(name: str, nodes: Sequence[Node], axes: Axes, result: Tensor) -> tuple[Candidate, ...]:
    """What was normalised that is still in a result with these axes."""
    held = dict.fromkeys(each for node in nodes for each in node.weights if not each.used)
    if not held:
        return ()
    labels = labels_in(axes)
    cut = {each for node in nodes if node.axes == axes for each in node.weights if not each.is_in(labels)}
    return tuple(each for each in held if each.is_in(labels) or each in cut or each.is_first_key(name, result))


def scored_first(nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes, of which those come first that hold softmaxes of scores, where several hold softmaxes."""
    if sum(bool(node.weights) for node in nodes) < 2:
        return nodes
    return sorted(nodes, key=lambda node: all(each.scores is None for each in node.weights))


def note_mixing(name: str, nodes: Sequence[Node], result: Node) -> None:
    """Notes of softmaxes that a function adds up which of them its result still is."""
    if not result.weights or not any(each in name for each in ("add", "sub", "lerp")):
        return
    lost = {each for node in nodes for each in node.weights} - set(result.weights)
    for each in lost:
        each.absorbed = True
    for each in result.weights if lost else ():
        each.mixed = True


def key_axis(node: Node) -> int | None:
    """The last axis, where a product with scores made it."""
    if node.scores is None:
        return None
    left, right = node.scores.left, node.scores.right
    is_of_scores = labels_in(node.axes[-1:]) & (left | right) if node.axes[-1] else not (left and right)
    return len(node.axes) - 1 if is_of_scores else None


def is_of(scores: Scores, key_marks: set[int]) -> bool:
    """Whether an axis with these marks is that of one operand; a single key has no mark, nor what was joined to it."""
    unmarked = all(mark < FIRST_MARK for mark in key_marks) and not (scores.left and scores.right)
    return unmarked or bool(key_marks & (scores.left | scores.right))


def is_alive(scores: Scores, axes: Axes) -> bool:
    """Whether the axes are still those of the scores."""
    labels = labels_in(axes)
    return all(not marks or bool(marks & labels) for marks in (scores.left, scores.right))
