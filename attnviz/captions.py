"""What is said of a picture in words: its titles, its caption, and its remarks."""

from collections.abc import Sequence

import numpy as np

from attnviz.cells import HeadCells
from attnviz.errors import number_ranges
from attnviz.maps import LayerMaps, Recording
from attnviz.panels import PERCENT, WEIGHT, Panel

LARGEST_DIFFERENCE = 1e-3  # of weights @ values from the model's own output, beyond which it is a warning
MOST_NAMED = 6  # panels named one by one


def text_title(recording: Recording) -> str:
    """The recording's text, or texts, on one short line, or its model where there is no text."""
    from attnviz.tokens import visible_label

    texts = {maps.item: maps.query_tokens.text for maps in reversed(recording.maps)}
    words = " · ".join(" ".join(texts[item].split()) for item in sorted(texts))
    shown = " ".join(visible_label(word) for word in words.split(" "))
    return (shown if len(shown) <= 60 else f"{shown[:59].rstrip()}…") or recording.model


def head_name(maps: LayerMaps, head: int) -> str:
    """A head as it is written everywhere: ``layer.head``."""
    return f"{maps.layer}.{head}"


def model_name(recording: Recording) -> str:
    """The model as a caption says it: called untrained where it is."""
    return f"an untrained {recording.model}" if recording.untrained else recording.model


def head_title(recording: Recording, maps: LayerMaps, head: int) -> str:
    """What stands over a head's panel, such as ``head 0.3``."""
    return f"head {head_name(maps, head)}{which_maps(recording, maps)}"


def group_title(recording: Recording, maps: LayerMaps) -> str:
    """What an overview writes beside a row of heads, such as ``layer 2``."""
    return f"layer {maps.layer}{which_maps(recording, maps)}"


def which_maps(recording: Recording, maps: LayerMaps) -> str:
    """What tells these maps from others of the same layer: cross-attention, which text of a batch."""
    batch = len({maps.item for maps in recording.maps}) > 1
    alike = {
        other.module
        for other in recording.maps
        if (other.layer, other.kind, other.item) == (maps.layer, maps.kind, maps.item)
    }
    module = f", {maps.module}" if len(alike) > 1 else ""
    return (" cross" if maps.kind == "cross" else "") + (f", text {maps.item}" if batch else "") + module


def part_title(panels: Sequence[Panel]) -> str:
    """The panels of a part of a report, named."""
    titles = [panel.title for panel in panels]
    if len(titles) > MOST_NAMED:
        return f"{len(titles)} heads, {titles[0]} to {titles[-1]}"
    if len(titles) > 1 and all(title.startswith("head ") for title in titles):
        titles = [f"heads {titles[0][5:]}", *(title[5:] for title in titles[1:])]
    text = ", ".join(titles)
    return text[:1].upper() + text[1:]


def part_caption(panels: Sequence[Panel]) -> str:
    """The panels of a part of a report in one sentence."""
    spans = (f"{axis.edges[-1] - axis.edges[0]} {axis.name}" for axis in (panels[0].rows, panels[0].columns))
    return f"{part_title(panels)}: {' (rows) over '.join(spans)} (columns){strongest(panels)}."


def heads_caption(recording: Recording, heads: Sequence[HeadCells], panels: Sequence[Panel]) -> str:
    """Which attention is drawn, in one sentence."""
    first = heads[0]
    count = len({(one.maps.layer, one.head) for one in heads})
    which = f"head {head_name(first.maps, first.head)}" if count == 1 else f"{count} heads of {_layers_named(heads)}"
    spans = (f"{span.stop - span.start} {name}" for name, span in (("queries", first.queries), ("keys", first.keys)))
    return (
        f"Attention of {which} in {model_name(recording)}, {' (rows) over '.join(spans)} (columns){strongest(panels)}."
    )


