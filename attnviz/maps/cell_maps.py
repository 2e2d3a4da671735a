"""Represents maps whose single cells are known: whole maps, and those of long texts as queries, keys and rules."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, HalfArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.layer_maps import CallFields, CellMaps, LayerMaps, MapTensors, Window
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import heads_by_visibility, stored_shape, visibility_header, visible_to_heads
from attnviz.streaming.engine import overview_of, write_product
from attnviz.streaming.overview import FactorArray, Factors, Overview, pool_weights

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry
    from attnviz.streaming.overview import ScoreFactors


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MaskedMaps(CellMaps):
    """Maps whose visible cells are one array."""

    visible: BoolArray  # ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells
    # ``(heads,)``, the number of the key head that each head reads; ``None`` if each has its own
    key_heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_heads is not None and len(self.key_heads) != len(self.heads):
            raise AttnvizError(f"layer {self.layer}: {len(self.heads)} heads, but {len(self.key_heads)} key heads")

    def to_tensors(self) -> MapTensors:
        """Returns scores, weights and visible cells of all heads, as a file stores whole maps."""
        header = {} if self.key_heads is None else {"key_heads": self.key_heads}
        cells = self.window(self.heads, slice(0, len(self.query_tokens)), slice(0, len(self.key_tokens)))
        arrays = {"scores": cells.scores, "weights": cells.weights, "visible": self.visible}
        return MapTensors("dense", header | visibility_header(self.visible), arrays)

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads grouped by their visible cells."""
        return heads_by_visibility(self.visible, heads, self.head_indices(heads))

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a block, sliced from the array."""
        return visible_to_heads(self.visible[..., queries, keys], self.head_indices((head,)))

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools a block to pixels; see `LayerMaps.overview`. Computes the maximum even if ``maximum`` is False."""
        window = self.window(heads, queries, keys)
        return pool_weights(window.weights, window.visible, height, width)


def key_head_numbers(maps: LayerMaps) -> tuple[int, ...] | None:
    """Returns the number of the key head that each head reads, ``(heads,)``; ``None`` if it is unknown."""
    if isinstance(maps, MaskedMaps) and maps.key_heads is not None:
        return maps.key_heads
    factors = maps.score_factors()
    return None if factors is None else factors.key_heads


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(MaskedMaps):
    """Maps of one attention call as whole arrays."""

    saved_as: ClassVar = "dense"

    scores: FloatArray  # ``(heads, queries, keys)``, scaled, before the mask
    weights: FloatArray  # ``(heads, queries, keys)``, after the softmax, before dropout
    # queries and keys, whose products are the scores; ``None`` if unknown. Files do not hold them.
    factors: "ScoreFactors | None" = None

    def __post_init__(self) -> None:
        """Makes the arrays read-only; raises AttnvizError if the shape of one does not fit heads, queries and keys."""
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        visible_shape = shape if self.visible.ndim == 3 else shape[1:]
        for name, expected_shape in (("scores", shape), ("weights", shape), ("visible", visible_shape)):
            array = getattr(self, name)
            if array.shape != expected_shape:
                raise AttnvizError(f"layer {self.layer}: {name} has shape {array.shape}, not {expected_shape}")
            array.setflags(write=False)
        if self.factors is not None:
            self.factors.refuse_mismatch(*shape)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block, sliced from the arrays; see `CellMaps.window`."""
        indices = self.head_indices(heads)
        return Window(
            scores=self.scores[indices, queries, keys],
            weights=self.weights[indices, queries, keys],
            visible=visible_to_heads(self.visible[..., queries, keys], indices),
        )

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block, sliced from the array."""
        return self.scores[self.head_indices(heads), queries, keys]

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps that a file entry stores."""
        shape = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        return cls(
            **call,
            scores=entry.array("scores", "float32", shape),
            weights=entry.array("weights", "float32", shape),
            visible=entry.array("visible", "bool", stored_shape(shape, entry.value)),
            key_heads=None if entry.value.get("key_heads") is None else entry.whole_numbers("key_heads"),
        )


class _HeadArrays(Protocol):
    """The cells of one head, which may be computed when they are read."""

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns weights after the softmax, ``(queries, keys)``; 0 where not visible."""

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns scores, scaled, before the mask, ``(queries, keys)``."""


@final
class _LazyWindow(Window):
    """A window whose scores are computed when they are first read.

    Args:
        weights: ``(heads, queries, keys)``.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells.
    """

    def __init__(self, scores: FloatArray | Callable[[], FloatArray], weights: FloatArray, visible: BoolArray) -> None:
        for name, value in (("_scores", scores), ("weights", weights), ("visible", visible)):
            # a window is frozen
            object.__setattr__(self, name, value)

    @cached_property
    def scores(self) -> FloatArray:
        """``(heads, queries, keys)``, scaled, before the mask."""
        scores: FloatArray | Callable[[], FloatArray] = vars(self)["_scores"]
        return scores() if callable(scores) else scores


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OnDemandMaps(MaskedMaps):
    """Maps of one attention call whose heads are computed when they are first read."""

    cells: tuple[_HeadArrays, ...]  # the cells of each head

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        if self.visible.shape not in (shape, shape[1:]) or len(self.cells) != len(self.heads):
            raise AttnvizError(
                f"layer {self.layer}: visible has shape {self.visible.shape} and cells are of {len(self.cells)} heads; "
                f"give {shape} or {shape[1:]}, and cells of {len(self.heads)} heads"
            )
        self.visible.setflags(write=False)

    @cached_property
    def scores(self) -> FloatArray:
        """The scores of all heads, ``(heads, queries, keys)``; computed whole when first read."""
        return self.scores_of(self.heads, *self._all_cells)

    @cached_property
    def weights(self) -> FloatArray:
        """The weights of all heads, ``(heads, queries, keys)``; computed whole when first read."""
        return self._weights_of(self.heads, *self._all_cells)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block whose scores are computed when they are first read; see `CellMaps.window`."""
        return _LazyWindow(
            lambda: self.scores_of(heads, queries, keys),
            self._weights_of(heads, queries, keys),
            visible_to_heads(self.visible[..., queries, keys], self.head_indices(heads)),
        )

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block."""
        return np.stack([self.cells[index].scores(queries, keys) for index in self.head_indices(heads)])

    def _weights_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block, ``(heads, queries, keys)``; those of a single head are not copied."""
        weights = [self.cells[index].weights(queries, keys) for index in self.head_indices(heads)]
        return weights[0][None] if len(weights) == 1 else np.stack(weights)

    @property
    def _all_cells(self) -> tuple[slice, slice]:
        """All queries and all keys."""
        return slice(0, len(self.query_tokens)), slice(0, len(self.key_tokens))


