"""Heads drawn otherwise than as heatmaps: as arcs, or as their text shaded by what one query attends to."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.report.captions import (
    counted,
    for_texts,
    head_title,
    heads_caption,
    heads_named,
    model_name,
    quoted,
    strongest_key,
)
from attnviz.report.head_panels import head_panels
from attnviz.report.numbers import HeadCells
from attnviz.report.options import ReportOptions, with_cells
from attnviz.report.panels import PERCENT, Drawing, Panel
from attnviz.text.selection import resolve_span
from attnviz.text.tokens import PADDING, Tokens

MOST_STYLED, MOST_ARCS = 16, 120  # heads as arcs or text, tokens as arcs
MOST_WORDS, MOST_ON_SCREEN = 2000, 500  # tokens as text, on a page that grows and elsewhere
LEFT_TO_RIGHT = "\u200e"
PLACES, AROUND = 8, 8  # of a longer text: how many keys are shown, and how many tokens at each side of one


def styled_heads(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: Sequence[HeadCells], options: ReportOptions
) -> Drawing:
    """The heads drawn as the look's style says.

    Raises:
        AttnvizError: if there are more heads or tokens than such a picture holds, or no such query.
    """
    style = options.look.style
    if options.table is not None:
        raise AttnvizError(f"--style {style} draws no numbers; --table needs --style heatmap")
    if len(heads) > MOST_STYLED:
        raise AttnvizError(
            f"--style {style} draws up to {MOST_STYLED} heads, not {len(heads)}; --heads 0.3,1.2 chooses"
        )
    build = _arcs if style == "arcs" else _texts
    return build(recording, heads, cells, options)


def _arcs(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: Sequence[HeadCells], options: ReportOptions
) -> Drawing:
    """Every head as lines from its queries to its keys."""
    panels = [_arcs_panel(maps, head, options, head_title(recording, maps, head)) for maps, head in heads]
    most = f", the strongest {PERCENT.text(max(panel.peak for panel in panels))}"
    known = options.look.limits == "shared"
    masked = "" if all(panel.visible.all() for panel in panels) else " Masked pairs have no line."
    said = "A line joins a query (left) to a key (right), the stronger the larger the weight"
    return Drawing(
        panels=panels,
        caption=heads_caption(recording, cells, panels, "arcs"),
        remarks=(f"{said}{most if known else ''}.{masked}",),
        style="arcs",
    )


def _arcs_panel(maps: LayerMaps, head: int, options: ReportOptions, title: str) -> Panel:
    [panel] = head_panels(maps, head, [PERCENT], with_cells(options, MOST_ARCS), title)
    if panel.pooled:
        count = max(panel.rows.edges[-1], panel.columns.edges[-1])
        raise AttnvizError(
            f"--style arcs draws up to {MOST_ARCS} tokens, not {count}; --queries 0:40 --keys 0:40 works"
        )
    return panel


def _texts(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: Sequence[HeadCells], options: ReportOptions
) -> Drawing:
    """What one query attends to in every head: the text in its shades, or of a long text the strongest places."""
    layers = dict.fromkeys(maps for maps, _ in heads)
    found = {maps: find_query(maps.query_tokens, options.look.query) for maps in layers}
    first = heads[0][0]
    tokens, (query, also) = first.query_tokens, found[first]
    whole = MOST_WORDS if options.medium.one_page and options.look.size is None else MOST_ON_SCREEN
    keys = cells[0].keys
    draw = _whole_text if keys.stop - keys.start <= whole else _places
    drawn = [
        replace(panel, group=head_title(recording, maps, head))
        for maps, head in heads
        for panel in draw(maps, head, found[maps][0], options)
    ]
    panels = tuple(replace(panel, title=f"{panel.group}: {panel.title}") for panel in drawn)
    masked = not all(panel.visible.all() for panel in panels)
    asked = dict.fromkeys(_quoted(maps.query_tokens, place) for maps, (place, _) in found.items())
    subject = _quoted(tokens, query) if len(asked) == 1 else "one query of each text"
    remarks = (
        *([also] if also else []),
        *([_context(tokens, query)] if draw is _places else []),
        *(["Masked tokens have no shade: the query may not look at them."] if masked else []),
    )
    return Drawing(panels, _texts_caption(recording, cells, subject, panels), remarks, "text")


def _whole_text(maps: LayerMaps, head: int, query: int, options: ReportOptions) -> list[Panel]:
    """All chosen keys as one text."""
    keys = resolve_span(options.selection.keys, len(maps.key_tokens), "keys")
    return [_row_panel(maps, head, query, keys, options, f"{_quoted(maps.query_tokens, query)} attends to")]


def _places(maps: LayerMaps, head: int, query: int, options: ReportOptions) -> list[Panel]:
    """The keys of the largest weights with the tokens around them, the strongest first; neighbours share a panel."""
    keys = resolve_span(options.selection.keys, len(maps.key_tokens), "keys")
    window = cell_maps(maps).window((head,), slice(query, query + 1), keys)
    weights = np.where(window.visible[0], np.nan_to_num(window.weights[0, 0]), 0)
    best = [int(place) for place in np.argsort(-weights, kind="stable")[:PLACES] if weights[place] > 0]
    panels = []
    for group in _neighbours(best) or [[]]:
        middle = keys.start + (group or [0])[0]
        around = slice(max(middle - AROUND, keys.start), min(middle + AROUND + 1, keys.stop))
        shares = ", ".join(
            f"{PERCENT.text(float(weights[place]))} to {_quoted(maps.key_tokens, keys.start + place)}"
            for place in group
        )
        title = f"{_quoted(maps.query_tokens, query)} attends {shares or 'to no key'}"
        panels.append(_row_panel(maps, head, query, around, options, title))
    return panels


def _neighbours(places: list[int]) -> list[list[int]]:
    """The places in groups: each with the first before it that has it among the tokens around."""
    groups: list[list[int]] = []
    for place in places:
        near = next((group for group in groups if abs(group[0] - place) <= AROUND), None)
        if near is None:
            groups.append([place])
        else:
            near.append(place)
    return groups


def _row_panel(maps: LayerMaps, head: int, query: int, keys: slice, options: ReportOptions, title: str) -> Panel:
    """The weights of one query over some keys."""
    selection = replace(options.selection, queries=(query, query + 1), keys=(keys.start, keys.stop))
    options = with_cells(replace(options, selection=selection), MOST_WORDS)
    [panel] = head_panels(maps, head, [PERCENT], options, title)
    return panel


def _quoted(tokens: Tokens, place: int) -> str:
    """A token and its number, which stays behind a token that runs from right to left."""
    label = tokens.labels[place]
    mark = LEFT_TO_RIGHT if any(unicodedata.bidirectional(one) in ("R", "AL") for one in label) else ""
    return f"{quoted(label)}{mark} ({place})"


def _context(tokens: Tokens, query: int) -> str:
    """The tokens around a query."""
    labels = tokens.labels
    before, after = labels[max(query - AROUND, 0) : query], labels[query + 1 : query + 1 + AROUND]
    words = " ".join((*before, f"[{labels[query]}]", *after))
    return f"The query stands in: {words}. The text is long: the {PLACES} keys that it attends to most are shown."


def _texts_caption(recording: Recording, cells: Sequence[HeadCells], subject: str, panels: tuple[Panel, ...]) -> str:
    """What the query attends to, in one sentence."""
    heads = panels[0].group if len(cells) == 1 else heads_named(cells)
    keys = counted(cells[0].keys.stop - cells[0].keys.start, "keys")
    among = f"{keys}, in {heads} of {model_name(recording)}{for_texts(cells)}"
    return f"What {subject} attends to among {among}{strongest_key(panels)}."


def _is_padding(tokens: Tokens, place: int) -> bool:
    return bool(tokens.special[place]) and tokens.labels[place] == PADDING


def find_query(tokens: Tokens, wanted: str | None) -> tuple[int, str]:
    """The position of the query that was asked for by number or by token, and a remark where others are as good.

    Where none was asked for, it is the last that is not padding.

    Raises:
        AttnvizError: if there is none.
    """
    count = len(tokens)
    if wanted is None:
        return next((place for place in range(count - 1, 0, -1) if not _is_padding(tokens, place)), 0), ""
    if re.fullmatch(r"\d{1,12}", wanted, re.ASCII) and wanted not in tokens.labels:
        if int(wanted) >= count:
            raise AttnvizError(f"no query {wanted}; there are {count}, so 0 to {count - 1} works")
        return int(wanted), ""
    places = [place for place, label in enumerate(tokens.labels) if wanted in (label, label.strip("␣ "))]
    if not places:
        raise AttnvizError(f"no query {wanted!r} among the tokens; a number from 0 to {count - 1} works")
    others = ", ".join(map(str, places[1:6]))
    return places[0], f"“{wanted}” is also at {others}; --query {places[1]} takes that one." if others else ""
