"""Defines what full-screen applications share: the end by a signal, threads, keys in their order, and some widgets."""

import asyncio
import gc
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple, TypeVar

from rich.segment import ControlType, Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.drivers import linux_driver
from textual.geometry import Region
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.suggester import SuggestFromList
from textual.theme import Theme as TextualTheme
from textual.widget import Widget
from textual.widgets import HelpPanel, Input, KeyPanel, OptionList
from textual.widgets.option_list import Option

from attnviz.base.errors import AttnvizError, or_list
from attnviz.base.files import output_file
from attnviz.base.signals import ENDING_SIGNALS, SIGNAL_EXIT_BASE
from attnviz.browse.process.terminal import KeyDecoder, hang_up
from attnviz.browse.session.state import Theme
from attnviz.browse.view.graphics import Protocol, clear_escape, picture_escape
from attnviz.browse.view.parts import PAPERS, Drawing, Hit, Listed, padded_line, rich_text, styled
from attnviz.render.formats import FORMATS, write
from attnviz.report.picture.report import Report

Result = TypeVar("Result")
Work = Callable[[], None]
SIZES = {"column": "column", "page": "page", "slide": "16:9"}  # as a saved figure's are called, and the option's values
SAVE_PROMPT = "a file, or a size: column (89 mm), page (178 mm), slide; or both"
PICTURE_SUFFIXES = tuple(row.suffix for row in FORMATS.values() if row.shows.one_page)
TERMINAL_THEME = "ansi-dark"  # textual's name of the theme with the terminal's own colours
NO_COLUMNS = ((ControlType.CURSOR_FORWARD, 0),)  # textual writes the text of a control segment unchanged


class Application(App[Result]):
    """A textual application that restores the terminal when a signal ends it, and prints bugs as Python does.

    It answers keys one after the other, so that those typed quickly after each other never pass each other, and has
    one prompt at most, which takes all keys while it is open.
    """

    CSS = """
    * { scrollbar-size: 0 0; }
    Screen, HelpPanel, HelpPanel *, Hints, Input, OptionList { background: $background; color: $foreground; }
    Hints { width: 100%; height: 1; dock: bottom; text-wrap: nowrap; }
    HelpPanel { max-width: 50; padding: 0; border-left: none; }
    HelpPanel BindingsTable > .bindings-table--key { color: $foreground; }
    .narrow HelpPanel { width: 100%; max-width: 100%; }
    Prompt { height: 1; border: none; padding: 0 1; display: none; dock: bottom; }
    Prompt:focus { background-tint: transparent; }
    Input > .input--cursor { background: transparent; color: $foreground; text-style: reverse; }
    Input > .input--suggestion { color: $foreground; text-style: dim; }
    OptionList { border: none; padding: 0; }
    OptionList > .option-list--option-highlighted { background: $background; color: $foreground; text-style: reverse; }
    CommandPalette CommandList { min-width: 20; }  /* a narrower one makes textual fail */
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", show=False, priority=True)]
    COMMAND_PALETTE_BINDING = "colon"
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, theme: Theme = "terminal", ascii: bool = False) -> None:
        super().__init__()
        for name, paper in PAPERS.items():
            ink, dim, ground = ("#{:02x}{:02x}{:02x}".format(*color) for color in paper)
            self.register_theme(
                TextualTheme(name, dim, foreground=ink, background=ground, surface=ground, panel=ground, boost=ground)
            )
        self.use_theme(theme)
        self.ascii = ascii
        self.prompt, self.footer = Prompt(), Hints()
        self.asked = ""  # what the open prompt asks for
        self.offered = ""  # the text that it began with
        self.early_keys: list[events.Event] | None = []  # before the first drawing; None after it
        # textual's decoder raises at a byte that is not UTF-8, and its driver reads a closed terminal without end
        decoder = partial(KeyDecoder, hang_up, self.receive_attributes)
        linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined,assignment]

    def use_theme(self, theme: Theme) -> None:
        """Draws textual's widgets in the colours of a theme."""
        self.theme = TERMINAL_THEME if theme == "terminal" else theme

    def receive_attributes(self, attributes: list[str]) -> None:
        """Does nothing with the terminal's answer to ``ASK_ATTRIBUTES``; subclasses override it.

        It is called in the thread that reads the terminal.
        """

    def _fatal_error(self) -> None:
        """Prints a bug's traceback as Python does; textual would print every local array, which takes minutes."""
        self.panic(Text(traceback.format_exc()))

    async def on_mount(self) -> None:
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

    async def on_event(self, event: events.Event) -> None:
        """Answers key presses and pasted text here; textual would pass them on to widgets, in their own time."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self.early_keys is not None:
            self.early_keys.append(event)
        else:
            await self.answer_key(event)

    async def answer_key(self, event: events.Event) -> None:
        """Writes a key or a pasted text to the text field that has the focus, else does what the key is bound to."""
        field = self.focused
        if isinstance(event, events.Paste) and isinstance(field, Input):
            event = events.Key("", next(iter(event.text.splitlines()), ""))
        if not isinstance(event, events.Key):
            await super().on_event(event)
        elif isinstance(field, Input) and event.character and event.character.isprintable():
            field.replace(event.character, *field.selection)
        elif (active := self.screen.active_bindings.get(event.key)) is not None and active.enabled:
            await self.run_action(active.binding.action, active.node)
        else:
            await super().on_event(event)

    async def answer_early_keys(self) -> None:
        """Answers the keys that were pressed before the first drawing."""
        early_keys, self.early_keys = self.early_keys or [], None
        for event in early_keys:
            await self.answer_key(event)

    def get_default_screen(self) -> Screen[object]:
        """Returns the screen of the application's widgets."""
        return _BareScreen(classes="ascii" if self.ascii else "")

    async def show_at_new_size(self) -> None:
        """Does nothing when the canvas has a new size; subclasses override it."""

    def redraw(self) -> None:
        """Does nothing when another screen covers the default one, or no longer does; subclasses override it."""

    def get_key_display(self, binding: Binding) -> str:
        """Returns a key as the footer and the list of keys write it."""
        display = super().get_key_display(binding)
        return display if display.isascii() or not self.ascii else binding.key

    def ask(self, asked: str, text: str = "", suggestions: Iterable[str] = ()) -> None:
        """Opens the prompt with a text that the first character replaces."""
        self.asked, self.offered = asked, text
        self.prompt.suggester = SuggestFromList(suggestions)
        self.prompt.value = text
        self.prompt.action_select_all()
        self.prompt.display, self.footer.display = True, False
        self.screen.set_focus(self.prompt)
        self.explain_prompt("")

    def close_prompt(self) -> None:
        """Closes the prompt and forgets its text."""
        self.asked, self.prompt.display, self.footer.display = "", False, True
        self.screen.set_focus(None)

    def file_and_size(self, text: str) -> tuple[Path, str | None]:
        """Returns the file that an answer names, else the one that was offered, and the size that its last word is."""
        name, _, last_word = text.strip().rpartition(" ")
        size = SIZES.get(last_word.lower())
        return Path(os.path.expanduser((name.strip() or self.offered) if size else text)), size

    def explain_prompt(self, text: str) -> None:
        """Says what may be typed into the prompt, which has that text."""
        raise NotImplementedError

    def answer_prompt(self, asked: str, text: str) -> None:
        """Does what the prompt was opened for; it is closed already."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuses the application's own actions while a prompt is open."""
        return not self.asked or action == "close_prompt"

    def action_keys(self) -> None:
        """Shows the list of keys beside the screen, then more of it, and then hides it."""
        if not (panels := self.screen.query(KeyPanel)):
            self.action_show_help_panel()
        elif panels.first().scroll_y < panels.first().max_scroll_y:
            panels.first().scroll_page_down(animate=False)
        else:
            self.action_hide_help_panel()

    def hides_keys(self) -> bool:
        """Hides the list of keys; returns False if it is not shown."""
        is_shown = bool(self.screen.query(HelpPanel))
        self.action_hide_help_panel()
        return is_shown


