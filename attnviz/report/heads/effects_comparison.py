"""Builds the report of two tables of effects compared: a row per set of heads, or a map of layers by heads."""

import math
from dataclasses import fields

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.effect_table import Effects, effect_changes
from attnviz.metrics.head_frame import HeadChanges
from attnviz.report.heads.head_columns import Column, bar_lengths, listed
from attnviz.report.heads.head_effects import NOT_A_CAUSE_ALONE, name_with_unit, single_heads_panel
from attnviz.report.heads.head_results import CHANGE_REMARKS, HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import Summary

PARTS = ("selection", "grouping", "look", "medium")  # groups of options: checked one by one, or not at all


def effects_comparison_report(before: Effects, after: Effects, options: ReportOptions) -> HeadsReport:
    """Builds the report of changes between two tables of effects: a list, the largest first, or a map.

    The map, of layers by heads, is for media that draw pictures.

    Raises:
        AttnvizError: for a page, for options that select heads or cells, for effects that cannot be compared, or for a
            picture without single heads.
    """
    refuse_style(options.look, "a table of effects")
    _refuse_selection(options)
    changes = effect_changes(before, after)
    results = HeadResults(
        title="Changes between two tables of effects",
        caption=_caption(changes, before.metric),
        remarks=(*changes.remarks, NOT_A_CAUSE_ALONE),
        results=changes,
        summary=lambda: _summary(changes),
        panels=lambda: [_panel(before, after)],
        refusal="a page cannot show changes of effects; use -o change.png, or -o change.csv for numbers",
        picture_remarks=CHANGE_REMARKS,
    )
    return results.report(options)


def _refuse_selection(options: ReportOptions) -> None:
    """Raises AttnvizError if an option selects heads or cells of maps, since tables of effects are compared whole."""
    look = options.look
    selecting_options = [
        field.name
        for group in (options, options.selection, options.grouping)
        for field in fields(group)
        if field.name not in PARTS and getattr(group, field.name) != getattr(type(group)(), field.name)
    ]
    selecting_options += [name for name in ("query", "mark", "effects", "names") if getattr(look, name) is not None]
    selecting_options += ["pool"] if look.pool != type(look).pool else []
    if selecting_options:
        name = "heads" if selecting_options[0] == "pairs" else selecting_options[0]
        raise AttnvizError(
            f"{option(name)} does not apply to tables of effects, which are compared whole; leave it out"
        )


def _panel(before: Effects, after: Effects) -> Panel:
    """Returns a map of layers by heads with the change of each single head's effect; refuses tables of sets."""
    output = before.output
    refusal = (
        "a picture shows changes of single heads, and these are sets; measure the effects again without "
        f"{option('sets')}"
    )
    title, name = (
        f"effect of each head on {output.name}, after minus before",
        f"change of the effect on {name_with_unit(output)}",
    )
    return single_heads_panel(after.frame - before.frame, title, name, refusal)


def _summary(changes: HeadChanges) -> Summary:
    """Returns a list with a row per head or set of heads: its effect before and after, and the change with a bar."""
    rows = changes.changes
    differences = [change.difference for change in rows]
    columns = [
        Column("without", [change.name for change in rows], align="<"),
        Column("before", [f"{change.before:+.4f}" for change in rows]),
        Column("after", [f"{change.after:+.4f}" for change in rows]),
        Column("change", [f"{difference:+.4f}" for difference in differences], bar_lengths(differences)),
    ]
    if any(not math.isnan(change.margin) for change in rows):
        columns.append(Column("±95%", [f"{change.margin:.4f}" for change in rows]))
    return listed(*columns)


def _caption(changes: HeadChanges, metric: str) -> str:
    """Returns a sentence on the largest change, or one that says that nothing changes."""
    largest = changes.changes[0]
    if largest.difference == 0:
        return f"The effects of heads on {metric} do not change."
    heads = f"{'heads' if len(largest.row.heads) > 1 else 'head'} {largest.name}"
    return (
        f"Changes of the effects of heads on {metric}: the largest is that of {heads}, from {largest.before:+.4f} "
        f"before to {largest.after:+.4f} after."
    )
