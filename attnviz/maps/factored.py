"""Maps of any length, held as the factors they are computed from: size grows with the tokens, not their square."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, HalfArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, CellMaps, MapTensors, Window
from attnviz.streaming.engine import overview_of, product
from attnviz.streaming.factors import FactorArray, Factors
from attnviz.streaming.overview import Overview

if TYPE_CHECKING:
    from attnviz.base.tensor_file import Entry, StoredEntry

MAX_FLOAT32_LOGSUMEXP = 16.0  # with a larger log-sum-exp, weights computed in float32 are not right to 1e-5
BFLOAT16_ROUNDING = 2.0**-8  # the largest relative error of rounding to bfloat16
BIAS_ARRAYS = ("relative", "by_key", "explicit")
MASK_RULES = ("causal", "window", "chunk", "prefix", "offset")


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FactoredMaps(CellMaps):
    """Queries, keys and the rules of one attention call; any window of its maps is computed when it is asked for.

    Windows are right to 1e-5 while the log-sum-exp itself is, which float32 holds up to 128; overviews are computed in
    float32, in which a score of size s is right to s · 1e-7.

    Attributes:
        factors: queries, keys and rules.
        rounding: the largest relative rounding of the numbers held, such as 2**-8 for bfloat16; 0 where exact.
    """

    saved_as: ClassVar = "factored"

    scale: float | None = field(init=False, default=None)  # the factors' own
    factors: Factors
    rounding: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", self.factors.scale)
        try:
            self.factors.refuse_unlike(len(self.heads), len(self.query_tokens), len(self.key_tokens))
        except AttnvizError as error:
            raise AttnvizError(f"layer {self.layer}: {error}") from None

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block, computed exactly: a cell takes as many products as a head has features."""
        held = self.positions(heads)
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        visible = self.factors.mask.visible(queries, keys)
        scores, weights = (np.empty((len(held), *visible.shape), dtype=np.float32) for _ in range(2))
        for place, of_head, weighed in zip(held, scores, weights, strict=True):
            self._fill(place, queries, keys, of_head, weighed)
        if not visible.all():
            first = int(visible.all(axis=0).argmin())  # of the keys that are hidden from some query
            np.copyto(weights[:, :, first:], np.float32(0), where=~visible[:, first:])
        return Window(scores=scores, weights=weights, visible=visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores of a block alone, computed exactly."""
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        scores = np.empty((len(heads), queries.stop - queries.start, keys.stop - keys.start), dtype=np.float32)
        for place, of_head in zip(self.positions(heads), scores, strict=True):
            self._fill(place, queries, keys, of_head)
        return scores

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """One: a mask's rules are those of all heads."""
        return [heads]

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """The block by the mask's rules, without a weight computed for it."""
        return self.factors.mask.visible(
            _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        )

    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """The visible cells of each query, by the mask's rules."""
        queries = _bounded(queries, len(self.query_tokens))
        keys = np.array([0, len(self.key_tokens)])
        return self.factors.mask.counts(np.arange(queries.start, queries.stop + 1), keys)[:, 0].astype(np.float64)

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The block, reduced to pixels tile by tile; memory does not grow with the tokens it covers."""
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        return overview_of(self.factors, self.positions(heads), (height, width), queries, keys, maximum)

    def cell_factors(self) -> Factors:
        """The factors."""
        return self.factors

    def halved(self) -> Self:
        """The maps with queries and keys rounded to bfloat16."""
        held = self.factors
        if isinstance(held.queries, HalfArray):
            return self
        queries, keys = (HalfArray.rounded(np.asarray(array[:])) for array in (held.queries, held.keys))
        return replace(self, factors=replace(held, queries=queries, keys=keys), rounding=BFLOAT16_ROUNDING)

    def to_tensors(self) -> MapTensors:
        """The factors' arrays, those that are not there left out, and the rules."""
        held = self.factors
        optional = _optional_arrays(held)
        arrays = {
            name: array.bits if isinstance(array, HalfArray) else np.asarray(array[:], dtype=np.float32)
            for name, array in (("queries", held.queries), ("keys", held.keys), ("logsumexp", held.logsumexp))
        }
        header = {
            "dtype": "bfloat16" if isinstance(held.queries, HalfArray) else "float32",
            "features": held.queries.shape[-1],
            "key_heads": list(held.key_heads),
            "distances": 0 if held.bias.relative is None else held.bias.relative.shape[1],
            "origin": held.bias.origin,
            "softcap": held.softcap,
            "mask": {name: getattr(held.mask, name) for name in MASK_RULES},
            "arrays": sorted(optional),
        }
        return MapTensors(self.saved_as, header, arrays | optional)

    @classmethod
    def from_tensors(cls, stored: "StoredEntry", call: CallFields) -> Self:
        """The maps that a file holds, their arrays left there until a part of them is asked for.

        Raises:
            AttnvizError: if a value is missing, or of another type or shape.
        """
        fields: dict[str, Any] = {name: value for name, value in call.items() if name != "scale"}
        factors = _read_factors(stored, call)
        rounding = BFLOAT16_ROUNDING if isinstance(factors.queries, HalfArray) else 0.0
        return cls(**fields, factors=factors, rounding=rounding)

    def _fill(
        self, place: int, queries: slice, keys: slice, scores: FloatArray, weights: FloatArray | None = None
    ) -> None:
        """Writes a head's scores, and its weights as if all were seen, ``(queries, keys)``: in float64 where needed."""
        reference = self.factors.reference(place, queries)
        sizes = np.abs(reference, where=np.isfinite(reference), out=np.zeros_like(reference))
        coarse = bool((sizes > MAX_FLOAT32_LOGSUMEXP).any())
        computed: NDArray[Any] = np.empty(scores.shape) if coarse else scores
        self._score(place, queries, keys, computed)
        if coarse:
            scores[...] = computed
        if weights is not None:
            below = np.subtract(computed, reference, out=computed if coarse else weights)
            np.minimum(below, 0, out=below)  # weights are at most 1: a hidden cell may hold any score
            np.exp(below, out=weights)

    def _score(self, place: int, queries: slice, keys: slice, out: NDArray[Any]) -> None:
        """Writes a head's scores, ``(queries, keys)``, computed in the precision of ``out``."""
        rows, columns = (
            np.asarray(array, dtype=out.dtype)
            for array in (self.factors.queries[place, queries], self.factors.keys[self.factors.key_heads[place], keys])
        )
        product(self.factors.device, rows * out.dtype.type(self.factors.scale), columns, out)
        if self.factors.softcap is not None:
            np.tanh(np.divide(out, self.factors.softcap, out=out), out=out)
            out *= self.factors.softcap
        if self.factors.bias:
            out += self.factors.bias.block([place], queries, keys)[0]


def _bounded(span: slice, count: int) -> slice:
    """The span with both ends, within ``count`` tokens."""
    start, stop, _ = span.indices(count)
    return slice(start, stop)


def _read_factors(stored: "StoredEntry", call: CallFields) -> Factors:
    held = stored.take("dtype", str)
    if held not in ("float32", "bfloat16"):
        raise stored.refusal(f"has factors of the unknown dtype {held!r}")
    heads, queries, keys = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
    key_heads = _read_key_heads(stored, heads)
    if call["scale"] is None:
        raise stored.refusal("has factors without a scale")
    features, optional = stored.count("features"), _read_optional(stored, heads, queries, keys)
    return Factors(
        queries=_read_factor(stored, "queries", held, (heads, queries, features)),
        keys=_read_factor(stored, "keys", held, (1 + max(key_heads), keys, features)),
        key_heads=key_heads,
        scale=call["scale"],
        logsumexp=stored.array("logsumexp", "float32", (heads, queries)),
        mask=_read_mask(stored.entry("mask"), optional),
        bias=Bias(**{name: optional[f"bias.{name}"] for name in BIAS_ARRAYS}, origin=stored.count("origin")),
        softcap=stored.number("softcap"),
        sink=optional["sink"],
    )


def _optional_arrays(factors: Factors) -> dict[str, NDArray[Any]]:
    """The arrays that not all factors have, by their names in a file."""
    arrays = {"sink": factors.sink, "padding": factors.mask.padding, "mask": factors.mask.explicit}
    arrays |= {f"bias.{name}": getattr(factors.bias, name) for name in BIAS_ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def _read_optional(stored: "StoredEntry", heads: int, queries: int, keys: int) -> dict[str, Any]:
    present = set(stored.lines("arrays"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "sink": ("float32", (heads,)),
        "padding": ("bool", (keys,)),
        "mask": ("bool", (queries, keys)),
        "bias.relative": ("float32", (heads, stored.count("distances"))),
        "bias.by_key": ("float32", (heads, keys)),
        "bias.explicit": ("float32", (heads, queries, keys)),
    }
    return {name: stored.array(name, *shape) if name in present else None for name, shape in shapes.items()}


def _read_key_heads(stored: "StoredEntry", heads: int) -> tuple[int, ...]:
    numbers = stored.take("key_heads", list)
    if len(numbers) != heads or not all(type(number) is int and 0 <= number < heads for number in numbers):
        raise stored.refusal("has 'key_heads' that do not fit its heads")
    return tuple(numbers)


def _read_factor(stored: "StoredEntry", name: str, held: str, shape: tuple[int, ...]) -> FactorArray:
    if held == "bfloat16":
        return HalfArray(stored.array(name, "uint16", shape))
    return stored.array(name, "float32", shape)


def _read_mask(entry: "Entry", arrays: dict[str, Any]) -> Mask:
    limits = {name: None if entry.value.get(name) is None else entry.count(name) for name in ("window", "chunk")}
    return Mask(
        causal=entry.take("causal", bool),
        **limits,
        prefix=entry.count("prefix"),
        offset=entry.place("offset"),
        padding=arrays["padding"],
        explicit=arrays["mask"],
    )