MAX_FLOAT32_LOGSUMEXP = 16.0  # above it float32's rounding of score − log-sum-exp moves weights by more than 1e-5
BFLOAT16_ROUNDING = 2.0**-8  # the largest relative error of rounding to bfloat16
SAMPLED_QUERIES = 32  # queries over which the error of rounded weights is measured
BIAS_ARRAYS = ("relative", "by_key", "explicit")
MASK_RULES = ("causal", "window", "chunk", "prefix", "offset")


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FactoredMaps(CellMaps):
    """Maps of one attention call as queries, keys and rules, from which each window is computed at access.

    The weights of a window are exact to 1e-5 if the log-sum-exp, which is stored in float32, is at most 128 in size.
    Overviews are computed in float32, where a score of size s is exact to s · 1e-7.
    """

    saved_as: ClassVar = "factored"

    scale: float | None = field(init=False, default=None)  # set from the factors
    factors: Factors  # queries, keys and rules
    rounding: float = 0.0  # largest relative rounding error of queries and keys, such as 2**-8 for bfloat16; 0 if exact

    def __post_init__(self) -> None:
        """Sets the scale from the factors; raises AttnvizError if their arrays do not fit the heads and tokens."""
        super().__post_init__()
        object.__setattr__(self, "scale", self.factors.scale)
        try:
            self.factors.refuse_mismatch(len(self.heads), len(self.query_tokens), len(self.key_tokens))
        except AttnvizError as error:
            raise AttnvizError(f"layer {self.layer}: {error}") from None

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns the scores, weights and visible cells of a block, computed from the factors.

        Hidden cells have the weight 0, and the score without the mask. The ends of a slice may be ``None``.
        """
        indices = self.head_indices(heads)
        queries, keys = _clipped(queries, len(self.query_tokens)), _clipped(keys, len(self.key_tokens))
        visible = self.factors.mask.visible(queries, keys)
        shape = len(indices), *visible.shape
        scores, weights = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        for index, head_scores, head_weights in zip(indices, scores, weights, strict=True):
            self._write_cells(index, queries, keys, head_scores, head_weights)
        if not visible.all():
            first_hidden = int(visible.all(axis=0).argmin())  # every query sees all keys before this one
            np.copyto(weights[:, :, first_hidden:], np.float32(0), where=~visible[:, first_hidden:])
        return Window(scores=scores, weights=weights, visible=visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns only the scores of a block, ``(heads, queries, keys)``, each from its query and key."""
        queries, keys = _clipped(queries, len(self.query_tokens)), _clipped(keys, len(self.key_tokens))
        scores = np.empty((len(heads), queries.stop - queries.start, keys.stop - keys.start), dtype=np.float32)
        for index, head_scores in zip(self.head_indices(heads), scores, strict=True):
            self._write_cells(index, queries, keys, head_scores)
        return scores

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns all heads as one group, since they share the mask."""
        return [heads]

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a block from the mask alone, without computing weights."""
        return self.factors.mask.visible(
            _clipped(queries, len(self.query_tokens)), _clipped(keys, len(self.key_tokens))
        )

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        span = _clipped(queries, len(self.query_tokens))
        query_edges = np.arange(span.start, span.stop + 1)  # each query is a block
        key_edges = np.array([0, len(self.key_tokens)])  # all keys are one block, which is column 0
        return self.factors.mask.counts(query_edges, key_edges)[:, 0].astype(np.float64)

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Returns the weights of a block pooled to pixels; see `LayerMaps.overview`.

        Memory does not grow with the number of tokens. All maxima are 0 if ``maximum`` is False.
        """
        queries, keys = _clipped(queries, len(self.query_tokens)), _clipped(keys, len(self.key_tokens))
        return overview_of(self.factors, self.head_indices(heads), (height, width), queries, keys, maximum=maximum)

    def to_tensors(self) -> MapTensors:
        """Returns the factors as a file stores them: arrays that are not ``None``, and a header with the other fields.

        Arrays in bfloat16 are stored as their bits; other queries and keys, and log-sum-exps, as float32.
        """
        factors = self.factors
        optional = {"sink": factors.sink, "padding": factors.mask.padding, "mask": factors.mask.explicit}
        optional |= {f"bias.{name}": getattr(factors.bias, name) for name in BIAS_ARRAYS}
        optional_arrays = {name: array for name, array in optional.items() if array is not None}
        arrays = {
            name: array.bits if isinstance(array, HalfArray) else np.asarray(array[:], dtype=np.float32)
            for name, array in (("queries", factors.queries), ("keys", factors.keys), ("logsumexp", factors.logsumexp))
        }
        header = {
            "dtype": "bfloat16" if isinstance(factors.queries, HalfArray) else "float32",
            "features": factors.queries.shape[-1],
            "key_heads": list(factors.key_heads),
            "distances": 0 if factors.bias.relative is None else factors.bias.relative.shape[1],
            "origin": factors.bias.origin,
            "softcap": factors.softcap,
            "mask": {name: getattr(factors.mask, name) for name in MASK_RULES}
            | ({} if factors.mask.tail is None else {"tail": factors.mask.tail}),
            "arrays": sorted(optional_arrays),
        }
        return MapTensors(self.saved_as, header, arrays | optional_arrays)

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps of a file entry; arrays stay in the file until a part of them is indexed."""
        fields: dict[str, Any] = {name: value for name, value in call.items() if name != "scale"}
        dtype = entry.required_value("dtype", str)
        if dtype not in ("float32", "bfloat16"):
            raise entry.refusal(f"has factors of the unknown dtype {dtype!r}")
        heads, queries, keys = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        key_heads = entry.required_value("key_heads", list)
        if len(key_heads) != heads or not all(type(number) is int and 0 <= number < heads for number in key_heads):
            raise entry.refusal("has 'key_heads' that do not fit its heads")
        if call["scale"] is None:
            raise entry.refusal("has factors without a scale")
        softcap = entry.number("softcap")
        if softcap is not None and not softcap > 0:
            raise entry.refusal(f"has a soft cap of {softcap:g}; a soft cap is above 0")
        features = entry.count("features")
        listed_names = set(entry.lines("arrays"))
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {
            "sink": ("float32", (heads,)),
            "padding": ("bool", (keys,)),
            "mask": ("bool", (queries, keys)),
            "bias.relative": ("float32", (heads, entry.count("distances"))),
            "bias.by_key": ("float32", (heads, keys)),
            "bias.explicit": ("float32", (heads, queries, keys)),
        }
        optional_arrays = {
            name: entry.array(name, *shape) if name in listed_names else None for name, shape in shapes.items()
        }
        bias_arrays = {name: optional_arrays[f"bias.{name}"] for name in BIAS_ARRAYS}
        rules = entry.entry("mask")
        limits = {
            name: None if rules.value.get(name) is None else rules.count(name) for name in ("window", "chunk", "tail")
        }
        factors = Factors(
            queries=_read_factor(entry, "queries", dtype, (heads, queries, features)),
            keys=_read_factor(entry, "keys", dtype, (1 + max(key_heads), keys, features)),
            key_heads=tuple(key_heads),
            scale=call["scale"],
            logsumexp=entry.array("logsumexp", "float32", (heads, queries)),
            mask=Mask(
                causal=rules.required_value("causal", bool),
                **limits,
                prefix=rules.count("prefix"),
                offset=rules.integer("offset"),
                padding=optional_arrays["padding"],
                explicit=optional_arrays["mask"],
            ),
            bias=Bias(**bias_arrays, origin=entry.count("origin")),
            softcap=softcap,
            sink=optional_arrays["sink"],
        )
        rounding = BFLOAT16_ROUNDING if isinstance(factors.queries, HalfArray) else 0.0
        return cls(**fields, factors=factors, rounding=rounding)

    def _write_cells(
        self, index: int, queries: slice, keys: slice, scores: FloatArray, weights: FloatArray | None = None
    ) -> None:
        """Writes a head's scores into ``scores``, and its weights, with no cell hidden, into ``weights``."""
        logsumexp = self.factors.logsumexp_or_inf(index, queries)
        magnitudes = np.abs(logsumexp, where=np.isfinite(logsumexp), out=np.zeros_like(logsumexp))
        in_float64 = bool((magnitudes > MAX_FLOAT32_LOGSUMEXP).any())
        precise_scores: NDArray[Any] = np.empty(scores.shape) if in_float64 else scores
        factors = self.factors
        query_vectors = np.asarray(factors.queries[index, queries], dtype=precise_scores.dtype)
        key_vectors = np.asarray(factors.keys[factors.key_heads[index], keys], dtype=precise_scores.dtype)
        write_product(
            factors.device, query_vectors * precise_scores.dtype.type(factors.scale), key_vectors, precise_scores
        )
        if factors.softcap is not None:
            np.tanh(np.divide(precise_scores, factors.softcap, out=precise_scores), out=precise_scores)
            precise_scores *= factors.softcap
        if factors.bias:
            precise_scores += factors.bias.block([index], queries, keys)[0]
        if in_float64:
            scores[...] = precise_scores
        if weights is not None:
            exponents = np.subtract(precise_scores, logsumexp, out=precise_scores if in_float64 else weights)
            np.minimum(exponents, 0, out=exponents)  # the score of a hidden cell may be any number: no overflow in exp
            np.exp(exponents, out=weights)


