"""Measure: what a number of heads is; and how far the 95 % interval of a mean of such numbers reaches."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, known_names, nearest
from attnviz.metrics.needs import Needs, sentence_of

NORMAL_95 = 1.959963984540054  # standard errors to either side of a mean that hold 95 % of a normal distribution


@dataclass(frozen=True)
class Measure:
    """What a column of a table of heads says: a metric, an effect, a type of head.

    Attributes:
        name: as a user writes it.
        header: over its column; of metrics at most nine characters.
        unit: ``bits``, ``tokens``, ``share`` (of a query's weight, 0 to 1), ``norm`` or ``nats``; ``change`` for
            numbers around 0; "" for none.
        meaning: what the number is, in one phrase.
        needs: what a head must have for the number to exist, where not all do.
    """

    name: str
    header: str
    unit: str
    meaning: str
    needs: Needs = frozenset()

    @property
    def reason(self) -> str:
        """What a head must have, as the end of a sentence."""
        return sentence_of(self.needs)


Known = TypeVar("Known", bound=Measure)


def named_measure(name: str, measures: Iterable[Known]) -> Known:
    """The measure of that name; a minus before it, which reverses an order, is no part of it.

    Raises:
        AttnvizError: if there is none, listing those there are.
    """
    by_name = {measure.name: measure for measure in measures}
    name = name.removeprefix("-")
    if name not in by_name:
        raise AttnvizError(f"unknown metric {name!r}; {nearest(name, by_name)}{known_names(by_name)} works")
    return by_name[name]


def margin_of_means(spreads: Float64Array, counts: IntArray) -> Float64Array:
    """Half of the 95 % interval of each mean; NaN for a mean of fewer than two numbers.

    Args:
        spreads: the standard deviation of the numbers, of any shape.
        counts: how many numbers there are, of the same shape.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 1, NORMAL_95 * spreads / np.sqrt(counts), np.nan))


def margin_of_mean(numbers: Float64Array) -> float:
    """Half of the 95 % interval of the mean of the known numbers, ``(texts,)``; NaN for fewer than two."""
    known = numbers[~np.isnan(numbers)]
    spread = known.std(ddof=1) if len(known) > 1 else np.nan
    return float(margin_of_means(np.asarray(spread), np.asarray(len(known))))


def known_number(number: float) -> float | None:
    """The number as JSON has it: ``None`` where it is not finite."""
    return float(number) if math.isfinite(number) else None
