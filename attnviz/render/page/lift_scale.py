"""Computes where the lift scale of all heads ends, so that a page can start before it has read every maximum."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.packing import FirstLook, PackedHead
from attnviz.streaming.overview import block_edges

QUANTILE = 0.99  # share of blocks whose lifts the colours cover
MIN_REACH = 1.05  # the least lift at which the colours end


def lift_highs(
    heads: Sequence[PackedHead], descriptions: Sequence[dict[str, Any]], counts: list[Float64Array]
) -> list[float]:
    """Returns the lift at which the colours end, one for each recording.

    A lift is a weight times the number of keys that its query sees.

    Args:
        heads: the packed heads.
        descriptions: the JSON values of each head; ``seen`` are the indices of its counts, one for each recording.
        counts: the numbers of visible keys, arrays of ``(queries,)``.
    """
    ends = []
    for side_index in range(len(heads[0].sides)):
        lifts = (
            _block_lifts(head.sides[side_index].look, description["thumbnail"], counts[description["seen"][side_index]])
            for head, description in zip(heads, descriptions, strict=True)
        )
        ends.append(_end_of_scale(lifts))
    return ends


def _end_of_scale(lifts: Iterable[Float64Array]) -> float:
    """Returns the lift at which the colours end: the quantile `QUANTILE` of the lifts, but at least `MIN_REACH`."""
    all_lifts = np.concatenate(list(lifts))
    if not len(all_lifts):
        return MIN_REACH
    rank = int((len(all_lifts) - 1) * QUANTILE)
    return max(MIN_REACH, float(np.partition(all_lifts, rank)[rank]))


def _block_lifts(look: FirstLook, shape: tuple[int, int], counts: Float64Array) -> Float64Array:
    """Returns the lift of the largest weight of each visible block, for queries that see several keys, ``(blocks,)``.

    A lift is a weight times the mean number of keys that the queries of its block see.

    Args:
        look: the first look at a head, whose thumbnail has the blocks as codes.
        shape: the numbers of rows and columns of the thumbnail.
        counts: the number of keys that each query sees, ``(queries,)``.
    """
    rows, columns = shape
    edges, largest_code = block_edges(len(counts), rows), PRECISIONS[-1].largest
    mean_visible_key_counts = np.add.reduceat(counts, edges[:-1]) / np.diff(edges)
    maxima = np.frombuffer(look.thumbnail, np.uint8)[rows * columns :].reshape(rows, columns)  # they follow the means
    sees_several_keys = mean_visible_key_counts > 1
    codes = maxima[sees_several_keys]
    # Codes are on a square-root scale; those above the largest code stand for masked cells and NaN.
    weights = look.thumbnail_highs[1] * (np.minimum(codes, largest_code) / largest_code) ** 2
    return np.asarray((weights * mean_visible_key_counts[sees_several_keys, None])[codes <= largest_code])
