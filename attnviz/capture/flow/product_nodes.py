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
from attnviz.capture.flow.nodes import Candidate, Node, Scores, Use, still_has_axes
from attnviz.capture.flow.products import Contraction

OF_WEIGHTS = "weights that multiply other weights"  # attention over landmarks does this


def uses_of(product: Contraction, left: Node, right: Node, result: Tensor) -> Iterator[Use]:
    """Yields a `Use` for each candidate over whose normalised axis a product sums.

    Args:
        product: the product.
        left: the node of its first operand.
        right: the node of its second operand.
        result: its result.
    """
    for weights_node, value_node, ordered_product in (
        (left, right, product),
        (right, left, product.with_operands_swapped()),
    ):
        for candidate in weights_node.weights:
            if not candidate.used and _sums_over(candidate, ordered_product, weights_node, value_node.constant):
                of_weights = any(not candidate.used for candidate in value_node.weights)
                refusal = OF_WEIGHTS if of_weights else candidate.refusal(value_node)
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
    """Returns the node of a product's result.

    Args:
        name: the name of the function that computed it.
        product: the product.
        left: the node of the first operand.
        right: the node of the second operand.
        result: the result.
        uses: the uses of candidates in the product, from `uses_of`.
        with_new_marks: returns an axis with new marks.
    """
    has_attention = right.weights or (right.scores is not None and still_has_axes(right.scores, right.axes))
    is_linear = (right.constant and not left.constant) or (name == "linear" and not right.lineage.roots)
    is_linear = is_linear or (left.constant and not right.constant and bool(has_attention))
    if uses:
        axes = tuple(map(without_marks, _result_axes(product, left, right, result)))
        scores = uses[0].candidate.scores
        queries = scores.left_lineage if scores is not None else merged_lineage((left.lineage, right.lineage))
        return Node(axes, queries.attended)
    if is_linear:
        return _projection_node(name, product, left, right, result)
    return _scores_node(product, left, right, result, with_new_marks)


def _projection_node(name: str, product: Contraction, left: Node, right: Node, result: Tensor) -> Node:
    """Returns the node of a projection: the axes of the parameter become features."""
    if left.constant and not right.constant and name != "linear":
        product, left, right = product.with_operands_swapped(), right, left
    from_left = tuple(letter in product.left_letters for letter in product.letters)
    axes = _with_features(_result_axes(product, left, right, result), from_left, result.shape)
    scores = (
        left.scores if left.scores is not None and left.scores.right and still_has_axes(left.scores, axes) else None
    )
    weights = tuple(letters_of_result for letters_of_result in left.weights if letters_of_result.is_in(labels_in(axes)))
    if scores is None and not weights:
        axes = _without_own_features(axes, from_left, left.fresh)
    lineage = merged_lineage((left.lineage, right.lineage))
    return Node(axes, lineage, paired=left.paired, scores=scores, weights=weights)


def _scores_node(
    product: Contraction, left: Node, right: Node, result: Tensor, with_new_marks: Callable[[Axis], Axis]
) -> Node:
    """Returns the node of a product of two tensors that both depend on the input, which may be scores."""
    axes = list(_result_axes(product, left, right, result))
    marks_of_side: dict[bool, set[int]] = {True: set(), False: set()}
    for index, letter in enumerate(product.letters):
        in_left, in_right = letter in product.left_letters, letter in product.right_letters
        axes[index] = with_new_marks(axes[index])
        if in_left != in_right:
            marks_of_side[in_left] |= labels_in(axes[index : index + 1])
    marked_axes = tuple(axes)
    summed_axes = [_summed_axis(product, node, letters) for node, letters in _operands(product, left, right)]
    if not product.summed_letters or (
        _is_features(marked_axes, marks_of_side[True]) and _is_features(marked_axes, marks_of_side[False])
    ):
        kept_product: Contraction | None = None
    else:
        kept_product = product
    scores = Scores(
        kept_product,
        marked_axes,
        frozenset(marks_of_side[True]),
        frozenset(marks_of_side[False]),
        any(is_all(axis, FEATURES) for axis in summed_axes),
        all(is_all(axis, FEATURES) for axis in summed_axes),
        left.lineage,
        right.lineage,
    )
    return Node(marked_axes, merged_lineage((left.lineage, right.lineage)), scores=scores)


