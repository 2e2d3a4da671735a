"""Builds the reports of results of heads: effects of ablation, parts of a logit, and known types; as lists or maps."""

import math
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.effect_table import Effects, effect_changes
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.maps.recording import silence_remarks
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
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions, refuse_changed
from attnviz.report.picture.panels import EFFECT, LOGIT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import source_of
from attnviz.text.head_name import KnownHead

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
    baseline = f"{effects.metric} is {effects.baseline:.4f} with all heads{texts}"
    return f"Effects of heads in {effects.model}: {baseline}; {condition} it {change}{rank}."


def _remarks(effects: Effects) -> tuple[str, ...]:
    """Returns remarks on the meaning of the numbers and their limits."""
    replacement = {"zero": "zero", "mean": "its mean over the positions"}.get(effects.by, "its output on another text")
    meaning = f"{effects.output.meaning}{UNIT_WORDS.get(effects.output.unit, '')}"
    greedy_remark = "Each row removes one more head: the head whose removal then changes the result most."
    interval_remark = "± is half of the 95% interval of the mean over the texts."
    return (
        f"Change of {effects.metric}: {meaning}, when the output of a head is replaced by {replacement}.",
        *([interval_remark] if effects.texts > 1 else []),
        *([greedy_remark] if effects.greedy else []),
        NOT_A_CAUSE_ALONE,
        *effects.remarks,
    )


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


MAX_LISTED_PARTS = 16  # the most parts on a screen; a row with the sum of the others follows
MAX_DRAWN_HEADS = 12  # the most heads whose keys are drawn
MAX_DRAWN_KEYS = 40
MAX_NAMED_KEYS = 2  # keys that a head's row names
EXACT_SUM = 1e-4  # the largest difference between sum and logit that needs no explanation
WITH_FROZEN_NORMS = (
    "Direct logit attribution: what each part adds by itself, with the scale of {norms} frozen as it is on this text"
)
NOT_INDIRECT = (
    "; changes through later layers are not counted, but attnviz ablate measures them (Elhage et al. 2021; Wang et al. "
    "2023)."
)


def logit_report(parts: LogitParts, options: ReportOptions) -> HeadsReport:
    """Builds the report of a logit's parts: a list, or if a picture is drawn, a map by layer and a map by key.

    The list has a row per part; if the user selects heads, it has a row per key instead.
    """
    refuse_style(options.look, "a sum of parts")
    selected_heads = _selected_heads(parts, options)
    heads = selected_heads or [part for part in parts.sorted() if part.kind == "head"]
    drawn_heads = [head for head in heads if parts.labels_of(head) == parts.labels_of(heads[0])]
    largest_heads = sorted(drawn_heads, key=lambda head: -abs(head.adds))[:MAX_DRAWN_HEADS]

    # what the picture leaves out
    parts_outside = ", ".join(f"{part.name} {part.adds:+.2f}" for part in parts.parts if part.layer is None)
    key_count = len(parts.labels_of(drawn_heads[0])) if drawn_heads else 0
    picture_remarks = (
        *([f"Outside of layers: {parts_outside}."] if parts_outside else []),
        *(
            [f"Keys are drawn for the {MAX_DRAWN_HEADS} heads with the largest parts."]
            if len(drawn_heads) > MAX_DRAWN_HEADS
            else []
        ),
        *(
            [f"Of {key_count} keys, the {MAX_DRAWN_KEYS} with the largest parts are drawn."]
            if key_count > MAX_DRAWN_KEYS
            else []
        ),
    )
    results = HeadResults(
        title=" ".join(parts.title.split()) or parts.model,
        caption=_logit_caption(parts),
        remarks=_logit_remarks(parts),
        results=parts,
        summary=lambda: _key_list(parts, selected_heads) if selected_heads else _part_list(parts, options),
        panels=lambda: [
            _layer_panel(parts),
            _key_panel(parts, [head for head in drawn_heads if head in largest_heads]),
        ],
        refusal="a page cannot show the parts of a logit; use -o logit.png, or -o logit.csv for numbers",
        picture_remarks=picture_remarks,
        about={"logit": parts.as_json(), **source_of(parts.model, parts.title)},
    )
    return results.report(options)


