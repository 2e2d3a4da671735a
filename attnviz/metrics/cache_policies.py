"""Defines policies that decide which keys a cache holds at each step of decoding, each by its published formula."""

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

EXAMPLES: Final = "sinks:4+recent:1020, h2o:1024, snapkv:1024 or top:4096"
MAX_KEYS = 10_000_000
MAX_BAND_CELLS = 2**20
PART = re.compile(r"([a-z0-9]+)[:=]([0-9]{1,9})")


@dataclass(frozen=True, eq=False)
class DecodingHead:
    """A head whose cache is filled by a prompt and then by one key a step.

    Attributes:
        maps: its attention call.
        head: its number.
        prompt: the number of keys of the prompt.
    """

    maps: CellMaps
    head: int
    prompt: int

    def rows(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of some queries, ``(queries, keys)``."""
        weights: FloatArray = self.maps.window((self.head,), queries, keys).weights[0]
        return weights

    @property
    def prompt_sums(self) -> Float64Array:
        """The sum of the weights that each key of the prompt receives from the prompt, ``(prompt,)``."""
        whole, sums = slice(0, self.prompt), np.zeros(self.prompt)
        for band in bands_of_queries(whole, self.prompt, MAX_BAND_CELLS):
            sums += self.rows(band, whole).sum(axis=0, dtype=np.float64)
        return sums


Keeper = Callable[[IntArray, FloatArray], BoolArray]


class Policy(ABC):
    """A rule for the keys that a cache holds."""

    @property
    @abstractmethod
    def budget(self) -> int:
        """The number of keys that it holds or reads: of the prompt for `SnapKV`, else of all keys."""

    @property
    def drops_keys(self) -> bool:
        """True if keys that are not held are dropped for good; False if they are only not read at this step."""
        return True

    @abstractmethod
    def keeper(self, head: DecodingHead) -> Keeper:
        """Returns a function that marks the held keys, ``(steps, keys)``, given the queries and rows of some steps.

        Call it with the steps in their order. The key of a step's own token is held.
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

    def keeper(self, head: DecodingHead) -> Keeper:
        """Returns the function of `Policy.keeper`, which depends only on the indices of keys."""

        def held_keys(queries: IntArray, rows: FloatArray) -> BoolArray:
            keys = np.arange(rows.shape[1])
            last = queries[:, None]
            return np.asarray((keys <= last) & ((keys < self.sinks) | (keys > last - self.recent)))

        return held_keys


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

    def keeper(self, head: DecodingHead) -> Keeper:
        """Returns the function of `Policy.keeper`, which chooses keys anew at each step."""

        def held_keys(queries: IntArray, rows: FloatArray) -> BoolArray:
            count = min(self.top, rows.shape[1])
            chosen = np.argpartition(-rows, count - 1, axis=1)[:, :count]
            held_cells = np.zeros(rows.shape, dtype=bool)
            np.put_along_axis(held_cells, chosen, True, axis=1)
            return np.asarray(held_cells & (np.arange(rows.shape[1]) <= queries[:, None]))

        return held_keys


@dataclass(frozen=True)
class HeavyHitters(Policy):
    """Holds the latest keys, and those with the largest sums of weights so far, half each (Zhang et al. 2023, "H2O").

    As in the published cache that drops keys, weights are those over the keys that are still held.

    Attributes:
        h2o: the number of keys.
    """

    h2o: int

    @property
    def budget(self) -> int:
        """The number of keys that it holds after a step."""
        return self.h2o

    def keeper(self, head: DecodingHead) -> Keeper:
        """Returns the function of `Policy.keeper`, which keeps the sums of weights from call to call."""
        sums, recent = head.prompt_sums, self.h2o // 2
        held_keys, sums = _pruned_cache(np.arange(head.prompt), sums, self.h2o, recent)

        def mark_held(queries: IntArray, rows: FloatArray) -> BoolArray:
            nonlocal held_keys, sums
            held_cells = np.zeros(rows.shape, dtype=bool)
            for step, query in enumerate(queries.tolist()):
                held_keys, sums = np.append(held_keys, query), np.append(sums, 0.0)
                held_cells[step, held_keys] = True
                weights = rows[step, held_keys].astype(np.float64)
                sums = sums + weights / max(weights.sum(), np.finfo(np.float64).tiny)
                held_keys, sums = _pruned_cache(held_keys, sums, self.h2o, recent)
            return held_cells

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

    def keeper(self, head: DecodingHead) -> Keeper:
        """Returns the function of `Policy.keeper`, which holds chosen keys of the prompt and all later keys."""
        kept = self._kept_of_prompt(head)

        def held_keys(queries: IntArray, rows: FloatArray) -> BoolArray:
            keys = np.arange(rows.shape[1])
            prompt = np.isin(keys, kept)
            return np.asarray((prompt | (keys >= head.prompt)) & (keys <= queries[:, None]))

        return held_keys

    def _kept_of_prompt(self, head: DecodingHead) -> IntArray:
        """Returns the indices of the held keys of the prompt; all of them if the prompt is short."""
        if head.prompt < self.snapkv or head.prompt <= self.window:
            return np.arange(head.prompt)
        start = head.prompt - self.window
        votes = head.rows(slice(start, head.prompt), slice(0, start)).sum(axis=0, dtype=np.float64)
        pooled = np.convolve(votes, np.ones(self.kernel) / self.kernel)[self.kernel // 2 :][:start]
        best = np.argsort(-pooled, kind="stable")[: self.snapkv - self.window]
        return np.concatenate([np.sort(best), np.arange(start, head.prompt)])


POLICIES: dict[str, type[Any]] = {
    "sinks": SinksAndRecent,
    "recent": SinksAndRecent,
    "top": Top,
    "h2o": HeavyHitters,
    "snapkv": SnapKV,
}


def parse_policy(text: str) -> Policy:
    """Returns the policy of a text such as ``sinks:4+recent:1020``, ``top:64`` or ``snapkv:64,window=16``.

    Raises:
        AttnvizError: if the text has another form, or names no policy.
    """
    written = option("policy", text)
    parts = [PART.fullmatch(part.strip()) for part in re.split(r"[+,]", text)]
    numbers = {match[1]: int(match[2]) for match in parts if match}
    if len(numbers) != len(parts):
        raise AttnvizError(f"{written} cannot be read; write {EXAMPLES}")
    first = next(iter(numbers))
    if first not in POLICIES:
        raise AttnvizError(f"unknown policy {first!r}; {choices(first, POLICIES)}")
    kind = POLICIES[first]
    field_names = [field.name for field in fields(kind)]
    unknown = next((name for name in numbers if name not in field_names), None)
    if unknown is not None:
        raise AttnvizError(
            f"{written} names {unknown!r}, and {first} takes {' and '.join(field_names)}; write {EXAMPLES}"
        )
    policy: Policy = kind(**numbers)
    _refuse_numbers(policy, written)
    return policy


def _refuse_numbers(policy: Policy, given: str) -> None:
    """Raises AttnvizError if a number of a policy is out of its range; ``given`` is the option as the user wrote it."""
    if not 0 < policy.budget <= MAX_KEYS:
        raise AttnvizError(f"{given} holds {policy.budget} keys; give 1 to {MAX_KEYS}")
    if isinstance(policy, HeavyHitters) and policy.h2o < 2:
        raise AttnvizError(f"{given} holds a key, and half of its keys are the latest; give 2 or more")
    if isinstance(policy, SnapKV):
        if not 0 < policy.window < policy.snapkv:
            raise AttnvizError(
                f"{given} holds the window of {policy.window} latest tokens and more; give a larger number, or a "
                f"smaller window as snapkv:{policy.snapkv},window={max(policy.snapkv // 2, 1)}"
            )
        if policy.kernel % 2 == 0:
            raise AttnvizError(f"{given} has an even kernel, which has no middle; give an odd one, as kernel=5")


def _pruned_cache(keys: IntArray, sums: Float64Array, budget: int, recent: int) -> tuple[IntArray, Float64Array]:
    """Returns the keys that stay in a cache of ``budget`` keys, in their order, and their sums; all if they are few.

    Args:
        keys: the indices of the keys in the cache, ascending.
        sums: the sum of the weights that each has received so far.
        budget: the number of keys that stay.
        recent: how many of them are the latest; the others are those with the largest sums.
    """
    if len(keys) <= budget:
        return keys, sums
    before = len(keys) - recent
    heavy = np.sort(np.argsort(-sums[:before], kind="stable")[: budget - recent])
    places = np.concatenate([heavy, np.arange(before, len(keys))])
    return keys[places], sums[places]
