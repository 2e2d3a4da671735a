"""Runs the inspector in textual: answers key presses and clicks, and sends changed lines to the terminal."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from rich.segment import ControlType, Segment
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Horizontal
from textual.geometry import Region
from textual.screen import Screen as TextualScreen
from textual.strip import Strip
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Label

from attnviz.base.errors import AttnvizError, flag
from attnviz.browse.computing import Computing
from attnviz.browse.copying import clipboard_text
from attnviz.browse.moves.cursor import Screen, settle
from attnviz.browse.moves.finding import filter_heads, find, matching_metrics
from attnviz.browse.moves.keys import ACTIONS, BINDINGS, press
from attnviz.browse.moves.layout import ANSI_COLORS, FIXED_LINES
from attnviz.browse.moves.place import start_state, with_history
from attnviz.browse.moves.steps import NEXT, step
from attnviz.browse.process.application import THEME_STYLES, Application, KeysScreen
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.cells import COLORS, style_of
from attnviz.browse.view.graphics import (
    SIXEL_ATTRIBUTE,
    Protocol,
    clear_escape,
    picture_escape,
    protocol_of_environment,
    terminal_character,
)
from attnviz.browse.view.parts import ScreenPart
from attnviz.browse.view.screen import (
    clicked,
    compose,
    described,
    description_line,
    drawn_lines,
    key_label,
    prompt_label,
)
from attnviz.maps.heads import head_name
from attnviz.render.terminal.lines import Line
from attnviz.report.words.notes import read_names, write_name

Save = Callable[[Screen, State, Path], None]
SECONDS_A_STEP = 0.5  # for which a written token is shown while steps are played
NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # textual writes the text of a control segment unchanged
EDITING_ACTIONS = {
    key: f"action_{binding.action}"
    for binding in Input.BINDINGS
    if isinstance(binding, Binding) and "(" not in binding.action
    for key in binding.key.split(",")
}


class _Canvas(Widget):
    """The widget that draws the whole screen; it sends only changed lines to the terminal."""

    def __init__(self, session: Session, save: Save, ascii: bool) -> None:
        super().__init__()
        self.session, self.save, self.ascii = session, save, ascii
        self.state = State()
        self.part = ScreenPart([])  # as composed last
        self.lines: list[Line] = []  # as drawn last; empty before the first size is known
        self.strips: list[Strip] = []  # the same lines as textual draws them
        self.early_keys: list[events.Key] = []  # key presses before the first size is known
        self.last_key_time = 0.0
        self.computing = Computing(self)
        self.protocol = protocol_of_environment(os.environ)
        self.frame_is_due = False  # True while a timer runs for the next step that is played
        self.is_covered = False  # True while another screen is open: pixels would be drawn over it

    @property
    def current_screen(self) -> Screen:
        """The recording with the size and the colours of the terminal, as they are now."""
        colors = 0 if self.app.no_color or self.ascii else COLORS.get(self.app.console.color_system or "", 0)
        draws_pixels = self.protocol is not None and colors > ANSI_COLORS and not self.is_covered
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

    def cover(self, is_covered: bool) -> None:
        """Stores whether another screen is open, and draws the canvas again: without pixels while it is covered."""
        self.is_covered = is_covered
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Returns line ``y`` of the latest drawing as a strip; a blank strip below its last line."""
        return self.strips[y] if y < len(self.strips) else Strip.blank(self.size.width)

    def on_mount(self) -> None:
        """Draws the screen again whenever the process resumes after Ctrl-Z."""
        self.app.app_resume_signal.subscribe(self, lambda app: self.app.refresh(repaint=True, layout=True))

    def on_resize(self) -> None:
        """Draws the screen for the new size, then answers the key presses that came before the first size."""
        self.show_state(self.state if self.lines else start_state(self.current_screen))
        early_keys, self.early_keys = self.early_keys, []
        for event in early_keys:
            self.answer_key(event)

    def show_state(self, state: State) -> None:
        """Stores the nearest state that can be drawn, draws it, and schedules computing what the screen lacks.

        If the terminal is too small, stores the state unchanged and draws a refusal. While steps are played, also
        starts the timer of the next step.
        """
        screen, had_prompt = self.current_screen, self.state.prompt
        self.state = settle(screen, state) if screen.size.is_large_enough else state
        self.session.unfinished_blocks = []
        self.part = compose(screen, self.state)
        lines = drawn_lines(self.part, screen, self.state, self.ascii)
        line_has_changed = [y >= len(self.lines) or line != self.lines[y] for y, line in enumerate(lines)]
        self.strips = [
            self.strip(y, line, screen.size.character) if has_changed else self.strips[y]
            for y, (line, has_changed) in enumerate(zip(lines, line_has_changed, strict=True))
        ]
        self.lines = lines
        changed_regions = [Region(0, y, screen.size.width, 1) for y in range(len(lines)) if line_has_changed[y]]
        if changed_regions:
            self.refresh(*changed_regions)
        if self.state.prompt != had_prompt:
            self.app.query_one(PromptBar).show_prompt(screen, self.state)
        self.computing.start()
        if self.state.playing and not self.frame_is_due:
            self.frame_is_due = True
            self.set_timer(SECONDS_A_STEP, self.show_next_frame)

    def show_next_frame(self) -> None:
        """Shows the next step if steps are still played; after the last step they are no longer played."""
        self.frame_is_due = False
        if self.state.playing:
            self.show_state(step(self.current_screen, replace(self.state, message=""), NEXT))

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

    def answer_key(self, event: events.Key) -> None:
        """Answers a key press without an open prompt; those before the first drawing are stored for `on_resize`."""
        self.last_key_time = time.monotonic()
        if not self.lines:
            self.early_keys.append(event)
        elif self.state.prompt == "copy" and event.key != "escape":
            self.copy(event.key)
        elif self.state.prompt is not None:
            self.app.query_one(PromptBar).answer_key(event)
        elif event.key in ("q", "ctrl+c", "ctrl+q"):
            self.app.exit(0)
        elif event.key == "ctrl+z":
            self.app.action_suspend_process()
        else:
            self.press(event.key)

    def press(self, key: str) -> None:
        """Answers a key press by its binding; ``:`` and Ctrl-P open the palette, and ``?`` the list of keys."""
        if key in ("colon", "ctrl+p"):
            self.app.action_command_palette()
        elif key in ("question_mark", "f1"):
            rows = [(binding.label, binding.description) for binding in BINDINGS]
            self.app.push_screen(KeysScreen(rows, self.state.theme, self.ascii))
        else:
            self.show_state(press(self.current_screen, self.state, key))

    def on_click(self, event: events.Click) -> None:
        """Answers a click: presses the key of a hint, moves the cursor, chooses a head, or closes a prompt.

        A hint of the copy prompt copies, or closes the prompt. A click on the chosen head opens it, as does a double
        click on any head. A click before the first drawing, or in a terminal that is too small, does nothing.
        """
        self.last_key_time = time.monotonic()
        if not self.current_screen.size.is_large_enough or not self.lines:
            return
        key, state = clicked(self.part, self.state, event.x, event.y, is_double=event.chain > 1)
        self.show_state(with_history(self.state, state))
        if key in ("q", "ctrl+c") and state.prompt is None:
            self.app.exit(0)
        elif key and state.prompt == "copy" and key != "escape":
            self.copy(key)
        elif key and state.prompt is not None:
            self.show_state(replace(state, prompt=None))
        elif key:
            self.press(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Shows a description of what is under the mouse as the status line; if nothing is there, the usual line.

        Does nothing if a prompt or a message is shown, before the first drawing, or if the terminal is too small.
        """
        screen, state = self.current_screen, self.state
        is_drawn = len(self.lines) >= FIXED_LINES and screen.size.is_large_enough
        if not is_drawn or state.prompt or state.message:
            return
        status_y = len(self.lines) - 2  # the last line holds the hints
        description = described(screen, state, self.part, event.x, event.y)
        line = description_line(description, screen, state) if description else self.lines[status_y]
        strip = _strip_of(line)
        if strip != self.strips[status_y]:
            self.strips[status_y] = strip
            self.refresh(Region(0, status_y, screen.size.width, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves the cursor down; with Control, zooms out."""
        self.press("minus" if event.ctrl else "down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves the cursor up; with Control, zooms in."""
        self.press("plus" if event.ctrl else "up")

    def copy(self, key: str) -> None:
        """Copies the part of the screen that a key names to the terminal's clipboard (OSC 52); closes the prompt.

        Copies nothing if the key names no part or the part is too long; a message says so.
        """
        state = replace(self.state, prompt=None)
        try:
            text, message = clipboard_text(self.current_screen, state, key)
        except AttnvizError as error:
            text, message = "", str(error)
        if text:
            self.app.copy_to_clipboard(text)
        self.show_state(replace(state, message=message))

    def answer_prompt(self, text: str) -> None:
        """Closes the prompt and does what it was opened for: finds a token, filters heads, names a head, or saves.

        The picture is saved in a thread, to the file that the text names. Messages say what could not be done.
        """
        state, screen = self.state, self.current_screen
        closed_state = replace(state, prompt=None, prompt_text="")
        if state.prompt in ("query", "key"):
            self.show_state(with_history(state, find(screen, state, text)))
        elif state.prompt == "filter":
            self.show_state(with_history(state, filter_heads(screen, state, text)))
        elif state.prompt == "name":
            maps, number = self.session.heads[state.head]
            file = self.session.names_file
            message = f"saved the name in {file}" if text.strip() else f"removed the name from {file}"
            try:
                write_name(file, head_name(maps, number), text)
                self.session.ranking.given_names = dict(read_names(file))
            except AttnvizError as error:
                message = error.message_with(flag)
            self.show_state(replace(closed_state, message=message))
        else:
            path = Path(os.path.expanduser(text))
            self.show_state(replace(closed_state, message=f"saving {path} …"))
            self.run_worker(partial(self.write, screen, closed_state, path), thread=True, group="save")

    def write(self, screen: Screen, state: State, path: Path) -> None:
        """Writes a picture of a state, and shows a message about its success or failure; runs in a thread."""
        try:
            self.save(screen, state, path)
            message = f"saved {path}"
        except AttnvizError as error:
            message = error.message_with(flag)
        self.app.call_from_thread(lambda: self.show_state(replace(self.state, message=message)))


class PromptBar(Horizontal):
    """The last line of the screen while the user types: the name of the prompt, and its text."""

    def __init__(self, canvas: _Canvas) -> None:
        super().__init__()
        self.canvas = canvas
        self.label, self.field = Label(markup=False), Input(compact=True, select_on_focus=False)

    def compose(self) -> ComposeResult:
        """Yields the name of the prompt and the text field."""
        yield self.label
        yield self.field

    def show_prompt(self, screen: Screen, state: State) -> None:
        """Opens the prompt of a state over the last line, or closes it; the first character replaces its text."""
        self.display = state.prompt not in (None, "copy")
        if not self.display:
            self.screen.set_focus(None)
            return
        ranking = screen.session.ranking
        finds_heads = state.prompt == "query" and not state.has_open_head and not state.lens
        self.field.suggester = SuggestFromList(matching_metrics("", ranking.names)) if finds_heads else None
        self.label.update(f" {prompt_label(state)}: ")
        self.field.value = state.prompt_text
        self.field.action_select_all()
        self.set_classes(state.theme)
        self.screen.set_focus(self.field)

    def answer_key(self, event: events.Key) -> None:
        """Answers a key press in the text, closes the prompt after Esc, and answers it after Enter."""
        state = self.canvas.state
        if event.key == "escape":
            self.canvas.show_state(replace(state, prompt=None, prompt_text=""))
        elif event.key == "enter":
            self.canvas.answer_prompt(self.field.value)
        elif event.is_printable and event.character:
            self.type(event.character)
        elif event.key in EDITING_ACTIONS:
            getattr(self.field, EDITING_ACTIONS[event.key])()

    def type(self, text: str) -> None:
        """Adds the printable characters of a text in place of the selected ones."""
        printable_text = "".join(character for character in text if character.isprintable())
        self.field.replace(printable_text, *self.field.selection)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Shows what the text may become."""
        state, text = self.canvas.state, self.field.value
        if state.prompt is not None and state.prompt_text != text:
            self.canvas.show_state(replace(state, prompt_text=text))


class Browser(Application[int]):
    """The application that shows a recording; its result is its exit code."""

    CSS = (
        """
    Screen { background: ansi_default; color: ansi_default; layers: canvas prompt; }
    _Canvas { background: ansi_default; width: 100%; height: 100%; }
    PromptBar { layer: prompt; dock: bottom; height: 1; display: none; background: ansi_default; }
    PromptBar > * { background: ansi_default; color: ansi_default; }
    PromptBar > Label { text-style: bold; width: auto; }
    PromptBar > Input { width: 1fr; }
    Input > .input--cursor { background: transparent; color: ansi_default; text-style: reverse; }
    Input:focus { background-tint: transparent; }
    CommandPalette CommandList { min-width: 20; }  /* a narrower one makes textual fail */
    """
        + THEME_STYLES
    )

    def __init__(self, session: Session, save: Save, ascii: bool = False) -> None:
        super().__init__()
        self.canvas = _Canvas(session, save, ascii)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:
        """Yields the entries of the palette: every action, with its key."""
        for title, key in ACTIONS:
            yield SystemCommand(title, f"key {key_label(key)}", partial(self.canvas.press, key))
        yield SystemCommand("quit", "key q", partial(self.exit, 0))

    def compose(self) -> ComposeResult:
        """Yields the canvas, and the prompt over its last line."""
        yield self.canvas
        yield PromptBar(self.canvas)

    def get_default_screen(self) -> TextualScreen[object]:
        """Returns the screen of the canvas."""
        return _CanvasScreen(self.canvas)

    async def on_event(self, event: events.Event) -> None:
        """Answers key presses and pasted text here, one after the other, unless another screen is open.

        Otherwise keys that are typed quickly would pass others on the way to their widgets.
        """
        is_typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if not is_typed or not isinstance(self.screen, _CanvasScreen):
            await super().on_event(event)
        elif isinstance(event, events.Key):
            self.canvas.answer_key(event)
        elif isinstance(event, events.Paste) and self.canvas.state.prompt is not None:
            self.query_one(PromptBar).type(event.text)

    def receive_attributes(self, attributes: list[str]) -> None:
        """Starts to draw sixels if the terminal answers that it can."""
        if SIXEL_ATTRIBUTE in attributes:
            self.call_later(self.canvas.start_pixels, "sixel")


class _CanvasScreen(TextualScreen[object]):
    """The screen that contains the canvas; it tells the canvas when another screen covers it."""

    def __init__(self, canvas: _Canvas) -> None:
        super().__init__()
        self.canvas = canvas

    def on_screen_suspend(self) -> None:
        """Tells the canvas that it is covered."""
        self.canvas.cover(is_covered=True)

    def on_screen_resume(self) -> None:
        """Tells the canvas that it is not covered any more."""
        self.canvas.cover(is_covered=False)


def _strip_of(line: Line) -> Strip:
    """Returns a line as a strip of the library Textual, whose segments are plain text: no token is read as markup."""
    runs = groupby(line, key=lambda span: (span.ink, span.paper, span.style))
    return Strip(
        [Segment("".join(span.text for span in run), style_of(*colors_and_style)) for colors_and_style, run in runs]
    )
