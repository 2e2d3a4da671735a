"""Reports the changes between two surveys: the difference of each number of each head, with its standard error."""

import math

from attnviz.base.errors import option
from attnviz.corpus.changes import survey_changes
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import chosen_places
from attnviz.metrics.head_changes import HeadChanges, NumberChange
from attnviz.metrics.measure import NORMAL_95, named_measure
from attnviz.report.heads.found import CHANGE_REMARKS, Found, FoundReport
from attnviz.report.heads.head_columns import METRIC_QUANTITIES, Column, interval, layers_by_heads, listed, share_of
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import EFFECT, Panel
from attnviz.report.picture.report import Summary
from attnviz.report.survey.survey_heads import refuse_of_texts

LISTED = 20  # changes that a screen lists
MAX_PANELS = 6  # metrics that a picture shows, those that change most clearly
CLEAR = NORMAL_95  # standard errors of a significant change


def survey_comparison_report(before: Survey, after: Survey, options: ReportOptions) -> FoundReport:
    """Returns the report: a list, the clearest change first, or maps of layers by heads for the clearest metrics.

    Args:
        before: the first survey.
        after: the second survey.
        options: the chosen heads and metric, and the medium.

    Raises:
        AttnvizError: if an option is only for texts.
    """
    refuse_style(options.look, "a comparison")
    refuse_of_texts(options)
    wanted = None if options.sort is None else named_measure(options.sort, before.metrics).name
    changes = survey_changes(before, after, chosen_places(before, options.selection), wanted)
    found = Found(
        title="What changes between two surveys",
        caption=_caption(changes),
        remarks=changes.remarks,
        results=changes,
        summary=lambda: _summary(changes, options),
        panels=lambda: _panels(changes),
        has_page=True,
        of_list=_of_list(changes, options),
        of_picture=CHANGE_REMARKS,
    )
    return found.report(options)


def _summary(changes: HeadChanges, options: ReportOptions) -> Summary:
    shown = changes.changes[: None if options.all else options.top or LISTED]
    shares = [each.difference for each in shown if each.measure.unit == "share"]
    length = share_of(shares)

    def write(change: NumberChange, number: float) -> str:
        return METRIC_QUANTITIES[change.measure.unit].cell(number)

    def bar(change: NumberChange) -> float | None:
        return length(change.difference) if change.measure.unit == "share" and any(shares) else None

    columns = [
        Column[NumberChange]("head", lambda each: each.name, align="<"),
        Column[NumberChange]("metric", lambda each: each.measure.name, align="<"),
        Column[NumberChange]("before", lambda each: write(each, each.before)),
        Column[NumberChange]("after", lambda each: write(each, each.after)),
        Column[NumberChange]("change", lambda each: f"{each.difference:+.3f}", bar),
        Column[NumberChange]("95 %", lambda each: interval(each.margin)),
        Column[NumberChange](
            "std. errors", lambda each: f"{each.clearness:.1f}" if math.isfinite(each.clearness) else "∞"
        ),
    ]
    return listed(shown, columns)


def _of_list(changes: HeadChanges, options: ReportOptions) -> tuple[str, ...]:
    left = 0 if options.all else len(changes.changes) - (options.top or LISTED)
    return (
        *(
            [f"{left} more are not listed; -o change.csv writes all, {option('sort', 'previous')} lists one number."]
            if left > 0
            else []
        ),
        "Sorted by the change in standard errors, for independent texts; ± is half of the 95 % interval of a change.",
    )


def _caption(changes: HeadChanges) -> str:
    clear = sum(each.clearness > CLEAR for each in changes.changes)
    first = changes.changes[0]
    most = f"head {first.name} most clearly: {first.measure.name} {first.before:.3f} to {first.after:.3f}"
    clearest = most if first.clearness > CLEAR else "no head surely does"
    return f"{clear} of {len(changes.changes)} numbers of heads change significantly, tested one by one; {clearest}."


def _panels(changes: HeadChanges) -> list[Panel]:
    """Returns a panel for each of the metrics that change most clearly; its title has the limits of its colours."""
    by_name: dict[str, list[NumberChange]] = {}
    for each in changes.changes:
        by_name.setdefault(each.measure.name, []).append(each)
    return [
        layers_by_heads(
            [each.row for each in of_name],
            [each.difference for each in of_name],
            f"{name}, up to ±{max(abs(each.difference) for each in of_name):.2g}",
            EFFECT.named(f"change of {name}"),
        )
        for name, of_name in list(by_name.items())[:MAX_PANELS]
    ]
