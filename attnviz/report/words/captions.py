"""Writes the titles, the caption and the remarks of a picture."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, layers_phrase, option, with_capital
from attnviz.base.printable import printable_line
from attnviz.maps.layer_maps import MAX_DIFFERENCE, LayerMaps
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import HEAD, IMPLICIT_ATTENTION, PERCENT, Axis, Heading, Panel
from attnviz.report.picture.report import DrawnReport
from attnviz.text.head_name import tower_phrase
from attnviz.text.named_groups import NAMES, PASSAGES, QUESTION, TURNS, character_owners, plural

if TYPE_CHECKING:
    from attnviz.text.tokens import Tokens

MAX_NAMED_PANELS = 6  # in the title of a part; of more, only the first and the last are named
MAX_TITLE_CHARACTERS = 200  # each medium cuts a title further to what fits
MAX_READ_CHARACTERS = 4 * MAX_TITLE_CHARACTERS  # of each text, before white space is joined
LEFT_TO_RIGHT = "\u200e"
MAX_TOKEN_CHARACTERS = 60  # of a token in a sentence
MAP_SIDES, ARC_SIDES = ("rows", "columns"), ("left", "right")  # the side of the queries and that of the keys
USER = " user"  # the end of the label of a turn that a user wrote
SINGULAR = {"queries": "query", "blocks of queries": "block of queries", "blocks of keys": "block of keys"}
Notes = Mapping[tuple[str, int, str, int, int], str]  # what each head does, by `ChosenHead.key`
# The label of a patch: its row and column, after the number of one of several pictures.
PATCH_LABEL, PATCH = re.compile(r"(?:(\d+):)?(whole )?r\d+c\d+", re.ASCII), "the patch at "
POOLED = {"mean": "the mean", "max": "the largest weight"}


def text_title(recording: Recording) -> str:
    """Returns the texts of a recording on one line (see `_source_text`), cut to fit; the model if all are empty."""
    from attnviz.text.tokens import first_words

    # Objects or masks that look at each other name nothing that was read; the picture that they look at does.
    all_maps = sorted((maps.pooled_source for maps in reversed(recording.maps)), key=_names_source)
    texts = {maps.item: _source_of(maps) for maps in all_maps}
    items = sorted(texts)[:MAX_TITLE_CHARACTERS]  # each takes a character of the title at least
    lines = [" ".join(texts[item].lstrip()[:MAX_READ_CHARACTERS].split()) for item in items]
    if any(
        isinstance(tokens.canvas, Image) for tokens in (recording.maps[0].key_tokens, recording.maps[0].query_tokens)
    ):
        lines = list(dict.fromkeys(lines))  # every tile of an image has the image's title
    title = " · ".join(line for line in lines if line)
    return first_words(title, MAX_TITLE_CHARACTERS) or recording.model


def _names_source(maps: "LayerMaps") -> bool:
    return any(tokens.text or tokens.image_indices for tokens in (maps.query_tokens, maps.key_tokens))


def _source_of(maps: "LayerMaps") -> str:
    """Returns the title of the image that objects or a prompt look at, else what the queries were read from."""
    queries, keys = maps.query_tokens, maps.key_tokens
    return _source_text(keys if keys.image_indices and not (keys.text or queries.text) else queries)


def _source_text(tokens: "Tokens") -> str:
    """Returns the title of an image or sound, else the question, else the text without marks, else labels of tokens."""
    if isinstance(tokens.canvas, Image | Sound) or tokens.canvas.title:
        return tokens.canvas.title
    if tokens.image_indices and not tokens.text:  # frames of a video, or the pictures of several cameras
        return ", ".join(dict.fromkeys(medium.title for medium in tokens.media if isinstance(medium, Image)))
    if question := _question(tokens):
        return question
    labels = tokens.labels[:MAX_READ_CHARACTERS]
    if tokens.text and (owners := character_owners(tokens)) is not None:
        return "".join(np.where(owners >= 0, list(tokens.text), " "))
    if tokens.text or all(label.endswith(str(index)) for index, label in enumerate(labels)):
        return tokens.text
    is_special = tokens.special.tolist()
    words = (label for index, label in enumerate(labels) if not is_special[index])
    return " ".join(words).replace(" ##", "")  # WordPiece continues a word with ##


def _question(tokens: "Tokens") -> str:
    """Returns the question after passages, else the last message of the user in a chat; "" if there is neither."""
    for name, label_end in ((PASSAGES, QUESTION), (TURNS, USER)):
        groups = tokens.groups.get(name)
        if groups is None:
            continue
        questions = [number for number, label in enumerate(groups.labels) if label.endswith(label_end)]
        for number in reversed(questions):
            group_tokens = np.flatnonzero(groups.numbers == number)
            if len(group_tokens):
                return tokens.text[int(tokens.offsets[group_tokens[0], 0]) : int(tokens.offsets[group_tokens[-1], 1])]
    return ""


def source_line(report: DrawnReport, *, with_text: bool = True) -> str:
    """Returns a sentence that names the model, and a second one with the text if the user's title replaces it.

    Returns "" if the report has no recording.
    """
    source = report.about.get("recording") or report.about.get("recording_a")
    if not source:
        return ""
    text = " ".join(str(source["text"]).split())
    model = tower_phrase(source.get("settings", {}).get("tower", ""), str(source["model"]))
    model_text = f"untrained {re.sub('^(an?|the) ', '', model)}" if source["untrained"] else model
    text_start = text if len(text) <= MAX_TITLE_CHARACTERS else f"{text[: MAX_TITLE_CHARACTERS - 1].rstrip()}…"
    omits_text = not (with_text and text_start) or report.title in (text_start, model) or report.look.title is None
    return printable_line(f"Model: {model_text}." + ("" if omits_text else f" Text: {text_start}"))


def source_of(model: str, text: str) -> dict[str, object]:
    """Returns the ``about`` of a report without a recording, with the model and the text that `source_line` names."""
    return {"recording": {"model": model, "text": text, "untrained": False}}


def report_title(recording: Recording, look: Look) -> str:
    """Returns the heading of a report: the user's title, else `text_title`."""
    return look.title or text_title(recording)


