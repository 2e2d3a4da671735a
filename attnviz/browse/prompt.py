"""Answers prompts: finds a token, filters heads, saves a picture or copies."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attnviz.base.errors import AttnvizError, flag
from attnviz.browse.copying import clipboard_text
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.finding import filter_heads, find
from attnviz.browse.moves.history import with_history
from attnviz.browse.session.state import State

if TYPE_CHECKING:
    from textual import events

Save = Callable[[Screen, State, Path], None]


class Typist(Protocol):
    """The screen that a prompt is typed on.

    Attributes:
        state: the state on the screen.
        app: the application, which owns the clipboard.
    """

    state: State

    @property
    def app(self) -> Any:
        """The application."""

    @property
    def here(self) -> Screen:
        """The recording, the terminal and its colours."""

    def go(self, state: State) -> None:
        """Draws a state."""

    def run_worker(self, work: Callable[[], None], *, group: str, thread: bool) -> Any:
        """Runs a function in a thread."""


class PromptLine:
    """The last line of the screen while the user types."""

    def __init__(self, stage: Typist, save: Save) -> None:
        self.stage, self.save = stage, save

    def type(self, event: "events.Key") -> None:
        """Answers one key; the first character replaces a text that was only offered."""
        state = self.stage.state
        edited = replace(state, offered=False)
        if event.key == "escape":
            self.stage.go(replace(edited, prompt=None, typed=""))
        elif state.prompt == "copy":
            self.copy(event.key)
        elif event.key == "enter":
            self.answer()
        elif event.key == "backspace":
            self.stage.go(replace(edited, typed=state.typed[:-1]))
        elif event.key == "ctrl+u":
            self.stage.go(replace(edited, typed=""))
        elif event.key in ("left", "right", "end"):
            self.stage.go(edited)
        elif event.is_printable and event.character:
            self.stage.go(replace(edited, typed=("" if state.offered else state.typed) + event.character))

    def copy(self, what: str) -> None:
        """Copies the part of the screen that a key stands for to the terminal's clipboard (OSC 52)."""
        state = replace(self.stage.state, prompt=None)
        try:
            text, message = clipboard_text(self.stage.here, state, what)
        except AttnvizError as error:
            text, message = "", str(error)
        if text:
            self.stage.app.copy_to_clipboard(text)
        self.stage.go(replace(state, message=message))

    def paste(self, text: str) -> None:
        """Adds pasted text, without characters that cannot be printed."""
        state = self.stage.state
        pasted = "".join(character for character in text if character.isprintable())
        self.stage.go(replace(state, typed=("" if state.offered else state.typed) + pasted, offered=False))

    def answer(self) -> None:
        """Answers Enter: finds, filters, or saves in a thread, so that keys need not wait."""
        state = self.stage.state
        if state.prompt in ("query", "key"):
            self.stage.go(with_history(state, find(self.stage.here, state, state.typed)))
            return
        if state.prompt == "filter":
            self.stage.go(with_history(state, filter_heads(self.stage.here, state, state.typed)))
            return
        path = Path(os.path.expanduser(state.typed))
        self.stage.go(replace(state, prompt=None, typed="", message=f"saving {path} …"))
        screen = self.stage.here
        self.stage.run_worker(lambda: self.write(screen, state, path), thread=True, group="save")

    def write(self, screen: Screen, state: State, path: Path) -> None:
        """Writes the picture and shows a message about it; runs in a thread.

        Args:
            screen: the recording and the terminal.
            state: the state to draw.
            path: the file.
        """
        try:
            self.save(screen, state, path)
            message = f"saved {path}"
        except AttnvizError as error:
            message = error.worded(flag)
        self.stage.app.call_from_thread(lambda: self.stage.go(replace(self.stage.state, message=message)))
