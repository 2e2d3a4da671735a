"""Represents maps that are computed from other maps at each access, so that maps of long texts are never whole.

A sink is a key without a token: a learned or constant score in the softmax takes a share of each row (gpt-oss; Miller
2023, "softmax1"). It has no value, so that its contribution is 0. As the last key it belongs to the map: rows sum to 1
with it, no token changes its number, and every picture, table and file has a column of its own for it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, MapTensors, Window, cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import shared_or_per_head
from attnviz.streaming.overview import Overview, ScoreFactors, bands_of_queries, block_edges
from attnviz.text.tokens import keys_without_token

MAX_BAND_CELLS = 2**20  # cells of one head that are computed at once
MAX_KEPT_CELLS = 2**24  # cells of all heads, up to which maps are computed once and kept as arrays
NO_CONTRIBUTIONS = (
    "implicit attention is no weight, so it has no contributions, no ablation and no steps to explain; "
    f"leave out {option('attention', 'implicit')} for softmax attention"
)
TINY = np.finfo(np.float32).tiny  # replaces a norm of 0, which has no logarithm
REMARK = (
    "Contributions: ‖α f(x)‖, a weight times the norm of its key's value after the output projection "
    "(Kobayashi et al. 2020). A large contribution does not prove that the output depends on it."
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DerivedMaps(CellMaps):
    """Maps whose windows are computed from windows of other maps; overviews are pooled in bands of queries."""

    def dense_if_small(self) -> CellMaps:
        """Returns the maps as arrays if they have at most `MAX_KEPT_CELLS` cells; else these maps, unchanged."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        if len(self.heads) * queries * keys > MAX_KEPT_CELLS:
            return self
        return self.to_dense()

    def to_dense(self) -> DenseMaps:
        """Returns the maps as arrays, whatever their size."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        window = self.window(self.heads, slice(0, queries), slice(0, keys))
        return DenseMaps(**self.shared_fields(), scores=window.scores, weights=window.weights, visible=window.visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a window, ``(heads, queries, keys)``."""
        return self.window(heads, queries, keys).scores

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a head's window, ``(queries, keys)``."""
        return self.window((head,), queries, keys).visible

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Returns mean, maximum and visibility of the weights of each pixel of a block; see `LayerMaps.overview`.

        Computes the maximum even if ``maximum`` is False. Pixels without visible cells have mean and maximum 0.
        """
        pixels_of_heads = []
        for head in heads:
            sums = np.zeros((height, width))
            maxima = np.zeros((height, width), dtype=np.float32)
            counts = np.zeros((height, width), dtype=np.int64)
            row_edges = (queries.start + block_edges(queries.stop - queries.start, height)).tolist()
            column_starts = block_edges(keys.stop - keys.start, width)[:-1]
            for row, start in enumerate(row_edges[:-1]):
                # With more pixels than queries, a row of pixels still shows one query.
                row_queries = slice(start, max(row_edges[row + 1], start + 1))
                for band in bands_of_queries(row_queries, keys.stop - keys.start, MAX_BAND_CELLS):
                    window = self.window((head,), band, keys)
                    weights = np.where(window.visible, window.weights[0], np.float32(0))
                    sums[row] += np.add.reduceat(weights.sum(axis=0, dtype=np.float64), column_starts)
                    maxima[row] = np.maximum(maxima[row], np.maximum.reduceat(weights.max(axis=0), column_starts))
                    counts[row] += np.add.reduceat(window.visible.sum(axis=0), column_starts)
            pixels_of_heads.append((sums, maxima, counts))
        return Overview(
            mean=np.stack([sums / np.maximum(counts, 1) for sums, _, counts in pixels_of_heads]).astype(np.float32),
            maximum=np.stack([maxima for _, maxima, _ in pixels_of_heads]),
            visible=shared_or_per_head([counts > 0 for _, _, counts in pixels_of_heads]),
        )

    def to_tensors(self) -> MapTensors:
        """Returns these maps as whole arrays, as a file stores them."""
        return self.to_dense().to_tensors()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SourceMaps(DerivedMaps):
    """Derived maps whose heads are those of one source, each with its visible cells."""

    source: LayerMaps  # the maps that windows are computed from

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads in groups, as the source groups them."""
        return self.source.head_groups(heads)