def model_name(recording: Recording) -> str:
    """Returns the model as a caption names it, with its tower if it has two; random weights are called untrained."""
    if recording.untrained:
        return f"an untrained {re.sub('^(an?|the) ', '', recording.model)}"
    return tower_phrase(recording.tower, recording.model)


def head_heading(recording: Recording, head: ChosenHead, note: str = "") -> Heading:
    """Returns the heading of a head's panel, such as ``head 0.3``, or ``text 0.3`` in a tower."""
    return Heading(f"{head.name}{maps_suffix(recording, head.maps)}", noun=recording.tower or HEAD, note=note)


def head_phrase(recording: Recording, head: ChosenHead) -> str:
    """Returns the name of a head in a caption, which names the tower elsewhere: ``head 0.3``."""
    return f"head {head.name}{maps_suffix(recording, head.maps)}"


def group_title(recording: Recording, maps: LayerMaps) -> str:
    """Returns the label of a row of heads in an overview, such as ``layer 2`` (``text layer 2`` in a tower)."""
    layer = f"{maps.part}:{maps.layer}" if maps.part else maps.layer
    return f"{recording.tower} layer {layer}{maps_suffix(recording, maps)}".lstrip()


def maps_suffix(recording: Recording, maps: LayerMaps) -> str:
    """Returns the words that tell these maps from others of their layer; "" if none are needed.

    The words are ``cross`` and the number of the text, picture or tile, each only if the recording has others.
    """
    words = " cross" if maps.kind == "cross" and not _all_cross(recording) else ""
    if len({other.item for other in recording.maps}) > 1:
        words += f", {item_noun(recording.maps)} {maps.item}"
    return words


def item_noun(all_maps: Sequence[LayerMaps]) -> str:
    """Returns the noun for one of several items: ``picture``, ``tile`` of one picture, or ``text``."""
    first, *others = [maps for maps in all_maps if maps.module == all_maps[0].module]
    if not isinstance(first.key_tokens.canvas, Image):
        return "text"
    are_parts = any(
        first.key_tokens.media == maps.key_tokens.media
        and not np.array_equal(first.key_tokens.places, maps.key_tokens.places)
        for maps in others
    )
    return "tile" if are_parts else "picture"


