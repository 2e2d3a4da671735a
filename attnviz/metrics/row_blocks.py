"""Cuts the maps of an attention call into blocks of rows, and computes the sums over keys that metrics need."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.progress import track
from attnviz.maps.layer_maps import CellMaps, Window, is_long
from attnviz.maps.visibility import place_of_first_query, position_of_first_query
from attnviz.metrics.grid import Rows
from attnviz.metrics.query_grid import BLOCK_KEYS, CountedCells, NumberedTokens, QueryGrid, is_sequence

BLOCK_CELLS = 2**18  # cells of a block of rows; they stay in the processor's cache
LONG_CELLS = 2**20  # cells of a block of long maps: matrix products of long rows pay only with more rows
MIN_ROWS = 32  # queries of a block at least, which has fewer heads rather than fewer queries; doubled for long maps
TINY = np.finfo(np.float32).tiny
OFFSETS = np.arange(BLOCK_KEYS) - BLOCK_KEYS // 2
POWERS = np.stack([np.ones(BLOCK_KEYS), OFFSETS, OFFSETS**2], axis=1)  # of the offset y of each key: 1, y, y²
MIN_BLOCK_SPREAD = 16.0  # the standard deviation of distances below which float32 sums of blocks may err by 1e-5
NEAR_MIDDLE = 48  # a block with its middle farther away than this has no key within 16 of a place


class GridRows(Rows):
    """The rows of some heads over one text; all results are numpy arrays.

    Attributes:
        head_range: the range of these heads among all that are measured.
        shape: ``(heads, queries)``.
        has_blocks: True if distances are summed in blocks of keys, as float32 needs.
    """

    grid: QueryGrid  # the queries and keys
    has_blocks = True

    def __init__(self, grid: QueryGrid, head_range: slice) -> None:
        self.grid, self.head_range = grid, head_range
        self.shape = head_range.stop - head_range.start, len(grid.visible)

    @property
    @abstractmethod
    def hidden_ratio(self) -> Float64Array:
        """Σ exp(score) over hidden later keys, divided by Σ exp(score) over visible keys; NaN without scores."""

    @property
    @abstractmethod
    def received(self) -> Float64Array:
        """The weight that each key receives from the queries that see two keys or more, ``(heads, keys)``."""

    @abstractmethod
    def block_sums(self) -> Float64Array:
        """Returns Σ w, Σ w·y and Σ w·y² of each block of keys, ``(3, heads, queries, blocks)``, with y of `OFFSETS`."""

    @abstractmethod
    def windows(self, heads: IntArray, queries: IntArray, starts: IntArray) -> Float64Array:
        """Returns the weights of `BLOCK_KEYS` keys, or of all if they are fewer, from each start, ``(..., keys)``."""

    @cached_property
    def _block_distances(self) -> Float64Array:
        """The sums Σ w, Σ w·d and Σ w·d² of each block, ``(3, heads, queries, blocks)``, where d is the distance."""
        # The keys of a block are on one side of the query, except in its own block. With the gap g from the query back
        # to the middle of the block, d = ±(g − y), so Σ w·d = ±(g Σ w − Σ w·y),
        # and Σ w·d² = Σ w·y² + g (g Σ w − 2 Σ w·y).
        gaps = self.grid.block_gaps
        weight, offset, offset_square = self.block_sums()
        signed_distance = gaps * weight - offset
        distance = np.abs(signed_distance)
        square = offset_square + gaps * (signed_distance - offset)

        queries, blocks, cells = self.grid.own_cells
        own_weights = self.windows(np.arange(len(weight))[:, None], queries[None], cells.starts[None])
        distance[:, queries, blocks] = np.einsum("hqk,qk->hq", own_weights, cells.distances * cells.is_inside)
        return np.stack([weight, distance, square])

    @cached_property
    def distance(self) -> Float64Array:
        """The mean distance from query to key, in tokens, ``(heads, queries)``."""
        return np.asarray(self._block_distances[1].sum(axis=-1))

    @cached_property
    def distance_moments(self) -> tuple[Float64Array, Float64Array, Float64Array]:
        """The sums Σ w, Σ w·x and Σ w·x², where x is the distance less a whole number, ``(heads, queries)`` each.

        The number is about the row's mean. Where most weight lies near it, the cells there are summed one by one, for
        their offsets in a block are larger than x.
        """
        weight, distance, square = self._block_distances.sum(axis=-1)
        means = distance / np.where(weight > 0, weight, 1)
        centres = means.round()  # so that x is exact in float32
        first, second = _moments_about(centres, weight, distance, square)
        is_narrow = square - means * distance < MIN_BLOCK_SPREAD**2 * weight
        if not self.has_blocks or not is_narrow.any():
            return weight, first, second

        # The narrow rows: the same sums for each block, and cell by cell for the blocks near the mean
        heads, queries = np.nonzero(is_narrow)
        row_centres = centres[heads, queries, None]
        block_sums = self._block_distances[:, heads, queries]
        block_first, block_second = _moments_about(row_centres, *block_sums)
        is_near = np.abs(np.abs(self.grid.block_gaps[queries]) - row_centres) < NEAR_MIDDLE
        near = np.nonzero(is_near & (block_sums[0] > 0))
        rows, blocks = near
        cells = self.grid.cells_of_blocks(queries[rows], blocks)
        offsets = (cells.distances - row_centres[rows]) * cells.is_inside
        products = self.windows(heads[rows], queries[rows], cells.starts) * offsets
        block_first[near] = products.sum(axis=-1)
        block_second[near] = np.einsum("nk,nk->n", products, offsets)
        first[heads, queries], second[heads, queries] = block_first.sum(axis=-1), block_second.sum(axis=-1)
        return weight, first, second

    @property
    def hidden(self) -> Float64Array:
        """The share of the softmax on hidden later keys if there were no mask.

        NaN where scores are unknown, and for all queries if none has hidden later keys.
        """
        if not self.grid.has_hidden_later.any():
            return self.not_applicable()
        return np.asarray(1 - 1 / (1 + self.hidden_ratio))

    def where(self, defined: BoolArray, numbers: NDArray[Any]) -> Float64Array:
        """Returns the numbers of the queries where ``defined`` is True; NaN for the others."""
        return where(defined, numbers)

    def not_applicable(self) -> Float64Array:
        """Returns NaN for every query, ``(heads, queries)``."""
        return np.full(self.shape, np.nan)


class _NumpyRows(GridRows):
    """Rows whose weights are in memory as a whole.

    Attributes:
        maps: the maps of the attention call.
        heads: the numbers of the heads.
        weights: ``(heads, queries, keys)``, 0 where not visible; float64, or float32 for long or sampled maps.
        window: the cells as the maps give them; its scores are before the mask.
    """

    def __init__(
        self,
        grid: QueryGrid,
        head_range: slice,
        maps: CellMaps,
        heads: tuple[int, ...],
        weights: NDArray[Any],
        window: Window,
    ) -> None:
        """Keeps the weights and scores of some heads over a grid.

        Args:
            weights: ``(heads, queries, keys)``, 0 where not visible.
        """
        super().__init__(grid, slice(head_range.start, head_range.start + len(heads)))
        self.maps, self.heads, self.weights, self.window = maps, heads, weights, window
        self.has_blocks = weights.dtype == np.float32

    @property
    def key_weights(self) -> Float64Array:
        """The weight on each key of the grid, ``(heads, queries, keys)``."""
        return self.weights.astype(np.float64, copy=False)

    @cached_property
    def entropy(self) -> Float64Array:
        """The entropy of each row in bits."""
        return entropy_bits(self.weights)

    def block_sums(self) -> Float64Array:
        """Returns the sums of each block of keys, ``(3, heads, queries, blocks)``."""
        powers, key_count = POWERS.astype(self.weights.dtype), self.weights.shape[-1]
        whole = key_count - key_count % BLOCK_KEYS
        sums = np.empty((*self.shape, -(-key_count // BLOCK_KEYS), 3))
        np.matmul(
            self.weights[..., :whole].reshape(*self.shape, -1, BLOCK_KEYS),
            powers,
            out=sums[:, :, : whole // BLOCK_KEYS],
            casting="same_kind",
        )
        if whole < key_count:
            sums[:, :, -1] = self.weights[..., whole:] @ powers[: key_count - whole]
        return np.ascontiguousarray(np.moveaxis(sums, -1, 0))

    @cached_property
    def _block_distances(self) -> Float64Array:
        """The sums of each block; in float64 all keys are one block, whose sums are exact enough."""
        if self.has_blocks:
            return super()._block_distances
        distances = np.abs(np.subtract.outer(self.grid.positions, self.grid.keys)).astype(np.float64)
        sums = [self._weighted_sums(numbers) for numbers in (distances, distances**2)]
        return np.stack([self.weights.sum(axis=-1), *sums])[..., None]

    def windows(self, heads: IntArray, queries: IntArray, starts: IntArray) -> Float64Array:
        """Returns the weights of a block's number of keys from each start, ``(..., keys)``."""
        width = min(BLOCK_KEYS, self.weights.shape[-1])
        return sliding_window_view(self.weights, width, axis=-1)[heads, queries, starts].astype(np.float64, copy=False)

    @cached_property
    def best_key(self) -> IntArray:
        """The index of the key with the largest weight, ``(heads, queries, 1)``."""
        return np.asarray(self.weights.argmax(axis=-1)[:, :, None])

    @cached_property
    def peak(self) -> Float64Array:
        """The largest weight of each row."""
        return np.take_along_axis(self.weights, self.best_key, axis=-1)[:, :, 0].astype(np.float64)

    @cached_property
    def logsumexp(self) -> Float64Array:
        """The log-sum-exp of the scores of the visible keys, ``(heads, queries, 1)``."""
        # The largest weight is exp(its score − log-sum-exp), so that one logarithm replaces a sum over all keys.
        score = np.take_along_axis(self.window.scores, self.best_key, axis=-1)
        return np.asarray(score - np.log(np.maximum(self.peak, TINY))[:, :, None])

    @cached_property
    def hidden_ratio(self) -> Float64Array:
        """Σ exp(score) over hidden later keys, divided by Σ exp(score) over visible keys, ``(heads, queries)``.

        0 for queries without hidden later keys, and NaN where scores are not finite.
        """
        grid = self.grid
        width = grid.visible.shape[1]
        first_later_key = max(0, int(grid.positions[0]) + 1)  # no key before it is later than a query
        later_scores = self.window.scores[:, :, first_later_key:]
        sums = _exp_sums(later_scores, self.logsumexp, grid.hidden_later[:, first_later_key:width])
        if width < len(grid.visible_keys):  # the keys after the grid, of which there are no scores yet
            scores_after_grid = self.maps.scores_of(self.heads, grid.span, slice(width, len(grid.visible_keys)))
            sums = sums + _exp_sums(scores_after_grid, self.logsumexp, grid.hidden_later[:, width:])
        return sums

    def mass(self, cells: CountedCells) -> Float64Array:
        """Returns the weight on some cells of the grid, ``(heads, queries)``; NaN for queries without any of them."""
        if cells.indices is None:
            return where(cells.has_cell, self._weighted_sums(cells.is_counted))
        queries, keys = cells.indices
        weights = self.weights[:, queries, keys]
        if len(cells.starts) < len(queries):  # some query has several of the cells, one after another
            weights = np.add.reduceat(weights, cells.starts, axis=1, dtype=np.float64)
            queries = queries[cells.starts]
        mass_of_queries = self.not_applicable()
        mass_of_queries[:, queries] = weights
        return mass_of_queries

    @property
    def received(self) -> Float64Array:
        """The weight that each key receives from the queries that see two keys or more, ``(heads, keys)``."""
        return np.asarray(self.grid.has_choice.astype(self.weights.dtype) @ self.weights)

    def _weighted_sums(self, numbers: NDArray[Any]) -> Float64Array:
        """Returns Σ weight · number over the keys of each row, ``(heads, queries)``."""
        factors = numbers.astype(self.weights.dtype, copy=False)
        return np.asarray(np.einsum("hqk,qk->hq", self.weights, factors), dtype=np.float64)


