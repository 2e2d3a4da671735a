"""Runs the inspector in textual: answers keys, clicks and the prompt, and computes what the screen still lacks."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen as TextualScreen
from textual.widgets import OptionList

from attnviz.base.errors import AttnvizError, flag
from attnviz.browse.actions.cursor import Screen, settle, with_first_ranked_head
from attnviz.browse.actions.finding import filter_heads, find, matching_metrics
from attnviz.browse.actions.keys import BY_KEY, KEYS, missing_fact, mode_of, press
from attnviz.browse.actions.layout import (
    ANSI_COLORS,
    FIXED_LINES,
    lens_heads,
    listed_lines,
    open_lens_pane,
    side_width,
    tiles,
)
from attnviz.browse.actions.steps import NEXT, step
from attnviz.browse.actions.visited import start_state, state_at, with_history
from attnviz.browse.copying import COPIED_PARTS, clipboard_text
from attnviz.browse.process.application import SAVE_PROMPT, SIZES, Application, Background, Canvas, Listing, Surface
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import MIN_SCREEN_SIZE, Size, State
from attnviz.browse.view.cells import COLORS
from attnviz.browse.view.graphics import SIXEL_ATTRIBUTE, protocol_of_environment, terminal_character
from attnviz.browse.view.parts import words
from attnviz.browse.view.screen import described, whole
from attnviz.maps.recording import head_name
from attnviz.render.terminal.lines import Line, wrap
from attnviz.report.picture.structure import Phrase, first_sentence, turns_sentence
from attnviz.report.words.notes import read_names, write_name
from attnviz.text.named_groups import TURNS

Save = Callable[[Screen, State, Path, str | None], None]  # to a file, in a size of `SIZES`
SECONDS_A_STEP = 0.5  # for which a written token is shown while steps are played
SECONDS_BEFORE_MEASURING = 0.2  # so that a metric is not measured when the user only passes it
SECONDS_BETWEEN_SLICES = 0.001  # in which textual answers waiting key presses
SECONDS_BEFORE_REFINING = 0.15  # since the last key press, so that the cursor moves fast
SECONDS_BETWEEN_DRAWINGS = 0.25  # of a map while it is refined
PROMPTS = {
    "query": "find a query: a token, words of the text, or a number such as @4",
    "key": "find a key: a token, words of the text, or a number such as @4",
    "filter": "filter heads, such as sink>0.5 layer:3-5 -uniform; empty shows all",
    "save": SAVE_PROMPT,
    "name": "name of the head; empty removes it",
}


def _bindings() -> Iterator[Binding]:
    """Yields what keys are bound to: first their hints in the footer, which each mode has of its own."""
    for key in KEYS:
        for modes in (key.modes, "") if key.modes else ("",):
            action, keys = f"press('{key.names[0]}', '{modes}')", ",".join(key.names)
            hint = key.hint if modes else key.sentence
            more = key.sentence.removeprefix(hint).strip()
            yield Binding(keys, action, hint, show=bool(modes), tooltip=more, priority=True)
    for name, part in COPIED_PARTS.items():
        yield Binding(name, f"copy('{part}')", part, priority=True)
    yield Binding("escape", "copy('')", "back", priority=True)


class Browser(Application[int], inherit_bindings=False):
    """The application that shows a recording; its result is its exit code."""

    CSS = (
        Application.CSS
        + """
    Canvas { height: 100%; }
    #heads { offset: 0 1; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [*_bindings(), *Application.BINDINGS]

    def __init__(self, session: Session, save: Save, ascii: bool = False) -> None:
        super().__init__(session.theme, ascii)
        self.session, self.save = session, save
        self.state = State()
        self.canvas, self.heads = Canvas(), Listing("heads")
        self.protocol = protocol_of_environment(os.environ)
        self.background = Background(self.call_later)
        self.last_key_time = 0.0  # 0 until the first key
        self.hinted: tuple[str, ...] = ()  # the mode, and the facts that its hints lack
        self.slice_is_scheduled = False
        self.frame_is_due = False  # True while a timer runs for the next step that is played
        self.copying = False  # True while the user chooses what to copy

    def compose(self) -> ComposeResult:
        """Yields the parts of the screen."""
        with self.canvas:
            yield from (self.heads, self.prompt, self.footer)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """Yields the entries of the palette: what stands out, and every key that means something here."""
        for phrase in self.session.phrases:
            if phrase.address:
                yield SystemCommand(
                    f"show {phrase.text}", "stands out among all heads", partial(self.go_to, phrase.address)
                )
        for key in KEYS:
            if key.names[0] != "colon" and not missing_fact(self.current_screen, self.state, key):
                yield SystemCommand(key.sentence, f"key {key.names[0]}", partial(self.action_press, key.names[0]))

    @property
    def current_screen(self) -> Screen:
        """The recording with the size and the colours of the terminal, as they are now."""
        colors = 0 if self.no_color or self.ascii else COLORS.get(self.console.color_system or "", 0)
        # pixels would be drawn over another screen that is open
        draws_pixels = self.protocol is not None and colors > ANSI_COLORS and len(self.screen_stack) == 1
        width, height = self.canvas.size
        character = self.character_size() if draws_pixels else None
        session = self.session
        size = Size(width, height, character, session.text_lines(width), session.has_images)
        return Screen(session, size, colors)

    def character_size(self) -> tuple[int, int] | None:
        """Returns the width and height of a character in pixels; ``None`` if unknown."""
        return None if self.is_headless else terminal_character()

    def receive_attributes(self, attributes: list[str]) -> None:
        """Starts to draw sixels if the terminal answers that it can."""
        if SIXEL_ATTRIBUTE in attributes and self.protocol is None:
            self.protocol = "sixel"
            self.call_later(self.redraw)

    async def on_mount(self) -> None:
        """Draws the screen again whenever the process resumes after Ctrl-Z."""
        self.app_resume_signal.subscribe(self, lambda app: self.refresh(repaint=True, layout=True))

    async def show_at_new_size(self) -> None:
        """Draws the screen for a new size; first the address to begin at, and then what was typed before."""
        size = self.current_screen.size
        self.canvas.screen.set_class(self.size.width < 2 * MIN_SCREEN_SIZE[0], "narrow")
        self.heads.styles.width, self.heads.styles.height = side_width(size), max(0, listed_lines(size) - 1)
        self.show(self.state if self.early_keys is None else start_state(self.current_screen))
        await self.answer_early_keys()

    def show(self, state: State) -> None:
        """Stores the nearest state that can be drawn, draws it, and schedules computing what the screen lacks.

        If the terminal is too small, stores the state unchanged and draws a refusal. While steps are played, also
        starts the timer of the next step.
        """
        screen = self.current_screen
        size = screen.size
        self.state = settle(screen, state) if size.is_large_enough else state
        self.session.unfinished_blocks = []
        theme = self.state.theme if screen.colors > ANSI_COLORS else "terminal"
        self.use_theme(theme)
        surface = Surface(theme, self.ascii, size.character, self.protocol)
        drawn, heads = whole(screen, self.state)
        self.canvas.show(drawn, surface)
        self.heads.display = bool(heads.rows)
        if heads.rows:
            self.heads.show(heads, surface)
        # a long message takes the place of the hints, but not before the user has seen these
        self.footer.display = not self.asked and (not drawn.lines[-1] or not self.last_key_time)
        if self.asked:
            self.explain_prompt(self.prompt.value)
        missing_facts = [missing_fact(screen, self.state, key) for key in KEYS if key.modes]
        if (mode_of(self.state), *missing_facts) != self.hinted:
            self.hinted = mode_of(self.state), *missing_facts
            self.refresh_bindings()
        self.compute()
        if self.state.playing and not self.frame_is_due:
            self.frame_is_due = True
            self.set_timer(SECONDS_A_STEP, self.show_next_frame)

    def show_next_frame(self) -> None:
        """Shows the next step if steps are still played; after the last step they are no longer played."""
        self.frame_is_due = False
        if self.state.playing:
            self.show(step(self.current_screen, replace(self.state, message=""), NEXT))

    def redraw(self) -> None:
        """Draws the current state again, with new results of background work, unless the application has ended.

        Pixels are left out while another screen covers this one.
        """
        if self.is_attached and self.early_keys is None:
            self.show(self.state)

    def go(self, state: State) -> None:
        """Shows a state, to which the user came from the present one."""
        self.show(with_history(self.state, state))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuses keys while something is asked, and hints of other modes; while copying, all but its own keys."""
        if not super().check_action(action, parameters):
            return False
        if action == "press":
            key, modes = BY_KEY[str(parameters[0])], str(parameters[1]).split()
            is_hinted = mode_of(self.state) in modes and not missing_fact(self.current_screen, self.state, key)
            return not self.copying and (not modes or is_hinted)
        return self.copying or action != "copy"

    async def action_press(self, key: str, modes: str = "") -> None:
        """Does what a key is for."""
        self.last_key_time = time.monotonic()
        does = BY_KEY[key].does
        if isinstance(does, str):
            await self.run_action(does)
        elif key != "escape" or not self.hides_keys():
            self.show(press(self.current_screen, self.state, key))

    def action_leave(self) -> None:
        """Hides the list of keys; if it is not shown, quits."""
        if not self.hides_keys():
            self.exit(0)

    def action_copy_what(self) -> None:
        """Asks what to copy: the footer has the keys."""
        self.copying = True
        self.refresh_bindings()

    def action_copy(self, part: str) -> None:
        """Copies a part of the screen to the terminal's clipboard (OSC 52), or says why not."""
        self.copying = False
        self.refresh_bindings()
        text, message = "", ""
        try:
            text, message = clipboard_text(self.current_screen, self.state, part) if part else ("", "")
        except AttnvizError as error:
            message = str(error)
        if text:
            self.copy_to_clipboard(text)
        self.show(replace(self.state, message=message))

    def action_ask(self, asked: str) -> None:
        """Opens a prompt with a text to begin with, or says why there is none."""
        self.show(replace(self.state, message=""))  # what was said may take more lines than the prompt
        state, session, text = self.state, self.session, ""
        is_combination = state.head >= session.recorded_count
        finds_heads = asked == "query" and not state.has_open_head and not state.lens
        if asked == "filter":
            text = state.view.filter
        elif asked == "save":
            name_in_file = session.names[state.head].replace(" ", "-").replace("−", "minus").replace(",", "")
            text = f"head-{name_in_file}.svg" if state.has_open_head and not state.heads_beside else "heads.svg"
        elif asked == "name" and (is_combination or not session.names_file):
            no_file = "names are kept in a file; start browse with --names heads.txt"
            no_head = "several heads together have no name; Esc goes back to one"
            self.show(replace(state, message=no_head if is_combination else no_file))
            return
        elif asked == "name":
            maps, number = session.heads[state.head]
            text = session.ranking.given_names.get(head_name(maps, number), "")
        suggestions = matching_metrics("", session.ranking.names) if finds_heads else SIZES if asked == "save" else ()
        self.ask(asked, text, suggestions)

    def explain_prompt(self, text: str) -> None:
        """Says what may be typed: in the overview also the metrics that begin with the text."""
        if not self.asked:
            self.redraw()
            return
        said, ranking = PROMPTS[self.asked], self.session.ranking
        if self.asked == "query" and not self.state.has_open_head and not self.state.lens:
            metrics = " ".join(matching_metrics(text, ranking.names))
            names = self.session.names
            several = f" or several ({names[0]},{names[1]})" if self.session.recorded_count > 1 else ""
            said = metrics if text else f"a token (it, @4), a head ({names[0]}){several}, a metric: {metrics}"
        self.say(said, "dim")

    def say(self, text: str, style: str = "") -> None:
        """Writes a text in the status line."""
        drawn, surface = self.canvas.drawn, self.canvas.surface
        if len(drawn.lines) >= FIXED_LINES:
            status: Line = [words(f" {text}", style=style)]
            self.canvas.show(replace(drawn, lines=[*drawn.lines[:-2], status, []]), surface)

    def answer_prompt(self, asked: str, text: str) -> None:
        """Finds a token, filters heads, names a head, or saves; messages say what could not be done.

        The picture is saved in a thread, to the file that the text names.
        """
        state, screen = self.state, self.current_screen
        if asked in ("query", "key"):
            self.go(find(screen, state, text, "key" if asked == "key" else "query"))
        elif asked == "filter":
            self.go(filter_heads(screen, state, text))
        elif asked == "name":
            maps, number = self.session.heads[state.head]
            file = self.session.names_file
            message = f"saved the name in {file}" if text.strip() else f"removed the name from {file}"
            try:
                write_name(file, head_name(maps, number), text)
                self.session.ranking.given_names = dict(read_names(file))
            except AttnvizError as error:
                message = error.message_with(flag)
            self.show(replace(state, message=message))
        else:
            path, size = self.file_and_size(text)
            self.show(replace(state, message=f"saving {path} …"))
            self.run_worker(partial(self.write, screen, state, path, size), thread=True, group="save")

    def write(self, screen: Screen, state: State, path: Path, size: str | None) -> None:
        """Writes a picture of a state, and shows a message about its success or failure; runs in a thread."""
        try:
            self.save(screen, state, path, size)
            message = f"saved {path}" + (f" in the size {size}" if size else "")
        except AttnvizError as error:
            message = error.message_with(flag)
        self.call_from_thread(lambda: self.show(replace(self.state, message=message)))

    def on_canvas_pointed(self, event: Canvas.Pointed) -> None:
        """Describes what is under the mouse, or answers a click on it: moves the cursor, or chooses a head.

        A click on the chosen head opens it, as does a double click on any head. A click closes an open prompt.
        """
        screen, hit = self.current_screen, event.hit
        if not screen.size.is_large_enough or self.early_keys is not None:
            return
        if not event.clicks:
            description = described(screen, self.state, hit)
            if description and not self.asked and not self.state.message:
                self.say(description)
            return
        self.last_key_time = time.monotonic()
        if self.asked:
            self.close_prompt()
            self.redraw()
        elif hit is not None and hit.address:
            self.go_to(hit.address)
        elif hit is not None:
            opens = hit.opens or (event.clicks > 1 and not self.state.has_open_head)
            self.go(replace(self.state, message="", **hit.changes))
            if opens:
                self.show(press(screen, self.state, "enter"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answers a click on a row of a list."""
        if isinstance(event.option_list, Listing):
            self.go(replace(self.state, message="", **event.option_list.changes(event.option_index)))

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves the cursor down; with Control, zooms out."""
        await self.action_press("minus" if event.ctrl else "down")

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves the cursor up; with Control, zooms in."""
        await self.action_press("plus" if event.ctrl else "up")

    def compute(self) -> None:
        """Schedules the next slice of work, unless one is scheduled already or the terminal is too small."""
        if not self.slice_is_scheduled and self.current_screen.size.is_large_enough:
            self.slice_is_scheduled = True
            self.set_timer(SECONDS_BETWEEN_SLICES, self.compute_slice)

    def compute_slice(self) -> None:
        """Computes one slice of thumbnails, or of rows in the lens; heads on the screen come first.

        Draws if the slice changes the screen or completes the lens. Otherwise schedules the next slice, or starts the
        background threads if nothing was left to compute. Computes nothing if the terminal is too small.
        """
        self.slice_is_scheduled = False
        screen, state, session = self.current_screen, self.state, self.session
        if not screen.size.is_large_enough:
            return
        shown_heads, computed_heads, is_complete = list[int](), list[int](), False
        if state.shows_lens:
            heads = lens_heads(session, state)
            shown_heads = heads[open_lens_pane(session, state, screen.size).queries.span]
            row_key = state.view, state.token, state.direction
            computed_heads = session.token_rows.compute([*shown_heads, *heads], *row_key)
            is_complete = all(session.token_rows.find(head, *row_key) is not None for head in heads)
        elif not state.has_open_head:
            grid = tiles(session, state, screen.size)
            shown_heads = grid.on_screen(state.top)
            heads = list(dict.fromkeys((*shown_heads, *range(session.recorded_count))))
            computed_heads = session.thumbnails.compute(heads, state.view, grid.pixels)
        view, ranking = state.view, session.ranking
        if set(computed_heads) & set(shown_heads) or (computed_heads and is_complete):
            self.show(state)
        elif computed_heads:
            self.compute()
        else:
            if view.order is not None and not ranking.is_sorted(view):
                self.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, view.order))
            elif (call_heads := ranking.next_unnamed_call(view)) is not None:
                self.background.start("measure", partial(ranking.name_patterns, call_heads), self.show_patterns)
            if session.unfinished_blocks:
                self.background.start("refine", self.refine, self.redraw)

    def show_patterns(self) -> None:
        """Draws the heads with their new patterns; if these were the last, applies the filter."""
        view = self.state.view
        is_last = self.session.ranking.next_unnamed_call(view) is None
        if view.filter and is_last:
            self.show(filter_heads(self.current_screen, self.state, view.filter))
        else:
            self.redraw()
        if is_last and not self.last_key_time:
            self.background.start("sentence", self.find_sentence, self.show_sentence)

    def find_sentence(self) -> None:
        """Finds the sentence on what stands out, and on layers without attention if it fits; runs in a thread."""
        session, recording, heads = self.session, self.session.recording, self.session.chosen_heads
        phrases: tuple[Phrase, ...] = ()
        if session.unit_name == TURNS and session.begins_joined:
            from attnviz.report.maps.exact_numbers import turns_of

            phrases = turns_sentence(turns_of(recording, heads)[1])
        phrases = phrases or first_sentence(heads, session.ranking.frame, session.left_out)
        for remark in recording.silence_remarks:
            longer = (*phrases, Phrase(f" {remark}" if phrases else remark))
            message = "".join(phrase.text for phrase in longer)
            if len(wrap(message, self.current_screen.size.width - 2)) <= 2:
                phrases = longer
        session.phrases = phrases

    def show_sentence(self) -> None:
        """Says what stands out, unless the user did something already."""
        if not self.last_key_time and not self.state.has_open_head and not self.state.message:
            self.show(replace(self.state, message="".join(phrase.text for phrase in self.session.phrases)))

    def go_to(self, address: str) -> None:
        """Goes to what a phrase of the sentence speaks of, which are heads and single tokens."""
        view = replace(self.state.view, words=False)
        state = replace(self.state, view=view, has_open_head=False, heads_beside=(), lens=False, message="")
        self.go(state_at(self.current_screen, state, address))

    def measure(self, metric: str) -> None:
        """Measures a metric in a thread, and then chooses the first head in its order if heads are still sorted by it.

        Does nothing if heads are no longer sorted by the metric, if it is already measured, or while other work of this
        kind runs.
        """
        ranking = self.session.ranking

        def go_to_first_ranked() -> None:
            is_order = metric == self.state.view.order
            self.show(with_first_ranked_head(self.current_screen, self.state) if is_order else self.state)

        if metric == self.state.view.order and metric not in ranking.measured_names:
            self.background.start("measure", partial(ranking.measure, metric), go_to_first_ranked)

    def refine(self) -> None:
        """Refines the maps on the screen until all are finished, and draws them now and then.

        Pauses for ``SECONDS_BEFORE_REFINING`` after each key press or click. Runs in a thread.
        """
        last_drawing = time.monotonic()
        while block := next((block for block in self.session.unfinished_blocks if not block.is_finished), None):
            if time.monotonic() < self.last_key_time + SECONDS_BEFORE_REFINING:
                time.sleep(SECONDS_BEFORE_REFINING / 5)  # short, so that work resumes soon after the pause
                continue
            block.advance()
            if time.monotonic() > last_drawing + SECONDS_BETWEEN_DRAWINGS:
                self.call_later(self.redraw)
                last_drawing = time.monotonic()