def _layers_named(heads: Sequence[HeadCells]) -> str:
    layers = {one.maps.layer for one in heads}
    return f"layer{'s' if len(layers) > 1 else ''} {number_ranges(layers)}"


def strongest(panels: Sequence[Panel]) -> str:
    """The largest weight shown, in words."""
    weights = [panel for panel in panels if panel.quantity in (PERCENT, WEIGHT)]
    best = max(weights, key=lambda panel: panel.peak, default=None)
    if best is None or best.peak < 0:
        return ""
    row, column = np.unravel_index(np.nanargmax(np.where(best.visible, best.values, -1)), best.values.shape)
    pooled = best.rows.pooled or best.columns.pooled
    ends = [
        f"{'block at ' if pooled else ''}“{axis.labels[index]}”"
        for axis, index in ((best.rows, row), (best.columns, column))
    ]
    return f"; the largest weight is {PERCENT.text(best.peak)}, {best.title}, from {ends[0]} to {ends[1]}"


def panel_remarks(panels: Sequence[Panel]) -> tuple[str, ...]:
    """What was pooled and what is masked in these panels."""
    remarks = []
    pooled = next((panel for panel in panels if panel.rows.pooled or panel.columns.pooled), None)
    if pooled is not None:
        rows, columns = pooled.rows, pooled.columns
        tokens = f"{rows.edges[-1] - rows.edges[0]} x {columns.edges[-1] - columns.edges[0]} tokens"
        remarks.append(
            f"Pooled: {tokens} in {len(rows.labels)} x {len(columns.labels)} cells, each the mean of its block; "
            "--queries 10:40 --keys :20 shows a part exactly."
        )
    missing = sum(int(np.isnan(panel.values[panel.visible]).sum()) for panel in panels)
    if missing:
        remarks.append(f"NaN: {missing} cell{'s are' if missing > 1 else ' is'} no number, drawn in pink.")
    if not all(panel.visible.all() for panel in panels):
        remarks.append("Absent cells are masked: not allowed to look, which is not a weight of zero.")
    if not all(panel.visible.any(axis=1).all() for panel in panels):
        remarks.append("Rows that are absent as a whole see no key: all their weights are zero.")
    return tuple(remarks)


def cut_remarks(cells: HeadCells, panels: Sequence[Panel]) -> tuple[str, ...]:
    """What a table leaves out of the queries and keys chosen."""
    if not panels:
        return ()
    chosen, axes = (cells.queries, cells.keys), (panels[0].rows, panels[0].columns)
    cut = [
        f"{axis.name} {axis.edges[0]}:{axis.edges[-1]} of {span.start}:{span.stop}"
        for span, axis in zip(chosen, axes, strict=True)
        if axis.edges[-1] < span.stop
    ]
    advice = "--queries and --keys show others, -o numbers.csv holds all."
    return (f"Cut: {' and '.join(cut)}; {advice}",) if cut else ()


def recording_remarks(recording: Recording) -> tuple[str, ...]:
    """What the recording itself has to say, that its weights are untrained first."""
    untrained = f"Untrained: random weights from seed {recording.seed}; the pattern says nothing about language."
    return ((untrained,) if recording.untrained else ()) + recording.remarks + fidelity_remarks(recording)


def fidelity_remarks(recording: Recording) -> tuple[str, ...]:
    """How far the maps are from what the model itself computed, where that was measured; too far is a warning."""
    measured = {maps.fidelity: maps for maps in recording.maps if maps.fidelity is not None}
    if not measured:
        return ()
    worst = max(measured)
    if worst > LARGEST_DIFFERENCE and recording.settings.get("dtype", "float32") in ("float32", "float64"):
        return (
            f"Warning: in layer {measured[worst].layer} weights @ values differ by {worst:.1g} from the model's own "
            "attention output; these maps are not all of what it computed.",
        )
    within = f"within {worst:.0e}" if worst else "exactly"
    return (f"Checked: weights @ values equal the model's own attention output {within}.",)
