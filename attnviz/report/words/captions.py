"""What is said of a picture in words: its titles, its caption, and its remarks."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.printable import printable_line
from attnviz.maps.heads import ChosenHead, tokens_of
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import CONTRIBUTION, NOTE, PERCENT, WEIGHT, Panel
from attnviz.report.picture.report import Arcs, DrawnReport, ShadedText
from attnviz.text.named_groups import NAMES, plural

if TYPE_CHECKING:
    from attnviz.text.tokens import Tokens

MAX_OUTPUT_DIFFERENCE = 1e-3  # of weights @ values from the model's own output, beyond which it is a warning
MAX_NAMED_PANELS = 6  # one by one
MAX_TITLE_CHARACTERS = 200  # characters; each medium cuts it to its own room
MAX_READ_CHARACTERS = 4 * MAX_TITLE_CHARACTERS  # of each text, for a title
MAX_TOKEN_CHARACTERS = 60  # characters of a token in a sentence
MAP_SIDES, ARC_SIDES = ("rows", "columns"), ("left", "right")  # where queries and keys stand
SINGULAR = {"queries": "query"}
Notes = Mapping[tuple[str, int, str, int, int], str]  # what is known of heads, by their keys
MASKED = "Blank cells are masked: the query cannot see that key."
HATCHED = MASKED.replace("Blank", "Hatched")  # as a figure draws them
POOLED = {"mean": "the mean", "max": "the largest weight"}


def text_title(recording: Recording) -> str:
    """The recording's text, or texts, on one line; its tokens where they alone are known, or else its model."""
    from attnviz.text.tokens import start_of

    texts = {maps.item: _written(tokens_of(maps).query_tokens) for maps in reversed(recording.maps)}
    first = sorted(texts)[:MAX_TITLE_CHARACTERS]
    words = " · ".join(filter(None, (" ".join(texts[item].lstrip()[:MAX_READ_CHARACTERS].split()) for item in first)))
    return start_of(words, MAX_TITLE_CHARACTERS) or recording.model


def _written(tokens: "Tokens") -> str:
    """The text, or the labels of tokens that have none; nothing where these are no more than positions."""
    labels = tokens.labels[:MAX_READ_CHARACTERS]
    if tokens.text or all(label.endswith(str(place)) for place, label in enumerate(labels)):
        return tokens.text
    named = (label for label, special in zip(labels, tokens.special.tolist(), strict=False) if not special)
    return " ".join(named).replace(" ##", "")  # a piece of a word


def source_line(report: DrawnReport) -> str:
    """The model of a picture, and its text where the title is another: what a picture alone must say of itself."""
    source = report.about.get("recording") or report.about.get("recording_a")
    if not source:
        return ""
    text = " ".join(str(source["text"]).split())
    model = str(source["model"])
    named = f"untrained {re.sub('^(an?|the) ', '', model)}" if source["untrained"] else model
    shown = text if len(text) <= MAX_TITLE_CHARACTERS else f"{text[: MAX_TITLE_CHARACTERS - 1].rstrip()}…"
    titled = not shown or report.title in (shown, model) or report.look.title is None
    return printable_line(f"Model: {named}." + ("" if titled else f" Text: {shown}"))


def source_of(model: str, text: str) -> dict[str, object]:
    """What ``source_line`` reads of a report that no recording is drawn in, but what was computed of a text."""
    return {"recording": {"model": model, "text": text, "untrained": False}}


def report_title(recording: Recording, look: Look) -> str:
    """The heading of a report: as the look says, else the text."""
    return look.title or text_title(recording)


def model_name(recording: Recording) -> str:
    """The model as a caption says it: called untrained where it is."""
    return f"an untrained {re.sub('^(an?|the) ', '', recording.model)}" if recording.untrained else recording.model


def head_title(recording: Recording, head: ChosenHead, notes: Notes | None = None) -> str:
    """What stands over a head's panel, such as ``head 0.3``, and what is known of it: ``previous token 0.98``."""
    note = (notes or {}).get(head.key, "")
    return f"head {head.name}{which_maps(recording, head.maps)}" + (f"{NOTE}{note}" if note else "")


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
    return (
        (" cross" if maps.kind == "cross" and not _all_cross(recording) else "")
        + (f", text {maps.item}" if batch else "")
        + module
    )


def _all_cross(recording: Recording) -> bool:
    return all(maps.kind == "cross" for maps in recording.maps)


def part_title(report: DrawnReport) -> str:
    """The panels of a part of a report, named; several texts by their heads alone."""
    by_head = isinstance(report, ShadedText) and len(report.panels) > 1
    titles = list(dict.fromkeys(panel.group if by_head else panel.name for panel in report.panels))
    if len(titles) > MAX_NAMED_PANELS:
        return f"{len(titles)} heads, {titles[0]} to {titles[-1]}"
    if len(titles) > 1 and all(title.startswith("head ") for title in titles):
        titles = [f"heads {titles[0][5:]}", *(title[5:] for title in titles[1:])]
    elif len(titles) > 1 and len({title.partition(" ")[0] for title in titles}) == 1:
        head, _, first = titles[0].partition(" ")
        titles = [f"head {head}: {first}", *(title.removeprefix(f"{head} ") for title in titles[1:])]
    text = ", ".join(titles)
    return text[:1].upper() + text[1:]


