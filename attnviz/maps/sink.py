"""Adds a sink to maps, as a key without a token, and leaves it out again.

A learned or constant score in the softmax takes a share of each row (gpt-oss; Miller 2023, "softmax1"). It has no
value, so that its contribution is 0. As the last key it belongs to the map: rows sum to 1 with it, no token changes its
number, and every picture, table and file has a column of its own for it.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray
from attnviz.maps.dense import DenseMaps
from attnviz.maps.derived import SourceMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, Window
from attnviz.streaming.overview import ScoreFactors
from attnviz.text.tokens import keys_without_token

AnyFactors = TypeVar("AnyFactors", bound=ScoreFactors)


def with_sink(maps: LayerMaps, scores: FloatArray) -> LayerMaps:
    """Returns the maps with a sink as their last key; pooled maps, whose cells are blocks, are returned unchanged.

    Args:
        scores: ``(heads, queries)``, the score of the sink in the softmax of each row; −inf for a row without it, and
            NaN if it is unknown. Scores of factored maps are finite.
    """
    if not isinstance(maps, DenseMaps | FactoredMaps):
        return maps
    heads, _ = scores.shape
    key_tokens = maps.key_tokens.with_sink
    value_norms = None if maps.value_norms is None else _with_column(maps.value_norms, 0)
    if isinstance(maps, FactoredMaps):
        factors = _factors_with_sink(maps.factors, scores)
        mask, bias = factors.mask, factors.bias
        mask = replace(
            mask,
            tail=len(maps.key_tokens),
            padding=None if mask.padding is None else _with_column(mask.padding, True),
            explicit=None if mask.explicit is None else _with_column(mask.explicit, True),
        )
        bias = replace(
            bias,
            by_key=None if bias.by_key is None else _with_column(bias.by_key, 0),
            explicit=None if bias.explicit is None else _with_column(bias.explicit, 0),
        )
        factors = replace(factors, mask=mask, bias=bias, sink=None)
        return replace(maps, key_tokens=key_tokens, value_norms=value_norms, factors=factors)
    has_sink = ~np.isneginf(scores)
    shares = np.clip(1 - maps.weights.sum(axis=-1, dtype=np.float64), 0, 1) * has_sink
    visible = maps.visible
    if (has_sink == has_sink[0]).all():
        has_sink = has_sink[0]
    else:
        visible = np.broadcast_to(visible, (heads, *visible.shape[-2:]))
    return replace(
        maps,
        key_tokens=key_tokens,
        value_norms=value_norms,
        scores=_with_column(maps.scores, scores),
        weights=_with_column(maps.weights, shares.astype(np.float32)),
        visible=_with_column(visible, has_sink),
        factors=None if maps.factors is None else _factors_with_sink(maps.factors, scores),
    )


def without_sink(maps: CellMaps) -> CellMaps:
    """Returns the maps over their tokens alone, whose rows lack the share of a sink; unchanged if they have none.

    Other keys without a token, which a module adds, are left out, too.
    """
    count = keys_without_token(maps.key_tokens)
    if not count:
        return maps
    key_tokens = maps.key_tokens.first(len(maps.key_tokens) - count)
    value_norms = None if maps.value_norms is None else maps.value_norms[..., :-count]
    if not isinstance(maps, FactoredMaps) or maps.factors.mask.tail is None:
        fields = maps.shared_fields() | {"key_tokens": key_tokens, "value_norms": value_norms}
        return TokenMaps(**fields, source=maps).dense_if_small()
    factors, mask, bias = maps.factors, maps.factors.mask, maps.factors.bias
    queries = np.asarray(factors.queries[:])
    mask = replace(
        mask,
        tail=None,
        padding=None if mask.padding is None else mask.padding[:-1],
        explicit=None if mask.explicit is None else mask.explicit[:, :-1],
    )
    bias = replace(
        bias,
        by_key=None if bias.by_key is None else bias.by_key[:, :-1],
        explicit=None if bias.explicit is None else bias.explicit[..., :-1],
    )
    factors = replace(
        factors,
        queries=queries[..., :-1],
        keys=np.asarray(factors.keys[:, :-1])[..., :-1],
        mask=mask,
        bias=bias,
        sink=queries[:, 0, -1] * np.float32(factors.scale),
    )
    return replace(maps, key_tokens=key_tokens, value_norms=value_norms, factors=factors)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TokenMaps(SourceMaps):
    """The maps of ``source`` without their last keys, which have no token."""

    source: CellMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block of the source, which has the same keys before them."""
        return self.source.window(heads, queries, keys)


def _factors_with_sink(factors: AnyFactors, scores: FloatArray) -> AnyFactors:
    """Returns factors whose last key is the sink: one more feature, 0 for all other keys, gives its score."""
    queries = np.concatenate([np.asarray(factors.queries[:]), scores[..., None] / np.float32(factors.scale)], axis=-1)
    keys = np.pad(np.asarray(factors.keys[:]), ((0, 0), (0, 1), (0, 1)))
    keys[:, -1, -1] = 1
    return replace(factors, queries=queries, keys=keys)


def _with_column(cells: NDArray[Any], value: Any) -> NDArray[Any]:
    """Returns cells ``(..., keys)`` with a last column of this value, or of these values, ``(...)``."""
    column = np.broadcast_to(np.asarray(value, dtype=cells.dtype), cells.shape[:-1])
    return np.concatenate([cells, column[..., None]], axis=-1)
