"""Maps with given weights, whose metrics are worked out by hand."""

from typing import Any

import numpy as np

from attnviz.maps.cell_maps import DenseMaps
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


def refuse_impossible_shares(values: dict[str, float], room: float = 1e-5) -> None:
    """Fails if a part of the rows is larger than the whole, or disjoint parts are more than 1 together."""
    known = {name: 0.0 if np.isnan(value) else value for name, value in values.items()}
    assert known["first"] <= known["sink"] + room
    assert known["sink"] <= known["peak"] + room
    assert max(known["self"], known["first"]) <= known["peak"] + room
    assert known["self"] <= (known["locality"] if known["locality"] else 1) + room
    assert (
        max(known["locality"], known["special"], known["block"], known["stripe"], known["previous"], known["next"])
        <= 1 + room
    )