def _all_cross(recording: Recording) -> bool:
    """True if all attention of the recording is cross-attention."""
    return all(maps.kind == "cross" for maps in recording.maps)


def part_title(report: DrawnReport) -> str:
    """Returns a title that names the panels of a report, or the heads of shaded texts, with a capital letter.

    For more than `MAX_NAMED_PANELS` it says their number, the first and the last. They are called heads if each is a
    head, else panels.
    """
    names_heads = report.kind == "text" and len(report.panels) > 1
    headings = [panel.heading for panel in report.panels]
    if names_heads:
        headings = [replace(heading, aspect="") for heading in headings]
    if report.kind == "thumbnails":  # whose titles are bare names of heads
        headings = [replace(heading, noun=heading.noun or HEAD) for heading in headings]
    headings = list({heading.subject: heading for heading in headings}.values())
    if len(headings) > MAX_NAMED_PANELS:
        are_heads = names_heads or report.kind == "thumbnails" or all(heading.noun for heading in headings)
        noun = "heads" if are_heads and report.kind != "tables" else "panels"
        noun = "metrics of each head" if report.kind == "atlas" else noun
        first, last = headings[0].subject, headings[-1].subject
        if noun == "heads":
            first, last = first.removeprefix(f"{HEAD} "), last.removeprefix(f"{HEAD} ")
        return f"{len(headings)} {noun}, {first} to {last}"
    nouns, names = {heading.noun for heading in headings}, {heading.name for heading in headings}
    text = ", ".join(heading.subject for heading in headings)
    if len(headings) > 1 and len(nouns) == 1:  # what all begin with is written once: "text heads 0.1, 0.2"
        [noun] = nouns
        if noun:
            heads = ", ".join(heading.name + heading.aspect for heading in headings)
            text = f"heads {heads}" if noun == HEAD else f"{noun} heads {heads}"
        elif len(names) == 1:
            text = f"head {headings[0].name}: {', '.join(heading.aspect.lstrip() for heading in headings)}"
    return with_capital(text)


def part_caption(report: DrawnReport) -> str:
    """Returns a sentence that names the panels, counts their queries and keys, and says the largest weight.

    For shaded text it names the key with this weight instead of counting.
    """
    if report.kind == "text":
        return f"{part_title(report)}{largest_key_clause(report.panels)}."
    sides = ARC_SIDES if report.kind == "arcs" else MAP_SIDES
    first_panel = report.panels[0]
    rows, columns = _axis_phrase(first_panel.rows, sides[0]), _axis_phrase(first_panel.columns, sides[1])
    return f"{part_title(report)}: {rows} over {columns}{largest_weight_clause(report.panels)}."


def _axis_phrase(axis: Axis, side: str) -> str:
    """Returns the number of tokens of an axis with its side, such as ``5 queries (rows)``."""
    return f"{count_phrase(axis.edges[-1] - axis.edges[0], axis.name)} ({side})"


def heads_caption(
    recording: Recording,
    heads: Sequence[ChosenHead],
    panels: Sequence[Panel],
    sides: tuple[str, str] = MAP_SIDES,
) -> str:
    """Returns a sentence on the heads, the model, the numbers of queries and keys, and the largest weight."""
    names = heads_phrase(heads)
    if count_of_heads(heads) > 1:
        names = f"{names} of {layers_phrase(head.maps.layer for head in heads)}"
    noun = quantity_noun(heads[0].maps, "Cross-attention" if _all_cross(recording) else "Attention")
    queries = _token_count_phrase([head.queries for head in heads], "queries")
    keys = _token_count_phrase([head.keys for head in heads], "keys")
    spans = f"{queries} ({sides[0]}) over {keys} ({sides[1]})"
    return f"{noun} of {names} in {model_name(recording)}{texts_phrase(heads)}, {spans}{largest_weight_clause(panels)}."


