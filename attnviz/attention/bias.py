"""What is added to a score for where its query and key stand: ALiBi, relative buckets, or cell by cell."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError


@dataclass(frozen=True, eq=False)
class Bias:
    """A term of the score, after scale and soft cap, that depends on positions; the parts that are given add up.

    Attributes:
        relative: ``(heads, distances)``, for each distance key − query from ``-origin`` on.
        origin: where in ``relative`` the distance 0 stands.
        by_key: ``(heads, keys)``, for each key alone.
        explicit: ``(heads, queries, keys)``.
    """

    relative: FloatArray | None = None
    origin: int = 0
    by_key: FloatArray | None = None
    explicit: FloatArray | None = None

    def __bool__(self) -> bool:
        return not (self.relative is None and self.by_key is None and self.explicit is None)

    def refuse_unlike(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError where a part is not of the maps' shape."""
        shapes = {"by_key": (heads, keys), "explicit": (heads, queries, keys)}
        wrong = {name for name, shape in shapes.items() if getattr(self, name, None) is not None
                 and getattr(self, name).shape != shape}  # fmt: skip
        relative = self.relative
        if relative is not None and (
            len(relative) != heads or self.origin < queries - 1 or relative.shape[1] - self.origin < keys
        ):
            wrong.add("relative")
        if wrong:
            raise AttnvizError(f"bias {sorted(wrong)[0]} does not fit {heads} heads, {queries} queries, {keys} keys")

    def block(self, heads: list[int], queries: slice, keys: slice) -> FloatArray:
        """The bias of a block, ``(heads, queries, keys)``, for the heads held at these places."""
        shape = (len(heads), queries.stop - queries.start, keys.stop - keys.start)
        total = np.zeros(shape, dtype=np.float32)
        if self.relative is not None:
            runs = np.lib.stride_tricks.sliding_window_view(self.relative[heads], shape[2], axis=-1)
            last = keys.start - queries.start + self.origin  # where the run of the first query begins
            total += runs[:, last - shape[1] + 1 : last + 1][:, ::-1]
        if self.by_key is not None:
            total += self.by_key[heads, None, keys]
        if self.explicit is not None:
            total += self.explicit[heads, queries, keys]
        return total

    def at(self, heads: list[int], queries: IntArray, keys: IntArray) -> FloatArray:
        """The bias of single cells, ``(heads, cells)``."""
        total = np.zeros((len(heads), len(queries)), dtype=np.float32)
        if self.relative is not None:
            total += self.relative[heads][:, keys - queries + self.origin]
        if self.by_key is not None:
            total += self.by_key[heads][:, keys]
        if self.explicit is not None:
            total += self.explicit[heads][:, queries, keys]
        return total
