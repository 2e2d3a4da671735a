"""Computes what the screen still lacks: in short slices of work between key presses, or in threads if it takes long."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from attnviz.browse.moves.cursor import Screen, with_first_ranked_head
from attnviz.browse.moves.finding import filter_heads
from attnviz.browse.moves.layout import tiles
from attnviz.browse.moves.lens_layout import lens_heads, open_lens_pane
from attnviz.browse.process.background import Background
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State

SECONDS_BEFORE_MEASURING = 0.2  # so that a metric is not measured when the user only passes it
SECONDS_BETWEEN_SLICES = 0.001  # in which textual answers waiting key presses
SECONDS_BEFORE_REFINING = 0.15  # since the last key press, so that the cursor moves fast
SECONDS_BETWEEN_DRAWINGS = 0.25  # of a map while it is refined


class Stage(Protocol):
    """The part of the canvas that `Computing` uses.

    Attributes:
        session: the recording, and what is computed from it.
        state: the state on the screen.
        last_key_time: the time of the last key press or click, in seconds of the monotonic clock.
    """

    session: Session
    state: State
    last_key_time: float

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
        screen, state = self.stage.current_screen, self.stage.state
        if not screen.size.is_large_enough:
            return
        compute = self.compute_rows if state.lens and not state.has_open_head else self.compute_thumbnails
        has_computed, is_on_screen = compute(state)
        if is_on_screen or (has_computed and state.lens and not self.lens_lacks_rows()):
            self.stage.show_state(state)
        elif has_computed:
            self.start()
        else:
            self.start_background()

    def compute_thumbnails(self, state: State) -> tuple[bool, bool]:
        """Computes some missing thumbnails, none if a head is open.

        Returns:
            True if any was computed, and True if one of these is on the screen.
        """
        if state.has_open_head:
            return False, False
        grid = tiles(self.stage.session, state, self.stage.current_screen.size)
        shown_heads = grid.on_screen(state.top)
        heads = [
            *shown_heads,
            *(head for head in range(self.stage.session.recorded_count) if head not in set(shown_heads)),
        ]
        computed_heads = self.stage.session.thumbnails.compute(heads, state.view, grid.pixels)
        return bool(computed_heads), bool(set(computed_heads) & set(shown_heads))

    def compute_rows(self, state: State) -> tuple[bool, bool]:
        """Computes some missing rows of the lens.

        Returns:
            True if any was computed, and True if one of these is on the screen.
        """
        session, size = self.stage.session, self.stage.current_screen.size
        listed_heads, line_count = lens_heads(session, state), open_lens_pane(session, state, size).lines
        shown_heads = listed_heads[state.top : state.top + line_count]
        heads = [*shown_heads, *(head for head in listed_heads if head not in set(shown_heads))]
        computed_heads = session.token_rows.compute(heads, state.view, state.token, state.direction)
        return bool(computed_heads), bool(set(computed_heads) & set(shown_heads))

    def lens_lacks_rows(self) -> bool:
        """True if the rows of some heads of the lens are not computed yet."""
        state, find_row = self.stage.state, self.stage.session.token_rows.find
        heads = lens_heads(self.stage.session, state)
        return any(find_row(head, state.view, state.token, state.direction) is None for head in heads)

    def start_background(self) -> None:
        """Starts threads for results that the screen lacks; starts none if it lacks nothing.

        If the metric that sorts heads is not measured, a thread measures it after a pause. Otherwise a thread names the
        patterns of the next attention call whose heads have none yet. Another thread refines the unfinished maps on the
        screen.
        """
        order = self.stage.state.view.order
        if order is not None and not self.stage.session.ranking.is_sorted(self.stage.state.view):
            self.stage.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, order))
        elif (call_heads := self.stage.session.ranking.next_unnamed_call(self.stage.state.view)) is not None:
            self.background.start(
                "measure", partial(self.stage.session.ranking.name_patterns, call_heads), self.draw_patterns
            )
        if self.stage.session.unfinished_blocks:
            self.background.start("refine", self.refine, self.stage.redraw)

    def draw_patterns(self) -> None:
        """Draws the heads with their new patterns; if these were the last, applies the filter."""
        filter_text = self.stage.state.view.filter
        if filter_text and self.stage.session.ranking.next_unnamed_call(self.stage.state.view) is None:
            self.stage.show_state(filter_heads(self.stage.current_screen, self.stage.state, filter_text))
        else:
            self.stage.redraw()

    def measure(self, metric: str) -> None:
        """Measures a metric in a thread, and then chooses the first head in its order if heads are still sorted by it.

        Does nothing if heads are no longer sorted by the metric, if it is already measured, or while other work of this
        kind runs.
        """
        if metric == self.stage.state.view.order and metric not in self.stage.session.ranking.measured_names:
            self.background.start(
                "measure", partial(self.stage.session.ranking.measure, metric), partial(self.go_to_first_ranked, metric)
            )

    def go_to_first_ranked(self, metric: str) -> None:
        """Chooses the first head if heads are still sorted by ``metric``; draws the state in either case."""
        self.stage.show_state(
            with_first_ranked_head(self.stage.current_screen, self.stage.state)
            if metric == self.stage.state.view.order
            else self.stage.state
        )

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
