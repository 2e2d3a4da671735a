"""Builds the report of why a model predicts a token: sentences first, then the text shaded by what its tokens add.

Sentences name contributions and, beside them, what is lost without these parts. If both disagree, that comes first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import option, with_capital
from attnviz.effects.behaviour import Behaviour
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.effects.why import LEAST_LOSS, Check, Why
from attnviz.maps.recording import Recording, silence_remarks
from attnviz.media.text import Text
from attnviz.report.build import answered_page
from attnviz.report.heads.lists import Column, bar_lengths, listed, p_remarks, p_text, replacement_words
from attnviz.report.maps.rows import with_places_in
from attnviz.report.maps.text_rows import text_excerpts
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import LOGIT, Axis, Heading, Panel, token_axis
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadList, Summary, WhyAnswer
from attnviz.report.picture.scales import share_scales
from attnviz.report.picture.structure import quoted
from attnviz.report.routes import MAX_EDGES, MAX_LINES, route_graph
from attnviz.report.words.captions import numbered_token, quoted_token, source_of
from attnviz.text.tokens import Tokens

MAX_LISTED_PARTS = 8  # the most parts on a screen; a row with the sum of the others follows
MAX_NAMED_KEYS = 2  # keys that a head's row names
MAX_LISTED_NAMES = 2  # heads that a row of losses names; of more it has the number
MAX_NAMED_SOURCES = 3  # tokens that a sentence names
MAX_SHADED_TOKENS = 160  # of a text that is shaded whole on a screen; of a longer one, the tokens around the sources
MAX_SHADED_KEYS = 4  # of a longer text, around which its tokens are shaded
LEAST_PROBABILITY = 0.005  # of a candidate that a sentence names after the first
EXACT_SUM = 1e-4  # the largest residue that needs no explanation
KIND_WORDS = {
    "head": "heads", "mlp": "MLPs", "embedding": "the embedding", "bias": "biases", "other": "not attributed"
}  # fmt: skip


def why_report(
    why: Why, options: ReportOptions, recording: Recording | None = None
) -> DrawnReport | HeadList | ExactNumbers:
    """Builds the report of an answer: sentences, a shaded text and a table; for files of numbers all of it.

    A page, which needs the recording of the same text, has the answer before all heads.
    """
    sentences, remarks = why_sentences(why), why_remarks(why)
    title = options.look.title or " ".join(why.title.split()) or why.model
    if recording is not None:
        return answered_page(recording, options, WhyAnswer(why, sentences, leading=len(_doubts(why)) + 1), remarks)
    summary = _part_list(why, options)
    caption = " ".join(sentences)
    if not options.medium.draws_maps:
        return HeadList(title=title, caption=caption, remarks=remarks, results=why, summary=summary, look=options.look)
    is_screen = options.medium.lists_heads
    routes = None if why.routes is None else route_graph(why.routes, MAX_EDGES if is_screen else MAX_LINES)
    route_words = () if is_screen or routes is None else routes.sentences
    return DrawnReport(
        kind="text",
        title=title,
        caption=" ".join((caption, *route_words)),
        # A figure draws what the other sentences say.
        answer="\n".join(sentences if is_screen else sentences[: len(_doubts(why)) + 1]),
        remarks=remarks,
        panels=share_scales(source_panels(why), options.look),
        summary=summary if is_screen else None,
        charts=() if is_screen else (_sum_chart(why), *([_loss_chart(why)] if why.checks else [])),
        routes=routes,
        look=options.look,
        about={"why": why.as_json(), **source_of(why.model, why.title)},
    )


def why_sentences(why: Why) -> tuple[str, ...]:
    """Returns what the model predicts, what that is the sum of, what carries it, and what is lost without that.

    Where contributions and losses disagree, the first sentence says so.
    """
    target = why.target
    shown = [each for each in why.candidates if each.probability >= LEAST_PROBABILITY or each is why.candidates[0]]
    likely, *others = [f"{quoted_token(each.label)} {_percent(each.probability)}" for each in shown]
    then = f", then {', '.join(others)}" if others else ""
    prediction = f"After {numbered_token(why.tokens, why.position)} {why.model} predicts {likely}{then}."
    if target.token != why.candidates[0].token:
        prediction += f" Explained is {quoted_token(target.label)}, {_percent(why.probability)}."

    if target.versus is None:
        subject = f"The logit of {quoted_token(target.label)} is {target.logit:.2f}"
    else:
        pair = f"{quoted_token(target.label)} is {abs(target.logit):.2f} {'above' if target.logit >= 0 else 'below'}"
        subject = f"The logit of {pair} that of {quoted_token(target.versus_label)}"
    total = f"{subject}: {amounts_of_kinds(why.sums)}; the sum closes within {abs(why.residue):.0e}."
    return (
        *_doubts(why),
        prediction,
        total,
        *_carrier_sentences(why),
        *(_check_sentence(why, check) for check in why.checks),
    )


def amounts_of_kinds(sums: Mapping[str, float]) -> str:
    """Returns what all parts of each kind add, the largest first, such as ``heads +4.50, MLPs +1.50``."""
    amounts = sorted(sums.items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{KIND_WORDS[kind]} {amount:+.2f}" for kind, amount in amounts)


def _carrier_sentences(why: Why) -> list[str]:
    """Returns a sentence on the leading heads, by the tokens that each brings, and one on tokens through all heads."""
    groups: dict[tuple[tuple[int, ...], bool], list[LogitPart]] = {}
    for part in why.leading_heads:
        if part.keys is not None:
            largest, *others = np.argsort(-part.keys, kind="stable")[:MAX_NAMED_KEYS].tolist()
            origin = (largest,) if part.keys[largest] >= part.adds / 2 else (largest, *others)
            groups.setdefault((origin, part.is_cross), []).append(part)
    phrases = []
    for (origin, is_context), parts in groups.items():
        axis = why.context_tokens if is_context else why.tokens
        amounts = ", ".join(f"{part.adds:+.2f}" for part in parts)
        if axis is None or max(origin) >= len(axis):
            phrases.append(f"{_heads(parts)} {'add' if len(parts) > 1 else 'adds'} {amounts}")
            continue
        is_copy = len(origin) == 1 and axis.ids[origin[0]] == why.target.token >= 0 and not is_context
        verb = {True: "copy", False: "copies"} if is_copy else {True: "read", False: "reads"}
        tokens = " and ".join(numbered_token(axis, index) for index in origin)
        if any(sum(part.keys[index] for index in origin) < part.adds / 2 for part in parts if part.keys is not None):
            tokens = tokens.replace(" and ", ", ") + " and others"
        phrases.append(f"{_heads(parts)} {verb[len(parts) > 1]} {tokens}: {amounts}")
    sentences = []
    if phrases:
        first, *rest = phrases
        sentence = "; ".join([f"{first} of {why.target.logit:.2f}", *rest])
        sentences.append(f"{with_capital(sentence)}.")

    named = []
    for is_context, axis, sums in ((False, why.tokens, why.sources), (True, why.context_tokens, why.context_sources)):
        if axis is not None:
            is_sink = axis.special if is_context else why.is_sink
            named += [(float(adds), axis, index) for index, adds in enumerate(sums) if adds and not is_sink[index]]
    named.sort(key=lambda source: -abs(source[0]))
    if named:
        tokens = ", ".join(
            f"{numbered_token(axis, index)} {adds:+.2f}" for adds, axis, index in named[:MAX_NAMED_SOURCES]
        )
        sinks = np.flatnonzero(why.is_sink & (why.sources != 0))
        sink_phrase = ""
        if len(sinks):
            name = f"the sink {quoted_token(why.tokens.labels[sinks[0]])}" if len(sinks) == 1 else f"{len(sinks)} sinks"
            sink_phrase = f"; {name} {round(float(why.sources[sinks].sum()), 2) + 0.0:+.2f}"  # no negative zero
        sentences.append(f"Tokens add through all heads: {tokens}{sink_phrase}.")
    return sentences


def _check_sentence(why: Why, check: Check) -> str:
    """Returns what is lost without the checked parts, and without as many others at random."""
    target, change = quoted_token(why.target.label), ""
    if why.target.versus is None:
        measured = f"the log-probability of {target}"
        before, after = _percent(why.probability), _percent(why.probability * np.exp(-check.lost))
        change = "" if before == after else f" ({before} → {after})"
    else:
        measured = f"the lead of {target} over {quoted_token(why.target.versus_label)}"
    measured = measured if check is why.checks[0] else "it"
    verb = "falls" if check.lost >= 0 else "rises"
    sentence = f"{_removed(why, check)}, {measured} {verb} by {nats(abs(check.lost))} nats{change}"
    if len(check.controls):
        others, losses, draws = controls_of(check)
        return f"{sentence}; with {others} by {losses}{f' in {draws}' if draws else ''}."
    return f"{sentence}; the model has not {_others_of(check)} to compare with."


def controls_of(check: Check) -> tuple[str, str, str]:
    """Returns what was removed for comparison, the range of its losses, and the draws unless these were all sets."""
    count, removed = len(check.controls), "hidden" if check.kind == "source" else "removed"
    low, high = nats(check.controls.min()), nats(check.controls.max())
    losses = low if low == high else f"{low} to {high}"
    if check.is_exhaustive:
        return f"{_others_of(check)} {removed}", losses, ""
    draws = f"{count} draw{'s' if count > 1 else ''}, p = {p_text(check.p, count)}"
    return f"{_others_of(check)} {removed} at random", losses, draws


def control_name(check: Check) -> str:
    """Returns what a control of a check is called beside it, such as ``control: 4 other heads``."""
    return f"control: {_others_of(check)}"


def _others_of(check: Check) -> str:
    """Returns what each control is, such as ``4 other heads`` or ``the only other token``."""
    noun, size = "token" if check.kind == "source" else "head", len(check.names)
    if not check.is_exhaustive or not len(check.controls):
        return f"another {noun}" if size == 1 else f"{size} other {noun}s"
    if len(check.controls) == 1:
        return f"the only other {noun}" if size == 1 else f"the only {size} other {noun}s"
    return f"each other {noun}" if size == 1 else f"each other set of {size} {noun}s"


def _percent(probability: float) -> str:
    if probability < 0.001:
        return "<0.1%"
    return f"{probability:.1%}" if probability < 0.01 else f"{probability:.0%}"


def _doubts(why: Why) -> list[str]:
    """Returns a sentence for each check that disagrees with the contribution of its parts."""
    added = {"heads": [part.adds for part in why.leading_heads], "source": [each.adds for each in why.leading_sources]}
    sentences = []
    for check in why.checks:
        if check.exceeds_control or not max(added[check.kind], default=0.0) >= LEAST_LOSS:  # nothing could be lost
            continue
        is_one, is_source = len(check.names) == 1, check.kind == "source"
        names = quoted_token(check.names[0]) if is_source else listed_heads(check.names)
        names += f" and {len(check.names) - 1} more" if is_source and not is_one else ""
        action = f"{'hiding' if is_source else 'removing'} {'it' if is_one else 'them'}"
        if check.loses_nothing:
            change = f"loses nothing ({nats(check.lost)} nats)"
            if check.lost <= -LEAST_LOSS:
                change = f"gains {nats(-check.lost)} nats"
            verb = "adds" if is_one else "add"
            sentences.append(f"Contributions and checks disagree: {names} {verb} most, but {action} {change}.")
            continue
        largest = int(check.controls.argmax())
        other = "another choice"
        if check.drawn and is_source:
            other = f"hiding {numbered_token(why.axis(check.is_context), int(check.drawn[largest]))}"
        elif check.drawn:
            other = f"removing {check.drawn[largest]}"
        drawn = "" if check.is_exhaustive else ", drawn at random,"
        sentences.append(
            f"The prediction rests on more than {names}: {'it adds' if is_one else 'they add'} most, and {action} "
            f"loses {nats(check.lost)} nats, but {other}{drawn} loses {nats(check.controls[largest])}."
        )
    return sentences


def nats(loss: float) -> str:
    """Returns a loss with two decimals."""
    return f"{round(loss, 2) + 0.0:.2f}"  # no negative zero


def _removed(why: Why, check: Check) -> str:
    if check.kind == "source":
        more = f" and {len(check.names) - 1} more" if len(check.names) > 1 else ""
        is_self = check.source == why.position and not check.is_context
        place = "itself" if is_self else "the predicting token"
        return f"With {quoted_token(check.names[0])} ({check.source}){more} hidden from {place}"
    return f"Without {listed_heads(check.names)}"


def _heads(parts: Sequence[LogitPart]) -> str:
    return listed_heads([part.name for part in parts])


def listed_heads(names: Sequence[str]) -> str:
    """Returns ``head 1.0``, or ``heads 1.0, 1.1 and 2.3``."""
    *first, last = names
    return f"heads {', '.join(first)} and {last}" if first else f"head {last}"


def why_remarks(why: Why) -> tuple[str, ...]:
    """Returns remarks on what is frozen and what is not counted, on rounding, and on the draws of the controls."""
    target = why.target
    is_rounded = abs(why.residue) > EXACT_SUM
    drawn = [
        (check.name if check.kind == "heads" else quoted_token(check.names[0]), check.p, len(check.controls))
        for check in why.checks
        if check.drawn and not check.is_exhaustive
    ]
    return (
        frozen_remark(target.frozen, "this text"),
        *(["The model computes in lower precision, so the sum is not exact."] if is_rounded else []),
        *run_remarks(target, target.heads),
        *([f"The output of a removed head is replaced by {replacement_words(why.by, 1)}."] if why.checks else []),
        *p_remarks(drawn, "draws"),
        *why.remarks,
    )


def run_remarks(run: LogitParts | Behaviour, heads: Iterable[LogitPart]) -> list[str]:
    """Returns remarks on a soft cap, and on layers without attention."""
    capped = ["The logit is the one before the model's soft cap."] if run.capped else []
    return [*capped, *silence_remarks(run.silent_layers, (part.layer for part in heads if part.layer is not None))]


def frozen_remark(frozen: Sequence[str], text: str) -> str:
    """Returns the remark on what is frozen, the norm before the unembedding first."""
    norms = f" and the scale of {frozen[0]}" if frozen else ""
    more = f" and of {len(frozen) - 1} norm{'s' if len(frozen) > 2 else ''} before it" if len(frozen) > 1 else ""
    return (
        f"What a part adds directly, with patterns{norms}{more} as they are on {text} (Elhage et al. 2021). What it "
        "does through later parts is no part of the sum, but of the losses."
    )


def _part_list(why: Why, options: ReportOptions) -> Summary:
    """Returns a list with a row per part, the largest in size first, then the logit."""
    target = why.target
    sorted_parts = target.sorted()
    shown_parts = sorted_parts if options.all else sorted_parts[:MAX_LISTED_PARTS]
    other_parts = sorted_parts[len(shown_parts) :]
    rows = [(part.name, part.adds, _mostly_from(why, part)) for part in shown_parts]
    bars: list[float | None] = [*bar_lengths([part.adds for part in sorted_parts])[: len(shown_parts)]]
    if other_parts:
        advice = options.look.format_options(f"{option('all', True)} shows them")
        rows.append((f"{len(other_parts)} more", sum(part.adds for part in other_parts), advice))
    rows.append(("logit" if target.versus is None else "difference", target.logit, "the sum"))
    return listed(
        Column("part", [name for name, _, _ in rows], align="<"),
        Column("adds", [f"{adds:+.2f}" for _, adds, _ in rows], [*bars, *[None] * (len(rows) - len(bars))]),
        Column("mostly from", [origin for _, _, origin in rows], align="<"),
    )


def sum_rows(why: Why, heads: Sequence[LogitPart]) -> list[tuple[str, float]]:
    """Returns what the logit is the sum of beside some heads: the other heads, and each other kind of parts."""
    count = len(why.target.heads) - len(heads)
    others = why.sums.get("head", 0.0) - sum(part.adds for part in heads)
    rows = [(f"{count} other head{'s' if count > 1 else ''}", others)] if count else []
    rows += [
        (words.removeprefix("the "), why.sums[kind])
        for kind, words in KIND_WORDS.items()
        if kind != "head" and kind in why.sums
    ]
    return [*rows, ("rounding", why.residue)]


def _sum_chart(why: Why) -> Summary:
    """Returns the sum of the logit, with a row for each leading head."""
    target, heads = why.target, why.leading_heads
    subject = f"the logit of {quoted_token(target.label)}"
    if target.versus is not None:
        subject = f"the logit of {quoted_token(target.label)} less that of {quoted_token(target.versus_label)}"
    rows = [(f"head {part.name}", part.adds, _largest_origin(why, part)) for part in heads]
    rows += [(name, adds, "") for name, adds in sum_rows(why, heads) if name != "rounding" or abs(adds) > EXACT_SUM]
    bars = [*bar_lengths([adds for _, adds, _ in rows]), None]
    rows.append(("logit" if target.versus is None else "difference", target.logit, ""))
    table = listed(
        Column("part", [name for name, _, _ in rows], align="<"),
        Column("adds", [f"{adds:+.2f}" for _, adds, _ in rows], bars),
        Column("mostly from", [origin for _, _, origin in rows], align="<"),
    )
    return replace(table, title=f"What the model adds up: {subject}")


def _loss_chart(why: Why) -> Summary:
    """Returns what is lost without the checked parts, and under each what is lost most without one of its controls."""
    rows: list[tuple[str, str, float, str, bool]] = []
    for check in why.checks:
        names, count = check.names, len(check.controls)
        removed = f"without {listed_heads(names) if len(names) <= MAX_LISTED_NAMES else f'these {len(names)} heads'}"
        if check.kind == "source":
            removed = f"{quoted_token(names[0])}{f' and {len(names) - 1} more' if len(names) > 1 else ''} hidden"
        rows.append((removed, nats(check.lost), check.lost, "", False))
        if count:
            largest = float(check.controls.max())
            note = "" if check.is_exhaustive else f"p = {p_text(check.p, count)}"
            loss = f"{'at most ' * (count > 1)}{nats(largest)}"
            rows.append((control_name(check), loss, largest, note, True))
    labels, texts, losses, notes, controls = zip(*rows, strict=True)
    table = listed(
        Column("removed", labels, align="<"),
        Column("nats", texts, bar_lengths(losses)),
        Column("control", notes, align="<"),
    )
    measured = "log-probability" if why.target.versus is None else "difference"
    return replace(table, title=f"What is lost without it: nats of the {measured}", controls=controls)


def _largest_origin(why: Why, part: LogitPart) -> str:
    if part.keys is None:
        return ""
    key = int(np.abs(part.keys).argmax())
    return f"{part.keys[key]:+.2f} from {quoted(why.target.labels_of(part)[key])}"


def _mostly_from(why: Why, part: LogitPart) -> str:
    """Returns the keys from which a head adds or takes away most, with how much."""
    if part.keys is None:
        return ""
    labels, order = why.target.labels_of(part), np.argsort(-np.abs(part.keys), kind="stable")
    return ", ".join(f"{labels[key]} {part.keys[key]:+.2f}" for key in order[:MAX_NAMED_KEYS].tolist())


def source_panels(why: Why) -> list[Panel]:
    """Returns panels of one row with what each token adds: over the text, or over the pictures or the sound if any.

    Sinks have no shade. Of a long text only the parts around the largest sources are drawn. A picture or a sound says
    what it adds and, where the text is not drawn, what that adds.
    """
    axes = [(why.tokens, why.sources, why.is_sink)]
    if why.context_tokens is not None:
        axes.insert(0, (why.context_tokens, why.context_sources, why.context_tokens.special))
    panels: list[Panel] = []
    for tokens, sums, is_sink in axes:
        visible = ~is_sink
        for image in tokens.image_indices:
            over_image = with_places_in(tokens, image)
            on_image = float(sums[over_image.medium >= 0].sum())
            share = f": {on_image:+.2f} of {why.target.logit:.2f}; other tokens {why.placed - on_image:+.2f}"
            panels.append(
                _panel(why, over_image, sums, visible & (over_image.medium >= 0), slice(0, len(tokens)), share)
            )
        if tokens.image_indices:
            continue
        count = int(np.flatnonzero(sums).max(initial=-1)) + 1 or len(tokens)  # later tokens add nothing
        spans = [slice(0, count)]
        if count > MAX_SHADED_TOKENS and isinstance(tokens.canvas, Text):
            spans = [
                span for span, _ in text_excerpts(np.abs(sums * visible)[:count], slice(0, count), MAX_SHADED_KEYS)
            ]
        share = ""
        if not isinstance(tokens.canvas, Text):
            share = f": {sums.sum():+.2f} of {why.target.logit:.2f}; the text {why.placed - float(sums.sum()):+.2f}"
        panels += [_panel(why, tokens, sums, visible, span, share) for span in spans]
    is_text = [isinstance(panel.columns.canvas, Text) for panel in panels]
    return panels if all(is_text) else [panel for panel, text in zip(panels, is_text, strict=True) if not text]


def _panel(why: Why, tokens: Tokens, sums: Float64Array, visible: BoolArray, span: slice, share: str = "") -> Panel:
    count = span.stop - span.start
    target = quoted_token(why.target.label)
    if why.target.versus is not None:
        target = f"{target} over {quoted_token(why.target.versus_label)}"
    place = f", tokens {span.start} to {span.stop - 1} of {len(tokens)}" if count < len(tokens) and span.start else ""
    return Panel(
        heading=Heading(f"adds to {target} through all heads{place}{share}"),
        values=sums[None, span].astype(np.float32),
        visible=visible[None, span],
        rows=Axis("queries", ("",), (why.position, why.position + 1), canvas=tokens.canvas),
        columns=token_axis("keys", tokens, span, count, across=True),
        quantity=LOGIT,
        scale=ColorScale(0, 1),  # a placeholder
    )
