"""Holds the recording that the inspector shows, another to compare it with, and what is computed from them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.cells import cell_len

from attnviz.browse.session.blocks import (
    MAX_POOLED_CELLS,
    CellBlock,
    InspectedHead,
    LruCache,
    QueryRow,
    RefinedBlock,
    TokenRow,
    pool,
    pooled_blocks,
    unit_cells,
    unit_values,
    unit_window,
)
from attnviz.browse.session.ranking import Ranking
from attnviz.browse.session.state import Direction, Theme, View
from attnviz.maps.grouped import Units, block_cells
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording, cell_heads, chosen_heads, head_name
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.report.picture.colors import LOG_RANGE, SEQUENTIAL, ColorScale, on_paper
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import CHANGE, HEAD, PERCENT, SCORE, Axis, Heading, Panel, Quantity, quantity_of
from attnviz.report.picture.scales import shared_scale
from attnviz.report.picture.structure import LeftOutKeys, Phrase, asked_query, is_causal, left_out_keys
from attnviz.streaming.overview import block_edges
from attnviz.text.head_name import parse_head_name
from attnviz.text.named_groups import TURNS
from attnviz.text.selection import Selection, resolve_span
from attnviz.text.tokens import Tokens, is_padding

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_SPOKEN_CELLS = 250_000  # of a head whose text is shaded as soon as it is chosen
MAX_JOINED_CELLS = 4_000_000  # larger maps show single tokens only: joining reads every cell
MAX_KEPT_UNITS = 1_024  # axes in the cache
Combination = Literal["difference", "mean", "max", "rollout"]
MAX_LINES = 5  # of text under a map
MEAN_GAP = 4  # columns that stay free at the end of a line
MAX_KEPT_TOKENS = 4  # tokens whose rows in every head are cached
SLICE_SECONDS = 0.015  # of work before the next key press is answered
MAX_THUMBNAIL_CELLS = 1_000_000  # pairs of tokens that are read in one slice of work
MAX_KEPT_VIEWS = 8  # views of which the cache keeps a thumbnail of every head
MAX_KEPT_ROWS = 64  # rows of queries in the cache
MAX_KEPT_BLOCKS = 256  # large blocks in the cache
MAX_KEPT_SCREENS = 64  # small blocks in the cache, about one for each screen


@dataclass(eq=False)
class Session:
    """A recording, another to compare it with, and caches of the cells and numbers computed from them.

    Raises:
        AttnvizError: if the heads, queries or keys of the two recordings differ, or if a selected head does not exist
            or has no single cells.
    """

    recording: Recording
    other: Recording | None = None  # to compare it with
    selection: Selection = field(default_factory=Selection)  # the heads to show, and the part at which one opens
    file: str = ""  # of the recording; empty if it is not saved
    address: str = ""  # what is shown first; empty for the overview
    theme: Theme = "terminal"  # the first one
    colormap: str = SEQUENTIAL  # of weights, scores and contributions
    added_frames: "tuple[HeadFrame, ...]" = ()  # numbers of heads from a file, such as effects
    unit_name: str = "words"  # of the units that tokens are joined to, as `attnviz.text.named_groups` knows it
    begins_joined: bool = False
    given_names: Mapping[str, str] = field(default_factory=dict)  # of heads, by ``layer.head``
    names_file: str = ""  # that keeps these names; empty if none was given

    def __post_init__(self) -> None:
        """Replaces the recordings by those of their maps that have cells, and makes the ranking and empty caches."""
        recordings = (self.recording,) if self.other is None else (self.recording, self.other)
        self.recording, *others = block_cells(recordings, self.selection)
        self.other = others[0] if others else None
        self.chosen_heads = chosen_heads(self.recording, self.selection)
        self.heads: list[tuple[CellMaps, int]] = cell_heads(self.chosen_heads)
        self._partners: dict[CellMaps, CellMaps] = {}
        if self.other is not None:
            from attnviz.metrics.change import refuse_mismatch

            refuse_mismatch(self.recording, self.other)
            layers = {maps.layer for maps, _ in self.heads}
            pairs = zip(self.recording.maps, self.other.maps, strict=True)
            self._partners = {
                cell_maps(maps_of_this): cell_maps(maps_of_other)
                for maps_of_this, maps_of_other in pairs
                if maps_of_this.layer in layers
            }
        self.recorded_count = len(self.heads)
        has_several_texts = len({maps.item for maps, _ in self.heads}) > 1
        self.names = [
            head_name(maps, head) + (f" text {maps.item}" if has_several_texts else "") for maps, head in self.heads
        ]
        self._heads_over_tokens_of: dict[CellMaps, list[int]] = {}
        self._head_of_combination: dict[tuple[str, tuple[int, ...]], int] = {}
        self._text_lines: dict[int, int] = {}
        self._units = LruCache[Units](MAX_KEPT_UNITS)
        self.weight_quantity = quantity_of(self.heads[0][0], PERCENT)
        self.ranking = Ranking(self.heads, self.added_frames, self.given_names)
        self.thumbnails, self.token_rows = HeadThumbnails(self), TokenRows(self)
        self.phrases: tuple[Phrase, ...] = ()  # of the sentence on what stands out among all heads, once it is found
        self.unfinished_blocks: list[RefinedBlock] = []  # previews on the screen; emptied before each drawing
        self._query_rows = LruCache[QueryRow](MAX_KEPT_ROWS)
        self._standing_rows = LruCache[TokenRow](MAX_KEPT_BLOCKS)
        self._blocks = LruCache[RefinedBlock](MAX_KEPT_BLOCKS)
        self._cells = LruCache[CellBlock](MAX_KEPT_SCREENS)

    def view_of(self, head: int, view: View) -> View:
        """Returns the view with its toggles changed to those that apply to the head.

        A combination has no scores, and shows a difference only if it is one. A recorded head shows a difference only
        if it has a partner. A map that is too large to join shows single tokens, and implicit attention its means.
        """
        has_partner = self.heads[head][0] in self._partners
        if not self.can_join(head):
            view = replace(view, words=False, special=True)
        if self.weight_quantity.centred:  # whose cells of either sign are pooled by their mean
            view = replace(view, scores=False, mean=True)
        if head >= self.recorded_count:
            return replace(view, difference=has_partner, scores=False)
        return view if has_partner or not view.difference else replace(view, difference=False)

    def heads_called(self, name: str) -> list[int]:
        """Returns the heads with a name, or else all recorded heads that its numbers and its part of the model fit."""
        if name in self.names:
            return [self.names.index(name)]
        parsed = parse_head_name(name)
        if parsed is None:
            return []
        known_heads = [maps.known_head(number) for maps, number in self.heads[: self.recorded_count]]
        return [
            index
            for index, known in enumerate(known_heads)
            if (known.layer, known.head) == parsed[:2] and known.fits(parsed.part)
        ]

    def title(self, head: int) -> str:
        """Returns the name of a head after the word "head"; the name alone of a combination."""
        return self.names[head] if head >= self.recorded_count else f"head {self.names[head]}"

    def combine(self, heads: tuple[int, ...], combination: Combination) -> int:
        """Returns the index of a combination of heads; adds the combination to ``heads`` and ``names`` if it is new."""
        if (combination, heads) not in self._head_of_combination:
            from attnviz.metrics.combine import combined_name, reduce_heads

            names, pairs = [self.names[head] for head in heads], [self.heads[head] for head in heads]
            if combination == "difference":
                name = f"{names[1]} − {names[0]}"
                combined_maps, partner = (reduce_heads([pair], "mean") for pair in pairs)
                self._partners[combined_maps] = partner
            else:
                name = combined_name(combination, names)
                combined_maps = reduce_heads(sorted(pairs, key=lambda pair: pair[0].layer), combination)
            self.heads.append((combined_maps, 0))  # these maps have one head only
            self.names.append(name)
            self._head_of_combination[combination, heads] = len(self.heads) - 1
        return self._head_of_combination[combination, heads]

    def combination_of(self, head: int) -> tuple[str, tuple[int, ...]]:
        """Returns the name of the combination that a head is, such as ``mean``, and its heads.

        For a recorded head, these are "" and the head itself.
        """
        return next((key for key, index in self._head_of_combination.items() if index == head), ("", (head,)))

    def heads_over_same_tokens(self, head: int) -> list[int]:
        """Returns the recorded heads with the same query and key tokens as this one, grouped by attention call."""
        maps = self.heads[head][0]
        if maps not in self._heads_over_tokens_of:
            tokens = _tokens_key(maps)
            calls: dict[int, list[int]] = {}
            for index, (other_maps, _) in enumerate(self.heads[: self.recorded_count]):
                if _tokens_key(other_maps) == tokens:
                    calls.setdefault(id(other_maps), []).append(index)
            self._heads_over_tokens_of[maps] = [index for call in calls.values() for index in call]
        return self._heads_over_tokens_of[maps]

    def can_join(self, head: int) -> bool:
        """True if the head's map is small enough to join tokens or to hide special ones."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MAX_JOINED_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """Returns the units of a head's rows and columns: tokens, joined or without special ones if the view says so.

        A map that is too large to join always has single tokens, special ones included.
        """
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.can_join(head) else (False, True)
        return self._units_of(maps.query_tokens, words, special), self._units_of(maps.key_tokens, words, special)

    def _units_of(self, tokens: Tokens, words: bool, special: bool) -> Units:
        special = special and not (isinstance(tokens.canvas, Sound) and is_padding(tokens, len(tokens) - 1))
        unit_name = self.unit_name if words else "tokens"
        return self._units.get((tokens, words, special), lambda: Units.of(tokens, unit_name, special))

    def text_lines(self, columns: int) -> int:
        """Returns an estimate of the lines that the longest text of a recorded head needs, at most `MAX_LINES`."""
        if columns not in self._text_lines:
            maps_of_heads = [maps for maps, _ in self.heads[: self.recorded_count]]
            axes = {id(tokens): tokens for maps in maps_of_heads for tokens in (maps.query_tokens, maps.key_tokens)}
            used_columns, lines = max(1, columns - 2 - MEAN_GAP), 0
            for tokens in axes.values():
                text_columns = sum(1 + cell_len(label) for label in tokens.labels[: MAX_LINES * columns])
                lines = max(lines, min(MAX_LINES, -(-text_columns // used_columns)))
            self._text_lines[columns] = lines
        return self._text_lines[columns]

    @cached_property
    def left_out(self) -> LeftOutKeys | None:
        """The keys that thumbnails leave out at first, since most heads rest on them; ``None`` if there are none."""
        return left_out_keys(self.chosen_heads)

    @cached_property
    def has_images(self) -> bool:
        """True if keys of a recorded head are patches of images."""
        keys = {id(maps.key_tokens): maps.key_tokens for maps, _ in self.heads[: self.recorded_count]}
        return any(isinstance(medium, Image) for tokens in keys.values() for medium in tokens.media)

    def inspected_head(self, head: int) -> InspectedHead:
        """Returns the attention call and number of a head, its partner, and the number of heads that it combines."""
        maps, number = self.heads[head]
        return InspectedHead(maps, number, self._partners.get(maps), len(self.combination_of(head)[1]))

    def quantity(self, view: View) -> Quantity:
        """Returns the quantity that the view shows: weights, contributions, scores or changes."""
        weight_quantity = SCORE if view.scores else PERCENT
        return quantity_of(self.heads[0][0], CHANGE if view.difference else weight_quantity)

    def selected_spans(self, head: int, view: View) -> tuple[slice, slice] | None:
        """Returns the spans of the selected queries and keys, in units; ``None`` if all are selected."""
        if self.selection.queries == self.selection.keys == (None, None):
            return None
        maps, (rows, columns) = self.heads[head][0], self.units(head, view)
        queries = resolve_span(self.selection.queries, len(maps.query_tokens), "queries")
        keys = resolve_span(self.selection.keys, len(maps.key_tokens), "keys")
        return rows.span(queries), columns.span(keys)

    def panel(
        self, head: int, view: View, rows: slice, columns: slice, height: int, width: int, exact: bool = False
    ) -> Panel:
        """Returns a block of a head as a panel of at most ``height`` x ``width`` cells."""
        row_units, column_units = self.units(head, view)
        read_cells = self._computed_cells if exact else self.cells
        cells = read_cells(head, view, rows, columns, height, width)
        quantity = self.quantity(view)
        maps, _ = self.heads[head]
        noun = self.recording.tower or (HEAD if head < self.recorded_count else "")
        panel = Panel(
            heading=Heading(self.names[head], noun, aspect=" cross" if maps.kind == "cross" else ""),
            values=cells.values,
            visible=cells.visible,
            rows=_axis("queries", row_units, rows, height),
            columns=replace(_axis("keys", column_units, columns, width), across=True),
            quantity=quantity,
            scale=ColorScale(0, 1),
            pool="mean" if pools_by_mean(view) else "max",
        )
        largest = float(np.nanmax(np.abs(cells.values), where=cells.visible, initial=0.0))
        return replace(panel, scale=self._default_scale(view, [cells], fits=False), decimals=quantity.decimals(largest))

    def cells(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> CellBlock:
        """Returns the cells of a block: one for each pair of units if they fit, otherwise pooled.

        A large block of single tokens that has to be pooled is a preview, which is queued for refinement. Blocks are
        cached.
        """
        units = self.units(head, view)
        queries, keys = units[0].part(rows).token_span, units[1].part(columns).token_span
        fits = rows.stop - rows.start <= height and columns.stop - columns.start <= width
        area = (queries.stop - queries.start) * (keys.stop - keys.start)
        is_large = area * self.inspected_head(head).cost > MAX_POOLED_CELLS
        if is_large and not fits and units[0].has_unit_for_each_token and units[1].has_unit_for_each_token:
            key = (head, *pooled_key(view), queries.start, queries.stop, keys.start, keys.stop, height, width)
            block = self._blocks.get(
                key, lambda: RefinedBlock(self.inspected_head(head), view, queries, keys, height, width)
            )
            if not block.is_finished and block not in self.unfinished_blocks:
                self.unfinished_blocks.append(block)
            return block.cells
        cached_view = replace(view, steps="sqrt", own_scale=False, order=None, ascending=False)
        cells_key = (head, cached_view, rows.start, rows.stop, columns.start, columns.stop, height, width)
        return self._cells.get(cells_key, lambda: self._computed_cells(head, view, rows, columns, height, width))

    def scale(
        self, view: View, blocks: list[CellBlock], theme: Theme = "terminal", *, fits: bool = False
    ) -> ColorScale:
        """Returns the colour scale of some blocks, in the theme's colormap.

        That of weights ends at 100 %; with ``fits`` or for means at the largest, where even weights still look even;
        and for a view whose user asked for own scales at the largest, whatever it is.
        """
        return self.themed_scale(self._default_scale(view, blocks, fits), theme)

    def themed_scale(self, scale: ColorScale, theme: Theme) -> ColorScale:
        """Returns a scale with the user's colormap, or that of changes, on the theme's paper; a terminal's is dark."""
        colormap = self.colormap if scale.colormap == SEQUENTIAL else scale.colormap
        return replace(scale, colormap=on_paper(colormap, "light" if theme == "light" else "dark"))

    def _default_scale(self, view: View, blocks: list[CellBlock], fits: bool) -> ColorScale:
        """Returns the colour scale of some blocks, in the default colormap, or in the diverging one for changes."""
        quantity = self.quantity(view)
        if not blocks or (quantity is PERCENT and not (view.own_scale or view.mean or fits)):
            high = 1.0
        else:
            axis = _axis("", Units.of(Tokens.numbered(1)), slice(0, 1), max_cells=1)  # the scale needs no labels
            panels = [
                Panel(Heading(), cells.values, cells.visible, axis, axis, quantity, ColorScale(0, 1))
                for cells in blocks
            ]
            scale = shared_scale(quantity, panels, Look(limits="head") if view.own_scale else None)
            if quantity is not PERCENT:
                return scale
            high = scale.high
        low = high * LOG_RANGE if view.steps == "log" else 0.0
        return ColorScale(low, high, steps=view.steps)

    def row(self, head: int, view: View, query: int) -> QueryRow:
        """Returns the exact numbers of one query over all keys."""

        def read() -> QueryRow:
            inspected_head = self.inspected_head(head)
            rows, columns = self.units(head, view)
            row_side, column_side = (rows, slice(query, query + 1)), (columns, slice(0, len(columns)))
            window = unit_window(inspected_head.maps, inspected_head.number, row_side, column_side)
            weights, scores = window.weights[0, 0], window.scores[0, 0]  # the window has one head and one query
            change, partner = None, inspected_head.partner
            if partner is not None:
                change = unit_values(partner, inspected_head.number, False, row_side, column_side).values[0] - weights
            return QueryRow(weights, scores, change, window.visible[0], columns.remainder)

        return self._query_rows.get((head, view.words, view.special, query), read)

    @cached_property
    def has_short_maps(self) -> bool:
        """True if every map is small enough to read all its cells after each key press."""
        return all(len(maps.query_tokens) * len(maps.key_tokens) <= MAX_SPOKEN_CELLS for maps, _ in self.heads)

    def asked(self, head: int, view: View) -> int:
        """Returns the row that stands for a head where no query is chosen; -1 for the mean of all.

        It is the last turn of a chat, the last token of a causal text, and `asked_query` of a picture or a sound.
        """
        maps, (rows, _) = self.heads[head][0], self.units(head, view)
        if view.words and self.unit_name == TURNS:
            return len(rows) - 1
        tokens = maps.query_tokens
        if any(isinstance(medium, Image | Sound) for medium in maps.key_tokens.media):
            query = asked_query(tokens, slice(0, len(tokens)))
        else:
            query = tokens.unpadded.stop - 1 if is_causal(maps, self.heads[head][1]) else -1
        return -1 if query < 0 else rows.unit_of(query)

    def standing_row(self, head: int, view: View) -> TokenRow:
        """Returns the row that `asked` names, or the mean of a head's rows: for each key, over the queries that see it.

        A key that no query sees is masked. It may read all cells of the head, so it suits short maps.
        """

        def read() -> TokenRow:
            head_view, asked = self.view_of(head, view), self.asked(head, view)
            rows, keys = self.units(head, head_view)
            shown_rows = slice(asked, asked + 1) if asked >= 0 else slice(0, len(rows))
            cells = unit_cells(self.inspected_head(head), head_view, (rows, shown_rows), (keys, slice(0, len(keys))))
            return TokenRow.mean(cells, keys.remainder)

        return self._standing_rows.get((head, view.scores, view.difference, view.words, view.special), read)

    def _computed_cells(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> CellBlock:
        """Returns all cells of a block, computed now: one for each pair of units if they fit, otherwise pooled."""
        row_units, column_units = self.units(head, view)
        fits = rows.stop - rows.start <= height and columns.stop - columns.start <= width
        if row_units.has_unit_for_each_token and column_units.has_unit_for_each_token and not fits:
            spans = row_units.part(rows).token_span, column_units.part(columns).token_span
            [cells] = pooled_blocks([self.inspected_head(head)], view, *spans, height, width)
            return cells
        cells = unit_cells(self.inspected_head(head), view, (row_units, rows), (column_units, columns))
        return pool(cells, height, width, mean=pools_by_mean(view))


class TokenRows:
    """Computes the row of a token in every head, one slice of time after another, and caches the latest."""

    def __init__(self, heads: Session) -> None:
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
            remainder = (columns if direction == "to" else rows).remainder
            row = TokenRow(np.ravel(cells.values), np.ravel(cells.visible), remainder, head_view.difference)
            self._cache.keep(cache_key, row)
            computed_heads.append(head)
            if time.monotonic() > deadline:
                break
        return computed_heads


def _token_key(head: int, view: View, token: int, direction: Direction) -> tuple[object, ...]:
    """Returns the cache key of a token's row: everything on which its numbers depend."""
    return head, view.scores, view.difference, view.words, view.special, token, direction


class HeadThumbnails:
    """Computes thumbnails of all heads, whole maps in few cells, and caches those of the latest views."""

    def __init__(self, heads: Session) -> None:
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


def _tokens_key(maps: CellMaps) -> tuple[object, ...]:
    """Returns values that are equal for two attention calls over the same queries and keys."""
    return maps.kind, maps.item, maps.query_tokens.labels, maps.key_tokens.labels


def pools_by_mean(view: View) -> bool:
    """True if the view pools cells by their mean instead of their maximum."""
    return view.mean or view.difference or view.scores


def _axis(name: str, units: Units, span: slice, max_cells: int) -> Axis:
    """Returns an axis of at most ``max_cells`` cells over a span of units."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, max_cells))
    has_cell_for_each_unit = len(edges) == count + 1
    if has_cell_for_each_unit:
        return Axis(name=name, labels=units.labels[span], edges=tuple(edges.tolist()))
    starts = units.starts[edges[:-1]].tolist()
    labels = tuple(str(start) for start in starts)
    return Axis(name=name, labels=labels, edges=(*starts, int(units.stops[span.stop - 1])))
