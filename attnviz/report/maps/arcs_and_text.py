"""Turns a recording into a report of arcs, or of its text shaded by what one query attends to."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import ChosenHead
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.report.maps.head_panels import head_panels
from attnviz.report.maps.words_of_text import find_word
from attnviz.report.picture.colors import SEQUENTIAL, TEXT_COLORMAPS
from attnviz.report.picture.look import Look
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import CONTRIBUTION, PERCENT, Panel, quantity_of
from attnviz.report.picture.report import Arcs, ShadedText
from attnviz.report.picture.scales import scale_remarks, share_scales
from attnviz.report.words.captions import (
    ARC_SIDES,
    Notes,
    counted,
    for_texts,
    head_title,
    heads_caption,
    heads_named,
    model_name,
    quoted,
    recording_remarks,
    report_title,
    strongest_key,
)
from attnviz.text.tokens import Tokens, is_padding

MAX_HEADS, MAX_ARC_TOKENS = 16, 120
MAX_TEXT_TOKENS, MAX_SCREEN_TOKENS = 2000, 500  # longest text shown whole, on a page that grows and elsewhere
MIN_PREFERENCE = (
    1.5  # if the largest weight is this many times uniform attention, smaller ones than uniform get no line
)
LEFT_TO_RIGHT = "\u200e"
PLACES, AROUND = 8, 8  # for a longer text: the number of keys shown, and of tokens on either side of each


def arcs_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> Arcs:
    """The report of every head as lines from its queries to its keys.

    Args:
        recording: the recording of the heads.
        heads: the heads to draw.
        options: the look and the medium.
        notes: the note on each head that has one.

    Raises:
        AttnvizError: if there are more heads or tokens than arcs can show.
    """
    _refuse_undrawable(heads, options)
    panels = [_arcs_panel(head, options, head_title(recording, head, notes)) for head in heads]
    scaled = _starting_at_uniform(share_scales(panels, _with_linear_colors(options.look)), options.look)
    return Arcs(
        title=report_title(recording, options.look),
        panels=scaled,
        caption=heads_caption(recording, heads, panels, ARC_SIDES),
        remarks=(
            _arcs_remark(scaled, options.look),
            *scale_remarks(options.look),
            *recording_remarks(recording),
        ),
        look=options.look,
        about={"recording": origin(recording)},
    )


def text_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> ShadedText:
    """The report of what one query attends to in every head: the shaded text, or the strongest places of a long text.

    Args:
        recording: the recording of the heads.
        heads: the heads to draw.
        options: the look, which names the query, and the medium.
        notes: unused; the parameters are those of ``arcs_report``.

    Raises:
        AttnvizError: if there are more heads than such a picture can show, or the query does not exist.
    """
    _refuse_undrawable(heads, options)
    look, first = options.look, heads[0]
    found = {head.maps: find_query(head.maps.query_tokens, look.query) for head in heads}
    draw = _whole_text if _fits_whole(first, options) else _places
    panels = [
        replace(panel, title=f"{title}: {panel.title}", group=title)
        for head in heads
        for title in (head_title(recording, head),)
        for panel in draw(head, found[head.maps][0], options)
    ]
    query, also = found[first.maps]
    return ShadedText(
        title=report_title(recording, look),
        panels=share_scales(panels, _with_linear_colors(look), _text_colormap(look)),
        caption=_text_caption(recording, heads, _queries_named(found), panels),
        remarks=(
            *([also] if also else []),
            *([_context(first.maps.query_tokens, query)] if draw is _places else []),
            *_text_remarks(panels),
            *scale_remarks(look),
            *recording_remarks(recording),
        ),
        look=look,
        about={"recording": origin(recording)},
    )


def _refuse_undrawable(heads: list[ChosenHead], options: ReportOptions) -> None:
    style = option("style", options.look.drawn_style)
    if options.table is not None:
        raise AttnvizError(f"{style} draws no numbers; {option('table')} needs {option('style', 'heatmap')}")
    if len(heads) > MAX_HEADS:
        example = option("heads", "0.3,1.2")
        raise AttnvizError(f"{style} draws up to {MAX_HEADS} heads, not {len(heads)}; choose some, as {example}")


def _arcs_panel(head: ChosenHead, options: ReportOptions, title: str) -> Panel:
    [panel] = head_panels(head, [PERCENT], limit_cells(options, MAX_ARC_TOKENS), title)
    if panel.pooled:
        count = max(panel.rows.edges[-1], panel.columns.edges[-1])
        raise AttnvizError(
            f"{option('style', 'arcs')} draws up to {MAX_ARC_TOKENS} tokens, not {count}; "
            f"use {option('queries', '0:40')} {option('keys', '0:40')}"
        )
    return panel


def _starting_at_uniform(panels: tuple[Panel, ...], look: Look) -> tuple[Panel, ...]:
    """The panels with scales that begin at uniform attention if weights well above it exist; only those get lines."""
    seen = [panel.visible_keys.max() for panel in panels if panel.visible_keys is not None and panel.quantity.is_weight]
    if look.limits != "shared" or len(seen) < len(panels):
        return panels
    low, high = 1 / float(max(seen)), panels[0].scale.high
    if high < MIN_PREFERENCE * low:
        return panels
    return tuple(replace(panel, scale=replace(panel.scale, low=low)) for panel in panels)


def _arcs_remark(panels: Sequence[Panel], look: Look) -> str:
    """The remark on how lines show weights."""
    strongest = panels[0].quantity.text(max(panel.peak for panel in panels))
    what = "contribution" if panels[0].quantity is CONTRIBUTION else "weight"
    most = f", up to {strongest}" if look.limits == "shared" else ""
    masked = "" if all(panel.visible.all() for panel in panels) else " Masked pairs have no line."
    low = 0.0 if look.limits == "head" else panels[0].scale.low
    uniform = " (no preference)" if low > 0 and look.limits == "shared" else ""
    least = f" A {what} of {panels[0].quantity.text(low)} or less{uniform} has no line." if low > 0 else ""
    return f"A line joins a query (left) to a key (right); it is stronger for a larger {what}{most}.{least}{masked}"


def _fits_whole(head: ChosenHead, options: ReportOptions) -> bool:
    """True if all chosen keys of a head are few enough for one text."""
    grows = options.medium.one_page and options.look.inches is None
    count: int = head.keys.stop - head.keys.start
    return count <= (MAX_TEXT_TOKENS if grows else MAX_SCREEN_TOKENS)


def _whole_text(head: ChosenHead, query: int, options: ReportOptions) -> list[Panel]:
    """One panel of all chosen keys."""
    return [_row_panel(head, query, head.keys, options, f"{_quoted(head.maps.query_tokens, query)} attends to")]


def _places(head: ChosenHead, query: int, options: ReportOptions) -> list[Panel]:
    """Panels of the keys with the largest weights and the tokens around them, strongest first; near keys share one."""
    maps, keys = cell_maps(head.maps), head.keys
    window = maps.window((head.head,), slice(query, query + 1), keys)
    weights = np.where(window.visible[0], np.nan_to_num(window.weights[0, 0]), 0)
    best = [int(place) for place in np.argsort(-weights, kind="stable")[:PLACES] if weights[place] > 0]
    panels = []
    for group in _neighbours(best) or [[]]:
        middle = keys.start + (group or [0])[0]
        around = slice(max(middle - AROUND, keys.start), min(middle + AROUND + 1, keys.stop))
        quantity = quantity_of(maps, PERCENT)
        shares = ", ".join(
            f"{quantity.text(float(weights[place]))} to {_quoted(maps.key_tokens, keys.start + place)}"
            for place in group
        )
        title = f"{_quoted(maps.query_tokens, query)} attends {shares or 'to no key'}"
        panels.append(_row_panel(head, query, around, options, title))
    return panels


def _neighbours(places: list[int]) -> list[list[int]]:
    """The places in groups: a place joins the first group whose first place is at most ``AROUND`` tokens away."""
    groups: list[list[int]] = []
    for place in places:
        near = next((group for group in groups if abs(group[0] - place) <= AROUND), None)
        if near is None:
            groups.append([place])
        else:
            near.append(place)
    return groups


def _row_panel(head: ChosenHead, query: int, keys: slice, options: ReportOptions, title: str) -> Panel:
    """The panel of one query's weights over some keys."""
    row = replace(head, queries=slice(query, query + 1), keys=keys)
    [panel] = head_panels(row, [PERCENT], limit_cells(options, MAX_TEXT_TOKENS), title)
    return panel


