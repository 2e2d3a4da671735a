"""Builds the report of two tables of effects compared: a row per set of heads, or a map of layers by heads."""

import math
from dataclasses import fields

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.effect_changes import effect_changes
from attnviz.effects.effect_table import Effects
from attnviz.metrics.head_changes import HeadChanges, NumberChange
from attnviz.report.heads.found import OF_CHANGES, Found, FoundReport
from attnviz.report.heads.head_columns import Column, listed, share_of
from attnviz.report.heads.head_effects import NOT_A_CAUSE_ALONE, single_heads, with_unit
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import Summary
from attnviz.text.selection import Grouping, Selection

PARTS = ("selection", "grouping", "look", "medium")  # groups of options: checked one by one, or not at all


def effects_comparison_report(before: Effects, after: Effects, options: ReportOptions) -> FoundReport:
    """Builds the report of the changes: a list, the largest first, or a map of layers by heads if a picture is drawn.

    Args:
        before: the effects before the change.
        after: the effects after it.
        options: the options of the report; those that select heads or cells are refused.

    Raises:
        AttnvizError: for a page, for effects that cannot be compared, or for a picture without single heads.
    """
    refuse_style(options.look, "a table of effects")
    _refuse_selection(options)
    changes = effect_changes(before, after)
    results = Found(
        title="Changes between two tables of effects",
        caption=_caption(changes, before.metric),
        remarks=(*changes.remarks, NOT_A_CAUSE_ALONE),
        results=changes,
        summary=lambda: _summary(changes),
        panels=lambda: [_panel(before, after)],
        refusal="changes of effects are drawn as one picture; use -o change.png, or -o change.csv for numbers",
        of_picture=OF_CHANGES,
    )
    return results.report(options)


def _refuse_selection(options: ReportOptions) -> None:
    """Raises AttnvizError if an option selects heads or cells of maps."""
    look = options.look
    unused = [
        *(name for each in (options, options.selection, options.grouping) for name in _changed_fields(each)),
        *(name for name in ("query", "mark", "effects") if getattr(look, name) is not None),
    ]
    if unused:
        name = "heads" if unused[0] == "pairs" else unused[0]
        raise AttnvizError(
            f"{option(name)} applies to maps alone; leave it out, as tables of effects are compared whole"
        )


def _changed_fields(choice: ReportOptions | Selection | Grouping) -> list[str]:
    """Returns the names of the fields that differ from their defaults."""
    default = type(choice)()
    names = [field.name for field in fields(choice) if field.name not in PARTS]
    return [name for name in names if getattr(choice, name) != getattr(default, name)]


def _panel(before: Effects, after: Effects) -> Panel:
    output = before.output
    none = (
        "a picture shows changes of single heads, and these are sets; measure the effects again without "
        f"{option('sets')}"
    )
    title, name = f"without a head: {output.name}, after minus before", f"change of the effect on {with_unit(output)}"
    return single_heads(after.frame - before.frame, title, name, none)


def _summary(changes: HeadChanges) -> Summary:
    length = share_of([each.difference for each in changes.changes])
    columns = [
        Column[NumberChange]("without", lambda each: each.name, align="<"),
        Column[NumberChange]("before", lambda each: f"{each.before:+.4f}"),
        Column[NumberChange]("after", lambda each: f"{each.after:+.4f}"),
        Column[NumberChange]("change", lambda each: f"{each.difference:+.4f}", lambda each: length(each.difference)),
    ]
    if any(not math.isnan(each.margin) for each in changes.changes):
        columns.append(Column("±95%", lambda each: f"{each.margin:.4f}"))
    return listed(changes.changes, columns)


def _caption(changes: HeadChanges, metric: str) -> str:
    most = changes.changes[0]
    if most.difference == 0:
        return f"The effects of heads on {metric} do not change."
    what = "heads" if len(most.row.heads) > 1 else "head"
    return (
        f"Changes of the effects of heads on {metric}: the largest is for {what} {most.name}, without which it changes "
        f"by {most.before:+.4f} before and {most.after:+.4f} after."
    )
