"""Computes maps of contributions, ‖α f(x)‖, from maps of weights α.

A contribution is the norm of the vector that a key adds to a query's output in one head; f(x) = (x W_V + b_V) W_O is
that vector for a weight of 1. f(x) does not depend on the query, so a contribution is a weight times the norm of its
key's f(x) (Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4), and any window of a long map is as
exact as its weights.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.dense import DenseMaps
from attnviz.maps.derived import MAX_BAND_CELLS, SourceMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, Window, cell_maps
from attnviz.maps.recording import Recording
from attnviz.streaming.overview import Overview, bands_of_queries

TINY = np.finfo(np.float32).tiny  # replaces a norm of 0, which has no logarithm
REMARK = (
    "Contributions: ‖α f(x)‖, a weight times the norm of its key's value after the output projection "
    "(Kobayashi et al. 2020). A large contribution does not prove that the output depends on it."
)


def contributions_of(recording: Recording) -> Recording:
    """Returns the recording with contributions in place of weights, and a remark that says so.

    A recording of contributions is returned unchanged.

    Raises:
        AttnvizError: if the recording lacks the norms of its values, or single cells are not known.
    """
    if all(maps.quantity == "contribution" for maps in recording.maps):
        return recording
    maps = tuple(contribution_maps(maps) for maps in recording.maps)
    return replace(recording, maps=maps, remarks=(REMARK, *_fidelity_remarks(recording), *recording.remarks))


def contribution_maps(maps: LayerMaps) -> LayerMaps:
    """Returns the maps with contributions in place of weights: computed at once if they are small, else on demand.

    Raises:
        AttnvizError: if the maps lack the norms of their values, or single cells are not known.
    """
    if maps.value_norms is None:
        raise AttnvizError(
            f"layer {maps.layer} was recorded without the norms of its values, which contributions need; "
            "record it again with --of contributions (in Python, values=True)"
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
    """Returns maps of contributions divided by ``unit``.

    Raises:
        AttnvizError: if the maps are neither dense nor over single tokens, such as maps over words of a long text.
    """
    if isinstance(maps, DenseMaps):
        return replace(maps, weights=maps.weights / unit)
    if isinstance(maps, ContributionMaps) and maps.value_norms is not None:
        return replace(maps, value_norms=maps.value_norms / unit)
    raise AttnvizError(
        f"the text is too long for a page with contributions of joined tokens; leave out {option('words', True)} or "
        f"{option('by')}"
    )


def _fidelity_remarks(recording: Recording) -> tuple[str, ...]:
    """Returns a sentence on the error of the sums of α f(x); none if a layer was not checked."""
    differences = [maps.value_norms_fidelity for maps in recording.maps if maps.value_norms_fidelity is not None]
    if len(differences) < len(recording.maps):
        return ()
    largest = max(differences)
    precision = f"within {largest:.0e}" if largest else "exactly"
    return (f"Checked: α f(x), summed over heads and keys, plus the bias equals each projection's output {precision}.",)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ContributionMaps(SourceMaps):
    """Maps of contributions: the weights of ``source`` times the norms of their keys' values."""

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block whose weights are contributions: each weight times the norm of its key's value."""
        window = self.source.window(heads, queries, keys)
        assert self.value_norms is not None
        return replace(window, weights=window.weights * self.value_norms[self.head_indices(heads), None, keys])

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
        if factors is None or not isinstance(self.source, FactoredMaps):
            return None
        assert self.value_norms is not None
        log_norms = np.log(np.maximum(self.value_norms / self._largest_norms[:, None], TINY)).astype(np.float32)
        bias = factors.bias
        by_key = log_norms if bias.by_key is None else bias.by_key + log_norms
        return replace(self.source, factors=replace(factors, bias=replace(bias, by_key=by_key)))


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class _NormalizedMaps(SourceMaps):
    """The maps of ``source`` with each row divided by its sum, so that rows sum to 1 as rows of weights do."""

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block with each row divided by its sum over all keys; rows of sum 0 stay 0, scores are NaN."""
        window = self.source.window(heads, queries, keys)
        totals = self.totals[self.head_indices(heads), queries]
        zeros = np.zeros_like(window.weights)
        shares = np.divide(window.weights, totals[:, :, None], out=zeros, where=totals[:, :, None] > 0)
        return replace(window, weights=shares, scores=np.full_like(shares, np.nan))  # shares have no scores

    @cached_property
    def totals(self) -> FloatArray:
        """The sum of each row of the source, ``(heads, queries)``."""
        totals = np.zeros((len(self.heads), len(self.query_tokens)), dtype=np.float32)
        keys = slice(0, len(self.key_tokens))
        for band in bands_of_queries(slice(0, len(self.query_tokens)), keys.stop * len(self.heads), MAX_BAND_CELLS):
            totals[:, band] = self.source.window(self.heads, band, keys).weights.sum(axis=-1, dtype=np.float64)
        return totals


def normalized_maps(maps: CellMaps) -> CellMaps:
    """Returns the maps with each row divided by its sum; maps of weights are returned unchanged."""
    if maps.quantity == "weight":
        return maps
    return _NormalizedMaps(**maps.shared_fields(), source=maps)
