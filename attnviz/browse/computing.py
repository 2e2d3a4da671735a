"""What is still to be computed of what is on the screen: slices between keys, and threads for what takes longer."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from attnviz.browse.moves.cursor import Screen, first_ranked
from attnviz.browse.moves.finding import filter_heads
from attnviz.browse.moves.layout import tiles
from attnviz.browse.moves.lens_layout import lens_heads, lens_pane
from attnviz.browse.process.background import Background
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State

SECONDS_BEFORE_MEASURING = 0.2  # at a metric
SECONDS_BETWEEN_SLICES = 0.001  # of background work, so that keys come first
SECONDS_BEFORE_REFINING = 0.15  # after a key
SECONDS_BETWEEN_DRAWINGS = 0.25  # of a map that is being refined


class Stage(Protocol):
    """Where the inspector is played: the state, and what shows another one.

    Attributes:
        session: the recording.
        state: what is shown.
        pressed: when a key was pressed last.
    """

    session: Session
    state: State
    pressed: float

    @property
    def here(self) -> Screen:
        """What an answer to a key depends on."""

    def go(self, state: State) -> None:
        """Draws the state."""

    def redraw(self) -> None:
        """Draws what was found."""

    def call_later(self, callback: Callable[[], object]) -> Any:
        """Calls a function in the thread of the keys."""

    def set_timer(self, delay: float, callback: Callable[[], object]) -> Any:
        """Calls a function after so many seconds."""


class Computing:
    """Computes what the screen still lacks, and has it drawn."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.working = False
        self.background = Background(stage.call_later)

    def start(self) -> None:
        """Goes on with what is still to be computed, between keys."""
        if not self.working and self.stage.here.size.enough:
            self.working = True
            self.stage.set_timer(SECONDS_BETWEEN_SLICES, self.work)

    def work(self) -> None:
        """One slice: what is on the screen first, then the rest; when all is there, what threads do."""
        self.working = False
        screen, state = self.stage.here, self.stage.state
        if not screen.size.enough:
            return
        computed, seen = self.compute_rows(state) if state.lens and not state.opened else self.compute_thumbnails(state)
        if seen or (computed and state.lens and not self.lens_missing()):
            self.stage.go(state)
        elif computed:
            self.start()
        else:
            self.start_background()

    def compute_thumbnails(self, state: State) -> tuple[bool, bool]:
        """Computes some thumbnails: whether there were any, and any on the screen."""
        if state.opened:
            return False, False
        grid = tiles(self.stage.session, state, self.stage.here.size)
        first = grid.on_screen(state.top)
        everyone = [*first, *(head for head in range(self.stage.session.recorded) if head not in set(first))]
        computed = self.stage.session.thumbnails.compute(everyone, state.view, grid.pixels)
        return bool(computed), bool(set(computed) & set(first))

    def compute_rows(self, state: State) -> tuple[bool, bool]:
        """Computes some rows of the lens: whether there were any, and any on the screen."""
        heads, lines = (
            lens_heads(self.stage.session, state),
            lens_pane(self.stage.session, state, self.stage.here.size).lines,
        )
        first = heads[state.top : state.top + lines]
        everyone = [*first, *(head for head in heads if head not in set(first))]
        computed = self.stage.session.token_rows.compute(everyone, state.view, state.token, state.direction)
        return bool(computed), bool(set(computed) & set(first))

    def lens_missing(self) -> bool:
        """Whether some rows of the lens are still to be computed."""
        state, row = self.stage.state, self.stage.session.token_rows.find
        heads = lens_heads(self.stage.session, state)
        return any(row(head, state.view, state.token, state.direction) is None for head in heads)

    def start_background(self) -> None:
        """Has measured what heads are sorted by, where the user has stopped at it, and what else is unknown."""
        order = self.stage.state.view.order
        if order is not None and not self.stage.session.ranking.is_sorted(self.stage.state.view):
            self.stage.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, order))
        elif (group := self.stage.session.ranking.unnamed(self.stage.state.view)) is not None:
            self.background.start("measure", partial(self.stage.session.ranking.name, group), self.named)
        if self.stage.session.wanted:
            self.background.start("refine", self.refine, self.stage.redraw)

    def named(self) -> None:
        """Draws what was measured; a filter that asked for it is then applied."""
        words = self.stage.state.view.filter
        if words and self.stage.session.ranking.unnamed(self.stage.state.view) is None:
            self.stage.go(filter_heads(self.stage.here, self.stage.state, words))
        else:
            self.stage.redraw()

    def measure(self, order: str) -> None:
        """Measures what heads are still sorted by, and moves to the first of them."""
        if order == self.stage.state.view.order and order not in self.stage.session.ranking.ready:
            self.background.start(
                "measure", partial(self.stage.session.ranking.measure, order), partial(self.ranked, order)
            )

    def ranked(self, order: str) -> None:
        """Moves to the first head of what is still asked for."""
        self.stage.go(
            first_ranked(self.stage.here, self.stage.state)
            if order == self.stage.state.view.order
            else self.stage.state
        )

    def refine(self) -> None:
        """Refines what is on the screen, in a thread, while no key is pressed."""
        drawn = time.monotonic()
        while block := next((each for each in self.stage.session.wanted if not each.finished), None):
            if time.monotonic() < self.stage.pressed + SECONDS_BEFORE_REFINING:
                time.sleep(SECONDS_BEFORE_REFINING / 5)
                continue
            block.advance()
            if time.monotonic() > drawn + SECONDS_BETWEEN_DRAWINGS:
                self.stage.call_later(self.stage.redraw)
                drawn = time.monotonic()