def contributions_of(recording: Recording) -> Recording:
    """Returns the recording with contributions in place of weights, and a remark that says so.

    A recording of contributions is returned unchanged.
    """
    if all(maps.quantity == "contribution" for maps in recording.maps):
        return recording
    if recording.maps[0].quantity == "implicit":
        raise AttnvizError(NO_CONTRIBUTIONS)
    maps = tuple(contribution_maps(maps) for maps in recording.maps)
    remarks = [REMARK]
    differences = [maps.value_norms_fidelity for maps in recording.maps if maps.value_norms_fidelity is not None]
    if len(differences) == len(recording.maps):  # every layer was checked
        precision = f"within {max(differences):.0e}" if max(differences) else "exactly"
        remarks.append(
            f"Checked: α f(x), summed over heads and keys, plus the bias equals each projection's output {precision}."
        )
    return replace(recording, maps=maps, remarks=(*remarks, *recording.remarks))


def contribution_maps(maps: LayerMaps) -> LayerMaps:
    """Returns the maps with contributions in place of weights: computed at once if they are small, else on demand."""
    if maps.value_norms is None:
        raise AttnvizError(
            f"layer {maps.layer} was recorded without the norms of its values, which contributions need; "
            f"record it again with {option('of', 'contributions')}, or with values=True in Python"
        )
    fields = maps.shared_fields() | {"quantity": "contribution"}
    return ContributionMaps(**fields, source=cell_maps(maps)).dense_if_small()


def mean_contribution(maps: CellMaps, head: int, queries: slice | None = None, keys: slice | None = None) -> float:
    """Returns the mean over queries of the sum of a head's contributions to the query.

    Queries whose sum is 0 do not count; the mean over none is 0.
    """
    query_range = queries or slice(0, len(maps.query_tokens))
    key_range = keys or slice(0, len(maps.key_tokens))
    query_bands = bands_of_queries(query_range, key_range.stop - key_range.start, MAX_BAND_CELLS)
    totals = np.concatenate(
        [maps.window((head,), band, key_range).weights[0].sum(axis=-1, dtype=np.float64) for band in query_bands]
    )
    positive_totals = totals[totals > 0]
    return float(positive_totals.mean()) if len(positive_totals) else 0.0


def contribution_bound(maps: LayerMaps) -> float:
    """Returns the maximum of dense contributions, else the largest norm of a value, or 0 without norms.

    No contribution is above this number, since no weight is above 1.
    """
    if isinstance(maps, DenseMaps):
        return float(maps.weights.max(initial=0))
    return 0.0 if maps.value_norms is None else float(maps.value_norms.max(initial=0))


