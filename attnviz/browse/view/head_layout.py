"""Lays out an open head, for drawing and for clicks."""

from dataclasses import dataclass, replace
from functools import cached_property

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import MapPane, map_pane, side_width
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.rows import QueryRow
from attnviz.browse.session.state import State
from attnviz.browse.view.text_pane import ShadedTokens, shades_caption
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import PERCENT, Panel
from attnviz.text.units import Units


@dataclass(frozen=True, eq=False)
class OpenHead:
    """An open head, or several heads side by side, with the layout and the numbers of the cursor's query.

    Attributes:
        screen: the session, and the terminal's size and colours.
        state: the state, with the head and its cursor.
        queries: the units of the rows.
        keys: the units of the columns.
        pane: the layout of the map.
        whole_pane: the layout of the map at the first zoom level, which shows all of it.
        row: the numbers of the cursor's query.
        strongest_keys: the visible keys of the cursor's query, the strongest first.
    """

    screen: Screen
    state: State
    queries: Units
    keys: Units
    pane: MapPane
    whole_pane: MapPane
    row: QueryRow
    strongest_keys: list[int]

    @property
    def heads(self) -> tuple[int, ...]:
        """The open head, then the heads beside it."""
        return self.state.head, *self.state.heads_beside

    @cached_property
    def panels(self) -> list[Panel]:
        """A panel of each open head's cells on the screen, all with one colour scale."""
        pane, session, view = self.pane, self.screen.session, self.state.view
        spans = pane.queries.span, pane.keys.span
        panels = [session.panel(head, view, *spans, pane.queries.cells, pane.keys.cells) for head in self.heads]
        low, high = min(panel.scale.low for panel in panels), max(panel.scale.high for panel in panels)
        scale = session.themed_scale(replace(panels[0].scale, low=low, high=high), self.state.theme)
        return [replace(panel, scale=scale) for panel in panels]

    @property
    def panel(self) -> Panel:
        """The cells of the open head."""
        return self.panels[0]

    @property
    def scale(self) -> ColorScale:
        """The colour scale of all maps."""
        return self.panel.scale

    @property
    def row_scale(self) -> ColorScale:
        """The colour scale of the cursor's row: of weights over an image up to the largest, else that of all maps.

        An image has so many patches that no weight of a usual row is far from 0.
        """
        view, session = self.state.view, self.screen.session
        if not self.keys.tokens.image_indices or self.panel.quantity is not PERCENT:
            return self.scale
        block = CellBlock(self.row.numbers(view)[None], self.row.visible[None])
        return session.scale(replace(view, own_scale=True), [block], self.state.theme)

    @property
    def side_width(self) -> int:
        """The width of the side pane in terminal columns."""
        return side_width(self.screen.size)

    @property
    def is_scrolled(self) -> bool:
        """True if a part of the map is not on the screen."""
        axes = (self.pane.queries, self.queries), (self.pane.keys, self.keys)
        return any(axis.stop - axis.start < len(units) for axis, units in axes)

    @property
    def text(self) -> ShadedTokens:
        """The keys, shaded by the cursor's row."""
        row, quantity = self.row.numbers(self.state.view), self.panel.quantity
        caption = shades_caption(f"{quantity.name} of {self.query} in {self.name}", quantity, self.row_scale)
        return ShadedTokens(
            units=self.keys,
            values=row,
            visible=self.row.visible,
            scale=self.row_scale,
            cursor=self.state.key,
            caption=caption,
            queries=self.queries,
            query=self.state.query,
            are_shares=quantity is PERCENT,
        )

    @property
    def query(self) -> str:
        """The cursor's query in quotes, with its number."""
        return f"“{self.queries.labels[self.state.query]}” ({self.queries.starts[self.state.query]})"

    @property
    def name(self) -> str:
        """The name of the open head, or of the combination of heads."""
        return self.screen.session.title(self.state.head)


def lay_out(screen: Screen, state: State) -> OpenHead:
    """Returns the open head with its layout and the numbers of the cursor's query.

    If the cursor is past the last query, the numbers are those of the last query. In the returned state, toggles that
    do not apply to the head are off.
    """
    session, size = screen.session, screen.size
    view = session.view_of(state.head, state.view)
    head_state = replace(state, view=view)
    queries, keys = session.units(state.head, view)
    shape, row = session.shape(state.head, view), session.row(state.head, view, min(state.query, len(queries) - 1))
    return OpenHead(
        screen=screen,
        state=head_state,
        queries=queries,
        keys=keys,
        row=row,
        strongest_keys=row.strongest_keys(view),
        pane=map_pane(shape, head_state, size, screen.colors),
        whole_pane=map_pane(shape, replace(head_state, zoom=0, row=0, column=0), size, screen.colors),
    )
