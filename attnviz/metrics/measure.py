"""Defines what a number of a head measures, with the 95 % interval of a mean, and filters of heads by such numbers.

Filters have one language in every list of heads, such as ``previous>0.5 layer:3-5``. A head passes if every word holds.
A word is one of

- a metric, an operator and a number: ``previous>0.5``, ``sink<=.2``; an unambiguous prefix of the metric is enough;
- ``layer:`` or ``head:`` and a list: ``layer:3-5,7``, ``head:0,2``, ``head:4.11``,
  ``head:encoder:4.11``;
- ``kind:self`` or ``kind:cross``;
- ``text:`` and a list of the texts of a batch, from 0: ``text:1``, ``text:0,2-3``;
- part of the head's pattern, or its name: ``induction``, ``4.11``, ``encoder:4.11``;
- a head that is named by its sink, as lists write it: ``sink: [CLS]``, or ``sink:`` for any token. ``sink`` also keeps
  heads that do something else beside a sink.

A minus negates a word: ``-uniform``. A comparison is False for a head that lacks the number.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TypeVar

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError, choices, option
from attnviz.text.head_name import FILTER_WORDS, parse_head_name
from attnviz.text.selection import parse_numbers

NOTHING_ELSE = "queries that see two keys or more"
NORMAL_95 = 1.959963984540054  # half a 95 % interval of a normal distribution, in standard errors
HALVINGS = 60  # of the angle whose tangent Student's t is; more change nothing in float64
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
    """Returns 1.96 standard errors of each mean, half of its 95 % interval for many numbers; NaN below two."""
    # A count of 0 divides by 0, and its result is discarded.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 1, NORMAL_95 * spreads / np.sqrt(counts), np.nan))


def margin_of_mean(numbers: Float64Array, groups: IntArray | None = None) -> float:
    """Returns half of the 95 % interval of a mean, by Student's t; NaN for fewer than two numbers, or groups.

    Args:
        numbers: the numbers that the mean is of, ``(texts,)``; NaN is ignored, unless there are groups.
        groups: ``(texts,)``, the index of the group of each text, if only texts of different groups are independent.

    Source: for groups, Liang and Zeger 1986, "Longitudinal Data Analysis Using Generalized Linear Models".
    """
    if groups is not None:  # a number for each group, with the same mean
        deviations = np.bincount(np.unique(groups, return_inverse=True)[1], numbers - numbers.mean())
        numbers = numbers.mean() + deviations * len(deviations) / len(numbers)
    known_numbers = numbers[~np.isnan(numbers)]
    count = len(known_numbers)
    return students_t(count - 1) * float(known_numbers.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan


@cache
def students_t(freedom: int, share: float = 0.95) -> float:
    """Returns the number that the absolute value of Student's t does not exceed in this share of all cases."""
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _share_within(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """Returns the probability that the absolute value of Student's t is at most ``tan(angle) * sqrt(freedom)``."""
    # The finite series for odd and even degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2 == 1
    term = cosine if is_odd else 1.0
    series_sum = 0.0 if freedom == 1 else term
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        series_sum += term
    return 2 / math.pi * (angle + sine * series_sum) if is_odd else sine * series_sum


def finite_number(number: float) -> float | None:
    """Returns the number for JSON: ``None`` if it is not finite."""
    return float(number) if math.isfinite(number) else None


OPERATIONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": lambda value, number: abs(value - number) < EQUAL_WITHIN,
}
EQUAL_WITHIN = 0.005  # tables show two decimals: what looks equal there is equal
KINDS = ("self", "cross")
EXAMPLE = "sink>0.5 layer:3-5"
NAME = r"[a-z][a-z0-9-]*"  # of a number of heads
COMPARISON = re.compile(rf"({NAME})(>=|<=|>|<|=)(-?\d*\.?\d+|-?\d+\.)", re.ASCII)


@dataclass(frozen=True)
class DescribedHead:
    """The fields of a head that a filter tests."""

    name: str  # its name, such as ``4.11`` or ``encoder:4.11``
    layer: int  # the layer's number
    head: int  # the head's number in its layer
    kind: str  # ``self`` or ``cross``
    pattern: str  # the names of its patterns, in plain words
    numbers: Mapping[str, float]  # its numbers by the name of the measure; NaN where it has none
    text: int | None = 0  # the number of its text in a batch; ``None`` for means over texts, -1 over a corpus

    def is_called(self, word: str) -> bool:
        """True if a word of a filter is the head's name, or its numbers, which several heads may have."""
        return word in (self.name.lower(), f"{self.layer}.{self.head}")


