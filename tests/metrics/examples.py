"""Maps with given weights, whose metrics are worked out by hand."""

from typing import Any

import numpy as np

from attnviz.maps.dense import DenseMaps
from attnviz.text.tokens import Tokens


def maps_of(weights: np.ndarray, tokens: Tokens, visible: np.ndarray | None = None, **given: Any) -> DenseMaps:
    """Maps with these weights, ``(heads, queries, keys)``, and scores whose softmax they are."""
    seen = np.ones(weights.shape[1:], dtype=bool) if visible is None else visible
    settings: dict[str, Any] = {"query_tokens": tokens, "key_tokens": tokens} | given
    return DenseMaps(
        layer=0,
        module="m",
        heads=tuple(range(len(weights))),
        scores=np.log(np.maximum(weights, 1e-30)).astype(np.float32),
        weights=weights.astype(np.float32),
        visible=seen,
        **settings,
    )