def quantity_noun(maps: LayerMaps, attention: str = "Attention") -> str:
    """Returns the noun for what maps hold: ``attention`` itself for weights, else what it is of it."""
    nouns = {"contribution": f"Contributions in {attention.lower()}", "implicit": f"Implicit {attention.lower()}"}
    return nouns.get(maps.quantity, attention)


def heads_phrase(heads: Sequence[ChosenHead]) -> str:
    """Returns the name of a single head, or the number of heads."""
    count = count_of_heads(heads)
    return f"{count} heads" if count > 1 else f"head {heads[0].name}"


def count_of_heads(heads: Sequence[ChosenHead]) -> int:
    """Returns the number of heads; a head over several texts counts once."""
    return len({(head.maps.layer, head.maps.kind, head.maps.module, head.head) for head in heads})


def texts_phrase(heads: Sequence[ChosenHead]) -> str:
    """Returns the number of texts, pictures or tiles in words, such as `` for 3 texts``; "" for one."""
    count = len({head.maps.item for head in heads})
    return f" for {count} {item_noun([head.maps for head in heads])}s" if count > 1 else ""


def _token_count_phrase(spans: Sequence[slice], name: str) -> str:
    """Returns the number of tokens with the axis' name; if spans differ in length, ``up to`` the largest number."""
    lengths = {span.stop - span.start for span in spans}
    return f"{'up to ' if len(lengths) > 1 else ''}{count_phrase(max(lengths), name)}"


def count_phrase(count: int, name: str) -> str:
    """Returns a number with the name of an axis, in the singular for one: ``5 queries``, ``1 query``."""
    return f"{count} {name}" if count != 1 else f"1 {SINGULAR.get(name, name[:-1])}"


def largest_weight_clause(panels: Sequence[Panel]) -> str:
    """Returns the end of a caption: the largest weight or contribution and its place; "" if there is none.

    Panels whose queries see one key count only if there are no others. In a pooled panel the place is the middle of
    the block, and the number may be a mean.
    """
    weight_panels = [panel for panel in panels if panel.quantity.noun]
    candidates = [panel for panel in weight_panels if panel.varies] or weight_panels
    found = _largest_weight(candidates)
    if found is None:
        return ""
    panel, row, column, noun, level = found
    name = f"head {panel.heading.subject}" if panel.group else panel.heading.subject
    kind = f"largest {noun}" if panel.pool == "max" or not panel.pooled else "largest mean of a block"
    return f"; the {kind} is {level}, {name}, {_pair(panel, row, column)}"


def largest_weight_sentence(panel: Panel, maps: LayerMaps) -> str:
    """Returns the largest weight of a head and its place as a title, beside special tokens; "" if there is none."""
    if not panel.quantity.is_weight or (panel.pooled and panel.pool != "max"):
        return ""
    head = with_capital(panel.heading.head)
    of_axes = [(maps.query_tokens, panel.rows), (maps.key_tokens, panel.columns)]
    rows, columns = (~tokens.special[list(axis.edges[:-1])] for tokens, axis in of_axes)
    is_seen = panel.visible & rows[:, None] & columns
    if not panel.pooled and is_seen.any() and (is_seen != panel.visible).any():
        panel, head = replace(panel, visible=is_seen), f"Beside special tokens, {panel.heading.head}"
    found = _largest_weight([panel])
    if found is None:
        return ""
    _, row, column, noun, level = found
    return f"{head} has its largest {noun}, {level}, {_pair(panel, row, column)}"


def _pair(panel: Panel, row: int, column: int) -> str:
    if panel.pooled:
        return f"around query {panel.rows.middle(row)} and key {panel.columns.middle(column)}"
    return f"from {named_cell(panel.rows, row, PATCH)} to {named_cell(panel.columns, column, PATCH)}"


def largest_key_clause(panels: Sequence[Panel]) -> str:
    """Returns the end of a caption of panels of one row: the largest weight and its key, or its query; "" for none."""
    found = None if any(panel.quantity is IMPLICIT_ATTENTION for panel in panels) else _largest_weight(panels)
    if found is None:
        return ""
    panel, _, column, noun, level = found
    head = f"{panel.heading.head}, " if len({panel.heading.head for panel in panels}) > 1 else ""
    if isinstance(panel.columns.canvas, Image):
        key = named_cell(panel.columns, column)
    else:
        key = f"{quoted_token(panel.columns.labels[column])} ({panel.columns.edges[column]})"
    return f"; the largest {noun} is {level}, {head}{'from' if panel.columns.name == 'queries' else 'to'} {key}"


