"""Makes a recording from weights, scores, or queries and keys that another library computed."""

from typing import Any

from attnviz.arrays.cells import maps_of_cells
from attnviz.arrays.factors import maps_of_factors
from attnviz.arrays.layers import AxisLabels, Labels
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.version import __version__

UNCHECKED = "These numbers were given as arrays: how close they are to a model's own is not known."


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
    """Makes a recording from weights, from scores, from both, or from queries and keys.

    An array is of numpy, torch, JAX, MLX, CuPy or any library with DLPack or ``__array__``, of shape
    ``(heads, queries, keys)``; ``(queries, keys)`` is one head, ``(layers, heads, queries, keys)`` several layers. A
    list, tuple or mapping has an array for each layer, each with its own number of heads; an array of four axes in it
    is a batch of texts.

    Args:
        weights: after the softmax; each row sums to 1 over the keys, or to 0 where a query sees no key.
        scores: before the softmax; −inf, or −1e9 and less, where a cell is masked.
        queries: ``(heads, queries, features)``, likewise in layers.
        keys: ``(key heads, keys, features)``; fewer key heads than heads are shared by runs of heads.
        mask: ``"causal"``, or true where a query may see a key: ``(queries, keys)`` or anything that broadcasts to the
            maps of a layer. Without one, weights that are 0 above the diagonal are taken as causal.
        scale: what q·k is multiplied by; 1/√features where it is not given.
        tokens: a label for each key; for each query too, where there are as many.
        query_tokens: a label for each query, where those are others.
        model: what captions call the model.

    Returns:
        A recording whose maps are as exact as what was given; that they are what a model computed is not known.

    Raises:
        AttnvizError: for a shape that is none of these, NaN, rows that do not sum to 1, or labels of another number.

    Example:
        >>> import attnviz, numpy
        >>> recording = attnviz.from_arrays(weights=numpy.full((2, 3, 3), 1 / 3), tokens=["a", "b", "c"])
        >>> recording.maps[0].heads, recording.maps[0].key_tokens.labels
        ((0, 1), ('a', 'b', 'c'))
    """
    if (queries is None) != (keys is None):
        raise AttnvizError("queries and keys belong together; give both, or weights or scores instead")
    if queries is not None and (weights is not None or scores is not None):
        raise AttnvizError("weights follow from queries and keys; give either queries and keys, or weights and scores")
    if queries is None and weights is None and scores is None:
        raise AttnvizError("no arrays were given; give weights, scores, or queries and keys")
    named = AxisLabels(tokens, query_tokens)
    remarks: list[str] = []
    if queries is not None:
        maps = list(maps_of_factors(queries, keys, mask, scale, named))
    else:
        maps, remarks = maps_of_cells(weights, scores, mask, named)
    return Recording(maps=tuple(maps), model=model, version=__version__, remarks=(*remarks, UNCHECKED))