class _BareScreen(Screen[object], inherit_bindings=False):
    """The default screen, without keys of its own; it says when another screen covers it."""

    AUTO_FOCUS = ""
    app: Application[Any]

    def on_screen_suspend(self) -> None:
        """Tells the application that it is covered."""
        self.app.redraw()

    def on_screen_resume(self) -> None:
        """Tells the application that it is no longer covered."""
        self.app.redraw()


class Prompt(Input):
    """The last line of the screen while the user types."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "back", show=False)]
    app: Application[Any]

    def __init__(self) -> None:
        super().__init__(compact=True, select_on_focus=False)

    def action_close(self) -> None:
        """Closes the prompt."""
        self.app.close_prompt()
        self.app.explain_prompt("")

    async def action_submit(self) -> None:
        """Answers the text at once: keys may follow that belong to the answer."""
        asked, text = self.app.asked, self.value
        self.app.close_prompt()
        self.app.answer_prompt(asked, text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Says what the text may become."""
        event.stop()
        if self.app.asked:
            self.app.explain_prompt(self.value)


class Hints(Widget):
    """The last line: what keys do here. A click on a hint presses its key.

    Textual's `Footer` mounts a widget for each hint whenever they change, which takes longer than to answer most keys.
    """

    def on_mount(self) -> None:
        """Follows the bindings."""
        self.hints: list[Binding] = []
        self.screen.bindings_updated_signal.subscribe(self, self.show, immediate=True)

    def show(self, screen: Screen[Any]) -> None:
        """Shows the bindings that are active now; those of one action once, by its first key."""
        bindings = dict[str, Binding]()
        for _, binding, _, _ in screen.active_bindings.values():
            bindings.setdefault(binding.action, binding)
        self.hints = [binding for binding in bindings.values() if binding.show]
        self.refresh()

    def render(self) -> Text:
        """Returns the hints, each with its key and what else there is to say of it."""
        text = Text()
        for binding in self.hints:
            hint = Style(meta={"key": binding.key, "tooltip": binding.tooltip})
            text.append(self.app.get_key_display(binding), hint + Style(bold=True))
            text.append(f" {binding.description}", hint + Style(dim=True)).append(" ")
        return text

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Presses the key whose hint is under the mouse."""
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Says more of the hint under the mouse."""
        self.tooltip = event.style.meta.get("tooltip")


