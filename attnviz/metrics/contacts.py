"""Measures how well a head's attention finds known pairs of tokens, such as the contacts of a protein's residues."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.base.reading import read_text
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure

PAIRS_SUFFIX = ".pairs"
LEAST_SEPARATION = 6  # tokens from one of a pair to the other; nearer ones are contacts in any fold (Rao et al. 2020)
MAX_TOKENS = 4096  # whose pairs are ranked; 8 million
CONTACTS = Measure("contacts", "contacts", "share", "share of the strongest pairs that the reference has")
CHANCE = Measure("by-chance", "by chance", "share", "the same share of random pairs that are as far apart")
RANK = Measure(
    "pair-rank", "pair rank", "", "median rank of the reference's pairs among all pairs", smallest_first=True
)


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """Known pairs of tokens, ``(pairs, 2)``: numbers from 1, which special tokens do not have."""

    numbers: IntArray

    def among(self, tokens: int) -> IntArray:
        """Returns the indices of the pairs that are far enough apart, the smaller first; refuses unknown tokens."""
        if self.numbers.max() > tokens:
            raise AttnvizError(f"the reference has a pair with token {self.numbers.max()}, and there are {tokens}")
        pairs = np.unique(np.sort(self.numbers, axis=1), axis=0) - 1
        far_pairs: IntArray = pairs[pairs[:, 1] - pairs[:, 0] >= LEAST_SEPARATION]
        if not len(far_pairs):
            raise AttnvizError(
                f"no pair of the reference is {LEAST_SEPARATION} tokens apart or more; give some that are"
            )
        return far_pairs


def read_pairs(path: Path) -> KnownPairs:
    """Returns the pairs of a file: two numbers of tokens on each line, from 1, without special tokens."""
    pairs = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not all(word.isdecimal() and 0 < int(word) <= MAX_TOKENS for word in words):
            raise AttnvizError(
                f"{str(path)!r}, line {number}: {line[:40]!r} is no pair; give two numbers from 1 to {MAX_TOKENS:,}, "
                "such as 22 96"
            )
        pairs.append((int(words[0]), int(words[1])))
    if not pairs:
        raise AttnvizError(f"{str(path)!r} has no pairs; give two numbers of tokens on each line, such as 22 96")
    return KnownPairs(np.array(pairs, dtype=np.int64))


def contact_scores(heads: Sequence[tuple[LayerMaps, int]]) -> Float64Array:
    """Returns how strongly each pair of tokens is connected, ``(tokens, tokens)``, without special tokens.

    The score is a_ij − a_i a_j / a: a_ij is the mean attention of the heads in both directions, a_i its sum over a row,
    and a that over all (average product correction: Dunn et al. 2008, of attention Rao et al. 2020).
    """
    tokens = heads[0][0].query_tokens
    if any(maps.query_tokens is not tokens or maps.key_tokens is not tokens for maps, _ in heads):
        raise AttnvizError("contacts are pairs of one sequence's tokens; choose heads of self-attention over one text")
    known = np.flatnonzero(~tokens.special)
    if not 0 < len(known) <= MAX_TOKENS:
        raise AttnvizError(f"contacts of {len(known):,} tokens cannot be ranked; give 1 to {MAX_TOKENS:,}")
    everything = slice(0, len(tokens))
    both: Float64Array = np.zeros((len(known), len(known)))
    for maps, head in heads:
        weights = (
            cell_maps(maps).window((head,), everything, everything).weights[0][np.ix_(known, known)].astype(np.float64)
        )
        both += (weights + weights.T) / len(heads)
    sums = both.sum(axis=0)
    return np.asarray(both - np.outer(sums, sums) / sums.sum())


def contacts_frame(heads: Sequence[tuple[LayerMaps, int]], known: KnownPairs) -> HeadFrame:
    """Returns a table of how well each head finds known pairs: share, share by chance, and median rank.

    The strongest pairs are as many as tokens, or as the reference has, if it has fewer. By chance, each of them is
    drawn among the pairs of its distance.
    """
    rows = []
    for maps, head in heads:
        scores = contact_scores([(maps, head)])
        first, second = np.triu_indices(len(scores), LEAST_SEPARATION)
        pairs = known.among(len(scores))
        is_known = np.zeros(scores.shape, dtype=bool)
        is_known[tuple(pairs.T)] = True
        is_known = is_known[first, second]
        order = np.argsort(-scores[first, second], kind="stable")
        strongest = order[: min(len(pairs), len(scores))]
        distances = second - first
        shares = np.bincount(distances, is_known) / np.maximum(np.bincount(distances), 1)
        ranks = np.flatnonzero(is_known[order]) + 1
        rows.append((is_known[strongest].mean(), shares[distances[strongest]].mean(), np.median(ranks)))
    return HeadFrame(
        rows=tuple(HeadRow.of(maps, head) for maps, head in heads),
        measures=(CONTACTS, CHANCE, RANK),
        values=np.array(rows).reshape(-1, 3),
    )
