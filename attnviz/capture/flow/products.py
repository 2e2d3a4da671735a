"""Parses torch's functions that multiply two tensors into one form, and computes the node of the product.

A product is a sum over letters, as in ``einsum``. It is a projection, scores, or weights times values.
"""

import string
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

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
    merged_lineage,
    most_informative_axis,
    without_marks,
)
from attnviz.capture.flow.functions import is_one_pair
from attnviz.capture.flow.nodes import Contraction, Node, Scores, Use, WeightsCandidate, still_has_axes

BATCH_LETTERS = string.ascii_uppercase  # the axes in front of a matrix
NAMED_LETTERS = string.ascii_lowercase


def contraction(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that a torch function computes; ``None`` if it does not multiply two tensors."""
    parse = PRODUCTS.get(name)
    return None if parse is None else parse(args, kwargs)


def elementwise_sum(left: Tensor, right: Tensor, axes: Sequence[int], keepdim: bool) -> Contraction:
    """Returns the contraction that a product by broadcasting and a sum compute together."""
    axis_count = max(left.dim(), right.dim())
    letters = NAMED_LETTERS[:axis_count]
    summed_letters = {letters[axis % axis_count] for axis in axes}
    kept_letters = letters if keepdim else "".join(letter for letter in letters if letter not in summed_letters)
    # Letters of axes that keepdim left with size 1 are upper-case: the result lacks the summed letters themselves.
    result_letters = kept_letters.translate({ord(letter): letter.upper() for letter in summed_letters})
    return Contraction(
        left, right, _operand_letters(letters, left, right), _operand_letters(letters, right, left), result_letters
    )


def _operand_letters(letters: str, tensor: Tensor, other: Tensor) -> str:
    first_axis = len(letters) - tensor.dim()  # broadcasting aligns the last axes
    other_sizes = (1,) * (len(letters) - other.dim()) + tuple(other.shape)
    axes = zip(letters[first_axis:], tensor.shape, other_sizes[first_axis:], strict=True)
    return "".join(
        chr(ord("α") + index) if size == 1 < other_size else letter
        for index, (letter, size, other_size) in enumerate(axes)
    )


def _tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Returns the tensors among the arguments of a call, except ``out``."""
    arguments = (*args, *(value for name, value in kwargs.items() if name != "out"))
    return [value for value in arguments if isinstance(value, Tensor)]


def _matmul_of_last_two(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the matrix product of the last two tensors of a call; ``None`` if it has fewer."""
    tensors = _tensors(args, kwargs)
    return _matmul(*tensors[-2:])._replace(factor=kwargs.get("alpha", 1)) if len(tensors) > 1 else None


def _matmul(left: Tensor, right: Tensor) -> Contraction:
    """Returns the contraction of ``matmul``, whose operands may be vectors, matrices or batches of matrices."""
    batch = BATCH_LETTERS[: max(left.dim(), right.dim(), 2) - 2]
    left_batch = batch[len(batch) - max(left.dim() - 2, 0) :]  # broadcasting aligns the last axes
    right_batch = batch[len(batch) - max(right.dim() - 2, 0) :]
    row = "i" if left.dim() > 1 else ""
    column = "k" if right.dim() > 1 else ""
    return Contraction(left, right, f"{left_batch}{row}j", f"{right_batch}j{column}", batch + row + column)


def _reversed_matmul(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the matrix product of a call's second tensor with its first; ``None`` if it has fewer than two."""
    tensors = _tensors(args, kwargs)
    return _matmul(tensors[1], tensors[0]) if len(tensors) > 1 else None


def _linear(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that ``linear`` computes, without the bias; the weight may be a vector or a matrix."""
    features = args[0] if args else kwargs["input"]
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    leading_letters = BATCH_LETTERS[: features.dim() - 1]
    column = "k" if weight.dim() > 1 else ""
    return Contraction(features, weight, f"{leading_letters}j", f"{column}j", leading_letters + column)


def _einsum(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    if not args or not isinstance(args[0], str):
        return None
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], list | tuple) else list(args[1:])
    if len(operands) != 2:
        return None
    equation = args[0].replace(" ", "")
    operand_letters, arrow, result_letters = equation.partition("->")
    parts = operand_letters.split(",")
    unused_letters = "".join(letter for letter in BATCH_LETTERS if letter not in equation)
    letters_by_operand = []
    dots_count = 0  # the most axes that the dots of an operand stand for
    for part, operand in zip(parts, operands, strict=True):
        count = operand.dim() - len(part.replace("...", "")) if "..." in part else 0
        letters_by_operand.append(part.replace("...", unused_letters[len(unused_letters) - count :]))
        dots_count = max(dots_count, count)
    left, right = letters_by_operand
    dots_letters = unused_letters[len(unused_letters) - dots_count :]
    if not arrow:  # the result then has the letters that occur once, in alphabetical order
        letters_once = sorted(
            letter for letter in set(left + right) - set(dots_letters) if (left + right).count(letter) == 1
        )
        result_letters = ("..." if dots_count else "") + "".join(letters_once)
    result_letters = result_letters.replace("...", dots_letters)
    has_letter_per_axis = len(left) == operands[0].dim() and len(right) == operands[1].dim()
    return Contraction(operands[0], operands[1], left, right, result_letters) if has_letter_per_axis else None


def _tensordot(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that ``tensordot`` computes; ``None`` without two tensors, or if ``dims`` is a tensor."""
    tensors = _tensors(args, kwargs)
    dims = kwargs.get("dims", args[2] if len(args) > 2 else 2)  # the number 2 is torch's default
    if len(tensors) < 2 or isinstance(dims, Tensor):
        return None
    left, right = tensors[:2]
    if isinstance(dims, int):  # the last axes of the first tensor, and the first ones of the second
        dims = range(left.dim() - dims, left.dim()), range(dims)
    left_axes, right_axes = ([axes] if isinstance(axes, int) else list(axes) for axes in dims)
    letters = iter(NAMED_LETTERS)
    left_letters = [next(letters) for _ in range(left.dim())]
    right_letters = [next(letters) for _ in range(right.dim())]
    for left_axis, right_axis in zip(left_axes, right_axes, strict=True):
        right_letters[right_axis] = left_letters[left_axis]
    summed_letters = {left_letters[axis] for axis in left_axes}
    result_letters = "".join(letter for letter in left_letters + right_letters if letter not in summed_letters)
    return Contraction(left, right, "".join(left_letters), "".join(right_letters), result_letters)


PRODUCTS: dict[str, Callable[[Sequence[Any], dict[str, Any]], Contraction | None]] = {
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "baddbmm", "addmm", "addmv", "__matmul__"), _matmul_of_last_two),
    "__rmatmul__": _reversed_matmul,
    "linear": _linear,
    "einsum": _einsum,
    "tensordot": _tensordot,
}


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
    is_right_parameter = right.constant and not left.constant
    has_computed_weight = name == "linear" and not right.lineage.roots
    is_left_parameter = left.constant and not right.constant
    right_has_scores = right.scores is not None and still_has_axes(right.scores, right.axes)
    maps_scores = is_left_parameter and (right_has_scores or bool(right.weights))
    if not (is_right_parameter or has_computed_weight or maps_scores):
        return _scores_node(product, left, right, result, with_new_marks)

    # A projection: the axes of the parameter become features.
    if is_left_parameter and name != "linear":
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
    labels = {FEATURES: UNKNOWN, UNKNOWN: TOKENS if is_unobserved else UNKNOWN, TOKENS: TOKENS}
    return tuple(
        tuple(Part(part.size, labels[label_of(part.label)]) for part in axis) if is_own else axis
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
