"""What is added to a score for where its query and key stand: ALiBi, relative buckets, or cell by cell."""

import math
from dataclasses import dataclass
from typing import Self

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

    @classmethod
    def alibi(cls, slopes: FloatArray, queries: int, keys: int, offset: int = 0) -> Self:
        """−slope · |key − query|: attention with linear biases (Press et al. 2022, section 3).

        Args:
            slopes: ``(heads,)``.
            queries: how many there are.
            keys: how many there are.
            offset: position of the first query, counted in keys.
        """
        distances = np.abs(np.arange(1 - queries, keys) - offset)
        return cls(relative=(-np.outer(slopes, distances)).astype(np.float32), origin=queries - 1)

    @classmethod
    def buckets(cls, table: FloatArray, queries: int, keys: int, *, both_sides: bool, farthest: int = 128) -> Self:
        """One learned number for each bucket of distances (Raffel et al. 2020, section 2.1, as T5 counts them).

        Args:
            table: ``(buckets, heads)``.
            queries: how many there are.
            keys: how many there are.
            both_sides: whether keys after the query have buckets of their own.
            farthest: distances from here on share the last bucket.
        """
        distances = np.arange(1 - queries, keys)
        chosen = table[bucket_of(distances, len(table), both_sides, farthest)]
        return cls(relative=np.ascontiguousarray(chosen.T, dtype=np.float32), origin=queries - 1)

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


def bucket_of(distances: IntArray, buckets: int, both_sides: bool, farthest: int) -> IntArray:
    """The bucket of each distance key − query: half of them one a token, the rest growing with the logarithm."""
    first = np.zeros_like(distances)
    if both_sides:
        buckets //= 2
        first = np.where(distances > 0, buckets, 0)
    away = np.abs(distances) if both_sides else np.maximum(-distances, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(away, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    coarse = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    return np.asarray(first + np.where(away < exact, away, coarse))
