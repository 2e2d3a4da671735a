"""What the parts of a model add to a logit, as a Report: a row a part, or layers by parts and heads by keys."""

import math

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.report.captions import source_of
from attnviz.report.colors import ColorScale
from attnviz.report.look import refuse_style
from attnviz.report.options import ReportOptions
from attnviz.report.panels import LOGIT, Axis, Panel
from attnviz.report.report import Heatmaps, ResultList, Summary
from attnviz.report.scales import share_scales

MAX_LISTED_PARTS = 16  # of a screen, which all others follow as one
MAX_DRAWN_HEADS = 12  # whose keys are drawn
MAX_DRAWN_KEYS = 40
NAMED_KEYS = 2  # of a head, in a row
SURE = 1e-4  # up to which a sum is said to be the logit
HELD = "Direct logit attribution: what each part adds by itself, the scale of {norms} held as it is on this text"
INDIRECT = (
    "; what it changes in later layers is not counted, which attnviz ablate measures (Elhage et al. 2021; Wang et al. "
    "2023)."
)


def logit_report(parts: LogitParts, options: ReportOptions) -> ResultList | Heatmaps:
    """The report of a logit's parts: a list, or where a picture is drawn layers by parts and heads by keys.

    Raises:
        AttnvizError: for a page, or heads that are not there.
    """
    refuse_style(options.look, "a sum of parts")
    chosen = _chosen(parts, options)
    if options.medium.lists_heads:
        return ResultList(
            title=options.look.title or " ".join(parts.title.split()) or parts.model,
            caption=_caption(parts),
            remarks=_remarks(parts),
            look=options.look,
            results=parts,
            summary=_of_keys(parts, chosen) if chosen else _of_parts(parts, options),
        )
    if not options.medium.draws_maps:
        raise AttnvizError("parts of a logit are one picture; -o logit.png, or -o logit.csv for numbers, works")
    return _pictures(parts, chosen, options)


def _chosen(parts: LogitParts, options: ReportOptions) -> list[LogitPart]:
    """The heads that were chosen; none where all are."""
    selection = options.selection
    if selection.chosen_layers is None and selection.heads is None:
        return []
    found = [
        part
        for part in parts.heads
        if part.layer in (selection.chosen_layers or (part.layer,))
        and part.head in (selection.heads_of(part.layer or 0) or (part.head,))
    ]
    if not found:
        heads = [part.name for part in parts.heads]
        raise AttnvizError(f"no such head adds to the logit; {heads[0]} to {heads[-1]} works")
    return found


def _of_parts(parts: LogitParts, options: ReportOptions) -> Summary:
    ordered = parts.sorted()
    shown = ordered if options.all else ordered[:MAX_LISTED_PARTS]
    rest, most = ordered[len(shown) :], max(abs(part.adds) for part in ordered) or 1.0
    rows = [(part.name, f"{part.adds:+.4f}", _from(parts, part)) for part in shown]
    if rest:
        advice = options.look.worded(f"{option('all', True)} shows them")
        rows.append((f"{len(rest)} others", f"{sum(part.adds for part in rest):+.4f}", advice))
    return Summary(
        header=("part", "adds", "most of it from"),
        rows=(*rows, ("logit", f"{parts.logit:+.4f}", "the sum")),
        bars=tuple((None, abs(part.adds) / most, None) for part in shown) + ((None, None, None),) * (bool(rest) + 1),
        align="<><",
    )


def _from(parts: LogitParts, part: LogitPart) -> str:
    """The keys of which a head adds most."""
    if part.keys is None:
        return ""
    labels = parts.labels_of(part)
    order = np.argsort(-np.abs(part.keys), kind="stable")[:NAMED_KEYS]
    return ", ".join(f"{labels[key]} {part.keys[key]:+.2f}" for key in order.tolist())


def _of_keys(parts: LogitParts, heads: list[LogitPart]) -> Summary:
    """A row a key, a column a head."""
    groups = {parts.labels_of(head) for head in heads}
    if len(groups) > 1:
        raise AttnvizError("these heads look at different texts; heads of one attention work")
    [labels] = groups
    values = np.stack([head.keys for head in heads if head.keys is not None])
    most = float(np.abs(values).max()) or 1.0
    return Summary(
        header=("key", *(head.name for head in heads)),
        rows=(
            *((label, *(f"{value:+.4f}" for value in values[:, key])) for key, label in enumerate(labels)),
            ("sum", *(f"{head.adds:+.4f}" for head in heads)),
        ),
        bars=(
            *((None, *(abs(float(value)) / most for value in values[:, key])) for key in range(len(labels))),
            (None,) * (len(heads) + 1),
        ),
        align="<" + ">" * len(heads),
    )


