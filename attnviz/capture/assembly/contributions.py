"""What each key would move into a query of full weight: the norm of its value after the output projection.

A contribution is ‖α f(x)‖ with f(x) = (x W_V + b_V) W_O of one head (Kobayashi et al. 2020, "Attention is Not Only a
Weight", equation 4). The weight α is a number, so that only ‖f(x)‖ of each head and key has to be kept.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection, ProjectionSearch
from attnviz.capture.assembly.windows import Windows, placed_norms
from attnviz.capture.calls.attention_call import AttentionCall, checked_rows, pick_heads

SEVERAL = "several maps"  # a field of calls whose output enters more than one linear map: they are refused
MAX_PROJECTED_QUERIES = 8  # of those on which fidelity is measured, whose contributions are added up
MIN_SQUARE = 0.01  # of the largest square that a value could have, below which it is not taken from products


class MovedValues:
    """Adds to the recorded calls what their keys move, once the projection of each is found."""

    def __init__(self) -> None:
        self.search = ProjectionSearch()

    def expect(
        self, call: AttentionCall, captured: CapturedCall, first_head: int, windows: Windows | None = None
    ) -> None:
        """Begins to look for the projection of a call that is recorded, whose windows may have been put together."""
        if call.output is None or call.values is None or call.carried_on is not None:
            return
        held = [head - first_head for head in captured.heads]

        def found(projection: OutputProjection, place: OperandPlace) -> None:
            if any("moved" in fields or SEVERAL in fields for fields in captured.fields):
                for fields in captured.fields:
                    fields.pop("moved", None)
                    fields[SEVERAL] = True
                return
            moved = moved_norms(call, projection, held)
            differences = difference(call, projection, held)
            texts = (
                zip(moved, differences, strict=True) if windows is None else placed_norms(moved, differences, windows)
            )
            for fields, (norms, worst) in zip(captured.fields, texts, strict=True):
                fields |= {"moved": norms, "moved_fidelity": worst}

        self.search.expect(call.output, found)


def moved_norms(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> FloatArray:
    """‖f(x)‖ of each key in each of these heads, ``(batch, heads, keys)``."""
    assert call.values is not None
    values = pick_heads(call.values, heads, call.shape[1]).float()
    found: FloatArray = norms_after(values, rows_of(projection.weight, projection.columns[list(heads)])).cpu().numpy()
    return found


def rows_of(weight: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a matrix in float32, ``(*rows, features)``, as a view where they follow each other."""
    first = int(rows[0, 0])
    follow = torch.equal(rows.flatten(), torch.arange(first, first + rows.numel(), device=rows.device))
    return (weight[first : first + rows.numel()].reshape(*rows.shape, -1) if follow else weight[rows]).float()


def norms_after(values: Tensor, weights: Tensor) -> Tensor:
    """The norms of values after a map of each head, ``(batch, heads, keys)``, without gradients.

    Args:
        values: of the heads, ``(batch, heads, keys, features of a head)``.
        weights: ``(heads, features of a head, features)``.
    """
    features, wide = weights.shape[1:]
    if len(values) * values.shape[2] <= features or wide <= features:
        return _mapped_norms(values, weights)
    norms, are_exact = _norms_by_products(values, weights)
    for at in (~are_exact).nonzero().flatten().tolist():
        norms[:, at] = _mapped_norms(values[:, at], weights[at])
    return norms


def _mapped_norms(values: Tensor, weights: Tensor) -> Tensor:
    """The norms of values after a map."""
    norms: Tensor = torch.linalg.vector_norm(values @ weights, dim=-1)
    return norms


def _norms_by_products(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The norms as √(v G vᵀ) with G = W Wᵀ of each head, which is small, and of which heads they are exact.

    A square that is far below what G could make of a value is the difference of larger numbers.
    """
    products = weights @ weights.mT
    squares = (values @ products).mul_(values).sum(-1)
    largest = values.square().sum(-1) * torch.linalg.matrix_norm(products)[:, None]
    are_exact = (squares >= MIN_SQUARE * largest).all(-1).all(0)
    return squares.clamp_(min=0).sqrt_(), are_exact


def difference(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> list[float]:
    """The largest difference of all contributions and the bias from what the projection gave, one a text.

    The sum over heads and keys of α f(x) is computed for at most 8 of the queries that are checked; where some heads
    alone are recorded, the others are taken as the model computed them.
    """
    batch, _, queries, _ = call.shape
    mixed, seen = call.checked(heads)
    some = slice(None, None, -(-mixed.shape[2] // MAX_PROJECTED_QUERIES))
    rows = checked_rows(queries)
    rows = slice(None, None, (rows.step or 1) * some.step)
    given, gave = (
        _by_text(each, batch, rows, projection.queries_first) for each in (projection.matrix, projection.result)
    )
    columns = projection.columns[list(heads)].flatten()
    given[..., columns] = mixed[:, :, some].transpose(1, 2).flatten(2).to(given)
    total = given @ projection.weight.to(given)
    if projection.bias is not None:
        total = total + projection.bias.to(given)
    apart = (total - gave).abs().masked_fill(~seen[:, :, some].all(1), 0)
    return [float(worst) for worst in apart.flatten(1).amax(1)]


def _by_text(matrix: Tensor, batch: int, rows: slice, queries_first: bool) -> Tensor:
    """Some queries of a matrix ``(rows, features)`` as ``(batch, rows, features)``, a copy in float32 or finer."""
    exact = torch.float64 if matrix.dtype == torch.float64 else torch.float32
    if queries_first:
        return matrix.view(-1, batch, matrix.shape[1])[rows].transpose(0, 1).to(exact, copy=True)
    return matrix.view(batch, -1, matrix.shape[1])[:, rows].to(exact, copy=True)
