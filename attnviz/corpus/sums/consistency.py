"""Refuses surveys whose numbers no texts can give: a checksum finds what was damaged, and this what was forged."""

from collections.abc import Iterator

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.exact_sums import MASK, ExactSums
from attnviz.corpus.sums.examples import NO_TEXT, Examples
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.sums.tallies import VARIOUS_SINKS, Tallies

MAX_NUMBER = 10**6  # of a layer or a head
MAX_ENTROPY = 64.0  # bits of a row; one of 2**64 keys has more
ROUNDING = 1e-3  # of a share, which float32 may have a little above 1
LARGEST = {"share": 1 + ROUNDING, "bits": MAX_ENTROPY, "tokens": 2.0**31}  # of a number, by its unit


def refuse_inconsistent(survey: Survey, what: str) -> None:
    """Raises AttnvizError for a survey whose numbers no texts can give.

    Args:
        survey: with the metrics that are known: the unit of another is not.
        what: how a refusal names its file.
    """
    reason = next((reason for holds, reason in _checks(survey) if not holds), None)
    if reason is not None:
        raise AttnvizError(f"{what!r} is no survey that attnviz wrote: {reason}")


def _checks(survey: Survey) -> Iterator[tuple[bool, str]]:
    """Yields what must hold, and what is wrong where it does not; each check may rely on those before it."""
    names = [(head.layer, head.head) for head in survey.heads]
    yield bool(names), "it has no heads"
    yield all(0 <= number < MAX_NUMBER for name in names for number in name), "a layer or head has no number"
    yield len(set(names)) == len(names), "two heads have one name"
    yield from _tally_checks(survey.tallies, np.array([LARGEST[metric.unit] for metric in survey.metrics]))
    yield from _example_checks(survey.examples)


def _tally_checks(tallies: Tallies, largest: Float64Array) -> Iterator[tuple[bool, str]]:
    counts = (tallies.texts, tallies.tokens, tallies.count, tallies.histogram, tallies.pairs, tallies.rows)
    yield all((each >= 0).all() for each in counts), "it counts less than nothing"
    yield bool((tallies.count <= tallies.texts).all()), "a number is of more texts than there are"
    yield np.array_equal(tallies.histogram.sum(axis=-1), tallies.count), "a histogram is of other texts than its mean"
    yield bool((tallies.sinks >= VARIOUS_SINKS).all()), "a sink is no token"
    sums = (tallies.sums, tallies.squares, tallies.weights, tallies.scores, tallies.entropies)
    yield all(((each.low >= 0) & (each.low <= MASK)).all() for each in sums), "a sum has more than its bits"
    yield _within(tallies.sums, tallies.count, largest), "a mean is out of its range"
    yield _within(tallies.squares, tallies.count, largest**2), "a spread is out of its range"
    yield _are_squares(tallies), "the squares are less than their mean makes them"
    yield _within(tallies.weights, tallies.pairs, LARGEST["share"]), "a weight is out of its range"
    yield _within(tallies.entropies, tallies.rows, MAX_ENTROPY), "an entropy is out of its range"


def _within(sums: ExactSums, counts: IntArray, largest: float | Float64Array) -> bool:
    """True if each sum is one of ``counts`` numbers between 0 and ``largest``."""
    total = sums.total
    return bool(((total >= -ROUNDING * counts) & (total <= counts * largest * (1 + ROUNDING))).all())


def _are_squares(tallies: Tallies) -> bool:
    """True if the mean of the squares is at least the square of the mean, as roundly as both were summed up."""
    total, squares, count = tallies.sums.total, tallies.squares.total, tallies.count.astype(np.float64)
    return bool((total**2 <= count * (squares * (1 + ROUNDING) + count * ROUNDING)).all())


def _example_checks(examples: Examples) -> Iterator[tuple[bool, str]]:
    known = examples.ids != NO_TEXT
    yield set(examples.used) <= examples.texts.keys(), "a text of its examples is missing"
    yield bool(np.isfinite(examples.values[known]).all()), "an example has no number"
    yield not np.isinf(examples.sample).any(), "a number of its sample is infinite"
    numbers = np.array(list(examples.texts), dtype=np.int64)
    lengths = np.array([len(text.tokens) for text in examples.texts.values()], dtype=np.int64)
    order = np.argsort(numbers)
    found = np.searchsorted(numbers, examples.ids[known], sorter=order)
    places = examples.places[known]
    yield bool(((places >= -1) & (places < lengths[order][found])).all()), "an example is outside of its text"