def has_own_axes(product: Contraction, left: Node, right: Node) -> bool:
    """True if an operand without weights has an axis that the other lacks; False if one only scales or masks the other.

    Args:
        product: the product.
        left: the node of its first operand.
        right: the node of its second operand.
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
    return bool(
        (left_letters - right_letters and not left_is_weights)
        or (right_letters - left_letters and not right_is_weights)
    )


@lru_cache(MAX_CACHED)
def _with_features(axes: Axes, from_operand: tuple[bool, ...], shape: torch.Size) -> Axes:
    """Returns the axes of a projection; those that come from the parameter are features."""
    return tuple(
        axis if is_own else axis_of(size, FEATURES)
        for axis, is_own, size in zip(axes, from_operand, shape, strict=True)
    )


@lru_cache(MAX_CACHED)
def _without_own_features(axes: Axes, from_operand: tuple[bool, ...], fresh: bool) -> Axes:
    """Returns the axes of a projection; axes of the operand are no longer labelled as features."""
    return tuple(
        tuple(_without_feature_label(part, fresh) for part in axis) if is_own else axis
        for axis, is_own in zip(axes, from_operand, strict=True)
    )


def _without_feature_label(part: Part, fresh: bool) -> Part:
    """Returns a part of an operand's axis: never features; unknown parts of a fresh operand are tokens."""
    label = label_of(part.label)
    if fresh and label == UNKNOWN:
        return Part(part.size, TOKENS)
    return Part(part.size, UNKNOWN if label == FEATURES else label)


def _sums_over(candidate: Candidate, product: Contraction, weights: Node, is_constant: bool) -> bool:
    """True if a product sums over the normalised axis, and over no other axis of the weights.

    Args:
        candidate: the normalised tensor.
        product: the product, with the weights as its first operand.
        weights: the node of the weights as they enter the product.
        is_constant: True if the other operand is a parameter, such as one that mixes heads.
    """
    summed_axes = [index for index, letter in enumerate(product.left_letters) if letter in product.summed_letters]
    if len(summed_axes) != 1:
        return False
    size, marks = product.left.shape[summed_axes[0]], candidate.key_marks
    if not marks:  # axes of size 1 have no mark: a single key, or a single head, which a parameter may mix
        return size == candidate.shape[candidate.axis] == 1 and not is_constant
    labels = labels_in(weights.axes[summed_axes[0] : summed_axes[0] + 1])
    cut_to_one = size == 1 and not marks & labels_in(weights.axes)
    return (labels == marks or (cut_to_one and not labels)) and size <= candidate.shape[candidate.axis]


def _operands(product: Contraction, left: Node, right: Node) -> tuple[tuple[Node, str], tuple[Node, str]]:
    return (left, product.left_letters), (right, product.right_letters)


def _summed_axis(product: Contraction, node: Node, letters: str) -> Axis:
    """Returns the summed axes of an operand as one axis."""
    return tuple(
        part
        for letter, axis in zip(letters, node.axes, strict=True)
        if letter in product.summed_letters
        for part in axis
    )


def _is_features(axes: Axes, marks: set[int]) -> bool:
    """True if there are parts with these marks, and all of them are features."""
    parts = [part for axis in axes for part in axis if part.label in marks]
    return bool(parts) and all(label_of(part.label) == FEATURES for part in parts)


def _result_axes(product: Contraction, left: Node, right: Node, result: Tensor) -> Axes:
    """Returns the axes of a product's result."""
    sides = ((product.left_letters, left.axes), (product.right_letters, right.axes))
    return _axes_by_letter(sides, product.letters, result.shape)


@lru_cache(MAX_CACHED)
def _axes_by_letter(sides: tuple[tuple[str, Axes], ...], names: str, shape: torch.Size) -> Axes:
    axes = []
    for letter, size in zip(names, shape, strict=True):
        candidates = [
            axis
            for letters, side_axes in sides
            for side_letter, axis in zip(letters, side_axes, strict=True)
            if side_letter == letter and sum(part.size > 1 for part in axis)
        ]
        axes.append(most_informative_axis(candidates, size) if candidates else axis_of(size, UNKNOWN))
    return tuple(axes)
