"""FactoredMaps to tensors and a header, and back, each tensor left in its file until a part of it is asked for."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.recording import Recording
from attnviz.streaming.factors import Factors

if TYPE_CHECKING:
    from attnviz.maps.tensor_file import Entry, TensorFile

HALF_ROUNDING = 2.0**-8  # the largest relative error of rounding to bfloat16
SAMPLED = 32  # queries over which the error of the weights is measured
BIAS_ARRAYS = ("relative", "by_key", "explicit")


class HalfArray:
    """Numbers held as the upper 16 bits of float32 (bfloat16), which become float32 where they are asked for.

    Attributes:
        bits: uint16, of the array's shape.
    """

    def __init__(self, bits: NDArray[np.uint16]) -> None:
        self.bits = bits

    @classmethod
    def rounded(cls, numbers: FloatArray) -> "HalfArray":
        """The nearest bfloat16 of finite numbers, ties to even."""
        bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
        return cls(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""
        return self.bits.shape

    def __getitem__(self, index: Any) -> FloatArray:
        """The part as float32."""
        return np.asarray((self.bits[index].astype(np.uint32) << 16).view(np.float32))


def halve(recording: Recording) -> Recording:
    """The recording with its factors in bfloat16, which a remark says with the error of the weights.

    Raises:
        AttnvizError: if no maps of it are factored.
    """
    pairs = [halved(maps) if isinstance(maps, FactoredMaps) else (maps, None) for maps in recording.maps]
    errors = [error for _, error in pairs if error is not None]
    if not errors:
        raise AttnvizError("--half works with maps that are kept as factors; --factored keeps them so")
    remark = (
        f"Queries and keys are held in bfloat16: a weight differs by {max(errors):.1g} at most in {SAMPLED} queries."
    )
    return replace(recording, maps=tuple(maps for maps, _ in pairs), remarks=(*recording.remarks, remark))


def halved(maps: FactoredMaps) -> tuple[FactoredMaps, float]:
    """The maps with queries and keys rounded to bfloat16, and the largest error of a weight over some queries."""
    if isinstance(maps.factors.queries, HalfArray):
        return maps, 0.0
    queries, keys = (HalfArray.rounded(np.asarray(array[:])) for array in (maps.factors.queries, maps.factors.keys))
    half = replace(maps, factors=replace(maps.factors, queries=queries, keys=keys), rounding=HALF_ROUNDING)
    error = 0.0
    for query in np.linspace(0, len(maps.query_tokens) - 1, SAMPLED).astype(int).tolist():
        block = (maps.heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
        error = max(error, float(np.abs(half.window(*block).weights - maps.window(*block).weights).max()))
    return half, error


def factored_arrays(maps: FactoredMaps) -> dict[str, NDArray[Any]]:
    """Everything of the maps that is an array, by name."""
    arrays = {
        name: array.bits if isinstance(array, HalfArray) else np.asarray(array[:], dtype=np.float32)
        for name, array in (
            ("queries", maps.factors.queries),
            ("keys", maps.factors.keys),
            ("logsumexp", maps.factors.logsumexp),
        )
    }
    return arrays | _optional_arrays(maps)


def factored_header(maps: FactoredMaps) -> dict[str, Any]:
    """Everything of the maps that is no array, as JSON values."""
    return {
        "dtype": "bfloat16" if isinstance(maps.factors.queries, HalfArray) else "float32",
        "features": maps.factors.queries.shape[-1],
        "key_heads": list(maps.factors.key_heads),
        "distances": 0 if maps.factors.bias.relative is None else maps.factors.bias.relative.shape[1],
        "origin": maps.factors.bias.origin,
        "softcap": maps.factors.softcap,
        "mask": {name: getattr(maps.factors.mask, name) for name in ("causal", "window", "chunk", "prefix", "offset")},
        "arrays": sorted(_optional_arrays(maps)),
    }


def read_factored(file: "TensorFile", prefix: str, entry: "Entry", common: dict[str, Any]) -> FactoredMaps:
    """The maps that an entry describes, their arrays still in the file.

    Args:
        file: where the arrays stand, their names after ``prefix``.
        prefix: such as ``maps.0.``.
        entry: what ``factored_header`` gave.
        common: what every kind of maps has.

    Raises:
        AttnvizError: if a value is missing, or of another type or shape.
    """
    held = entry.take("dtype", str)
    if held not in ("float32", "bfloat16"):
        raise entry.refusal(f"has factors of the unknown dtype {held!r}")
    heads, queries, keys = (len(common[name]) for name in ("heads", "query_tokens", "key_tokens"))
    key_heads, scale = _key_heads(entry, heads), common["scale"]
    if scale is None:
        raise entry.refusal("has factors without a scale")
    features, present = entry.count("features"), set(entry.lines("arrays"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "sink": ("float32", (heads,)),
        "padding": ("bool", (keys,)),
        "mask": ("bool", (queries, keys)),
        "bias.relative": ("float32", (heads, entry.count("distances"))),
        "bias.by_key": ("float32", (heads, keys)),
        "bias.explicit": ("float32", (heads, queries, keys)),
    }
    optional = {name: file.array(prefix + name, *shapes[name]) if name in present else None for name in shapes}
    arrays: dict[str, Any] = {
        name: _factor(file, prefix + name, held, (count, tokens, features))
        for name, count, tokens in (("queries", heads, queries), ("keys", 1 + max(key_heads), keys))
    }
    factors = Factors(
        **arrays,
        key_heads=key_heads,
        scale=scale,
        logsumexp=file.array(f"{prefix}logsumexp", "float32", (heads, queries)),
        mask=_mask(entry.entry("mask"), optional),
        bias=Bias(**{name: optional[f"bias.{name}"] for name in BIAS_ARRAYS}, origin=entry.count("origin")),
        softcap=entry.number("softcap"),
        sink=optional["sink"],
    )
    about = {name: value for name, value in common.items() if name != "scale"}
    return FactoredMaps(**about, factors=factors, rounding=HALF_ROUNDING if held == "bfloat16" else 0.0)


def _optional_arrays(maps: FactoredMaps) -> dict[str, NDArray[Any]]:
    arrays = {"sink": maps.factors.sink, "padding": maps.factors.mask.padding, "mask": maps.factors.mask.explicit}
    arrays |= {f"bias.{name}": getattr(maps.factors.bias, name) for name in BIAS_ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def _key_heads(entry: "Entry", heads: int) -> tuple[int, ...]:
    numbers = entry.take("key_heads", list)
    if len(numbers) != heads or not all(type(number) is int and 0 <= number < heads for number in numbers):
        raise entry.refusal("has 'key_heads' that do not fit its heads")
    return tuple(numbers)


def _factor(file: "TensorFile", name: str, held: str, shape: tuple[int, ...]) -> "FloatArray | HalfArray":
    if held == "bfloat16":
        return HalfArray(file.array(name, "uint16", shape))
    return file.array(name, "float32", shape)


def _mask(entry: "Entry", arrays: dict[str, Any]) -> Mask:
    limits = {name: None if entry.value.get(name) is None else entry.count(name) for name in ("window", "chunk")}
    return Mask(
        causal=entry.take("causal", bool),
        **limits,
        prefix=entry.count("prefix"),
        offset=entry.take("offset", int),
        padding=arrays["padding"],
        explicit=arrays["mask"],
    )