def divided_contributions(maps: LayerMaps, unit: float) -> LayerMaps:
    """Returns maps of contributions divided by ``unit``."""
    if isinstance(maps, DenseMaps):
        return replace(maps, weights=maps.weights / unit)
    if isinstance(maps, ContributionMaps) and maps.value_norms is not None:
        return replace(maps, value_norms=maps.value_norms / unit)
    raise AttnvizError(f"the text is too long for a page with contributions of joined tokens; leave out {option('by')}")


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ContributionMaps(SourceMaps):
    """Maps of contributions, ‖α f(x)‖: the weights α of ``source`` times the norms of their keys' values.

    A contribution is the norm of the vector that a key adds to a query's output in one head; f(x) = (x W_V + b_V) W_O
    is that vector for a weight of 1. f(x) does not depend on the query (Kobayashi et al. 2020, "Attention is Not Only a
    Weight", equation 4), unless a gate scales the query's output before W_O. So any window of a long map is as exact as
    its weights.
    """

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block whose weights are contributions: each weight times the norm of its key's value."""
        window = self.source.window(heads, queries, keys)
        assert self.value_norms is not None
        norms = self.value_norms if self.value_norms.ndim == window.weights.ndim else self.value_norms[:, None]
        rows = queries if norms.shape[1] > 1 else slice(None)
        return replace(window, weights=window.weights * norms[self.head_indices(heads), rows, keys])

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools a block to pixels; see `LayerMaps.overview`.

        Contributions of factored weights are pooled by `_contribution_factors`, which takes no longer than the weights.
        """
        if self._contribution_factors is None:
            return super().overview(heads, height, width, queries, keys, maximum=maximum)
        pooled_cells = self._contribution_factors.overview(heads, height, width, queries, keys, maximum=maximum)
        largest_norms = self._largest_norms[self.head_indices(heads), None, None]
        return replace(
            pooled_cells, mean=pooled_cells.mean * largest_norms, maximum=pooled_cells.maximum * largest_norms
        )

    @cached_property
    def _largest_norms(self) -> FloatArray:
        """The largest norm of a value in each head, ``(heads,)``; at least `TINY`, to divide by it."""
        assert self.value_norms is not None
        return np.asarray(np.maximum(self.value_norms.max(axis=1), TINY))

    @cached_property
    def _contribution_factors(self) -> FactoredMaps | None:
        """Factored maps of contributions divided by the head's largest norm M: exp(score + log(m/M) − logsumexp)."""
        factors = self.source.cell_factors()
        assert self.value_norms is not None
        if factors is None or not isinstance(self.source, FactoredMaps) or self.value_norms.ndim > 2:
            return None
        log_norms = np.log(np.maximum(self.value_norms / self._largest_norms[:, None], TINY)).astype(np.float32)
        bias = factors.bias
        by_key = log_norms if bias.by_key is None else bias.by_key + log_norms
        return replace(self.source, factors=replace(factors, bias=replace(bias, by_key=by_key)))


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NormalizedMaps(SourceMaps):
    """The sizes of the numbers of ``source``, divided by their sum in a row, so that rows sum to 1 as weights do."""

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block with each row divided by its sum over all keys; rows of sum 0 stay 0, scores are NaN."""
        window = self.source.window(heads, queries, keys)
        totals = self.totals[self.head_indices(heads), queries]
        zeros = np.zeros_like(window.weights)
        shares = np.divide(np.abs(window.weights), totals[:, :, None], out=zeros, where=totals[:, :, None] > 0)
        return replace(window, weights=shares, scores=np.full_like(shares, np.nan))  # shares have no scores

    @cached_property
    def totals(self) -> FloatArray:
        """The sum of the sizes in each row of the source, ``(heads, queries)``."""
        totals = np.zeros((len(self.heads), len(self.query_tokens)), dtype=np.float32)
        keys = slice(0, len(self.key_tokens))
        for band in bands_of_queries(slice(0, len(self.query_tokens)), keys.stop * len(self.heads), MAX_BAND_CELLS):
            totals[:, band] = np.abs(self.source.window(self.heads, band, keys).weights).sum(axis=-1, dtype=np.float64)
        return totals


AnyFactors = TypeVar("AnyFactors", bound=ScoreFactors)


def with_sink(maps: LayerMaps, scores: FloatArray) -> LayerMaps:
    """Returns the maps with a sink as their last key; pooled maps, whose cells are blocks, are returned unchanged.

    Args:
        scores: ``(heads, queries)``, the score of the sink in the softmax of each row; −inf for a row without it, and
            NaN if it is unknown. Scores of factored maps are finite.
    """
    if not isinstance(maps, DenseMaps | FactoredMaps):
        return maps
    heads, _ = scores.shape
    key_tokens = maps.key_tokens.with_sink
    value_norms = None if maps.value_norms is None else _with_column(maps.value_norms, 0)
    if isinstance(maps, FactoredMaps):
        factors = _factors_with_sink(maps.factors, scores)
        mask, bias = factors.mask, factors.bias
        mask = replace(
            mask,
            tail=len(maps.key_tokens),
            padding=None if mask.padding is None else _with_column(mask.padding, True),
            explicit=None if mask.explicit is None else _with_column(mask.explicit, True),
        )
        bias = replace(
            bias,
            by_key=None if bias.by_key is None else _with_column(bias.by_key, 0),
            explicit=None if bias.explicit is None else _with_column(bias.explicit, 0),
        )
        factors = replace(factors, mask=mask, bias=bias, sink=None)
        return replace(maps, key_tokens=key_tokens, value_norms=value_norms, factors=factors)
    has_sink = ~np.isneginf(scores)
    shares = np.clip(1 - maps.weights.sum(axis=-1, dtype=np.float64), 0, 1) * has_sink
    visible = maps.visible
    if (has_sink == has_sink[0]).all():
        has_sink = has_sink[0]
    else:
        visible = np.broadcast_to(visible, (heads, *visible.shape[-2:]))
    return replace(
        maps,
        key_tokens=key_tokens,
        value_norms=value_norms,
        scores=_with_column(maps.scores, scores),
        weights=_with_column(maps.weights, shares.astype(np.float32)),
        visible=_with_column(visible, has_sink),
        factors=None if maps.factors is None else _factors_with_sink(maps.factors, scores),
    )


def without_sink(maps: CellMaps) -> CellMaps:
    """Returns the maps over their tokens alone, whose rows lack the share of a sink; unchanged if they have none.

    Other keys without a token, which a module adds, are left out, too.
    """
    count = keys_without_token(maps.key_tokens)
    if not count:
        return maps
    key_tokens = maps.key_tokens.first(len(maps.key_tokens) - count)
    value_norms = None if maps.value_norms is None else maps.value_norms[..., :-count]
    if not isinstance(maps, FactoredMaps) or maps.factors.mask.tail is None:
        fields = maps.shared_fields() | {"key_tokens": key_tokens, "value_norms": value_norms}
        return TokenMaps(**fields, source=maps).dense_if_small()
    factors, mask, bias = maps.factors, maps.factors.mask, maps.factors.bias
    queries = np.asarray(factors.queries[:])
    mask = replace(
        mask,
        tail=None,
        padding=None if mask.padding is None else mask.padding[:-1],
        explicit=None if mask.explicit is None else mask.explicit[:, :-1],
    )
    bias = replace(
        bias,
        by_key=None if bias.by_key is None else bias.by_key[:, :-1],
        explicit=None if bias.explicit is None else bias.explicit[..., :-1],
    )
    factors = replace(
        factors,
        queries=queries[..., :-1],
        keys=np.asarray(factors.keys[:, :-1])[..., :-1],
        mask=mask,
        bias=bias,
        sink=queries[:, 0, -1] * np.float32(factors.scale),
    )
    return replace(maps, key_tokens=key_tokens, value_norms=value_norms, factors=factors)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TokenMaps(SourceMaps):
    """The maps of ``source`` without their last keys, which have no token."""

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block of the source, which has the same keys before them."""
        return self.source.window(heads, queries, keys)


def _factors_with_sink(factors: AnyFactors, scores: FloatArray) -> AnyFactors:
    """Returns factors whose last key is the sink: one more feature, 0 for all other keys, gives its score."""
    queries = np.concatenate([np.asarray(factors.queries[:]), scores[..., None] / np.float32(factors.scale)], axis=-1)
    keys = np.pad(np.asarray(factors.keys[:]), ((0, 0), (0, 1), (0, 1)))
    keys[:, -1, -1] = 1
    return replace(factors, queries=queries, keys=keys)


def _with_column(cells: NDArray[Any], value: Any) -> NDArray[Any]:
    """Returns cells ``(..., keys)`` with a last column of this value, or of these values, ``(...)``."""
    column = np.broadcast_to(np.asarray(value, dtype=cells.dtype), cells.shape[:-1])
    return np.concatenate([cells, column[..., None]], axis=-1)
