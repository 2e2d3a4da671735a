"""Decides what the inspector of a survey shows: the list of heads, points over two metrics, a head's examples."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, flag
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import chosen_indices, survey_frame
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.render.formats import FORMATS
from attnviz.render.terminal.lines import Line, Span, fit, right_aligned
from attnviz.report.heads.lists import METRIC_QUANTITIES
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import HeadCards, Report
from attnviz.report.survey.pictures import ChosenExample, chosen_axes, chosen_examples
from attnviz.report.survey.tables import clearest_metric, survey_card_report
from attnviz.text.selection import Selection

FIRST_NUMBERS = ("previous", "sink", "induction", "special", "self", "next", "duplicate", "entropy", "distance")
LABEL_COLUMNS = 6  # columns of the numbers beside the points
HEAD_COUNT_CHARACTERS = ((1, "•"), (2, "●"), (4, "█"))  # least number of heads at a position, and its character
CHOSEN = "◆"


@dataclass(frozen=True, eq=False)
class SurveyView:
    """A survey with the order and filter of its heads."""

    survey: Survey
    selection: Selection = field(default_factory=Selection)  # the heads to show
    sort: str | None = None  # the metric that heads are sorted by; None for the order of layers
    ascending: bool = False  # the smallest number first
    filter: str = ""  # words that must all hold for a listed head, as `attnviz.metrics.measure` reads them
    axis_names: str = ""  # of the metrics across and up, as ``--style points:`` takes them; "" chooses two
    texts_by: str | None = None  # the metric that chooses a head's examples; None: that of the order or the clearest
    given_names: Mapping[str, str] = field(default_factory=dict)  # of heads, by ``layer.head``

    @cached_property
    def table(self) -> HeadFrame:
        """The numbers of the listed heads, in their order."""
        order = f"-{self.sort}" if self.sort and self.ascending else self.sort
        frame = survey_frame(self.survey, chosen_indices(self.survey, self.selection)).with_names(self.given_names)
        return frame.with_selected_rows(order, None, self.filter or None)

    @property
    def rows(self) -> tuple[HeadRow, ...]:
        """The listed heads, in their order."""
        return self.table.rows

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The metrics that at least one head has, first those of ``FIRST_NUMBERS``."""
        counts = self.survey.tallies.count.sum(axis=0)
        names = [metric.name for metric, texts in zip(self.survey.metrics, counts, strict=True) if texts]
        return tuple(dict.fromkeys((*(name for name in FIRST_NUMBERS if name in names), *names)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics of the list's columns: the sorting one first, where a narrow screen shows it."""
        return tuple(sorted(self.numbers, key=lambda name: name != self.sort))

    @cached_property
    def axes(self) -> tuple[str, str]:
        """The names of the metrics across and up."""
        axes = chosen_axes(self.survey, self.axis_names or None)
        if len(axes) > 2 or not set(axes) <= set(self.numbers):
            example = f"{self.numbers[0]},{self.numbers[1]}"
            raise AttnvizError(f"points need two metrics, across and up, not {','.join(axes)!r}; give {example!r}")
        return axes[0], axes[1]

    @cached_property
    def points(self) -> Float64Array:
        """The metrics of the listed heads across and up, ``(heads, 2)``."""
        return self.table.select(self.axes).values

    def cells(self, row: HeadRow) -> list[str]:
        """Returns the texts in a line of the list: the head's name, its pattern and its metrics."""
        units = {metric.name: metric.unit for metric in self.survey.metrics}
        values = self.table.numbers_of(self.rows.index(row))
        return [row.name, row.pattern, *(METRIC_QUANTITIES[units[name]].cell(values[name]) for name in self.columns)]

    def sorted_by_next(self, step: int) -> "SurveyView":
        """Returns the view sorted by the metric ``step`` places after the current one.

        The order of layers counts as a metric; the first follows the last.
        """
        names: Sequence[str | None] = (None, *self.numbers)
        return replace(self, sort=names[(names.index(self.sort) + step) % len(names)])

    def index_of(self, row: HeadRow) -> int:
        """Returns the index of a head in the survey."""
        return next(index for index, head in enumerate(self.survey.heads) if head.name == row.name)

    def examples(self, row: HeadRow) -> list[ChosenExample]:
        """Returns the examples of a head: those with the largest number of its metric, then those near the deciles."""
        head = self.index_of(row)
        names = [metric.name for metric in self.survey.metrics]
        return chosen_examples(self.survey, head, names.index(self.example_metric(row)))

    def example_metric(self, row: HeadRow) -> str:
        """Returns the metric that chooses a head's examples: ``texts_by``, else the sorting one, else the clearest."""
        return self.texts_by or self.sort or clearest_metric(self.survey, self.index_of(row))

    def texts_by_next(self, row: HeadRow, step: int) -> "SurveyView":
        """Returns the view with examples chosen by the metric ``step`` places after a head's `example_metric`."""
        index = self.numbers.index(self.example_metric(row)) + step
        return replace(self, texts_by=self.numbers[index % len(self.numbers)])

    def command(self, file: str, row: HeadRow | None) -> str:
        """Returns the command that draws a figure of a head's card; of the points if ``row`` is ``None``."""
        words = ["attnviz", "show", file]
        if row is not None:
            words += [flag("heads"), row.name, *([flag("sort"), self.sort] if self.sort else [])]
        else:
            words += [
                flag("style"),
                f"points:{','.join(self.axes)}",
                *([flag("filter"), self.filter] if self.filter else []),
            ]
        return f"{shlex.join(words)} -o figure.svg"

    def picture(self, row: HeadRow | None, look: Look) -> Report:
        """Returns the report that is saved as a picture: a head's card, or the listed heads as points."""
        options = ReportOptions(sort=self.sort, look=look, medium=FORMATS[".svg"].medium(look))
        if row is None:
            axes = ",".join(self.axes)
            options = replace(options, selection=self.selection, filter=self.filter or None, axes=axes)
        else:
            options = replace(options, selection=_selection_of(row))
        return survey_card_report(self.survey, options)

    def card(self, row: HeadRow, look: Look) -> HeadCards:
        """Returns the report of a head's card for the terminal."""
        options = ReportOptions(
            selection=_selection_of(row),
            sort=self.sort,
            look=look,
            medium=Medium(draws_maps=True, lists_heads=True),
        )
        report = survey_card_report(self.survey, options)
        assert isinstance(report, HeadCards)
        return report


def _selection_of(row: HeadRow) -> Selection:
    """Returns the selection of a single head."""
    return Selection(pairs=((row.layer, row.head, row.part),))


def points_lines(
    values: Float64Array, names: Sequence[str], axes: tuple[str, str], chosen_head: int | None, size: tuple[int, int]
) -> list[Line]:
    """Returns the lines that draw heads as points, with axes; values are across and up, ``(heads, 2)``, NaN for none.

    If no head has both metrics, it is one line with a remark.
    """
    width, height = size[0] - LABEL_COLUMNS - 1, size[1] - 3  # without the numbers, the axes and their names
    heads_with_points = np.flatnonzero(~np.isnan(values).any(axis=1))
    if not heads_with_points.size:
        return [[Span(f"no head has both {axes[0]} and {axes[1]}", style="dim")]]
    low, high = values[heads_with_points].min(axis=0), values[heads_with_points].max(axis=0)
    ranges = np.where(high > low, high - low, 1.0)  # where all heads have one number, 1 avoids 0 / 0
    fractions = (values[heads_with_points] - low) / ranges
    columns = np.rint(fractions[:, 0] * (width - 1)).astype(int).tolist()
    rows = np.rint((1 - fractions[:, 1]) * (height - 1)).astype(int).tolist()
    rows_and_columns = zip(rows, columns, strict=True)
    positions = dict(zip(heads_with_points.tolist(), rows_and_columns, strict=True))
    grid = [[" "] * width for _ in range(height)]
    for (row, column), count in Counter(positions.values()).items():
        grid[row][column] = [character for min_count, character in HEAD_COUNT_CHARACTERS if count >= min_count][-1]
    distances = np.abs(fractions - fractions.mean(axis=0)).sum(axis=1)
    outer_heads = heads_with_points[np.argsort(-distances)].tolist()

    first_heads = [chosen_head] if chosen_head in positions else []
    for head in dict.fromkeys((*first_heads, *outer_heads)):
        name_row, name_column = positions[head]
        name, cells = names[head], grid[name_row]
        for start in (name_column + 1, name_column - len(name)):
            first, stop = max(0, start - 1), start + len(name)
            # the cells of the name and one at each side, without the head's own point
            needed_cells = [cell for index, cell in enumerate(cells[first : stop + 1], first) if index != name_column]
            if start >= 0 and stop <= len(cells) and not any(cell.strip() for cell in needed_cells):
                cells[start:stop] = name
                break
    chosen_position = None if chosen_head is None else positions.get(chosen_head)
    edge_labels = {0: f"{high[1]:.2f}", height - 1: f"{low[1]:.2f}"}
    lines = [[Span(fit(f"↑ {axes[1]}", size[0]), style="dim")]]
    for row, characters in enumerate(grid):
        edge = Span(right_aligned(edge_labels.get(row, ""), LABEL_COLUMNS) + "│", style="dim")
        spans = [Span("".join(characters))]
        if chosen_position is not None and chosen_position[0] == row:  # a mark replaces the point of the chosen head
            column = chosen_position[1]
            before, after = "".join(characters[:column]), "".join(characters[column + 1 :])
            spans = [Span(before), Span(CHOSEN, style="bold"), Span(after)]
        lines.append([edge, *spans])
    low_text, high_text = f"{low[0]:.2f}", f"{high[0]:.2f}"
    axis_text = f"{axes[0]} →".center(max(1, width - len(low_text) - len(high_text)))
    lines.append([Span(" " * LABEL_COLUMNS + "└" + "─" * width, style="dim")])
    lines.append([Span(" " * (LABEL_COLUMNS + 1) + low_text + axis_text + high_text, style="dim")])
    return lines
