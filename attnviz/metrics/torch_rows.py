"""Rows of long maps by torch: a head's weights over a band of queries are computed, summed up and forgotten."""

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.machine import device_with_room
from attnviz.maps.layer_maps import CellMaps
from attnviz.metrics.query_grid import CountedCells, QueryGrid
from attnviz.metrics.row_blocks import Rows, grids, where
from attnviz.streaming.factors import Factors
from attnviz.streaming.plan import HIDDEN, LOG2_E
from attnviz.streaming.torch_pass import tensor_of
from attnviz.streaming.workers import spread

BAND_CELLS = 2**20  # cells of a band of a head's rows
MIN_ROWS = 16
COARSE = 64.0  # a log-sum-exp beyond it is too large for metrics to be right to 1e-5 if products are done in float32


class Moments(NamedTuple):
    """Σ w, Σ w·x and Σ w·x² over some keys, each ``(queries,)``, x counted from an origin on the keys' far side."""

    weight: Float64Array
    first: Float64Array
    second: Float64Array

    def distances(self, queries: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Σ w·|q − x| and Σ w·(q − x)² for queries on the origin's near side: no term takes from another."""
        squares = queries**2 * self.weight - 2 * queries * self.first + self.second
        return np.abs(queries * self.weight - self.first), squares


class TorchRows(Rows):
    """One head's rows of a grid.

    A weight is ``2 ** exponent``, the exponent ``log2 e · (score − logsumexp)``.

    Attributes:
        weights: ``(queries, keys)``, 0 where not visible.
        exponents: ``(queries, keys)``, spent once the entropy is known.
    """

    def __init__(self, grid: QueryGrid, place: int, held: int, bands: "TorchBands") -> None:
        super().__init__(grid, slice(place, place + 1))
        self.held, self.bands = held, bands
        self.exponents = bands.exponents(held, grid.span, slice(0, grid.visible.shape[1]), "exponents")
        hidden = bands.tensor(~grid.visible[:, grid.first_hidden :])
        masked = self.exponents[:, grid.first_hidden :]
        self.unmasked = masked.clone() if grid.has_later.any() else masked
        masked.masked_fill_(hidden, float(HIDDEN))
        self.weights = torch.exp2(self.exponents, out=bands.memory("weights", self.exponents.shape))

    @cached_property
    def entropy(self) -> Float64Array:
        """The entropy of each row in bits."""
        return np.maximum(-self._numbers(self.exponents.mul_(self.weights).sum(1)), 0)

    @cached_property
    def peak(self) -> Float64Array:
        """The largest weight."""
        return self._numbers(self.weights.amax(1))

    @property
    def distance(self) -> Float64Array:
        """The mean distance to the key."""
        return self._distances[0]

    @property
    def squared_distance(self) -> Float64Array:
        """The mean squared distance to the key."""
        return self._distances[1]

    @cached_property
    def beyond(self) -> Float64Array:
        """Σ exp(score) over hidden later keys to that over visible ones."""
        grid, width, count = self.grid, self.grid.visible.shape[1], len(self.grid.seen)
        later = grid.later[:, grid.first_hidden : width]
        sums = self.unmasked.masked_fill_(self.bands.tensor(~later), float(HIDDEN)).exp2_().sum(1)
        if width < count:
            exponents = self.bands.exponents(self.held, grid.span, slice(width, count), "beyond")
            if not grid.all_later:
                exponents.masked_fill_(self.bands.tensor(~grid.later[:, width:]), float(HIDDEN))
            sums = sums + exponents.exp2_().sum(1)
        return self._numbers(sums)

    def mass(self, cells: CountedCells) -> Float64Array:
        """The weight on the cells that count; NaN where a query has none."""
        if cells.picked is None:
            sums = torch.mul(self.weights, self.bands.tensor(cells.numbers)).sum(1).double()
        else:
            picked = self.weights.view(-1)[self.bands.tensor(cells.flat)].double()
            sums = torch.zeros(self.shape[1], dtype=picked.dtype, device=picked.device)
            sums.index_add_(0, self.bands.tensor(cells.picked[0]), picked)
        return where(cells.present, self._numbers(sums))

    def weight_at(self, keys: IntArray) -> Float64Array:
        """The weight on one key for each query; NaN where it is not visible."""
        there, within, places = self.grid.places_of(keys)
        return where(there, self._numbers(self.weights[self.bands.tensor(places), self.bands.tensor(within)]))

    def received(self, queries: BoolArray) -> Float64Array:
        """The weight that each key receives from these queries."""
        return self._numbers(torch.mv(self.weights.T, self.bands.tensor(queries.astype(np.float32))))

    @cached_property
    def _distances(self) -> tuple[Float64Array, Float64Array]:
        """The mean distance and the mean squared distance: keys before and after the band by their moments."""
        grid, before, after = self.grid, self.grid.before, self.grid.after
        steps = self.bands.tensor(grid.near_distances)
        within = self.weights[:, before:after].clone()
        near = [within.sum(1), within.mul_(steps).sum(1), within.mul_(steps).sum(1)]
        sums = np.stack([self._numbers(each)[0] for each in near])
        for keys, origin in ((slice(0, before), before), (slice(after, None), after - 1)):
            found = self.weights[:, keys] @ self.bands.tensor(grid.powers(keys, origin))
            moments = Moments(*self._numbers(found)[0].T)
            sums += np.stack([moments.weight, *moments.distances(grid.positions.astype(np.float64) - origin)])
        if self.bands.factors.sink is None:  # then a row's weights add up to 1 but for rounding
            sums /= np.where(sums[0] > 0, sums[0], 1)
        return sums[1][None], sums[2][None]

    def _numbers(self, sums: Tensor) -> Float64Array:
        """What was summed up over keys, ``(heads, ...)``."""
        return np.asarray(sums[None].cpu().numpy(), dtype=np.float64)


class TorchBands:
    """What the bands of one layer's maps are computed from and in.

    Attributes:
        factors: queries, keys and rules.
        device: where they are computed.
    """

    def __init__(self, factors: Factors, held: list[int]) -> None:
        self.factors, self.device = factors, device_with_room(factors.device or "cpu")
        self.keys = {
            key_head: self.tensor(np.asarray(factors.keys[key_head], dtype=np.float32))
            for key_head in {factors.key_heads[place] for place in held}
        }
        self._memory = threading.local()

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """The array on the device."""
        return tensor_of(array).to(self.device)

    def memory(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Memory of this thread for something of that name, which the next band writes over."""
        held: Tensor | None = getattr(self._memory, name, None)
        if held is None or held.numel() < shape[0] * shape[1]:
            held = torch.empty(shape[0] * shape[1], device=self.device)
            setattr(self._memory, name, held)
        return held[: shape[0] * shape[1]].view(shape)

    def exponents(self, place: int, queries: slice, keys: slice, name: str) -> Tensor:
        """The exponents of a block as if all were visible, ``(queries, keys)``, in memory of that name."""
        factors, softcap = self.factors, self.factors.softcap
        reference = np.maximum(-factors.reference(place, queries), HIDDEN)
        coarse = bool((np.abs(reference[reference > HIDDEN]) > COARSE).any())
        kind: type[np.floating[Any]] = np.float64 if coarse else np.float32
        own = self.tensor(np.multiply(factors.queries[place, queries], kind(factors.scale * LOG2_E), dtype=kind))
        offsets, columns = self.tensor(reference * kind(LOG2_E)), self.keys[factors.key_heads[place]][keys].T
        out = self.memory(name, (len(own), columns.shape[1]))
        products = out.double() if coarse else out
        if softcap is None:
            torch.addmm(offsets, own, columns.to(own.dtype), out=products)
        else:
            cap = softcap * LOG2_E
            torch.mm(own, columns.to(own.dtype), out=products).div_(cap).tanh_().mul_(cap).add_(offsets)
        if coarse:
            out.copy_(products)
        if factors.bias:
            out += self.tensor(factors.bias.block([place], queries, keys)[0] * np.float32(LOG2_E))
        return out


def each_rows(maps: CellMaps, factors: Factors, heads: tuple[int, ...], work: Callable[[Rows], None]) -> None:
    """Calls a function with the rows of each head over each band of queries, in several threads at once on the CPU."""
    count, keys, held = len(maps.query_tokens), len(maps.key_tokens), maps.positions(heads)
    bands, height = TorchBands(factors, held), max(MIN_ROWS, BAND_CELLS // keys)
    spans = [slice(start, min(start + height, count)) for start in range(0, count, height)]

    def measure(grid: QueryGrid, place: int) -> None:
        work(TorchRows(grid, place, held[place], bands))

    if bands.device == "cpu":
        spread(measure, grids(maps, spans), range(len(heads)), f"measuring layer {maps.layer}")
        return
    for grid in grids(maps, spans):
        for place in range(len(heads)):
            measure(grid, place)
