"""Defines the metadata tracked for each tensor during a run: axes, lineage, and any attention found."""

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
    """Scores of attention: the product of two tensors that gave them.

    Attributes:
        product: the product; ``None`` if its operands are not kept.
        axes: the axes of its result, with a mark for every part.
        left: the marks of the axes that only the first operand has.
        right: the marks of the axes that only the second operand has.
        over_features: True if an operand's summed axis is known to be features.
        projected: True if both operands are known to be projections.
        left_lineage: the lineage of the first operand.
        right_lineage: the lineage of the second operand.
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
        """True if both operands are projections and have no input in common."""
        left, right = self.left_lineage.roots, self.right_lineage.roots
        return self.projected and bool(left and right) and not left & right

    def by_keys(self, key_marks: set[int]) -> "Scores":
        """Returns the scores with the operands ordered so that these marks belong to the second, the keys."""
        if not key_marks & self.left:
            return self
        return Scores(
            None if self.product is None else self.product.with_operands_swapped(),
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
        before: the tensor that was normalised.
        after: the result.
        axis: the axis that was normalised.
        axes: the axes of the result, with a mark for every part.
        before_axes: the axes of the input.
        scores: the product that gave the input; ``None`` if no product did.
        paired: True if the input was computed from pairs of tokens in another way, such as a sum by broadcasting.
        unobserved_input: True if the computation of the input was not observed.
        shape: the shape of the result.
        lineage: the lineage of the input.
        normaliser: the function that normalised it.
        literal: True if one torch function normalised it; several must be checked to be a softmax.
        used: True if it has been reported.
        mixed: True if other normalised tensors were added to it.
        absorbed: True if it was added to another one.
    """

    caller: CallingModule
    before: Tensor | None
    after: Tensor | None
    axis: int
    axes: Axes
    before_axes: Axes
    scores: Scores | None
    paired: bool
    unobserved_input: bool
    shape: torch.Size
    lineage: Lineage
    normaliser: Normaliser = "softmax"
    literal: bool = True
    used: bool = False
    mixed: bool = False
    absorbed: bool = False

    @property
    def key_marks(self) -> set[int]:
        """The marks of the normalised axis."""
        return labels_in(self.axes[self.axis : self.axis + 1])

    @property
    def is_over_features(self) -> bool:
        """True if the normalised axis is known to be features."""
        return is_all(self.axes[self.axis], FEATURES)

    def is_in(self, labels: set[int]) -> bool:
        """True if the candidate is unused, and a tensor whose axes have these labels still has its axis of keys."""
        return not self.used and (not self.key_marks or bool(self.key_marks & labels))

    def is_first_key(self, name: str, result: Tensor) -> bool:
        """True if a function cut unused weights to those of one key, as when a second one was a sink."""
        is_cut = name in CUTTING and result.dim() == len(self.axes) and result.shape[self.axis] == 1
        return is_cut and not self.used

    def refusal(self, values: "Node | None") -> str | None:
        """Returns why a product that sums over this tensor is not attention, as a noun phrase; ``None`` if it is."""
        if self.scores is not None:
            return "attention over channels" if self.is_over_features and not self.scores.over_features else None
        if self.is_over_features:
            return f"a {self.normaliser} over features"
        if self.normaliser != "softmax" or not (self.paired or self.unobserved_input):
            return f"a {self.normaliser} of numbers that no product of queries and keys gave"
        if values is not None and values.scores is not None and not self.paired:
            return f"a {self.normaliser} whose result multiplies a product made of keys and values"
        return None


@dataclass(eq=False)
class Steps:
    """The progress of a softmax that is written as several functions.

    Attributes:
        before: the input of the softmax.
        stage: the last step: the maximum of each row, the input minus the maximum, its exponentials, their sum, the
            log-softmax, the log-sum-exp, or the whole softmax.
        axis: the axis of the sum.
    """

    before: Tensor
    stage: Stage
    axis: int | None = None


