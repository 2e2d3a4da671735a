"""Runs the inspector of a survey: heads as a list or as points, and a card about one head."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, OptionList, Static
from textual.widgets.option_list import Option

from attnviz.base.errors import AttnvizError, choices, flag
from attnviz.base.printable import printable
from attnviz.browse.actions.finding import LAYER_ORDER, matching_metrics
from attnviz.browse.process.application import SAVE_PROMPT, SIZES, Application, save_report
from attnviz.browse.survey.listing import SurveyView, points_lines
from attnviz.browse.view.parts import rich_text
from attnviz.maps.recording import Recording
from attnviz.metrics.head_frame import HeadRow
from attnviz.render.terminal.draw import report_lines
from attnviz.render.terminal.lines import fit
from attnviz.report.picture.look import Look
from attnviz.report.survey.pictures import ChosenExample, survey_title
from attnviz.report.words.captions import count_phrase
from attnviz.text.tokens import first_words

WIDE_SCREEN = 120  # columns; on a screen of this width the card is to the right of the list
Record = Callable[[str], Recording]
PATTERN_COLUMNS, LABEL_COLUMNS, MIN_TEXT, SCROLLBAR = 41, 10, 20, 2
MIN_POINTS_COLUMNS, MIN_POINTS_LINES, MIN_CARD_COLUMNS = 20, 6, 40  # drawn at this size where widgets are smaller
TRUE_COLORS = 2**24
PROGRESS_SECONDS = 0.5  # between two reports of a run


PROMPTS = {
    "filter": "filter heads, such as sink>0.5 layer:3-5",
    "find": "find a head (4.11), a metric to sort by (ind, -sink), or two for points (previous,sink)",
    "save": SAVE_PROMPT,
}


class OpenedText(NamedTuple):
    """An example of a survey that the user opens, with what is needed to come back to the survey."""

    recording: Recording  # of the text or picture
    address: str  # what is shown first
    view: SurveyView  # to come back to
    line: int  # the index of the chosen line in the list of heads


class SurveyBrowser(Application[OpenedText], inherit_bindings=False):
    """The inspector of a survey as an application; its result is the example to open, or ``None`` if the user quits."""

    CSS = (
        Application.CSS
        + """
    DataTable, Static, VerticalScroll { background: $background; color: $foreground; }
    DataTable, OptionList, VerticalScroll {
        scrollbar-size: 1 1; scrollbar-color: $foreground; scrollbar-background: $background;
    }
    #title, #status { height: 1; }
    #title { text-style: bold; }
    DataTable { width: 1fr; height: 1fr; }
    DataTable > .datatable--header { background: $background; color: $foreground; text-style: bold; }
    DataTable > .datatable--cursor { background: $background; color: $foreground; text-style: reverse; }
    DataTable > .datatable--odd-row, DataTable > .datatable--even-row { background: $background; }
    #card { width: 1fr; min-width: 66; }
    #card.beside { border-left: solid $foreground; padding: 0 0 0 1; }
    #does { height: 1; text-style: bold; }
    OptionList { height: auto; max-height: 40%; }
    OptionList > .option-list--option-highlighted { text-style: none; }
    OptionList:focus { border: none; background-tint: transparent; }
    OptionList:focus > .option-list--option-highlighted {
        background: $background; color: $foreground; text-style: reverse;
    }
    #tables { height: 1fr; }
    #points { width: 1fr; height: 1fr; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "keys", "keys", tooltip="that can be pressed", priority=True),
        Binding("q,ctrl+c,ctrl+q", "leave", "quit", tooltip="or leave a run of the model", priority=True),
        Binding("enter", "open", "open", tooltip="the card; run the model over its chosen example", priority=True),
        Binding("slash", "ask('find')", "find", tooltip="4.11, or sort by ind or -sink, or draw previous,sink"),
        Binding("o", "sort(1)", "sort", tooltip="by the next metric; in a card, its examples"),
        Binding("O", "sort(-1)", "sort back", tooltip="by the previous metric", show=False),
        Binding("r", "reverse", "reverse", show=False),
        Binding("f", "ask('filter')", "filter", tooltip="heads, such as sink>0.5 layer:3-5"),
        Binding("v", "points", "points", tooltip="or the list"),
        Binding("y", "copy", "copy", tooltip="the command that draws the screen"),
        Binding("s", "ask('save')", "save", tooltip="as SVG, PNG or PDF"),
        Binding("escape,backspace", "heads", "back", tooltip="to the heads; then remove the filter"),
        Binding("colon,ctrl+p", "command_palette", "actions", tooltip="by name"),
        Binding("tab", "focus_next", "next part", tooltip="examples, numbers, heads", priority=True),
        *(
            Binding(key, f"move({axis}, {step})", show=False)
            for key, axis, step in (("up", 1, 1), ("down", 1, -1), ("right", 0, 1), ("left", 0, -1))
        ),
        *Application.BINDINGS,
    ]

    def __init__(self, view: SurveyView, file: str, record: Record, look: Look, line: int | None = None) -> None:
        super().__init__(ascii=look.ascii)
        self.view, self.file, self.record, self.look, self.first_line = view, file, record, look, line
        self.card_open = self.shows_points = False
        self.message = ""
        self.run_start_time: float | None = None  # the time when the model began to run over a text
        self.examples: list[ChosenExample] = []

    def compose(self) -> ComposeResult:
        """Yields the widgets: title, list, points, card, prompt, status and hints."""
        yield Static(id="title", markup=False)
        with Horizontal():
            yield DataTable(id="heads", cursor_type="row")
            yield Static(id="points", markup=False)
            with Vertical(id="card"):
                yield Static(id="does", markup=False)
                yield OptionList(id="texts", markup=False)
                with VerticalScroll(id="tables"):
                    yield Static(id="numbers", markup=False)
        yield Static(id="status", markup=False)
        yield self.prompt
        yield self.footer

    async def on_mount(self) -> None:
        """Lists the heads, and opens the card of the head in ``first_line`` unless that is ``None``."""
        self.set_interval(PROGRESS_SECONDS, self.show_progress)
        self.list_heads(self.first_line or 0)
        self.query_one(DataTable).focus()
        if self.first_line is not None:
            self.action_open()
        await self.answer_early_keys()

    async def answer_key(self, event: events.Event) -> None:
        """Removes the message, which the user has read, and answers a key."""
        self.message = ""
        await super().answer_key(event)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yields the entries of the palette: every key."""
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.description:
                title = f"{binding.description} {binding.tooltip}".strip()
                yield SystemCommand(title, f"key {binding.key}", partial(self.run_action, binding.action))

    @property
    def chosen_row(self) -> HeadRow:
        """The chosen head."""
        line = self.query_one(DataTable).cursor_row
        return self.view.rows[min(max(line, 0), len(self.view.rows) - 1)]

    def list_heads(self, line: int = 0) -> None:
        """Draws the list and the title for the current view, and updates the screen."""
        table, view = self.query_one(DataTable), self.view
        table.clear(columns=True)
        sort_marks = {view.sort: " ▴" if view.ascending else " ▾"}
        table.add_column("head")
        table.add_column("does")
        for name in view.columns:
            table.add_column(Text(name + sort_marks.get(name, ""), justify="right"))
        for row in view.rows:
            name, pattern, *numbers = view.cells(row)
            cells = [Text(name), Text(first_words(printable(pattern), PATTERN_COLUMNS))]
            table.add_row(*cells, *(Text(number, justify="right") for number in numbers))
        table.move_cursor(row=min(line, len(view.rows) - 1))
        survey = view.survey
        part = f"{len(view.rows)} of " if len(view.rows) < len(survey.heads) else ""
        head_count = part + count_phrase(len(survey.heads), "heads")
        self.query_one("#title", Static).update(printable(f" {head_count}  {survey_title(survey)}"))
        self.show()

    def show(self, message: str = "") -> None:
        """Updates the screen: the list or the points if no card is open, else the card; a wide screen shows both."""
        self.message = message
        is_wide = self.size.width >= WIDE_SCREEN
        self.query_one(DataTable).display = not self.shows_points and (is_wide or not self.card_open)
        self.query_one("#points").display = self.shows_points and (is_wide or not self.card_open)
        self.query_one("#card").display = is_wide or self.card_open
        self.query_one("#card").set_class(is_wide and not self.look.ascii, "beside")
        self.query_one("#status", Static).update(self.status)
        self.call_after_refresh(self.draw)

    @property
    def status(self) -> str:
        """The status line: the message if there is one, else what the screen shows and its most useful keys."""
        view = self.view
        if self.message:
            return printable(f" {self.message}")
        if isinstance(self.focused, OptionList):
            return " Enter opens the example in its head; o chooses examples by the next metric"
        if self.shows_points:
            return (
                f" {view.axes[0]} across, {view.axes[1]} up; / changes them, such as /sink,self; arrows choose a head"
            )
        order = f"sorted by {view.sort}" if view.sort else "in the order of layers"
        return f" {order}; Enter shows the head's numbers and examples"

    def draw(self) -> None:
        """Draws the points, and the card of the chosen head, each to fit its widget; skips a widget that is hidden.

        The card has the head's numbers, its table by offset, and the list of its examples.
        """
        row = self.chosen_row
        if self.query_one("#points").display:
            size = self.query_one("#points").size
            points_size = max(MIN_POINTS_COLUMNS, size.width), max(MIN_POINTS_LINES, size.height)
            names, chosen_line = [head_row.name for head_row in self.view.rows], self.view.rows.index(row)
            lines = points_lines(self.view.points, names, self.view.axes, chosen_line, points_size)
            self.query_one("#points", Static).update(rich_text(lines, ascii=self.ascii))
        if not self.query_one("#card").display:
            return
        width = max(MIN_CARD_COLUMNS, self.query_one("#tables").size.width)
        metric = self.view.example_metric(row)
        self.query_one("#does", Static).update(
            printable(f"{row.name} {row.pattern}  {self.view.survey.example_noun} by {metric}")
        )
        card = self.view.card(row, replace(self.look, width=width, colors=0 if self.no_color else TRUE_COLORS))
        card_without_texts = replace(card, sections=card.sections[:2])  # the third section, the texts, is a list
        # the first lines, which the screen has already, are a title, a blank line and the title of the numbers
        self.query_one("#numbers", Static).update(rich_text(report_lines(card_without_texts)[3:], ascii=self.ascii))

        text_list, examples = self.query_one(OptionList), self.view.examples(row)
        if examples == self.examples and text_list.option_count:
            return
        self.examples = examples
        text_list.clear_options()
        for example in examples:  # why it was chosen, its number, its query, and the start of its title
            text = self.view.survey.examples.texts[example.id]
            label = fit(text.tokens.labels[example.query] if example.query is not None else "", LABEL_COLUMNS)
            start = f"{example.reason:<8} {example.value:6.2f}  {label}  "
            title = first_words(text.title, max(MIN_TEXT, width - SCROLLBAR - cell_len(start)))
            text_list.add_option(Option(Text(printable(start + title), no_wrap=True)))
        if examples:
            text_list.highlighted = 0

    def on_data_table_row_highlighted(self) -> None:
        """Draws the card of the newly chosen head."""
        self.draw()

    def on_data_table_row_selected(self) -> None:
        """Opens the card after Enter, or after a click on the chosen head."""
        self.action_open()

    def on_descendant_focus(self) -> None:
        """Updates the status line after the focus moved to another widget."""
        self.query_one("#status", Static).update(self.status)

    def on_resize(self) -> None:
        """Lays out the screen for the new size."""
        self.show()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Runs the model over the chosen example in a thread, and then opens the recording."""
        example, head = self.examples[event.option_index], self.chosen_row.name
        text = self.view.survey.examples.texts[example.id].title
        address = f"head={head}" + ("" if example.query is None else f"&query={example.query}")
        self.run_start_time = start_time = time.monotonic()
        self.show_progress()
        self.run_worker(lambda: self.run_model(text, address, start_time), thread=True, exclusive=True)

    def show_progress(self) -> None:
        """Shows for how long the model has been running, if it runs."""
        if self.run_start_time is not None:
            seconds = time.monotonic() - self.run_start_time
            self.show(f"running {self.view.survey.model} over the example, {seconds:.0f} s; q goes back")

    def run_model(self, text: str, address: str, start_time: float) -> None:
        """Runs the model over an example, then ends the application with the recording, or shows why it cannot run.

        It runs in a thread; `end_run` drops its result if the user left the run.
        """
        try:
            recording = self.record(text)
        except AttnvizError as error:
            self.call_from_thread(self.end_run, start_time, error.message_with(flag))
        else:
            opened_text = OpenedText(recording, address, self.view, self.query_one(DataTable).cursor_row)
            self.call_from_thread(self.end_run, start_time, opened_text)

    def end_run(self, start_time: float, result: OpenedText | str) -> None:
        """Ends the application with the opened example, or shows a message; does nothing if the user left the run."""
        if self.run_start_time != start_time:
            return
        self.run_start_time = None
        if isinstance(result, str):
            self.show(result)
        else:
            self.exit(result)

    def action_leave(self) -> None:
        """Hides the list of keys, else leaves the run of the model, else quits."""
        if self.hides_keys():
            return
        if self.run_start_time is None:
            self.exit()
            return
        self.run_start_time = None
        self.show("stopped; Enter runs the model again")

    def action_open(self) -> None:
        """Opens the card of the chosen head; in the card, runs the model over the chosen example."""
        examples = self.query_one(OptionList)
        if self.focused is examples:
            examples.action_select()
            return
        self.card_open = True
        self.show()
        examples.focus()

    def action_heads(self) -> None:
        """Hides the list of keys, else closes the card; if both are closed already, removes the filter."""
        if self.hides_keys():
            return
        if not self.card_open and self.view.filter:
            self.view = replace(self.view, filter="")
            self.list_heads()
        self.card_open = False
        self.show()
        self.query_one(DataTable).focus()

    def action_sort(self, step: int) -> None:
        """Sorts heads, or chooses the open card's examples, by the metric ``step`` places after the current one."""
        if self.card_open:
            self.view = self.view.texts_by_next(self.chosen_row, step)
            self.show()
        else:
            self.show_view(self.view.sorted_by_next(step), choose_first=True)

    def action_reverse(self) -> None:
        """Reverses the order of heads by a metric; in the order of layers, that by the metric chosen next."""
        self.show_view(replace(self.view, ascending=not self.view.ascending), choose_first=True)

    def action_points(self) -> None:
        """Switches between the points and the list of heads."""
        self.shows_points = not self.shows_points
        self.show()

    def action_move(self, axis: int, step: int) -> None:
        """Chooses the next head among the points along an axis; if the chosen head has no point, the first one.

        At either end of the axis the head stays chosen. Does nothing if the list is shown instead of points, or no head
        has a point.
        """
        table, values = self.query_one(DataTable), self.view.points
        heads_with_points = np.flatnonzero(~np.isnan(values).any(axis=1))
        if not self.shows_points or not heads_with_points.size:
            return
        points = values[heads_with_points]
        order = np.lexsort((points[:, 1 - axis], points[:, axis]))  # along the axis, then across it
        ordered_heads = heads_with_points[order].tolist()
        position = ordered_heads.index(table.cursor_row) + step if table.cursor_row in ordered_heads else 0
        table.move_cursor(row=ordered_heads[min(max(position, 0), len(ordered_heads) - 1)])

    def show_view(self, view: SurveyView, choose_first: bool = False) -> None:
        """Shows the heads of a view; if the view is refused, shows the reason and keeps the old view."""
        name = self.chosen_row.name
        try:
            names = [row.name for row in view.rows]
            _ = view.axes  # raises if the metrics of the points are refused
        except AttnvizError as error:
            self.show(error.message_with(flag))
            return
        self.view = view
        self.list_heads(0 if choose_first or name not in names else names.index(name))

    def action_ask(self, asked: str) -> None:
        """Opens the prompt with a text to begin with."""
        name = "heads.svg" if self.shows_points else f"head-{self.chosen_row.name}.svg"
        text = {"save": name, "filter": self.view.filter}.get(asked, "")
        self.ask(asked, text, SIZES if asked == "save" else self.view.numbers)

    def explain_prompt(self, text: str) -> None:
        """Says what may be typed, or shows the status again after the prompt."""
        self.show(PROMPTS.get(self.asked, ""))

    def close_prompt(self) -> None:
        """Closes the prompt, and goes back to the list."""
        super().close_prompt()
        self.query_one(DataTable).focus()

    def answer_prompt(self, asked: str, text: str) -> None:
        """Does what the prompt was opened for: saves, filters, or finds."""
        if asked == "save":
            self.save_as(*self.file_and_size(text))
        elif asked == "filter":
            self.show_view(replace(self.view, filter=text.strip()))
        else:
            self.find(text.strip())

    def find(self, search_text: str) -> None:
        """Goes to the head that a text names, draws points over two metrics, or sorts by the first metric that matches.

        A comma separates two metrics; another metric matches if its name begins with the text. If the text is none of
        these, shows a message. An empty text does nothing.
        """
        names = [row.name for row in self.view.rows]
        metrics = matching_metrics(search_text, self.view.numbers)
        if search_text in names:
            self.query_one(DataTable).move_cursor(row=names.index(search_text))
        elif "," in search_text:
            self.shows_points = True
            self.show_view(replace(self.view, axis_names=search_text))
        elif search_text and metrics:
            sort = None if metrics[0] == LAYER_ORDER else metrics[0]
            self.show_view(replace(self.view, sort=sort, ascending=search_text.startswith("-")), choose_first=True)
        elif search_text:
            self.show(f"no head or metric {search_text!r}; {choices(search_text, (*names, *self.view.numbers))}")

    def save_as(self, path: Path, size: str | None) -> None:
        """Saves the points, or the card of the chosen head, as a picture; shows a message about success or failure."""
        look = replace(self.look, size=size or self.look.size)
        try:
            save_report(self.view.picture(None if self.shows_points else self.chosen_row, look), path)
            self.show(f"saved {path}")
        except AttnvizError as error:
            self.show(error.message_with(flag))

    def action_copy(self) -> None:
        """Copies the command that draws the screen to the terminal's clipboard (OSC 52)."""
        command = self.view.command(self.file, None if self.shows_points else self.chosen_row)
        self.copy_to_clipboard(command)
        self.show(f"copied {command}")