def _selected_heads(parts: LogitParts, options: ReportOptions) -> list[LogitPart]:
    """Returns the heads that the user selected; empty if the user selected neither layers nor heads."""
    selection = options.selection
    if selection.chosen_layers is None and selection.heads is None:
        return []
    known = [
        KnownHead(part.layer or 0, part.head or 0, module=part.module, kind="cross" if part.is_cross else "self")
        for part in parts.heads
    ]
    selected_heads = [parts.heads[index] for index in selection.indices_in(known, parts.silent_layers)]
    if not selected_heads:
        heads = [part.name for part in parts.heads]
        raise AttnvizError(f"none of the chosen heads adds to the logit; choose from {heads[0]} to {heads[-1]}")
    return selected_heads


def _part_list(parts: LogitParts, options: ReportOptions) -> Summary:
    """Returns a list with a row per part, the largest in size first, then the logit."""
    sorted_parts = parts.sorted()
    shown_parts = sorted_parts if options.all else sorted_parts[:MAX_LISTED_PARTS]
    other_parts = sorted_parts[len(shown_parts) :]
    advice = options.look.format_options(f"{option('all', True)} shows them")
    sums = [(LogitPart("logit", "other", parts.logit), "the sum")]
    if other_parts:
        others = LogitPart(f"{len(other_parts)} more", "other", sum(part.adds for part in other_parts))
        sums.insert(0, (others, advice))
    rows = [*shown_parts, *(row for row, _ in sums)]
    bars = bar_lengths([part.adds for part in sorted_parts])[: len(shown_parts)]
    sources = []  # the keys from which a head adds or takes away most, and how much
    for part in shown_parts:
        amounts = []
        if part.keys is not None:
            labels, order = parts.labels_of(part), np.argsort(-np.abs(part.keys), kind="stable")
            amounts = [f"{labels[key]} {part.keys[key]:+.2f}" for key in order[:MAX_NAMED_KEYS].tolist()]
        sources.append(", ".join(amounts))

    return listed(
        Column("part", [part.name for part in rows], align="<"),
        Column("adds", [f"{part.adds:+.4f}" for part in rows], [*bars, *([None] * len(sums))]),
        Column(
            "mostly from",
            [*sources, *(note for _, note in sums)],
            align="<",
        ),
    )


def _key_list(parts: LogitParts, heads: list[LogitPart]) -> Summary:
    """Returns a list with a row per key, then a row of sums, and a column per head."""
    label_groups = {parts.labels_of(head) for head in heads}
    if len(label_groups) > 1:
        raise AttnvizError("these heads look at different texts; choose heads of one kind of attention")
    [labels] = label_groups
    values = np.stack([head.keys for head in heads if head.keys is not None]).astype(np.float64)
    bars = np.reshape(bar_lengths(values.ravel().tolist()), values.shape).tolist()
    return listed(
        Column("key", [*labels, "sum"], align="<"),
        *(
            Column(head.name, [f"{amount:+.4f}" for amount in (*amounts, head.adds)], [*bars_of_head, None])
            for head, amounts, bars_of_head in zip(heads, values.tolist(), bars, strict=True)
        ),
    )


def _layer_panel(parts: LogitParts) -> Panel:
    """Returns a panel of the parts in layers: a row per layer, a column per head, and columns for MLPs and the like."""
    layer_parts = [part for part in parts.parts if part.layer is not None]
    layers = sorted({part.layer for part in layer_parts if part.layer is not None})
    # Heads come first, by number; parts without a head, such as MLPs, follow them.
    sorted_parts = sorted(layer_parts, key=lambda part: (part.head is None, part.head or 0))
    columns = list(dict.fromkeys(map(_column_heading, sorted_parts)))
    values = np.full((len(layers), len(columns)), math.nan, dtype=np.float32)
    for part in layer_parts:
        cell = layers.index(part.layer or 0), columns.index(_column_heading(part))
        values[cell] = part.adds if np.isnan(values[cell]) else values[cell] + part.adds
    axes = ("layers", list(map(str, layers))), ("heads", columns)
    return labelled_panel("by layer", values, *axes, quantity=_quantity(parts))


def _column_heading(part: LogitPart) -> str:
    """Returns the heading of a part's column: its name without the number of the layer."""
    return part.name.replace(f"{part.layer}.", "", 1)


