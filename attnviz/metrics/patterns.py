"""Names the pattern of a head in plain words if its metrics are clear.

The sink of a head is the key that receives most of its weight, if that is `MIN_SINK_SHARE` or more. Half of the heads
of a decoder rest on a sink wherever they find nothing to do, so a head is named by what it does beside its sink, that
is, by its weights without the sink's key (`numbers_beside_sink`). The number of a pattern is the metric itself, and the
sink's share stands after it. Each needs a mean over `MIN_QUERIES` queries (`MIN_COPIES` with an earlier copy), so that
a single token cannot name a pattern. In this order:

- ``sink`` with its token: `MIN_WHOLE_SINK` of the weight or more is on it, and no metric of few queries has
  `MIN_SINK_SHARE`.
- ``uniform``: a relative entropy of at least `MIN_UNIFORM_ENTROPY`.
- ``induction``, ``previous token``, ``next token``, ``own token``, ``duplicate token``, ``other sentence``: at least
  `MIN_CLEAR_SHARE` of the weight, which is at least half; the largest first, `MAX_NAMES` at most with the sink.
- ``own sentence``: at least `MIN_WIDE_SHARE` of the weight within the query's sentence. ``local``: at least
  `MIN_WIDE_SHARE` of it within a few tokens, in texts of `MIN_LOCAL_TOKENS` tokens or more; in shorter texts every head
  would be local.
- ``sink`` with its token: at least `MIN_CLEAR_SHARE` of the weight.
- ``mixed``: no other pattern.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray

MIN_SINK_SHARE = 0.3  # of the weight on one key, as in Gu et al. 2025, "When Attention Sink Emerges in Language Models"
MIN_REST = 0.01  # of a row; in a row with less, rounding and chance decide where the rest is
MIN_KEYS = 3  # that a query sees: two beside the sink, else it has no choice beside it
MIN_QUERIES = 3  # that a number is a mean of, so that a single token cannot name a pattern
MIN_COPIES = 2  # the same for metrics of queries with an earlier copy: a short text repeats few tokens
REST_METRICS = (
    "relative-entropy",
    "induction",
    "previous",
    "next",
    "self",
    "duplicate",
    "pair",
    "block",
    "locality",
)  # the metrics that decide patterns, without that of the sink itself
OF_COPIES = ("induction", "duplicate")  # means over the few queries that have an earlier copy
OF_ALL_QUERIES = ("self", "locality")  # a query without such a cell counts with 0; the others leave it out
Item = TypeVar("Item")
MIN_UNIFORM_ENTROPY = 0.97
MIN_CLEAR_SHARE = 0.5
MIN_WIDE_SHARE = 0.8
MIN_WHOLE_SINK = 0.9  # above it, the rest of the weights is too little to name a head
MIN_LOCAL_TOKENS = 20
MAX_NAMES = 2
FIRST_TOKEN = "first token"  # in place of a sink's label if it is the first token of texts that differ in it
VARIOUS_TOKENS = "various tokens"  # in place of a sink's label if texts differ in it
SHARE_PATTERNS = {
    "induction": "induction",
    "previous": "previous token",
    "next": "next token",
    "self": "own token",
    "duplicate": "duplicate token",
    "sink": "sink",
    "pair": "other sentence",
}
OWN_SENTENCE, LOCAL = "own sentence", "local"
PATTERN_METRICS = ("sink", *REST_METRICS)  # the metrics that decide patterns
# From the rarest and most informative patterns to those of many heads.
BY_RARITY = (*(name for name in SHARE_PATTERNS.values() if name != "sink"), OWN_SENTENCE, LOCAL, "sink")


def numbers_beside_sink(
    numbers: Mapping[str, Float64Array],
    sink_weights: Float64Array,
    sink_cells: Mapping[str, BoolArray],
    visible_counts: IntArray,
) -> Float64Array:
    """Returns the metrics of `REST_METRICS` without the sink's key, ``(..., metrics)``.

    A number is a mean over queries, of which those count that see `MIN_KEYS` or more and keep `MIN_REST`. It is NaN
    for a metric that is not among ``numbers``, and if fewer than `_min_queries` count.
    """
    sink_weights = np.where(visible_counts >= MIN_KEYS, sink_weights, 1)  # a query that does not count keeps no rest
    rest = 1 - sink_weights
    is_counted = rest >= MIN_REST
    divisors = np.where(is_counted, rest, 1)
    results = np.full((*rest.shape[:-1], len(REST_METRICS)), np.nan)
    for index, name in enumerate(REST_METRICS):
        if name not in numbers:
            continue
        has_number = is_counted & ~np.isnan(numbers[name])
        known_numbers = np.where(has_number, numbers[name], 0)
        if name == "relative-entropy":
            # the entropy of the row without its sink, given that of the whole row
            keys = np.maximum(visible_counts, MIN_KEYS)
            sink_terms = sink_weights * np.log2(np.where(sink_weights > 0, sink_weights, 1))
            entropy = (known_numbers * np.log2(keys) + sink_terms) / divisors + np.log2(divisors)
            row_numbers = entropy / np.log2(np.where(sink_weights > 0, keys - 1, keys))
        else:
            row_numbers = (known_numbers - sink_weights * sink_cells.get(name, False)) / divisors
        with_number = has_number.sum(axis=-1)
        counts = is_counted.sum(axis=-1) * (with_number > 0) if name in OF_ALL_QUERIES else with_number
        totals = np.sum(row_numbers.clip(0, 1), axis=-1, where=has_number)
        results[..., index] = np.where(counts >= _min_queries(name), totals / np.maximum(counts, 1), np.nan)
    return results


def _min_queries(name: str) -> int:
    """Returns how many queries a metric must be a mean of to name a head."""
    return MIN_COPIES if name in OF_COPIES else MIN_QUERIES


def quoted_word(label: str) -> str:
    """Returns the label of a token in quotes; those of special tokens, such as ``[CLS]``, as they are."""
    text = label.strip("␣ ") or label
    is_marked = text[:1] + text[-1:] in ("[]", "<>")
    return text if is_marked or label == FIRST_TOKEN else f"“{text}”"


def is_sink(shares: Float64Array) -> BoolArray:
    """Returns True for heads with a sink, ``(...)``, given the weight on the key that receives most."""
    return np.asarray(shares >= MIN_SINK_SHARE)


@dataclass(frozen=True)
class Pattern:
    """A pattern in the weights of a head."""

    name: str  # its name in plain words, such as ``previous token``
    value: float | None = None  # the share of the weight that follows it; ``None`` for ``uniform`` and ``mixed``
    # the label of the token that receives most weight; only for a sink, and "" if texts differ in it
    token: str = ""
    is_beside: bool = False  # True for the sink of a head that is named by what it does beside it

    def __str__(self) -> str:
        """Returns the pattern for a reader, such as ``sink: [CLS] 0.83``, or ``sink 0.55 on “the”`` beside another."""
        number = "" if self.value is None else f" {self.value:.2f}"
        if self.is_beside:
            return f"{self.name}{number}" + (f" on {quoted_word(self.token)}" if self.token else "")
        return f"{self.name}: {self.token}{number}" if self.token else f"{self.name}{number}"


UNIFORM, MIXED = Pattern("uniform"), Pattern("mixed")
ORDER = (*BY_RARITY, UNIFORM.name, MIXED.name)


def find_patterns(
    numbers: Mapping[str, float], counts: Mapping[str, int], beside_sink: Mapping[str, float], keys: int, sink: str
) -> tuple[Pattern, ...]:
    """Returns the patterns of a head, the clearest first; empty if no metric is a mean over `_min_queries` or more.

    A head of nearly uniform rows has `UNIFORM` alone, and one without a clear share `OWN_SENTENCE`, `LOCAL`, its sink
    or `MIXED`. The sink of a head that does something beside it stands last.
    """
    values = {name: value for name, value in numbers.items() if counts[name] >= _min_queries(name)}
    if all(math.isnan(value) for value in values.values()):
        return ()
    sink_share = values.get("sink", 0.0)
    has_sink = sink_share >= MIN_SINK_SHARE
    rest = {name: beside_sink[name] for name in values if name in beside_sink} if has_sink else values
    token = "" if sink == VARIOUS_TOKENS else sink
    second = (Pattern("sink", sink_share, token, is_beside=True),) if has_sink else ()
    clear_names = [name for name in SHARE_PATTERNS if rest.get(name, 0) >= MIN_CLEAR_SHARE and name != "sink"]
    if sink_share >= MIN_WHOLE_SINK:
        # Induction and duplicate average few queries, and may have much of their weight while the sink has the others.
        clear_names, rest = [name for name in clear_names if values[name] >= MIN_SINK_SHARE], {}
    if rest.get("relative-entropy", 0) >= MIN_UNIFORM_ENTROPY:
        return (UNIFORM, *second)
    if clear_names:
        shares = beside_sink if has_sink else values
        largest_names = sorted(clear_names, key=lambda name: shares[name], reverse=True)
        if sink_share < MIN_CLEAR_SHARE <= values[largest_names[0]]:
            second = ()  # the pattern has half of the weight, so the sink explains nothing
        largest_names = largest_names[: MAX_NAMES - len(second)]
        return (*(Pattern(SHARE_PATTERNS[name], values[name]) for name in largest_names), *second)
    if rest.get("block", 0) >= MIN_WIDE_SHARE:
        return (Pattern(OWN_SENTENCE, values["block"]), *second)
    if rest.get("locality", 0) >= MIN_WIDE_SHARE and keys >= MIN_LOCAL_TOKENS:
        return (Pattern(LOCAL, values["locality"]), *second)
    return (Pattern("sink", sink_share, sink),) if sink_share >= MIN_CLEAR_SHARE else (MIXED,)


def is_beside_larger_sink(patterns: Sequence[Pattern]) -> bool:
    """True if a head has more of its weight on a sink than in the pattern that names it."""
    return any(pattern.is_beside and (pattern.value or 0) > (patterns[0].value or 0) for pattern in patterns)


def beside_phrase(count: int, total: int) -> str:
    """Returns how many heads of a pattern have more of their weight on a sink, in brackets; "" for none."""
    return f" ({'' if count == total else f'{count} '}beside a sink)" if count else ""


def clearest_first(items: Iterable[tuple[Item, Pattern]]) -> list[Item]:
    """Returns items in the order in which a reader should see them.

    First come the items with the largest value of each pattern, then those with the second largest, and so on; within
    these, patterns are in the order of `BY_RARITY`. Uniform and mixed items are last.
    """
    ranks: Counter[str] = Counter()  # the number of better items of each pattern
    ranked_items = []
    for item, pattern in sorted(items, key=lambda pair: -(pair[1].value or 0)):
        ranked_items.append(((pattern in (UNIFORM, MIXED), ranks[pattern.name], ORDER.index(pattern.name)), item))
        ranks[pattern.name] += 1
    return [item for _, item in sorted(ranked_items, key=lambda entry: entry[0])]


def pattern_counts(patterns_of_heads: Iterable[tuple[Pattern, ...]]) -> str:
    """Returns the number of heads per pattern, in the order of `ORDER`.

    Heads that have more of their weight on a sink are told apart: ``3 previous token (2 beside a sink), 31 sinks on
    [CLS]``.
    """
    by_name: dict[str, list[Pattern]] = {}
    sinks: Counter[str] = Counter()
    for patterns in patterns_of_heads:
        first = patterns[0] if patterns else MIXED
        by_name.setdefault(first.name, []).append(first)
        sinks[first.name] += is_beside_larger_sink(patterns)
    phrases = [
        f"{len(by_name[name])} {name}{beside_phrase(sinks[name], len(by_name[name]))}"
        for name in ORDER
        if name in by_name and name != "sink"
    ]
    if "sink" in by_name:
        count = len(by_name["sink"])
        [(token, count_on_token)] = Counter(pattern.token for pattern in by_name["sink"]).most_common(1)
        on_token = f" on {token}" if count_on_token == count else f" ({count_on_token} on {token})"
        place = sum(name in by_name for name in ORDER[: ORDER.index("sink")])
        phrases.insert(place, f"{count} sink{'s' if count > 1 else ''}{on_token}")
    return ", ".join(phrases)