def part_caption(report: DrawnReport) -> str:
    """The panels of a part of a report in one sentence."""
    match report:
        case ShadedText(panels=panels):
            return f"{part_title(report)}{strongest_key(panels)}."
        case Arcs():
            sides = ARC_SIDES
        case _:
            sides = MAP_SIDES
    rows, columns = (
        f"{counted(axis.edges[-1] - axis.edges[0], axis.name)} ({side})"
        for axis, side in zip((report.panels[0].rows, report.panels[0].columns), sides, strict=True)
    )
    return f"{part_title(report)}: {rows} over {columns}{strongest(report.panels)}."


def heads_caption(
    recording: Recording,
    heads: Sequence[ChosenHead],
    panels: Sequence[Panel],
    sides: tuple[str, str] = MAP_SIDES,
) -> str:
    """Which attention is drawn, in one sentence."""
    which = heads_named(heads)
    if not which.startswith("head "):
        which = f"{which} of {_layers_named(heads)}"
    kind = quantity_drawn(heads[0].maps, "Cross-attention" if _all_cross(recording) else "Attention")
    queries = _spans_counted([one.queries for one in heads], "queries")
    keys = _spans_counted([one.keys for one in heads], "keys")
    spans = f"{queries} ({sides[0]}) over {keys} ({sides[1]})"
    return f"{kind} of {which} in {model_name(recording)}{for_texts(heads)}, {spans}{strongest(panels)}."


def quantity_drawn(maps: LayerMaps, attention: str = "Attention") -> str:
    """What a caption says is drawn: attention, or what it moves."""
    return attention if maps.quantity == "weight" else f"Contributions in {attention.lower()}"


def heads_named(heads: Sequence[ChosenHead]) -> str:
    """A head by its name, or how many heads of the model these are: one over several texts counts once."""
    count = len({(one.maps.layer, one.maps.kind, one.maps.module, one.head) for one in heads})
    return f"{count} heads" if count > 1 else f"head {heads[0].name}"


def for_texts(heads: Sequence[ChosenHead]) -> str:
    """For how many texts of a batch, where it is more than one."""
    count = len({one.maps.item for one in heads})
    return f" for {count} texts" if count > 1 else ""


def _spans_counted(spans: Sequence[slice], name: str) -> str:
    """How many tokens, or at most how many where they are not as many in all spans."""
    lengths = {span.stop - span.start for span in spans}
    return f"{'up to ' if len(lengths) > 1 else ''}{counted(max(lengths), name)}"


def counted(count: int, name: str) -> str:
    """So many of an axis, given by its name: ``5 queries``, or ``1 query``."""
    return f"{count} {name}" if count != 1 else f"1 {SINGULAR.get(name, name[:-1])}"


def _layers_named(heads: Sequence[ChosenHead]) -> str:
    layers = {one.maps.layer for one in heads}
    return f"layer{'s' if len(layers) > 1 else ''} {number_ranges(layers)}"


def strongest(panels: Sequence[Panel]) -> str:
    """The largest weight shown, in words."""
    weights = [panel for panel in panels if panel.quantity in (PERCENT, WEIGHT, CONTRIBUTION)]
    weights = [panel for panel in weights if panel.has_choices] or weights
    best = max(weights, key=lambda panel: panel.peak, default=None)
    if best is None or best.peak < 0:
        return ""
    row, column = np.unravel_index(np.nanargmax(np.where(best.telling, best.values, -1)), best.values.shape)
    most, name = _level_text(best), f"head {best.name}" if best.group else best.name
    what = "contribution" if best.quantity is CONTRIBUTION else "weight"
    if not best.pooled:
        ends = f"from {quoted(best.rows.labels[row])} to {quoted(best.columns.labels[column])}"
        return f"; the largest {what} is {most}, {name}, {ends}"
    which = f"largest {what}" if best.pool == "max" else "largest mean of a block"
    place = f"around query {best.rows.middle(int(row))} and key {best.columns.middle(int(column))}"
    return f"; the {which} is {most}, {name}, {place}"


def strongest_key(panels: Sequence[Panel]) -> str:
    """The largest weight of a query's row in any of these heads, in words."""
    best = max(panels, key=lambda panel: panel.peak)
    if best.peak < 0:
        return ""
    column = int(np.nanargmax(np.where(best.telling, best.values, -1)[0]))
    head = f"{best.group.partition(NOTE)[0]}, " if len({panel.group for panel in panels}) > 1 else ""
    key = f"{quoted(best.columns.labels[column])} ({best.columns.edges[column]})"
    what = "contribution" if best.quantity is CONTRIBUTION else "weight"
    return f"; the largest {what} is {_level_text(best)}, {head}to {key}"


