"""Finds the output projection of attention: the linear map whose operand the heads' outputs enter.

The columns of each head's output are searched by value in the operands of later products with constant weights, so
any views, copies, permutations or concatenations may lie between. An output that a gate or a norm scales on the way is
followed to the product by `OutputPath`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import option
from attnviz.base.machine import refuse_without_memory
from attnviz.capture.assembly.captured_call import FLOAT32_BYTES, ProjectedNorms
from attnviz.capture.assembly.output_path import FrozenNorm, OutputPath
from attnviz.capture.assembly.windows import Windows, joined_norms
from attnviz.capture.calls.attention_call import AttentionCall, checked_rows, pick_heads
from attnviz.capture.flow.functions import TorchCall
from attnviz.capture.flow.nodes import Contraction
from attnviz.capture.flow.products import contraction

MAX_COMPARED_ROWS = 16  # rows of a column that are compared first; all rows only if these match
# What a function raises if its arguments fit no tensor of numbers, or are given in a way that we do not know
UNFOLLOWED = (RuntimeError, ValueError, TypeError, IndexError)
MAX_PENDING = 64  # calls whose projection is searched at the same time: each head may be a separate module


@dataclass(frozen=True, eq=False)
class OutputProjection:
    """The linear map that projects the outputs of the heads."""

    weight: Tensor  # ``(columns, features)``
    bias: Tensor | None  # ``(features,)``, added by the same function; ``None`` if it adds none
    matrix: Tensor  # ``(rows, columns)``, the operand of the product
    result: Tensor  # ``(rows, features)``, the result of the map
    columns: Tensor  # ``(heads, features of a head)``, the operand's column of each feature
    queries_first: bool  # True if rows are ordered by queries and then by texts; else by texts first
    # ``(batch, heads, queries, features of a head)``, the factors that gates and norms put on the heads' outputs;
    # ``None`` if the outputs enter unchanged
    factors: Tensor | None = None
    has_rest: bool = False  # True if the columns also hold numbers of other calls
    norm: FrozenNorm | None = None  # subtracts a mean from the outputs, which is part of `weight` and `bias`


@dataclass(frozen=True, eq=False)
class OperandPlace:
    """An operand of a product, which may be the output of attention."""

    product: Contraction  # the product, this operand first
    operand: Tensor  # the tensor as it was passed to the function

    @property
    def row_and_column_axes(self) -> tuple[list[int], list[int]]:
        """The indices of the operand's axes that become rows of `matrix`, and of those that become columns."""
        letters = self.product.left_letters
        row_axes = [axis for axis, letter in enumerate(letters) if letter not in self.product.summed_letters]
        return row_axes, [letters.index(letter) for letter in self.product.summed_letters]

    def matrix(self, numbers: Tensor | None = None) -> Tensor:
        """Returns the operand, or a tensor of its shape, as ``(rows, columns)``."""
        tensor = self.operand if numbers is None else numbers
        rows, columns = self.row_and_column_axes
        width = prod(tensor.shape[axis] for axis in columns)
        return tensor.permute(*rows, *columns).reshape(-1, width)

    def restored(self, matrix: Tensor) -> Tensor:
        """Returns a matrix ``(rows, columns)`` in the shape of the operand."""
        rows, columns = self.row_and_column_axes
        order = [*rows, *columns]
        inverse_order = [order.index(axis) for axis in range(len(order))]
        return matrix.reshape([self.operand.shape[axis] for axis in order]).permute(inverse_order)

    def weight(self) -> Tensor:
        """Returns the other operand as ``(columns, features)``, times the factor of the product."""
        letters = self.product.right_letters
        summed_axes = [letters.index(letter) for letter in self.product.summed_letters]
        other_axes = [axis for axis in range(len(letters)) if axis not in summed_axes]
        width = prod(self.product.right.shape[axis] for axis in summed_axes)
        weight = self.product.right.permute(*summed_axes, *other_axes).reshape(width, -1)
        return weight if self.product.factor == 1 else weight * self.product.factor

    def result(self, result: Tensor) -> Tensor:
        """Returns the function's result as ``(rows, features)``, with the rows of `matrix`."""
        column_letters = [letter for letter in self.product.right_letters if letter not in self.product.summed_letters]
        row_letters = [letter for letter in self.product.left_letters if letter not in self.product.summed_letters]
        order = [self.product.letters.index(letter) for letter in (*row_letters, *column_letters)]
        return result.permute(order).reshape(-1, prod(result.shape[axis] for axis in order[len(row_letters) :]))


