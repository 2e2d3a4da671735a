"""Refuses surveys with numbers that no texts can produce, such as forged ones; checksums find damaged files."""

from collections.abc import Iterator

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.exact_sums import MASK, ExactSums
from attnviz.corpus.sums.examples import NO_TEXT, Examples
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.sums.tallies import VARIOUS_SINKS, Tallies

MAX_NUMBER = 10**6  # of a layer or a head
MAX_ENTROPY = 64.0  # bits: the entropy of a row is at most log2 of its keys, and none has 2**64 keys
ROUNDING = 1e-3  # tolerance: sums of weights in float32 may exceed 1 a little
LARGEST = {
    "share": 1 + ROUNDING,
    "bits": MAX_ENTROPY,
    "nats": MAX_ENTROPY,
    "tokens": 2.0**31,
}  # the largest number of each unit


def refuse_inconsistent(survey: Survey, name: str) -> None:
    """Raises AttnvizError for a survey with numbers that no texts can produce."""
    reason = next((reason for is_possible, reason in _checks(survey) if not is_possible), None)
    if reason is not None:
        raise AttnvizError(f"{name!r} is not a survey that attnviz wrote: {reason}")


def _checks(survey: Survey) -> Iterator[tuple[bool, str]]:
    """Yields, for each check, True if the survey passes it, with the reason for a refusal if it does not."""
    names = [(head.layer, head.head, head.module) for head in survey.heads]
    yield bool(names), "it has no heads"
    yield (
        all(0 <= number < MAX_NUMBER for name in names for number in name[:2]),
        "the number of a layer or head is out of range",
    )
    yield len(set(names)) == len(names), "two heads have the same name"
    metric_maxima = np.array([LARGEST[metric.unit] for metric in survey.metrics])
    yield from _tally_checks(survey.tallies, metric_maxima)
    yield from _example_checks(survey.examples, metric_maxima)


def _tally_checks(tallies: Tallies, metric_maxima: Float64Array) -> Iterator[tuple[bool, str]]:
    """Yields, for each check of counts and sums, True if they pass it, with the reason for a refusal if they do not."""
    counts = (tallies.texts, tallies.tokens, tallies.count, tallies.histogram, tallies.pairs, tallies.rows)
    yield all((array >= 0).all() for array in (*counts, tallies.beside_count)), "a count is negative"
    text_counts = (tallies.count, tallies.beside_count)
    yield all((array <= tallies.texts).all() for array in text_counts), "a number counts more texts than there are"
    yield (
        np.array_equal(tallies.histogram.sum(axis=-1), tallies.count),
        "a histogram and its mean count different texts",
    )
    yield bool((tallies.sinks >= VARIOUS_SINKS).all()), "a sink is not a token"
    sums = (tallies.sums, tallies.squares, tallies.weights, tallies.scores, tallies.entropies, tallies.beside_sums)
    yield all(((exact_sums.low >= 0) & (exact_sums.low <= MASK)).all() for exact_sums in sums), "a sum exceeds its bits"
    yield _within(tallies.sums, tallies.count, metric_maxima), "a mean is out of its range"
    yield _within(tallies.beside_sums, tallies.beside_count, LARGEST["share"]), "a share beside a sink is out of range"
    yield _within(tallies.squares, tallies.count, metric_maxima**2), "a sum of squares is out of its range"
    total, squares, count = tallies.sums.total, tallies.squares.total, tallies.count.astype(np.float64)
    fit_means = (total**2 <= count * (squares * (1 + ROUNDING) + count * ROUNDING)).all()
    yield bool(fit_means), "a mean of squares is below the square of the mean"
    yield _within(tallies.weights, tallies.pairs, LARGEST["share"]), "a weight is out of its range"
    yield _within(tallies.entropies, tallies.rows, MAX_ENTROPY), "an entropy is out of its range"


def _within(sums: ExactSums, counts: IntArray, largest: float | Float64Array) -> bool:
    """True if each sum is possible for ``counts`` numbers between 0 and ``largest``, except for rounding."""
    total = sums.total
    return bool(((total >= -ROUNDING * counts) & (total <= counts * largest * (1 + ROUNDING))).all())


def _is_possible(numbers: FloatArray, largest: Float64Array) -> BoolArray:
    """Returns, for each number, True if it is between 0 and ``largest``, except for rounding."""
    return (numbers >= -ROUNDING) & (numbers <= largest * (1 + ROUNDING))


def _example_checks(examples: Examples, metric_maxima: Float64Array) -> Iterator[tuple[bool, str]]:
    """Yields the result of each check of the example texts, with the reason for a refusal."""
    has_text = examples.ids != NO_TEXT
    yield set(examples.text_numbers) <= examples.texts.keys(), "a text of its examples is missing"
    yield bool(np.isfinite(examples.values[has_text]).all()), "an example's number is not finite"
    yield not np.isinf(examples.sample).any(), "a number of its sample is infinite"
    values = np.where(has_text, examples.values, 0)
    yield bool(_is_possible(values, metric_maxima[:, None]).all()), "an example's number is out of its range"
    has_number = ~np.isnan(examples.sample)
    are_possible = _is_possible(examples.sample, metric_maxima)[has_number].all()
    yield bool(are_possible), "a number of its sample is out of its range"
    text_numbers = np.array(sorted(examples.texts), dtype=np.int64)
    lengths = np.array([len(examples.texts[number].tokens) for number in text_numbers.tolist()], dtype=np.int64)
    text_indices = np.searchsorted(text_numbers, examples.ids[has_text])
    queries = examples.places[has_text]  # -1 for no query
    are_in_text = (queries >= -1) & (queries < lengths[text_indices])
    yield bool(are_in_text.all()), "an example's query is outside its text"