class Surface(NamedTuple):
    """How the screen is drawn on this terminal."""

    theme: Theme = "terminal"
    ascii: bool = False
    character: tuple[int, int] | None = None  # width and height of one in pixels; None if no pixels are drawn
    protocol: Protocol | None = None


class Canvas(Widget):
    """The screen that we draw; it sends only changed lines to the terminal."""

    app: Application[Any]

    class Pointed(Message):
        """Tells that the mouse is over something, or clicked it."""

        def __init__(self, hit: Hit | None, clicks: int) -> None:
            super().__init__()
            self.hit, self.clicks = hit, clicks

    def __init__(self) -> None:
        super().__init__()
        self.drawn, self.surface = Drawing([]), Surface()
        self.strips = dict[int, Strip]()
        self.strips_target = Region(), self.surface  # for which the strips were drawn

    def show(self, drawn: Drawing, surface: Surface) -> None:
        """Draws lines instead of the present ones."""
        old, new, is_same_surface = self.drawn.lines, drawn.lines, surface == self.surface
        count = max(len(old), len(new))
        changed = [y for y in range(count) if not is_same_surface or old[y : y + 1] != new[y : y + 1]]
        self.drawn, self.surface = drawn, surface
        for y in changed:
            self.strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    async def on_resize(self) -> None:
        """Draws the lines for the new size."""
        await self.app.show_at_new_size()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns lines as strips; there is no border and no background that textual would have to add to each."""
        if (target := (self.region, self.surface)) != self.strips_target:  # pictures in pixels name their target
            self.strips, self.strips_target = {}, target
        for y in crop.line_range:
            if y not in self.strips:
                self.strips[y] = self.render_line(y)
        return [self.strips[y].crop(crop.x, crop.right) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        """Returns a line as a strip of Textual, with escape sequences for the pixels over it."""
        line = padded_line(self.drawn.lines[y] if y < len(self.drawn.lines) else [], self.size.width)
        theme, ascii, character, protocol = self.surface
        segments = [Segment(text, style) for text, style in styled(line, theme, ascii)]
        escape = clear_escape(self.region.y + y) if protocol == "kitty" else ""
        if character is not None and protocol is not None:
            escape += picture_escape(line, self.region.x, self.region.y + y, character, protocol)
        return Strip([*segments, *([Segment(escape, None, NO_COLUMNS)] if escape else [])], self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Tells what was clicked."""
        self.post_message(self.Pointed(self.hit(event), event.chain))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Tells what the mouse is over."""
        self.post_message(self.Pointed(self.hit(event), 0))

    def hit(self, event: events.MouseEvent) -> Hit | None:
        """Returns what stands under the mouse."""
        x, y = event.screen_x - self.region.x, event.screen_y - self.region.y  # of a widget over it, too
        return self.drawn.hit(int(x), int(y))


class Listing(OptionList, can_focus=False):
    """A list whose rows stand for changes to the state."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.shown: tuple[Listed, Surface] = Listed(), Surface()

    def show(self, listed: Listed, surface: Surface) -> None:
        """Shows rows, and scrolls to the chosen one."""
        (shown, old_surface), rows = self.shown, listed.rows
        lines, old_lines = [line for line, _ in rows], [line for line, _ in shown.rows]
        if surface == old_surface and len(lines) == len(old_lines):
            for index, line in enumerate(lines):
                if line != old_lines[index]:
                    self.replace_option_prompt_at_index(index, rich_text([line], surface.theme, surface.ascii))
        else:
            self.clear_options()
            self.add_options([Option(rich_text([line], surface.theme, surface.ascii)) for line in lines])
        self.shown = listed, surface
        self.highlighted = listed.chosen

    def changes(self, index: int) -> Mapping[str, Any]:
        """Returns the changes that a row stands for."""
        return self.shown[0].rows[index][1]


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


def save_report(report: Report, path: Path) -> None:
    """Writes a report as a picture to a new file, in the format of its suffix."""
    refuse_picture(path)
    with output_file(path) as file:
        write(report, path.suffix.lower(), file)


def refuse_picture(path: Path) -> None:
    """Raises AttnvizError if the suffix is not a picture format's, or the file exists."""
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise AttnvizError(f"{path.name!r} is not a picture; choose {or_list(PICTURE_SUFFIXES)}")
    if os.path.lexists(path):
        raise AttnvizError(f"{str(path)!r} exists; choose another name")
