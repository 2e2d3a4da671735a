"""Defines the base of full-screen applications, which restores the terminal when a signal ends the process."""

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
