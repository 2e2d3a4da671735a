"""Rounds factors to bfloat16, which halves their memory, and measures the error of the weights."""

from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import CellMaps
from attnviz.maps.recording import Recording

SAMPLED_QUERIES = 32  # queries over which the error of the weights is measured


def halve(recording: Recording) -> Recording:
    """Returns the recording with queries and keys in bfloat16, and a remark on the largest error of a sampled weight.

    Maps that are not kept as factors stay unchanged.

    Raises:
        AttnvizError: if no maps of the recording are kept as factors.
    """
    factored_maps = [maps for maps in recording.maps if isinstance(maps, FactoredMaps)]
    if not factored_maps:
        raise AttnvizError(f"{option('half')} needs maps that are kept as factors; use {option('dense', value=False)}")
    rounded_maps = {id(maps): maps.rounded_to_bfloat16() for maps in factored_maps}
    largest_error = max(largest_difference(rounded_maps[id(maps)], maps) for maps in factored_maps)
    query_count = min(SAMPLED_QUERIES, max(len(maps.query_tokens) for maps in factored_maps))
    error_sentence = f"weights change by at most {largest_error:.1g} in {query_count} sampled queries."
    remark = f"Queries and keys are stored in bfloat16: {error_sentence}"
    maps = tuple(rounded_maps.get(id(maps), maps) for maps in recording.maps)
    return replace(recording, maps=maps, remarks=(*recording.remarks, remark))


def largest_difference(maps: CellMaps, exact_maps: CellMaps) -> float:
    """Returns the largest difference between weights of two maps, over at most ``SAMPLED_QUERIES`` queries."""
    largest = 0.0
    for query in np.linspace(0, len(maps.query_tokens) - 1, SAMPLED_QUERIES).astype(int).tolist():
        block = (maps.heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
        difference = np.abs(maps.window(*block).weights - exact_maps.window(*block).weights)
        largest = max(largest, float(difference.max()))
    return largest