def _level_text(panel: Panel) -> str:
    """The largest number of a panel of weights or contributions."""
    return (panel.quantity if panel.quantity is CONTRIBUTION else PERCENT).text(panel.peak)


def quoted(label: str) -> str:
    """A token as a sentence names it, cut where it is very long."""
    return f"“{label if len(label) <= MAX_TOKEN_CHARACTERS else f'{label[: MAX_TOKEN_CHARACTERS - 1]}…'}”"


def panel_remarks(panels: Sequence[Panel]) -> tuple[str, ...]:
    """What was pooled and what is masked in these panels."""
    remarks = []
    pooled = next((panel for panel in panels if panel.pooled), None)
    if pooled is not None:
        rows, columns = pooled.rows, pooled.columns
        tokens = f"{rows.edges[-1] - rows.edges[0]} x {columns.edges[-1] - columns.edges[0]} {pooled.units}"
        cells = f"{len(rows.labels)} x {len(columns.labels)} cells"
        chosen = f"{option('queries', '10:40')} {option('keys', ':20')}"
        part = f"; {chosen} shows a part exactly" if pooled.zooms else ""
        remarks.append(f"Pooled: {tokens} in {cells}, each {POOLED[pooled.pool]} of its block{part}.")
    missing = sum(int(np.isnan(panel.values[panel.visible]).sum()) for panel in panels)
    if missing:
        cells = "cells are not numbers" if missing > 1 else "cell is not a number"
        remarks.append(f"NaN: {missing} {cells}, drawn pink (as ? without colour).")
    if not all(panel.visible.all() for panel in panels):
        remarks.append(MASKED)
    if not all(panel.visible.any(axis=1).all() for panel in panels):
        remarks.append("Blank rows see no key: all their weights are zero.")
    return tuple(remarks)


def mark_remarks(mark: str | None, panels: Sequence[Panel]) -> tuple[str, ...]:
    """What the axes are labelled by, where it is not tokens.

    Raises:
        AttnvizError: if there is no such landmark.
    """
    if mark is None or not panels:
        return ()
    count = max(len(axis.marks) for panel in panels for axis in (panel.rows, panel.columns))
    if not count:
        given = f"{option('mark')} {mark!r}"
        raise AttnvizError(f"{given} matches nothing in the text shown; try lines, paragraphs or '^Chapter .*'")
    return (
        f"Labels: {count} {plural(mark) if plural(mark) in NAMES else f'matches of {mark}'}, each at its first token.",
    )


def cut_remarks(head: ChosenHead, panels: Sequence[Panel]) -> tuple[str, ...]:
    """What a table leaves out of the queries and keys chosen."""
    if not panels:
        return ()
    chosen, axes = (head.queries, head.keys), (panels[0].rows, panels[0].columns)
    cut = [
        f"{axis.name} {axis.edges[0]}:{axis.edges[-1]} of {span.start}:{span.stop}"
        for span, axis in zip(chosen, axes, strict=True)
        if axis.edges[-1] < span.stop
    ]
    advice = f"{option('queries')} and {option('keys')} select others, -o numbers.csv writes all."
    return (f"Cut: {' and '.join(cut)}; {advice}",) if cut else ()


DROPPED = (
    f"Dropout comes after the weights and changes what later layers attend to: {option('num_layers', 2)} shows that, "
    "and attnviz explain --step dropout shows which weights are kept."
)


def recording_remarks(recording: Recording) -> tuple[str, ...]:
    """What the recording itself has to say, that its weights are untrained first."""
    untrained = f"Untrained: random weights from seed {recording.seed}; the pattern says nothing about language."
    first = ((untrained,) if recording.untrained else ()) + recording.doubts
    return first + _dropout_remarks(recording) + recording.remarks + fidelity_remarks(recording)


def _dropout_remarks(recording: Recording) -> tuple[str, ...]:
    """Why dropout leaves the weights of a single layer as they are."""
    alone = recording.settings.get("dropout") and {maps.layer for maps in recording.maps} == {0}
    return (DROPPED,) if alone else ()


def fidelity_remarks(recording: Recording) -> tuple[str, ...]:
    """How far the maps are from what the model itself computed, where that was measured; too far is a warning."""
    measured = {maps.fidelity: maps for maps in recording.maps if maps.fidelity is not None}
    if not measured:
        return ()
    worst = max(measured)
    if worst > MAX_OUTPUT_DIFFERENCE and recording.settings.get("dtype", "float32") in ("float32", "float64"):
        return (
            f"Warning: in layer {measured[worst].layer} weights @ values differ by {worst:.1g} from the model's own "
            "attention output; these maps miss part of what it computed.",
        )
    within = f"within {worst:.0e}" if worst else "exactly"
    unknown = sorted({maps.layer for maps in recording.maps if maps.fidelity is None})
    but = f"; not checked in layer {number_ranges(unknown)}" if unknown else ""
    return (f"Checked: weights @ values equal the model's own attention output {within}{but}.",)
