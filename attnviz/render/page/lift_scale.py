"""Computes the end of the lift scale for all heads, so that a page can start without reading every maximum."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.packing import FirstLook, PackedHead
from attnviz.streaming.overview import block_edges

QUANTILE = 0.99  # share of the largest weights of blocks that the colours cover
MIN_REACH = 1.05


def lift_highs(
    heads: Sequence[PackedHead], described: Sequence[dict[str, Any]], counts: list[Float64Array]
) -> list[float]:
    """Returns the lift at which the colours end, for each recording.

    Args:
        heads: the packed heads.
        described: the page's description of each head.
        counts: numbers of visible keys, ``(queries,)`` each; ``described`` has the index of each head's.
    """
    return [
        _high(
            _levels(head.sides[side].look, about["thumbnail"], counts[about["seen"][side]])
            for head, about in zip(heads, described, strict=True)
        )
        for side in range(len(heads[0].sides))
    ]


def _high(levels: Iterable[Float64Array]) -> float:
    every = np.concatenate(list(levels))
    rank = int((len(every) - 1) * QUANTILE)
    return max(MIN_REACH, float(np.partition(every, rank)[rank])) if len(every) else MIN_REACH


def _levels(look: FirstLook, shape: tuple[int, int], counts: Float64Array) -> Float64Array:
    """Returns the lift of the largest weight of each block, for queries that see several keys."""
    rows, columns = shape
    edges, largest = block_edges(len(counts), rows), PRECISIONS[-1].largest
    seen = np.add.reduceat(counts, edges[:-1]) / np.diff(edges)
    codes = np.frombuffer(look.thumbnail, np.uint8)[rows * columns :].reshape(rows, columns)[seen > 1]
    weights = look.thumbnail_highs[1] * (np.minimum(codes, largest) / largest) ** 2
    return np.asarray((weights * seen[seen > 1, None])[codes <= largest])
