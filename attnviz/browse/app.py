"""Runs the inspector in textual: answers key presses and clicks, and sends changed lines to the terminal."""

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby

from rich.segment import ControlType, Segment
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.geometry import Region
from textual.screen import Screen as TextualScreen
from textual.strip import Strip
from textual.widget import Widget

from attnviz.browse.clicks import click_result, description_at
from attnviz.browse.computing import Computing
from attnviz.browse.drawing.draw import draw_screen, padded_line
from attnviz.browse.drawing.graphics import (
    SIXEL_ATTRIBUTE,
    Protocol,
    clear_escape,
    picture_escape,
    protocol_of_environment,
    terminal_character,
)
from attnviz.browse.drawing.pixels import COLORS, style_of
from attnviz.browse.drawing.themes import themed_line
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.history import with_history
from attnviz.browse.moves.keys import ACTIONS, press
from attnviz.browse.moves.layout import ANSI_COLORS, FIXED_LINES
from attnviz.browse.moves.place import start_state
from attnviz.browse.moves.steps import next_frame
from attnviz.browse.process.application import Application
from attnviz.browse.prompt import PromptLine, Save
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.hints import key_label
from attnviz.render.terminal.lines import Line, Span

SECONDS_A_STEP = 0.5  # for which a written token is shown while steps are played
NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # textual writes the text of a control segment unchanged


