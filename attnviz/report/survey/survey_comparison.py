"""Reports the changes between two surveys: the difference of each number of each head, with its standard error."""

import math

from attnviz.base.errors import option
from attnviz.corpus.changes import survey_changes
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import chosen_places
from attnviz.metrics.head_changes import HeadChanges, NumberChange
from attnviz.metrics.measure import NORMAL_95, named_measure
from attnviz.report.heads.head_columns import (
    METRIC_QUANTITIES,
    Column,
    bar_length,
    layers_by_heads,
    list_summary,
    margin_text,
)
from attnviz.report.heads.head_results import CHANGE_REMARKS, HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import EFFECT, Panel
from attnviz.report.picture.report import Summary
from attnviz.report.survey.survey_heads import refuse_text_options

LISTED = 20  # changes that a screen lists
MAX_PANELS = 6  # metrics that a picture shows, those that change most clearly
CLEAR = NORMAL_95  # standard errors of a significant change


def survey_comparison_report(before: Survey, after: Survey, options: ReportOptions) -> HeadsReport:
    """Returns the report: a list, the clearest change first, or maps of layers by heads for the clearest metrics.

    Args:
        before: the first survey.
        after: the second survey.
        options: the chosen heads and metric, and the medium.

    Raises:
        AttnvizError: if an option is only for texts.
    """
    refuse_style(options.look, "a comparison")
    refuse_text_options(options)
    metric = None if options.sort is None else named_measure(options.sort, before.metrics).name
    changes = survey_changes(before, after, chosen_places(before, options.selection), metric)
    results = HeadResults(
        title="What changes between two surveys",
        caption=_caption(changes),
        remarks=changes.remarks,
        results=changes,
        summary=lambda: _summary(changes, options),
        panels=lambda: _panels(changes),
        has_page=True,
        list_remarks=_list_remarks(changes, options),
        picture_remarks=CHANGE_REMARKS,
    )
    return results.report(options)


def _summary(changes: HeadChanges, options: ReportOptions) -> Summary:
    """Returns a list with a row per change: all, as many as the user chose, or the first `LISTED`."""
    max_rows = None if options.all else (options.top or LISTED)
    shown_changes = changes.changes[:max_rows]
    shares = [change.difference for change in shown_changes if change.measure.unit == "share"]
    length_of = bar_length(shares)

    def write(change: NumberChange, number: float) -> str:
        """Returns a number in the format of the change's measure."""
        return METRIC_QUANTITIES[change.measure.unit].cell(number)

    def bar(change: NumberChange) -> float | None:
        """Returns the length of the bar of a changed share; ``None`` for other measures, or if no share changes."""
        return length_of(change.difference) if change.measure.unit == "share" and any(shares) else None

    columns = [
        Column[NumberChange]("head", lambda change: change.name, align="<"),
        Column[NumberChange]("metric", lambda change: change.measure.name, align="<"),
        Column[NumberChange]("before", lambda change: write(change, change.before)),
        Column[NumberChange]("after", lambda change: write(change, change.after)),
        Column[NumberChange]("change", lambda change: f"{change.difference:+.3f}", bar),
        Column[NumberChange]("95 %", lambda change: margin_text(change.margin)),
        Column[NumberChange](
            "std. errors", lambda change: f"{change.clearness:.1f}" if math.isfinite(change.clearness) else "∞"
        ),
    ]
    return list_summary(shown_changes, columns)


def _list_remarks(changes: HeadChanges, options: ReportOptions) -> tuple[str, ...]:
    """Returns the remarks of a list: the number of changes that it omits, if any, and its order."""
    omitted = 0 if options.all else len(changes.changes) - (options.top or LISTED)
    return (
        *(
            [f"{omitted} more are not listed; -o change.csv writes all, {option('sort', 'previous')} lists one number."]
            if omitted > 0
            else []
        ),
        "Sorted by the change in standard errors, for independent texts; ± is half of the 95 % interval of a change.",
    )


def _caption(changes: HeadChanges) -> str:
    """Returns a sentence on the number of significant changes, and on the clearest one if there is any."""
    clear_count = sum(change.clearness > CLEAR for change in changes.changes)
    first = changes.changes[0]
    change_text = f"head {first.name} most clearly: {first.measure.name} {first.before:.3f} to {first.after:.3f}"
    clearest = f"; {change_text}" if first.clearness > CLEAR else ""
    return (
        f"{clear_count} of {len(changes.changes)} numbers of heads change significantly, tested one by one{clearest}."
    )


def _panels(changes: HeadChanges) -> list[Panel]:
    """Returns a panel for each metric, at most `MAX_PANELS`, the clearest first; its title says its largest change."""
    by_name: dict[str, list[NumberChange]] = {}
    for change in changes.changes:
        by_name.setdefault(change.measure.name, []).append(change)
    panels = []
    for name, of_metric in list(by_name.items())[:MAX_PANELS]:
        rows, differences = [change.row for change in of_metric], [change.difference for change in of_metric]
        title = f"{name}, up to ±{max(map(abs, differences)):.2g}"
        panels.append(layers_by_heads(rows, differences, title, EFFECT.with_name(f"change of {name}")))
    return panels
