"""Writes the titles, the caption and the remarks of a picture."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.printable import printable_line
from attnviz.maps.heads import ChosenHead, maps_over_tokens
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import CONTRIBUTION, NOTE, PERCENT, WEIGHT, Panel
from attnviz.report.picture.report import Arcs, DrawnReport, ShadedText
from attnviz.text.named_groups import NAMES, TURNS, plural

if TYPE_CHECKING:
    from attnviz.text.tokens import Tokens

MAX_OUTPUT_DIFFERENCE = 1e-3  # of weights @ values from the model's output; a larger one is a warning
MAX_NAMED_PANELS = 6  # in the title of a part; of more, only the first and the last are named
MAX_TITLE_CHARACTERS = 200  # each medium cuts a title further to what fits
MAX_READ_CHARACTERS = 4 * MAX_TITLE_CHARACTERS  # of each text, before white space is joined
MAX_TOKEN_CHARACTERS = 60  # of a token in a sentence
MAP_SIDES, ARC_SIDES = ("rows", "columns"), ("left", "right")  # the side of the queries and that of the keys
USER = " user"  # the end of the label of a turn that a user wrote
SINGULAR = {"queries": "query"}
Notes = Mapping[tuple[str, int, str, int, int], str]  # what each head does, by `ChosenHead.key`
MASKED = "Blank cells are masked: the query cannot see that key."
HATCHED = MASKED.replace("Blank", "Hatched")  # figures hatch masked cells
POOLED = {"mean": "the mean", "max": "the largest weight"}


def text_title(recording: Recording) -> str:
    """Returns the text or texts of a recording on one line; without a text its tokens, without tokens its model."""
    from attnviz.text.tokens import first_words

    texts = {maps.item: _source_text(maps_over_tokens(maps).query_tokens) for maps in reversed(recording.maps)}
    items = sorted(texts)[:MAX_TITLE_CHARACTERS]
    title = " · ".join(filter(None, (" ".join(texts[item].lstrip()[:MAX_READ_CHARACTERS].split()) for item in items)))
    return first_words(title, MAX_TITLE_CHARACTERS) or recording.model


def _source_text(tokens: "Tokens") -> str:
    """Returns the text, a chat's question, an image's title, or the labels; "" if these only number the tokens."""
    if isinstance(tokens.canvas, Image):
        return tokens.canvas.title
    if question := _question(tokens):
        return question
    labels = tokens.labels[:MAX_READ_CHARACTERS]
    if tokens.text or all(label.endswith(str(place)) for place, label in enumerate(labels)):
        return tokens.text
    named = (label for label, special in zip(labels, tokens.special.tolist(), strict=False) if not special)
    return " ".join(named).replace(" ##", "")  # WordPiece continues a word with ##


def _question(tokens: "Tokens") -> str:
    """Returns the last message of the user in a chat, without the signs of its template; "" if there is none."""
    turns = tokens.groups.get(TURNS)
    if turns is None:
        return ""
    user_turns = [turn for turn, label in enumerate(turns.labels) if label.endswith(USER)]
    for turn in reversed(user_turns):
        places = np.flatnonzero(turns.numbers == turn)
        if len(places):
            return tokens.text[int(tokens.offsets[places[0], 0]) : int(tokens.offsets[places[-1], 1])]
    return ""


def source_line(report: DrawnReport) -> str:
    """Returns the model of a picture, and its text if the title differs, so that a picture alone says its source."""
    source = report.about.get("recording") or report.about.get("recording_a")
    if not source:
        return ""
    text = " ".join(str(source["text"]).split())
    model = str(source["model"])
    model_text = f"untrained {re.sub('^(an?|the) ', '', model)}" if source["untrained"] else model
    text_start = text if len(text) <= MAX_TITLE_CHARACTERS else f"{text[: MAX_TITLE_CHARACTERS - 1].rstrip()}…"
    is_title = not text_start or report.title in (text_start, model) or report.look.title is None
    return printable_line(f"Model: {model_text}." + ("" if is_title else f" Text: {text_start}"))


def source_of(model: str, text: str) -> dict[str, object]:
    """Returns the source for `source_line` of a report that was computed from a text without a recording."""
    return {"recording": {"model": model, "text": text, "untrained": False}}


def report_title(recording: Recording, look: Look) -> str:
    """Returns the heading of a report: the user's title, else the text."""
    return look.title or text_title(recording)


def model_name(recording: Recording) -> str:
    """Returns the model as a caption names it, with "untrained" where it is."""
    return f"an untrained {re.sub('^(an?|the) ', '', recording.model)}" if recording.untrained else recording.model