def _with_linear_colors(look: Look) -> Look:
    """The look with linear colours by default, which tell the strongest lines and words apart."""
    return replace(look, color_scale=look.color_scale or "linear")


def _text_colormap(look: Look) -> str:
    """The default colormap of a text: one that starts at the page's background; a terminal's is not known."""
    return SEQUENTIAL if look.colors else TEXT_COLORMAPS[look.paper]


def _quoted(tokens: Tokens, place: int) -> str:
    """A token and its number; a mark keeps the number after a token that is written from right to left."""
    label = tokens.labels[place]
    mark = LEFT_TO_RIGHT if any(unicodedata.bidirectional(one) in ("R", "AL") for one in label) else ""
    return f"{quoted(label)}{mark} ({place})"


def _context(tokens: Tokens, query: int) -> str:
    """The remark that shows the query among the tokens around it."""
    labels = tokens.labels
    before, after = labels[max(query - AROUND, 0) : query], labels[query + 1 : query + 1 + AROUND]
    words = " ".join((*before, f"[{labels[query]}]", *after))
    return f"Around the query: {words}. The text is long; only the {PLACES} keys with the largest weights are shown."


def _queries_named(found: dict[LayerMaps, tuple[int, str]]) -> str:
    """The name of the query, or "one query of each text" if texts have different ones."""
    named = {_quoted(maps.query_tokens, place) for maps, (place, _) in found.items()}
    return named.pop() if len(named) == 1 else "one query of each text"


