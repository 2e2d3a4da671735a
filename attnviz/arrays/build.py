"""Makes recordings from weights, scores, or queries and keys that another library computed.

What was given is checked; the rest is computed when it is read.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import Any, final

import numpy as np

from attnviz.arrays.layers import (
    CAUSAL,
    ArrayText,
    AxisLabels,
    Labels,
    float_array,
    is_shared,
    refuse_layers_of_mask,
    refuse_nan,
    refuse_not_finite,
    rule_cells,
    texts_of,
    visible_cells,
)
from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError, option, overflow_error
from attnviz.base.machine import refuse_without_memory
from attnviz.maps.cell_maps import FactoredMaps, OnDemandMaps
from attnviz.maps.layer_maps import LayerMaps, is_long
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import shared_or_per_head
from attnviz.streaming.overview import Factors, bands_of_queries
from attnviz.text.tokens import Tokens
from attnviz.version import __version__

ROW_TOLERANCE = 1e-2  # the largest error of a row's sum; bfloat16 keeps 3 digits of each weight
LARGEST_DROPOUT = 2  # dropout of up to one half multiplies the weights that it keeps by up to this
MASKED_SCORE = -1e9  # scores up to this are masked: libraries write -1e9 and less into masked cells
LOWEST_PEAK = -1e30  # finite, in place of the −inf that is the largest score of a query that sees no key
SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)  # replaces a weight of 0, whose logarithm would be −inf
BAND_CELLS = 2**17  # weights that are checked at once: half a megabyte, which stays in the processor's cache
BLOCK_CELLS = 2**22  # cells whose scores are in memory at once while a log-sum-exp is computed
ASSUMED_CAUSAL = "Every weight above the diagonal is 0, so a causal mask is assumed; give a mask if there is another."
LOG_WEIGHTS = "The scores are logarithms of the weights: they differ from the model's scores by a constant in each row."
FIELDS = ("weights", "scores", "queries", "keys")
UNCHECKED = "These numbers come from arrays; they were not compared with a model's output."


@final
class _ArrayCells:
    """The cells of one head of given arrays: what was not given is computed when it is first read, and then kept.

    Args:
        weights: ``(queries, keys)``; ``None`` to compute them.
        scores: ``(queries, keys)``; ``None`` to compute them, or for the logarithms of given weights.
        compute: returns weights and scores, both ``(queries, keys)``; ``None`` if the weights are given.
        computed_bytes: the memory that the computed arrays take.
    """

    def __init__(
        self,
        weights: FloatArray | None = None,
        scores: FloatArray | None = None,
        compute: Callable[[], tuple[FloatArray, FloatArray]] | None = None,
        computed_bytes: int = 0,
    ) -> None:
        self.given_weights, self.given_scores, self.compute = weights, scores, compute
        self.computed_bytes = computed_bytes

    @cached_property
    def computed(self) -> tuple[FloatArray, FloatArray]:
        """The computed weights and scores, both ``(queries, keys)``."""
        assert self.compute is not None
        refuse_without_memory(
            self.computed_bytes, "the numbers of another head", f"choose fewer with {option('heads')}"
        )
        return self.compute()

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block."""
        weights = self.computed[0] if self.given_weights is None else self.given_weights
        return weights[queries, keys]

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block."""
        if self.given_scores is not None:
            return self.given_scores[queries, keys]
        if self.given_weights is None:
            return self.computed[1][queries, keys]
        logarithms = np.maximum(self.given_weights[queries, keys], np.float32(SMALLEST_WEIGHT))
        return np.log(logarithms, out=logarithms)


def _call_fields(text: ArrayText, queries: int, keys: int, labels: AxisLabels) -> dict[str, Any]:
    """Returns the fields of the maps of a text that tell what they are of."""
    query_tokens, key_tokens = labels.of_axes(queries, keys, text.array.shape)
    return {
        "layer": text.layer,
        "module": text.module,
        "heads": tuple(range(len(text.array))),
        "query_tokens": query_tokens,
        "key_tokens": key_tokens,
        "kind": "self" if query_tokens is key_tokens else "cross",
        "item": text.item,
    }


def _maps_of_weights(
    texts: list[ArrayText], scores: list[ArrayText] | None, mask: Any, labels: AxisLabels, may_change: bool
) -> tuple[list[LayerMaps], list[str]]:
    """Returns the maps of weights, and the remarks; scores that were not given are the logarithms of the weights."""
    shapes = [[(text.layer_index, text.array.shape) for text in given] for given in (texts, scores or texts)]
    if shapes[0] != shapes[1]:
        raise AttnvizError("weights and scores are of different shapes; give both of the same heads, queries and keys")
    checked_rows = [_checked_rows(text, may_change) for text in texts]
    is_causal = mask is None and all(is_zero_above for _, _, is_zero_above in checked_rows)
    maps: list[LayerMaps] = []
    for number, (text, (weights, sums, is_zero_above)) in enumerate(zip(texts, checked_rows, strict=True)):
        queries, keys = weights.shape[1:]
        visible = visible_cells(CAUSAL if is_causal else mask, weights.shape, text.layer_index)
        are_hidden_zero = isinstance(mask, str) and is_zero_above
        if mask is not None and visible is not None and not are_hidden_zero:
            hidden_weight = max(
                float(head_weights.max(where=~(visible if visible.ndim == 2 else visible[head]), initial=0))
                for head, head_weights in enumerate(weights)
            )
            if hidden_weight > ROW_TOLERANCE:
                raise AttnvizError(
                    f"{text.location}: cells that the mask hides have weights up to {hidden_weight:.3g}; "
                    "give the model's mask"
                )
        if not sums.all():  # a query that sees no key has a row of 0
            sees_key = shared_or_per_head((sums != 0)[..., None])
            every_cell = np.broadcast_to(sees_key, weights.shape[-sees_key.ndim :])
            visible = every_cell if visible is None else sees_key & visible
        head_scores = [None] * len(weights) if scores is None else float_array(scores[number].array, may_change)
        maps.append(
            OnDemandMaps(
                **_call_fields(text, queries, keys, labels),
                cells=tuple(map(_ArrayCells, weights, head_scores)),
                visible=rule_cells(queries, keys, is_causal=False) if visible is None else visible,
            )
        )
    remarks = [ASSUMED_CAUSAL] if is_causal else []
    return maps, remarks if scores is not None else [*remarks, LOG_WEIGHTS]


def _checked_rows(text: ArrayText, may_change: bool) -> tuple[FloatArray, FloatArray, bool]:
    """Returns checked weights as float32, the sum of each row, and True if all cells above the diagonal are 0.

    The weights are not copied if `is_shared`. A band of rows is copied, summed and searched while it is in the cache.
    """
    heads, queries, keys = text.array.shape
    shares_memory = is_shared(text.array, may_change)
    weights = text.array if shares_memory else np.empty(text.array.shape, dtype=np.float32)
    sums = np.empty((heads, queries), dtype=np.float32)
    smallest_weight, is_zero_above = 0.0, queries == keys > 1
    band_queries = max(BAND_CELLS // keys, 1)
    for head, head_weights in enumerate(weights):
        for start in range(0, queries, band_queries):
            rows = slice(start, start + band_queries)
            band = head_weights[rows]
            if not shares_memory:
                np.copyto(band, text.array[head, rows], casting="unsafe")
            np.einsum("qk->q", band, out=sums[head, rows])  # far within the tolerance, and faster than np.sum
            band_minimum = float(band.min())
            smallest_weight = min(smallest_weight, band_minimum)
            is_zero_above = is_zero_above and band_minimum >= 0 and _is_zero_after(band, start)

    if np.isnan(sums).any():  # of a NaN, or of infinite weights of both signs
        refuse_nan(weights, "weights", text.location)
    advice = "give them as scores if no softmax was applied yet"
    if smallest_weight < -ROW_TOLERANCE:
        raise AttnvizError(f"{text.location}: weights as low as {smallest_weight:.3g} are negative; {advice}")
    sees_key = sums != 0  # a query that sees no key, such as padding, has a row of 0
    checked_sums = sums[sees_key] if sees_key.any() else np.ones(1)  # one valid sum if there is none to check
    smallest, largest = float(checked_sums.min()), float(checked_sums.max())
    if not (smallest >= 1 - ROW_TOLERANCE and largest <= 1 + ROW_TOLERANCE):
        extremes = f"{smallest:.3g} at least and {largest:.3g} at most"
        if largest <= LARGEST_DROPOUT:
            advice = "give the weights before dropout, as after model.eval(), or divide each row by its sum"
        raise AttnvizError(f"{text.location}: rows of weights sum to {extremes}, not to 1; {advice}")
    return weights, sums, is_zero_above


def _is_zero_after(band: FloatArray, start: int) -> bool:
    """True if each row of a band, whose first row is ``start``, is 0 after its own key."""
    stop = start + len(band)
    if band[0, start + 1 :].any() or np.einsum("qk->", band[:, stop:]):
        return False
    with np.errstate(invalid="ignore"):  # 0 times an infinite weight, which is refused later by its row's sum
        return bool(np.einsum("qk,qk->", band[:, start:stop], _later_keys(len(band))) == 0)


@cache
def _later_keys(count: int) -> FloatArray:
    """Returns 1 where a key is later than the query, else 0, ``(count, count)``."""
    return np.triu(np.ones((count, count), dtype=np.float32), 1)


def _maps_of_scores(texts: list[ArrayText], mask: Any, labels: AxisLabels, may_change: bool) -> list[LayerMaps]:
    """Returns the maps of scores: the weights of a head are their softmax, computed when the head is first read."""
    maps: list[LayerMaps] = []
    for text in texts:
        scores = float_array(text.array, may_change)
        queries, keys = scores.shape[1:]
        visible = visible_cells(mask, scores.shape, text.layer_index)
        largest = scores.max()
        if np.isnan(largest):
            refuse_nan(scores, "scores", text.location)
        if largest == np.inf:
            raise AttnvizError(f"{text.location}: scores hold +inf, whose softmax is undefined; give finite numbers")
        if scores.min() <= MASKED_SCORE:
            cells = shared_or_per_head([head_scores > MASKED_SCORE for head_scores in scores])
            visible = cells if visible is None else cells & visible
        if visible is None:
            visible = rule_cells(queries, keys, is_causal=False)
        if visible.ndim == 3:
            visible = shared_or_per_head(visible)
        visible_to_head = visible if visible.ndim == 3 else [visible] * len(scores)
        heads = tuple(
            _ArrayCells(None, head_scores, partial(_softmax_cells, head_scores, head_visible), head_scores.nbytes)
            for head_scores, head_visible in zip(scores, visible_to_head, strict=True)
        )
        maps.append(OnDemandMaps(**_call_fields(text, queries, keys, labels), cells=heads, visible=visible))
    return maps


def _softmax_cells(scores: FloatArray, visible: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Returns the weights of scores, computed in float64, and the scores; a query without visible keys has 0."""
    weights = np.empty(scores.shape, dtype=np.float32)
    for rows in bands_of_queries(slice(0, len(scores)), scores.shape[1], BLOCK_CELLS):
        visible_scores = np.where(visible[rows], scores[rows], -np.inf).astype(np.float64)
        visible_scores -= np.maximum(visible_scores.max(axis=1, keepdims=True), LOWEST_PEAK)
        powers = np.exp(visible_scores, out=visible_scores)
        weights[rows] = powers / np.maximum(powers.sum(axis=1, keepdims=True), SMALLEST_WEIGHT)
    return weights, scores


