"""Defines policies that decide which keys a cache holds at each step of decoding, each by its published formula."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.layer_maps import CellMaps
from attnviz.streaming.overview import bands_of_queries

MAX_BAND_CELLS = 2**19  # of weights, which then stay in the cache of a core


@dataclass(frozen=True, eq=False)
class DecodingCache:
    """A cache of keys that is filled by a prompt and then by one key a step, and the heads that read it.

    Attributes:
        maps: the attention call of the heads.
        heads: the numbers of the heads; several if grouped heads share the cache.
        prompt: the number of keys of the prompt.
    """

    maps: CellMaps
    heads: tuple[int, ...]
    prompt: int

    def rows(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a range of queries on a range of keys, mean over the heads, ``(queries, keys)``."""
        weights: FloatArray = self.maps.window(self.heads, queries, keys).weights.mean(axis=0)
        return weights

    @property
    def prompt_sums(self) -> Float64Array:
        """The sum of the weights that each key of the prompt receives from the prompt, mean over the heads."""
        prompt, sums = slice(0, self.prompt), np.zeros(self.prompt)
        for band in bands_of_queries(prompt, self.prompt * len(self.heads), MAX_BAND_CELLS):
            weights = self.maps.window(self.heads, band, prompt).weights
            sums += weights.sum(axis=1, dtype=np.float64).mean(axis=0)  # a mean over whole rows would take another pass
        return sums


Keeper = Callable[[IntArray, FloatArray], BoolArray]


