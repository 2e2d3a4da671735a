"""Computes the norm of each key's value after the output projection: what a weight of 1 would move into a query.

A contribution is ‖α f(x)‖ with f(x) = (x W_V + b_V) W_O of one head (Kobayashi et al. 2020, "Attention is Not Only a
Weight", equation 4). The weight α is a number, so only ‖f(x)‖ of each head and key has to be kept.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.capture.assembly.captured_call import ProjectedNorms
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection, ProjectionSearch
from attnviz.capture.assembly.windows import Windows, joined_norms
from attnviz.capture.calls.attention_call import AttentionCall, checked_rows, pick_heads

MAX_PROJECTED_QUERIES = 8  # of the queries on which fidelity is measured
MIN_SQUARE = 0.01  # relative to the largest possible square: smaller ones suffer from cancellation


class ValueNormRecorder:
    """Finds the norms of the values of recorded calls, by a search for the output projection of each."""

    def __init__(self) -> None:
        self.search = ProjectionSearch()

    def expect(
        self, call: AttentionCall, heads: Sequence[int], windows: Windows | None = None
    ) -> ProjectedNorms | None:
        """Starts to search for the output projection of a call; returns its norms, which are unknown until it is found.

        ``None`` if values or output are unknown, or if a fused kernel has applied the projection itself.
        """
        if call.output is None or call.values is None or call.postprocess is not None:
            return None
        norms = ProjectedNorms()
        self.search.expect(call.output, partial(_note_projection, norms, call, heads, windows))
        return norms


def _note_projection(
    norms: ProjectedNorms,
    call: AttentionCall,
    heads: Sequence[int],
    windows: Windows | None,
    projection: OutputProjection,
    place: OperandPlace,
) -> None:
    norms.projections += 1
    if norms.projections > 1:  # contributions to several linear maps are refused
        return
    value_norms = call_value_norms(call, projection, heads)
    errors = _contribution_errors(call, projection, heads)
    if windows is None:
        norms.texts = list(zip(value_norms, errors, strict=True))
    else:
        norms.texts = joined_norms(value_norms, errors, windows)


def call_value_norms(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> FloatArray:
    """Returns the norm of each key's value after the output projection, ``(batch, heads, keys)``."""
    assert call.values is not None
    values = pick_heads(call.values, heads, call.shape[1]).float()
    norms: FloatArray = norms_after(values, rows_of(projection.weight, projection.columns[list(heads)])).cpu().numpy()
    return norms


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


def _contribution_errors(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> list[float]:
    """Returns for each text the largest difference between summed contributions plus bias and the projection's result.

    Contributions α f(x) are summed over heads and keys for at most 8 of the checked queries; for heads that are not
    recorded, the model's own output is used. A query that sees no key in some head counts as a difference of 0.
    """
    batch, _, queries, _ = call.shape
    mixed_values, sees_any = call.recomputed_rows(heads)
    spacing = -(-mixed_values.shape[2] // MAX_PROJECTED_QUERIES)  # the division rounds up
    rows = checked_rows(queries)
    rows = slice(None, None, (rows.step or 1) * spacing)  # every n-th of the checked queries, counted in all queries
    operand, result = (
        _rows_of_texts(matrix, batch, rows, projection.queries_first)
        for matrix in (projection.matrix, projection.result)
    )
    columns = projection.columns[list(heads)].flatten()
    operand[..., columns] = mixed_values[:, :, ::spacing].transpose(1, 2).flatten(2).to(operand)
    total = operand @ projection.weight.to(operand)
    if projection.bias is not None:
        total = total + projection.bias.to(operand)
    errors = (total - result).abs().masked_fill(~sees_any[:, :, ::spacing].all(1), 0)
    return [float(error) for error in errors.flatten(1).amax(1)]


def _rows_of_texts(matrix: Tensor, batch: int, rows: slice, queries_first: bool) -> Tensor:
    """Returns a copy of some queries' rows of a matrix, ``(batch, rows, features)``, in float32 or float64."""
    dtype = torch.float64 if matrix.dtype == torch.float64 else torch.float32
    if queries_first:
        return matrix.view(-1, batch, matrix.shape[1])[rows].transpose(0, 1).to(dtype, copy=True)
    return matrix.view(batch, -1, matrix.shape[1])[:, rows].to(dtype, copy=True)
