"""Computes what the screen still lacks: in short slices of work between key presses, or in threads if it takes long."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from attnviz.browse.moves.cursor import Screen, with_first_ranked_head
from attnviz.browse.moves.finding import filter_heads
from attnviz.browse.moves.layout import lens_heads, open_lens_pane, tiles
from attnviz.browse.process.application import Background
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State

SECONDS_BEFORE_MEASURING = 0.2  # so that a metric is not measured when the user only passes it
SECONDS_BETWEEN_SLICES = 0.001  # in which textual answers waiting key presses
SECONDS_BEFORE_REFINING = 0.15  # since the last key press, so that the cursor moves fast
SECONDS_BETWEEN_DRAWINGS = 0.25  # of a map while it is refined


class Stage(Protocol):
    """The part of the canvas that `Computing` uses."""

    session: Session
    state: State  # on the screen
    last_key_time: float  # of the last key press or click, in seconds of the monotonic clock

    @property
    def current_screen(self) -> Screen:
        """The recording with the size and the colours of the terminal, as they are now."""

    def show_state(self, state: State) -> None:
        """Draws a state."""

    def redraw(self) -> None:
        """Draws the present state again, with new results of background work."""

    def call_later(self, callback: Callable[[], object]) -> Any:
        """Calls a function in the main thread, which answers key presses."""

    def set_timer(self, delay: float, callback: Callable[[], object]) -> Any:
        """Calls a function after ``delay`` seconds."""


class Computing:
    """Computes and draws what the screen still lacks: thumbnails, rows of the lens, metrics, refined maps."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.slice_is_scheduled = False
        self.background = Background(stage.call_later)

    def start(self) -> None:
        """Schedules the next slice of work, unless one is scheduled already or the terminal is too small."""
        if not self.slice_is_scheduled and self.stage.current_screen.size.is_large_enough:
            self.slice_is_scheduled = True
            self.stage.set_timer(SECONDS_BETWEEN_SLICES, self.work)

    def work(self) -> None:
        """Computes one slice of thumbnails, or of rows in the lens; heads on the screen come first.

        Draws if the slice changes the screen or completes the lens. Otherwise schedules the next slice, or starts the
        background threads if nothing was left to compute. Computes nothing if the terminal is too small.
        """
        self.slice_is_scheduled = False
        screen, state, session = self.stage.current_screen, self.stage.state, self.stage.session
        if not screen.size.is_large_enough:
            return
        shown_heads, computed_heads, is_complete = list[int](), list[int](), False
        if state.shows_lens:
            heads = lens_heads(session, state)
            shown_heads = heads[state.top : state.top + open_lens_pane(session, state, screen.size).lines]
            row_key = state.view, state.token, state.direction
            computed_heads = session.token_rows.compute([*shown_heads, *heads], *row_key)
            is_complete = all(session.token_rows.find(head, *row_key) is not None for head in heads)
        elif not state.has_open_head:
            grid = tiles(session, state, screen.size)
            shown_heads = grid.on_screen(state.top)
            heads = list(dict.fromkeys((*shown_heads, *range(session.recorded_count))))
            computed_heads = session.thumbnails.compute(heads, state.view, grid.pixels)
        if set(computed_heads) & set(shown_heads) or (computed_heads and is_complete):
            self.stage.show_state(state)
        elif computed_heads:
            self.start()
        else:
            view, ranking = self.stage.state.view, self.stage.session.ranking
            if view.order is not None and not ranking.is_sorted(view):
                self.stage.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, view.order))
            elif (call_heads := ranking.next_unnamed_call(view)) is not None:
                self.background.start("measure", partial(ranking.name_patterns, call_heads), self.draw_patterns)
            if self.stage.session.unfinished_blocks:
                self.background.start("refine", self.refine, self.stage.redraw)

    def draw_patterns(self) -> None:
        """Draws the heads with their new patterns; if these were the last, applies the filter."""
        view = self.stage.state.view
        if view.filter and self.stage.session.ranking.next_unnamed_call(view) is None:
            self.stage.show_state(filter_heads(self.stage.current_screen, self.stage.state, view.filter))
        else:
            self.stage.redraw()

    def measure(self, metric: str) -> None:
        """Measures a metric in a thread, and then chooses the first head in its order if heads are still sorted by it.

        Does nothing if heads are no longer sorted by the metric, if it is already measured, or while other work of this
        kind runs.
        """
        ranking = self.stage.session.ranking

        def go_to_first_ranked() -> None:
            state = self.stage.state
            is_order = metric == state.view.order
            self.stage.show_state(with_first_ranked_head(self.stage.current_screen, state) if is_order else state)

        if metric == self.stage.state.view.order and metric not in ranking.measured_names:
            self.background.start("measure", partial(ranking.measure, metric), go_to_first_ranked)

    def refine(self) -> None:
        """Refines the maps on the screen until all are finished, and draws them now and then.

        Pauses for ``SECONDS_BEFORE_REFINING`` after each key press or click. Runs in a thread.
        """
        last_drawing = time.monotonic()
        while block := next((block for block in self.stage.session.unfinished_blocks if not block.is_finished), None):
            if time.monotonic() < self.stage.last_key_time + SECONDS_BEFORE_REFINING:
                time.sleep(SECONDS_BEFORE_REFINING / 5)  # short, so that work resumes soon after the pause
                continue
            block.advance()
            if time.monotonic() > last_drawing + SECONDS_BETWEEN_DRAWINGS:
                self.stage.call_later(self.stage.redraw)
                last_drawing = time.monotonic()
