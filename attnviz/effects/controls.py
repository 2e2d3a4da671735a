"""Draws random sets of heads, beside which the effect of a chosen set is judged, and ranks the effect among theirs."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb, inf, prod
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.head_name import HeadName

LEVEL = 0.05  # an effect is beyond its controls if p is at most this
CONTROLS = 20  # random sets beside each set of an ablation, as many as one test needs to pass
SEED = 0  # of the draws, so that the same set has the same controls
TESTED_TOO = "Too few heads are left untested, so that other heads of a row may be those of another row."
TRIES = 10  # draws for each set that is wanted, since draws repeat


def random_sets(heads: HeadSet, known: Iterable[HeadName], count: int) -> list[HeadSet]:
    """Returns ``count`` different sets of as many other heads, drawn from a fixed seed; all of them if there are fewer.

    Each head is replaced by one of its own layer; where these make too few sets, also by heads of the nearest layers.
    The list is empty if there are not as many other heads.

    Args:
        heads: the set that is judged.
        known: the heads of the model that may be drawn.
        count: how many sets to draw, at least 0.
    """
    others = sorted(set(known) - set(heads))
    if comb(len(others), len(heads)) <= count:
        return list(combinations(others, len(heads)))
    distances = [
        [abs(other.layer - head.layer) if other.part == head.part else inf for other in others] for head in heads
    ]
    draws = np.random.default_rng(SEED)
    sets: dict[HeadSet, None] = {}
    for reach in sorted({distance for row in distances for distance in row}):
        near = [[other for other, far in zip(others, row, strict=True) if far <= reach] for row in distances]
        tries = TRIES * count if prod(map(len, near)) >= count else 0
        for _ in range(tries):
            if len(sets) == count:
                break
            drawn: list[HeadName] = []
            for candidates in near:
                free = [head for head in candidates if head not in drawn]
                drawn += [free[draws.integers(len(free))]] if free else []
            if len(drawn) == len(heads):
                sets[tuple(sorted(drawn))] = None
    return list(sets)


def least_draws(tests: int) -> int:
    """Returns how many draws the p of each test needs to be able to be at most `LEVEL` after Holm's correction."""
    return round(tests / LEVEL) - 1


def holm(ps: Sequence[float]) -> list[float]:
    """Returns each p corrected for their number, at most 1.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min((len(ps) - rank) * ps[index], 1.0))
        corrected[index] = largest
    return corrected


def name_of_replacement(replace_by: Any) -> str:
    """Returns what removed heads write: ``zero``, ``mean``, or ``another text`` for the inputs of one."""
    return replace_by if isinstance(replace_by, str) else "another text"


def refuse_other_length(tokens: int, others: int, place: str = "") -> None:
    """Raises AttnvizError, with the place of the text, if the one whose outputs replace its own has another length."""
    if tokens != others:
        error = AttnvizError(
            f"the text has {tokens} tokens and that of {option('replace_by')} {others}; outputs are replaced token by "
            "token, so give a text with as many tokens"
        )
        raise error.at(place) if place else error


def rank_p(effect: float, controls: Float64Array) -> float:
    """Returns (1 + the number of controls at least as large) / (1 + their number): the p of a randomization test.

    It is 1 without controls. Source: Phipson and Smyth 2010, "Permutation P-values Should Never Be Zero".
    """
    return (1 + int((controls >= effect).sum())) / (1 + len(controls))
