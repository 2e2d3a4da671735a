"""Defines the metadata tracked for each tensor during a run: axes, lineage, and any attention found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    FIRST_MARK,
    NOTHING,
    Axes,
    Lineage,
    have_separate_inputs,
    is_all,
    labels_in,
)
from attnviz.capture.flow.sites import CallingModule

CUTTING = ("__getitem__", "narrow", "split", "chunk")
Stage = Literal["maximum", "shifted", "powers", "sum", "log", "logsumexp", "softmax"]
Normaliser = Literal["softmax", "sigmoid", "gumbel_softmax"]


class Contraction(NamedTuple):
    """A product of two tensors, summed over the letters that the result lacks, as in ``einsum``."""

    left: Tensor  # the first operand
    right: Tensor  # the second operand
    left_letters: str  # a letter for each axis of the first operand
    right_letters: str  # a letter for each axis of the second operand
    letters: str  # a letter for each axis of the result
    factor: float = 1.0  # the function multiplies the product by it, as ``addmm`` does by ``alpha``

    @property
    def summed_letters(self) -> str:
        """The letters of both operands that the result lacks."""
        common_letters = set(self.left_letters) & set(self.right_letters)
        return "".join(letter for letter in self.left_letters if letter in common_letters - set(self.letters))

    def with_operands_swapped(self) -> "Contraction":
        """Returns the product with its operands exchanged."""
        return Contraction(self.right, self.left, self.right_letters, self.left_letters, self.letters, self.factor)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of attention: the product of two tensors that gave them."""

    product: Contraction | None  # the product; ``None`` if its operands are not kept
    axes: Axes  # the axes of its result, with a mark for every part
    left: frozenset[int]  # the marks of the axes that only the first operand has
    right: frozenset[int]  # the marks of the axes that only the second operand has
    over_features: bool  # True if an operand's summed axis is known to be features
    projected: bool  # True if both operands are known to be projections
    left_lineage: Lineage  # the lineage of the first operand
    right_lineage: Lineage  # the lineage of the second operand

    @property
    def have_separate_inputs(self) -> bool:
        """True if the operands come from different inputs, or one of them from parameters alone."""
        return have_separate_inputs(self.left_lineage, self.right_lineage, self.projected)

    def with_keys_second(self, key_marks: set[int]) -> "Scores":
        """Returns the scores with swapped operands if the first one has a mark of the keys; else unchanged."""
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
class WeightsCandidate:
    """A normalised tensor that may turn out to be attention weights."""

    caller: CallingModule  # the module that computed it
    logits: Tensor | None  # the tensor that was normalised; ``None`` once it is dropped
    probabilities: Tensor | None  # the normalised tensor; ``None`` once it is dropped
    axis: int  # the axis that was normalised
    axes: Axes  # the axes of the probabilities, with a mark for every part
    logit_axes: Axes  # the axes of the logits
    scores: Scores | None  # the product that gave the logits; ``None`` if no product did
    # True if the logits were computed from pairs of tokens in another way, such as a sum by broadcasting
    from_token_pairs: bool
    unobserved_input: bool  # True if the computation of the logits was not observed
    selects: bool  # True if a top-k decided which logits are hidden
    shape: torch.Size  # the shape of the probabilities
    lineage: Lineage  # the lineage of the logits
    normaliser: Normaliser = "softmax"  # the function that normalised them
    by_one_function: bool = True  # True if one torch function normalised them; several must be checked to be a softmax
    used: bool = False  # True if a product has used it, or it was given up
    mixed: bool = False  # True if other normalised tensors were added to it
    absorbed: bool = False  # True if it was added to another one

    @property
    def key_marks(self) -> set[int]:
        """The marks of the normalised axis."""
        return labels_in([self.axes[self.axis]])

    @property
    def is_over_features(self) -> bool:
        """True if the normalised axis is known to be features."""
        return is_all(self.axes[self.axis], FEATURES)

    def is_in(self, marks: set[int]) -> bool:
        """True if the candidate is unused, and its axis of keys is still in a tensor whose axes have these marks.

        A single key has no mark, so it counts as still in any tensor.
        """
        if self.used:
            return False
        return not self.key_marks or bool(self.key_marks & marks)

    def is_cut_to_one_key(self, name: str, result: Tensor) -> bool:
        """True if a function's result is these unused weights cut to one key, such as after a sink is left out."""
        is_cut = name in CUTTING and result.dim() == len(self.axes) and result.shape[self.axis] == 1
        return is_cut and not self.used

    def refusal(self, values: "Node | None") -> str | None:
        """Returns a noun phrase for a tensor whose use in a product is not attention; ``None`` if it is attention."""
        if self.scores is not None:
            is_over_channels = self.is_over_features and not self.scores.over_features
            return "attention over channels" if is_over_channels else None
        if self.is_over_features:
            return f"a {self.normaliser} over features"
        if self.normaliser != "softmax" or not (self.from_token_pairs or self.unobserved_input):
            return f"a {self.normaliser} of numbers that no product of queries and keys gave"
        if values is not None and values.scores is not None and not self.from_token_pairs:
            return f"a {self.normaliser} whose result multiplies a product made of keys and values"
        return None