def head_title(recording: Recording, head: ChosenHead, notes: Notes | None = None) -> str:
    """Returns the title of a head's panel, as ``head 0.3``, and what the head does, as ``previous token 0.98``."""
    note = (notes or {}).get(head.key, "")
    return f"head {head.name}{which_maps(recording, head.maps)}" + (f"{NOTE}{note}" if note else "")


def group_title(recording: Recording, maps: LayerMaps) -> str:
    """Returns the label of a row of heads in an overview, as ``layer 2``."""
    return f"layer {maps.layer}{which_maps(recording, maps)}"


def which_maps(recording: Recording, maps: LayerMaps) -> str:
    """Returns words that tell these maps from others of their layer: cross-attention, text of a batch, module."""
    has_texts = len({maps.item for maps in recording.maps}) > 1
    modules = {
        other.module
        for other in recording.maps
        if (other.layer, other.kind, other.item) == (maps.layer, maps.kind, maps.item)
    }
    module = f", {maps.module}" if len(modules) > 1 else ""
    return (
        (" cross" if maps.kind == "cross" and not _all_cross(recording) else "")
        + (f", text {maps.item}" if has_texts else "")
        + module
    )


def _all_cross(recording: Recording) -> bool:
    return all(maps.kind == "cross" for maps in recording.maps)


def part_title(report: DrawnReport) -> str:
    """Returns a title that names the panels of a part of a report; panels of shaded texts by their heads."""
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
    """Returns a sentence about the panels of a part of a report."""
    match report:
        case ShadedText(panels=panels):
            return f"{part_title(report)}{strongest_key(panels)}."
        case Arcs():
            sides = ARC_SIDES
        case _:
            sides = MAP_SIDES
    rows, columns = (
        f"{count_phrase(axis.edges[-1] - axis.edges[0], axis.name)} ({side})"
        for axis, side in zip((report.panels[0].rows, report.panels[0].columns), sides, strict=True)
    )
    return f"{part_title(report)}: {rows} over {columns}{strongest(report.panels)}."


def heads_caption(
    recording: Recording,
    heads: Sequence[ChosenHead],
    panels: Sequence[Panel],
    sides: tuple[str, str] = MAP_SIDES,
) -> str:
    """Returns the sentence that says which attention is drawn.

    Args:
        recording: the recording of the heads.
        heads: the heads that are drawn.
        panels: their panels, for the largest weight.
        sides: the words for the sides of queries and keys.
    """
    names = heads_phrase(heads)
    if not names.startswith("head "):
        names = f"{names} of {_layers_named(heads)}"
    kind = quantity_noun(heads[0].maps, "Cross-attention" if _all_cross(recording) else "Attention")
    queries = _spans_counted([head.queries for head in heads], "queries")
    keys = _spans_counted([head.keys for head in heads], "keys")
    spans = f"{queries} ({sides[0]}) over {keys} ({sides[1]})"
    return f"{kind} of {names} in {model_name(recording)}{for_texts(heads)}, {spans}{strongest(panels)}."


def quantity_noun(maps: LayerMaps, attention: str = "Attention") -> str:
    """Returns the noun for what is drawn: ``attention`` itself, or the contributions in it."""
    return attention if maps.quantity == "weight" else f"Contributions in {attention.lower()}"


def heads_phrase(heads: Sequence[ChosenHead]) -> str:
    """Returns the name of a single head, or the number of heads; a head over several texts counts once."""
    count = len({(head.maps.layer, head.maps.kind, head.maps.module, head.head) for head in heads})
    return f"{count} heads" if count > 1 else f"head {heads[0].name}"


def for_texts(heads: Sequence[ChosenHead]) -> str:
    """Returns the number of texts in words, as `` for 3 texts``; "" for one."""
    count = len({head.maps.item for head in heads})
    return f" for {count} texts" if count > 1 else ""


def _spans_counted(spans: Sequence[slice], name: str) -> str:
    """Returns the number of tokens, after ``up to`` if the spans differ in length."""
    lengths = {span.stop - span.start for span in spans}
    return f"{'up to ' if len(lengths) > 1 else ''}{count_phrase(max(lengths), name)}"


def count_phrase(count: int, name: str) -> str:
    """Returns a number with the name of an axis, in the singular for one: ``5 queries``, ``1 query``."""
    return f"{count} {name}" if count != 1 else f"1 {SINGULAR.get(name, name[:-1])}"


def _layers_named(heads: Sequence[ChosenHead]) -> str:
    layers = {head.maps.layer for head in heads}
    return f"layer{'s' if len(layers) > 1 else ''} {number_ranges(layers)}"


