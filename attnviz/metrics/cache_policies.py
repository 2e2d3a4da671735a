"""Defines policies that decide which keys a cache holds at each step, by published formulas; reads them as written."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, choices, option
from attnviz.maps.layer_maps import CellMaps
from attnviz.streaming.overview import bands_of_queries

EXAMPLES: Final = "sinks:4+recent:1020, h2o:1024, snapkv:1024, quest:1024 or top:4096"
MAX_KEYS = 10_000_000  # of a policy
PART = re.compile(r"([a-z0-9]+)[:=]([0-9]{1,9})")
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


@dataclass(frozen=True)
class Quest(Policy):
    """Reads the pages of keys with the largest bounds on the score, chosen anew at each step.

    A page is a run of consecutive keys. The bound of a query q is Σ max(q·min, q·max) over the features, where min and
    max are the least and the largest feature of the page's keys (Tang et al. 2024, "Quest", section 3.2).

    Attributes:
        quest: the number of keys.
        page: the number of keys of a page.
    """

    quest: int
    page: int = 16

    @property
    def budget(self) -> int:
        """The largest number of keys that a step reads."""
        return self.quest

    @property
    def drops_keys(self) -> bool:
        """False: every key stays in memory, since the next step may choose its page."""
        return False

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the keys of the pages with the largest bounds at each step.

        The page that contains the step's query is bounded by its keys up to that query.

        Raises:
            AttnvizError: if the cache has several heads, or its maps hold no queries and keys.
        """
        if len(cache.heads) != 1:
            raise AttnvizError(
                "quest chooses pages by the query of one head, and several heads were given; give one head"
            )
        queries, keys = _queries_and_keys(cache)
        pages = [keys[start : start + self.page] for start in range(0, len(keys), self.page)]
        least_features = np.stack([page_keys.min(axis=0) for page_keys in pages])
        largest_features = np.stack([page_keys.max(axis=0) for page_keys in pages])

        def mark_read(steps: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for the keys of the pages that each step reads, ``(steps, keys)``; False after its query."""
            step_queries = np.asarray(queries[steps], dtype=np.float32)
            bounds = _bounds(step_queries, least_features, largest_features)
            last_pages = steps // self.page
            for index, (last_key, last_page) in enumerate(zip(steps.tolist(), last_pages.tolist(), strict=True)):
                page_keys = keys[last_page * self.page : last_key + 1]  # the page is not full yet
                bounds[index, last_page] = _bounds(step_queries[index], page_keys.min(axis=0), page_keys.max(axis=0))
            bounds[np.arange(len(pages)) > last_pages[:, None]] = -np.inf
            return self._keys_of_best_pages(bounds, steps, rows.shape[-1])

        return mark_read

    def _keys_of_best_pages(self, bounds: FloatArray, steps: IntArray, key_count: int) -> BoolArray:
        """Returns True for the keys of the pages with the largest bounds, ``(steps, keys)``; False after the query."""
        page_count = min(self.quest // self.page, bounds.shape[1])
        best_pages = np.argsort(-bounds, axis=1, kind="stable")[:, :page_count]
        is_page_read = np.zeros(bounds.shape, dtype=bool)
        np.put_along_axis(is_page_read, best_pages, values=True, axis=1)
        is_key_read = is_page_read.repeat(self.page, axis=1)[:, :key_count]
        return np.asarray(is_key_read & (np.arange(key_count) <= steps[:, None]))


def _queries_and_keys(cache: DecodingCache) -> tuple[FloatArray, FloatArray]:
    """Returns the queries and the keys of a cache's first head in float32, ``(tokens, features)`` each."""
    factors = cache.maps.score_factors()
    if factors is None:
        raise AttnvizError(
            f"{option('policy', 'quest')} needs queries and keys, and this recording holds weights alone; record the "
            f"text again with {option('dense', value=False)}"
        )
    index = cache.maps.heads.index(cache.heads[0])
    queries = np.asarray(factors.queries[index], dtype=np.float32) * np.float32(factors.scale)
    return queries, np.asarray(factors.keys[factors.key_heads[index]], dtype=np.float32)


def _bounds(queries: FloatArray, least: FloatArray, largest: FloatArray) -> FloatArray:
    """Returns Σ max(q·min, q·max) over the features for each query and page, ``(queries, pages)``."""
    # q·max is larger where q is positive, and q·min where it is negative, so two matrix products suffice
    positive, negative = queries.clip(min=0), queries.clip(max=0)
    return np.asarray(positive @ largest.T + negative @ least.T, dtype=np.float32)


POLICIES: dict[str, type[Any]] = {
    "sinks": SinksAndRecent,
    "recent": SinksAndRecent,
    "top": Top,
    "h2o": HeavyHitters,
    "snapkv": SnapKV,
    "quest": Quest,
}


def parse_policy(text: str) -> Policy:
    """Returns the policy that a text describes, such as ``sinks:4+recent:1020``, ``top:64`` or ``snapkv:64,window=16``.

    Raises:
        AttnvizError: if the text has another form, names no policy, an unknown number or a number twice, or if a number
            is out of range.
    """
    option_text = option("policy", text)
    matches = [PART.fullmatch(part.strip()) for part in re.split(r"[+,]", text)]
    numbers = {match[1]: int(match[2]) for match in matches if match}
    if len(numbers) != len(matches):
        raise AttnvizError(f"{option_text} cannot be read; write {EXAMPLES}")
    policy_name = next(iter(numbers))
    if policy_name not in POLICIES:
        raise AttnvizError(f"unknown policy {policy_name!r}; {choices(policy_name, POLICIES)}")
    policy_class = POLICIES[policy_name]
    field_names = [field.name for field in fields(policy_class)]
    unknown_field = next((name for name in numbers if name not in field_names), None)
    if unknown_field is not None:
        raise AttnvizError(
            f"{option_text} names {unknown_field!r}, and {policy_name} takes {' and '.join(field_names)}; "
            f"write {EXAMPLES}"
        )
    policy: Policy = policy_class(**numbers)
    _refuse_numbers(policy, option_text)
    return policy


def _refuse_numbers(policy: Policy, option_text: str) -> None:
    if not 0 < policy.budget <= MAX_KEYS:
        raise AttnvizError(f"{option_text} holds {policy.budget} keys; give 1 to {MAX_KEYS}")
    if isinstance(policy, HeavyHitters) and policy.h2o < 2:
        raise AttnvizError(
            f"{option_text} holds 1 key, which cannot be half latest and half heaviest keys; give 2 or more"
        )
    if isinstance(policy, SnapKV):
        if not 0 < policy.window < policy.snapkv:
            raise AttnvizError(
                f"{option_text} needs a window of at least 1 key and more keys than the window of {policy.window}; "
                f"write snapkv:{max(policy.snapkv, 2)},window={max(policy.snapkv // 2, 1)}, for example"
            )
        if policy.kernel % 2 == 0:
            raise AttnvizError(
                f"{option_text} has an even kernel, which has no middle; give an odd one, such as kernel=5"
            )
    if isinstance(policy, Quest) and not 0 < policy.page <= policy.quest:
        raise AttnvizError(
            f"{option_text} needs pages of 1 to {policy.quest} keys, not {policy.page}; "
            f"write quest:{policy.quest},page={policy.quest}, for example"
        )