def _maps_of_products(
    queries: list[ArrayText],
    keys: list[ArrayText],
    mask: Any,
    scale: float | None,
    labels: AxisLabels,
    may_change: bool,
) -> list[LayerMaps]:
    """Returns the maps of queries and keys: factors of long texts; heads of others are computed when they are read."""
    texts_of_queries, texts_of_keys = (Counter(text.layer_index for text in given) for given in (queries, keys))
    if len(texts_of_queries) != len(texts_of_keys):
        raise AttnvizError(
            f"queries have {len(texts_of_queries)} layers and keys {len(texts_of_keys)}; give the same number of layers"
        )
    for index, count in texts_of_queries.items():
        if count != texts_of_keys[index]:
            raise AttnvizError(f"queries have {count} texts and keys {texts_of_keys[index]}; give the same texts")
    is_causal = isinstance(mask, str) and mask == CAUSAL
    maps: list[LayerMaps] = []
    for text, key_text in zip(queries, keys, strict=True):
        (heads, query_count, features), (key_heads, key_count, key_features) = text.array.shape, key_text.array.shape
        if heads % key_heads or features != key_features:
            raise AttnvizError(
                f"queries of shape {text.array.shape} do not fit keys of shape {key_text.array.shape}; "
                "give the same features, and a number of key heads that divides the number of heads"
            )
        fields = _call_fields(text, query_count, key_count, labels)
        query_vectors, key_vectors = float_array(text.array, may_change), float_array(key_text.array, may_change)
        refuse_not_finite(query_vectors, "queries", f"layer {text.layer}")
        refuse_not_finite(key_vectors, "keys", f"layer {text.layer}")
        explicit = None if is_causal else visible_cells(mask, (heads, query_count, key_count), text.layer_index)
        if explicit is not None and explicit.ndim == 3:
            raise AttnvizError(
                "a mask that differs by head needs weights or scores; give these instead of queries and keys"
            )
        rule = Mask(causal=is_causal, offset=key_count - query_count if is_causal else 0, explicit=explicit)
        factor = features**-0.5 if scale is None else float(scale)
        key_head_of = tuple(head * key_heads // heads for head in range(heads))  # a run of heads shares a key head
        if is_long(query_count, key_count):
            maps.append(FactoredMaps(**fields, factors=_factors(query_vectors, key_vectors, key_head_of, factor, rule)))
            continue
        computed_bytes = 2 * query_count * key_count * query_vectors.itemsize  # weights and scores
        cells = tuple(
            _ArrayCells(
                compute=partial(
                    _product_cells, query_vectors[head : head + 1], key_vectors[key_head : key_head + 1], factor, rule
                ),
                computed_bytes=computed_bytes,
            )
            for head, key_head in enumerate(key_head_of)
        )
        visible = rule_cells(query_count, key_count, is_causal=is_causal) if explicit is None else explicit
        shared = key_head_of if key_heads < heads else None
        maps.append(OnDemandMaps(**fields, scale=factor, cells=cells, visible=visible, key_heads=shared))
    return maps


def _product_cells(queries: FloatArray, keys: FloatArray, scale: float, mask: Mask) -> tuple[FloatArray, FloatArray]:
    """Returns the weights and the scores of one head, ``(queries, keys)`` each, as factored maps compute them."""
    query_count, key_count = queries.shape[1], keys.shape[1]
    maps = FactoredMaps(
        layer=0,
        module="",
        heads=(0,),
        query_tokens=Tokens.numbered(query_count),
        key_tokens=Tokens.numbered(key_count),
        factors=_factors(queries, keys, (0,), scale, mask),
    )
    window = maps.window((0,), slice(0, query_count), slice(0, key_count))
    return window.weights[0], window.scores[0]


def _factors(queries: FloatArray, keys: FloatArray, key_heads: tuple[int, ...], scale: float, mask: Mask) -> Factors:
    """Returns the factors of some heads; log-sum-exps are computed in float64, in blocks of queries."""
    query_count, key_count = queries.shape[1], keys.shape[1]
    block_queries = max(BLOCK_CELLS // key_count, 1)
    logsumexp = np.empty((len(queries), query_count), dtype=np.float32)
    for head, key_head in enumerate(key_heads):
        transposed_keys = keys[key_head].T.astype(np.float64)
        for start in range(0, query_count, block_queries):
            rows = slice(start, min(start + block_queries, query_count))
            scores = (queries[head, rows].astype(np.float64) * scale) @ transposed_keys
            scores[~mask.visible(rows, slice(0, key_count))] = -np.inf
            peaks = np.maximum(scores.max(axis=1, keepdims=True), LOWEST_PEAK)  # finite where a query sees no key
            with np.errstate(divide="ignore", over="ignore"):  # log(0) is the −inf of a query that sees no key
                logsumexp[head, rows] = np.log(np.exp(scores - peaks).sum(axis=1)) + peaks[:, 0]
    if np.isposinf(logsumexp).any():
        raise overflow_error("scores of these queries and keys", "float32")
    return Factors(queries=queries, keys=keys, key_heads=key_heads, scale=scale, logsumexp=logsumexp, mask=mask)


def from_arrays(
    *,
    weights: Any = None,
    scores: Any = None,
    queries: Any = None,
    keys: Any = None,
    mask: Any = None,
    scale: float | None = None,
    tokens: Labels | Tokens | None = None,
    query_tokens: Labels | Tokens | None = None,
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
        tokens: a label for each key, and for each query if there are as many queries; or `Tokens`.
        query_tokens: the same of the queries, if queries and keys are different tokens.
        model: the name of the model in captions.

    Returns:
        A recording of the given numbers; a remark says that they were not compared with a model's output.

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
    """Returns a recording of arrays by name: weights, scores, queries, keys; some may be absent."""
    given = {name: arrays[name] for name in FIELDS if arrays.get(name) is not None}
    if ("queries" in given) != ("keys" in given):
        raise AttnvizError("queries and keys belong together; give both, or weights or scores instead")
    if "queries" in given and len(given) > 2:
        raise AttnvizError("weights follow from queries and keys; give either queries and keys, or weights and scores")
    if not given:
        raise AttnvizError("no arrays were given; give weights, scores, or queries and keys")
    texts = {name: texts_of(array, name) for name, array in given.items()}
    refuse_layers_of_mask(mask, len({text.layer_index for text in next(iter(texts.values()))}))
    maps, remarks = list[LayerMaps](), list[str]()
    if "queries" in texts:
        maps = _maps_of_products(texts["queries"], texts["keys"], mask, scale, axis_labels, may_change)
    elif "weights" in texts:
        maps, remarks = _maps_of_weights(texts["weights"], texts.get("scores"), mask, axis_labels, may_change)
    else:
        maps = _maps_of_scores(texts["scores"], mask, axis_labels, may_change)
    return Recording(maps=tuple(maps), model=model, version=__version__, remarks=(*remarks, UNCHECKED))
