"""Builds the tables of a survey's heads, and of the changes between two surveys."""

import math
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import chosen_places, survey_changes, survey_frame
from attnviz.maps.recording import silence_remarks
from attnviz.metrics.head_frame import HeadChanges, NumberChange
from attnviz.metrics.measure import NORMAL_95, named_measure
from attnviz.report.heads.head_atlas import About, frame_report
from attnviz.report.heads.lists import (
    CHANGE_REMARKS,
    METRIC_QUANTITIES,
    Column,
    HeadResults,
    HeadsReport,
    bar_lengths,
    layers_by_heads,
    listed,
    margin_text,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.picture.panels import EFFECT, Panel
from attnviz.report.picture.report import Summary
from attnviz.report.picture.unread import refuse_changed
from attnviz.report.words.captions import layers_phrase

UNKNOWN_METRICS = "a part of the survey lacks them, this attnviz does not know them, or the texts were decoded from ids"
LISTED = 20  # changes that a screen lists
LIST_ORDER = (
    "Sorted by the change in standard errors, as if the inputs were independent; ± is half of the 95 % interval of a "
    "change."
)
MAX_PANELS = 6  # metrics that a picture shows, those that change most clearly
CLEAR = NORMAL_95  # standard errors of a significant change


@working("reading the numbers of the survey")
def survey_heads_report(survey: Survey, options: ReportOptions) -> HeadsReport:
    """Returns the report of the chosen heads of a survey."""
    refuse_style(options.look, "a table of heads")
    if options.of == CONTRIBUTIONS:
        raise AttnvizError(f"a survey measures only weights; leave {option('of', CONTRIBUTIONS)} out")
    refuse_text_options(options)
    frame = survey_frame(survey, chosen_places(survey, options.selection))
    return frame_report(About(survey_title(survey), survey.model, survey_remarks(survey)), frame, options)


def ranked_places(survey: Survey, options: ReportOptions) -> list[int]:
    """Returns the indices of the chosen heads in the survey, filtered, sorted and cut to the top few by the options."""
    places = chosen_places(survey, options.selection)
    frame = survey_frame(survey, places)
    return [places[row] for row in frame.selected_rows(options.sort, options.top, options.filter)]


def refuse_text_options(options: ReportOptions) -> None:
    """Raises AttnvizError for the first option in use that needs the maps of one input, which no survey has."""
    pairs_table = options.table == "pairs"  # counted over the texts of a survey
    refuse_changed("a survey", replace(options, table=None) if pairs_table else options)


def survey_title(survey: Survey) -> str:
    """Returns the model, the corpus and its size as a title: ``gpt2 over wiki.txt: 12 texts, 340 tokens``.

    An absolute path in the corpus is cut to the name of its file.
    """
    names = (name.rpartition("/")[2] if name.startswith("/") else name for name in survey.corpus)
    over_corpus = f" over {', '.join(names)}" if survey.corpus else ""
    return f"{survey.model}{over_corpus}: {survey.texts} {survey.example_noun}, {survey.tokens} tokens"


def survey_remarks(survey: Survey) -> tuple[str, ...]:
    """Returns a remark on the surveyed layers and corpus, and one each on skipped texts and omitted metrics if any."""
    layers, over_corpus = layers_phrase(head.layer for head in survey.heads), f" over {', '.join(survey.corpus)}"
    skipped_phrase = ", ".join(f"{count} {reason}" for reason, count in survey.skipped.items() if count)
    remarks = [f"A survey of {layers}{over_corpus if survey.corpus else ''}."]
    if skipped_phrase:
        remarks.append(f"Left out of the corpus: {skipped_phrase}.")
    if survey.omitted_metrics:
        remarks.append(f"Metrics left out ({UNKNOWN_METRICS}): {', '.join(survey.omitted_metrics)}.")
    return (*remarks, *silence_remarks(survey.silent_layers))


@working("comparing the surveys")
def survey_comparison_report(before: Survey, after: Survey, options: ReportOptions) -> HeadsReport:
    """Returns a report of changes: a list, the clearest first, or maps of layers by heads of the clearest metrics."""
    refuse_style(options.look, "a comparison")
    refuse_text_options(options)
    metric = None if options.sort is None else named_measure(options.sort, before.metrics).name
    changes = survey_changes(before, after, chosen_places(before, options.selection), metric)
    clear_count = sum(change.clearness > CLEAR for change in changes.changes)
    clearest_change = changes.changes[0]
    clause = ""
    if clearest_change.clearness > CLEAR:
        numbers = f"{clearest_change.measure.name} {clearest_change.before:.3f} to {clearest_change.after:.3f}"
        clause = f"; head {clearest_change.name} most clearly: {numbers}"
    counts = f"{clear_count} of {len(changes.changes)} numbers of heads change significantly, tested one by one"
    list_remarks = [LIST_ORDER]
    omitted_count = 0 if options.all else len(changes.changes) - (options.top or LISTED)
    if omitted_count > 0:
        one_number = option("sort", "previous")
        omission = (
            f"{omitted_count} more changes are not listed; -o change.csv writes all, {one_number} lists one metric."
        )
        list_remarks.insert(0, omission)
    results = HeadResults(
        title="What changes between two surveys",
        caption=f"{counts}{clause}.",
        remarks=changes.remarks,
        results=changes,
        summary=lambda: _summary(changes, options),
        panels=lambda: _panels(changes),
        has_page=True,
        list_remarks=tuple(list_remarks),
        picture_remarks=CHANGE_REMARKS,
    )
    return results.report(options)


def _summary(changes: HeadChanges, options: ReportOptions) -> Summary:
    """Returns a table with a row for each change, the clearest first: all, the user's number of them, or `LISTED`."""
    max_rows = None if options.all else (options.top or LISTED)
    rows = changes.changes[:max_rows]
    cells = [METRIC_QUANTITIES[change.measure.unit].cell for change in rows]
    # Only shares have bars, which are as long as the largest of them; none has one if no share changes.
    differences = [change.difference if change.measure.unit == "share" else math.nan for change in rows]
    bars = bar_lengths(differences) if any(np.nan_to_num(differences)) else None
    return listed(
        Column("head", [change.name for change in rows], align="<"),
        Column("metric", [change.measure.name for change in rows], align="<"),
        Column("before", [cell(change.before) for cell, change in zip(cells, rows, strict=True)]),
        Column("after", [cell(change.after) for cell, change in zip(cells, rows, strict=True)]),
        Column("change", [f"{change.difference:+.3f}" for change in rows], bars),
        Column("95 %", [margin_text(change.margin) for change in rows]),
        Column(
            "std. errors",
            [f"{change.clearness:.1f}" if math.isfinite(change.clearness) else "∞" for change in rows],
        ),
    )


def _panels(changes: HeadChanges) -> list[Panel]:
    """Returns a panel for each of the `MAX_PANELS` clearest metrics; its title says the largest change."""
    changes_by_metric: dict[str, list[NumberChange]] = {}
    for change in changes.changes:  # the clearest change is first, and so is the metric with the clearest change
        changes_by_metric.setdefault(change.measure.name, []).append(change)
    panels = []
    for name, metric_changes in list(changes_by_metric.items())[:MAX_PANELS]:
        rows = [change.row for change in metric_changes]
        differences = [change.difference for change in metric_changes]
        title = f"{name}, up to ±{max(map(abs, differences)):.2g}"
        panels.append(layers_by_heads(rows, differences, title, EFFECT.with_name(f"change of {name}")))
    return panels