def _largest_weight(panels: Sequence[Panel]) -> tuple[Panel, int, int, str, str] | None:
    """Returns the panel of the largest weight, its row and column, its noun and its text; ``None`` if none is seen."""
    panel = max(panels, key=lambda panel: panel.peak, default=None)
    if panel is None or panel.peak < 0:
        return None
    levels = np.where(panel.informative, panel.values, -1)  # -1 is below every weight
    row, column = np.unravel_index(np.nanargmax(levels), levels.shape)
    quantity = PERCENT if panel.quantity.is_weight else panel.quantity
    return panel, int(row), int(column), panel.quantity.noun or PERCENT.noun, quantity.text(panel.peak)


def quoted_token(label: str) -> str:
    """Returns a token in quotes; one longer than `MAX_TOKEN_CHARACTERS` is cut, and ends with an ellipsis."""
    is_long = len(label) > MAX_TOKEN_CHARACTERS
    return f"“{label[: MAX_TOKEN_CHARACTERS - 1]}…”" if is_long else f"“{label}”"


def patch_in_words(label: str, canvas: object, place: Sequence[int]) -> str:
    """Returns where in a picture a patch lies, with its label: ``the lower left (r9c1)``; "" for any other token."""
    if not (
        isinstance(canvas, Image) and not canvas.seconds and any(place) and (found := PATCH_LABEL.fullmatch(label))
    ):
        return ""
    return f"the {canvas.region(place)}{f' of image {found[1]}' if found[1] else ''} ({label})"


def named_cell(axis: Axis, cell: int, patch: str = "", quote: Callable[[str], str] = quoted_token) -> str:
    """Returns the token of a cell in quotes, or a patch in words; its number follows if others are alike."""
    label = axis.labels[cell]
    place = "" if axis.places is None else patch_in_words(label, axis.canvas, axis.places[cell].tolist())
    return f"{patch if place else ''}{place or quote(label)}{axis.number_if_alike(cell)}"


def numbered_token(tokens: "Tokens", index: int) -> str:
    """Returns a token in quotes and its number, which one in a picture, or ``query 9``, needs only if others are alike.

    A patch is named in words. A mark keeps the number after a token that is written right to left.
    """
    label, medium = tokens.labels[index], int(tokens.medium[index])
    if medium >= 0 and (place := patch_in_words(label, tokens.media[medium], tokens.places[index].tolist())):
        return f"{PATCH}{place}" + (f" ({index})" if tokens.labels.count(label) > 1 else "")
    names_itself = (tokens.image_indices and not tokens.text) or label.endswith(f" {index}")
    if names_itself and tokens.labels.count(label) == 1:
        return quoted_token(label)
    mark = LEFT_TO_RIGHT if any(unicodedata.bidirectional(character) in ("R", "AL") for character in label) else ""
    return f"{quoted_token(label)}{mark} ({index})"


def masked_remark(look: str) -> str:
    """Returns the remark on masked cells, which a medium draws with this look (see `Medium.masked_look`)."""
    return f"{look} cells are masked: the query cannot see that key."


