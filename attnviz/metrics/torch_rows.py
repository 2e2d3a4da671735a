"""Measures rows of long maps with torch: computes a head's weights over a band of queries, sums and drops them."""

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.machine import pooling_device
from attnviz.maps.layer_maps import CellMaps
from attnviz.metrics.query_grid import BLOCK_KEYS, CountedCells, QueryGrid
from attnviz.metrics.row_blocks import POWERS, GridRows, grids, where
from attnviz.streaming.overview import HIDDEN, LOG2_E, Factors
from attnviz.streaming.torch_pass import run_parallel, tensor_of

BAND_CELLS = 2**22  # the largest number of cells of a band: one head's rows of some queries
MIN_ROWS, MAX_ROWS = 16, 512
TILE_KEYS = {"cpu": 1024, "cuda": 2**14}  # keys of a tile of a band: whole blocks that stay in the cache
MAX_SUMMED_LOGSUMEXP = 64.0  # above it, float32 gives metrics an error above 1e-5; single weights err more than sums


class _LoadedRows(NamedTuple):
    """A head's queries of a band, scaled so that their products with keys are exponents of 2."""

    # ``(queries, features + 1)``; the last feature is ``-log2 e · logsumexp``, which is added to the products. float64
    # if a log-sum-exp is above `MAX_SUMMED_LOGSUMEXP` in magnitude.
    queries: Tensor
    head_index: int  # the index of the head in the factors
    span: slice  # the range of the queries


