"""Stores metrics that were measured at capture with pooled maps, from which they can no longer be computed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

ARRAYS = ("values", "counts", "sinks", "keys", "beside_sink")
REST_COUNT = 9  # the number of metrics that decide patterns


@dataclass(frozen=True, eq=False)
class CapturedMetrics:
    """Metrics of the heads of one attention call, measured at capture.

    Attributes:
        names: the names of the metrics.
        values: ``(heads, metrics)``, NaN where a metric is not applicable.
        counts: ``(heads, metrics)``, the number of queries that each value is a mean of.
        sinks: ``(heads,)``, the position of the key that receives most weight.
        keys: ``(heads,)``, the number of keys that the queries see.
        beside_sink: ``(heads, metrics)``, the metrics beside the sink that decide patterns.
    """

    names: tuple[str, ...]
    values: FloatArray
    counts: IntArray
    sinks: IntArray
    keys: IntArray
    beside_sink: FloatArray

    def refuse_mismatch(self, heads: int, keys: int, maps_name: str) -> None:
        """Raises AttnvizError if the arrays do not fit maps with these numbers of heads and keys."""
        shape = heads, len(self.names)
        fits = self.values.shape == self.counts.shape == shape and self.sinks.shape == self.keys.shape == shape[:1]
        fits = fits and self.beside_sink.shape == (heads, REST_COUNT)
        if not fits or not ((self.sinks >= 0) & (self.sinks < keys) & (self.keys <= keys)).all():
            raise AttnvizError(f"{maps_name}: stored metrics do not fit {heads} heads over {keys} keys; record again")

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the header and the arrays that a file stores."""
        return {"metrics": list(self.names)}, {f"metric_{name}": getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", heads: int) -> Self:
        """Returns the metrics that a file entry stores for maps with ``heads`` heads.

        Raises:
            AttnvizError: if a value is missing, or of another type or shape.
        """
        names = entry.sentences("metrics")
        return cls(
            names=names,
            values=entry.array("metric_values", "float32", (heads, len(names))),
            counts=entry.array("metric_counts", "int64", (heads, len(names))),
            sinks=entry.array("metric_sinks", "int64", (heads,)),
            keys=entry.array("metric_keys", "int64", (heads,)),
            beside_sink=entry.array("metric_beside_sink", "float32", (heads, REST_COUNT)),
        )


def concatenated_metrics(parts: Iterable[CapturedMetrics]) -> CapturedMetrics:
    """Returns the metrics of all parts, concatenated along the axis of heads; a single part is returned unchanged."""
    all_parts = list(parts)
    if len(all_parts) == 1:
        return all_parts[0]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in all_parts]) for name in ARRAYS}
    return replace(all_parts[0], **arrays)
