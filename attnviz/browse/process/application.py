"""Runs textual as a process that may be ended at any moment, for every full-screen application of attnviz."""

import asyncio
import gc
import traceback
from functools import partial
from typing import TypeVar

from rich.text import Text
from textual.app import App
from textual.drivers import linux_driver

from attnviz.base.signals import ENDING_SIGNALS, SIGNAL_EXIT_BASE
from attnviz.browse.process.terminal import KeyDecoder, hang_up

Result = TypeVar("Result")


class Application(App[Result]):
    """A textual application that restores the terminal when a signal ends it, and shows bugs as Python does."""

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        # textual's decoder raises at a byte that is not UTF-8, and its driver reads a closed terminal without end
        decoder = partial(KeyDecoder, hang_up, self.answered)
        linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined,assignment]

    def answered(self, attributes: list[str]) -> None:
        """Receives the terminal's answer to ``ASK_ATTRIBUTES``; called in the thread that reads keys."""

    def _fatal_error(self) -> None:
        """Shows a bug as Python does; textual would print every local array, which takes minutes."""
        self.panic(Text(traceback.format_exc()))

    def on_mount(self) -> None:
        """Has signals end the application, which restores the terminal; exempts objects of start-up from collection."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, partial(self.exit, return_code=SIGNAL_EXIT_BASE + number))
        gc.freeze()
        gc.enable()