class _TorchRows(GridRows):
    """The rows of one head over a grid, computed in tiles of keys; each tile is summed while it is in the cache.

    A weight is ``2 ** exponent``, with the exponent ``log2 e · (score − logsumexp)``.

    Attributes:
        weights: ``(queries, keys)``, 0 where not visible.
    """

    def __init__(self, grid: QueryGrid, head_index: int, stored_index: int, bands: "_TorchBands") -> None:
        """Computes the weights of the head tile by tile, and the sums over keys from which its metrics are computed."""
        super().__init__(grid, slice(head_index, head_index + 1))
        query_count, key_count = grid.visible.shape
        self.bands, self.loaded = bands, bands.load(stored_index, grid.span)
        self.weights = bands.buffer("weights", (query_count, key_count))
        self._entropy, self._peak = bands.zeros(query_count, torch.float64), bands.zeros(query_count)
        self._received, self._sums = bands.zeros(key_count), bands.zeros((-(-key_count // BLOCK_KEYS), query_count, 3))
        self._has_choice = bands.tensor(grid.has_choice.astype(np.float32))
        for keys in bands.tiles(slice(0, key_count)):
            self._add_tile(keys)

    def _add_tile(self, keys: slice) -> None:
        """Computes the weights of a tile of keys, keeps them, and adds them to the sums."""
        exponents = self.bands.exponents(self.loaded, keys)
        if keys.stop > self.grid.first_hidden:
            exponents.masked_fill_(self.bands.tensor(~self.grid.visible[:, keys]), float(HIDDEN))
        weights = torch.exp2(exponents, out=self.weights[:, keys])
        torch.maximum(self._peak, weights.amax(1), out=self._peak)
        self._entropy -= exponents.mul_(weights).sum(1)  # an exponent is the log2 of its weight
        torch.mv(weights.T, self._has_choice, out=self._received[keys])
        first, whole = keys.start // BLOCK_KEYS, weights.shape[1] // BLOCK_KEYS
        blocks = weights[:, : whole * BLOCK_KEYS].view(len(weights), whole, BLOCK_KEYS).transpose(0, 1)
        torch.bmm(blocks, self.bands.powers.expand(whole, -1, -1), out=self._sums[first : first + whole])
        if rest := weights.shape[1] % BLOCK_KEYS:
            self._sums[first + whole] = weights[:, -rest:] @ self.bands.powers[:rest]

    @property
    def key_weights(self) -> Float64Array:
        """The weight on each key of the grid, ``(1, queries, keys)``."""
        return self._as_numpy(self.weights)

    @property
    def entropy(self) -> Float64Array:
        """The entropy of each row in bits."""
        return np.maximum(self._as_numpy(self._entropy), 0)

    @property
    def peak(self) -> Float64Array:
        """The largest weight of each row."""
        return self._as_numpy(self._peak)

    @property
    def received(self) -> Float64Array:
        """The weight that each key receives from the queries that see two keys or more, ``(heads, keys)``."""
        return self._as_numpy(self._received)

    def block_sums(self) -> Float64Array:
        """Returns the sums of each block of keys, ``(3, 1, queries, blocks)``."""
        return self._sums.permute(2, 1, 0)[:, None].double().contiguous().cpu().numpy()

    def windows(self, heads: IntArray, queries: IntArray, starts: IntArray) -> Float64Array:
        """Returns the weights of a block's number of keys from each start, ``(..., keys)``."""
        width = min(BLOCK_KEYS, self.weights.shape[1])
        windows = self.weights.unfold(1, width, 1)[self.bands.tensor(queries), self.bands.tensor(starts)]
        return windows.double().cpu().numpy()

    @cached_property
    def distance(self) -> Float64Array:
        """The mean distance from query to key, in tokens, ``(1, queries)``; 0 without weight."""
        if self.bands.factors.sink is not None:  # takes a part of the weight; else rows sum to 1 except for rounding
            return super().distance
        weight = self._block_distances[0].sum(axis=-1)
        return np.asarray(super().distance / np.where(weight > 0, weight, 1))

    @cached_property
    def hidden_ratio(self) -> Float64Array:
        """Σ exp(score) over hidden later keys, divided by Σ exp(score) over visible keys, ``(1, queries)``."""
        grid, width, key_count = self.grid, self.grid.visible.shape[1], len(self.grid.visible_keys)
        sums = self.bands.zeros(len(grid.visible), torch.float64)
        for keys in self.bands.tiles(slice(max(0, int(grid.positions[0]) + 1), key_count)):
            exponents = self.bands.exponents(self.loaded, keys)
            if keys.start < width or not grid.all_hidden_later:
                exponents.masked_fill_(self.bands.tensor(~grid.hidden_later[:, keys]), float(HIDDEN))
            sums += exponents.exp2_().sum(1)
        return self._as_numpy(sums)

    def mass(self, cells: CountedCells) -> Float64Array:
        """Returns the weight on some cells of the grid, ``(heads, queries)``; NaN for queries without any of them."""
        if cells.indices is None:
            sums, numbers = self.bands.zeros(self.shape[1], torch.float64), self.bands.tensor(cells.numbers)
            for keys in self.bands.tiles(slice(0, numbers.shape[1])):
                products = self.bands.buffer("exponents", (len(numbers), keys.stop - keys.start))
                sums += torch.mul(self.weights[:, keys], numbers[:, keys], out=products).sum(1)
        else:
            cell_weights = self.weights.view(-1)[self.bands.tensor(cells.flat_indices)].double()
            sums = torch.zeros(self.shape[1], dtype=cell_weights.dtype, device=cell_weights.device)
            cell_queries = self.bands.tensor(cells.indices[0])
            sums.index_add_(0, cell_queries, cell_weights)
        return where(cells.has_cell, self._as_numpy(sums))

    def _as_numpy(self, sums: Tensor) -> Float64Array:
        """Returns sums over keys as numpy, with an axis of one head in front, ``(1, queries, ...)``."""
        return np.asarray(sums[None].cpu().numpy(), dtype=np.float64)


class _TorchBands:
    """The inputs and buffers from which the bands of an attention call are computed.

    Attributes:
        factors: queries, keys and mask of the call.
        device: the device of the computation.
        keys: the keys of each key/value head, ``(keys, features)`` in float32, on the device.
    """

    def __init__(self, factors: Factors, stored_indices: list[int]) -> None:
        self.factors, self.device = factors, pooling_device(factors.device or "cpu")
        self.keys = {
            key_head: self.tensor(np.asarray(factors.keys[key_head], dtype=np.float32))
            for key_head in {factors.key_heads[head_index] for head_index in stored_indices}
        }
        self.powers = self.tensor(POWERS.astype(np.float32))
        self._memory = threading.local()

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Returns the array as a tensor on the device."""
        return tensor_of(array).to(self.device)

    def buffer(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Returns this thread's buffer of this name as ``shape``; the next request for the name overwrites it."""
        buffer: Tensor | None = getattr(self._memory, name, None)
        if buffer is None or buffer.numel() < shape[0] * shape[1]:
            buffer = torch.empty(shape[0] * shape[1], device=self.device)
            setattr(self._memory, name, buffer)
        return buffer[: shape[0] * shape[1]].view(shape)

    def zeros(self, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns a tensor of zeros on the device."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def tiles(self, keys: slice) -> list[slice]:
        """Returns the parts of a range of keys, each of at most `TILE_KEYS` of the device."""
        width = TILE_KEYS["cpu" if self.device == "cpu" else "cuda"]
        return [slice(start, min(start + width, keys.stop)) for start in range(keys.start, keys.stop, width)]

    def load(self, head_index: int, span: slice) -> _LoadedRows:
        """Returns a head's queries of a band, scaled as `_LoadedRows` describes, on the device."""
        negative_logsumexp = np.maximum(-self.factors.logsumexp_or_inf(head_index, span), HIDDEN)
        finite_logsumexp = negative_logsumexp[negative_logsumexp > HIDDEN]
        needs_float64 = bool((np.abs(finite_logsumexp) > MAX_SUMMED_LOGSUMEXP).any())
        dtype: type[np.floating[Any]] = np.float64 if needs_float64 else np.float32
        vectors = np.multiply(self.factors.queries[head_index, span], dtype(self.factors.scale * LOG2_E), dtype=dtype)
        queries = np.concatenate([vectors, negative_logsumexp * dtype(LOG2_E)], axis=1)
        return _LoadedRows(self.tensor(queries), head_index, span)

    def exponents(self, rows: _LoadedRows, keys: slice) -> Tensor:
        """Returns the exponents of 2 of a tile of weights before the mask, ``(queries, keys)``.

        The next call of the same thread overwrites the result.
        """
        queries, softcap = rows.queries, self.factors.softcap
        key_features = self.keys[self.factors.key_heads[rows.head_index]][keys].to(queries.dtype)
        out = self.buffer("exponents", (len(queries), len(key_features)))
        products = out if queries.dtype == out.dtype else out.to(queries.dtype)
        if softcap is None:
            torch.addmm(queries[:, -1:], queries[:, :-1], key_features.T, out=products)
        else:
            cap = softcap * LOG2_E
            torch.mm(queries[:, :-1], key_features.T, out=products).div_(cap).tanh_().mul_(cap)
            products += queries[:, -1:]
        if products is not out:
            out.copy_(products)
        if self.factors.bias:
            out += self.tensor(self.factors.bias.block([rows.head_index], rows.span, keys)[0] * np.float32(LOG2_E))
        return out


def process_rows(maps: CellMaps, factors: Factors, heads: tuple[int, ...], work: Callable[[GridRows], None]) -> None:
    """Calls ``work`` with the rows of each head over each band of queries.

    Rows are computed on the CPU in several threads at once, and on another device one after another.
    """
    count, keys, stored_indices = len(maps.query_tokens), len(maps.key_tokens), maps.head_indices(heads)
    bands, height = _TorchBands(factors, stored_indices), max(MIN_ROWS, min(MAX_ROWS, BAND_CELLS // keys))
    spans = [slice(start, min(start + height, count)) for start in range(0, count, height)]

    def measure(grid: QueryGrid, head_index: int) -> None:
        work(_TorchRows(grid, head_index, stored_indices[head_index], bands))

    if bands.device == "cpu":
        run_parallel(measure, grids(maps, heads[0], spans), range(len(heads)), f"measuring layer {maps.layer}")
        return
    for grid in grids(maps, heads[0], spans):
        for head_index in range(len(heads)):
            measure(grid, head_index)
