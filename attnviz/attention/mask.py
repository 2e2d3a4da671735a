"""Which keys a query may look at: causal, windowed, in chunks, with a prefix, without padding, or cell by cell."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError

BEYOND_ALL_POSITIONS = 2**62  # beyond every position
MAX_COUNTED_ROWS = 256  # rows of an explicit mask that are counted at once


@dataclass(frozen=True, eq=False)
class Mask:
    """A rule that says for any block of queries and keys which cells are visible.

    A key is visible where every given rule allows it; keys of the ``prefix`` are exempt from
    ``causal``, ``window`` and ``chunk``, never from ``padding`` or ``explicit``.

    Attributes:
        causal: a query sees its own position and those before it.
        window: a query sees keys less than this many tokens away (``None``: no limit).
        chunk: a query sees only keys of its own run of this many tokens (``None``: no limit).
        prefix: this many first keys are seen by every query.
        offset: position of the first query, counted in keys (as when earlier keys were cached).
        padding: ``(keys,)``, true where the key is real; ``None`` where all are.
        explicit: ``(queries, keys)``, true where a cell is visible; ``None`` where the rules say it all.
    """

    causal: bool = False
    window: int | None = None
    chunk: int | None = None
    prefix: int = 0
    offset: int = 0
    padding: BoolArray | None = None
    explicit: BoolArray | None = None

    def __post_init__(self) -> None:
        for name in ("window", "chunk"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < 1:
                raise AttnvizError(f"a mask's {name} of {tokens} tokens hides every key; at least 1 works")
        if self.prefix < 0:
            raise AttnvizError(f"a mask's prefix of {self.prefix} tokens is negative; 0 or more works")

    def visible(self, queries: slice, keys: slice) -> BoolArray:
        """Whether each cell of the block is visible, ``(queries, keys)``; slices have both ends."""
        columns = np.arange(keys.start, keys.stop)
        start, stop = self.spans(queries, keys.stop)
        allowed = (columns >= start[:, None]) & (columns < stop[:, None])
        if self.prefix > keys.start:
            allowed |= columns < self.prefix
        if self.padding is not None:
            allowed &= self.padding[keys]
        if self.explicit is not None:
            allowed &= self.explicit[queries, keys]
        return allowed

    def sees(self, queries: IntArray, keys: IntArray) -> BoolArray:
        """Whether each query sees the key beside it; the two broadcast, and a key below 0 is not seen."""
        start, stop = self._span(queries + self.offset)
        allowed = ((keys >= start) & (keys < stop)) | (keys < self.prefix)
        allowed &= keys >= 0
        if self.padding is not None:
            allowed &= self.padding[keys]
        if self.explicit is not None:
            allowed &= self.explicit[queries, keys]
        return np.asarray(allowed)

    def spans(self, queries: slice, keys: int) -> tuple[IntArray, IntArray]:
        """First key and end of the run that causal, window and chunk leave each query, both ``(queries,)``."""
        rows = np.arange(queries.start, queries.stop, dtype=np.int64) + self.offset
        start, stop = (np.asarray(np.clip(end, 0, keys)) for end in self._span(rows))
        return start, np.maximum(start, stop)

    def reach(self, queries: slice, keys: int) -> slice:
        """The shortest run of keys outside which none of these queries sees any."""
        first, last = (self._span_of(row + self.offset) for row in (queries.start, queries.stop - 1))
        start, stop = (min(max(end, 0), keys) for end in (first[0], last[1]))
        if self.prefix:
            return slice(0, min(max(stop, self.prefix), keys))
        return slice(start, max(start, stop))

    def coverage(self, queries: slice, keys: slice) -> bool | None:
        """True where the block is visible for sure, False where it is hidden, ``None`` where cells decide."""
        if self.explicit is not None or (self.padding is not None and not self.padding[keys].all()):
            return None
        first, last = (self._span_of(row + self.offset) for row in (queries.start, queries.stop - 1))
        if keys.stop <= self.prefix or (last[0] <= keys.start and first[1] >= keys.stop):
            return True
        hidden = first[0] >= keys.stop or last[1] <= keys.start
        return False if hidden and self.prefix <= keys.start else None

    @property
    def moves_along(self) -> bool:
        """Whether moving a block along the diagonal leaves its visible cells as they are."""
        return self.chunk is None and not self.prefix and self.padding is None and self.explicit is None

    def counts(self, rows: IntArray, columns: IntArray) -> IntArray:
        """How many cells of each block are visible, ``(blocks of rows, blocks of columns)``.

        Args:
            rows: where each block of queries begins, and the end.
            columns: where each block of keys begins, and the end.
        """
        if self.explicit is not None:
            return self._counts_of_cells(rows, columns)
        keys = int(columns[-1])
        real = np.ones(keys, dtype=bool) if self.padding is None else self.padding[:keys]
        before = np.concatenate([[0], np.cumsum(real)])  # real keys before each key: (keys + 1,)
        start, stop = self.spans(slice(int(rows[0]), int(rows[-1])), keys)
        prefix = min(self.prefix, keys)
        start, stop = np.maximum(start, prefix), np.maximum(stop, prefix)
        below = [_sums_capped(before[end], rows - rows[0], before[columns]) for end in (start, stop)]
        fixed = np.minimum(before[columns], before[prefix]) * np.diff(rows)[:, None]
        return np.asarray(np.diff(below[1] - below[0] + fixed, axis=1))

    def _span_of(self, row: int) -> tuple[int, int]:
        """What ``_span`` says of a single position, without the cost of arrays."""
        start, stop = 0, BEYOND_ALL_POSITIONS
        if self.causal:
            stop = row + 1
        if self.window is not None:
            start, stop = max(start, row - self.window + 1), min(stop, row + self.window)
        if self.chunk is not None:
            chunk = row // self.chunk * self.chunk
            start, stop = max(start, chunk), min(stop, chunk + self.chunk)
        return start, stop

    def _span(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """First key and end that causal, window and chunk leave the queries at these positions, not clipped."""
        start, stop = np.zeros_like(rows), np.full_like(rows, BEYOND_ALL_POSITIONS)
        if self.causal:
            stop = rows + 1
        if self.window is not None:
            start, stop = np.maximum(start, rows - self.window + 1), np.minimum(stop, rows + self.window)
        if self.chunk is not None:
            chunk = rows // self.chunk * self.chunk
            start, stop = np.maximum(start, chunk), np.minimum(stop, chunk + self.chunk)
        return start, stop

    def _counts_of_cells(self, rows: IntArray, columns: IntArray) -> IntArray:
        keys = slice(int(columns[0]), int(columns[-1]))
        counts = np.zeros((len(rows) - 1, len(columns) - 1), dtype=np.int64)
        for block, (first, last) in enumerate(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)):
            for start in range(first, last, MAX_COUNTED_ROWS):
                cells = self.visible(slice(start, min(start + MAX_COUNTED_ROWS, last)), keys).sum(axis=0)
                counts[block] += np.add.reduceat(cells, columns[:-1] - columns[0])
        return counts


def _sums_capped(values: IntArray, rows: IntArray, caps: IntArray) -> IntArray:
    """Sum of ``min(value, cap)`` over each block of rows, ``(blocks, caps)``; values and caps never fall."""
    sums = np.concatenate([[0], np.cumsum(values)])
    below = np.searchsorted(values, caps, side="right")
    split = np.clip(below[None, :], rows[:-1, None], rows[1:, None])  # where a block's values pass the cap
    return np.asarray(sums[split] - sums[rows[:-1], None] + (rows[1:, None] - split) * caps)
