"""Builds the report of a logit's parts: a row per part, or maps of layers by parts and of heads by keys."""

import math

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.report.heads.lists import Column, HeadResults, HeadsReport, bar_lengths, labelled_panel, listed
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import LOGIT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import source_of
from attnviz.text.head_name import KnownHead

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
        caption=_caption(parts),
        remarks=_remarks(parts),
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
    selected_heads = [parts.heads[place] for place in selection.places_in(known, parts.silent_layers)]
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


def _caption(parts: LogitParts) -> str:
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


def _remarks(parts: LogitParts) -> tuple[str, ...]:
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
        *parts.remarks,
    )
