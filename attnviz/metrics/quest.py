"""Defines Quest, a policy that reads the pages of keys whose bounds on the score are largest (Tang et al. 2024)."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.cache_policies import DecodingCache, Keeper, Policy


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
