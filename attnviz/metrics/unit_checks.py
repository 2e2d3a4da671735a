"""Measures the strongest tokens of units, and their scores calibrated by a question without content."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.maps.layer_maps import CellMaps

STRONGEST_TOKENS = 8
DEVIATIONS = 2.0  # below the mean, from which on a token's calibrated score is left out


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitChecks:
    """The weight of an answer on each unit before it, and what the answer loses without the unit.

    Attributes:
        by: the name of the units.
        heads: the heads as ``layer.head``, over which numbers are means.
        last: the label of the answer.
        units: the labels of the units before it.
        tokens: ``(units,)``, the number of tokens of each, without the sink.
        shares: ``(units,)``, the weight of the answer's rows on each.
        lifts: ``(units,)``, each share divided by what uniform weights would give.
        strongest: ``(units,)``, the sum of the 8 largest weights of a row on tokens of the unit, mean over the rows.
        calibrated: ``(units,)``, the weight of the question's rows less that of a question without content (QRHead);
            NaN after the question; ``None`` without a question.
        reversed: ``(units,)``, the share if the units are read in the reverse order; ``None`` if they have a fixed one.
        lost: ``(units,)``, what the answer's log-probability loses if no later token sees the unit; NaN if not asked.
        log_probability: of the answer, in nats, with all units.
        written: the number of tokens of the answer.
    """

    by: str
    heads: tuple[str, ...]
    last: str
    units: tuple[str, ...]
    tokens: IntArray
    shares: Float64Array
    lifts: Float64Array
    strongest: Float64Array
    calibrated: Float64Array | None
    reversed: Float64Array | None
    lost: Float64Array
    log_probability: float
    written: int


def strongest_sum(maps: CellMaps, head: int, queries: IntArray, keys: IntArray) -> float:
    """Returns the sum of a row's `STRONGEST_TOKENS` largest weights on some keys, as a mean over rows.

    Source: the average of the top K of AttnTrace.
    """
    rows, columns = slice(int(queries[0]), int(queries[-1]) + 1), slice(int(keys[0]), int(keys[-1]) + 1)
    weights = maps.window((head,), rows, columns).weights[0][np.ix_(queries - rows.start, keys - columns.start)]
    largest_weights = np.sort(weights, axis=1)[:, -STRONGEST_TOKENS:]
    return float(largest_weights.sum(axis=1, dtype=np.float64).mean())


def question_scores(heads: Sequence[tuple[CellMaps, int]], question: IntArray) -> Float64Array:
    """Returns each key's mean weight over the rows of a question, summed over heads, ``(keys,)``."""
    keys = len(heads[0][0].key_tokens)
    span, scores = slice(int(question[0]), int(question[-1]) + 1), np.zeros(keys)
    for maps, head in heads:
        rows = maps.window((head,), span, slice(0, keys)).weights[0][question - span.start]
        scores += rows.mean(axis=0, dtype=np.float64)
    return scores


def calibrated_score(scores: Float64Array, content_free_scores: Float64Array, keys: IntArray) -> float:
    """Returns the calibrated score of a unit by QRHead's formula (Zhang et al. 2025).

    The scores under a question without content are subtracted from the tokens' scores. Differences more than two
    standard deviations below the unit's mean are left out, and the others are summed. The score of a unit of one token
    is 0, since it has no standard deviation.

    Args:
        scores: ``(keys,)``, as `question_scores` returns them.
    """
    differences = scores[keys] - content_free_scores[keys]
    deviation = differences.std(ddof=1) if len(keys) > 1 else np.nan
    return float(differences[differences > differences.mean() - DEVIATIONS * deviation].sum())
