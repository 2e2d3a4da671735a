"""Finds the output projection of attention: the linear map whose operand the heads' outputs enter.

The columns of each head's output are searched by value among the operands of later products with constant weights. So
it does not matter which views, copies, permutations or concatenations lie between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from attnviz.capture.flow.products import Contraction, contraction

MAX_COMPARED_ROWS = 16  # rows of a column that are compared before all rows are
MAX_PENDING = 64  # calls whose projection is searched at once: each head may be a module of its own


@dataclass(frozen=True, eq=False)
class OutputProjection:
    """The linear map that projects the outputs of the heads.

    Attributes:
        weight: ``(columns, features)``.
        bias: ``(features,)``, added by the same function; ``None`` if it adds none.
        columns: ``(heads, features of a head)``, the operand's column of each feature.
        matrix: ``(rows, columns)``, the operand.
        result: ``(rows, features)``, the result of the map.
        queries_first: True if rows are ordered by queries and then by texts; else by texts first.
    """

    weight: Tensor
    bias: Tensor | None
    columns: Tensor
    matrix: Tensor
    result: Tensor
    queries_first: bool


@dataclass(frozen=True, eq=False)
class OperandPlace:
    """An operand of a product, which may be the output of attention.

    Attributes:
        product: the product, this operand first.
        operand: the tensor as it was passed to the function.
    """

    product: Contraction
    operand: Tensor

    @property
    def order(self) -> tuple[list[int], list[int]]:
        """The axes of the operand that are rows, and the summed axes, which are columns."""
        letters = self.product.left_letters
        kept = [at for at, letter in enumerate(letters) if letter not in self.product.summed]
        return kept, [letters.index(letter) for letter in self.product.summed]

    def matrix(self) -> Tensor:
        """Returns the operand as ``(rows, columns)``."""
        rows, columns = self.order
        wide = prod(self.operand.shape[at] for at in columns)
        return self.operand.permute(*rows, *columns).reshape(-1, wide)

    def restored(self, matrix: Tensor) -> Tensor:
        """Returns a matrix ``(rows, columns)`` in the shape of the operand."""
        rows, columns = self.order
        order = [*rows, *columns]
        back = [order.index(at) for at in range(len(order))]
        return matrix.reshape([self.operand.shape[at] for at in order]).permute(back)

    def weight(self) -> Tensor:
        """Returns the other operand as ``(columns, features)``."""
        letters = self.product.right_letters
        summed = [letters.index(letter) for letter in self.product.summed]
        own = [at for at in range(len(letters)) if at not in summed]
        wide = prod(self.product.right.shape[at] for at in summed)
        return self.product.right.permute(*summed, *own).reshape(wide, -1)

    def result(self, result: Tensor) -> Tensor:
        """Returns the result of the product as ``(rows, features)``."""
        own = [letter for letter in self.product.right_letters if letter not in self.product.summed]
        rows = [letter for letter in self.product.left_letters if letter not in self.product.summed]
        order = [self.product.letters.index(letter) for letter in (*rows, *own)]
        return result.permute(order).reshape(-1, prod(result.shape[at] for at in order[len(rows) :]))


def operand_places(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[OperandPlace]:
    """Returns both operands of a function that multiplies two tensors, each with the other as its weights.

    Args:
        name: the name of the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    product = contraction(name, args, kwargs)
    if product is None or not product.summed:
        return []
    sides = [OperandPlace(each, each.left) for each in (product, product.swapped())]
    return [side for side in sides if not _shares_more(side.product)]


def _shares_more(product: Contraction) -> bool:
    """True if the operands share letters that are not summed, so that each row has weights of its own."""
    return bool(set(product.left_letters) & set(product.right_letters) - set(product.summed))


def bias_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Returns the bias that a torch function adds to its product; ``None`` if it adds none.

    Args:
        name: the name of the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    if name == "linear":
        return kwargs.get("bias", args[2] if len(args) > 2 else None)
    if name in ("addmm", "baddbmm"):
        bias = kwargs.get("input", args[0] if args else None)
        return bias if isinstance(bias, Tensor) and kwargs.get("beta", 1) == 1 else None
    return None


def find_columns(output: Tensor, matrix: Tensor) -> tuple[Tensor, bool] | None:
    """Returns the columns of a matrix that hold an attention output, and True if its rows go by queries first.

    Args:
        output: ``(batch, heads, queries, features)``.
        matrix: ``(rows, columns)``.

    Returns:
        The columns, ``(heads, features)``, and the order of rows; ``None`` if a column is missing.
    """
    batch, heads, queries, features = output.shape
    if len(matrix) != batch * queries or matrix.shape[1] < heads * features:
        return None
    for queries_first in (False, True) if batch > 1 and queries > 1 else (False,):
        order = (2, 0, 1, 3) if queries_first else (0, 2, 1, 3)
        searched = output.permute(order).reshape(len(matrix), heads * features).to(matrix.dtype)
        found = _columns(searched, matrix)
        if found is not None:
            return found.view(heads, features), queries_first
    return None


