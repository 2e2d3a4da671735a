"""The recordings that the inspector shows, and what it has computed of them: thumbnails, rows, the order of heads."""

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.blocks import (
    MAX_POOLED_CELLS,
    CellBlock,
    InspectedHead,
    RefinedBlock,
    joined,
    joined_window,
    pool,
    pooled,
    unit_cells,
)
from attnviz.browse.cache import LruCache
from attnviz.browse.ranking import Ranking
from attnviz.browse.state import Direction, MapShape, Theme, View
from attnviz.maps.block_cells import block_cells
from attnviz.maps.heads import cell_heads, choose, head_name
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.report.colors import LOG_RANGE, SEQUENTIAL, TEXT_COLORMAPS, ColorScale
from attnviz.report.panels import CHANGE, PERCENT, SCORE, Axis, Panel, Quantity, quantity_of
from attnviz.report.scales import shared_scale
from attnviz.streaming.overview import block_edges
from attnviz.text.selection import Selection, resolve_span
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_JOINED_CELLS = 4_000_000  # of a head whose words are joined
MAX_THUMBNAIL_CELLS = 1_000_000  # read for one slice of work between two keys
MAX_KEPT_BLOCKS = 256  # large blocks that are kept
MAX_KEPT_UNITS = 1_024  # axes, by what their units are
MAX_KEPT_SCREENS = 64  # blocks of cells, and rows, that are kept
MAX_KEPT_VIEWS = 8  # of every head's thumbnail
MAX_NAMED = 6  # heads in the name of what they make
MAX_KEPT_TOKENS = 4  # of which every head's row is kept
SECONDS_A_SLICE = 0.015  # of work between two keys
Together = Literal["difference", "mean", "max", "rollout"]
TOGETHER_WORDS = {"mean": "mean", "max": "maximum", "rollout": "rollout"}


@dataclass(frozen=True, eq=False)
class QueryRow:
    """All keys of one query, ``(keys,)`` in units.

    Attributes:
        weights: after the softmax.
        scores: before the mask.
        change: how much the other recording's weights differ; ``None`` without one.
        visible: whether the query may look there.
    """

    weights: FloatArray
    scores: FloatArray
    change: FloatArray | None
    visible: BoolArray

    def shown(self, view: View) -> FloatArray:
        """What the map shows of the row."""
        if view.difference and self.change is not None:
            return self.change
        return self.scores if view.scores else self.weights

    def strongest(self, view: View) -> list[int]:
        """The keys by what is shown, the largest value or the largest change first."""
        shown = self.shown(view)
        values = np.where(self.visible, np.abs(shown) if view.difference else shown, -np.inf)
        order = np.argsort(-values, kind="stable")
        places: list[int] = order[self.visible[order]].tolist()
        return places


@dataclass(frozen=True, eq=False)
class TokenRow:
    """One token in one head: the keys of a query, or the queries of a key, ``(units,)``.

    Attributes:
        values: what is shown of each.
        visible: whether the query may look there.
    """

    values: FloatArray
    visible: BoolArray

    @cached_property
    def strongest(self) -> int:
        """Where the largest value is."""
        return int(np.argmax(np.where(self.visible, np.abs(np.nan_to_num(self.values)), -1)))

    @cached_property
    def largest(self) -> float:
        """The largest visible value of any sign, 0 where there is none."""
        return float(np.abs(np.nan_to_num(self.values[self.strongest]))) if self.visible[self.strongest] else 0.0


