"""Holds the recording that the inspector shows, another to compare it with, and what is computed from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnviz.browse.session.blocks import (
    MAX_POOLED_CELLS,
    CellBlock,
    LruCache,
    RefinedBlock,
    pool,
    pooled_blocks,
    unit_cells,
    unit_values,
    unit_window,
)
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.ranking import Ranking
from attnviz.browse.session.rows import HeadThumbnails, QueryRow, TokenRow, TokenRows, pooled_key
from attnviz.browse.session.state import Theme, View
from attnviz.maps.grouped import block_cells
from attnviz.maps.recording import Recording
from attnviz.report.picture.colors import LOG_RANGE, SEQUENTIAL, ColorScale, on_paper
from attnviz.report.picture.panels import CHANGE, HEAD, PERCENT, SCORE, Axis, Heading, Panel, Quantity, quantity_of
from attnviz.report.picture.scales import shared_scale
from attnviz.report.picture.structure import Phrase
from attnviz.streaming.overview import block_edges
from attnviz.text.selection import Selection, resolve_span
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_SPOKEN_CELLS = 250_000  # of a head whose text is shaded as soon as it is chosen
MAX_KEPT_ROWS = 64  # rows of queries in the cache
MAX_KEPT_BLOCKS = 256  # large blocks in the cache
MAX_KEPT_SCREENS = 64  # small blocks in the cache, about one for each screen


@dataclass(eq=False)
class Session(InspectedHeads):
    """A recording, another to compare it with, and caches of the cells and numbers computed from them.

    Raises:
        AttnvizError: if the heads, queries or keys of the two recordings differ, or if a selected head does not exist
            or has no single cells.
    """

    recording: Recording
    other: Recording | None = None  # to compare it with
    selection: Selection = field(default_factory=Selection)  # the heads to show, and the part at which one opens
    file: str = ""  # of the recording; empty if it is not saved
    address: str = ""  # the first place; empty for the overview
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
        super().__init__(self.recording, self.other, self.selection, self.unit_name)
        self.weight_quantity = quantity_of(self.heads[0][0], PERCENT)
        self.ranking = Ranking(self.heads, self.added_frames, self.given_names)
        self.thumbnails, self.token_rows = HeadThumbnails(self), TokenRows(self)
        self.phrases: tuple[Phrase, ...] = ()  # of the sentence on what stands out among all heads, once it is found
        self.unfinished_blocks: list[RefinedBlock] = []  # previews on the screen; emptied before each drawing
        self._query_rows = LruCache[QueryRow](MAX_KEPT_ROWS)
        self._mean_rows = LruCache[TokenRow](MAX_KEPT_BLOCKS)
        self._blocks = LruCache[RefinedBlock](MAX_KEPT_BLOCKS)
        self._cells = LruCache[CellBlock](MAX_KEPT_SCREENS)

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
        return replace(panel, scale=self._default_scale(view, [cells]), decimals=quantity.decimals(largest))

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

    def scale(self, view: View, blocks: list[CellBlock], theme: Theme = "terminal") -> ColorScale:
        """Returns the colour scale of some blocks, in the theme's colormap."""
        return self.themed_scale(self._default_scale(view, blocks), theme)

    def themed_scale(self, scale: ColorScale, theme: Theme) -> ColorScale:
        """Returns a scale with the user's colormap, or that of changes, on the theme's paper; a terminal's is dark."""
        colormap = self.colormap if scale.colormap == SEQUENTIAL else scale.colormap
        return replace(scale, colormap=on_paper(colormap, "light" if theme == "light" else "dark"))

    def _default_scale(self, view: View, blocks: list[CellBlock]) -> ColorScale:
        """Returns the colour scale of some blocks, in the default colormap, or in the diverging one for changes."""
        quantity = self.quantity(view)
        if not blocks or (quantity is PERCENT and not view.own_scale and not view.mean):
            high = 1.0
        else:
            axis = _axis("", Units.of(Tokens.numbered(1)), slice(0, 1), max_cells=1)  # the scale needs no labels
            panels = [
                Panel(Heading(), cells.values, cells.visible, axis, axis, quantity, ColorScale(0, 1))
                for cells in blocks
            ]
            scale = shared_scale(quantity, panels)
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
            return QueryRow(weights, scores, change, window.visible[0])

        return self._query_rows.get((head, view.words, view.special, query), read)

    @cached_property
    def has_short_maps(self) -> bool:
        """True if every map is small enough to read all its cells after each key press."""
        return all(len(maps.query_tokens) * len(maps.key_tokens) <= MAX_SPOKEN_CELLS for maps, _ in self.heads)

    def mean_row(self, head: int, view: View) -> TokenRow:
        """Returns the mean of a head's rows: for each key, over the queries that see it.

        A key that no query sees is masked. It reads all cells of the head, so it suits short maps.
        """

        def mean() -> TokenRow:
            head_view = self.view_of(head, view)
            sides = tuple((units, slice(0, len(units))) for units in self.units(head, head_view))
            cells = unit_cells(self.inspected_head(head), head_view, *sides)
            counts = cells.visible.sum(axis=0)
            totals = np.where(cells.visible, cells.values, 0).sum(axis=0)
            return TokenRow((totals / np.maximum(counts, 1)).astype(np.float32), counts > 0)

        return self._mean_rows.get((head, view.scores, view.difference, view.words, view.special), mean)

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