class _Canvas(Widget):
    """The widget that draws the whole screen; it sends only changed lines to the terminal."""

    DEFAULT_CSS = "_Canvas { width: 100%; height: 100%; }"
    can_focus = True

    def __init__(self, session: Session, save: Save, ascii: bool) -> None:
        super().__init__()
        self.session, self.ascii = session, ascii
        self.state = State()
        self.lines: list[Line] = []  # as drawn last; empty before the first size is known
        self.strips: list[Strip] = []  # the same lines as textual draws them
        self.early_keys: list[events.Key] = []  # key presses before the first size is known
        self.last_key_time = 0.0
        self.computing, self.prompt = Computing(self), PromptLine(self, save)
        self.protocol = protocol_of_environment(os.environ)
        self.frame_is_due = False  # True while a timer runs for the next step that is played
        self.palette_open = False  # True while the palette is open: pixels would be drawn over it

    @property
    def current_screen(self) -> Screen:
        """The recording with the size and the colours of the terminal, as they are now."""
        colors = 0 if self.app.no_color or self.ascii else COLORS.get(self.app.console.color_system or "", 0)
        draws_pixels = self.protocol is not None and colors > ANSI_COLORS and not self.palette_open
        width, height = self.size.width, self.size.height
        character = self.character_size() if draws_pixels else None
        size = Size(width, height, character, self.session.text_lines(width), self.session.has_images)
        return Screen(self.session, size, colors)

    def character_size(self) -> tuple[int, int] | None:
        """Returns the width and height of a character in pixels; ``None`` if unknown."""
        return None if self.app.is_headless else terminal_character()

    def start_pixels(self, protocol: Protocol) -> None:
        """Starts to draw pixels in a protocol of the terminal; does nothing if a protocol is known already."""
        if self.protocol is None:
            self.protocol = protocol
            self.redraw()

    def set_palette_open(self, palette_open: bool) -> None:
        """Stores whether the palette is open, and draws the screen again: without pixels while it is open."""
        self.palette_open = palette_open
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Returns line ``y`` of the latest drawing as a strip; a blank strip below its last line."""
        return self.strips[y] if y < len(self.strips) else Strip.blank(self.size.width)

    def on_mount(self) -> None:
        """Takes the focus, and draws the screen again whenever the process resumes after Ctrl-Z."""
        self.focus()
        self.app.app_resume_signal.subscribe(self, lambda app: self.app.refresh(repaint=True, layout=True))

    def on_resize(self) -> None:
        """Draws the screen for the new size, then answers the key presses that came before the first size."""
        self.show_state(self.state if self.lines else start_state(self.current_screen))
        early_keys, self.early_keys = self.early_keys, []
        for event in early_keys:
            self.on_key(event)

    def show_state(self, state: State) -> None:
        """Stores the nearest state that can be drawn, draws it, and schedules computing what the screen lacks.

        If the terminal is too small, stores the state unchanged and draws a refusal. While steps are played, also
        starts the timer of the next step.
        """
        screen = self.current_screen
        self.state = settle(screen, state) if screen.size.is_large_enough else state
        self.session.unfinished_blocks = []
        lines = draw_screen(screen, self.state, self.ascii)
        line_has_changed = [y >= len(self.lines) or line != self.lines[y] for y, line in enumerate(lines)]
        self.strips = [
            self.strip(y, line, screen.size.character) if has_changed else self.strips[y]
            for y, (line, has_changed) in enumerate(zip(lines, line_has_changed, strict=True))
        ]
        self.lines = lines
        changed_regions = [Region(0, y, screen.size.width, 1) for y in range(len(lines)) if line_has_changed[y]]
        if changed_regions:
            self.refresh(*changed_regions)
        self.computing.start()
        if self.state.playing and not self.frame_is_due:
            self.frame_is_due = True
            self.set_timer(SECONDS_A_STEP, self.show_next_frame)

    def show_next_frame(self) -> None:
        """Shows the next step if steps are still played."""
        self.frame_is_due = False
        if self.state.playing:
            self.show_state(next_frame(self.current_screen, self.state))

    def strip(self, y: int, line: Line, character: tuple[int, int] | None) -> Strip:
        """Returns a line as a strip of Textual, with escape sequences for the pixels over it."""
        strip = _strip_of(line)
        clear_sequence = clear_escape(y) if self.protocol == "kitty" else ""
        picture_sequence = picture_escape(line, y, character, self.protocol) if character and self.protocol else ""
        if not clear_sequence and not picture_sequence:
            return strip
        return Strip([Segment(clear_sequence, None, NO_COLUMNS), *strip, Segment(picture_sequence, None, NO_COLUMNS)])

    def redraw(self) -> None:
        """Draws the current state again, with new results of background work, unless the canvas is removed."""
        if self.is_attached:
            self.show_state(self.state)

    def on_key(self, event: events.Key) -> None:
        """Answers a key press: passes it to an open prompt, or else quits, suspends the process, or runs its binding.

        Key presses before the first drawing are stored for `on_resize`.
        """
        event.stop()  # textual's own bindings must not answer it too
        event.prevent_default()
        self.last_key_time = time.monotonic()
        if not self.lines:
            self.early_keys.append(event)
        elif self.state.prompt is not None:
            self.prompt.answer_key(event)
        elif event.key == "ctrl+c" or (event.key == "q" and not self.state.help):  # any other key closes the help
            self.app.exit(0)
        elif event.key == "ctrl+z":
            self.app.action_suspend_process()
        else:
            self.press(event.key)

    def press(self, key: str) -> None:
        """Answers a key press by its binding; ``:`` and Ctrl-P open the palette, unless the help is shown."""
        if key in ("colon", "ctrl+p") and not self.state.help:
            self.app.action_command_palette()
        else:
            self.show_state(press(self.current_screen, self.state, key))

    def on_paste(self, event: events.Paste) -> None:
        """Adds pasted text to the prompt, if one is open."""
        if self.state.prompt is not None:
            self.prompt.paste(event.text)

    def on_click(self, event: events.Click) -> None:
        """Answers a click: presses the key of a hint, moves the cursor, chooses a head, or closes the help or a prompt.

        A hint of the copy prompt copies, or closes the prompt. A click on the chosen head opens it, as does a double
        click on any head. A click before the first drawing, or in a terminal that is too small, does nothing.
        """
        self.last_key_time = time.monotonic()
        if not self.current_screen.size.is_large_enough or not self.lines:
            return
        key, state = click_result(self.current_screen, self.state, event.x, event.y, is_double=event.chain > 1)
        self.show_state(with_history(self.state, state))
        if key and state.prompt == "copy":
            if key == "escape":
                self.show_state(replace(state, prompt=None))
            else:
                self.prompt.copy(key)
        elif key in ("q", "ctrl+c"):
            self.app.exit(0)
        elif key:
            self.press(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Shows a description of what is under the mouse as the status line; if nothing is there, the usual line.

        Does nothing if a prompt, help or a message is shown, before the first drawing, or if the terminal is too small.
        """
        state = self.state
        is_drawn = len(self.lines) >= FIXED_LINES and self.current_screen.size.is_large_enough
        if not is_drawn or state.prompt or state.help or state.message:
            return
        description = description_at(self.current_screen, self.state, event.x, event.y)
        width, status_y = self.current_screen.size.width, len(self.lines) - 2  # the last line holds the hints
        line = self.lines[status_y]
        if description:
            line = themed_line(padded_line([Span(f" {description}")], width), state.theme)
        strip = _strip_of(line)
        if strip != self.strips[status_y]:
            self.strips[status_y] = strip
            self.refresh(Region(0, status_y, width, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves the cursor down; with Control, zooms out."""
        self.show_state(press(self.current_screen, self.state, "minus" if event.ctrl else "down"))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves the cursor up; with Control, zooms in."""
        self.show_state(press(self.current_screen, self.state, "plus" if event.ctrl else "up"))


class Browser(Application[int]):
    """The application that shows a recording; its result is its exit code."""

    COMMAND_PALETTE_BINDING = "ctrl+p"
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    _Canvas { background: ansi_default; }
    CommandPalette CommandList { min-width: 20; }  /* a narrower one makes textual fail */
    """

    def __init__(self, session: Session, save: Save, ascii: bool = False) -> None:
        super().__init__()
        self.canvas = _Canvas(session, save, ascii)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """Yields the entries of the palette: every action, with its key."""
        for title, key in ACTIONS:
            yield SystemCommand(title, f"key {key_label(key)}", partial(self.canvas.press, key))
        yield SystemCommand("quit", "key q", partial(self.exit, 0))

    def compose(self) -> ComposeResult:
        """Yields the canvas, which is the only widget."""
        yield self.canvas

    def get_default_screen(self) -> TextualScreen[object]:
        """Returns the screen of the canvas."""
        return _CanvasScreen(self.canvas)

    def receive_attributes(self, attributes: list[str]) -> None:
        """Starts to draw sixels if the terminal answers that it can."""
        if SIXEL_ATTRIBUTE in attributes:
            self.call_later(self.canvas.start_pixels, "sixel")


class _CanvasScreen(TextualScreen[object]):
    """The screen that contains the canvas; it tells the canvas when the palette opens and closes."""

    def __init__(self, canvas: _Canvas) -> None:
        super().__init__()
        self.canvas = canvas

    def on_screen_suspend(self) -> None:
        """Tells the canvas that the palette covers the screen."""
        self.canvas.set_palette_open(palette_open=True)

    def on_screen_resume(self) -> None:
        """Tells the canvas that the palette is closed."""
        self.canvas.set_palette_open(palette_open=False)


def _strip_of(line: Line) -> Strip:
    """Returns a line as a strip of the library Textual, whose segments are plain text: no token is read as markup."""
    runs = groupby(line, key=lambda span: (span.ink, span.paper, span.style))
    return Strip(
        [Segment("".join(span.text for span in run), style_of(*colors_and_style)) for colors_and_style, run in runs]
    )