def _pictures(parts: LogitParts, chosen: list[LogitPart], options: ReportOptions) -> Heatmaps:
    """Layers by parts, and the heads that add most by their keys."""
    heads = chosen or [part for part in parts.sorted() if part.kind == "head"]
    heads = [head for head in heads if parts.labels_of(head) == parts.labels_of(heads[0])]
    drawn = heads[:MAX_DRAWN_HEADS]
    panels = [_by_layer(parts), _by_key(parts, drawn)]
    keys = len(parts.labels_of(drawn[0]))
    outside = ", ".join(f"{part.name} {part.adds:+.2f}" for part in parts.parts if part.layer is None)
    return Heatmaps(
        title=options.look.title or " ".join(parts.title.split()) or parts.model,
        panels=share_scales(panels, options.look),
        caption=_caption(parts),
        remarks=(
            *([f"Outside of layers: {outside}."] if outside else []),
            *([f"Keys of the {len(drawn)} heads that add or take most."] if len(drawn) < len(heads) else []),
            *([f"The {MAX_DRAWN_KEYS} of {keys} keys with most."] if keys > MAX_DRAWN_KEYS else []),
            *_remarks(parts),
        ),
        look=options.look,
        about={"logit": parts.as_json(), **source_of(parts.model, parts.title)},
    )


def _by_layer(parts: LogitParts) -> Panel:
    within = [part for part in parts.parts if part.layer is not None]
    layers = sorted({part.layer for part in within if part.layer is not None})
    columns = list(
        dict.fromkeys(_column(part) for part in sorted(within, key=lambda part: (part.head is None, part.head or 0)))
    )
    values = np.full((len(layers), len(columns)), math.nan, dtype=np.float32)
    for part in within:
        at = layers.index(part.layer or 0), columns.index(_column(part))
        values[at] = part.adds if np.isnan(values[at]) else values[at] + part.adds
    return _panel(parts, "by layer", values, "layers", tuple(map(str, layers)), "heads", tuple(columns))


def _column(part: LogitPart) -> str:
    """The column of a part within its layer: of the heads of cross-attention one of their own."""
    return part.name.replace(f"{part.layer}.", "", 1)


def _by_key(parts: LogitParts, heads: list[LogitPart]) -> Panel:
    values = np.stack([head.keys for head in heads if head.keys is not None])
    labels = parts.labels_of(heads[0])
    keys = sorted(np.argsort(-np.abs(values).sum(axis=0), kind="stable")[:MAX_DRAWN_KEYS].tolist())
    names = tuple(head.name for head in heads)
    return _panel(parts, "by key", values[:, keys], "heads", names, "keys", tuple(labels[key] for key in keys))


def _panel(
    parts: LogitParts,
    title: str,
    values: FloatArray,
    rows: str,
    row_labels: tuple[str, ...],
    columns: str,
    column_labels: tuple[str, ...],
) -> Panel:
    return Panel(
        title=title,
        values=values,
        visible=~np.isnan(values),
        rows=Axis(name=rows, labels=row_labels, edges=tuple(range(len(row_labels) + 1))),
        columns=Axis(name=columns, labels=column_labels, edges=tuple(range(len(column_labels) + 1))),
        quantity=LOGIT.named(f"adds to the logit of {parts.label or parts.token!r}"),
        scale=ColorScale(0, 1),
    )


def _caption(parts: LogitParts) -> str:
    most = parts.sorted()[0]
    heads = [part for part in parts.sorted() if part.kind == "head"]
    head = f"; of the heads most by {heads[0].name}: {heads[0].adds:+.4f}" if most.kind != "head" else ""
    after = parts.key_labels[parts.position] if parts.position < len(parts.key_labels) else f"token {parts.position}"
    return (
        f"What adds to the logit of {parts.label or parts.token!r} after {after!r} in {parts.model}, "
        f"{parts.logit:.4f}: most by {most.name}: {most.adds:+.4f}{head}."
    )


def _remarks(parts: LogitParts) -> tuple[str, ...]:
    frozen = parts.frozen
    before = f" and of {len(frozen) - 1} norms before it" if len(frozen) > 1 else ""
    held = (
        HELD.format(norms=f"{frozen[0]}{before}")
        if frozen
        else "Direct logit attribution: what each part adds by itself"
    )
    apart = f"The parts sum to the logit to {parts.difference:.0e}."
    return (
        f"{held}{INDIRECT}",
        apart if parts.difference <= SURE else f"{apart[:-1]}, since the model computes in fewer digits.",
        *(["The logit is that before the model's soft cap."] if parts.capped else []),
        *parts.remarks,
    )