def operand_places(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[OperandPlace]:
    """Returns the operands of a function that multiplies two tensors, each with the other as its weights.

    Empty if the function sums over no axis, or if the operands share another axis, as those of a batched product do.
    """
    product = contraction(name, args, kwargs)
    if product is None or not product.summed_letters:
        return []
    if set(product.left_letters) & set(product.right_letters) - set(product.summed_letters):
        return []
    swapped_product = product.with_operands_swapped()
    return [OperandPlace(product, product.left), OperandPlace(swapped_product, swapped_product.left)]


def added_bias(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Returns the bias that a torch function adds to its product; ``None`` if it adds none, or scales it."""
    if name == "linear":
        return kwargs.get("bias", args[2] if len(args) > 2 else None)
    if name in ("addmm", "baddbmm"):
        bias = kwargs.get("input", args[0] if args else None)
        return bias if isinstance(bias, Tensor) and kwargs.get("beta", 1) == 1 else None
    return None


ReceiveProjection = Callable[[OutputProjection, OperandPlace], None]


class ProjectionSearch:
    """Searches for the output projections of attention calls among the products that a thread computes.

    An output may enter several maps, as when an adapter (LoRA) adds its own: each of them is reported.
    """

    def __init__(self) -> None:
        # The paths of outputs whose projection is searched, and the functions that receive projections
        self.pending: list[tuple[OutputPath, ReceiveProjection]] = []
        self.projected: list[OutputPath] = []  # the paths of the last calls whose projections were found
        # The operand of the last projection; ``None`` once another call is expected
        self.last_operand: Tensor | None = None
        # The functions that received it, with the projection
        self.last_receivers: list[tuple[ReceiveProjection, OutputProjection]] = []

    @property
    def is_searching(self) -> bool:
        """True if an output waits for its projection, or if the last operand may enter further linear maps."""
        return bool(self.pending) or self.last_operand is not None

    def expect(self, output: Tensor, receive: ReceiveProjection) -> OutputPath:
        """Starts to search for the projections of an attention output, and forgets the last projection's operand.

        The output is ``(batch, heads, queries, features)``. If too many outputs wait, the oldest is forgotten. Returns
        its path, which tells what stood between if no projection is found.
        """
        self.last_operand, self.last_receivers, self.projected = None, [], []
        latest_pending = self.pending[1 - MAX_PENDING :]  # one less than the limit
        path = OutputPath(output)
        self.pending = [*latest_pending, (path, receive)]
        return path

    def follow(self, call: TorchCall) -> None:
        """Notes what a function that is no projection makes of the searched outputs, and of those just projected."""
        for path in self.projected:
            path.note_reuse(call)
        paths = [path for path, _ in self.pending if not path.obstacle]
        for path in paths:
            try:
                path.follow(call, paths)
            except UNFOLLOWED:
                path.end(f"{call.name} of unknown arguments")

    def check(self, call: TorchCall, is_constant: Callable[[Tensor], bool]) -> bool:
        """Reports the result of a function if it projects a searched output; True if it does.

        It does if one operand is a constant, and the other one holds a searched output or is the operand of the last
        projection.
        """
        name, args, kwargs, result = call.name, call.args, call.kwargs, call.result
        if not self.is_searching or not isinstance(result, Tensor):
            return False
        for place in operand_places(name, args, kwargs):
            if not place.operand.is_floating_point() or not is_constant(place.product.right):
                continue
            bias = added_bias(name, args, kwargs)
            if self._is_last_operand(place):  # as when an adapter adds a map of its own
                matrix, rows = place.matrix(), place.result(result)
                for receive, projection in self.last_receivers:
                    receive(replace(projection, weight=place.weight(), bias=bias, matrix=matrix, result=rows), place)
                return True
            matrix, still_pending = place.matrix(), []
            for path, receive in self.pending:
                found = _projection_of(path, place, matrix, bias, result)
                if found is None:
                    still_pending.append((path, receive))
                    continue
                receive(found, place)
                self.projected = [*self.projected, path]
                self.last_operand = matrix
                self.last_receivers = [*self.last_receivers, (receive, found)]
            is_found, self.pending = len(still_pending) < len(self.pending), still_pending
            if is_found:
                return True
        return False

    def _is_last_operand(self, place: OperandPlace) -> bool:
        """True if the operand, as a matrix, has the memory, shape and strides of the last projection's operand."""
        if self.last_operand is None or place.operand.data_ptr() != self.last_operand.data_ptr():
            return False
        matrix = place.matrix()
        return matrix.shape == self.last_operand.shape and matrix.stride() == self.last_operand.stride()


def _projection_of(
    path: OutputPath, place: OperandPlace, matrix: Tensor, bias: Tensor | None, result: Tensor
) -> OutputProjection | None:
    """Returns the projection that a product is of a path's output; ``None`` if the product is none of it.

    The operand must hold the output's numbers, or the path must lead to it. Notes what has ended the path before it.
    """
    if not path.is_scaled(place.operand):
        match = None if path.overwriting else _find_columns(path.output, matrix)
        path.end("" if match is not None else path.end_of(place.operand))
        return None if match is None else OutputProjection(place.weight(), bias, matrix, place.result(result), *match)

    # Which element of the output enters each element of the operand, times which factor, by the terms of the path
    batch, heads, queries, features = path.output.shape
    columns = torch.full((heads, features), -1, device=matrix.device)
    factors = torch.zeros(batch * queries, heads, features, device=matrix.device)
    entered = torch.zeros_like(factors, dtype=torch.long)
    try:
        terms = (
            path.terms(place.operand) if path.norm_of(place.operand) is None or place.operand.is_contiguous() else []
        )
    except UNFOLLOWED:
        path.end("a function of unknown arguments")
        return None
    for term in terms:
        numbers, term_factors = place.matrix(term.numbers), place.matrix(term.factors)
        used = numbers[0].nonzero().flatten()
        head, feature = (numbers[0, used] - 1) // (queries * features) % heads, (numbers[0, used] - 1) % features
        if len(numbers) == len(entered) and bool((columns[head, feature] < 0).all()):
            columns[head, feature] = used
            factors[:, head, feature], entered[:, head, feature] = term_factors[:, used], numbers[:, used]

    # The product is the projection if each element enters in its own row, in one order of texts and queries.
    every_number = torch.arange(1, path.output.numel() + 1, device=matrix.device).view(path.output.shape)
    for order in ((0, 2, 1, 3), (2, 0, 1, 3)):
        if torch.equal(every_number.permute(order).flatten(0, 1), entered):
            sizes = every_number.permute(order).shape
            factors = factors.view(sizes).permute([order.index(axis) for axis in range(len(order))])
            norm, weight = path.norm_of(place.operand), place.weight()
            if norm is not None:
                if norm.bias is not None:
                    norm_bias = norm.bias.repeat(len(weight) // norm.width).to(weight) @ weight
                    bias = norm_bias if bias is None else norm_bias + bias
                weight = norm.pull_back(weight.float())
            return OutputProjection(
                weight, bias, matrix, place.result(result), columns, order[0] != 0, factors, path.has_rest, norm
            )
    path.end("a function that joins parts of it")
    return None


def _find_columns(output: Tensor, matrix: Tensor) -> tuple[Tensor, bool] | None:
    """Returns the columns that hold an attention output, ``(heads, features)``, and True if queries are the first."""
    batch, heads, queries, features = output.shape
    if len(matrix) != batch * queries or matrix.shape[1] < heads * features:
        return None
    orders = (False, True) if batch > 1 and queries > 1 else (False,)  # both are the same for one text or one query
    for queries_first in orders:
        order = (2, 0, 1, 3) if queries_first else (0, 2, 1, 3)  # axes of the output: rows, then heads and features
        output_columns = output.permute(order).reshape(len(matrix), heads * features).to(matrix.dtype)
        columns = _matching_columns(output_columns, matrix)
        if columns is not None:
            return columns.view(heads, features), queries_first
    return None


def _matching_columns(output_columns: Tensor, matrix: Tensor) -> Tensor | None:
    """Returns the index in ``matrix`` of each column of ``output_columns``; ``None`` if one is missing."""
    count = output_columns.shape[1]
    if output_columns.shape == matrix.shape and torch.equal(output_columns, matrix):
        return torch.arange(count, device=matrix.device)
    rows = slice(None, None, -(-len(matrix) // MAX_COMPARED_ROWS))  # a few spaced rows find candidates at low cost
    unused_indices: dict[bytes, list[int]] = {}  # the indices of equal columns, by their bytes
    for index, column in enumerate(_columns_as_bytes(matrix[rows])):
        unused_indices.setdefault(column, []).append(index)
    matching_indices = []
    for column in _columns_as_bytes(output_columns[rows]):
        if not unused_indices.get(column):
            return None
        matching_indices.append(unused_indices[column].pop(0))
    columns = torch.tensor(matching_indices, device=matrix.device)
    return columns if torch.equal(matrix[:, columns], output_columns) else None


def _columns_as_bytes(matrix: Tensor) -> list[bytes]:
    columns = (matrix.float().T.contiguous().cpu() + 0.0).numpy()  # + 0.0 turns -0.0 into 0.0, whose bytes differ
    return [column.tobytes() for column in columns]


MAX_PROJECTED_QUERIES = 8  # of the queries on which fidelity is measured
MAX_RELATIVE_ERROR = 1e-3  # of contributions from what the projection computed, in float32, also with TF32
ROUNDINGS = 16  # in half precision, errors of so many roundings of a term; real models come up to 3
MIN_SQUARE = 0.01  # relative to the largest possible square: smaller ones suffer from cancellation


def expected_norms(
    search: ProjectionSearch, call: AttentionCall, heads: Sequence[int], windows: Windows | None = None
) -> ProjectedNorms | None:
    """Starts to search for the output projection of a call; returns its norms, which are unknown until it is found.

    ``None`` if values or output are unknown, or if a fused kernel has applied the projection itself.
    """
    if call.output is None or call.values is None or call.postprocess is not None:
        return None

    # The norms are computed at once, so that values and projection need not be kept to the end of the run.
    def receive(projection: OutputProjection, place: OperandPlace) -> None:
        norms.projections += 1
        if norms.projections == 1:  # contributions to several linear maps are refused
            value_norms = call_value_norms(call, projection, heads)
            errors, tolerance = contribution_errors(call, projection)
            norms.excess = max((error for error in errors if not error <= tolerance), default=0.0)
            if windows is None:
                norms.texts = list(zip(value_norms, errors, strict=True))
            else:
                norms.texts = joined_norms(value_norms, errors, windows)

    norms = ProjectedNorms(search.expect(call.output, receive))
    return norms


def call_value_norms(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> FloatArray:
    """Returns the norm of what each key adds at weight 1, after gates and the output projection.

    Returns:
        ``(batch, heads, keys)``; ``(batch, heads, queries, keys)`` if a gate scales each query in another way.
    """
    assert call.values is not None
    batch, head_count, queries, keys = call.shape
    values = pick_heads(call.values, heads, head_count).float()
    weights = rows_of(projection.weight, projection.columns[list(heads)])
    factors = None if projection.factors is None else projection.factors[:, list(heads)]
    if factors is None or torch.equal(factors, factors[:, :, :1].expand_as(factors)):
        values = values if factors is None else values * factors[:, :, :1]
        norms = norms_after(values, weights)
    elif torch.equal(factors, factors[..., :1].expand_as(factors)):  # a gate of a head, or the scale of a norm
        norms = factors[..., :1].abs() * norms_after(values, weights)[:, :, None]
    else:
        refuse_without_memory(
            batch * len(heads) * queries * keys * FLOAT32_BYTES,
            f"the norms of {keys} values for each of {queries} queries, whose gates differ,",
            f"choose fewer heads, as in {option('heads', '2.0')}, or a shorter text",
        )
        norms = torch.empty(batch, len(heads), queries, keys, device=values.device)
        # A square map R of each head keeps all norms, ‖v W‖ = ‖v R‖, and is smaller than W.
        reduced = torch.linalg.qr(weights.mT, mode="r").R.mT if weights.shape[2] > weights.shape[1] else weights
        for query in range(queries):
            norms[:, :, query] = _mapped_norms(values * factors[:, :, query : query + 1], reduced)
    numbers: FloatArray = norms.cpu().numpy()
    return numbers


def rows_of(weight: Tensor, rows: Tensor) -> Tensor:
    """Returns rows of a matrix in float32, ``(*rows.shape, features)``; a view if they are consecutive float32 rows.

    Args:
        weight: the matrix, ``(rows, features)``.
    """
    first = int(rows[0, 0])
    are_consecutive = torch.equal(rows.flatten(), torch.arange(first, first + rows.numel(), device=rows.device))
    if not are_consecutive:
        return weight[rows].float()
    return weight[first : first + rows.numel()].reshape(*rows.shape, -1).float()


def norms_after(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the norms of values after a linear map of each head, ``(batch, heads, keys)``.

    For many keys and wide outputs, the norms come from the small matrix G = W Wᵀ, as ‖v W‖² = v G vᵀ, except in heads
    where this is too inexact.

    Args:
        values: ``(batch, heads, keys, features of a head)``.
        weights: the maps, ``(heads, features of a head, features)``.
    """
    features, output_width = weights.shape[1:]
    # G pays off only for many keys, and for outputs wider than a head.
    if len(values) * values.shape[2] <= features or output_width <= features:
        return _mapped_norms(values, weights)
    products = weights @ weights.mT
    squares = (values @ products).mul_(values).sum(-1)
    largest_squares = values.square().sum(-1) * torch.linalg.matrix_norm(products)[:, None]
    are_exact = (squares >= MIN_SQUARE * largest_squares).all(-1).all(0)
    norms = squares.clamp_(min=0).sqrt_()
    for head in (~are_exact).nonzero().flatten().tolist():
        norms[:, head] = _mapped_norms(values[:, head], weights[head])
    return norms


def _mapped_norms(values: Tensor, weights: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values @ weights, dim=-1)
    return norms


def contribution_errors(call: AttentionCall, projection: OutputProjection) -> tuple[list[float], float]:
    """Returns how far contributions plus bias are from the projection's result, and how far rounding may take them.

    The first are the largest differences of each text, over all heads and some queries.
    """
    batch, heads, queries, _ = call.shape
    mixed_values, sees_any = call.recomputed_rows(range(heads))
    spacing = -(-mixed_values.shape[2] // MAX_PROJECTED_QUERIES)  # the division rounds up
    rows = checked_rows(queries)
    rows = slice(None, None, (rows.step or 1) * spacing)  # every n-th of the checked queries, counted in all queries
    copies = []  # of the rows of these queries, each (batch, rows, features)
    for matrix in (projection.matrix, projection.result):
        dtype = torch.float64 if matrix.dtype == torch.float64 else torch.float32
        sizes = (-1, batch) if projection.queries_first else (batch, -1)
        rows_of_texts = matrix.view(*sizes, matrix.shape[1])
        rows_of_texts = rows_of_texts.transpose(0, 1) if projection.queries_first else rows_of_texts
        copies.append(rows_of_texts[:, rows].to(dtype, copy=True))
    operand, result = copies

    # The heads' columns of the operand, computed anew: all that they hold must come from the heads, but for a rest
    columns = projection.columns.flatten()
    mixed_rows = mixed_values[:, :, ::spacing].to(operand)
    if projection.factors is None:
        operand[..., columns] = mixed_rows.transpose(1, 2).flatten(2)
    else:
        if projection.has_rest:
            assert call.output is not None
            mixed_rows = mixed_rows - call.output[:, :, rows].to(operand)
        else:
            operand[..., columns] = 0
        entering = (mixed_rows * projection.factors[:, :, rows].to(operand)).transpose(1, 2).flatten(2)
        operand.index_add_(2, columns, entering)
    weight = projection.weight.to(operand)
    total = operand @ weight
    squares = operand.square() @ weight.square()
    if projection.bias is not None:
        bias = projection.bias.to(operand)
        total, squares = total + bias, squares + bias.square()
    errors = (total - result).abs().masked_fill(~sees_any[:, :, ::spacing].all(1), 0)

    # Rounding errors of terms are independent of each other, so that they grow as the root of the sum of squares
    dtypes = {tensor.dtype for tensor in (projection.matrix, projection.result, call.output) if tensor is not None}
    precision = max(torch.finfo(dtype).eps for dtype in dtypes)
    tolerance = max(MAX_RELATIVE_ERROR, ROUNDINGS * precision) * float(squares.max().sqrt())
    return [float(error) for error in errors.flatten(1).amax(1)], tolerance
