"""Represents position biases, which are added to the scores: ALiBi, relative buckets, or one number per cell."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError


@dataclass(frozen=True, eq=False)
class Bias:
    """A position-dependent term that is added to the scores after scale and soft cap: the sum of its parts.

    Attributes:
        relative: ``(heads, distances)``, one number per distance key − query, from ``-origin`` upwards.
        origin: index of the distance 0 in ``relative``.
        by_key: ``(heads, keys)``, one number per key, the same for every query.
        explicit: ``(heads, queries, keys)``, one number per cell.
    """

    relative: FloatArray | None = None
    origin: int = 0
    by_key: FloatArray | None = None
    explicit: FloatArray | None = None

    def __bool__(self) -> bool:
        """True if the bias has any part."""
        return not (self.relative is None and self.by_key is None and self.explicit is None)

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of a part does not fit the maps."""
        shapes = {"by_key": (heads, keys), "explicit": (heads, queries, keys)}
        parts = {name: getattr(self, name) for name in shapes}
        wrong_parts = {name for name, part in parts.items() if part is not None and part.shape != shapes[name]}
        # `relative` has to hold every distance from 1 - queries (last query, first key) to keys - 1
        relative = self.relative
        if relative is not None and (
            len(relative) != heads or self.origin < queries - 1 or relative.shape[1] - self.origin < keys
        ):
            wrong_parts.add("relative")
        if wrong_parts:
            name = min(wrong_parts)
            raise AttnvizError(
                f"the bias {name!r} of shape {getattr(self, name).shape} does not fit {heads} heads, {queries} queries "
                f"and {keys} keys"
            )

    def block(self, heads: list[int], queries: slice, keys: slice) -> FloatArray:
        """Returns the bias of a block of cells, ``(heads, queries, keys)``; zeros if the bias has no part."""
        shape = (len(heads), queries.stop - queries.start, keys.stop - keys.start)
        total = np.zeros(shape, dtype=np.float32)
        if self.relative is not None:
            # Row q of the block is a window of `relative`, and the window of row q + 1 begins one distance earlier.
            windows = np.lib.stride_tricks.sliding_window_view(self.relative[heads], shape[2], axis=-1)
            first_start = keys.start - queries.start + self.origin  # start of the first query's window
            total += windows[:, first_start - shape[1] + 1 : first_start + 1][:, ::-1]
        if self.by_key is not None:
            total += self.by_key[heads, None, keys]
        if self.explicit is not None:
            total += self.explicit[heads, queries, keys]
        return total

    def of_cells(self, heads: list[int], queries: IntArray, keys: IntArray) -> FloatArray:
        """Returns the bias of single cells, ``(heads, cells)``; zeros if the bias has no part."""
        total = np.zeros((len(heads), len(queries)), dtype=np.float32)
        if self.relative is not None:
            total += self.relative[heads][:, keys - queries + self.origin]
        if self.by_key is not None:
            total += self.by_key[heads][:, keys]
        if self.explicit is not None:
            total += self.explicit[heads][:, queries, keys]
        return total
