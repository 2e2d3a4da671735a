"""Two surveys to what changes between them: each head and number with its difference and how sure that is."""

import math

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.changes import SurveyChanges, survey_changes
from attnviz.corpus.survey import NORMAL_95, Survey
from attnviz.metrics.metrics import find_metric
from attnviz.report.colors import ColorScale
from attnviz.report.head_atlas import METRIC_QUANTITIES
from attnviz.report.look import refuse_style
from attnviz.report.options import ReportOptions
from attnviz.report.panels import EFFECT, Axis, Panel
from attnviz.report.report import Heatmaps, ResultList, Summary
from attnviz.report.scales import share_scales
from attnviz.report.survey_heads import chosen_places, refuse_of_texts

LISTED = 20  # changes of a screen
MAX_PANELS = 6  # numbers of a picture: those that change most clearly
CLEAR = NORMAL_95  # standard errors


def survey_comparison_report(before: Survey, after: Survey, options: ReportOptions) -> ResultList | Heatmaps:
    """The report: a list, the clearest change first, or a map of layers by heads for the numbers that change most.

    Raises:
        AttnvizError: for a page, or what only texts have.
    """
    refuse_style(options.look, "a comparison")
    refuse_of_texts(options)
    known = {metric.name: metric for metric in before.metrics}
    wanted = None if options.sort is None else find_metric(options.sort.removeprefix("-"), known).name
    changes = survey_changes(before, after, chosen_places(before, options.selection), wanted)
    title = options.look.title or "What changes between two surveys"
    if options.medium.lists_heads:
        return ResultList(
            title=title,
            caption=_caption(changes),
            remarks=(*_of_list(changes, options), *changes.remarks),
            look=options.look,
            results=changes,
            summary=_summary(changes, options),
        )
    if not options.medium.draws_maps:
        raise AttnvizError("changes are one picture; -o change.png, or -o change.csv for numbers, works")
    names = list(dict.fromkeys(each.metric.name for each in changes.changes))[:MAX_PANELS]
    return Heatmaps(
        title=title,
        panels=share_scales([_panel(changes, name) for name in names], options.look),
        caption=_caption(changes),
        remarks=("Rows are layers, columns heads; colours are after less before.", *changes.remarks),
        look=options.look,
    )


def _summary(changes: SurveyChanges, options: ReportOptions) -> Summary:
    shown = changes.changes[: None if options.all else options.top or LISTED]
    rows, bars, most = [], [], max((abs(each.difference) for each in shown if each.metric.unit == "share"), default=1.0)
    for each in shown:
        write = METRIC_QUANTITIES[each.metric.unit].cell
        sure = "–" if math.isnan(each.margin) else f"±{each.margin:.3f}"
        errors = f"{each.clearness:.1f}" if math.isfinite(each.clearness) else "∞"
        row = (each.name, each.metric.name, write(each.before), write(each.after), f"{each.difference:+.3f}", sure)
        rows.append((*row, errors))
        share = abs(each.difference) / most if each.metric.unit == "share" and most else None
        bars.append((None, None, None, None, share, None, None))
    header = ("head", "metric", "before", "after", "change", "95 %", "std. errors")
    return Summary(header=header, rows=tuple(rows), bars=tuple(bars), align="<<>>>>>")


def _of_list(changes: SurveyChanges, options: ReportOptions) -> tuple[str, ...]:
    left = 0 if options.all else len(changes.changes) - (options.top or LISTED)
    return (
        *(
            [f"{left} more are not listed; -o change.csv has all, {option('sort', 'previous')} lists one number."]
            if left > 0
            else []
        ),
        "Sorted by the change in standard errors, texts of both taken as independent; ± is half of its 95 % interval.",
    )


def _caption(changes: SurveyChanges) -> str:
    clear = sum(each.clearness > CLEAR for each in changes.changes)
    first = changes.changes[0]
    most = f"head {first.name} most clearly: {first.metric.name} {first.before:.3f} to {first.after:.3f}"
    said = most if first.clearness > CLEAR else "no head surely does"
    return f"{clear} of {len(changes.changes)} numbers of heads surely change one by one; {said}."


def _panel(changes: SurveyChanges, name: str) -> Panel:
    """The change of one number, a row a layer and a column a head."""
    found = {(each.layer, each.head): each for each in changes.changes if each.metric.name == name}
    layers, heads = (sorted({head[axis] for head in found}) for axis in (0, 1))
    values = np.full((len(layers), len(heads)), np.nan, dtype=np.float32)
    for (layer, head), each in found.items():
        values[layers.index(layer), heads.index(head)] = each.difference
    return Panel(
        title=name,
        values=values,
        visible=~np.isnan(values),
        rows=_axis("layers", layers),
        columns=_axis("heads", heads),
        quantity=EFFECT.named(f"change of {name}"),
        scale=ColorScale(0, 1),
    )


def _axis(name: str, numbers: list[int]) -> Axis:
    return Axis(name=name, labels=tuple(map(str, numbers)), edges=tuple(range(len(numbers) + 1)))
