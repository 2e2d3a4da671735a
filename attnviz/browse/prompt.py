"""Answers key presses in an open prompt: edits its text, finds tokens, filters and names heads, saves, or copies."""

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
from attnviz.maps.heads import head_name
from attnviz.report.words.notes import read_names, write_name

if TYPE_CHECKING:
    from textual import events

Save = Callable[[Screen, State, Path], None]


class _PromptStage(Protocol):
    """The part of the canvas that `PromptLine` uses.

    Attributes:
        state: the state on the screen.
        app: the application, which owns the clipboard.
    """

    state: State

    @property
    def app(self) -> Any:
        """The application."""

    @property
    def current_screen(self) -> Screen:
        """The recording with the size and the colours of the terminal, as they are now."""

    def show_state(self, state: State) -> None:
        """Draws a state."""

    def run_worker(self, work: Callable[[], None], *, group: str, thread: bool) -> Any:
        """Runs a function in a thread."""


class PromptLine:
    """The last line of the screen while the user types."""

    def __init__(self, stage: _PromptStage, save: Save) -> None:
        self.stage, self.save = stage, save

    def answer_key(self, event: "events.Key") -> None:
        """Answers a key press: edits the text, closes the prompt or answers it; any key closes the copy prompt.

        The first character that is typed replaces a suggested text, unless another key has accepted the suggestion.
        """
        state = self.stage.state
        accepted_state = replace(state, text_is_suggestion=False)
        if event.key == "escape":
            self.stage.show_state(replace(accepted_state, prompt=None, prompt_text=""))
        elif state.prompt == "copy":
            self.copy(event.key)
        elif event.key == "enter":
            self.answer()
        elif event.key == "backspace":
            self.stage.show_state(replace(accepted_state, prompt_text=state.prompt_text[:-1]))
        elif event.key == "ctrl+u":
            self.stage.show_state(replace(accepted_state, prompt_text=""))
        elif event.key in ("left", "right", "end"):
            self.stage.show_state(accepted_state)
        elif event.is_printable and event.character:
            text = "" if state.text_is_suggestion else state.prompt_text
            self.stage.show_state(replace(accepted_state, prompt_text=text + event.character))

    def copy(self, key: str) -> None:
        """Copies the part of the screen that a key names to the terminal's clipboard (OSC 52); closes the prompt.

        Copies nothing if the key names no part or the part is too long; a message says so.
        """
        state = replace(self.stage.state, prompt=None)
        try:
            text, message = clipboard_text(self.stage.current_screen, state, key)
        except AttnvizError as error:
            text, message = "", str(error)
        if text:
            self.stage.app.copy_to_clipboard(text)
        self.stage.show_state(replace(state, message=message))

    def paste(self, text: str) -> None:
        """Adds the printable characters of a pasted text; they replace a suggestion."""
        state = self.stage.state
        pasted_text = "".join(character for character in text if character.isprintable())
        text_before = "" if state.text_is_suggestion else state.prompt_text
        self.stage.show_state(replace(state, prompt_text=text_before + pasted_text, text_is_suggestion=False))

    def answer(self) -> None:
        """Answers Enter by the kind of prompt: finds a token, filters heads, names a head, or saves a picture.

        The picture is saved in a thread, to the file that the text names. The prompt closes.
        """
        state = self.stage.state
        if state.prompt in ("query", "key"):
            self.stage.show_state(with_history(state, find(self.stage.current_screen, state, state.prompt_text)))
            return
        if state.prompt == "filter":
            self.stage.show_state(
                with_history(state, filter_heads(self.stage.current_screen, state, state.prompt_text))
            )
            return
        if state.prompt == "name":
            self.name_head()
            return
        path = Path(os.path.expanduser(state.prompt_text))
        self.stage.show_state(replace(state, prompt=None, prompt_text="", message=f"saving {path} …"))
        screen = self.stage.current_screen
        self.stage.run_worker(lambda: self.write(screen, state, path), thread=True, group="save")

    def name_head(self) -> None:
        """Gives the chosen head the typed name, also in the file of names; a blank text removes the name.

        Closes the prompt. A message says that the name is saved or removed, or why the file cannot be written or read.
        """
        state, session = self.stage.state, self.stage.current_screen.session
        maps, number = session.heads[state.head]
        is_blank = not state.prompt_text.strip()
        message = f"{'removed the name from' if is_blank else 'saved the name in'} {session.names_file}"
        try:
            write_name(session.names_file, head_name(maps, number), state.prompt_text)
            session.ranking.given_names = dict(read_names(session.names_file))
        except AttnvizError as error:
            message = error.message_with(flag)
        self.stage.show_state(replace(state, prompt=None, prompt_text="", message=message))

    def write(self, screen: Screen, state: State, path: Path) -> None:
        """Writes a picture of a state, and shows a message about its success or failure; runs in a thread."""
        try:
            self.save(screen, state, path)
            message = f"saved {path}"
        except AttnvizError as error:
            message = error.message_with(flag)
        self.stage.app.call_from_thread(lambda: self.stage.show_state(replace(self.stage.state, message=message)))
