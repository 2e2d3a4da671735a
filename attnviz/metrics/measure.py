"""Defines what a number of a head measures, under which conditions, and the 95 % interval of a mean of such numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, choices

NOTHING_ELSE = "queries that see two keys or more"
NORMAL_95 = 1.959963984540054  # half a 95 % interval of a normal distribution, in standard errors
# the smallest and the largest number of each unit that a survey sums; 2**64 keys have 64 bits of entropy
RANGES = {
    "share": (0.0, 1.0),
    "bits": (0.0, 64.0),
    "nats": (0.0, 64.0),
    "tokens": (0.0, 2.0**31),
    "": (-(2.0**21), 2.0**21),
}
ROUNDING = 1e-3  # tolerance: sums of weights in float32 may exceed 1 a little


class Need(Enum):
    """A condition of a metric, with its phrase; a sentence lists them in this order."""

    SELF_ATTENTION = "self-attention"
    TWO_TOKENS = "over two tokens or more"
    NOT_CAUSAL = "that is not causal"
    SEQUENCE = "tokens in a sequence"
    TOKEN_IDS = "token ids"
    REPEAT = "a repeat"
    SENTENCES = "two sentences"
    PAIR = "a pair of texts"
    PATCHES = "patches of an image"
    NO_PLACE = "tokens without a place"
    SPECIAL = "special tokens such as [CLS]"
    CAUSAL_SCORES = "a causal mask and all scores"
    SUCH_TOKEN = "texts with such a token"
    LONG_WORDS = "words of several tokens"
    EFFECT = "the effect of some head"


Needs = frozenset[Need]
QUALIFIERS = (Need.TWO_TOKENS, Need.NOT_CAUSAL)  # phrases that continue the one before them, without a comma
ONE_AXIS = frozenset({Need.SELF_ATTENTION, Need.PAIR, Need.CAUSAL_SCORES})  # these need queries and keys of one text


def sentence_of(needs: Iterable[Need], in_sequence: bool = True) -> str:
    """Returns the conditions as the end of a sentence, such as ``self-attention, token ids and a repeat``."""
    conditions = set(needs)
    if in_sequence:
        conditions.discard(Need.SEQUENCE)
    phrases: list[str] = []
    for need in Need:
        if need not in conditions:
            continue
        if need in QUALIFIERS and phrases:
            phrases[-1] += f" {need.value}"
        else:
            phrases.append(need.value)
    if not phrases:
        return NOTHING_ELSE
    *first_phrases, last_phrase = phrases
    return f"{', '.join(first_phrases)} and {last_phrase}" if first_phrases else last_phrase


@dataclass(frozen=True)
class Measure:
    """A measure of heads, which is a column of their table: a metric, an effect, or a score of a type of head."""

    name: str  # the name that users write
    header: str  # the heading of its column; at most nine characters for metrics
    # ``bits``, ``tokens``, ``share`` (of a query's weight, 0 to 1), ``norm``, ``seconds`` or ``nats``; ``change`` for
    # numbers around 0; "" for none
    unit: str
    meaning: str  # the meaning of the number, in one phrase
    needs: Needs = frozenset()  # the conditions under which a head has the number; empty if every head has it
    # true if heads sorted by it begin with the smallest number, as for an error
    smallest_first: bool = field(default=False, kw_only=True)
    is_own: bool = field(default=False, kw_only=True)  # true for a metric of the user's own, which lists show first

    @property
    def reason(self) -> str:
        """The conditions under which a head has the number, as the end of a sentence."""
        return sentence_of(self.needs)


MeasureType = TypeVar("MeasureType", bound=Measure)


def named_measure(name: str, measures: Iterable[MeasureType]) -> MeasureType:
    """Returns the measure with this name; a minus before the name is ignored."""
    by_name = {measure.name: measure for measure in measures}
    measure_name = name.removeprefix("-")
    if measure_name not in by_name:
        raise AttnvizError(f"unknown metric {measure_name!r}; {choices(measure_name, by_name)}")
    return by_name[measure_name]


def example_noun(measures: Iterable[Measure]) -> str:
    """Returns ``pictures`` if a measure needs patches of images, else ``texts``."""
    return "pictures" if any(Need.PATCHES in measure.needs for measure in measures) else "texts"


def margin_of_means(spreads: Float64Array, counts: IntArray) -> Float64Array:
    """Returns half the width of the 95 % confidence interval of each mean; NaN for a mean of fewer than two numbers."""
    # A count of 0 divides by 0, and its result is discarded.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 1, NORMAL_95 * spreads / np.sqrt(counts), np.nan))


def margin_of_mean(numbers: Float64Array) -> float:
    """Returns half the width of the 95 % confidence interval of a mean; NaN for fewer than two numbers.

    Args:
        numbers: the numbers that the mean is of, ``(texts,)``; NaN is ignored.
    """
    known_numbers = numbers[~np.isnan(numbers)]
    deviation = known_numbers.std(ddof=1) if len(known_numbers) > 1 else np.nan
    return float(margin_of_means(np.asarray(deviation), np.asarray(len(known_numbers))))


def finite_number(number: float) -> float | None:
    """Returns the number for JSON: ``None`` if it is not finite."""
    return float(number) if math.isfinite(number) else None