class Policy(ABC):
    """A rule for the keys that a cache holds."""

    @property
    @abstractmethod
    def budget(self) -> int:
        """The number of keys that a cache holds or reads; for `SnapKV` it counts keys of the prompt alone."""

    @property
    def drops_keys(self) -> bool:
        """True if keys that are not held are dropped for good; False if they are only not read at this step."""
        return True

    @abstractmethod
    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the keys that the cache holds at each step.

        It takes the queries of some steps, ``(steps,)``, and their rows of weights, ``(heads, steps, keys)``, and
        returns ``(steps, keys)``, True for held keys. Call it with steps in order.
        """


@dataclass(frozen=True)
class SinksAndRecent(Policy):
    """Holds the first and the latest keys (Xiao et al. 2023, "Efficient Streaming Language Models with Sinks").

    Attributes:
        sinks: the number of first keys.
        recent: the number of latest keys, the step's own included.
    """

    sinks: int = 0
    recent: int = 0

    @property
    def budget(self) -> int:
        """The number of keys that it holds."""
        return self.sinks + self.recent

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the first ``sinks`` and the latest ``recent`` keys of each step."""

        def mark_held(queries: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for each query's first ``self.sinks`` keys and latest ``self.recent``, ``(steps, keys)``."""
            keys = np.arange(rows.shape[-1])
            last_keys = queries[:, None]
            return np.asarray((keys <= last_keys) & ((keys < self.sinks) | (keys > last_keys - self.recent)))

        return mark_held


@dataclass(frozen=True)
class Top(Policy):
    """Reads the keys with the largest weights of each row: no policy that reads as many keeps more.

    Attributes:
        top: the number of keys.
    """

    top: int

    @property
    def budget(self) -> int:
        """The number of keys that it reads."""
        return self.top

    @property
    def drops_keys(self) -> bool:
        """False: every key stays in memory, since the next step may choose it."""
        return False

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the ``top`` keys with the largest mean weights over heads at each step."""

        def mark_read(queries: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for the ``self.top`` keys with the largest weights of each step, ``(steps, keys)``."""
            weights = rows.mean(axis=0)
            count = min(self.top, weights.shape[1])
            top_keys = np.argpartition(-weights, count - 1, axis=1)[:, :count]
            is_top = np.zeros(weights.shape, dtype=bool)
            np.put_along_axis(is_top, top_keys, values=True, axis=1)
            return np.asarray(is_top & (np.arange(weights.shape[1]) <= queries[:, None]))

        return mark_read


@dataclass(frozen=True)
class HeavyHitters(Policy):
    """Holds the latest keys, and those with the largest sums of weights so far, half each (Zhang et al. 2023, "H2O").

    As in the published cache that drops keys, weights are those over the keys that are still held. Sums of heads that
    share a cache are means over these heads.

    Attributes:
        h2o: the number of keys.
    """

    h2o: int

    @property
    def budget(self) -> int:
        """The number of keys that it holds after a step."""
        return self.h2o

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the keys that the cache holds at each step.

        The function updates the held keys from call to call: call it once for each step, in order.
        """
        sums, recent = cache.prompt_sums, self.h2o // 2
        held_keys, sums = _pruned_cache(np.arange(cache.prompt), sums, self.h2o, recent)

        def mark_held(queries: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for the keys that are held at each step, ``(steps, keys)``."""
            nonlocal held_keys, sums
            is_held = np.zeros(rows.shape[1:], dtype=bool)
            for step, query in enumerate(queries.tolist()):
                held_keys, sums = np.append(held_keys, query), np.append(sums, 0.0)
                is_held[step, held_keys] = True
                weights = rows[:, step, held_keys].astype(np.float64)
                totals = np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
                sums = sums + (weights / totals).mean(axis=0)
                held_keys, sums = _pruned_cache(held_keys, sums, self.h2o, recent)
            return is_held

        return mark_held


@dataclass(frozen=True)
class SnapKV(Policy):
    """Holds keys of the prompt that its last queries look at, and all later ones (Li et al. 2024, "SnapKV").

    Attributes:
        snapkv: the number of keys of the prompt, the window included.
        window: the number of last queries that vote, whose keys are held too.
        kernel: the number of neighbours over which votes are averaged; odd.
    """

    snapkv: int
    window: int = 32
    kernel: int = 5

    @property
    def budget(self) -> int:
        """The number of keys of the prompt that it holds."""
        return self.snapkv

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the held keys of the prompt and all later keys up to each query."""
        prompt_keys = self._held_prompt_keys(cache)

        def mark_held(queries: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for ``prompt_keys``, and for keys from the prompt's end to each query, ``(steps, keys)``."""
            keys = np.arange(rows.shape[-1])
            is_prompt_key = np.isin(keys, prompt_keys)
            return np.asarray((is_prompt_key | (keys >= cache.prompt)) & (keys <= queries[:, None]))

        return mark_held

    def _held_prompt_keys(self, cache: DecodingCache) -> IntArray:
        """Returns the indices of the prompt's keys that the cache holds, ascending."""
        if cache.prompt < self.snapkv or cache.prompt <= self.window:
            return np.arange(cache.prompt)
        start = cache.prompt - self.window
        votes = cache.rows(slice(start, cache.prompt), slice(0, start)).sum(axis=0, dtype=np.float64)
        means = np.convolve(votes, np.ones(self.kernel) / self.kernel)
        mean_votes = means[self.kernel // 2 :][:start]  # each mean is centred on its key; votes outside are 0
        top_keys = np.argsort(-mean_votes, kind="stable")[: self.snapkv - self.window]
        return np.concatenate([np.sort(top_keys), np.arange(start, cache.prompt)])


def _pruned_cache(keys: IntArray, sums: Float64Array, budget: int, recent: int) -> tuple[IntArray, Float64Array]:
    """Returns the keys that stay in a cache, ascending, and their sums; all of them if they are at most ``budget``."""
    if len(keys) <= budget:
        return keys, sums
    recent_start = len(keys) - recent
    heavy_indices = np.sort(np.argsort(-sums[:recent_start], kind="stable")[: budget - recent])
    indices = np.concatenate([heavy_indices, np.arange(recent_start, len(keys))])
    return keys[indices], sums[indices]
