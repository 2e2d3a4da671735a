"""The recordings that the inspector shows, and what it has computed of them: thumbnails, rows, the order of heads."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnviz.browse_state import View
from attnviz.browse_units import Units, reduce_units
from attnviz.captions import head_name
from attnviz.chosen import select_heads
from attnviz.colors import ColorScale
from attnviz.compare import refuse_unlike
from attnviz.maps import BoolArray, FloatArray, LayerMaps, Recording, block_edges
from attnviz.panels import CHANGE, PERCENT, SCORE, Axis, Panel, Quantity
from attnviz.scales import shared_scale
from attnviz.selection import Selection
from attnviz.tokens import Tokens

MOST_CELLS = 4_000_000  # of one head that are computed exactly for one screen
MOST_THUMBNAIL_CELLS = 1_000_000  # read for one slice of work between two keys
FAINTEST = 1e-4  # of the largest weight, where a logarithmic scale begins


@dataclass(frozen=True, eq=False)
class Cells:
    """A block of one head as it is shown: values and which of them are visible, ``(rows, columns)``."""

    values: FloatArray
    visible: BoolArray


@dataclass(frozen=True, eq=False)
class Row:
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


@dataclass(eq=False)
class Session:
    """The recording, the one that it differs from if any, and caches.

    Raises:
        AttnvizError: if the two recordings' heads, queries or keys do not correspond.
    """

    recording: Recording
    other: Recording | None = None
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        self.heads: list[tuple[LayerMaps, int]] = select_heads(self.recording, self.selection)
        self._partners: dict[int, LayerMaps] = {}
        if self.other is not None:
            refuse_unlike(self.recording, self.other)
            pairs = zip(self.recording.maps, self.other.maps, strict=True)
            self._partners = {id(maps): partner for maps, partner in pairs}
        self.numbers: dict[str, dict[int, float]] = {}
        self._units: dict[tuple[int, bool, bool], Units] = {}
        self._thumbnails: dict[tuple[object, ...], Cells] = {}
        self._cells: dict[tuple[object, ...], Cells] = {}
        self._rows: dict[tuple[object, ...], Row] = {}

    @cached_property
    def names(self) -> list[str]:
        """Every head as ``layer.head``, told apart by its text where there are several."""
        batch = len({maps.item for maps, _ in self.heads}) > 1
        return [head_name(maps, head) + (f" text {maps.item}" if batch else "") for maps, head in self.heads]

    def layers(self) -> list[list[int]]:
        """The heads of each attention call, by their places in the recording."""
        groups: dict[int, list[int]] = {}
        for place, (maps, _) in enumerate(self.heads):
            groups.setdefault(id(maps), []).append(place)
        return list(groups.values())

    def order(self, view: View) -> list[int]:
        """All heads, those with the most of the view's metric first; as recorded until it is measured."""
        everyone = list(range(len(self.heads)))
        if not self.is_sorted(view):
            return everyone
        numbers = self.numbers[str(view.order)]
        sign = 1 if view.ascending else -1
        return sorted(everyone, key=lambda head: (np.isnan(numbers[head]), sign * numbers[head]))

    def is_sorted(self, view: View) -> bool:
        """Whether heads are to be sorted and what they are sorted by is measured."""
        return view.order in self.numbers

    def measure(self, name: str) -> None:
        """Measures a metric of every head; needs no more of the session than the recording, so a thread may do it."""
        from attnviz.metrics import measure

        numbers: dict[int, float] = {}
        for group in self.layers():
            maps = self.heads[group[0]][0]
            by_head = {each.head: each.values[name] for each in measure(maps, (name,))}
            numbers |= {place: by_head[self.heads[place][1]] for place in group}
        self.numbers[name] = numbers

    def quantity(self, view: View) -> Quantity:
        """What the cells are."""
        return CHANGE if view.difference else SCORE if view.scores else PERCENT

    def joins(self, head: int) -> bool:
        """Whether the head is small enough for words, hidden tokens and pooled scores to be computed exactly."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MOST_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """What the rows and the columns of a head stand for."""
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.joins(head) else (False, True)
        return tuple(self._units_of(tokens, words, special) for tokens in (maps.query_tokens, maps.key_tokens))  # type: ignore[return-value]

    def thumbnail(self, head: int, view: View, pixels: int) -> Cells | None:
        """The whole head in at most ``pixels`` x ``pixels`` cells, if it has been computed."""
        return self._thumbnails.get((head, *_thumbnail_key(view, pixels)))

    def compute_thumbnails(self, heads: list[int], view: View, pixels: int) -> list[int]:
        """Computes one slice of the thumbnails of these heads, and returns those of the slice."""
        key = _thumbnail_key(view, pixels)
        missing = [head for head in heads if (head, *key) not in self._thumbnails]
        if not missing:
            return []
        maps = self.heads[missing[0]][0]
        most = max(1, MOST_THUMBNAIL_CELLS // (len(maps.query_tokens) * len(maps.key_tokens)))
        batch = [head for head in missing if self.heads[head][0] is maps][:most]
        for head, cells in zip(batch, self._pooled(batch, view, pixels), strict=True):
            self._thumbnails[head, *key] = cells
        return batch

    def panel(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> Panel:
        """The block of units as it is drawn in at most ``height`` x ``width`` cells."""
        name = self.names[head]
        kind = " cross" if self.heads[head][0].kind == "cross" else ""
        row_units, column_units = self.units(head, view)
        cells = self.cells(head, view, rows, columns, height, width)
        quantity = self.quantity(view)
        panel = Panel(
            title=f"head {name}{kind}",
            values=cells.values,
            visible=cells.visible,
            rows=_axis("queries", row_units, rows, height),
            columns=_axis("keys", column_units, columns, width),
            quantity=quantity,
            scale=ColorScale(0, 1),
        )
        return replace(panel, scale=self.scale(view, [cells]))

    def cells(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> Cells:
        """The values of a block, each unit its own cell where they fit, else pooled."""
        shown = replace(view, log=False, own=False, order=None, ascending=False)
        key = (head, shown, rows.start, rows.stop, columns.start, columns.stop, height, width)
        if key not in self._cells:
            if len(self._cells) > 64:
                self._cells.clear()
            self._cells[key] = self._block(head, view, rows, columns, height, width)
        return self._cells[key]

    def scale(self, view: View, shown: list[Cells]) -> ColorScale:
        """The colours: weights from 0 to 1 for every head, unless the view gives each head its own."""
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
        return ColorScale(high * FAINTEST, high, log=True) if view.log else ColorScale(0, high)

    def row(self, head: int, view: View, query: int) -> Row:
        """One query's weights and scores over all keys, exactly."""
        key = (head, view.words, view.special, query)
        if key not in self._rows:
            if len(self._rows) > 64:
                self._rows.clear()
            self._rows[key] = self._read_row(head, view, query)
        return self._rows[key]

    def _units_of(self, tokens: Tokens, words: bool, special: bool) -> Units:
        key = (id(tokens), words, special)
        if key not in self._units:
            self._units[key] = Units.of(tokens, words, special)
        return self._units[key]

    def _pooled(self, heads: list[int], view: View, pixels: int) -> list[Cells]:
        """Thumbnails of heads of one layer."""
        maps = self.heads[heads[0]][0]
        queries, keys = len(maps.query_tokens), len(maps.key_tokens)
        if view.scores and self.joins(heads[0]):
            whole = (slice(0, queries), slice(0, keys), pixels, pixels)
            plain = replace(view, words=False, special=True)
            return [self._block(head, plain, *whole) for head in heads]
        numbers = tuple(self.heads[head][1] for head in heads)
        return self._overview(maps, numbers, view, slice(0, queries), slice(0, keys), pixels, pixels)

    def _overview(
        self, maps: LayerMaps, heads: tuple[int, ...], view: View, queries: slice, keys: slice, height: int, width: int
    ) -> list[Cells]:
        """Pooled weights of heads of one layer, or how much they differ."""
        shape = (min(height, queries.stop - queries.start), min(width, keys.stop - keys.start))
        overview = maps.overview(heads, *shape, queries, keys)
        values = overview.mean if view.mean or view.difference else overview.maximum
        visible = overview.visible
        if view.difference:
            theirs = self._partners[id(maps)].overview(heads, *shape, queries, keys)
            values, visible = theirs.mean - values, visible | theirs.visible
        return [Cells(block, visible) for block in values]

    def _block(self, head: int, view: View, rows: slice, columns: slice, height: int, width: int) -> Cells:
        maps, number = self.heads[head]
        row_units, column_units = self.units(head, view)
        queries, keys = row_units.tokens(rows), column_units.tokens(columns)
        pooled = rows.stop - rows.start > height or columns.stop - columns.start > width
        plain = row_units.plain and column_units.plain
        area = (queries.stop - queries.start) * (keys.stop - keys.start)
        if (plain and pooled and not view.scores) or area > MOST_CELLS:
            return self._overview(maps, (number,), view, queries, keys, height, width)[0]
        cells = self._exact(maps, number, view, (row_units, rows, queries), (column_units, columns, keys))
        return _pool(cells, height, width, mean=view.mean or view.difference or view.scores)

    def _exact(
        self,
        maps: LayerMaps,
        number: int,
        view: View,
        rows: tuple[Units, slice, slice],
        columns: tuple[Units, slice, slice],
    ) -> Cells:
        """Every unit of the block a cell: weights to a unit summed over its keys and averaged over its queries."""
        cells = _join(maps, number, view.scores, rows, columns)
        if not view.difference:
            return cells
        theirs = _join(self._partners[id(maps)], number, view.scores, rows, columns)
        return Cells(theirs.values - cells.values, cells.visible | theirs.visible)

    def _read_row(self, head: int, view: View, query: int) -> Row:
        maps, number = self.heads[head]
        rows, columns = self.units(head, view)
        one, whole = slice(query, query + 1), slice(0, len(columns))
        places = ((rows, one, rows.tokens(one)), (columns, whole, columns.tokens(whole)))
        weights, scores = (_join(maps, number, asked, *places) for asked in (False, True))
        change = None
        if self.other is not None:
            change = _join(self._partners[id(maps)], number, False, *places).values[0] - weights.values[0]
        return Row(weights.values[0], scores.values[0], change, weights.visible[0])


