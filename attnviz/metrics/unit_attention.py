"""Measures the attention of each unit of a text on each earlier one, and finds the heads that look at few of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.maps.grouped import Units
from attnviz.maps.layer_maps import LayerMaps
from attnviz.media.image import Image
from attnviz.metrics.unit_shares import last_unit, sink_tokens
from attnviz.text.groups import Groups
from attnviz.text.named_groups import GENERATED, named_groups
from attnviz.text.tokens import Tokens

NEAR_UNITS = 3  # directly after a unit, whose attention to it is not counted in a long text
MIN_SCORES = 4  # units with a score that a kurtosis needs
LONG_TEXT = 12  # units, from which on near ones are not counted
MAX_RECEIVERS = 16  # as many as Bogdan et al. take, but at most a tenth of the heads


def units_of_text(tokens: Tokens, by: str) -> tuple[Units, int]:
    """Returns the units of a text without its sink, and the number of the first unit of its answer.

    A picture is a unit. What a model generated begins a unit of its own, and is the answer; else the answer is the
    last turn, the question after passages, or the last unit. Tokens of the sink belong to no unit: the first, special
    ones, and those outside of turns and passages.
    """
    is_generated = np.zeros(len(tokens), dtype=bool)
    if GENERATED in tokens.groups:
        is_generated = tokens.groups[GENERATED].numbers == 1
    groups = named_groups(tokens, by)
    if groups is not None:
        numbers, labels = groups.numbers.copy(), groups.labels or ("",) * len(groups)  # "" for its first words
        # A sentence that the model went on with is two units.
        goes_on = is_generated & (numbers >= 0) & np.isin(numbers, numbers[~is_generated])
        numbers[goes_on] += len(labels)
        labels = (*labels, *(label and f"{label}, {GENERATED}" for label in labels))
        for index, medium in enumerate(tokens.media):
            if isinstance(medium, Image):
                numbers[(tokens.medium == index) & (numbers < 0)] = len(labels)
                labels = (*labels, medium.title)
        tokens = replace(tokens, groups={**tokens.groups, by: Groups(numbers, labels)})
    units = Units.of(tokens, by)
    is_unit = ~sink_tokens(units, by)
    kept, inverse = np.unique(units.numbers[is_unit], return_inverse=True)
    numbers = np.full(len(tokens), -1, dtype=np.int64)
    numbers[is_unit] = inverse
    text_units = Units(numbers=numbers, labels=tuple(units.labels[unit] for unit in kept.tolist()), tokens=tokens)
    if (is_generated & is_unit).any():
        return text_units, int(numbers[is_generated & is_unit].min())
    answer = last_unit(units, by)
    return text_units, len(kept) - 1 if answer is None else int(np.searchsorted(kept, answer))


def unit_attention(maps: LayerMaps, units: Units, heads: tuple[int, ...] | None = None) -> Float64Array:
    """Returns the weight of each unit on each, ``(heads, units, units)``: summed over keys, averaged over queries."""
    sinks = np.full(len(maps.key_tokens) - len(units.numbers), -1)  # keys without a token come last
    columns = Groups(np.concatenate([units.numbers, sinks]), units.labels)
    sums = maps.group_sums(maps.heads if heads is None else heads, units, columns).weights
    return np.asarray(sums / units.sizes[:, None], dtype=np.float64)


def receiver_scores(attention: Float64Array, sizes: IntArray) -> Float64Array:
    """Returns how far each head's later units agree on few earlier ones: a kurtosis, ``(heads,)``.

    It is the kurtosis of what units receive from later ones: their mean weight on a token of the unit, without the
    `NEAR_UNITS` units after it in a text of `LONG_TEXT` units. All NaN for fewer than `MIN_SCORES` such units.

    Source: receiver heads of Bogdan et al. 2025 (Thought Anchors, arXiv 2506.19143).

    Args:
        attention: ``(heads, units, units)``, of queries on keys.
        sizes: ``(units,)``, the tokens of each unit.
    """
    count = len(sizes)
    distance = 1 + (NEAR_UNITS if count >= LONG_TEXT else 0)
    if count - distance < MIN_SCORES:
        return np.full(len(attention), np.nan)
    per_token = attention / sizes
    received = np.stack(
        [per_token[:, unit + distance :, unit].mean(axis=1) for unit in range(count - distance)], axis=1
    )  # (heads, units)
    deviations = received - received.mean(axis=1, keepdims=True)
    variance = (deviations**2).mean(axis=1)
    kurtosis = np.divide((deviations**4).mean(axis=1), variance**2, out=np.zeros(len(received)), where=variance > 0)
    return np.asarray(kurtosis)


def outstanding_scores(attention: Float64Array, sizes: IntArray) -> Float64Array:
    """Returns how far one earlier unit stands out for each head's last unit, in bits, ``(heads,)``.

    It is share · log2(share over the unit's share of the tokens), of the unit where this is largest.
    """
    shares, even_shares = attention[:, -1, :-1], sizes[:-1] / sizes.sum()
    bits = shares * np.log2(np.maximum(shares, np.finfo(np.float64).tiny) / even_shares)
    return np.asarray(bits.max(axis=1))


def largest_scores(scores: Sequence[float] | Float64Array) -> IntArray:
    """Returns the heads with the largest scores, the largest first: a tenth of them, at most `MAX_RECEIVERS`."""
    count = max(1, min(MAX_RECEIVERS, len(scores) // 10))
    return np.argsort(-np.asarray(scores), kind="stable")[:count]
