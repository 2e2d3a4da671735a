"""What every full-screen application of attnviz does: textual as a process that may be ended at any moment."""

import asyncio
import gc
import traceback
from functools import partial
from typing import TypeVar

from rich.text import Text
from textual.app import App
from textual.drivers import linux_driver

from attnviz.base.signals import ENDING, SIGNALLED
from attnviz.browse.process.terminal import KeyDecoder, hang_up

Result = TypeVar("Result")


class Application(App[Result]):
    """A textual application that gives the terminal back when it is told to end, and shows bugs as Python does."""

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        # textual's own raises an error at a byte that is no UTF-8, and asks a terminal that has gone without end.
        decoder = partial(KeyDecoder, hang_up, self.answered)
        linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined,assignment]

    def answered(self, attributes: list[str]) -> None:
        """What the terminal says it has, where it was asked; called in the thread that reads the keys."""

    def _fatal_error(self) -> None:
        """Shows a bug as Python does: textual would write out every local array, for minutes."""
        self.panic(Text(traceback.format_exc()))

    def on_mount(self) -> None:
        """Gives the terminal back when the process is told to end."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, partial(self.exit, return_code=SIGNALLED + number))
        gc.freeze()
        gc.enable()