def _clipped(span: slice, count: int) -> slice:
    """Returns a span of tokens with both ends as indices, clipped to ``count`` tokens."""
    start, stop, _ = span.indices(count)
    return slice(start, stop)


def _read_factor(entry: "StoredEntry", name: str, dtype: str, shape: tuple[int, ...]) -> FactorArray:
    """Returns the queries or keys of a file entry: a `HalfArray` if they are bfloat16, else float32."""
    if dtype == "bfloat16":
        return HalfArray(entry.array(name, "uint16", shape))
    return entry.array(name, "float32", shape)


def halve(recording: Recording) -> Recording:
    """Returns the recording with queries and keys in bfloat16, and a remark on the largest error of a sampled weight.

    Maps that are not kept as factors stay unchanged.
    """
    factored_maps = [maps for maps in recording.maps if isinstance(maps, FactoredMaps)]
    if not factored_maps:
        raise AttnvizError(f"{option('half')} needs maps that are kept as factors; use {option('dense', value=False)}")
    rounded_maps, largest_error = {}, 0.0
    for maps in factored_maps:
        rounded, factors = maps, maps.factors
        if not isinstance(factors.queries, HalfArray):
            queries, keys = (HalfArray.rounded(np.asarray(array[:])) for array in (factors.queries, factors.keys))
            rounded = replace(maps, factors=replace(factors, queries=queries, keys=keys), rounding=BFLOAT16_ROUNDING)
        rounded_maps[id(maps)] = rounded
        for query in np.linspace(0, len(maps.query_tokens) - 1, SAMPLED_QUERIES).astype(int).tolist():
            block = (maps.heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
            error = np.abs(rounded.window(*block).weights - maps.window(*block).weights).max()
            largest_error = max(largest_error, float(error))
    query_count = min(SAMPLED_QUERIES, max(len(maps.query_tokens) for maps in factored_maps))
    error_sentence = f"weights change by at most {largest_error:.1g} in {query_count} sampled queries."
    remark = f"Queries and keys are stored in bfloat16: {error_sentence}"
    all_maps = tuple(rounded_maps.get(id(maps), maps) for maps in recording.maps)
    return replace(recording, maps=all_maps, remarks=(*recording.remarks, remark))
