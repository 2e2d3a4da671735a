"""Parses torch's functions that multiply two tensors into one form: a sum over letters, as in ``einsum``."""

import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

BATCH_LETTERS = string.ascii_uppercase  # the axes in front of a matrix
NAMED_LETTERS = string.ascii_lowercase


class Contraction(NamedTuple):
    """A product of two tensors, summed over the letters that the result lacks, as in ``einsum``.

    Attributes:
        left: the first operand.
        right: the second operand.
        left_letters: a letter for each axis of the first operand.
        right_letters: a letter for each axis of the second operand.
        letters: a letter for each axis of the result.
        factor: the function multiplies the product by it, as ``addmm`` does by ``alpha``.
    """

    left: Tensor
    right: Tensor
    left_letters: str
    right_letters: str
    letters: str
    factor: float = 1.0

    @property
    def summed_letters(self) -> str:
        """The letters of both operands that the result lacks."""
        common_letters = set(self.left_letters) & set(self.right_letters)
        return "".join(letter for letter in self.left_letters if letter in common_letters - set(self.letters))

    def with_operands_swapped(self) -> "Contraction":
        """Returns the product with its operands exchanged."""
        return Contraction(self.right, self.left, self.right_letters, self.left_letters, self.letters, self.factor)


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
    unused_letters = [letter for letter in BATCH_LETTERS if letter not in equation]
    left, right = (
        _with_dots_replaced(part, operand, unused_letters) for part, operand in zip(parts, operands, strict=True)
    )
    dots_count = max(map(_axes_of_dots, parts, operands))
    dots_letters = "".join(unused_letters[-dots_count:]) if dots_count else ""
    if not arrow:  # the result then has the letters that occur once, in alphabetical order
        letters_once = sorted(
            letter for letter in set(left + right) - set(dots_letters) if (left + right).count(letter) == 1
        )
        result_letters = ("..." if dots_count else "") + "".join(letters_once)
    result_letters = result_letters.replace("...", dots_letters)
    has_letter_per_axis = len(left) == operands[0].dim() and len(right) == operands[1].dim()
    return Contraction(operands[0], operands[1], left, right, result_letters) if has_letter_per_axis else None


def _axes_of_dots(letters: str, operand: Tensor) -> int:
    """Returns the number of an operand's axes that the dots among its letters stand for; 0 if it has no dots."""
    return operand.dim() - len(letters.replace("...", "")) if "..." in letters else 0


def _with_dots_replaced(letters: str, operand: Tensor, unused_letters: list[str]) -> str:
    """Returns the letters of an operand of ``einsum`` with its dots replaced by letters."""
    count = _axes_of_dots(letters, operand)
    return letters.replace("...", "".join(unused_letters[-count:]) if count > 0 else "")


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
