"""Decides what the inspector of a survey shows: the list of heads, the axes of points, a head's examples."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, flag
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import chosen_places, survey_frame
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.render.formats import FORMATS
from attnviz.report.heads.lists import METRIC_QUANTITIES
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import HeadCards, Report
from attnviz.report.survey.survey_card import clearest_metric, survey_card_report
from attnviz.report.survey.surveyed_heads import ChosenExample, chosen_axes, chosen_examples
from attnviz.text.selection import Selection

FIRST_NUMBERS = ("previous", "sink", "induction", "special", "self", "next", "duplicate", "entropy", "distance")


@dataclass(frozen=True, eq=False)
class SurveyView:
    """A survey with the order and filter of its heads.

    Attributes:
        survey: the survey.
        selection: the heads to show.
        sort: the metric that heads are sorted by; ``None`` for the order of layers.
        ascending: sort the smallest number first.
        filter: the words that must all hold for a listed head, as `attnviz.metrics.head_filter` reads them.
        axis_names: the names of the metrics across and up, as ``--axes`` takes them; "" chooses two.
        given_names: the names that the user gave to heads, by ``layer.head``.
        texts_by: the metric that chooses a head's examples; ``None`` for that of the order, else the clearest.
    """

    survey: Survey
    selection: Selection = field(default_factory=Selection)
    sort: str | None = None
    ascending: bool = False
    filter: str = ""
    axis_names: str = ""
    texts_by: str | None = None
    given_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def table(self) -> HeadFrame:
        """The numbers of the listed heads, in their order.

        Raises:
            AttnvizError: if no head has the metric, or the filter leaves no head.
        """
        order = f"-{self.sort}" if self.sort and self.ascending else self.sort
        frame = survey_frame(self.survey, chosen_places(self.survey, self.selection)).with_names(self.given_names)
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

    @cached_property
    def axes(self) -> tuple[str, str]:
        """The names of the metrics across and up.

        Raises:
            AttnvizError: if there are not exactly two, or no head has one of them.
        """
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
        return [row.name, row.pattern, *(METRIC_QUANTITIES[units[name]].cell(values[name]) for name in self.numbers)]

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
            words += [flag("axes"), ",".join(self.axes), *([flag("filter"), self.filter] if self.filter else [])]
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
