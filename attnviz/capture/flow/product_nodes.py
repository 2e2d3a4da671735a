"""Computes the node of a product: a projection, scores, or weights times values."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    MAX_CACHED,
    TOKENS,
    UNKNOWN,
    Axes,
    Axis,
    Part,
    axis_of,
    is_all,
    label_of,
    labels_in,
    most_informative_axis,
    without_marks,
)
from attnviz.capture.flow.functions import is_one_pair
from attnviz.capture.flow.lineage import merged_lineage
from attnviz.capture.flow.nodes import Node, Scores, Use, WeightsCandidate, still_has_axes
from attnviz.capture.flow.products import Contraction

OF_WEIGHTS = "weights that multiply other weights"  # attention over landmarks does this


def uses_of(product: Contraction, left: Node, right: Node, result: Tensor) -> Iterator[Use]:
    """Yields a `Use` for each candidate over whose normalised axis a product sums, in either operand.

    Candidates that an earlier product has used are left out. A use may be no attention; its refusal then says why.
    """
    for weights_node, value_node, ordered_product in (
        (left, right, product),
        (right, left, product.with_operands_swapped()),
    ):
        for candidate in weights_node.weights:
            if not candidate.used and _sums_over(candidate, ordered_product, weights_node, value_node.constant):
                values_are_weights = any(not other.used for other in value_node.weights)
                refusal = OF_WEIGHTS if values_are_weights else candidate.refusal(value_node)
                yield Use(candidate, ordered_product, result, weights_node, refusal)


def product_node(
    name: str,
    product: Contraction,
    left: Node,
    right: Node,
    result: Tensor,
    uses: Sequence[Use],
    with_new_marks: Callable[[Axis], Axis],
) -> Node:
    """Returns the node of a product's result: the output of attention, a projection, or possible scores.

    If the product uses a candidate, its result is the output of attention, one call deeper than its queries.
    """
    if uses:
        axes = tuple(map(without_marks, _result_axes(product, left, right, result)))
        scores = uses[0].candidate.scores
        queries = scores.left_lineage if scores is not None else merged_lineage((left.lineage, right.lineage))
        return Node(axes, queries.after_attention)
    if _is_projection(name, left, right):
        return _projection_node(name, product, left, right, result)
    return _scores_node(product, left, right, result, with_new_marks)


def _is_projection(name: str, left: Node, right: Node) -> bool:
    """True if a product maps one operand linearly by the other, which is a constant."""
    is_right_parameter = right.constant and not left.constant
    has_computed_weight = name == "linear" and not right.lineage.roots
    if is_right_parameter or has_computed_weight:
        return True
    has_scores = right.scores is not None and still_has_axes(right.scores, right.axes)
    return left.constant and not right.constant and (has_scores or bool(right.weights))


def _projection_node(name: str, product: Contraction, left: Node, right: Node, result: Tensor) -> Node:
    """Returns the node of a projection: the axes of the parameter become features."""
    if left.constant and not right.constant and name != "linear":
        product, left, right = product.with_operands_swapped(), right, left
    from_left = tuple(letter in product.left_letters for letter in product.letters)
    axes = _with_features(_result_axes(product, left, right, result), from_left, result.shape)
    keeps_scores = left.scores is not None and left.scores.right and still_has_axes(left.scores, axes)
    scores = left.scores if keeps_scores else None
    weights = tuple(candidate for candidate in left.weights if candidate.is_in(labels_in(axes)))
    if scores is None and not weights:
        axes = _without_own_features(axes, from_left, left.is_unobserved)
    lineage = merged_lineage((left.lineage, right.lineage))
    return Node(axes, lineage, from_token_pairs=left.from_token_pairs, scores=scores, weights=weights)


def _scores_node(
    product: Contraction, left: Node, right: Node, result: Tensor, with_new_marks: Callable[[Axis], Axis]
) -> Node:
    """Returns the node of a product that may be scores: both operands depend on the input."""
    axes = list(_result_axes(product, left, right, result))
    left_marks: set[int] = set()
    right_marks: set[int] = set()
    for index, letter in enumerate(product.letters):
        in_left, in_right = letter in product.left_letters, letter in product.right_letters
        axes[index] = with_new_marks(axes[index])
        if in_left and not in_right:
            left_marks |= labels_in([axes[index]])
        elif in_right and not in_left:
            right_marks |= labels_in([axes[index]])
    marked_axes = tuple(axes)
    summed_axes = [
        _summed_axis(product, left, product.left_letters),
        _summed_axis(product, right, product.right_letters),
    ]
    are_only_features = all(_are_features(marked_axes, marks) for marks in (left_marks, right_marks))
    scores = Scores(
        product=product if product.summed_letters and not are_only_features else None,
        axes=marked_axes,
        left=frozenset(left_marks),
        right=frozenset(right_marks),
        over_features=any(is_all(axis, FEATURES) for axis in summed_axes),
        projected=all(is_all(axis, FEATURES) for axis in summed_axes),
        left_lineage=left.lineage,
        right_lineage=right.lineage,
    )
    return Node(marked_axes, merged_lineage((left.lineage, right.lineage)), scores=scores)


def has_own_axes(product: Contraction, left: Node, right: Node) -> bool:
    """True if an operand without weights has an axis that the other lacks; False if one only scales or masks the other.

    Operands with the same axes count if they may be a single query and a single key.
    """
    left_letters, right_letters = (
        {letter for letter, size in zip(letters, tensor.shape, strict=True) if size > 1}
        for letters, tensor in ((product.left_letters, product.left), (product.right_letters, product.right))
    )
    if left_letters == right_letters:
        return is_one_pair(product.left)
    left_is_weights, right_is_weights = (
        any(not candidate.used for candidate in node.weights) for node in (left, right)
    )
    left_has_own_axis = bool(left_letters - right_letters) and not left_is_weights
    right_has_own_axis = bool(right_letters - left_letters) and not right_is_weights
    return left_has_own_axis or right_has_own_axis


@lru_cache(MAX_CACHED)
def _with_features(axes: Axes, from_operand: tuple[bool, ...], shape: torch.Size) -> Axes:
    """Returns the axes of a projection; those that come from the parameter are features."""
    return tuple(
        axis if is_own else axis_of(size, FEATURES)
        for axis, is_own, size in zip(axes, from_operand, shape, strict=True)
    )


@lru_cache(MAX_CACHED)
def _without_own_features(axes: Axes, from_operand: tuple[bool, ...], is_unobserved: bool) -> Axes:
    """Returns the axes of a projection; axes of the operand are no longer labelled as features."""

    def without_feature_label(part: Part) -> Part:
        label = label_of(part.label)
        if is_unobserved and label == UNKNOWN:
            return Part(part.size, TOKENS)
        return Part(part.size, UNKNOWN if label == FEATURES else label)

    return tuple(
        tuple(without_feature_label(part) for part in axis) if is_own else axis
        for axis, is_own in zip(axes, from_operand, strict=True)
    )


def _sums_over(candidate: WeightsCandidate, product: Contraction, weights: Node, is_constant: bool) -> bool:
    """True if a product sums over the normalised axis, and over no other axis of the weights."""
    summed_axes = [index for index, letter in enumerate(product.left_letters) if letter in product.summed_letters]
    if len(summed_axes) != 1:
        return False
    size, marks = product.left.shape[summed_axes[0]], candidate.key_marks
    if not marks:  # axes of size 1 have no mark: a single key, or a single head, which a parameter may mix
        return size == candidate.shape[candidate.axis] == 1 and not is_constant
    summed_marks = labels_in([weights.axes[summed_axes[0]]])
    is_cut_to_one_key = size == 1 and not summed_marks and not marks & labels_in(weights.axes)
    return (summed_marks == marks or is_cut_to_one_key) and size <= candidate.shape[candidate.axis]


def _summed_axis(product: Contraction, node: Node, letters: str) -> Axis:
    """Returns the summed axes of an operand as one axis, given the operand's node and letters."""
    summed_axes = [axis for letter, axis in zip(letters, node.axes, strict=True) if letter in product.summed_letters]
    return tuple(part for axis in summed_axes for part in axis)


def _are_features(axes: Axes, marks: set[int]) -> bool:
    """True if the axes have parts with these marks, and all of those parts are features."""
    present_marks = labels_in(axes) & marks
    return bool(present_marks) and all(label_of(mark) == FEATURES for mark in present_marks)


def _result_axes(product: Contraction, left: Node, right: Node, result: Tensor) -> Axes:
    """Returns the axes of a product's result, each the most informative one among the operands' axes of its letter."""
    sides = ((product.left_letters, left.axes), (product.right_letters, right.axes))
    return _axes_by_letter(sides, product.letters, result.shape)


@lru_cache(MAX_CACHED)
def _axes_by_letter(sides: tuple[tuple[str, Axes], ...], result_letters: str, shape: torch.Size) -> Axes:
    axes = []
    axes_with_letters = [pair for letters, side_axes in sides for pair in zip(letters, side_axes, strict=True)]
    for letter, size in zip(result_letters, shape, strict=True):
        axes_of_letter = [axis for axis_letter, axis in axes_with_letters if axis_letter == letter]
        candidates = [axis for axis in axes_of_letter if any(part.size > 1 for part in axis)]
        axes.append(most_informative_axis(candidates, size) if candidates else axis_of(size, UNKNOWN))
    return tuple(axes)
