"""What each key would move into a query of full weight: the norm of its value after the output projection.

A contribution is ‖α f(x)‖ with f(x) = (x W_V + b_V) W_O of one head (Kobayashi et al. 2020, "Attention is Not Only a
Weight", equation 4). The weight α is a number, so that only ‖f(x)‖ of each head and key has to be kept.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.capture.calls import AttentionCall, checked_rows, pick_heads
from attnviz.capture.captured_call import CapturedCall
from attnviz.capture.output_projection import OperandPlace, OutputProjection, ProjectionSearch

SEVERAL = "several maps"  # a field of calls whose output enters more than one linear map: they are refused
MIN_FACTORED_KEYS = 8  # for each feature of a head, from which on the projection is reduced to a triangle first


class MovedValues:
    """Adds to the recorded calls what their keys move, once the projection of each is found."""

    def __init__(self) -> None:
        self.search = ProjectionSearch()

    def expect(self, call: AttentionCall, captured: CapturedCall, first_head: int) -> None:
        """Begins to look for the projection of a call that is recorded."""
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
            for fields, norms, worst in zip(captured.fields, moved, differences, strict=True):
                fields |= {"moved": norms, "moved_fidelity": worst}

        self.search.expect(call.output, found)


def moved_norms(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> FloatArray:
    """‖f(x)‖ of each key in each of these heads, ``(batch, heads, keys)``."""
    assert call.values is not None
    values = pick_heads(call.values, heads, call.shape[1]).float()
    weight = projection.weight.float()
    found: FloatArray = norms_after(values, [rows_of(weight, projection.columns[head]) for head in heads]).cpu().numpy()
    return found


def rows_of(weight: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a matrix, as a view where they follow each other."""
    first, last = int(rows[0]), int(rows[-1])
    follow = last - first == len(rows) - 1 and bool((rows.diff() == 1).all())
    return weight[first : last + 1] if follow else weight[rows]


def norms_after(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The norms of values ``(batch, heads, keys, features of a head)`` after a map of each head, without gradients.

    Many keys are multiplied by R of Wᵀ = QR instead, which is small: ‖v W‖ = ‖v Rᵀ‖, since the columns of Q are
    orthonormal. All heads are mapped to one place, since new memory takes longer than the product.

    Args:
        values: of the heads.
        weights: one a head, ``(features of a head, features)``.
    """
    batch, heads, keys, features = values.shape
    place = values.new_empty(0)
    norms = values.new_empty(batch, heads, keys)
    for at, weight in enumerate(weights):
        if batch * keys > MIN_FACTORED_KEYS * features and weight.shape[1] > features:
            weight = torch.linalg.qr(weight.T, mode="r").R.T
        torch.mm(values[:, at].reshape(-1, features), weight, out=place.resize_(0))
        norms[:, at] = torch.linalg.vector_norm(place, dim=-1).view(batch, keys)
    return norms


def difference(call: AttentionCall, projection: OutputProjection, heads: Sequence[int]) -> list[float]:
    """The largest difference of all contributions and the bias from what the projection gave, one a text.

    The sum over heads and keys of α f(x) is computed for at most 32 queries that see any key; where some heads alone
    are recorded, the others are taken as the model computed them.
    """
    batch, _, queries, _ = call.shape
    mixed, seen = call.checked(heads)
    rows = checked_rows(queries)
    given, gave = (
        _by_text(each, batch, rows, projection.queries_first) for each in (projection.matrix, projection.result)
    )
    columns = projection.columns[list(heads)].flatten()
    given[..., columns] = mixed.transpose(1, 2).flatten(2).to(given)
    total = given @ projection.weight.to(given)
    if projection.bias is not None:
        total = total + projection.bias.to(given)
    apart = (total - gave).abs().masked_fill(~seen.all(1), 0)
    return [float(worst) for worst in apart.flatten(1).amax(1)]


def _by_text(matrix: Tensor, batch: int, rows: slice, queries_first: bool) -> Tensor:
    """Some queries of a matrix ``(rows, features)`` as ``(batch, rows, features)``, a copy in float32 or finer."""
    exact = torch.float64 if matrix.dtype == torch.float64 else torch.float32
    if queries_first:
        return matrix.view(-1, batch, matrix.shape[1])[rows].transpose(0, 1).to(exact, copy=True)
    return matrix.view(batch, -1, matrix.shape[1])[:, rows].to(exact, copy=True)