def _key_panel(parts: LogitParts, heads: list[LogitPart]) -> Panel:
    """Returns a panel with a row per head and a column for each of the `MAX_DRAWN_KEYS` keys with the largest parts."""
    values = np.stack([head.keys for head in heads if head.keys is not None])
    labels = parts.labels_of(heads[0])
    keys = sorted(np.argsort(-np.abs(values).sum(axis=0), kind="stable")[:MAX_DRAWN_KEYS].tolist())
    axes = ("heads", [head.name for head in heads]), ("keys", [labels[key] for key in keys])
    return labelled_panel("by key", values[:, keys], *axes, quantity=_quantity(parts))


def _quantity(parts: LogitParts) -> Quantity:
    """Returns the quantity of the parts, named after the token of the logit."""
    return LOGIT.with_name(f"adds to the logit of {parts.label or parts.token!r}")


def _logit_caption(parts: LogitParts) -> str:
    """Returns a sentence on the logit, its largest part, and the largest head if that part is not a head."""
    largest = parts.sorted()[0]
    heads = [part for part in parts.sorted() if part.kind == "head"]
    largest_head = f", the largest head {heads[0].name} with {heads[0].adds:+.4f}" if largest.kind != "head" else ""
    last_label = (
        parts.key_labels[parts.position] if parts.position < len(parts.key_labels) else f"token {parts.position}"
    )
    return (
        f"The logit of {parts.label or parts.token!r} after {last_label!r} in {parts.model} is {parts.logit:.4f}; "
        f"its largest part is {largest.name} with {largest.adds:+.4f}{largest_head}."
    )


def _logit_remarks(parts: LogitParts) -> tuple[str, ...]:
    """Returns remarks on frozen norms, on how closely the sum agrees with the logit, and on a soft cap if there is
    one.
    """
    frozen = parts.frozen
    norms_before = f" and of {len(frozen) - 1} norms before it" if len(frozen) > 1 else ""
    attribution = (
        WITH_FROZEN_NORMS.format(norms=f"{frozen[0]}{norms_before}")
        if frozen
        else "Direct logit attribution: what each part adds by itself"
    )
    cause = "" if parts.difference <= EXACT_SUM else ", because the model computes in lower precision"
    return (
        f"{attribution}{NOT_INDIRECT}",
        f"The parts sum to the logit within {parts.difference:.0e}{cause}.",
        *(["The logit is the one before the model's soft cap."] if parts.capped else []),
        *silence_remarks(parts.silent_layers, (part.layer for part in parts.heads if part.layer is not None)),
        *parts.remarks,
    )


MAX_NEXT_HEADS = 2  # the number of heads named after the first of each type
MIN_NAMED_SCORE = 0.5  # the least score of a head that the caption names
SCORE = Quantity("score", ".2f")


def battery_report(types: "HeadTypes", options: ReportOptions) -> HeadsReport:
    """Builds the report of a battery: a list, or maps if a picture is drawn."""
    refuse_style(options.look, "a table of head types")
    # The best head of each type is named if its score is high and clearly above the control.
    scores, named_heads = types.scores, list[str]()
    for name in scores.names:
        best, column = scores.ranked_rows(name)[0], scores.column(name)
        if column[best] >= MIN_NAMED_SCORE and types.is_clear(name)[best]:
            named_heads.append(f"{name} {scores.rows[best].name} ({column[best]:.2f})")
    heads = ", ".join(named_heads) or f"no head has a score of {MIN_NAMED_SCORE} or more, clearly above its control"
    results = HeadResults(
        title=f"Known types of heads in {types.model}",
        caption=f"Known types of heads in {types.model}: {heads}.",
        remarks=_types_remarks(types),
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


def _types_remarks(types: "HeadTypes") -> tuple[str, ...]:
    """Returns remarks: the meaning, control and source of each score, and the types that were not tested."""
    from attnviz.battery.head_types import LEVEL

    meanings = "; ".join(
        f"{type.name}: {type.meaning} (control: {type.control}; {type.source})" for type in types.types
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in types.skipped.items():
        reasons.setdefault(reason, []).append(name)
    skipped_types = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return (
        f"Mean weight by type. {meanings[0].upper()}{meanings[1:]}.",
        "± is half of the 95 % interval of the mean over texts; “above control” counts heads whose score is a quarter "
        "larger than the mean control, and above the interval in which one more control would lie, at a level of "
        f"{LEVEL:.0%} for all heads together (Bonferroni).",
        *types.remarks,
        *([f"Not tested: {skipped_types}."] if skipped_types else []),
    )