def _columns(searched: Tensor, matrix: Tensor) -> Tensor | None:
    """Returns the numbers of the columns that equal the wanted ones, in their order; ``None`` if one is missing."""
    count = searched.shape[1]
    if searched.shape == matrix.shape and torch.equal(searched, matrix):
        return torch.arange(count, device=matrix.device)
    rows = slice(None, None, -(-len(matrix) // MAX_COMPARED_ROWS))
    places: dict[bytes, list[int]] = {}
    for at, column in enumerate(_as_bytes(matrix[rows])):
        places.setdefault(column, []).append(at)
    found = []
    for column in _as_bytes(searched[rows]):
        if not places.get(column):
            return None
        found.append(places[column].pop(0))
    columns = torch.tensor(found, device=matrix.device)
    return columns if torch.equal(matrix[:, columns], searched) else None


def _as_bytes(matrix: Tensor) -> list[bytes]:
    """Returns each column of a matrix as bytes."""
    columns = (matrix.float().T.contiguous().cpu() + 0.0).numpy()  # + 0.0 turns -0.0 into 0.0, whose bytes differ
    return [column.tobytes() for column in columns]


Found = Callable[[OutputProjection, OperandPlace], None]


class ProjectionSearch:
    """Searches the output projections of attention calls among the products that a thread computes.

    An output may enter several maps, as when an adapter (LoRA) adds its own: each of them is reported.

    Attributes:
        pending: outputs of calls, ``(batch, heads, queries, features)``, and the functions that receive projections.
        last_operand: the operand of the last projection, until the next call is expected.
        last_found: the functions that received it, with the columns and the order of rows.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Found]] = []
        self.last_operand: Tensor | None = None
        self.last_found: list[tuple[Found, Tensor, bool]] = []

    @property
    def is_looking(self) -> bool:
        """True if the next product may be a projection that is searched."""
        return bool(self.pending) or self.last_operand is not None

    def expect(self, output: Tensor, found: Found) -> None:
        """Begins to search the projection of an attention output."""
        self.last_operand, self.last_found = None, []
        self.pending = [*self.pending[1 - MAX_PENDING :], (output, found)]

    def see(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        is_constant: Callable[[Tensor], bool],
    ) -> bool:
        """Compares a function that has returned with the searched projections; True if it is one of them.

        Args:
            name: the name of the function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            result: its result.
            is_constant: returns True for parameters and what is computed from them alone.
        """
        if not self.is_looking or not isinstance(result, Tensor):
            return False
        for place in operand_places(name, args, kwargs):
            if not place.operand.is_floating_point() or not is_constant(place.product.right):
                continue
            if self._enters_again(place):
                return self._receive_again(place, bias_of(name, args, kwargs), result)
            if self._looks(place):
                return self._compare(place, bias_of(name, args, kwargs), result)
        return False

    def _enters_again(self, place: OperandPlace) -> bool:
        """True if the operand is that of the last projection."""
        if self.last_operand is None or place.operand.data_ptr() != self.last_operand.data_ptr():
            return False
        matrix = place.matrix()
        return matrix.shape == self.last_operand.shape and matrix.stride() == self.last_operand.stride()

    def _receive_again(self, place: OperandPlace, bias: Tensor | None, result: Tensor) -> bool:
        matrix, projected = place.matrix(), place.result(result)
        for found, columns, queries_first in self.last_found:
            found(OutputProjection(place.weight(), bias, columns, matrix, projected, queries_first), place)
        return True

    def _looks(self, place: OperandPlace) -> bool:
        """True if the operand is as large as a call's output, or as several together."""
        return any(place.operand.numel() % max(output.numel(), 1) == 0 for output, _ in self.pending)

    def _compare(self, place: OperandPlace, bias: Tensor | None, result: Tensor) -> bool:
        matrix, still_pending = place.matrix(), []
        for output, found in self.pending:
            columns = find_columns(output, matrix)
            if columns is None:
                still_pending.append((output, found))
                continue
            found(OutputProjection(place.weight(), bias, columns[0], matrix, place.result(result), columns[1]), place)
            self.last_operand, self.last_found = matrix, [*self.last_found, (found, *columns)]
        changed, self.pending = len(still_pending) < len(self.pending), still_pending
        return changed
