"""Computes small results of many heads in slices of time: exact rows of a query or of a token, and thumbnails."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.blocks import (
    MAX_POOLED_CELLS,
    CellBlock,
    LruCache,
    RefinedBlock,
    pooled_blocks,
    unit_cells,
)
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import Direction, View
from attnviz.media.sound import Sound

MAX_KEPT_TOKENS = 4  # tokens whose rows in every head are cached
SLICE_SECONDS = 0.015  # of work before the next key press is answered
MAX_THUMBNAIL_CELLS = 1_000_000  # pairs of tokens that are read in one slice of work
MAX_KEPT_VIEWS = 8  # views of which the cache keeps a thumbnail of every head


@dataclass(frozen=True, eq=False)
class QueryRow:
    """The numbers of one query, one for each key, ``(keys,)`` in units."""

    weights: FloatArray  # after the softmax
    scores: FloatArray  # before the mask
    change: FloatArray | None  # the other recording's weights minus these, if there is one
    visible: BoolArray  # False for masked keys

    def numbers(self, view: View) -> FloatArray:
        """Returns the numbers that the view shows: changes, scores or weights; no changes without another recording."""
        if view.difference and self.change is not None:
            return self.change
        return self.scores if view.scores else self.weights

    def strongest_keys(self, view: View) -> list[int]:
        """Returns the visible keys by the number that the view shows, or the absolute change, largest first."""
        numbers = self.numbers(view)
        values = np.where(self.visible, np.abs(numbers) if view.difference else numbers, -np.inf)
        order = np.argsort(-values, kind="stable")
        keys: list[int] = order[self.visible[order]].tolist()
        return keys


@dataclass(frozen=True, eq=False)
class TokenRow:
    """The row of a query or the column of a key in one head, ``(units,)``: values, and False where they are masked."""

    values: FloatArray
    visible: BoolArray

    @cached_property
    def strongest_unit(self) -> int:
        """The visible unit with the largest absolute value; the first unit if every cell is masked."""
        return int(np.argmax(np.where(self.visible, np.abs(np.nan_to_num(self.values)), -1)))

    @cached_property
    def largest_value(self) -> float:
        """The largest absolute value among the visible ones; 0 if every cell is masked."""
        unit = self.strongest_unit
        return float(np.abs(np.nan_to_num(self.values[unit]))) if self.visible[unit] else 0.0


class TokenRows:
    """Computes the row of a token in every head, one slice of time after another, and caches the latest."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._cache = LruCache[TokenRow](MAX_KEPT_TOKENS * heads.recorded_count)

    def find(self, head: int, view: View, token: int, direction: Direction) -> TokenRow | None:
        """Returns the cached row of a token in a head; ``None`` if it is not computed yet."""
        return self._cache.find(_token_key(head, view, token, direction))

    def compute(self, heads: Sequence[int], view: View, token: int, direction: Direction) -> list[int]:
        """Computes and caches the missing rows of some heads, and stops after the first row past ``SLICE_SECONDS``.

        Returns:
            The heads whose rows were computed by this call; empty if no row was missing.
        """
        deadline = time.monotonic() + SLICE_SECONDS
        computed_heads: list[int] = []
        for head in heads:
            cache_key = _token_key(head, view, token, direction)
            if cache_key in self._cache:
                continue
            rows, columns = self.heads.units(head, view)
            token_span = slice(token, token + 1)
            row_span = token_span if direction == "to" else slice(0, len(rows))
            column_span = token_span if direction == "from" else slice(0, len(columns))
            head_view = self.heads.view_of(head, view)
            cells = unit_cells(self.heads.inspected_head(head), head_view, (rows, row_span), (columns, column_span))
            self._cache.keep(cache_key, TokenRow(np.ravel(cells.values), np.ravel(cells.visible)))
            computed_heads.append(head)
            if time.monotonic() > deadline:
                break
        return computed_heads


def _token_key(head: int, view: View, token: int, direction: Direction) -> tuple[object, ...]:
    """Returns the cache key of a token's row: everything on which its numbers depend."""
    return head, view.scores, view.difference, view.words, view.special, token, direction


class HeadThumbnails:
    """Computes thumbnails of all heads, whole maps in few cells, and caches those of the latest views."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._cache = LruCache[CellBlock | RefinedBlock](MAX_KEPT_VIEWS * heads.recorded_count)

    def find(self, head: int, view: View, pixels: int) -> CellBlock | None:
        """Returns the cached thumbnail of a head, which may be a preview; ``None`` if it is not computed yet."""
        thumbnail = self._cache.find((head, *pooled_key(view, pixels, view.all_keys)))
        return thumbnail.cells if isinstance(thumbnail, RefinedBlock) else thumbnail

    def unfinished_blocks(self, heads: list[int], view: View, pixels: int) -> list[RefinedBlock]:
        """Returns the previews among the cached thumbnails of some heads that are not refined yet."""
        thumbnails = (self._cache.find((head, *pooled_key(view, pixels, view.all_keys))) for head in heads)
        return [block for block in thumbnails if isinstance(block, RefinedBlock) and not block.is_finished]

    def compute(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes and caches missing thumbnails: the first one, and others of its attention call if its map is short.

        The thumbnail of a long map begins as a preview, which is refined later. That of a sound ends where it ends. The
        keys on which most heads rest are left out, unless the view draws all keys.

        Returns:
            The heads whose thumbnails were computed now; empty if none was missing.
        """
        key = pooled_key(view, pixels, view.all_keys)
        missing = [head for head in heads if (head, *key) not in self._cache]
        if not missing:
            return []
        maps = self.heads.heads[missing[0]][0]
        queries, keys = (
            tokens.unpadded if isinstance(tokens.canvas, Sound) else slice(0, len(tokens))
            for tokens in (maps.query_tokens, maps.key_tokens)
        )
        left_out, is_left_out = None if view.all_keys else self.heads.left_out, None
        if left_out is not None:
            is_left_out = left_out.among(maps.key_tokens, keys)
            others = np.flatnonzero(~is_left_out)
            keys = slice(keys.start + int(others[0]), keys.start + int(others[-1]) + 1)
            is_left_out = is_left_out[others[0] : others[-1] + 1]  # between others, which only single cells can show
        area = (queries.stop - queries.start) * (keys.stop - keys.start)
        if area > MAX_POOLED_CELLS:
            block = RefinedBlock(self.heads.inspected_head(missing[0]), view, queries, keys, pixels, pixels)
            self._cache.keep((missing[0], *key), block)
            return missing[:1]
        batch = [head for head in missing if self.heads.heads[head][0] is maps][: max(1, MAX_THUMBNAIL_CELLS // area)]
        inspected_heads = [self.heads.inspected_head(head) for head in batch]
        thumbnails = pooled_blocks(inspected_heads, view, queries, keys, pixels, pixels)
        for head, thumbnail in zip(batch, thumbnails, strict=True):
            if is_left_out is not None and thumbnail.visible.shape[1] == len(is_left_out):
                thumbnail = CellBlock(thumbnail.values, thumbnail.visible & ~is_left_out)
            self._cache.keep((head, *key), thumbnail)
        return batch


def pooled_key(view: View, *extra: int) -> tuple[object, ...]:
    """Returns a cache key: the toggles that change pooled cells, then the numbers of ``extra``."""
    return view.scores, view.difference, view.mean, *extra
