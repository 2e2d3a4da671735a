"""What is known of the result of a product: a projection, scores, or what weights made of values."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    MAX_REMEMBERED,
    TOKENS,
    UNKNOWN,
    Axes,
    Axis,
    Part,
    axis_of,
    best_known,
    is_all,
    label_of,
    labels_in,
    without_marks,
)
from attnviz.capture.flow.functions import is_one_pair
from attnviz.capture.flow.lineage import merged
from attnviz.capture.flow.nodes import Candidate, Node, Scores, Use, is_alive
from attnviz.capture.flow.products import Contraction

OF_WEIGHTS = "weights that multiply other weights"  # as attention over landmarks does


def uses_of(product: Contraction, left: Node, right: Node, result: Tensor) -> Iterator[Use]:
    """The products over what was normalised that a product is."""
    for one, other, each in ((left, right, product), (right, left, product.swapped())):
        for candidate in one.weights:
            if not candidate.used and _sums_over(candidate, each, one, other.constant):
                of_weights = any(not held.used for held in other.weights)
                refusal = OF_WEIGHTS if of_weights else candidate.refusal(other)
                yield Use(candidate, each, result, one, refusal)


def product_node(
    name: str,
    product: Contraction,
    left: Node,
    right: Node,
    result: Tensor,
    uses: Sequence[Use],
    marked: Callable[[Axis], Axis],
) -> Node:
    """What is known of the result of a product.

    Args:
        name: of the function that computed it.
        product: the product.
        left: what is known of its first operand.
        right: the same of the second.
        result: what it gave.
        uses: the products over what was normalised that it is.
        marked: gives an axis with marks of its own.
    """
    kept = right.weights or (right.scores is not None and is_alive(right.scores, right.axes))
    is_linear = (right.constant and not left.constant) or (name == "linear" and not right.lineage.roots)
    is_linear = is_linear or (left.constant and not right.constant and bool(kept))
    if uses:
        axes = tuple(map(without_marks, _axes_of(product, left, right, result)))
        scores = uses[0].candidate.scores
        queries = scores.left_lineage if scores is not None else merged((left.lineage, right.lineage))
        return Node(axes, queries.attended)
    if is_linear:
        return _projected(name, product, left, right, result)
    return _scored(product, left, right, result, marked)


def _projected(name: str, product: Contraction, left: Node, right: Node, result: Tensor) -> Node:
    """The product of a tensor and a parameter, whose own axes are features."""
    if left.constant and not right.constant and name != "linear":
        product, left, right = product.swapped(), right, left
    own = tuple(letter in product.left_letters for letter in product.letters)
    found = _with_features(_axes_of(product, left, right, result), own, result.shape)
    scores = left.scores if left.scores is not None and left.scores.right and is_alive(left.scores, found) else None
    weights = tuple(each for each in left.weights if each.is_in(labels_in(found)))
    if scores is None and not weights:
        found = _shared_axes(found, own, left.fresh)
    lineage = merged((left.lineage, right.lineage))
    return Node(found, lineage, paired=left.paired, scores=scores, weights=weights)


def _scored(product: Contraction, left: Node, right: Node, result: Tensor, marked: Callable[[Axis], Axis]) -> Node:
    """The product of two tensors that both depend on the input."""
    axes = list(_axes_of(product, left, right, result))
    only: dict[bool, set[int]] = {True: set(), False: set()}
    for at, letter in enumerate(product.letters):
        in_left, in_right = letter in product.left_letters, letter in product.right_letters
        axes[at] = marked(axes[at])
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


def has_own_axes(product: Contraction, left: Node, right: Node) -> bool:
    """Whether an operand has an axis that the other lacks, weights aside: else it scales or hides numbers."""
    of_left, of_right = (
        {letter for letter, size in zip(letters, tensor.shape, strict=True) if size > 1}
        for letters, tensor in ((product.left_letters, product.left), (product.right_letters, product.right))
    )
    if of_left == of_right:
        return is_one_pair(product.left)
    weigh_left, weigh_right = (any(not held.used for held in node.weights) for node in (left, right))
    return bool((of_left - of_right and not weigh_left) or (of_right - of_left and not weigh_right))


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


def _sums_over(candidate: Candidate, product: Contraction, weights: Node, is_constant: bool) -> bool:
    """True if a product sums over the axis that was normalised, and nothing else of the weights.

    Args:
        candidate: the normalised tensor.
        product: the product, the weights its first operand.
        weights: the node of the weights as they enter the product.
        is_constant: whether the other operand is a parameter, as one that mixes heads is.
    """
    summed = [at for at, letter in enumerate(product.left_letters) if letter in product.summed]
    if len(summed) != 1:
        return False
    size, marks = product.left.shape[summed[0]], candidate.key_marks
    if not marks:  # a single key has no mark, nor a single head, which a parameter may mix
        return size == candidate.shape[candidate.axis] == 1 and not is_constant
    labels = labels_in(weights.axes[summed[0] : summed[0] + 1])
    cut_to_one = size == 1 and not marks & labels_in(weights.axes)
    return (labels == marks or (cut_to_one and not labels)) and size <= candidate.shape[candidate.axis]


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
