"""Builds the report of a logit's parts: a row per part, or maps of layers by parts and of heads by keys."""

import math

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.report.heads.head_columns import Column, bar_length, labelled_panel, list_summary
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import LOGIT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import source_of

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
    """Builds the report of a logit's parts: a list, or maps of layers by parts and of heads by keys.

    Raises:
        AttnvizError: for a page, if none of the selected heads exists, or if a list has heads over different texts.
    """
    refuse_style(options.look, "a sum of parts")
    selected_heads = _selected_heads(parts, options)
    heads = selected_heads or [part for part in parts.sorted() if part.kind == "head"]
    heads = [head for head in heads if parts.labels_of(head) == parts.labels_of(heads[0])]
    results = HeadResults(
        title=" ".join(parts.title.split()) or parts.model,
        caption=_caption(parts),
        remarks=_remarks(parts),
        results=parts,
        summary=lambda: _key_list(parts, selected_heads) if selected_heads else _part_list(parts, options),
        panels=lambda: [_by_layer(parts), _by_key(parts, heads[:MAX_DRAWN_HEADS])],
        refusal="parts of a logit are drawn as one picture; use -o logit.png, or -o logit.csv for numbers",
        picture_remarks=_picture_remarks(parts, heads),
        about={"logit": parts.as_json(), **source_of(parts.model, parts.title)},
    )
    return results.report(options)


def _selected_heads(parts: LogitParts, options: ReportOptions) -> list[LogitPart]:
    """Returns the heads that the user selected; empty without a selection, refused if no head matches it."""
    selection = options.selection
    if selection.chosen_layers is None and selection.heads is None:
        return []

    def is_selected(part: LogitPart) -> bool:
        """True if the selection names the part's layer, or no layer, and its head, or no head."""
        layers, heads = selection.chosen_layers, selection.heads_of(part.layer or 0)
        return (not layers or part.layer in layers) and (not heads or part.head in heads)

    selected_heads = [part for part in parts.heads if is_selected(part)]
    if not selected_heads:
        heads = [part.name for part in parts.heads]
        raise AttnvizError(f"none of the chosen heads adds to the logit; choose from {heads[0]} to {heads[-1]}")
    return selected_heads


def _part_list(parts: LogitParts, options: ReportOptions) -> Summary:
    """Returns a list with a row per part, the largest first; then the sum of those not listed, and the logit."""
    sorted_parts = parts.sorted()
    shown_parts = sorted_parts if options.all else sorted_parts[:MAX_LISTED_PARTS]
    bar = bar_length([part.adds for part in sorted_parts])
    other_parts = sorted_parts[len(shown_parts) :]
    sum_of_others = (
        [LogitPart(f"{len(other_parts)} others", "other", sum(part.adds for part in other_parts))]
        if other_parts
        else []
    )
    advice = options.look.format_options(f"{option('all', True)} shows them")
    total = LogitPart("logit", "other", parts.logit)
    notes = {id(total): "the sum"} | {id(others): advice for others in sum_of_others}
    columns = [
        Column[LogitPart]("part", lambda part: part.name, align="<"),
        Column[LogitPart](
            "adds", lambda part: f"{part.adds:+.4f}", lambda part: None if id(part) in notes else bar(part.adds)
        ),
        Column[LogitPart]("mostly from", lambda part: notes.get(id(part)) or _largest_keys(parts, part), align="<"),
    ]
    return list_summary([*shown_parts, *sum_of_others, total], columns)


def _largest_keys(parts: LogitParts, part: LogitPart) -> str:
    """Returns the keys for which a head adds or takes away most, with how much, as text; "" for other parts."""
    if part.keys is None:
        return ""
    labels = parts.labels_of(part)
    order = np.argsort(-np.abs(part.keys), kind="stable")[:MAX_NAMED_KEYS]
    return ", ".join(f"{labels[key]} {part.keys[key]:+.2f}" for key in order.tolist())


def _key_list(parts: LogitParts, heads: list[LogitPart]) -> Summary:
    """Returns a list with a row per key, then the sum, and a column per head; refuses heads over different keys."""
    groups = {parts.labels_of(head) for head in heads}
    if len(groups) > 1:
        raise AttnvizError("these heads look at different texts; choose heads of one kind of attention")
    [labels] = groups
    values = np.stack([head.keys for head in heads if head.keys is not None]).astype(np.float64)
    bar = bar_length(values.ravel().tolist())

    def column(head: LogitPart, amounts: Float64Array) -> Column[int]:
        """Returns the column of a head: what each key adds, and in the row after the last key their sum."""
        return Column(
            head.name,
            lambda key: f"{amounts[key] if key < len(labels) else head.adds:+.4f}",
            lambda key: bar(float(amounts[key])) if key < len(labels) else None,
        )

    key_column = Column[int]("key", lambda key: labels[key] if key < len(labels) else "sum", align="<")
    return list_summary(range(len(labels) + 1), [key_column, *map(column, heads, values)])


