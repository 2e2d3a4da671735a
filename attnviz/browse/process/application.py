"""Defines what full-screen applications share: the end by a signal, work in threads, and the list of keys."""

import asyncio
import gc
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import TypeVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.drivers import linux_driver
from textual.screen import ModalScreen
from textual.widgets import Static

from attnviz.base.signals import ENDING_SIGNALS, SIGNAL_EXIT_BASE
from attnviz.browse.process.terminal import KeyDecoder, hang_up
from attnviz.browse.session.state import Theme
from attnviz.browse.view.parts import IN_ASCII, PAPERS

Result = TypeVar("Result")
Work = Callable[[], None]
KEY_COLUMNS = 11  # columns of a key with a space at each side
THEME_STYLES = (
    "".join(  # style sheets of widgets of the class of a theme; without one they have the terminal's own colours
        f".{theme}, .{theme} * {{ background: rgb{paper.paper}; color: rgb{paper.ink}; }}"
        f".{theme} Input > .input--cursor {{ color: rgb{paper.ink}; }}"
        f".{theme} Input > .input--suggestion {{ color: rgb{paper.dim}; }}"
        for theme, paper in PAPERS.items()
    )
)


class Application(App[Result]):
    """A textual application that restores the terminal when a signal ends it, and prints bugs as Python does."""

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        # textual's decoder raises at a byte that is not UTF-8, and its driver reads a closed terminal without end
        decoder = partial(KeyDecoder, hang_up, self.receive_attributes)
        linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined,assignment]

    def receive_attributes(self, attributes: list[str]) -> None:
        """Does nothing with the terminal's answer to ``ASK_ATTRIBUTES``; subclasses override it.

        It is called in the thread that reads the terminal.
        """

    def _fatal_error(self) -> None:
        """Prints a bug's traceback as Python does; textual would print every local array, which takes minutes."""
        self.panic(Text(traceback.format_exc()))

    def on_mount(self) -> None:
        """Lets signals end the application cleanly, and starts garbage collection for objects that are created later.

        Does nothing in headless mode.
        """
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for signal_number in ENDING_SIGNALS:
            return_code = SIGNAL_EXIT_BASE + signal_number
            loop.add_signal_handler(signal_number, partial(self.exit, return_code=return_code))
        gc.freeze()  # what lives now lives to the end: each collection would only search it again
        gc.enable()


class KeysScreen(ModalScreen[None]):
    """The list of keys, each with what it does, until a key is pressed that does not scroll it."""

    CSS = (
        "KeysScreen, KeysScreen * { background: ansi_default; color: ansi_default; scrollbar-size: 0 0; }"
        + THEME_STYLES
    )

    def __init__(self, keys: Sequence[tuple[str, str]], theme: Theme = "terminal", ascii: bool = False) -> None:
        super().__init__(classes=theme)
        self.keys, self.ascii = keys, ascii

    def compose(self) -> ComposeResult:
        """Yields the list of keys in as many columns as fit the screen."""
        longest = max(len(description) for _, description in self.keys)
        columns = max(1, self.app.size.width // (KEY_COLUMNS + 1 + longest))
        lines, width = -(-len(self.keys) // columns), self.app.size.width // columns - 1
        fits = lines + 2 <= self.app.size.height  # below a title and a blank line
        title = " keys; any key returns" if fits else " keys; ? shows more, others return"
        text = Text(f"{title}\n\n", no_wrap=True)
        for line in range(lines):
            for key, description in self.keys[line::lines]:
                text.append(f" {key:>{KEY_COLUMNS - 2}} ", "bold")
                ascii_description = description.translate(IN_ASCII) if self.ascii else description
                text.append(f" {ascii_description:<{width - KEY_COLUMNS}}")
            text.append("\n")
        with VerticalScroll():
            yield Static(text, id="keys", markup=False)

    def on_key(self, event: events.Key) -> None:
        """Scrolls a list that does not fit the screen, or goes back."""
        event.stop()
        event.prevent_default()
        body = self.query_one(VerticalScroll)
        scrolls = {"down": body.scroll_down, "up": body.scroll_up, "pageup": body.scroll_page_up}
        scrolls |= dict.fromkeys(("pagedown", "space", "question_mark"), body.scroll_page_down)
        if event.key in scrolls and body.max_scroll_y:
            scrolls[event.key](animate=False)
        else:
            self.dismiss()

    def on_click(self) -> None:
        """Goes back after a click."""
        self.dismiss()


class Background:
    """Runs at most one thread for each kind of work, and reports its end or exception to the main thread."""

    def __init__(self, call: Callable[[Work], object]) -> None:
        self.call = call
        self.busy_kinds: set[str] = set()

    def start(self, kind: str, work: Work, on_done: Work) -> None:
        """Starts work in a thread; does nothing if work of this kind is running.

        An exception of the work is raised in the main thread; no work of this kind starts after it.
        """
        if kind in self.busy_kinds:
            return
        self.busy_kinds.add(kind)

        def finish() -> None:
            self.busy_kinds.discard(kind)
            on_done()

        def run() -> None:
            try:
                work()
            except BaseException as bug:
                self.call(partial(_raise, bug))
            else:
                self.call(finish)

        Thread(target=run, daemon=True).start()


def _raise(bug: BaseException) -> None:
    """Raises the bug in the thread that calls this."""
    raise bug
