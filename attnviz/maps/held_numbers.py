"""HeldNumbers: what was measured of heads while their single cells were known, beside maps that know these no more."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

ARRAYS = ("values", "counts", "sinks", "keys")


@dataclass(frozen=True, eq=False)
class HeldNumbers:
    """Metrics of the heads of one call.

    Attributes:
        names: of the metrics.
        values: ``(heads, metrics)``, NaN where one has no meaning.
        counts: ``(heads, metrics)``, how many queries each value is a mean of.
        sinks: ``(heads,)``, the number of the key that receives most.
        keys: ``(heads,)``, how many keys the queries see.
    """

    names: tuple[str, ...]
    values: FloatArray
    counts: IntArray
    sinks: IntArray
    keys: IntArray

    def refuse_unlike(self, heads: int, keys: int, what: str) -> None:
        """Raises AttnvizError where they are not of so many heads over so many keys."""
        shape = heads, len(self.names)
        fits = self.values.shape == self.counts.shape == shape and self.sinks.shape == self.keys.shape == shape[:1]
        if not fits or not ((self.sinks >= 0) & (self.sinks < keys) & (self.keys <= keys)).all():
            raise AttnvizError(f"{what}: numbers that are not of {heads} heads over {keys} keys")

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds of them."""
        return {"metrics": list(self.names)}, {f"metric_{name}": getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_tensors(cls, stored: "StoredEntry", heads: int) -> Self:
        """Those of a file.

        Raises:
            AttnvizError: if a value is missing, or of another type or shape.
        """
        names = stored.sentences("metrics")
        return cls(
            names,
            stored.array("metric_values", "float32", (heads, len(names))),
            stored.array("metric_counts", "int64", (heads, len(names))),
            stored.array("metric_sinks", "int64", (heads,)),
            stored.array("metric_keys", "int64", (heads,)),
        )


def joined_numbers(parts: Iterable[HeldNumbers]) -> HeldNumbers:
    """Those of one head after the other."""
    first, *others = parts
    if not others:
        return first
    every: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in (first, *others)]) for name in ARRAYS
    }
    return replace(first, **every)