def _picture_remarks(parts: LogitParts, heads: list[LogitPart]) -> tuple[str, ...]:
    """Returns remarks on the parts, heads and keys that the picture leaves out."""
    outside = ", ".join(f"{part.name} {part.adds:+.2f}" for part in parts.parts if part.layer is None)
    keys = len(parts.labels_of(heads[0])) if heads else 0
    return (
        *([f"Outside of layers: {outside}."] if outside else []),
        *(
            [f"Keys are drawn for the {MAX_DRAWN_HEADS} heads with the largest parts."]
            if len(heads) > MAX_DRAWN_HEADS
            else []
        ),
        *([f"Of {keys} keys, the {MAX_DRAWN_KEYS} with the largest parts are drawn."] if keys > MAX_DRAWN_KEYS else []),
    )


def _by_layer(parts: LogitParts) -> Panel:
    """Returns a panel of the parts in layers: a row per layer, a column per head, and columns for MLPs and the like.

    Parts that share a cell are summed; a layer without a part has a blank cell.
    """
    in_layers = [part for part in parts.parts if part.layer is not None]
    layers = sorted({part.layer for part in in_layers if part.layer is not None})
    # Heads come first, by number; parts without a head, as MLPs, follow them.
    sorted_parts = sorted(in_layers, key=lambda part: (part.head is None, part.head or 0))
    columns = list(dict.fromkeys(map(_column, sorted_parts)))
    values = np.full((len(layers), len(columns)), math.nan, dtype=np.float32)
    for part in in_layers:
        cell = layers.index(part.layer or 0), columns.index(_column(part))
        values[cell] = part.adds if np.isnan(values[cell]) else values[cell] + part.adds
    axes = ("layers", list(map(str, layers))), ("heads", columns)
    return labelled_panel("by layer", values, *axes, quantity=_quantity(parts))


def _column(part: LogitPart) -> str:
    """Returns the heading of a part's column: its name without the number of the layer."""
    return part.name.replace(f"{part.layer}.", "", 1)


def _by_key(parts: LogitParts, heads: list[LogitPart]) -> Panel:
    """Returns a panel of heads by keys, at most `MAX_DRAWN_KEYS`: those with the largest sums of absolute parts."""
    values = np.stack([head.keys for head in heads if head.keys is not None])
    labels = parts.labels_of(heads[0])
    keys = sorted(np.argsort(-np.abs(values).sum(axis=0), kind="stable")[:MAX_DRAWN_KEYS].tolist())
    axes = ("head", [head.name for head in heads]), ("keys", [labels[key] for key in keys])
    return labelled_panel("by key", values[:, keys], *axes, quantity=_quantity(parts))


def _quantity(parts: LogitParts) -> Quantity:
    """Returns the quantity of the parts, named after the token of the logit."""
    return LOGIT.with_name(f"adds to the logit of {parts.label or parts.token!r}")


def _caption(parts: LogitParts) -> str:
    """Returns a sentence on the logit, its largest part, and the largest head if another part is larger."""
    largest = parts.sorted()[0]
    heads = [part for part in parts.sorted() if part.kind == "head"]
    largest_head = f", the largest head is {heads[0].name} with {heads[0].adds:+.4f}" if largest.kind != "head" else ""
    last_label = (
        parts.key_labels[parts.position] if parts.position < len(parts.key_labels) else f"token {parts.position}"
    )
    return (
        f"The parts of the logit of {parts.label or parts.token!r} after {last_label!r} in {parts.model}, "
        f"{parts.logit:.4f}: the largest is {largest.name} with {largest.adds:+.4f}{largest_head}."
    )


def _remarks(parts: LogitParts) -> tuple[str, ...]:
    """Returns remarks on frozen norms, on how closely the sum agrees with the logit, and on a soft cap."""
    frozen = parts.frozen
    norms_before = f" and of {len(frozen) - 1} norms before it" if len(frozen) > 1 else ""
    attribution = (
        WITH_FROZEN_NORMS.format(norms=f"{frozen[0]}{norms_before}")
        if frozen
        else "Direct logit attribution: what each part adds by itself"
    )
    agreement = f"The parts sum to the logit within {parts.difference:.0e}."
    return (
        f"{attribution}{NOT_INDIRECT}",
        agreement
        if parts.difference <= EXACT_SUM
        else f"{agreement[:-1]}, because the model computes in lower precision.",
        *(["The logit is the one before the model's soft cap."] if parts.capped else []),
        *parts.remarks,
    )