@dataclass(eq=False)
class Session:
    """The recording, the one that it differs from if any, and caches.

    Attributes:
        recording: what is shown.
        other: what it is compared with.
        selection: the heads shown, and the queries and keys that one opens at.
        file: where the recording is saved; empty where it was made for this.
        at: the place that is shown first, as an address names it; empty for all heads.
        theme: the colours that it begins with.
        colormap: of weights, scores and contributions.
        added: numbers of heads that are known beside what is measured.
        heads: each head's attention call and its number there, then heads that are made of these; the place in this
            list stands for a head elsewhere.
        recorded: how many of them are the recording's.
        names: every head as ``layer.head``, told apart by its text where there are several.
        weights: what weights are called, and how they are written.
        ranking: what is measured of the heads.
        wanted: blocks on the screen that are still to be refined, emptied before each screen is drawn.

    Raises:
        AttnvizError: if the two recordings' heads, queries or keys do not correspond, or what is selected is not there
            or has no single cells.
    """

    recording: Recording
    other: Recording | None = None
    selection: Selection = field(default_factory=Selection)
    file: str = ""
    at: str = ""
    theme: Theme = "terminal"
    colormap: str = SEQUENTIAL
    added: "tuple[HeadFrame, ...]" = ()

    def __post_init__(self) -> None:
        others = [] if self.other is None else [self.other]
        self.recording, *others = block_cells((self.recording, *others), self.selection)
        self.other = others[0] if others else None
        self.heads: list[tuple[CellMaps, int]] = cell_heads(choose(self.recording, self.selection))
        self._partners: dict[CellMaps, CellMaps] = {}
        if self.other is not None:
            from attnviz.metrics.change import refuse_unlike

            refuse_unlike(self.recording, self.other)
            layers = {maps.layer for maps, _ in self.heads}
            pairs = zip(self.recording.maps, self.other.maps, strict=True)
            self._partners = {cell_maps(a): cell_maps(b) for a, b in pairs if a.layer in layers}
        self.recorded = len(self.heads)
        batch = len({maps.item for maps, _ in self.heads}) > 1
        self.names = [head_name(maps, head) + (f" text {maps.item}" if batch else "") for maps, head in self.heads]
        self._alike: dict[CellMaps, list[int]] = {}
        self._made: dict[tuple[str, tuple[int, ...]], int] = {}
        self.weights = quantity_of(self.heads[0][0], PERCENT)
        self.ranking = Ranking(self.heads, self.added)
        self.wanted: list[RefinedBlock] = []
        self._units = LruCache[Units](MAX_KEPT_UNITS)
        self._thumbnails = LruCache[CellBlock | RefinedBlock](MAX_KEPT_VIEWS * len(self.heads))
        self._blocks = LruCache[RefinedBlock](MAX_KEPT_BLOCKS)
        self._cells = LruCache[CellBlock](MAX_KEPT_SCREENS)
        self._rows = LruCache[QueryRow](MAX_KEPT_SCREENS)
        self._token_rows = LruCache[TokenRow](MAX_KEPT_TOKENS * self.recorded)

    def quantity(self, view: View) -> Quantity:
        """What the cells are."""
        return quantity_of(self.heads[0][0], CHANGE if view.difference else SCORE if view.scores else PERCENT)

    def view_of(self, head: int, view: View) -> View:
        """What of the view a head can show: a difference where there is something that it differs from."""
        differs = self._differs(head)
        if head >= self.recorded:
            return replace(view, difference=differs, scores=False)
        return view if differs or not view.difference else replace(view, difference=False)

    def combine(self, heads: tuple[int, ...], how: Together) -> int:
        """The place of the head that several make together; it is made once.

        Raises:
            AttnvizError: if they cannot be combined so.
        """
        if (how, heads) not in self._made:
            name = self._named(heads, how)
            pairs = [self.heads[head] for head in heads]
            made = self._difference(pairs) if how == "difference" else self._reduced(sorted(pairs, key=_layer), how)
            self.heads.append((made, 0))
            self.names.append(name)
            self._made[how, heads] = len(self.heads) - 1
        return self._made[how, heads]

    def made_of(self, head: int) -> tuple[str, tuple[int, ...]]:
        """How a head was made of others, and of which; of itself where it is recorded."""
        return next((made for made, place in self._made.items() if place == head), ("", (head,)))

    def alike(self, head: int) -> list[int]:
        """The recorded heads over the same tokens as this one."""
        maps = self.heads[head][0]
        if maps not in self._alike:
            tokens = _texts(maps)
            groups = (group for group in self.ranking.layers if _texts(self.heads[group[0]][0]) == tokens)
            self._alike[maps] = [other for group in groups for other in group]
        return self._alike[maps]

    def joins(self, head: int) -> bool:
        """Whether the head is small enough for words to be joined and tokens hidden."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MAX_JOINED_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """What the rows and the columns of a head stand for."""
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.joins(head) else (False, True)
        return self._units_of(maps.query_tokens, words, special), self._units_of(maps.key_tokens, words, special)

    def shape(self, head: int, view: View) -> MapShape:
        """How many units a head has on each axis, and how wide their labels are."""
        rows, columns = self.units(head, view)
        return MapShape(len(rows), len(columns), rows.widest, columns.widest)

    def selected(self, head: int, view: View) -> tuple[slice, slice] | None:
        """The units of the queries and keys that were selected; ``None`` where all are."""
        if self.selection.queries == self.selection.keys == (None, None):
            return None
        queries, keys = self._spans(self.heads[head][0])
        rows, columns = self.units(head, view)
        return rows.span(queries), columns.span(keys)

    def thumbnail(self, head: int, view: View, pixels: int) -> CellBlock | None:
        """The whole head in at most ``pixels`` x ``pixels`` cells, as far as it has been computed."""
        found = self._thumbnails.find((head, *_pooled_key(view, pixels)))
        return found.cells if isinstance(found, RefinedBlock) else found

    def want_thumbnails(self, heads: list[int], view: View, pixels: int) -> None:
        """Has those of these thumbnails refined that are not."""
        found = (self._thumbnails.find((head, *_pooled_key(view, pixels))) for head in heads)
        self.wanted += [each for each in found if isinstance(each, RefinedBlock) and not each.finished]

    def compute_thumbnails(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes one slice of the thumbnails of these heads, and returns those of the slice."""
        key = _pooled_key(view, pixels)
        missing = [head for head in heads if (head, *key) not in self._thumbnails]
        if not missing:
            return []
        maps = self.heads[missing[0]][0]
        whole = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
        if whole[0].stop * whole[1].stop > MAX_POOLED_CELLS:
            block = RefinedBlock(self._head(missing[0]), view, *whole, pixels, pixels)
            self._thumbnails.keep((missing[0], *key), block)
            return missing[:1]
        most = max(1, MAX_THUMBNAIL_CELLS // (whole[0].stop * whole[1].stop))
        batch = [head for head in missing if self.heads[head][0] is maps][:most]
        cells = pooled([self._head(head) for head in batch], view, *whole, pixels, pixels)
        for head, each in zip(batch, cells, strict=True):
            self._thumbnails.keep((head, *key), each)
        return batch

    def panel(
        self, head: int, view: View, rows: slice, columns: slice, height: int, width: int, whole: bool = False
    ) -> Panel:
        """The block of units as it is drawn in at most ``height`` x ``width`` cells; ``whole`` waits for all of it."""
        row_units, column_units = self.units(head, view)
        block = (head, view, rows, columns, height, width)
        cells = self._block(*block) if whole else self.cells(*block)
        quantity = self.quantity(view)
        panel = Panel(
            title=f"head {self.names[head]}{' cross' if self.heads[head][0].kind == 'cross' else ''}",
            values=cells.values,
            visible=cells.visible,
            rows=_axis("queries", row_units, rows, height),
            columns=_axis("keys", column_units, columns, width),
            quantity=quantity,
            scale=ColorScale(0, 1),
            pool="mean" if means(view) else "max",
        )
        largest = float(np.nanmax(np.abs(cells.values), where=cells.visible, initial=0.0))
        return replace(panel, scale=self._scale(view, [cells]), decimals=quantity.decimals(largest))

    def cells(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> CellBlock:
        """The values of a block, each unit its own cell where they fit, else pooled: large ones as far as they are."""
        units = self.units(head, view)
        queries, keys = units[0].part(rows).token_span, units[1].part(columns).token_span
        fits = rows.stop - rows.start <= height and columns.stop - columns.start <= width
        area = (queries.stop - queries.start) * (keys.stop - keys.start)
        large = area * self._head(head).cost > MAX_POOLED_CELLS
        if large and not fits and units[0].plain and units[1].plain:
            return self._refined(head, view, queries, keys, height, width)
        shown = replace(view, steps="sqrt", own=False, order=None, ascending=False)
        key = (head, shown, rows.start, rows.stop, columns.start, columns.stop, height, width)
        return self._cells.get(key, lambda: self._block(head, view, rows, columns, height, width))

    def scale(self, view: View, shown: list[CellBlock], theme: Theme = "terminal") -> ColorScale:
        """The colours: weights from 0 to 1 for every head, unless the view gives each head its own."""
        return self.themed(self._scale(view, shown), theme)

    def themed(self, scale: ColorScale, theme: Theme) -> ColorScale:
        """The scale in the colours of the theme, or in those that were asked for: changes keep theirs."""
        if scale.colormap != SEQUENTIAL:
            return scale
        colormap = self.colormap if self.colormap != SEQUENTIAL else TEXT_COLORMAPS.get(theme, SEQUENTIAL)
        return replace(scale, colormap=colormap)

    def _scale(self, view: View, shown: list[CellBlock]) -> ColorScale:
        """The scale in the usual colours."""
        quantity = self.quantity(view)
        if not shown or (quantity is PERCENT and not view.own and not view.mean):
            high = 1.0
        else:
            blank = _axis("", Units.of(Tokens.numbered(1)), slice(0, 1), 1)
            panels = [
                Panel("", cells.values, cells.visible, blank, blank, quantity, ColorScale(0, 1)) for cells in shown
            ]
            scale = shared_scale(quantity, panels)
            if quantity is not PERCENT:
                return scale
            high = scale.high
        low = high * LOG_RANGE if view.steps == "log" else 0.0
        return ColorScale(low, high, steps=view.steps)

    def row(self, head: int, view: View, query: int) -> QueryRow:
        """One query's weights and scores over all keys, exactly."""
        key = (head, view.words, view.special, query)
        return self._rows.get(key, lambda: self._read_row(head, view, query))

    def token_row(self, head: int, view: View, token: int, direction: Direction) -> TokenRow | None:
        """What a head's query looks at, or who looks at its key, exactly, if it has been computed."""
        return self._token_rows.find(_token_key(head, view, token, direction))

    def compute_token_rows(self, heads: list[int], view: View, token: int, direction: Direction) -> list[int]:
        """Computes one slice of the rows of these heads, and returns those of the slice."""
        end = time.monotonic() + SECONDS_A_SLICE
        done: list[int] = []
        for head in heads:
            key = _token_key(head, view, token, direction)
            if key in self._token_rows:
                continue
            self._token_rows.keep(key, self._token_row(head, view, token, direction))
            done.append(head)
            if time.monotonic() > end:
                break
        return done

    def _token_row(self, head: int, view: View, token: int, direction: Direction) -> TokenRow:
        rows, columns = self.units(head, view)
        one, every = slice(token, token + 1), slice(0, len(columns if direction == "to" else rows))
        spans = (one, every) if direction == "to" else (every, one)
        cells = unit_cells(self._head(head), self.view_of(head, view), (rows, spans[0]), (columns, spans[1]))
        return TokenRow(np.ravel(cells.values), np.ravel(cells.visible))

    def _differs(self, head: int) -> bool:
        return self.heads[head][0] in self._partners

    def _named(self, heads: tuple[int, ...], how: Together) -> str:
        names = [self.names[head] for head in heads]
        if how == "difference":
            return f"{names[1]} − {names[0]}"
        return f"{TOGETHER_WORDS[how]} of {', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} heads'}"

    def _difference(self, pairs: list[tuple[CellMaps, int]]) -> CellMaps:
        before, after = (self._reduced([pair], "mean") for pair in pairs)
        self._partners[before] = after
        return before

    def _reduced(self, pairs: list[tuple[CellMaps, int]], how: str) -> CellMaps:
        from attnviz.metrics.combine import reduce_heads

        return reduce_heads(pairs, how)

    def _spans(self, maps: LayerMaps) -> tuple[slice, slice]:
        queries = resolve_span(self.selection.queries, len(maps.query_tokens), "queries")
        return queries, resolve_span(self.selection.keys, len(maps.key_tokens), "keys")

    def _units_of(self, tokens: Tokens, words: bool, special: bool) -> Units:
        return self._units.get(
            (tokens, words, special), lambda: Units.of(tokens, "words" if words else "tokens", special)
        )

    def _head(self, head: int) -> InspectedHead:
        maps, number = self.heads[head]
        return InspectedHead(maps, number, self._partners.get(maps), len(self.made_of(head)[1]))

    def _refined(self, head: int, view: View, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
        """The cells of a large block as far as they are computed; the rest is wanted from now on."""
        key = (head, *_pooled_key(view), queries.start, queries.stop, keys.start, keys.stop, height, width)
        block = self._blocks.get(key, lambda: RefinedBlock(self._head(head), view, queries, keys, height, width))
        if not block.finished and block not in self.wanted:
            self.wanted.append(block)
        return block.cells

    def _block(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> CellBlock:
        """A block that is pooled at once, or each of whose units is a cell."""
        row_units, column_units = self.units(head, view)
        fits = rows.stop - rows.start <= height and columns.stop - columns.start <= width
        if row_units.plain and column_units.plain and not fits:
            spans = row_units.part(rows).token_span, column_units.part(columns).token_span
            [cells] = pooled([self._head(head)], view, *spans, height, width)
            return cells
        cells = unit_cells(self._head(head), view, (row_units, rows), (column_units, columns))
        return pool(cells, height, width, mean=means(view))

    def _read_row(self, head: int, view: View, query: int) -> QueryRow:
        maps, number = self.heads[head]
        rows, columns = self.units(head, view)
        places = (rows, slice(query, query + 1)), (columns, slice(0, len(columns)))
        read = joined_window(maps, number, *places)
        change, partner = None, self._partners.get(maps)
        if partner is not None:
            change = joined(partner, number, False, *places).values[0] - read.weights[0, 0]
        return QueryRow(read.weights[0, 0], read.scores[0, 0], change, read.visible[0])


def _texts(maps: CellMaps) -> tuple[object, ...]:
    return maps.kind, maps.item, maps.query_tokens.labels, maps.key_tokens.labels


def _layer(pair: tuple[CellMaps, int]) -> int:
    return pair[0].layer


def _token_key(head: int, view: View, token: int, direction: Direction) -> tuple[object, ...]:
    return head, view.scores, view.difference, view.words, view.special, token, direction


def means(view: View) -> bool:
    """Whether pooled cells are means."""
    return view.mean or view.difference or view.scores


def _pooled_key(view: View, *rest: int) -> tuple[object, ...]:
    return view.scores, view.difference, view.mean, *rest


def _axis(name: str, units: Units, span: slice, cells: int) -> Axis:
    """The axis over a span of units, in at most so many cells: each a unit by its label, or a block by its token."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, cells))
    if len(edges) == count + 1:
        return Axis(name=name, labels=units.labels[span], edges=tuple(edges.tolist()))
    starts = units.starts[edges[:-1]].tolist()
    labels = tuple(str(start) for start in starts)
    return Axis(name=name, labels=labels, edges=(*starts, int(units.stops[span.stop - 1])))
