"""Builds the report of a logit's parts: a row per part, or maps of layers by parts and of heads by keys."""

import math

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.report.heads.found import Found, FoundReport
from attnviz.report.heads.head_columns import Column, labelled_panel, listed, share_of
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import LOGIT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import source_of

MAX_LISTED_PARTS = 16  # the most parts on a screen; a row with the sum of the others follows
MAX_DRAWN_HEADS = 12  # the most heads whose keys are drawn
MAX_DRAWN_KEYS = 40
NAMED_KEYS = 2  # keys that a head's row names
SURE = 1e-4  # the largest difference between sum and logit that needs no explanation
FROZEN = (
    "Direct logit attribution: what each part adds by itself, with the scale of {norms} frozen as it is on this text"
)
INDIRECT = (
    "; changes through later layers are not counted, but attnviz ablate measures them (Elhage et al. 2021; Wang et al. "
    "2023)."
)


def logit_report(parts: LogitParts, options: ReportOptions) -> FoundReport:
    """Builds the report of a logit's parts: a list, or maps of layers by parts and of heads by keys.

    Raises:
        AttnvizError: for a page, or if none of the selected heads exists.
    """
    refuse_style(options.look, "a sum of parts")
    chosen = _chosen(parts, options)
    heads = chosen or [part for part in parts.sorted() if part.kind == "head"]
    heads = [head for head in heads if parts.labels_of(head) == parts.labels_of(heads[0])]
    results = Found(
        title=" ".join(parts.title.split()) or parts.model,
        caption=_caption(parts),
        remarks=_remarks(parts),
        results=parts,
        summary=lambda: _of_keys(parts, chosen) if chosen else _of_parts(parts, options),
        panels=lambda: [_by_layer(parts), _by_key(parts, heads[:MAX_DRAWN_HEADS])],
        refusal="parts of a logit are drawn as one picture; use -o logit.png, or -o logit.csv for numbers",
        of_picture=_left_out(parts, heads),
        about={"logit": parts.as_json(), **source_of(parts.model, parts.title)},
    )
    return results.report(options)


def _chosen(parts: LogitParts, options: ReportOptions) -> list[LogitPart]:
    """Returns the heads that the user selected; empty if nothing was selected."""
    selection = options.selection
    if selection.chosen_layers is None and selection.heads is None:
        return []
    selected = [
        part
        for part in parts.heads
        if part.layer in (selection.chosen_layers or (part.layer,))
        and part.head in (selection.heads_of(part.layer or 0) or (part.head,))
    ]
    if not selected:
        heads = [part.name for part in parts.heads]
        raise AttnvizError(f"no such head adds to the logit; choose from {heads[0]} to {heads[-1]}")
    return selected


def _of_parts(parts: LogitParts, options: ReportOptions) -> Summary:
    ordered = parts.sorted()
    shown = ordered if options.all else ordered[:MAX_LISTED_PARTS]
    length = share_of([part.adds for part in ordered])
    rest = ordered[len(shown) :]
    summed = [LogitPart(f"{len(rest)} others", "other", sum(part.adds for part in rest))] if rest else []
    advice = options.look.worded(f"{option('all', True)} shows them")
    total = LogitPart("logit", "other", parts.logit)
    notes = {id(total): "the sum"} | {id(each): advice for each in summed}
    columns = [
        Column[LogitPart]("part", lambda part: part.name, align="<"),
        Column[LogitPart](
            "adds", lambda part: f"{part.adds:+.4f}", lambda part: None if id(part) in notes else length(part.adds)
        ),
        Column[LogitPart]("mostly from", lambda part: notes.get(id(part)) or _largest_keys(parts, part), align="<"),
    ]
    return listed([*shown, *summed, total], columns)


def _largest_keys(parts: LogitParts, part: LogitPart) -> str:
    """Returns the keys for which a head adds most, as words; "" for other parts."""
    if part.keys is None:
        return ""
    labels = parts.labels_of(part)
    order = np.argsort(-np.abs(part.keys), kind="stable")[:NAMED_KEYS]
    return ", ".join(f"{labels[key]} {part.keys[key]:+.2f}" for key in order.tolist())