def strongest(panels: Sequence[Panel]) -> str:
    """Returns the end of a caption: the largest weight shown and its place; "" if there is none."""
    weights = [panel for panel in panels if panel.quantity in (PERCENT, WEIGHT, CONTRIBUTION)]
    weights = [panel for panel in weights if panel.varies] or weights
    best = max(weights, key=lambda panel: panel.peak, default=None)
    if best is None or best.peak < 0:
        return ""
    row, column = np.unravel_index(np.nanargmax(np.where(best.informative, best.values, -1)), best.values.shape)
    level, name = _level_text(best), f"head {best.name}" if best.group else best.name
    noun = "contribution" if best.quantity is CONTRIBUTION else "weight"
    if not best.pooled:
        tokens = f"from {quoted_token(best.rows.labels[row])} to {quoted_token(best.columns.labels[column])}"
        return f"; the largest {noun} is {level}, {name}, {tokens}"
    kind = f"largest {noun}" if best.pool == "max" else "largest mean of a block"
    place = f"around query {best.rows.middle(int(row))} and key {best.columns.middle(int(column))}"
    return f"; the {kind} is {level}, {name}, {place}"


def strongest_key(panels: Sequence[Panel]) -> str:
    """Returns the end of a caption of shaded texts: the largest weight and its key; "" if there is none."""
    best = max(panels, key=lambda panel: panel.peak)
    if best.peak < 0:
        return ""
    column = int(np.nanargmax(np.where(best.informative, best.values, -1)[0]))
    head = f"{best.group.partition(NOTE)[0]}, " if len({panel.group for panel in panels}) > 1 else ""
    key = f"{quoted_token(best.columns.labels[column])} ({best.columns.edges[column]})"
    noun = "contribution" if best.quantity is CONTRIBUTION else "weight"
    return f"; the largest {noun} is {_level_text(best)}, {head}to {key}"


def _level_text(panel: Panel) -> str:
    """Returns the largest number of a panel of weights or contributions as text."""
    return (panel.quantity if panel.quantity is CONTRIBUTION else PERCENT).text(panel.peak)


def quoted_token(label: str) -> str:
    """Returns a token in quotes, cut if it is very long."""
    return f"“{label if len(label) <= MAX_TOKEN_CHARACTERS else f'{label[: MAX_TOKEN_CHARACTERS - 1]}…'}”"


def panel_remarks(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns remarks on pooled cells, NaN, masked cells and queries without keys in these panels."""
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
    """Returns the remark on what labels the axes, if it is not the tokens.

    Raises:
        AttnvizError: if the mark matches nothing in the text shown.
    """
    if mark is None or not panels:
        return ()
    count = max(len(axis.marks) for panel in panels for axis in (panel.rows, panel.columns))
    if not count:
        mark_option = f"{option('mark')} {mark!r}"
        raise AttnvizError(f"{mark_option} matches nothing in the text shown; try lines, paragraphs or '^Chapter .*'")
    return (
        f"Labels: {count} {plural(mark) if plural(mark) in NAMES else f'matches of {mark}'}, each at its first token.",
    )


def cut_remarks(head: ChosenHead, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns the remark on the selected queries and keys that a table leaves out."""
    if not panels:
        return ()
    spans, axes = (head.queries, head.keys), (panels[0].rows, panels[0].columns)
    cuts = [
        f"{axis.name} {axis.edges[0]}:{axis.edges[-1]} of {span.start}:{span.stop}"
        for span, axis in zip(spans, axes, strict=True)
        if axis.edges[-1] < span.stop
    ]
    advice = f"{option('queries')} and {option('keys')} select others, -o numbers.csv writes all."
    return (f"Cut: {' and '.join(cuts)}; {advice}",) if cuts else ()


DROPPED = (
    f"Dropout comes after the weights and changes what later layers attend to: {option('num_layers', 2)} shows that, "
    "and attnviz explain --step dropout shows which weights are kept."
)


def recording_remarks(recording: Recording) -> tuple[str, ...]:
    """Returns the remarks on a recording; that its weights are untrained comes first."""
    untrained = f"Untrained: random weights from seed {recording.seed}; the pattern says nothing about language."
    first = ((untrained,) if recording.untrained else ()) + recording.doubts
    return first + _dropout_remarks(recording) + recording.remarks + fidelity_remarks(recording)


def _dropout_remarks(recording: Recording) -> tuple[str, ...]:
    """Returns the remark that dropout leaves weights of a single layer unchanged; else empty."""
    single_layer = recording.settings.get("dropout") and {maps.layer for maps in recording.maps} == {0}
    return (DROPPED,) if single_layer else ()


def fidelity_remarks(recording: Recording) -> tuple[str, ...]:
    """Returns the remark on how closely weights @ values match the model's output, as far as that was measured."""
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
    unchecked = f"; not checked in layer {number_ranges(unknown)}" if unknown else ""
    return (f"Checked: weights @ values equal the model's own attention output {within}{unchecked}.",)
