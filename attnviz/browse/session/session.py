"""The recordings that the inspector shows, and what it has computed of them."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.browse.session.blocks import MAX_POOLED_CELLS, CellBlock, RefinedBlock, pool, pooled, unit_cells
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.ranking import Ranking
from attnviz.browse.session.rows import QueryRow, QueryRows, TokenRows
from attnviz.browse.session.state import Theme, View
from attnviz.browse.session.thumbnails import HeadThumbnails, pooled_key
from attnviz.maps.block_cells import block_cells
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.report.picture.colors import LOG_RANGE, SEQUENTIAL, TEXT_COLORMAPS, ColorScale
from attnviz.report.picture.panels import CHANGE, PERCENT, SCORE, Axis, Panel, Quantity, quantity_of
from attnviz.report.picture.scales import shared_scale
from attnviz.streaming.overview import block_edges
from attnviz.text.selection import Selection, resolve_span
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_KEPT_BLOCKS = 256  # large blocks that are kept
MAX_KEPT_SCREENS = 64  # blocks of cells that are kept


@dataclass(eq=False)
class Session(InspectedHeads):
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
        by: the groups that tokens are joined to, as `named_groups` takes them.
        begins_joined: whether they are joined from the beginning.
        weights: what weights are called, and how they are written.
        ranking: what is measured of the heads.
        thumbnails: whole heads in few cells.
        token_rows: one token in every head.
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
    by: str = "words"
    begins_joined: bool = False

    def __post_init__(self) -> None:
        others = [] if self.other is None else [self.other]
        self.recording, *others = block_cells((self.recording, *others), self.selection)
        self.other = others[0] if others else None
        super().__init__(self.recording, self.other, self.selection, self.by)
        self.weights = quantity_of(self.heads[0][0], PERCENT)
        self.ranking = Ranking(self.heads, self.added)
        self.thumbnails, self.token_rows = HeadThumbnails(self), TokenRows(self)
        self.wanted: list[RefinedBlock] = []
        self._query_rows = QueryRows(self)
        self._blocks = LruCache[RefinedBlock](MAX_KEPT_BLOCKS)
        self._cells = LruCache[CellBlock](MAX_KEPT_SCREENS)

    def quantity(self, view: View) -> Quantity:
        """What the cells are."""
        return quantity_of(self.heads[0][0], CHANGE if view.difference else SCORE if view.scores else PERCENT)

    def selected(self, head: int, view: View) -> tuple[slice, slice] | None:
        """The units of the queries and keys that were selected; ``None`` where all are."""
        if self.selection.queries == self.selection.keys == (None, None):
            return None
        queries, keys = self._spans(self.heads[head][0])
        rows, columns = self.units(head, view)
        return rows.span(queries), columns.span(keys)

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
        large = area * self.inspected(head).cost > MAX_POOLED_CELLS
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
        return self._query_rows.find(head, view, query)

    def _spans(self, maps: LayerMaps) -> tuple[slice, slice]:
        queries = resolve_span(self.selection.queries, len(maps.query_tokens), "queries")
        return queries, resolve_span(self.selection.keys, len(maps.key_tokens), "keys")

    def _refined(self, head: int, view: View, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
        """The cells of a large block as far as they are computed; the rest is wanted from now on."""
        key = (head, *pooled_key(view), queries.start, queries.stop, keys.start, keys.stop, height, width)
        block = self._blocks.get(key, lambda: RefinedBlock(self.inspected(head), view, queries, keys, height, width))
        if not block.finished and block not in self.wanted:
            self.wanted.append(block)
        return block.cells

    def _block(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> CellBlock:
        """A block that is pooled at once, or each of whose units is a cell."""
        row_units, column_units = self.units(head, view)
        fits = rows.stop - rows.start <= height and columns.stop - columns.start <= width
        if row_units.plain and column_units.plain and not fits:
            spans = row_units.part(rows).token_span, column_units.part(columns).token_span
            [cells] = pooled([self.inspected(head)], view, *spans, height, width)
            return cells
        cells = unit_cells(self.inspected(head), view, (row_units, rows), (column_units, columns))
        return pool(cells, height, width, mean=means(view))


def means(view: View) -> bool:
    """Whether pooled cells are means."""
    return view.mean or view.difference or view.scores


def _axis(name: str, units: Units, span: slice, cells: int) -> Axis:
    """The axis over a span of units, in at most so many cells: each a unit by its label, or a block by its token."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, cells))
    if len(edges) == count + 1:
        return Axis(name=name, labels=units.labels[span], edges=tuple(edges.tolist()))
    starts = units.starts[edges[:-1]].tolist()
    labels = tuple(str(start) for start in starts)
    return Axis(name=name, labels=labels, edges=(*starts, int(units.stops[span.stop - 1])))
