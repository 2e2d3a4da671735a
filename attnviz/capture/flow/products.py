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
    """

    left: Tensor
    right: Tensor
    left_letters: str
    right_letters: str
    letters: str

    @property
    def summed_letters(self) -> str:
        """The letters of both operands that the result lacks."""
        common_letters = set(self.left_letters) & set(self.right_letters)
        return "".join(letter for letter in self.left_letters if letter in common_letters - set(self.letters))

    def with_operands_swapped(self) -> "Contraction":
        """Returns the product with its operands exchanged."""
        return Contraction(self.right, self.left, self.right_letters, self.left_letters, self.letters)


def contraction(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that a torch function computes; ``None`` if it does not multiply two tensors.

    Args:
        name: the name of the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    parse = PRODUCTS.get(name)
    return None if parse is None else parse(args, kwargs)


def elementwise_sum(left: Tensor, right: Tensor, axes: Sequence[int], keepdim: bool) -> Contraction:
    """Returns the contraction that a product by broadcasting and a sum compute together.

    Args:
        left: the first operand.
        right: the second operand.
        axes: the summed axes of the broadcast product.
        keepdim: True if summed axes stay, with size 1.
    """
    count = max(left.dim(), right.dim())
    letters = NAMED_LETTERS[:count]
    summed_letters = {letters[axis % count] for axis in axes}
    result = letters if keepdim else "".join(letter for letter in letters if letter not in summed_letters)
    # Letters of axes that keepdim left with size 1 are upper-case: the result lacks the summed letters themselves.
    result_letters = result.translate({ord(letter): letter.upper() for letter in summed_letters})
    return Contraction(
        left, right, _operand_letters(letters, left, right), _operand_letters(letters, right, left), result_letters
    )


def _operand_letters(letters: str, tensor: Tensor, other: Tensor) -> str:
    """Returns the letters of a tensor; axes that are broadcast get Greek ones, which the other operand lacks."""
    count = len(letters)
    sizes = (1,) * (count - other.dim()) + tuple(other.shape)
    axes_sizes = zip(letters[count - tensor.dim() :], tensor.shape, sizes[count - tensor.dim() :], strict=True)
    return "".join(
        chr(ord("α") + index) if size == 1 < other_size else letter
        for index, (letter, size, other_size) in enumerate(axes_sizes)
    )


def _tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Returns the tensors among the arguments of a call, except ``out``."""
    arguments = (*args, *(value for name, value in kwargs.items() if name != "out"))
    return [value for value in arguments if isinstance(value, Tensor)]


def _matmul_of_last_two(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the matrix product of the last two tensors; those before, as in ``addmm``, are added."""
    tensors = _tensors(args, kwargs)
    return _matmul(*tensors[-2:]) if len(tensors) > 1 else None


def _matmul(left: Tensor, right: Tensor) -> Contraction:
    """Returns the contraction of ``matmul``, whose operands may be vectors, matrices or batches of matrices."""
    batch_letters = BATCH_LETTERS[: max(left.dim(), right.dim(), 2) - 2]
    has_rows, has_columns = left.dim() > 1, right.dim() > 1
    left_batch = batch_letters[len(batch_letters) - max(left.dim() - 2, 0) :]
    right_batch = batch_letters[len(batch_letters) - max(right.dim() - 2, 0) :]
    result = (
        batch_letters[len(batch_letters) - max(len(left_batch), len(right_batch)) :]
        + "i" * has_rows
        + "k" * has_columns
    )
    return Contraction(left, right, left_batch + "i" * has_rows + "j", right_batch + "j" + "k" * has_columns, result)


def _reversed_matmul(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the matrix product of the second tensor with the first."""
    tensors = _tensors(args, kwargs)
    return _matmul(tensors[1], tensors[0]) if len(tensors) > 1 else None


def _linear(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that ``linear`` computes, without the bias."""
    features = args[0] if args else kwargs["input"]
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    leading_letters = BATCH_LETTERS[: features.dim() - 1]
    return Contraction(
        features,
        weight,
        leading_letters + "j",
        ("k" if weight.dim() > 1 else "") + "j",
        leading_letters + "k"[: weight.dim() - 1],
    )


def _einsum(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that ``einsum`` computes from two operands, given as an equation; else ``None``."""
    if not args or not isinstance(args[0], str):
        return None
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], list | tuple) else list(args[1:])
    if len(operands) != 2:
        return None
    operand_letters, arrow, result = args[0].replace(" ", "").partition("->")
    left, _, right = operand_letters.partition(",")
    unused_letters = [letter for letter in BATCH_LETTERS if letter not in args[0]]
    left, right = (
        _with_dots_replaced(part, operand, unused_letters)
        for part, operand in zip((left, right), operands, strict=True)
    )
    dots_count = max(
        (
            len(operand.dim() * "x") - len(part.replace("...", ""))
            for part, operand in zip(operand_letters.split(","), operands, strict=True)
            if "..." in part
        ),
        default=0,
    )
    dots_letters = "".join(unused_letters[-dots_count:]) if dots_count else ""
    if not arrow:
        letters_once = sorted(
            letter for letter in set(left + right) - set(dots_letters) if (left + right).count(letter) == 1
        )
        result = ("..." if dots_count else "") + "".join(letters_once)
    result = result.replace("...", dots_letters)
    is_valid = len(left) == operands[0].dim() and len(right) == operands[1].dim()
    return Contraction(operands[0], operands[1], left, right, result) if is_valid else None


def _with_dots_replaced(letters: str, operand: Tensor, unused_letters: list[str]) -> str:
    """Returns the letters with dots replaced by letters of leading axes, aligned at the last one."""
    count = operand.dim() - len(letters.replace("...", ""))
    return letters.replace("...", "".join(unused_letters[-count:]) if count > 0 else "")


def _tensordot(args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction | None:
    """Returns the product that ``tensordot`` computes; ``None`` if its axes are given as a tensor."""
    tensors = _tensors(args, kwargs)
    dims = kwargs.get("dims", args[2] if len(args) > 2 else 2)
    if len(tensors) < 2 or isinstance(dims, Tensor):
        return None
    left, right = tensors[:2]
    left_axes, right_axes = dims if not isinstance(dims, int) else (range(left.dim() - dims, left.dim()), range(dims))
    left_axes, right_axes = (
        [axes_of_side] if isinstance(axes_of_side, int) else list(axes_of_side)
        for axes_of_side in (left_axes, right_axes)
    )
    letters = iter(NAMED_LETTERS)
    left_letters = [next(letters) for _ in range(left.dim())]
    right_letters = [next(letters) for _ in range(right.dim())]
    for left_axis, right_axis in zip(left_axes, right_axes, strict=True):
        right_letters[right_axis] = left_letters[left_axis]
    summed_letters = {left_letters[axis] for axis in left_axes}
    result = "".join(letter for letter in left_letters + right_letters if letter not in summed_letters)
    return Contraction(left, right, "".join(left_letters), "".join(right_letters), result)


PRODUCTS: dict[str, Callable[[Sequence[Any], dict[str, Any]], Contraction | None]] = {
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "baddbmm", "addmm", "addmv", "__matmul__"), _matmul_of_last_two),
    "__rmatmul__": _reversed_matmul,
    "linear": _linear,
    "einsum": _einsum,
    "tensordot": _tensordot,
}
