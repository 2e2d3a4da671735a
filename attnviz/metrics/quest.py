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
        """The number of keys that it reads."""
        return self.quest

    @property
    def drops_keys(self) -> bool:
        """False: every key stays in memory, since the next step may choose its page."""
        return False

    def keeper(self, cache: DecodingCache) -> Keeper:
        """Returns the function that marks the keys of the pages with the largest bounds at each step.

        The page that the step's own key is in has the bound of its keys up to that one.

        Raises:
            AttnvizError: if the maps hold no queries and keys, or the cache is that of several heads.
        """
        if len(cache.heads) != 1:
            raise AttnvizError(
                "quest chooses pages by the query of one head, and several heads were given; give one head"
            )
        queries, keys = _features(cache)
        pages = [keys[start : start + self.page] for start in range(0, len(keys), self.page)]
        least, largest = (np.stack([reduce(page, axis=0) for page in pages]) for reduce in (np.min, np.max))

        def read_keys(steps: IntArray, rows: FloatArray) -> BoolArray:
            """Returns True for the keys of the pages that each step reads, ``(steps, keys)``; none after its query."""
            step_queries = np.asarray(queries[steps], dtype=np.float32)
            bounds = _bounds(step_queries, least, largest)
            last_pages = steps // self.page
            for step, (query, page) in enumerate(zip(steps.tolist(), last_pages.tolist(), strict=True)):
                filled_part = keys[page * self.page : query + 1]  # a page is filled key by key
                bounds[step, page] = _bounds(step_queries[step], filled_part.min(axis=0), filled_part.max(axis=0))
            bounds[np.arange(len(pages)) > last_pages[:, None]] = -np.inf
            return self._keys_of_best_pages(bounds, steps, rows.shape[-1])

        return read_keys

    def _keys_of_best_pages(self, bounds: FloatArray, steps: IntArray, keys: int) -> BoolArray:
        """Returns True for the keys of the pages with the largest bounds, ``(steps, keys)``.

        Args:
            bounds: ``(steps, pages)``, -inf for pages after the query of the step.
            steps: the query of each step.
            keys: the number of keys.
        """
        count = min(self.quest // self.page, bounds.shape[1])
        best_pages = np.argsort(-bounds, axis=1, kind="stable")[:, :count]
        is_read = np.zeros(bounds.shape, dtype=bool)
        np.put_along_axis(is_read, best_pages, True, axis=1)
        return np.asarray(is_read.repeat(self.page, axis=1)[:, :keys] & (np.arange(keys) <= steps[:, None]))


def _features(cache: DecodingCache) -> tuple[FloatArray, FloatArray]:
    """Returns the queries and the keys of a cache's head, ``(tokens, features)`` each; their products are the scores.

    Raises:
        AttnvizError: if the maps hold no queries and keys.
    """
    factors = cache.maps.score_factors()
    if factors is None:
        raise AttnvizError(
            f"{option('policy', 'quest')} needs queries and keys, and this recording holds weights alone; record the "
            f"text again with {option('factored', True)}"
        )
    index = cache.maps.heads.index(cache.heads[0])
    queries = np.asarray(factors.queries[index], dtype=np.float32) * np.float32(factors.scale)
    return queries, np.asarray(factors.keys[factors.key_heads[index]], dtype=np.float32)


def _bounds(queries: FloatArray, least: FloatArray, largest: FloatArray) -> FloatArray:
    """Returns Σ max(q·min, q·max) over the features for each query and page, ``(queries, pages)``.

    Args:
        queries: ``(queries, features)``, or ``(features,)`` for one query.
        least: the least features of each page, ``(pages, features)``, or ``(features,)`` for one page.
        largest: the largest features, in the same shape.
    """
    # q·max is larger where q is positive, and q·min where it is negative, so two matrix products suffice
    positive, negative = queries.clip(min=0), queries.clip(max=0)
    return np.asarray(positive @ largest.T + negative @ least.T, dtype=np.float32)
