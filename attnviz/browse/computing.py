"""Computes what the screen still lacks: short slices of work between keys, and threads for longer work."""

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

SECONDS_BEFORE_MEASURING = 0.2  # the user may only pass a metric on the way to another
SECONDS_BETWEEN_SLICES = 0.001  # lets textual answer waiting keys first
SECONDS_BEFORE_REFINING = 0.15  # after the last key, so that a moving cursor stays fast
SECONDS_BETWEEN_DRAWINGS = 0.25  # while a map is refined


class Stage(Protocol):
    """The screen that background work draws on.

    Attributes:
        session: the recording.
        state: the state on the screen.
        pressed: the time of the last key, in seconds of the monotonic clock.
    """

    session: Session
    state: State
    pressed: float

    @property
    def here(self) -> Screen:
        """The recording, the terminal and its colours."""

    def go(self, state: State) -> None:
        """Draws a state."""

    def redraw(self) -> None:
        """Draws the state again, with results of background work."""

    def call_later(self, callback: Callable[[], object]) -> Any:
        """Calls a function in the thread that answers keys."""

    def set_timer(self, delay: float, callback: Callable[[], object]) -> Any:
        """Calls a function after ``delay`` seconds."""


class Computing:
    """Computes what the screen still lacks, and draws it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.working = False
        self.background = Background(stage.call_later)

    def start(self) -> None:
        """Schedules the next slice of work, unless one is scheduled already."""
        if not self.working and self.stage.here.size.enough:
            self.working = True
            self.stage.set_timer(SECONDS_BETWEEN_SLICES, self.work)

    def work(self) -> None:
        """Does one slice of work: first for heads on the screen, then for the others; threads start after the last."""
        self.working = False
        screen, state = self.stage.here, self.stage.state
        if not screen.size.enough:
            return
        computed, on_screen = (
            self.compute_rows(state) if state.lens and not state.opened else self.compute_thumbnails(state)
        )
        if on_screen or (computed and state.lens and not self.lens_missing()):
            self.stage.go(state)
        elif computed:
            self.start()
        else:
            self.start_background()

    def compute_thumbnails(self, state: State) -> tuple[bool, bool]:
        """Computes some thumbnails; returns True if any was computed, and True if any of them is on the screen."""
        if state.opened:
            return False, False
        grid = tiles(self.stage.session, state, self.stage.here.size)
        first = grid.on_screen(state.top)
        everyone = [*first, *(head for head in range(self.stage.session.recorded) if head not in set(first))]
        computed = self.stage.session.thumbnails.compute(everyone, state.view, grid.pixels)
        return bool(computed), bool(set(computed) & set(first))

    def compute_rows(self, state: State) -> tuple[bool, bool]:
        """Computes some rows of the lens; returns True if any was computed, and True if any is on the screen."""
        heads, lines = (
            lens_heads(self.stage.session, state),
            lens_pane(self.stage.session, state, self.stage.here.size).lines,
        )
        first = heads[state.top : state.top + lines]
        everyone = [*first, *(head for head in heads if head not in set(first))]
        computed = self.stage.session.token_rows.compute(everyone, state.view, state.token, state.direction)
        return bool(computed), bool(set(computed) & set(first))

    def lens_missing(self) -> bool:
        """True if some rows of the lens are not computed yet."""
        state, row = self.stage.state, self.stage.session.token_rows.find
        heads = lens_heads(self.stage.session, state)
        return any(row(head, state.view, state.token, state.direction) is None for head in heads)

    def start_background(self) -> None:
        """Starts the threads that measure heads and refine maps."""
        order = self.stage.state.view.order
        if order is not None and not self.stage.session.ranking.is_sorted(self.stage.state.view):
            self.stage.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, order))
        elif (group := self.stage.session.ranking.unnamed(self.stage.state.view)) is not None:
            self.background.start("measure", partial(self.stage.session.ranking.name, group), self.named)
        if self.stage.session.unfinished:
            self.background.start("refine", self.refine, self.stage.redraw)

    def named(self) -> None:
        """Draws the heads with their patterns; applies the filter once all patterns are known."""
        words = self.stage.state.view.filter
        if words and self.stage.session.ranking.unnamed(self.stage.state.view) is None:
            self.stage.go(filter_heads(self.stage.here, self.stage.state, words))
        else:
            self.stage.redraw()

    def measure(self, order: str) -> None:
        """Measures the metric if heads are still sorted by it, then moves to the first head."""
        if order == self.stage.state.view.order and order not in self.stage.session.ranking.ready:
            self.background.start(
                "measure", partial(self.stage.session.ranking.measure, order), partial(self.ranked, order)
            )

    def ranked(self, order: str) -> None:
        """Moves to the first head if heads are still sorted by this metric, and draws."""
        self.stage.go(
            first_ranked(self.stage.here, self.stage.state)
            if order == self.stage.state.view.order
            else self.stage.state
        )

    def refine(self) -> None:
        """Refines the maps on the screen, in a thread, and pauses after each key."""
        drawn = time.monotonic()
        while block := next((each for each in self.stage.session.unfinished if not each.finished), None):
            if time.monotonic() < self.stage.pressed + SECONDS_BEFORE_REFINING:
                time.sleep(SECONDS_BEFORE_REFINING / 5)
                continue
            block.advance()
            if time.monotonic() > drawn + SECONDS_BETWEEN_DRAWINGS:
                self.stage.call_later(self.stage.redraw)
                drawn = time.monotonic()
