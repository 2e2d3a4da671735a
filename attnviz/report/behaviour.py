"""Builds the report of a behaviour: sentences first, then a table of parts, or a map of layers by heads.

Heads were chosen on one half of the prompts, and all numbers are of the other. If removing them costs no more than
removing others, the first sentence says so.
"""

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import option, with_capital
from attnviz.effects.behaviour import Behaviour
from attnviz.effects.controls import CONTROLS, LEVEL
from attnviz.effects.why import LEAST_LOSS, Check
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.report.heads.lists import (
    PICTURE_REMARKS,
    Column,
    bar_lengths,
    layers_by_heads,
    listed,
    number_texts,
    p_remarks,
    p_text,
    replacement_words,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import LOGIT, Quantity
from attnviz.report.picture.report import DrawnReport, HeadList, Summary
from attnviz.report.picture.scales import share_scales
from attnviz.report.why import KIND_WORDS, amounts_of_kinds, frozen_remark, listed_heads, nats, run_remarks
from attnviz.report.words.captions import source_of
from attnviz.text.head_name import HeadName

MAX_LISTED_HEADS = 8  # on a screen, beside the leading ones
ADDS, LEADS = "adds", "leads"  # the measures of the picture
COUNT = Quantity("share of the prompts", ".2f")


def behaviour_report(behaviour: Behaviour, options: ReportOptions) -> DrawnReport | HeadList:
    """Builds the report of a behaviour: sentences with a table, or maps of layers by heads for pictures and a page."""
    refuse_style(options.look, "a table of heads")
    sentences = tuple(map(options.look.format_options, behaviour_sentences(behaviour)))
    remarks = _remarks(behaviour, options.medium.lists_heads)
    title = options.look.title or f"{len(behaviour.prompts)} prompts, {behaviour.model}"
    if options.medium.lists_heads:
        return HeadList(
            title=title,
            caption=" ".join(sentences),
            answer="\n".join(sentences),
            remarks=remarks,
            results=behaviour,
            summary=_part_list(behaviour, options),
            look=options.look,
        )
    frame = _frame(behaviour)
    quantities = {ADDS: LOGIT, LEADS: COUNT}
    panels = [
        layers_by_heads(frame.rows, frame.column(name).tolist(), name, quantity)
        for name, quantity in quantities.items()
    ]
    return DrawnReport(
        kind="atlas",
        title=title,
        caption=" ".join(sentences),
        remarks=(*PICTURE_REMARKS, *(sentences if options.medium.draws_maps else ()), *remarks),
        panels=share_scales(panels, options.look),
        results=frame,
        look=options.look,
        about=source_of(behaviour.model, ""),
    )


def behaviour_sentences(behaviour: Behaviour) -> tuple[str, ...]:
    """Returns how often the model behaves so, which heads were chosen, and what is lost without them.

    The first sentence says if the model does not behave so, or if the losses do not tell the chosen heads from others.
    """
    prompts, count = behaviour.prompts, len(behaviour.held_out)
    successes, firsts = sum(prompt.succeeds for prompt in prompts), sum(prompt.is_first for prompt in prompts)
    logits = np.array([prompt.logit for prompt in prompts])
    mean = f"{logits.mean():.2f} ±{behaviour.margin(logits):.2f}"
    predicts = f"In {firsts} of {len(prompts)} prompts {behaviour.model} predicts the answer; its logit is {mean}"
    if behaviour.is_contrast:
        predicts = (
            f"In {successes} of {len(prompts)} prompts {behaviour.model} prefers the answer to the other token, and in "
            f"{firsts} it predicts it; their logits differ by {mean}"
        )
    doubts = _doubts(behaviour)
    if behaviour.removals and (tested := len(behaviour.removals[0].losses)) < count:
        doubts.append(
            f"The run was stopped: heads were removed on only the first {tested} of the {count} held-out prompts."
        )
    if 2 * successes <= len(prompts):
        prefers = "prefers the answer to the other token" if behaviour.is_contrast else "predicts the answer"
        shown = f"Only in {successes} of {len(prompts)} prompts {behaviour.model} {prefers}"
        doubts.insert(0, f"{shown}: it does not show this behaviour, so that no head carries it.")
    adding = amounts_of_kinds({kind: float(amounts.mean()) for kind, amounts in _kind_sums(behaviour).items()})
    total = f"{logits[behaviour.held_out].mean():.2f}"
    residue = max(prompt.residue for prompt in prompts)
    heads, halves = behaviour.leading_heads, f"on {len(behaviour.chosen_on)} prompts"
    held_out = f"on the other {count}, of which all that follows is said"
    if not heads:
        chosen = f"No head adds to it on average over the {len(behaviour.chosen_on)} prompts on which heads are chosen."
    else:
        column = {part.name: index for index, part in enumerate(behaviour.parts)}
        there = [f"{behaviour.parts[column[part.name]].adds:+.2f}" for part in heads]
        verb = "adds" if len(heads) == 1 else "add"
        names, amounts = listed_heads([part.name for part in heads]), [f"{part.adds:+.2f}" for part in heads]
        chosen = f"{with_capital(names)} {verb} most {halves} ({', '.join(amounts)}); {held_out}, "
        if behaviour.top:
            losses = ", ".join(nats(behaviour.lost_where_chosen[part.name]) for part in heads)
            alone, they = ("alone", "it") if len(heads) == 1 else ("each alone", "they")
            chosen = f"Most is lost {halves} without {names} ({losses} nats, {alone}); {held_out}, {they} {verb} "
        chosen += f"{', '.join(there)} of {total}."
    return (
        *doubts,
        f"{predicts} (mean, 95 % interval).",
        chosen,
        f"These {total} are the sum of {adding}; each prompt's sum closes within {residue:.0e}.",
        *_removal_sentences(behaviour),
    )


def _doubts(behaviour: Behaviour) -> list[str]:
    """Returns a sentence if the loss without the leading heads together is not beyond that of other sets."""
    if not behaviour.removals:
        return []
    check = behaviour.removals[0]
    heads = listed_heads(check.names)
    them, verb = ("them together", "add") if len(check.names) > 1 else ("it", "adds")
    controls, least_p = len(check.controls), 1 / (1 + len(check.controls))
    lost = f"{nats(check.lost)} ±{check.margin:.2f} nats"
    if check.loses_nothing:
        change = f"loses nothing ({lost})" if check.lost > -LEAST_LOSS else f"gains {nats(-check.lost)} nats"
        if behaviour.top:
            return [f"The two halves disagree: {heads} were chosen on one, but on the other removing {them} {change}."]
        return [f"Contributions and removals disagree: {heads} {verb} most, but removing {them} {change}."]
    if least_p > LEVEL:
        advice = "the model has no others" if check.is_exhaustive else f"use {option('controls', CONTROLS)} or more"
        return [
            f"Too few controls to tell whether {heads} {'carry' if len(check.names) > 1 else 'carries'} this: p is "
            f"{least_p:.2g} at least; {advice}."
        ]
    if check.exceeds_control:
        return []
    as_large = int((check.controls >= check.lost).sum())
    return [
        f"Other heads matter as much as {heads}: removing {them} loses {lost}, and {as_large} of {controls} "
        f"{'other' if check.is_exhaustive else 'random'} sets lose at least that (p = {p_text(check.p, controls)})."
    ]


def _removal_sentences(behaviour: Behaviour) -> list[str]:
    """Returns what is lost without the leading heads together, and without each of several alone."""
    if not behaviour.removals:
        return []
    together, *alone = behaviour.removals
    lead = "the lead of the answer" if behaviour.is_contrast else "the log-probability of the answer"
    verb = "falls" if together.lost >= 0 else "rises"
    removed = listed_heads(together.names) + (" together" if alone else "")
    sentence = f"Without {removed}, {lead} {verb} by {nats(abs(together.lost))} ±{together.margin:.2f} nats"
    controls = together.controls
    if len(controls):
        largest = int(controls.argmax())
        losses = nats(controls.mean())
        if len(controls) > 1:
            losses += f" on average and {nats(controls[largest])} at most, without {together.drawn[largest]}"
        drawn = "all that there are" if together.is_exhaustive else "drawn from the same or the nearest layers"
        size = len(together.names)
        noun = "other head" if size == 1 else "set"
        others = f"one {noun}" if len(controls) == 1 else f"each of {len(controls)} {noun}s"
        others += "" if size == 1 else f" of {size} other heads"
        sentence += f"; without {others}, {drawn}, by {losses}, p = {p_text(together.p, len(controls))}"
    sentences = [f"{sentence}."]
    if alone:
        losses = "; ".join(
            f"{each.name}: {nats(each.lost)} ±{each.margin:.2f}, p = {p_text(each.p, len(each.controls))}"
            for each in alone
        )
        beyond = [removal.name for removal in alone if removal.exceeds_control and removal.p <= LEVEL]
        verdict = f"only {' and '.join(beyond)} more than other single heads" if beyond else ""
        if len(beyond) == len(alone):
            verdict = "each more than other single heads"
        elif not beyond:
            verdict = "none more than other single heads"
        sentences.append(f"Without each alone it loses {losses}: {verdict}.")
    return sentences


def _kind_sums(behaviour: Behaviour) -> dict[str, Float64Array]:
    """Returns what all parts of a kind add in each held-out prompt, ``(prompts,)`` each."""
    sums: dict[str, Float64Array] = {}
    for index, part in enumerate(behaviour.parts):
        sums[part.kind] = sums.get(part.kind, 0.0) + behaviour.adds[behaviour.held_out, index]
    return sums


def _part_list(behaviour: Behaviour, options: ReportOptions) -> Summary:
    """Returns a list with a row per head, the largest mean in size first, then a row for each other kind of part."""
    held_out, count = behaviour.adds[behaviour.held_out], len(behaviour.held_out)
    leading = {part.name for part in behaviour.leading_heads}
    heads = [index for index, part in enumerate(behaviour.parts) if part.kind == "head"]
    heads.sort(key=lambda index: -abs(behaviour.parts[index].adds))
    shown = [
        index
        for place, index in enumerate(heads)
        if options.all or place < MAX_LISTED_HEADS or behaviour.parts[index].name in leading
    ]
    rest = [index for index in heads if index not in shown]
    rows: list[tuple[str, Float64Array, str, Check | None]] = []
    for index in shown:
        part = behaviour.parts[index]
        times = f"{behaviour.times_leading[index]}/{count}"
        removal = behaviour.removal_of(part)
        rows.append((part.name, held_out[:, index], times, removal))
    if rest:
        rows.append((f"{len(rest)} more", held_out[:, rest].sum(axis=1), "", None))
    kinds = {kind: amounts for kind, amounts in _kind_sums(behaviour).items() if kind != "head"}
    rows += [
        ("other" if kind == "other" else KIND_WORDS[kind].removeprefix("the "), amounts, "", None)
        for kind, amounts in kinds.items()
    ]
    rows.append(("difference" if behaviour.is_contrast else "logit", held_out.sum(axis=1), "", None))
    if behaviour.removals and len(behaviour.removals[0].names) > 1:
        together = [index for index in heads if behaviour.parts[index].name in leading]
        rows.append(("together", held_out[:, together].sum(axis=1), "", behaviour.removals[0]))

    means = [float(amounts.mean()) for _, amounts, _, _ in rows]
    bars: list[float | None] = [*bar_lengths(means[: len(shown)]), *[None] * (len(rows) - len(shown))]
    removals = [removal for _, _, _, removal in rows]
    columns = [
        Column("part", [name for name, _, _, _ in rows], align="<"),
        Column("adds", [f"{mean:+.2f}" for mean in means], bars),
        Column("±95%", [f"{behaviour.margin(amounts):.2f}" for _, amounts, _, _ in rows]),
        Column("leads", [times for _, _, times, _ in rows]),
    ]
    if behaviour.removals:
        largest = [np.nan if each is None else each.controls.max(initial=-np.inf) for each in removals]
        columns += [
            Column("loses", ["" if each is None else f"{each.lost:+.2f}" for each in removals]),
            Column("±95%", ["" if each is None else f"{each.margin:.2f}" for each in removals]),
            Column("others", number_texts(largest, ".2f")),
            Column("p", ["" if each is None else p_text(each.p, len(each.controls)) for each in removals]),
        ]
    return listed(*columns)


def _frame(behaviour: Behaviour) -> HeadFrame:
    """Returns the table of heads behind a picture: what each adds, and in how many prompts it is among the leading."""
    heads = [index for index, part in enumerate(behaviour.parts) if part.kind == "head"]
    rows = []
    for index in heads:
        part = behaviour.parts[index]
        assert part.layer is not None
        assert part.head is not None
        name = HeadName(part.layer, part.head, part.name.rpartition(" ")[0])
        rows.append(HeadRow((name,), "cross" if part.is_cross else "self", part.module, item=None))
    shares = behaviour.times_leading[heads] / len(behaviour.held_out)
    means = np.array([behaviour.parts[index].adds for index in heads])
    margins = np.stack([behaviour.margins[heads], np.full(len(heads), np.nan)], axis=1)
    measures = (
        Measure(ADDS, ADDS, "nats", "what the head adds directly to the logit of the answer, on average"),
        Measure(LEADS, LEADS, "share", "share of the prompts in which the head is among those that add most"),
    )
    values = np.stack([means, shares], axis=1)
    count = len(behaviour.held_out)
    return HeadFrame(rows=tuple(rows), measures=measures, values=values, margins=margins, texts=count)


def _remarks(behaviour: Behaviour, has_list: bool) -> tuple[str, ...]:
    """Returns remarks on what the columns mean, on what is frozen, and on the runs."""
    sets = {removal.name for removal in behaviour.removals} | {
        name for removal in behaviour.removals for name in removal.drawn
    }
    runs = f"The model read {len(behaviour.prompts)} prompts"
    if sets:
        count = len(behaviour.removals[0].losses)
        runs += f", and {count} of them again with all heads and without each of {len(sets)} sets of heads"
    meaning = (
        "Adds: mean over the prompts on which heads were not chosen; leads: in how many of them a head is among the "
        "few that add most."
    )
    if has_list:
        held_out_groups = len(set(behaviour.groups[behaviour.held_out].tolist()))
        noun = "groups of prompts" if held_out_groups < len(behaviour.held_out) else "prompts"
        meaning += f" ±: half of the 95 % interval of the mean (Student's t over {held_out_groups} {noun})."
    if has_list and behaviour.removals:
        replaced = replacement_words(behaviour.by, len(behaviour.prompts))
        meaning += (
            f" Loses: nats, if the output of a head is replaced by {replaced}; others: the largest mean loss without "
            "one of the other sets."
        )
    return (
        meaning,
        *p_remarks(
            [(removal.name, removal.p, len(removal.controls)) for removal in behaviour.removals if removal.drawn]
        ),
        frozen_remark(behaviour.frozen, "each prompt"),
        *run_remarks(behaviour, (part for part in behaviour.parts if part.kind == "head")),
        *behaviour.remarks,
        f"{runs}.",
    )