@dataclass(eq=False, slots=True)
class Node:
    """The metadata of a tensor.

    Attributes:
        axes: the meaning of each axis.
        lineage: the inputs and attention calls that it was computed from.
        constant: True if it was computed from parameters and buffers alone, without a product.
        fresh: True if it first appeared as an operand, so that its axes have not been split.
        paired: True if it was computed from pairs of tokens.
        scores: the product that gave it, if later functions kept its axes.
        weights: the normalised tensors that it contains.
        steps: the progress of a softmax written as several functions.
        multiplied: the operands of a product by broadcasting, which a sum may complete to a contraction.
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
    def needs_new_node(self) -> bool:
        """True if the result of an element-wise function of the tensor needs another node than the tensor's."""
        return self.fresh or self.holds_tensors

    @property
    def holds_tensors(self) -> bool:
        """True if the node holds candidates, scores, steps or operands, and not only axes and lineage."""
        return bool(self.weights or self.scores or self.steps or self.multiplied)


@dataclass(frozen=True, eq=False)
class Use:
    """A product that sums over a normalised axis.

    Attributes:
        candidate: the normalised tensor.
        product: the product, with the weights as its first operand.
        result: the result of the product.
        weights: the node of the first operand.
        refusal: the reason why it is not attention; ``None`` if it is.
    """

    candidate: Candidate
    product: Contraction
    result: Tensor
    weights: Node
    refusal: str | None


def candidates_in(name: str, nodes: Sequence[Node], axes: Axes, result: Tensor) -> tuple[Candidate, ...]:
    """Returns the candidates among the inputs of a function that its result still contains.

    Args:
        name: the name of the function.
        nodes: the nodes of its inputs.
        axes: the axes of its result.
        result: its result.
    """
    candidates = dict.fromkeys(candidate for node in nodes for candidate in node.weights if not candidate.used)
    if not candidates:
        return ()
    labels = labels_in(axes)
    remaining = [node for node in nodes if _is_same_or_unsqueezed(node.axes, axes)]
    cut_off = {candidate for node in remaining for candidate in node.weights if not candidate.is_in(labels)}
    return tuple(
        candidate
        for candidate in candidates
        if candidate.is_in(labels) or candidate in cut_off or candidate.is_first_key(name, result)
    )


def _is_same_or_unsqueezed(axes: Axes, new_axes: Axes) -> bool:
    """True if the axes after a function are those before it, apart from new ones of size 1."""
    return len(axes) <= len(new_axes) and [axis for axis in axes if axis] == [axis for axis in new_axes if axis]


def softmaxes_of_scores_first(nodes: Sequence[Node]) -> Sequence[Node]:
    """Returns the nodes; if several contain softmaxes, those of scores come first."""
    if sum(bool(node.weights) for node in nodes) < 2:
        return nodes
    return sorted(nodes, key=lambda node: all(candidate.scores is None for candidate in node.weights))


def note_mixing(name: str, nodes: Sequence[Node], result: Node) -> None:
    """Marks softmaxes that a function added up: those that its result no longer contains are absorbed.

    Args:
        name: the name of the function.
        nodes: the nodes of its inputs.
        result: the node of its result.
    """
    if not result.weights or not any(candidate in name for candidate in ("add", "sub", "lerp")):
        return
    lost_candidates = {candidate for node in nodes for candidate in node.weights} - set(result.weights)
    for candidate in lost_candidates:
        candidate.absorbed = True
    for candidate in result.weights if lost_candidates else ():
        candidate.mixed = True


def key_axis(node: Node) -> int | None:
    """Returns the index of the last axis if that comes from a product of scores, else ``None``."""
    if node.scores is None:
        return None
    left, right = node.scores.left, node.scores.right
    is_of_scores = labels_in(node.axes[-1:]) & (left | right) if node.axes[-1] else not (left and right)
    return len(node.axes) - 1 if is_of_scores else None


def is_axis_of_operand(scores: Scores, key_marks: set[int]) -> bool:
    """True if an axis with these marks belongs to one operand; a single key, or one joined to it, has no mark."""
    marks_of_neither = all(mark < FIRST_MARK for mark in key_marks) and not (scores.left and scores.right)
    return marks_of_neither or bool(key_marks & (scores.left | scores.right))


def still_has_axes(scores: Scores, axes: Axes) -> bool:
    """True if the axes still contain axes of both operands of the scores."""
    labels = labels_in(axes)
    return all(not marks or bool(marks & labels) for marks in (scores.left, scores.right))