@dataclass(eq=False)
class Steps:
    """The progress of a softmax that is written as several functions."""

    logits: Tensor  # the input of the softmax
    # The last step: the maximum of each row, the input minus the maximum, its exponentials, their sum, the log-softmax,
    # the log-sum-exp, or the whole softmax
    stage: Stage
    axis: int | None = None  # the axis of the sum


@dataclass(eq=False, slots=True)
class Node:
    """The metadata of a tensor."""

    axes: Axes  # the meaning of each axis
    lineage: Lineage = NOTHING  # the inputs and attention calls that it was computed from
    constant: bool = False  # True if it was computed from parameters and buffers alone, without a product
    # True if no observed function computed it: an input, or a tensor of code that is not observed
    is_unobserved: bool = False
    from_token_pairs: bool = False  # True if it was computed from pairs of tokens
    selected: bool = False  # True if a top-k decided it, without a product since, as it does a mask of chosen keys
    scores: Scores | None = None  # the product that gave it, if later functions kept its axes
    weights: tuple[WeightsCandidate, ...] = ()  # the normalised tensors that it contains
    steps: Steps | None = None  # the progress of a softmax written as several functions
    # The operands if it is a product by broadcasting, which a sum may complete to a contraction
    broadcast_operands: tuple[Tensor, Tensor] | None = None

    @property
    def holds_tensors(self) -> bool:
        """True if the node holds candidates, scores, steps or operands, and not only axes and lineage."""
        return bool(self.weights or self.scores or self.steps or self.broadcast_operands)


@dataclass(frozen=True, eq=False)
class Use:
    """A product that sums over a normalised axis."""

    candidate: WeightsCandidate  # the normalised tensor
    product: Contraction  # the product, with the weights as its first operand
    result: Tensor  # the result of the product
    weights: Node  # the node of the first operand
    refusal: str | None  # the reason why it is not attention; ``None`` if it is


def candidates_in(name: str, nodes: Sequence[Node], axes: Axes, result: Tensor) -> tuple[WeightsCandidate, ...]:
    """Returns the candidates among the inputs of a function that its result still contains; empty if there are none.

    Candidates that a product has used are left out.
    """
    all_candidates = [candidate for node in nodes for candidate in node.weights]
    unused_candidates = dict.fromkeys(candidate for candidate in all_candidates if not candidate.used)  # each once
    if not unused_candidates:
        return ()
    marks = labels_in(axes)
    # A node that contains a candidate without its axis of keys passes it on as long as its axes stay the same.
    # Its axes may get new ones of size 1.
    long_axes = [axis for axis in axes if axis]
    unchanged_nodes = [
        node for node in nodes if len(node.axes) <= len(axes) and [axis for axis in node.axes if axis] == long_axes
    ]
    passed_candidates = {candidate for node in unchanged_nodes for candidate in node.weights}
    return tuple(
        candidate
        for candidate in unused_candidates
        if candidate.is_in(marks) or candidate in passed_candidates or candidate.is_cut_to_one_key(name, result)
    )


def note_mixing(name: str, nodes: Sequence[Node], result: Node) -> None:
    """Marks softmax outputs that a sum or interpolation of several inputs combines.

    Outputs that the result no longer contains are marked as absorbed, and those that it contains as mixed. Does nothing
    if the result contains all of them or none, or if the function is no addition, subtraction or interpolation.
    """
    if not result.weights or not any(sum_name in name for sum_name in ("add", "sub", "lerp")):
        return
    absorbed_candidates = {candidate for node in nodes for candidate in node.weights} - set(result.weights)
    if not absorbed_candidates:
        return
    for candidate in absorbed_candidates:
        candidate.absorbed = True
    for candidate in result.weights:
        candidate.mixed = True


def key_axis(node: Node) -> int | None:
    """Returns the index of a tensor's last axis if that is the queries or keys of scores; ``None`` otherwise.

    An axis of size 1 has no mark: it counts if queries or keys of the scores have no marks either.
    """
    if node.scores is None:
        return None
    left, right = node.scores.left, node.scores.right
    last = len(node.axes) - 1
    if not node.axes[last]:
        return None if left and right else last
    return last if labels_in(node.axes[last:]) & (left | right) else None


def is_axis_of_operand(scores: Scores, key_marks: set[int]) -> bool:
    """True if an axis with these marks belongs to one operand of the scores only: to the queries or to the keys.

    An axis without marks counts if an operand has none either: it is a single key, perhaps with a sink joined to it.
    """
    is_single_key = all(mark < FIRST_MARK for mark in key_marks) and not (scores.left and scores.right)
    return is_single_key or bool(key_marks & (scores.left | scores.right))


def still_has_axes(scores: Scores, axes: Axes) -> bool:
    """True if the axes still contain axes of both operands of the scores; an operand of a single token has no axis."""
    remaining_marks = labels_in(axes)
    return all(not marks or bool(marks & remaining_marks) for marks in (scores.left, scores.right))