HeadTest = Callable[[DescribedHead], bool]


def parse_filter(text: str, metrics: Iterable[str]) -> HeadTest:
    """Returns the predicate of a filter: a head passes if every word holds for it."""
    # An operator joins the words around it, and a colon the word after it, so that each test is one word.
    compact_text = re.sub(r"(?<!\s)\s*(>=|<=|>|<|=)\s*", r"\1", re.sub(r":\s+", ":", text))
    names = tuple(metrics)
    tests = [_word_test(word, names) for word in compact_text.lower().split()]
    return lambda head: all(test(head) for test in tests)


def refuse_filter(text: str, metrics: Iterable[str]) -> None:
    """Raises AttnvizError if no head could be filtered by this text, whichever of the metrics it has."""
    names = tuple(metrics)
    prefixes = [match[1] for match in COMPARISON.finditer(text.lower())]
    parse_filter(text, (*names, *(prefix for prefix in prefixes if any(name.startswith(prefix) for name in names))))


def _word_test(word: str, metrics: tuple[str, ...]) -> HeadTest:
    """Returns the predicate of one word of a filter; each minus before the word negates it."""
    minuses = min(len(word) - len(word.lstrip("-")), len(word) - 1)  # a word of minuses alone keeps one
    if minuses:
        test = _word_test(word[minuses:], metrics)
        expected_result = minuses % 2 == 0  # two minuses cancel each other
        return lambda head: test(head) == expected_result
    if match := COMPARISON.fullmatch(word):
        metric, compare, number = find_metric_name(match[1], metrics), OPERATIONS[match[2]], float(match[3])
        return lambda head: compare(head.numbers.get(metric, math.nan), number)  # no comparison with NaN is true
    name, colon, value = word.partition(":")
    if colon and name == "sink":
        return lambda head: f"sink: {value}" in head.pattern.lower()
    if colon and value and (name in FILTER_WORDS or parse_head_name(word) is None) and name in TESTS:
        return TESTS[name](value)
    if re.search(r"[<>=:]", word) and parse_head_name(word) is None:
        example = EXAMPLE if "previous" in metrics or not metrics else f"{metrics[0]}>0.5 layer:3-5"
        raise AttnvizError(f"{option('filter')} {word!r} is no test of a head; write one as {example!r}")
    return lambda head: head.is_called(word) or word in head.pattern.lower()


def find_metric_name(prefix: str, names: Iterable[str]) -> str:
    """Returns the name of a metric: ``prefix`` if it is one, else the only name that begins with it."""
    metrics = tuple(names)
    if prefix in metrics:
        return prefix
    matches = [name for name in metrics if name.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    raise AttnvizError(f"unknown metric {prefix!r}; {choices(prefix, matches or metrics)}")


def _layer_test(value: str) -> HeadTest:
    """Returns the predicate of a head in the layers that ``value`` lists, as in ``3-5,7``."""
    layers = parse_numbers(value, "layers")
    return lambda head: head.layer in layers


def _head_test(value: str) -> HeadTest:
    """Returns the predicate of the heads that ``value`` lists: names as in ``4.11,5.0``, or numbers as in ``0,2-4``."""
    if "." in value:
        names = value.split(",")
        return lambda head: any(map(head.is_called, names))
    heads = parse_numbers(value, "heads")
    return lambda head: head.head in heads


def texts_of_filter(text: str) -> set[int] | None:
    """Returns the texts of a batch that a filter asks for; ``None`` if it asks for none."""
    lists = re.findall(r"(?<!\S)texts?:\s*([\d,-]+)(?!\S)", text.lower())
    return set.intersection(*(set(parse_numbers(numbers, "texts")) for numbers in lists)) if lists else None


def _text_test(value: str) -> HeadTest:
    """Returns the predicate of a head over the texts of a batch that ``value`` lists, as in ``0,2-3``.

    Means over texts pass: their texts were chosen before.
    """
    texts = parse_numbers(value, "texts")
    return lambda head: head.text is None or head.text in texts


def _kind_test(value: str) -> HeadTest:
    """Returns the predicate of ``kind:self`` or ``kind:cross``; raises AttnvizError for another kind."""
    if value not in KINDS:
        raise AttnvizError(f"{option('filter')} 'kind:{value}' is no kind of attention; write kind:self or kind:cross")
    return lambda head: head.kind == value


TESTS: dict[str, Callable[[str], HeadTest]] = {
    "layer": _layer_test,
    "layers": _layer_test,
    "head": _head_test,
    "heads": _head_test,
    "kind": _kind_test,
    "text": _text_test,
    "texts": _text_test,
}
