"""The rules of one attention call beside queries and keys: the bias of its scores, and the mask of its cells."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError

UNBOUNDED = 2**62  # larger than every position
MAX_COUNTED_ROWS = 256  # rows of an explicit mask that are counted at once, which bounds the memory


@dataclass(frozen=True, eq=False)
class Bias:
    """A position-dependent term that is added to the scores after scale and soft cap: the sum of its parts."""

    # ``(heads, distances)``, one number per distance key − query, from ``-origin`` upwards
    relative: FloatArray | None = None
    origin: int = 0  # index of the distance 0 in ``relative``
    by_key: FloatArray | None = None  # ``(heads, keys)``, one number per key, the same for every query
    explicit: FloatArray | None = None  # ``(heads, queries, keys)``, one number per cell

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


@dataclass(frozen=True, eq=False)
class Mask:
    """The rules that decide which cells are visible, for any block of queries and keys.

    A cell is visible if every rule allows it. Keys of the ``prefix``, and those from ``tail`` on, are exempt from
    ``causal``, ``window`` and ``chunk``, but not from ``padding`` or ``explicit``.
    """

    causal: bool = False  # a query sees only its own position and those before it
    window: int | None = None  # a query sees keys less than this many tokens away (``None``: no limit)
    chunk: int | None = None  # a query sees only keys in its own chunk of this many tokens (``None``: no limit)
    prefix: int = 0  # number of first keys that every query sees
    tail: int | None = None  # every query sees the keys from this one on, such as a sink; ``None``: no such keys
    offset: int = 0  # position of the first query, counted in keys; above 0 if earlier keys come from a cache
    padding: BoolArray | None = None  # ``(keys,)``, true where the key is real; ``None`` if all are
    # ``(queries, keys)``, true where a cell is visible; ``None`` if the other rules suffice
    explicit: BoolArray | None = None

    def __post_init__(self) -> None:
        """Raises AttnvizError if ``window`` or ``chunk`` is below 1, or ``prefix`` is negative."""
        for name in ("window", "chunk"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < 1:
                raise AttnvizError(f"the mask's {name} of {tokens} tokens hides every key; give at least 1")
        if self.prefix < 0:
            raise AttnvizError(f"the mask's prefix of {self.prefix} tokens is negative; give 0 or more")

    def visible(self, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a block, bool ``(queries, keys)``; both slices have start and stop."""
        columns = np.arange(keys.start, keys.stop)
        starts, stops = self.key_spans(queries, keys.stop)
        cells = (columns >= starts[:, None]) & (columns < stops[:, None])
        if self.prefix > keys.start:
            cells |= columns < self.prefix
        if self.tail is not None:
            cells |= columns >= self.tail
        if self.padding is not None:
            cells &= self.padding[keys]
        if self.explicit is not None:
            cells &= self.explicit[queries, keys]
        return cells

    def sees(self, queries: IntArray, keys: IntArray) -> BoolArray:
        """Returns True, element-wise, where a query sees a key; False for keys below 0."""
        starts, stops = self._spans_of_positions(queries + self.offset)
        is_visible = ((keys >= starts) & (keys < stops)) | (keys < self.prefix)
        if self.tail is not None:
            is_visible |= keys >= self.tail
        is_visible &= keys >= 0
        if self.padding is not None:
            is_visible &= self.padding[keys]
        if self.explicit is not None:
            is_visible &= self.explicit[queries, keys]
        return np.asarray(is_visible)

    def key_spans(self, queries: slice, keys: int) -> tuple[IntArray, IntArray]:
        """Returns start and end of the run of keys that causal, window and chunk allow each query, both ``(queries,)``.

        Both are clipped to ``keys``, the number of keys; prefix, tail, padding and explicit cells do not count here.
        """
        rows = np.arange(queries.start, queries.stop, dtype=np.int64) + self.offset
        start, stop = (np.asarray(np.clip(end, 0, keys)) for end in self._spans_of_positions(rows))
        return start, np.maximum(start, stop)

    def last_keys(self, queries: int, keys: int) -> IntArray:
        """Returns the last key before ``tail`` that each query sees, ``(queries,)``; -1 for none.

        Explicit cells do not count here.
        """
        keys = keys if self.tail is None else min(self.tail, keys)
        starts, stops = self.key_spans(slice(0, queries), keys)
        real = np.arange(keys) if self.padding is None else np.where(self.padding[:keys], np.arange(keys), -1)
        last_real = np.append(np.maximum.accumulate(real), -1)  # up to each key; -1 before the first
        last_of_span = np.where(last_real[stops - 1] >= starts, last_real[stops - 1], -1)
        return np.asarray(np.maximum(last_of_span, last_real[min(self.prefix, keys) - 1]))

    def reach(self, queries: slice, keys: int) -> slice:
        """Returns the shortest run of keys that contains each key that the rules allow any of these queries.

        The rules are causal, window, chunk, prefix and tail; padding and explicit cells do not count here.
        """
        first_start, _ = self._span_of_position(queries.start + self.offset)
        _, last_stop = self._span_of_position(queries.stop - 1 + self.offset)
        start, stop = (min(max(end, 0), keys) for end in (first_start, last_stop))
        if self.tail is not None and self.tail < keys:
            return slice(0 if self.prefix else min(start, self.tail), keys)
        if self.prefix:
            return slice(0, min(max(stop, self.prefix), keys))
        return slice(start, max(start, stop))

    def coverage(self, queries: slice, keys: slice) -> bool | None:
        """Returns True if a whole block is visible, False if a whole block is hidden, ``None`` if neither is certain.

        ``None`` means that the cells have to be computed; they may still be all visible or all hidden.
        """
        if self.explicit is not None or (self.padding is not None and not self.padding[keys].all()):
            return None
        first_start, first_stop = self._span_of_position(queries.start + self.offset)
        last_start, last_stop = self._span_of_position(queries.stop - 1 + self.offset)
        # starts and stops never decrease from query to query, so the first and the last query decide
        all_see_block = last_start <= keys.start and first_stop >= keys.stop
        in_tail = self.tail is not None and keys.start >= self.tail
        if all_see_block or keys.stop <= self.prefix or in_tail:
            return True
        if self.tail is not None and keys.stop > self.tail:
            return None
        none_sees_block = first_start >= keys.stop or last_stop <= keys.start
        return False if none_sees_block and self.prefix <= keys.start else None

    @property
    def depends_on_distance(self) -> bool:
        """True if visibility depends only on the distance key − query, so blocks on a diagonal are equal."""
        other_rules = (self.chunk, self.tail, self.padding, self.explicit)
        return not self.prefix and all(rule is None for rule in other_rules)

    def counts(self, rows: IntArray, columns: IntArray) -> IntArray:
        """Returns the number of visible cells in each block, ``(blocks of rows, blocks of columns)``.

        If the mask stores each cell, its cells are counted; else the counts are differences of cumulative sums over
        keys.

        Args:
            rows: ``(blocks + 1,)``, the first query of each block, and the end of the last.
            columns: ``(blocks + 1,)``, the first key of each block, and the end of the last.
        """
        if self.explicit is not None:
            seen_keys = slice(int(columns[0]), int(columns[-1]))
            counts = np.zeros((len(rows) - 1, len(columns) - 1), dtype=np.int64)
            for block, (first, last) in enumerate(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)):
                for start in range(first, last, MAX_COUNTED_ROWS):
                    visible = self.visible(slice(start, min(start + MAX_COUNTED_ROWS, last)), seen_keys)
                    counts[block] += np.add.reduceat(visible.sum(axis=0), columns[:-1] - columns[0])
            return counts
        keys = int(columns[-1])
        is_real = np.ones(keys, dtype=bool) if self.padding is None else self.padding[:keys]
        real_before = np.concatenate([[0], np.cumsum(is_real)])  # real keys before each key: (keys + 1,)
        tail = keys if self.tail is None else min(self.tail, keys)
        prefix = min(self.prefix, tail)
        spans = self.key_spans(slice(int(rows[0]), int(rows[-1])), tail)
        start_sums, stop_sums = (  # sums over the queries of each block: the real keys before a column and a span's end
            _capped_sums(real_before[np.maximum(ends, prefix)], rows - rows[0], real_before[columns]) for ends in spans
        )
        prefix_counts = np.minimum(real_before[columns], real_before[prefix]) * np.diff(rows)[:, None]
        tail_counts = (real_before[np.maximum(columns, tail)] - real_before[tail]) * np.diff(rows)[:, None]
        # The visible cells of each block of rows before each column.
        cells_before = stop_sums - start_sums + prefix_counts + tail_counts
        return np.asarray(np.diff(cells_before, axis=1))

    def _span_of_position(self, position: int) -> tuple[int, int]:
        """Returns start and end of the keys that causal, window and chunk allow a query at ``position``."""
        start, stop = 0, UNBOUNDED
        if self.causal:
            stop = position + 1
        if self.window is not None:
            start, stop = max(start, position - self.window + 1), min(stop, position + self.window)
        if self.chunk is not None:
            chunk_start = position // self.chunk * self.chunk
            start, stop = max(start, chunk_start), min(stop, chunk_start + self.chunk)
        return start, stop

    def _spans_of_positions(self, positions: IntArray) -> tuple[IntArray, IntArray]:
        """Returns starts and ends of the keys that causal, window and chunk allow a query at each position."""
        starts, stops = np.zeros_like(positions), np.full_like(positions, UNBOUNDED)
        if self.causal:
            stops = positions + 1
        if self.window is not None:
            starts, stops = np.maximum(starts, positions - self.window + 1), np.minimum(stops, positions + self.window)
        if self.chunk is not None:
            chunk_starts = positions // self.chunk * self.chunk
            starts, stops = np.maximum(starts, chunk_starts), np.minimum(stops, chunk_starts + self.chunk)
        return starts, stops


def _capped_sums(values: IntArray, edges: IntArray, caps: IntArray) -> IntArray:
    """Returns the sum of ``min(value, cap)`` over each block of rows, ``(blocks, caps)``."""
    sums = np.concatenate([[0], np.cumsum(values)])
    first_above = np.searchsorted(values, caps, side="right")
    cap_rows = np.clip(
        first_above[None, :], edges[:-1, None], edges[1:, None]
    )  # the first row of a block above the cap
    return np.asarray(sums[cap_rows] - sums[edges[:-1], None] + (edges[1:, None] - cap_rows) * caps)
