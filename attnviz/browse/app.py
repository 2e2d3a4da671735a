"""The inspector's process: textual hands in keys, clicks and sizes, and is given the lines that changed."""

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

from attnviz.browse.clicks import clicked, said_under
from attnviz.browse.computing import Computing
from attnviz.browse.drawing.draw import draw_screen, padded
from attnviz.browse.drawing.graphics import (
    SIXEL_ATTRIBUTE,
    Protocol,
    cleared,
    escapes,
    known_protocol,
    terminal_character,
)
from attnviz.browse.drawing.pixels import COLORS, style_of
from attnviz.browse.drawing.themes import on_paper
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.history import remembered
from attnviz.browse.moves.keys import ACTIONS, press
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.moves.place import start_state
from attnviz.browse.process.application import Application
from attnviz.browse.prompt import PromptLine, Save
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.hints import written
from attnviz.render.terminal.lines import Line, Span

NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # has textual pass the text on as it is


class Canvas(Widget):
    """The whole screen: lines drawn elsewhere, of which those that changed are sent to the terminal."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"
    can_focus = True

    def __init__(self, session: Session, save: Save, ascii: bool) -> None:
        super().__init__()
        self.session, self.ascii = session, ascii
        self.state = State()
        self.lines: list[Line] = []
        self.strips: list[Strip] = []
        self.early: list[events.Key] = []  # keys from before the first size is known wait for it
        self.pressed = 0.0
        self.computing, self.prompt = Computing(self), PromptLine(self, save)
        self.protocol = known_protocol(os.environ)
        self.covered = False  # by the palette, over which pixels would be drawn

    @property
    def here(self) -> Screen:
        """What an answer to a key depends on."""
        colors = 0 if self.app.no_color or self.ascii else COLORS.get(self.app.console.color_system or "", 0)
        draws = self.protocol is not None and colors > ANSI_COLORS and not self.covered
        return Screen(
            self.session, Size(self.size.width, self.size.height, self.character() if draws else None), colors
        )

    def character(self) -> tuple[int, int] | None:
        """Width and height of a character in pixels, where that is known."""
        return None if self.app.is_headless else terminal_character()

    def draws(self, protocol: Protocol) -> None:
        """Draws pixels from now on, where the terminal tells how many a character has."""
        if self.protocol is None:
            self.protocol = protocol
            self.redraw()

    def cover(self, covered: bool) -> None:
        """Leaves pixels out as long as something else is drawn over the canvas."""
        self.covered = covered
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """A line as it was last drawn."""
        return self.strips[y] if y < len(self.strips) else Strip.blank(self.size.width)

    def on_mount(self) -> None:
        """Takes the keys, and draws everything again when the process goes on after Ctrl-Z."""
        self.focus()
        self.app.app_resume_signal.subscribe(self, lambda app: self.app.refresh(repaint=True, layout=True))

    def on_resize(self) -> None:
        """Draws for the new size."""
        self.go(self.state if self.lines else start_state(self.here))
        early, self.early = self.early, []
        for event in early:
            self.on_key(event)

    def go(self, state: State) -> None:
        """Draws the state, and sends the lines that differ from what is on the screen."""
        screen = self.here
        self.state = settle(screen, state) if screen.size.enough else state
        self.session.wanted = []
        lines = draw_screen(screen, self.state, self.ascii)
        changed = [y for y, line in enumerate(lines) if y >= len(self.lines) or line != self.lines[y]]
        character, anew = screen.size.character, set(changed)
        self.strips = [self.strip(y, line, character) if y in anew else self.strips[y] for y, line in enumerate(lines)]
        self.lines = lines
        if changed:
            self.refresh(*(Region(0, y, screen.size.width, 1) for y in changed))
        self.computing.start()

    def strip(self, y: int, line: Line, character: tuple[int, int] | None) -> Strip:
        """A line as textual takes it, and the pixels over it."""
        strip = strip_of(line)
        before = cleared(y) if self.protocol == "kitty" else ""
        after = escapes(line, y, character, self.protocol) if character and self.protocol else ""
        if not before and not after:
            return strip
        return Strip([Segment(before, None, NO_COLUMNS), *strip, Segment(after, None, NO_COLUMNS)])

    def redraw(self) -> None:
        """Draws what was found."""
        if self.is_attached:
            self.go(self.state)

    def on_key(self, event: events.Key) -> None:
        """Answers a key: typed where a prompt is open, else what it is bound to."""
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
        """Does what a key does; the palette is textual's."""
        if key in ("colon", "ctrl+p") and not self.state.help:
            self.app.action_command_palette()
        else:
            self.go(press(self.here, self.state, key))

    def on_paste(self, event: events.Paste) -> None:
        """Types what is pasted."""
        if self.state.prompt is not None:
            self.prompt.paste(event.text)

    def on_click(self, event: events.Click) -> None:
        """Presses the button, or moves the cursor to what was clicked; a second click opens it."""
        self.pressed = time.monotonic()
        if not self.here.size.enough or not self.lines:
            return
        key, state = clicked(self.here, self.state, event.x, event.y, event.chain > 1)
        self.go(remembered(self.state, state))
        if key and state.prompt == "copy":
            self.prompt.copy(key) if key != "escape" else self.go(replace(state, prompt=None))
        elif key in ("q", "ctrl+c"):
            self.app.exit(0)
        elif key:
            self.press(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Tells in the status line what is under the mouse."""
        state = self.state
        if len(self.lines) < 3 or state.prompt or state.help or state.message or not self.here.size.enough:
            return
        said = said_under(self.here, self.state, event.x, event.y)
        width, y = self.here.size.width, len(self.lines) - 2
        line = on_paper(padded([Span(f" {said}")], width), state.theme) if said else self.lines[y]
        strip = strip_of(line)
        if strip != self.strips[y]:
            self.strips[y] = strip
            self.refresh(Region(0, y, width, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves down, or out of the map with Control."""
        self.go(press(self.here, self.state, "minus" if event.ctrl else "down"))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves up, or into the map with Control."""
        self.go(press(self.here, self.state, "plus" if event.ctrl else "up"))


class Browser(Application[int]):
    """The inspector as an application."""

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
        """Every action by what it does, with its key, for the palette."""
        for title, key in ACTIONS:
            yield SystemCommand(title, f"key {written(key)}", partial(self.canvas.press, key))
        yield SystemCommand("quit", "key q", partial(self.exit, 0))

    def compose(self) -> ComposeResult:
        """The canvas and nothing else."""
        yield self.canvas

    def get_default_screen(self) -> TextualScreen[object]:
        """One that tells the canvas what is over it."""
        return Uncovered(self.canvas)

    def answered(self, attributes: list[str]) -> None:
        """Draws pixels on a terminal that says it has sixels."""
        if SIXEL_ATTRIBUTE in attributes:
            self.call_later(self.canvas.draws, "sixel")


class Uncovered(TextualScreen[object]):
    """The screen that the canvas is on."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__()
        self.canvas = canvas

    def on_screen_suspend(self) -> None:
        """The palette is drawn over it."""
        self.canvas.cover(True)

    def on_screen_resume(self) -> None:
        """Nothing is any more."""
        self.canvas.cover(False)


def strip_of(line: Line) -> Strip:
    """A line as textual takes it: plain segments, in which nothing is markup."""
    runs = groupby(line, key=lambda span: (span.ink, span.paper, span.style))
    return Strip([Segment("".join(span.text for span in run), style_of(*look)) for look, run in runs])