def blocks_of_rows(maps: CellMaps, heads: tuple[int, ...], stride: int = 1) -> Iterator[_NumpyRows]:
    """Yields the rows of heads in blocks of queries, with as many heads in a block as fit the processor's cache.

    Weights are float64, or float32 if the map is long or a stride leaves out queries.
    """
    query_count, key_count = len(maps.query_tokens), len(maps.key_tokens)
    is_long_map = is_long(query_count, key_count)
    dtype = np.float32 if is_long_map or stride > 1 else np.float64
    block_cells, min_rows = (LONG_CELLS, 2 * MIN_ROWS) if is_long_map else (BLOCK_CELLS, MIN_ROWS)
    heads_together = min(len(heads), max(1, block_cells // (min_rows * key_count)))
    has_min_rows = heads_together < len(heads) or stride > 1
    height = min_rows if has_min_rows else max(1, block_cells // (heads_together * key_count))
    all_spans = [slice(start, min(start + height, query_count)) for start in range(0, query_count, height)]
    spans = all_spans[min(stride, len(all_spans)) - 1 :: stride]
    for span, grid in zip(spans, grids(maps, heads[0], spans), strict=True):
        keys = slice(0, grid.visible.shape[1])
        for start in range(0, len(heads), heads_together):
            head_range = slice(start, start + heads_together)
            window = maps.window(heads[head_range], span, keys)
            weights = window.weights.astype(dtype, copy=False)
            yield _NumpyRows(grid, head_range, maps, heads[head_range], weights, window)


def grids(maps: CellMaps, head: int, spans: list[slice]) -> Iterator[QueryGrid]:
    """Yields the grid of each range of queries, cut after the last key that one of its queries sees.

    A grid whose queries see no key has one key.
    """
    factors, key_count = maps.cell_factors(), len(maps.key_tokens)
    first, all_keys = first_position(maps, head), slice(0, key_count)
    if factors is not None:
        counts = factors.mask.counts(np.array([0, len(maps.query_tokens)]), np.arange(key_count + 1))
        visible_keys = np.asarray(counts[0] > 0)
    else:  # keys that a query of these blocks sees, or the last one, which tells where the queries end
        last_query = slice(len(maps.query_tokens) - 1, len(maps.query_tokens))
        seen_spans = spans if spans[-1].stop == last_query.stop else [*spans, last_query]
        seen_keys = [maps.visibility(head, span, all_keys).any(axis=0) for span in seen_spans]
        visible_keys = np.asarray(np.logical_or.reduce(seen_keys))
    query_tokens, key_tokens = NumberedTokens(maps.query_tokens), NumberedTokens(maps.key_tokens)
    for span in track(spans, f"measuring layer {maps.layer}"):
        # The mask of factors bounds the visible keys, so that visibility is computed for fewer of them.
        reach = key_count if factors is None else max(1, factors.mask.reach(span, key_count).stop)
        visible = maps.visibility(head, span, slice(0, reach))
        width = 1 + int(np.flatnonzero(visible.any(axis=0)).max(initial=0))
        yield QueryGrid(
            visible=visible[:, :width],
            visible_keys=visible_keys,
            start=span.start,
            query_tokens=query_tokens,
            key_tokens=key_tokens,
            cross=not maps.has_common_places,
            in_sequence=is_sequence(maps.key_tokens),
            first_position=first,
        )


def first_position(maps: CellMaps, head: int) -> int:
    """Returns the place of the first query among the keys, by the cells that it sees."""
    queries, keys = len(maps.query_tokens), len(maps.key_tokens)
    factors = maps.cell_factors()
    if keys <= queries:
        return keys - queries  # so that the cells of a map without a cache are not read once more
    if factors is None or factors.mask.explicit is not None:
        return place_of_first_query(maps.visibility(head, slice(0, queries), slice(0, keys)))
    return position_of_first_query(factors.mask.last_keys(queries, keys), keys)


def entropy_bits(weights: NDArray[Any]) -> Float64Array:
    """Returns the entropy over keys in bits, ``(..., keys)`` to ``(...)``: −Σ w log2 w, with 0 log 0 = 0."""
    logarithms = np.maximum(weights, TINY, dtype=np.float32)
    np.log(logarithms, out=logarithms)
    total = np.einsum("...k,...k->...", weights, logarithms.astype(weights.dtype, copy=False))
    return np.asarray(np.maximum(-total, 0) / np.log(2), dtype=np.float64)


def where(defined: BoolArray, numbers: NDArray[Any]) -> Float64Array:
    """Returns the numbers in float64 where ``defined`` is True, and NaN elsewhere."""
    return np.where(defined, numbers, np.nan).astype(np.float64, copy=False)


def _moments_about(
    centres: Float64Array, weight: Float64Array, distance: Float64Array, square: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Returns Σ w·x and Σ w·x² of x = d − centre, given Σ w, Σ w·d and Σ w·d²."""
    first = distance - centres * weight
    return first, square - centres * (distance + first)


def _exp_sums(scores: NDArray[Any], logsumexp: Float64Array, hidden_later: BoolArray) -> Float64Array:
    """Returns Σ exp(score − logsumexp) over hidden later keys, ``(heads, queries)``; 0 where there are none."""
    if not hidden_later.any():
        return np.zeros(logsumexp.shape[:2])
    hidden_scores = scores if hidden_later.all() else np.where(hidden_later, scores, logsumexp)
    has_finite_scores = np.isfinite(hidden_scores.min(axis=-1)) & np.isfinite(hidden_scores.max(axis=-1))
    is_finite = has_finite_scores & np.isfinite(logsumexp[:, :, 0])
    # A hidden score may exceed the visible ones by far: exp is then infinite, and the share of the hidden keys is 1.
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.subtract(hidden_scores, logsumexp, dtype=np.float32)
        np.exp(powers, out=powers)
        sums = np.einsum("hqk,qk->hq", powers, hidden_later.astype(np.float32))
    return where(is_finite, sums)
