"""What changes between two tables of effects, as a Report: a row a set of heads, or layers by heads as a picture."""

import math
from dataclasses import fields

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.effect_changes import EffectChanges, effect_changes
from attnviz.effects.effect_table import Effects
from attnviz.report.head_effects import NOT_A_CAUSE_ALONE, UNITS, head_map
from attnviz.report.look import refuse_style
from attnviz.report.options import ReportOptions
from attnviz.report.report import Heatmaps, ResultList, Summary
from attnviz.report.scales import share_scales
from attnviz.text.selection import Grouping, Selection

PARTS = ("selection", "grouping", "look", "medium")  # of the options, which are looked at by themselves
TITLE = "What changes between two tables of effects"


def effects_comparison_report(before: Effects, after: Effects, options: ReportOptions) -> ResultList | Heatmaps:
    """The report of the changes: a list, the largest first, or where a picture is drawn layers by heads.

    Raises:
        AttnvizError: for a page, for effects that do not compare, or a picture of no single head.
    """
    refuse_style(options.look, "a table of effects")
    _refuse_choices(options)
    changes = effect_changes(before, after)
    if options.medium.lists_heads:
        return ResultList(
            title=options.look.title or TITLE,
            caption=_caption(changes),
            remarks=(*changes.remarks, NOT_A_CAUSE_ALONE),
            look=options.look,
            results=changes,
            summary=_summary(changes),
        )
    if not options.medium.draws_maps:
        raise AttnvizError("changes of effects are one picture; -o change.png, or -o change.csv for numbers, works")
    return _map(changes, options)


def _refuse_choices(options: ReportOptions) -> None:
    """Raises AttnvizError for what chooses among the heads or the cells of maps."""
    look = options.look
    asked = [
        *(name for each in (options, options.selection, options.grouping) for name in _changed(each)),
        *(name for name in ("query", "mark", "effects") if getattr(look, name) is not None),
    ]
    if asked:
        name = "heads" if asked[0] == "pairs" else asked[0]
        raise AttnvizError(f"{option(name)} is of maps, and tables of effects are compared whole; leave it out")


def _changed(choice: ReportOptions | Selection | Grouping) -> list[str]:
    """The names of what was chosen otherwise than it is without a choice."""
    plain = type(choice)()
    names = [field.name for field in fields(choice) if field.name not in PARTS]
    return [name for name in names if getattr(choice, name) != getattr(plain, name)]


def _map(changes: EffectChanges, options: ReportOptions) -> Heatmaps:
    single = {each.heads[0]: each.difference for each in changes.changes if len(each.heads) == 1}
    if not single:
        raise AttnvizError(
            f"a picture shows what changes without single heads, and these are sets; without {option('sets')}, where "
            "the effects are measured, it works"
        )
    metric = changes.before.metric
    name = f"change of the effect on {metric}{UNITS.get(metric, '')}"
    return Heatmaps(
        title=options.look.title or TITLE,
        panels=share_scales([head_map(single, f"without a head: after less before, of {metric}", name)], options.look),
        caption=_caption(changes),
        remarks=("Rows are layers, columns heads; colours are after less before.", *changes.remarks, NOT_A_CAUSE_ALONE),
        look=options.look,
    )


def _summary(changes: EffectChanges) -> Summary:
    most = max(abs(each.difference) for each in changes.changes) or 1.0
    several = any(not math.isnan(each.margin) for each in changes.changes)
    header = ("without", "before", "after", "change", *(["±95%"] if several else []))
    return Summary(
        header=header,
        rows=tuple(
            (
                each.name,
                *(f"{number:+.4f}" for number in (each.before.mean, each.after.mean, each.difference)),
                *([f"{each.margin:.4f}"] if several else []),
            )
            for each in changes.changes
        ),
        bars=tuple((None, None, None, abs(each.difference) / most, *(None,) * several) for each in changes.changes),
        align="<" + ">" * (len(header) - 1),
    )


def _caption(changes: EffectChanges) -> str:
    most, metric = changes.changes[0], changes.before.metric
    if most.difference == 0:
        return f"No effect of a head on {metric} changes."
    what = "heads" if len(most.heads) > 1 else "head"
    return (
        f"How the effects of heads on {metric} change: most for {what} {most.name}, without which it changes by "
        f"{most.before.mean:+.4f} before and {most.after.mean:+.4f} after."
    )