def _text_caption(recording: Recording, heads: list[ChosenHead], subject: str, panels: Sequence[Panel]) -> str:
    """The caption of a shaded text."""
    which = panels[0].group if len(heads) == 1 else heads_named(heads)
    keys = counted(heads[0].keys.stop - heads[0].keys.start, "keys")
    among = f"{keys}, in {which} of {model_name(recording)}{for_texts(heads)}"
    return f"What {subject} attends to among {among}{strongest_key(panels)}."


def _text_remarks(panels: Sequence[Panel]) -> tuple[str, ...]:
    masked = not all(panel.visible.all() for panel in panels)
    return ("Masked tokens have no shade: the query cannot see them.",) if masked else ()


def find_query(tokens: Tokens, name: str | None, called: str = "query") -> tuple[int, str]:
    """The position of the query named by a number or a token, and a remark if other tokens match too.

    Args:
        tokens: the tokens to search.
        name: a number, the label of a token or a word of the text; ``None`` takes the last token that is not padding.
        called: the word for it in messages, ``query`` or ``key``.

    Raises:
        AttnvizError: if no token has this number or label.
    """
    count = len(tokens)
    if name is None:
        return next((place for place in range(count - 1, 0, -1) if not is_padding(tokens, place)), 0), ""
    if re.fullmatch(r"\d{1,12}", name, re.ASCII) and name not in tokens.labels:
        if int(name) >= count:
            raise AttnvizError(f"no {called} {name} among {count} tokens; choose 0 to {count - 1}")
        return int(name), ""
    places = [place for place, label in enumerate(tokens.labels) if name in (label, label.strip("␣ "))]
    if not places:
        return find_word(tokens, name, called)
    others = ", ".join(map(str, places[1:6]))
    return places[0], f"“{name}” is also at {others}; use {option('query', places[1])} for that one." if others else ""
