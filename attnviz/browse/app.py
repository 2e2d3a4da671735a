"""The inspector's process: textual hands in keys, clicks and sizes, and is given the lines that changed."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Thread

from rich.segment import ControlType, Segment
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.geometry import Region
from textual.screen import Screen as TextualScreen
from textual.strip import Strip
from textual.widget import Widget

from attnviz.base.errors import AttnvizError, flag
from attnviz.browse.application import Application
from attnviz.browse.clicks import clicked, said_under
from attnviz.browse.copying import copied
from attnviz.browse.cursor import Screen, first_ranked, settle
from attnviz.browse.draw import draw_screen, padded
from attnviz.browse.finding import filter_heads, find
from attnviz.browse.graphics import SIXEL_ATTRIBUTE, Protocol, cleared, escapes, known_protocol, terminal_character
from attnviz.browse.hints import written
from attnviz.browse.history import remembered
from attnviz.browse.keys import ACTIONS, press
from attnviz.browse.layout import ANSI_COLORS, tiles
from attnviz.browse.lens_layout import lens_heads, lens_pane
from attnviz.browse.pixels import COLORS, style_of
from attnviz.browse.place import start_state
from attnviz.browse.session import Session
from attnviz.browse.state import Size, State
from attnviz.browse.themes import on_paper
from attnviz.render.terminal.lines import Line, Span

NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # has textual pass the text on as it is
SECONDS_BEFORE_MEASURING = 0.2  # at a metric
SECONDS_BETWEEN_SLICES = 0.001  # of background work, so that keys come first
SECONDS_BEFORE_REFINING = 0.15  # after a key
SECONDS_BETWEEN_DRAWINGS = 0.25  # of a map that is being refined
Work = Callable[[], None]
Save = Callable[[Screen, State, Path], None]


class Canvas(Widget):
    """The whole screen: lines drawn elsewhere, of which those that changed are sent to the terminal."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"
    can_focus = True

    def __init__(self, session: Session, save: Save, ascii: bool) -> None:
        super().__init__()
        self.session, self.save, self.ascii = session, save, ascii
        self.state = State()
        self.lines: list[Line] = []
        self.strips: list[Strip] = []
        self.early: list[events.Key] = []  # keys from before the first size is known wait for it
        self.working = False
        self.pressed = 0.0
        self.background = Background(self.call_later)
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
        self.start_work()

    def strip(self, y: int, line: Line, character: tuple[int, int] | None) -> Strip:
        """A line as textual takes it, and the pixels over it."""
        strip = strip_of(line)
        before = cleared(y) if self.protocol == "kitty" else ""
        after = escapes(line, y, character, self.protocol) if character and self.protocol else ""
        if not before and not after:
            return strip
        return Strip([Segment(before, None, NO_COLUMNS), *strip, Segment(after, None, NO_COLUMNS)])

    def start_work(self) -> None:
        """Goes on with what is still to be computed, between keys."""
        if not self.working and self.here.size.enough:
            self.working = True
            self.set_timer(SECONDS_BETWEEN_SLICES, self.work)

    def work(self) -> None:
        """One slice: what is on the screen first, then the rest; when all is there, what threads do."""
        self.working = False
        screen, state = self.here, self.state
        if not screen.size.enough:
            return
        computed, seen = self.compute_rows(state) if state.lens and not state.opened else self.compute_thumbnails(state)
        if seen or (computed and state.lens and not self.lens_missing()):
            self.go(state)
        elif computed:
            self.start_work()
        else:
            self.start_background()

    def compute_thumbnails(self, state: State) -> tuple[bool, bool]:
        """Computes some thumbnails: whether there were any, and any on the screen."""
        if state.opened:
            return False, False
        grid = tiles(self.session, state, self.here.size)
        first = grid.on_screen(state.top)
        everyone = [*first, *(head for head in range(self.session.recorded) if head not in set(first))]
        computed = self.session.thumbnails.compute(everyone, state.view, grid.pixels)
        return bool(computed), bool(set(computed) & set(first))

    def compute_rows(self, state: State) -> tuple[bool, bool]:
        """Computes some rows of the lens: whether there were any, and any on the screen."""
        heads, lines = lens_heads(self.session, state), lens_pane(self.session, state, self.here.size).lines
        first = heads[state.top : state.top + lines]
        everyone = [*first, *(head for head in heads if head not in set(first))]
        computed = self.session.token_rows.compute(everyone, state.view, state.token, state.direction)
        return bool(computed), bool(set(computed) & set(first))

    def lens_missing(self) -> bool:
        """Whether some rows of the lens are still to be computed."""
        state, row = self.state, self.session.token_rows.find
        heads = lens_heads(self.session, state)
        return any(row(head, state.view, state.token, state.direction) is None for head in heads)

    def start_background(self) -> None:
        """Has measured what heads are sorted by, where the user has stopped at it, and what else is unknown."""
        order = self.state.view.order
        if order is not None and not self.session.ranking.is_sorted(self.state.view):
            self.set_timer(SECONDS_BEFORE_MEASURING, partial(self.measure, order))
        elif (group := self.session.ranking.unnamed(self.state.view)) is not None:
            self.background.start("measure", partial(self.session.ranking.name, group), self.named)
        if self.session.wanted:
            self.background.start("refine", self.refine, self.redraw)

    def named(self) -> None:
        """Draws what was measured; a filter that asked for it is then applied."""
        words = self.state.view.filter
        if words and self.session.ranking.unnamed(self.state.view) is None:
            self.go(filter_heads(self.here, self.state, words))
        else:
            self.redraw()

    def measure(self, order: str) -> None:
        """Measures what heads are still sorted by, and moves to the first of them."""
        if order == self.state.view.order and order not in self.session.ranking.numbers:
            self.background.start("measure", partial(self.session.ranking.measure, order), partial(self.ranked, order))

    def ranked(self, order: str) -> None:
        """Moves to the first head of what is still asked for."""
        self.go(first_ranked(self.here, self.state) if order == self.state.view.order else self.state)

    def redraw(self) -> None:
        """Draws what was found."""
        if self.is_attached:
            self.go(self.state)

    def refine(self) -> None:
        """Refines what is on the screen, in a thread, while no key is pressed."""
        drawn = time.monotonic()
        while block := next((each for each in self.session.wanted if not each.finished), None):
            if time.monotonic() < self.pressed + SECONDS_BEFORE_REFINING:
                time.sleep(SECONDS_BEFORE_REFINING / 5)
                continue
            block.advance()
            if time.monotonic() > drawn + SECONDS_BETWEEN_DRAWINGS:
                self.call_later(self.redraw)
                drawn = time.monotonic()

    def on_key(self, event: events.Key) -> None:
        """Answers a key: typed where a prompt is open, else what it is bound to."""
        event.stop()
        event.prevent_default()
        self.pressed = time.monotonic()
        if not self.lines:
            self.early.append(event)
        elif self.state.prompt is not None:
            self.type(event)
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

    def type(self, event: events.Key) -> None:
        """One key of a name that is being typed; a name that was only offered is replaced."""
        state = self.state
        kept = replace(state, offered=False)
        if event.key == "escape":
            self.go(replace(kept, prompt=None, typed=""))
        elif state.prompt == "copy":
            self.copy(event.key)
        elif event.key == "enter":
            self.answer()
        elif event.key == "backspace":
            self.go(replace(kept, typed=state.typed[:-1]))
        elif event.key == "ctrl+u":
            self.go(replace(kept, typed=""))
        elif event.key in ("left", "right", "end"):
            self.go(kept)
        elif event.is_printable and event.character:
            self.go(replace(kept, typed=("" if state.offered else state.typed) + event.character))

    def copy(self, what: str) -> None:
        """Has the terminal copy what the key stands for (OSC 52)."""
        state = replace(self.state, prompt=None)
        try:
            text, said = copied(self.here, state, what)
        except AttnvizError as error:
            text, said = "", str(error)
        if text:
            self.app.copy_to_clipboard(text)
        self.go(replace(state, message=said))

    def on_paste(self, event: events.Paste) -> None:
        """Types what is pasted."""
        if self.state.prompt is not None:
            pasted = "".join(character for character in event.text if character.isprintable())
            before = "" if self.state.offered else self.state.typed
            self.go(replace(self.state, typed=before + pasted, offered=False))

    def answer(self) -> None:
        """Does what was asked for: finds, or saves without keeping the keys waiting."""
        state = self.state
        if state.prompt in ("query", "key"):
            self.go(remembered(state, find(self.here, state, state.typed)))
            return
        if state.prompt == "filter":
            self.go(remembered(state, filter_heads(self.here, state, state.typed)))
            return
        path = Path(os.path.expanduser(state.typed))
        self.go(replace(state, prompt=None, typed="", message=f"saving {path} …"))
        screen = self.here
        self.run_worker(lambda: self.write(screen, state, path), thread=True, group="save")

    def write(self, screen: Screen, state: State, path: Path) -> None:
        """Writes the picture, in a thread, and says how it went."""
        try:
            self.save(screen, state, path)
            message = f"saved {path}"
        except AttnvizError as error:
            message = error.worded(flag)
        self.app.call_from_thread(lambda: self.go(replace(self.state, message=message)))

    def on_click(self, event: events.Click) -> None:
        """Presses the button, or moves the cursor to what was clicked; a second click opens it."""
        self.pressed = time.monotonic()
        if not self.here.size.enough or not self.lines:
            return
        key, state = clicked(self.here, self.state, event.x, event.y, event.chain > 1)
        self.go(remembered(self.state, state))
        if key and state.prompt == "copy":
            self.copy(key) if key != "escape" else self.go(replace(state, prompt=None))
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


class Background:
    """At most one thread for each kind of work; what it finds, and its bugs, go to the thread of the keys."""

    def __init__(self, tell: Callable[[Work], object]) -> None:
        """``tell`` has a function called in the thread of the keys, from any other."""
        self.tell = tell
        self.busy: set[str] = set()

    def start(self, kind: str, work: Work, then: Work) -> None:
        """Does the work unless some of its kind is being done, and calls ``then`` in the thread of the keys."""
        if kind not in self.busy:
            self.busy.add(kind)
            Thread(target=self._do, args=(kind, work, then), daemon=True).start()

    def _do(self, kind: str, work: Work, then: Work) -> None:
        try:
            work()
        except BaseException as bug:
            self.tell(partial(_raise, bug))
        else:
            self.tell(partial(self._end, kind, then))

    def _end(self, kind: str, then: Work) -> None:
        self.busy.discard(kind)
        then()


def _raise(bug: BaseException) -> None:
    raise bug