def _thumbnail_key(view: View, pixels: int) -> tuple[object, ...]:
    return view.scores, view.difference, view.mean, pixels


def _axis(name: str, units: Units, span: slice, cells: int) -> Axis:
    """The axis over a span of units, in at most so many cells: each a unit by its label, or a block by its token."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, cells))
    if len(edges) == count + 1:
        return Axis(name=name, labels=units.labels[span], edges=tuple(edges.tolist()))
    starts = units.starts[edges[:-1]].tolist()
    labels = tuple(str(start) for start in starts)
    return Axis(name=name, labels=labels, edges=(*starts, int(units.stops[span.stop - 1])))


def _join(
    maps: LayerMaps, number: int, scores: bool, rows: tuple[Units, slice, slice], columns: tuple[Units, slice, slice]
) -> Cells:
    (row_units, row_span, queries), (column_units, column_span, keys) = rows, columns
    window = maps.window((number,), queries, keys)
    values, visible = (window.scores if scores else window.weights)[0], window.visible
    if row_units.plain and column_units.plain:
        return Cells(values, visible)

    def total(cells: NDArray[np.generic]) -> NDArray:  # type: ignore[type-arg]
        joined = reduce_units(np.add, cells, column_units, column_span, axis=1)
        return reduce_units(np.add, joined, row_units, row_span, axis=0)

    seen = total(visible.astype(np.int64))
    tall = (row_units.stops - row_units.starts)[row_span][:, None]
    summed = total(np.where(visible, values, 0))
    return Cells((summed / (np.maximum(seen, 1) if scores else tall)).astype(np.float32), seen > 0)


def _pool(cells: Cells, height: int, width: int, mean: bool) -> Cells:
    """The block in at most ``height`` x ``width`` cells, over the visible of each."""
    rows, columns = cells.values.shape
    if rows <= height and columns <= width:
        return cells
    edges = block_edges(rows, min(rows, height))[:-1], block_edges(columns, min(columns, width))[:-1]

    def over(reduce: np.ufunc, values: NDArray[np.generic]) -> NDArray:  # type: ignore[type-arg]
        return np.asarray(reduce.reduceat(reduce.reduceat(values, edges[0], axis=0), edges[1], axis=1))

    seen = over(np.add, cells.visible.astype(np.int64))
    if not mean:
        return Cells(over(np.maximum, np.where(cells.visible, cells.values, 0)), seen > 0)
    total = over(np.add, np.where(cells.visible, cells.values, 0))
    return Cells((total / np.maximum(seen, 1)).astype(np.float32), seen > 0)