def panel_remarks(panels: Sequence[Panel], masked_look: str) -> tuple[str, ...]:
    """Returns a remark each on pooled cells, NaN, masked cells and queries without keys, if the panels have any."""
    remarks = []
    pooled_panel = next((panel for panel in panels if panel.pooled), None)
    if pooled_panel is not None:
        rows, columns = pooled_panel.rows, pooled_panel.columns
        tokens = f"{rows.edges[-1] - rows.edges[0]} x {columns.edges[-1] - columns.edges[0]} {pooled_panel.units}"
        cells = f"{len(rows.labels)} x {len(columns.labels)} cells"
        zoom_options = f"{option('queries', '10:40')} {option('keys', ':20')}"
        zoom_advice = f"; {zoom_options} shows a part exactly" if pooled_panel.zooms else ""
        remarks.append(f"Pooled: {tokens} in {cells}, each {POOLED[pooled_panel.pool]} of its block{zoom_advice}.")
    nan_count = sum(int(np.isnan(panel.values[panel.visible]).sum()) for panel in panels)
    if nan_count:
        predicate = "cells are not numbers" if nan_count > 1 else "cell is not a number"
        remarks.append(f"NaN: {nan_count} {predicate}, drawn pink (as ? without colour).")
    if not all(panel.visible.all() for panel in panels):
        remarks.append(masked_remark(masked_look))
    # A query that sees only keys outside the columns has a blank row as well, but sees a key.
    if any((panel.key_counts[~panel.visible.any(axis=1)] == 0).any() for panel in panels):
        remarks.append("Blank rows see no key: all their weights are zero.")
    return tuple(remarks)


def mark_remarks(mark: str | None, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns the remark that counts the landmarks that label the axes; empty without a mark or panels."""
    if mark is None or not panels:
        return ()
    count = max(len(axis.marks) for panel in panels for axis in (panel.rows, panel.columns))
    if not count:
        mark_option = f"{option('mark')} {mark!r}"
        raise AttnvizError(f"{mark_option} matches nothing in the text shown; try lines, paragraphs or '^Chapter .*'")
    noun = plural(mark) if plural(mark) in NAMES else f"matches of {mark}"
    return (f"Labels: {count} {noun}, each at its first token.",)


def cut_remarks(head: ChosenHead, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns the remark on selected queries and keys that panels leave out; empty if there are none."""
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
    """Returns the remarks on a recording: untrained weights, doubts, dropout, its own remarks, and its accuracy."""
    untrained_remark = f"Untrained: random weights from seed {recording.seed}; the pattern says nothing about language."
    untrained_remarks = (untrained_remark,) if recording.untrained else ()
    accuracy_remarks = accuracy_warnings(recording) or exactness_remarks(recording)
    return untrained_remarks + doubts(recording) + recording.remarks + recording.advice + accuracy_remarks


def doubts(recording: Recording) -> tuple[str, ...]:
    """Returns the remarks on weights that cannot come from a softmax, and on dropout that no drawn layer can show."""
    is_first_layer_alone = {maps.layer for maps in recording.maps} == {0}  # whose weights dropout does not change
    return recording.doubts + ((DROPPED,) if recording.settings.get("dropout") and is_first_layer_alone else ())


def accuracy_warnings(recording: Recording) -> tuple[str, ...]:
    """Returns a warning if weights @ values differ from the model's own output by more than its precision explains.

    Only the largest such difference counts.
    """
    maps_of_difference = {
        maps.fidelity: maps for maps in recording.maps if maps.fidelity is not None and maps.fidelity > maps.tolerance
    }
    if not maps_of_difference:
        return ()
    worst_difference = max(maps_of_difference)
    return (
        f"Warning: in layer {maps_of_difference[worst_difference].layer} weights @ values differ by "
        f"{worst_difference:.1g} from the model's own attention output; these maps miss part of what it computed.",
    )


def exactness_remarks(recording: Recording) -> tuple[str, ...]:
    """Returns the remark on how close weights @ values are to the model's own output; empty if that is unknown."""
    differences = [maps.fidelity for maps in recording.maps if maps.fidelity is not None]
    if not differences:
        return ()
    worst_difference = max(differences)
    within_bound = f"within {worst_difference:.0e}" if worst_difference else "exactly"
    if worst_difference > MAX_DIFFERENCE:
        within_bound += ", as its precision rounds"
    unchecked_layers = sorted({maps.layer for maps in recording.maps if maps.fidelity is None})
    unchecked_clause = f"; not checked in {layers_phrase(unchecked_layers)}" if unchecked_layers else ""
    if recording.maps[0].quantity == "implicit":
        return (f"Checked: implicit attention @ values equals each layer's own output {within_bound}.",)
    return (f"Checked: weights @ values equal the model's own attention output {within_bound}{unchecked_clause}.",)
