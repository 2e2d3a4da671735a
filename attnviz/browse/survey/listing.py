"""What the inspector of a survey shows: which heads in which order, the axes of their points, a head's texts."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, flag
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import chosen_places, survey_frame
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.render.formats import FORMATS
from attnviz.report.heads.head_columns import METRIC_QUANTITIES
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import HeadCards, Report
from attnviz.report.survey.survey_card import survey_card_report, telling_metric
from attnviz.report.survey.surveyed_heads import ChosenExample, chosen_axes, chosen_examples
from attnviz.text.selection import Selection

FIRST_NUMBERS = ("previous", "sink", "induction", "special", "self", "next", "duplicate", "entropy", "distance")


@dataclass(frozen=True, eq=False)
class SurveyView:
    """A survey as it is looked at.

    Attributes:
        survey: the survey.
        selection: the heads that are looked at.
        sort: the metric that heads are in the order of; ``None`` for the order of layers.
        ascending: the least of it first.
        filter: what each head that is listed holds, as `attnviz.metrics.head_filter` reads it; "" for all.
        asked: the names of the numbers across and up, as the command line has them; "" for the first two.
    """

    survey: Survey
    selection: Selection = field(default_factory=Selection)
    sort: str | None = None
    ascending: bool = False
    filter: str = ""
    asked: str = ""

    @cached_property
    def table(self) -> HeadFrame:
        """The numbers of the heads in their order.

        Raises:
            AttnvizError: for a metric that no head has, or a filter that leaves none.
        """
        order = f"-{self.sort}" if self.sort and self.ascending else self.sort
        frame = survey_frame(self.survey, chosen_places(self.survey, self.selection))
        return frame.chosen(order, None, self.filter or None)

    @property
    def rows(self) -> tuple[HeadRow, ...]:
        """The heads in their order."""
        return self.table.rows

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The metrics that some head has, those that tell most first."""
        counts = self.survey.tallies.count.sum(axis=0)
        known = [metric.name for metric, texts in zip(self.survey.metrics, counts, strict=True) if texts]
        return tuple(dict.fromkeys((*(name for name in FIRST_NUMBERS if name in known), *known)))

    @cached_property
    def axes(self) -> tuple[str, str]:
        """The names of the numbers across and up.

        Raises:
            AttnvizError: for what is no number of the survey.
        """
        axes = chosen_axes(self.survey, self.asked or None)
        if len(axes) > 2 or not set(axes) <= set(self.numbers):
            raise AttnvizError(
                f"two numbers are drawn here, across and up; '{self.numbers[0]},{self.numbers[1]}' works"
            )
        return axes[0], axes[1]

    @cached_property
    def points(self) -> Float64Array:
        """The numbers across and up of the listed heads, ``(heads, 2)``."""
        return self.table.select(self.axes).values

    def cells(self, row: HeadRow) -> list[str]:
        """What a line of the list says of a head: its name, what it does, and its numbers."""
        units = {metric.name: metric.unit for metric in self.survey.metrics}
        values = self.table.numbers_of(self.rows.index(row))
        return [row.name, row.pattern, *(METRIC_QUANTITIES[units[name]].cell(values[name]) for name in self.numbers)]

    def sorted_by_next(self, step: int) -> "SurveyView":
        """Sorted by the next metric, the order of layers among them."""
        names: Sequence[str | None] = (None, *self.numbers)
        return replace(self, sort=names[(names.index(self.sort) + step) % len(names)])

    def place(self, row: HeadRow) -> int:
        """Where a head stands in the survey."""
        return next(place for place, head in enumerate(self.survey.heads) if head.name == row.name)

    def examples(self, row: HeadRow) -> list[ChosenExample]:
        """The texts that show a head: those with its largest number, then those near its deciles."""
        place = self.place(row)
        names = [metric.name for metric in self.survey.metrics]
        return chosen_examples(self.survey, place, names.index(self.shown_by(row)))

    def shown_by(self, row: HeadRow) -> str:
        """The metric that a head's examples are chosen by."""
        return self.sort or telling_metric(self.survey, self.place(row))

    def command(self, file: str, row: HeadRow | None) -> str:
        """The line that draws a head's card, or without a head the points, as a figure."""
        words = ["attnviz", "show", file]
        if row is not None:
            words += [flag("heads"), row.name, *([flag("sort"), self.sort] if self.sort else [])]
        else:
            words += [flag("axes"), ",".join(self.axes), *([flag("filter"), self.filter] if self.filter else [])]
        return f"{shlex.join(words)} -o figure.svg"

    def picture(self, row: HeadRow | None, look: Look) -> Report:
        """A head's card, or without a head the points of those that are listed, as a report for a picture."""
        options = ReportOptions(
            selection=self.selection if row is None else _only(row),
            sort=self.sort,
            filter=(self.filter or None) if row is None else None,
            axes=",".join(self.axes) if row is None else None,
            look=look,
            medium=FORMATS[".svg"].medium(look),
        )
        return survey_card_report(self.survey, options)

    def card(self, row: HeadRow, look: Look) -> HeadCards:
        """The tables of a head."""
        options = ReportOptions(
            selection=_only(row),
            sort=self.sort,
            look=look,
            medium=Medium(draws_maps=True, lists_heads=True),
        )
        report = survey_card_report(self.survey, options)
        assert isinstance(report, HeadCards)
        return report


def _only(row: HeadRow) -> Selection:
    return Selection(pairs=((row.layer, row.head),))
