"""Runs the inspector in textual: keys, clicks and sizes come in, and changed lines go out."""

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

from attnviz.browse.clicks import clicked, described_under
from attnviz.browse.computing import Computing
from attnviz.browse.drawing.draw import draw_screen, padded
from attnviz.browse.drawing.graphics import (
    SIXEL_ATTRIBUTE,
    Protocol,
    clear_escape,
    escapes,
    known_protocol,
    terminal_character,
)
from attnviz.browse.drawing.pixels import COLORS, style_of
from attnviz.browse.drawing.themes import on_paper
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.history import with_history
from attnviz.browse.moves.keys import ACTIONS, press
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.moves.place import start_state
from attnviz.browse.process.application import Application
from attnviz.browse.prompt import PromptLine, Save
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.hints import key_label
from attnviz.render.terminal.lines import Line, Span

NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # textual writes the text of a control segment unchanged


class Canvas(Widget):
    """The whole screen; it sends only the lines that changed to the terminal."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"
    can_focus = True

    def __init__(self, session: Session, save: Save, ascii: bool) -> None:
        super().__init__()
        self.session, self.ascii = session, ascii
        self.state = State()
        self.lines: list[Line] = []
        self.strips: list[Strip] = []
        self.early: list[events.Key] = []  # keys that come before the first size; on_resize answers them
        self.pressed = 0.0
        self.computing, self.prompt = Computing(self), PromptLine(self, save)
        self.protocol = known_protocol(os.environ)
        self.covered = False  # True while the palette is open: pixels would be drawn over it

    @property
    def here(self) -> Screen:
        """The recording, the terminal and its colours."""
        colors = 0 if self.app.no_color or self.ascii else COLORS.get(self.app.console.color_system or "", 0)
        draws = self.protocol is not None and colors > ANSI_COLORS and not self.covered
        return Screen(
            self.session, Size(self.size.width, self.size.height, self.character() if draws else None), colors
        )

    def character(self) -> tuple[int, int] | None:
        """Returns the width and height of a character in pixels; ``None`` if unknown."""
        return None if self.app.is_headless else terminal_character()

    def draws(self, protocol: Protocol) -> None:
        """Draws pixels from now on, by a protocol that the terminal says it has."""
        if self.protocol is None:
            self.protocol = protocol
            self.redraw()

    def cover(self, covered: bool) -> None:
        """Leaves pixels out while the palette covers the canvas, and draws them again afterwards."""
        self.covered = covered
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Returns a line of the screen as it was last drawn."""
        return self.strips[y] if y < len(self.strips) else Strip.blank(self.size.width)

    def on_mount(self) -> None:
        """Takes the focus, and has the screen drawn again when the process resumes after Ctrl-Z."""
        self.focus()
        self.app.app_resume_signal.subscribe(self, lambda app: self.app.refresh(repaint=True, layout=True))

    def on_resize(self) -> None:
        """Draws the screen for the new size, then answers the keys that came before the first size."""
        self.go(self.state if self.lines else start_state(self.here))
        early, self.early = self.early, []
        for event in early:
            self.on_key(event)

    def go(self, state: State) -> None:
        """Draws a state, and sends the lines that changed to the terminal."""
        screen = self.here
        self.state = settle(screen, state) if screen.size.enough else state
        self.session.unfinished = []
        lines = draw_screen(screen, self.state, self.ascii)
        changed = [y for y, line in enumerate(lines) if y >= len(self.lines) or line != self.lines[y]]
        character, anew = screen.size.character, set(changed)
        self.strips = [self.strip(y, line, character) if y in anew else self.strips[y] for y, line in enumerate(lines)]
        self.lines = lines
        if changed:
            self.refresh(*(Region(0, y, screen.size.width, 1) for y in changed))
        self.computing.start()

    def strip(self, y: int, line: Line, character: tuple[int, int] | None) -> Strip:
        """Returns a line as textual draws it, with escape sequences for the pixels over it.

        Args:
            y: the line on the screen, from 0.
            line: the spans of the line.
            character: width and height of a character in pixels; ``None`` draws no pixels.
        """
        strip = strip_of(line)
        before = clear_escape(y) if self.protocol == "kitty" else ""
        after = escapes(line, y, character, self.protocol) if character and self.protocol else ""
        if not before and not after:
            return strip
        return Strip([Segment(before, None, NO_COLUMNS), *strip, Segment(after, None, NO_COLUMNS)])

    def redraw(self) -> None:
        """Draws the state again, with results of background work."""
        if self.is_attached:
            self.go(self.state)

    def on_key(self, event: events.Key) -> None:
        """Answers a key: an open prompt takes it as text, else it does what it is bound to."""
        event.stop()
        event.prevent_default()
        self.pressed = time.monotonic()
        if not self.lines:
            self.early.append(event)
        elif self.state.prompt is not None:
            self.prompt.type(event)
        elif event.key in ("q", "ctrl+c"):
            self.app.exit(0)
        elif event.key == "ctrl+z":
            self.app.action_suspend_process()
        else:
            self.press(event.key)

    def press(self, key: str) -> None:
        """Does what a key is bound to; textual draws the palette."""
        if key in ("colon", "ctrl+p") and not self.state.help:
            self.app.action_command_palette()
        else:
            self.go(press(self.here, self.state, key))

    def on_paste(self, event: events.Paste) -> None:
        """Adds pasted text to an open prompt."""
        if self.state.prompt is not None:
            self.prompt.paste(event.text)

    def on_click(self, event: events.Click) -> None:
        """Presses the button under the mouse, or moves the cursor there; a second click opens the head."""
        self.pressed = time.monotonic()
        if not self.here.size.enough or not self.lines:
            return
        key, state = clicked(self.here, self.state, event.x, event.y, event.chain > 1)
        self.go(with_history(self.state, state))
        if key and state.prompt == "copy":
            self.prompt.copy(key) if key != "escape" else self.go(replace(state, prompt=None))
        elif key in ("q", "ctrl+c"):
            self.app.exit(0)
        elif key:
            self.press(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Describes in the status line what is under the mouse."""
        state = self.state
        if len(self.lines) < 3 or state.prompt or state.help or state.message or not self.here.size.enough:
            return
        description = described_under(self.here, self.state, event.x, event.y)
        width, y = self.here.size.width, len(self.lines) - 2
        line = on_paper(padded([Span(f" {description}")], width), state.theme) if description else self.lines[y]
        strip = strip_of(line)
        if strip != self.strips[y]:
            self.strips[y] = strip
            self.refresh(Region(0, y, width, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves the cursor down; with Control, zooms out."""
        self.go(press(self.here, self.state, "minus" if event.ctrl else "down"))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves the cursor up; with Control, zooms in."""
        self.go(press(self.here, self.state, "plus" if event.ctrl else "up"))


class Browser(Application[int]):
    """The inspector of a recording as an application."""

    COMMAND_PALETTE_BINDING = "ctrl+p"
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Canvas { background: ansi_default; }
    CommandPalette CommandList { min-width: 20; }  /* textual ends with an error where lines of it have no column */
    """

    def __init__(self, session: Session, save: Save, ascii: bool = False) -> None:
        super().__init__()
        self.canvas = Canvas(session, save, ascii)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """Yields the entries of the palette: every action, with its key."""
        for title, key in ACTIONS:
            yield SystemCommand(title, f"key {key_label(key)}", partial(self.canvas.press, key))
        yield SystemCommand("quit", "key q", partial(self.exit, 0))

    def compose(self) -> ComposeResult:
        """Yields the canvas, which is the only widget."""
        yield self.canvas

    def get_default_screen(self) -> TextualScreen[object]:
        """Returns a screen that tells the canvas when the palette covers it."""
        return CanvasScreen(self.canvas)

    def answered(self, attributes: list[str]) -> None:
        """Switches to sixels when the terminal says that it draws them."""
        if SIXEL_ATTRIBUTE in attributes:
            self.call_later(self.canvas.draws, "sixel")


class CanvasScreen(TextualScreen[object]):
    """The screen of the canvas; it tells the canvas when the palette covers it."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__()
        self.canvas = canvas

    def on_screen_suspend(self) -> None:
        """Tells the canvas that the palette covers it."""
        self.canvas.cover(True)

    def on_screen_resume(self) -> None:
        """Tells the canvas that the palette is closed."""
        self.canvas.cover(False)


def strip_of(line: Line) -> Strip:
    """Returns a line as textual draws it: plain segments, so that nothing in a token is markup."""
    runs = groupby(line, key=lambda span: (span.ink, span.paper, span.style))
    return Strip([Segment("".join(span.text for span in run), style_of(*look)) for look, run in runs])
