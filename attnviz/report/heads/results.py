"""Builds the reports of results of heads: effects of ablation, parts of a logit, and known types; as lists or maps."""

import math
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, flag, option
from attnviz.effects.controls import TESTED_TOO
from attnviz.effects.effect_table import Effects, effect_changes
from attnviz.metrics.head_frame import HeadChanges, HeadFrame
from attnviz.metrics.measure import Measure
from attnviz.report.heads.lists import (
    CHANGE_REMARKS,
    Column,
    HeadResults,
    HeadsReport,
    bar_lengths,
    labelled_panel,
    layers_by_heads,
    listed,
    margin_text,
    number_texts,
    p_remarks,
    p_text,
    replacement_words,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions, refuse_changed
from attnviz.report.picture.panels import EFFECT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import quoted_token, source_of

if TYPE_CHECKING:
    from attnviz.battery.head_types import HeadTypes

IS_WORSE = {"loss": 1, "accuracy": -1}  # the sign of a change for the worse; other metrics have neither
UNIT_WORDS = {"nats": " in nats", "share": " (0 to 1)"}
NOT_A_CAUSE_ALONE = (
    "Ablation is an intervention: it shows what this model does without a head on this input; if a head has no effect, "
    "another may back it up."
)


def effects_report(effects: Effects, options: ReportOptions) -> HeadsReport:
    """Builds the report of effects: a list, or if a picture is drawn, maps of single heads and of pairs of heads."""
    refuse_style(options.look, "a table of effects")
    results = HeadResults(
        title=" ".join(effects.title.split()) or effects.model,
        caption=_caption(effects),
        remarks=_remarks(effects),
        results=effects,
        summary=lambda: _summary(effects),
        panels=lambda: [_panel(effects), *_pairs_panel(effects)],
        refusal="a page cannot show effects of heads; use -o effect.png, or -o effect.csv for numbers",
        about=source_of(effects.model, effects.title),
    )
    return results.report(options)


def _panel(effects: Effects) -> Panel:
    """Returns a map of layers by heads with the effect of each single head; raises AttnvizError if there is none."""
    title = f"without a head: change of {effects.metric}"
    name = f"change of {name_with_unit(effects.output)} without a head"
    refusal = f"a picture shows effects of single heads; leave {option('sets')} out, or list the sets in the terminal"
    return single_heads_panel(effects.frame, title, name, refusal)


def _pairs_panel(effects: Effects) -> list[Panel]:
    """Returns one panel of heads by heads, with the change of the metric if the two heads are removed together."""
    pairs = [row for row in effects.rows if len(row.heads) == 2]
    if effects.greedy or not pairs:
        return []
    names = list(dict.fromkeys(name for row in effects.rows for name in row.name.split("+")))
    cells = np.full((len(names), len(names)), np.nan)
    for row in pairs:
        first, second = (names.index(name) for name in row.name.split("+"))
        cells[first, second] = cells[second, first] = row.mean
    title, name = f"without two heads: change of {effects.metric}", _panel(effects).quantity.name
    return [labelled_panel(title, cells, ("heads removed", names), ("heads", names), EFFECT.with_name(name))]


def single_heads_panel(frame: HeadFrame, title: str, name: str, refusal: str) -> Panel:
    """Returns a panel of layers by heads with the first measure of each single head."""
    single_rows = frame.take([index for index, row in enumerate(frame.rows) if len(row.heads) == 1])
    if not single_rows.rows:
        raise AttnvizError(refusal)
    return layers_by_heads(single_rows.rows, single_rows.values[:, 0].tolist(), title, EFFECT.with_name(name))


def name_with_unit(measure: Measure) -> str:
    """Returns the name of a measure with its unit: ``loss in nats``."""
    return measure.name + UNIT_WORDS.get(measure.unit, "")


def _summary(effects: Effects) -> Summary:
    """Returns a list with a row per head or set of heads: the metric without it, and the change."""
    rows = effects.sorted()
    changes = [row.mean for row in rows]
    columns = [
        Column("without", [row.name for row in rows], align="<"),
        Column(effects.metric, number_texts((effects.baseline + change for change in changes), ".4f")),
        Column("change", [f"{change:+.4f}" for change in changes], bar_lengths(changes)),
    ]
    if effects.texts > 1:
        columns.append(Column("±95%", number_texts((row.margin for row in rows), ".4f")))
    interactions = list(map(effects.interaction, rows))
    if not all(map(math.isnan, interactions)):
        columns.append(Column("interaction", number_texts(interactions, "+.4f")))
    if any(row.controls for row in rows):
        ranges = [" to ".join(dict.fromkeys(f"{end:+.4f}" for end in row.range_of_controls)) for row in rows]
        columns.append(
            Column("other heads", [text if row.controls else "" for row, text in zip(rows, ranges, strict=True)])
        )
        columns.append(Column("p", ["" if math.isnan(row.p) else p_text(row.p, len(row.controls)) for row in rows]))
    return listed(*columns)


def _caption(effects: Effects) -> str:
    """Returns a sentence on the metric with all heads, and on the largest change (of a greedy search, the last row)."""
    effect = effects.rows[-1] if effects.greedy else effects.sorted()[0]
    has_several_heads = len(effect.heads) > 1
    heads = f"{'heads' if has_several_heads else 'head'} {effect.name}"
    condition = f"with {heads} removed together" if effects.greedy and has_several_heads else f"without {heads}"
    rank = ", the largest change" if effect.mean and not effects.greedy else ""
    texts = f", the mean over {effects.texts} texts" if effects.texts > 1 else ""
    change = f"stays {effects.baseline:.4f}"
    if effect.mean:
        worsening = effect.mean * IS_WORSE.get(effects.metric, 0)
        judgement = f" ({'worse' if worsening > 0 else 'better'})" if worsening else ""
        change = f"{'rises' if effect.mean > 0 else 'falls'} to {effects.baseline + effect.mean:.4f}{judgement}"
    answer = f" of {quoted_token(effects.token)}" if effects.token else ""
    answer += f" less that of {quoted_token(effects.versus)}" if effects.versus else ""
    baseline = f"{effects.metric}{answer} is {effects.baseline:.4f} with all heads{texts}"
    return f"Effects of heads in {effects.model}: {baseline}; {condition} it {change}{rank}."


def _remarks(effects: Effects) -> tuple[str, ...]:
    """Returns remarks on the meaning of the numbers and their limits."""
    replacement = replacement_words(effects.by, effects.texts)
    meaning = f"{effects.output.meaning}{UNIT_WORDS.get(effects.output.unit, '')}"
    greedy_remark = "Each row removes one more head: the head whose removal then changes the result most."
    interval_remark = "± is half of the 95% interval of the mean over the texts."
    return (
        f"Change of {effects.metric}: {meaning}, when the output of a head is replaced by {replacement}.",
        *([interval_remark] if effects.texts > 1 else []),
        *([greedy_remark] if effects.greedy else []),
        *_control_remarks(effects),
        NOT_A_CAUSE_ALONE,
        *effects.remarks,
    )


def _control_remarks(effects: Effects) -> list[str]:
    """Returns remarks on the sets of other heads that rows are compared with."""
    counts = [len(row.controls) for row in effects.rows if row.controls]
    if not counts:
        return []
    many = f"{effects.controls} random sets of as many other heads, of the same layers or the nearest"
    few = "each other set of as many heads" if max(counts) > 1 else "as many other heads, the only ones"
    drawn = many if min(counts) == effects.controls else few if max(counts) < effects.controls else f"{many}, or all"
    if len(counts) > 1 and TESTED_TOO not in effects.remarks:
        drawn += ", none of which is tested itself"
    doubt = " These heads were chosen by their effect on the same texts, so that p is too small."
    chosen = doubt if effects.greedy else ""
    return [
        f"Other heads: the change without {drawn}; p is (1 + those that change it as much, in the same direction) / "
        f"(1 + all of them).{chosen}",
        *p_remarks([(row.name, row.p, len(row.controls)) for row in effects.rows if row.controls]),
    ]


def effects_comparison_report(before: Effects, after: Effects, options: ReportOptions) -> HeadsReport:
    """Builds the report of changes between two tables of effects: a list, the largest first, or a map.

    The map, of layers by heads, is for media that draw pictures.
    """
    refuse_style(options.look, "a table of effects")
    refuse_changed("tables of effects", options)
    changes = effect_changes(before, after)
    largest = changes.changes[0]
    caption = f"The effects of heads on {before.metric} do not change."
    if largest.difference != 0:
        heads = f"{'heads' if len(largest.row.heads) > 1 else 'head'} {largest.name}"
        caption = (
            f"Changes of the effects of heads on {before.metric}: the largest is that of {heads}, from "
            f"{largest.before:+.4f} before to {largest.after:+.4f} after."
        )
    results = HeadResults(
        title="Changes between two tables of effects",
        caption=caption,
        remarks=(*changes.remarks, NOT_A_CAUSE_ALONE),
        results=changes,
        summary=lambda: _change_list(changes),
        panels=lambda: [_change_panel(before, after)],
        refusal="a page cannot show changes of effects; use -o change.png, or -o change.csv for numbers",
        picture_remarks=CHANGE_REMARKS,
    )
    return results.report(options)


def _change_panel(before: Effects, after: Effects) -> Panel:
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


def _change_list(changes: HeadChanges) -> Summary:
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


MAX_NEXT_HEADS = 2  # the number of heads named after the first of each type
MIN_NAMED_SCORE = 0.5  # the least score of a head that the caption names
SCORE = Quantity("score", ".2f")


def battery_report(types: "HeadTypes", options: ReportOptions) -> HeadsReport:
    """Builds the report of a battery: a list, or maps if a picture is drawn."""
    refuse_style(options.look, "a table of head types")
    from attnviz.battery.head_types import LEVEL

    # The best head of each type is named if its score is high and clearly above the control.
    scores, named_heads = types.scores, list[str]()
    for name in scores.names:
        best, column = scores.ranked_rows(name)[0], scores.column(name)
        if column[best] >= MIN_NAMED_SCORE and types.is_clear(name)[best]:
            named_heads.append(f"{name} {scores.rows[best].name} ({column[best]:.2f})")
    heads = ", ".join(named_heads) or f"no head has a score of {MIN_NAMED_SCORE} or more, clearly above its control"
    reasons: dict[str, list[str]] = {}
    for name, reason in types.skipped.items():
        reasons.setdefault(reason, []).append(name)
    skipped_types = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    results = HeadResults(
        title=f"Known types of heads in {types.model}",
        caption=f"Known types of heads in {types.model}: {heads}.",
        remarks=(*types.remarks, *([f"Not tested: {skipped_types}."] if skipped_types else [])),
        list_remarks=(
            *(f"{own.name}: {own.meaning} (control: {own.control})." for own in types.own_types),
            "A score goes from 0 to 1 (± half of its 95 % interval over texts), and its control is the same number "
            "where the type cannot show. “above control” counts heads that exceed it by a quarter, and by more than "
            f"any head of {1 - LEVEL:.0%} of random models does. {flag('json')} says on which keys each is measured, "
            "and who defined the type.",
        ),
        results=types,
        summary=lambda: _types_list(types),
        panels=lambda: [
            layers_by_heads(scores.rows, scores.column(name).tolist(), name, SCORE) for name in scores.names
        ],
        refusal="a page cannot show types of heads; use -o atlas.png, or -o types.csv for numbers",
        picture_remarks=("Rows are layers, columns are heads, colours are scores.",),
    )
    return results.report(options)


def _types_list(types: "HeadTypes") -> Summary:
    """Returns a list with a row per type: its best head with interval and control, a count, and the next heads."""
    scores, names = types.scores, [head_type.name for head_type in types.types]
    rankings = [scores.ranked_rows(name) for name in names]

    def numbers_of_best(frame: HeadFrame, statistic: str = "values") -> list[float]:
        columns = (frame.column(name, statistic) for name in names)
        return [float(column[ranking[0]]) for column, ranking in zip(columns, rankings, strict=True)]

    next_heads = [
        [f"{scores.rows[row].name} {scores.column(name)[row]:.2f}" for row in ranking[1 : 1 + MAX_NEXT_HEADS]]
        for name, ranking in zip(names, rankings, strict=True)
    ]
    best_scores = numbers_of_best(scores)
    return listed(
        Column("type", names, align="<"),
        Column("head", [scores.rows[ranking[0]].name for ranking in rankings], align="<"),
        Column("score", [f"{score:.3f}" for score in best_scores], best_scores),
        Column("95 %", list(map(margin_text, numbers_of_best(scores, "margins")))),
        Column("control", [f"{control:.3f}" for control in numbers_of_best(types.controls)]),
        Column("above control", [f"{types.is_clear(name).sum()} of {len(scores.rows)}" for name in names]),
        Column("next", list(map("  ".join, next_heads)), align="<"),
    )