def _of_keys(parts: LogitParts, heads: list[LogitPart]) -> Summary:
    """Returns a list with a row per key and a column per head."""
    groups = {parts.labels_of(head) for head in heads}
    if len(groups) > 1:
        raise AttnvizError("these heads look at different texts; choose heads of one kind of attention")
    [labels] = groups
    values = np.stack([head.keys for head in heads if head.keys is not None]).astype(np.float64)
    length = share_of(values.ravel().tolist())

    def column(head: LogitPart, added: Float64Array) -> Column[int]:
        return Column(
            head.name,
            lambda key: f"{added[key] if key < len(labels) else head.adds:+.4f}",
            lambda key: length(float(added[key])) if key < len(labels) else None,
        )

    named = Column[int]("key", lambda key: (*labels, "sum")[key], align="<")
    return listed(range(len(labels) + 1), [named, *map(column, heads, values)])


def _left_out(parts: LogitParts, heads: list[LogitPart]) -> tuple[str, ...]:
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
    within = [part for part in parts.parts if part.layer is not None]
    layers = sorted({part.layer for part in within if part.layer is not None})
    ordered = sorted(within, key=lambda part: (part.head is None, part.head or 0))
    columns = list(dict.fromkeys(map(_column, ordered)))
    values = np.full((len(layers), len(columns)), math.nan, dtype=np.float32)
    for part in within:
        at = layers.index(part.layer or 0), columns.index(_column(part))
        values[at] = part.adds if np.isnan(values[at]) else values[at] + part.adds
    named = ("layers", list(map(str, layers))), ("heads", columns)
    return labelled_panel("by layer", values, *named, quantity=_quantity(parts))


def _column(part: LogitPart) -> str:
    """Returns the heading of a part's column: its name without the layer, so that cross-attention has columns apart."""
    return part.name.replace(f"{part.layer}.", "", 1)


def _by_key(parts: LogitParts, heads: list[LogitPart]) -> Panel:
    values = np.stack([head.keys for head in heads if head.keys is not None])
    labels = parts.labels_of(heads[0])
    keys = sorted(np.argsort(-np.abs(values).sum(axis=0), kind="stable")[:MAX_DRAWN_KEYS].tolist())
    named = ("heads", [head.name for head in heads]), ("keys", [labels[key] for key in keys])
    return labelled_panel("by key", values[:, keys], *named, quantity=_quantity(parts))


def _quantity(parts: LogitParts) -> Quantity:
    return LOGIT.named(f"adds to the logit of {parts.label or parts.token!r}")


def _caption(parts: LogitParts) -> str:
    most = parts.sorted()[0]
    heads = [part for part in parts.sorted() if part.kind == "head"]
    head = f", the largest head is {heads[0].name} with {heads[0].adds:+.4f}" if most.kind != "head" else ""
    after = parts.key_labels[parts.position] if parts.position < len(parts.key_labels) else f"token {parts.position}"
    return (
        f"The parts of the logit of {parts.label or parts.token!r} after {after!r} in {parts.model}, "
        f"{parts.logit:.4f}: the largest is {most.name} with {most.adds:+.4f}{head}."
    )


def _remarks(parts: LogitParts) -> tuple[str, ...]:
    frozen = parts.frozen
    before = f" and of {len(frozen) - 1} norms before it" if len(frozen) > 1 else ""
    attribution = (
        FROZEN.format(norms=f"{frozen[0]}{before}")
        if frozen
        else "Direct logit attribution: what each part adds by itself"
    )
    agreement = f"The parts sum to the logit within {parts.difference:.0e}."
    return (
        f"{attribution}{INDIRECT}",
        agreement if parts.difference <= SURE else f"{agreement[:-1]}, because the model computes in lower precision.",
        *(["The logit is the one before the model's soft cap."] if parts.capped else []),
        *parts.remarks,
    )
