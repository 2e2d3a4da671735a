"""Makes a recording from weights, scores, or queries and keys that another library computed."""

from collections.abc import Mapping
from typing import Any

from attnviz.arrays.cells import maps_of
from attnviz.arrays.layers import AxisLabels, Labels, refuse_layers_of_mask, texts_of
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.version import __version__

FIELDS = ("weights", "scores", "queries", "keys")
UNCHECKED = "These numbers come from arrays; they were not compared with a model's output."


def from_arrays(
    *,
    weights: Any = None,
    scores: Any = None,
    queries: Any = None,
    keys: Any = None,
    mask: Any = None,
    scale: float | None = None,
    tokens: Labels | None = None,
    query_tokens: Labels | None = None,
    model: str = "arrays",
) -> Recording:
    """Returns a recording of weights, of scores, of both, or of queries and keys.

    An array may be of numpy, torch, JAX, MLX, CuPy or any library with DLPack or ``__array__``. Its shape is
    ``(heads, queries, keys)``, ``(queries, keys)`` for one head, or ``(layers, heads, queries, keys)``. A list, tuple
    or mapping holds one array for each layer; these may differ in their number of heads, and one with four axes is
    ``(texts, heads, queries, keys)``. An array that may change is copied; a read-only one of numpy and float32 is not.

    Args:
        weights: after the softmax; each row sums to 1 over the keys, or to 0 where a query sees no key.
        scores: before the softmax; −inf, or −1e9 and less, where a cell is masked.
        queries: ``(heads, queries, features)``, with layers and texts as above.
        keys: ``(key heads, keys, features)``; in grouped-query attention a run of heads shares a key head.
        mask: ``"causal"``, or true where a query may see a key: ``(queries, keys)`` or anything that broadcasts to the
            maps of a layer. Without a mask, weights that are all 0 above the diagonal count as causal.
        scale: the factor of q·k; ``None`` for 1/√features.
        tokens: a label for each key, and for each query if there are as many queries.
        query_tokens: a label for each query, if queries and keys are different tokens.
        model: the name of the model in captions.

    Returns:
        A recording of the given numbers; a remark says that they were not compared with a model's output.

    Raises:
        AttnvizError: if no arrays are given, queries or keys are given without the other or with weights or scores, a
            shape does not fit, a number is NaN or a query or key infinite (scores beside weights are not checked), a
            weight is negative, a row does not sum to 1, or the number of labels differs.

    Example:
        >>> import attnviz, numpy
        >>> recording = attnviz.from_arrays(weights=numpy.full((2, 3, 3), 1 / 3), tokens=["a", "b", "c"])
        >>> recording.maps[0].heads, recording.maps[0].key_tokens.labels
        ((0, 1), ('a', 'b', 'c'))
    """
    return recording_of_arrays(
        {"weights": weights, "scores": scores, "queries": queries, "keys": keys},
        mask=mask,
        scale=scale,
        axis_labels=AxisLabels(tokens, query_tokens),
        model=model,
    )


def recording_of_arrays(
    arrays: Mapping[str, Any],
    *,
    mask: Any = None,
    scale: float | None = None,
    axis_labels: AxisLabels,
    model: str,
    may_change: bool = True,
) -> Recording:
    """Returns a recording of arrays by name: weights, scores, queries, keys; some may be absent.

    Raises:
        AttnvizError: as `from_arrays` does.
    """
    given = {name: arrays[name] for name in FIELDS if arrays.get(name) is not None}
    if ("queries" in given) != ("keys" in given):
        raise AttnvizError("queries and keys belong together; give both, or weights or scores instead")
    if "queries" in given and len(given) > 2:
        raise AttnvizError("weights follow from queries and keys; give either queries and keys, or weights and scores")
    if not given:
        raise AttnvizError("no arrays were given; give weights, scores, or queries and keys")
    texts = {name: texts_of(array, name) for name, array in given.items()}
    refuse_layers_of_mask(mask, len({text.layer_index for text in next(iter(texts.values()))}))
    maps, remarks = maps_of(texts, mask, scale, axis_labels, may_change)
    return Recording(maps=tuple(maps), model=model, version=__version__, remarks=(*remarks, UNCHECKED))
