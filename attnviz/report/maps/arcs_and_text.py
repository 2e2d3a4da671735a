"""Turns a recording into a report of arcs, or of its text shaded by what one query attends to."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import ChosenHead
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.sound import Sound
from attnviz.report.maps.head_panels import head_panels
from attnviz.report.picture.colors import SEQUENTIAL, TEXT_COLORMAPS
from attnviz.report.picture.look import Look, style_without_numbers_error
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.overlays import MAX_OVERLAID
from attnviz.report.picture.panels import PERCENT, Heading, Panel, quantity_of
from attnviz.report.picture.report import Arcs, ShadedText
from attnviz.report.picture.scales import pool_remarks, scale_remarks, share_scales
from attnviz.report.words.captions import (
    ARC_SIDES,
    Notes,
    count_phrase,
    head_heading,
    head_phrase,
    heads_caption,
    heads_phrase,
    largest_key_clause,
    model_name,
    quoted_token,
    recording_remarks,
    report_title,
    texts_phrase,
)
from attnviz.text.places import find_place
from attnviz.text.tokens import Tokens, is_padding

MAX_HEADS, MAX_ARC_TOKENS = 16, 120
MAX_TEXT_TOKENS, MAX_SCREEN_TOKENS = 2000, 500  # longest text shown whole, on a page that grows and elsewhere
MIN_PREFERENCE = (
    1.5  # if the largest weight is this many times uniform attention, smaller ones than uniform get no line
)
LEFT_TO_RIGHT = "\u200e"
MAX_KEYS, CONTEXT_TOKENS = 8, 8  # for a longer text: the number of keys shown, and of tokens on either side of each


def arcs_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> Arcs:
    """Returns the report of every head as lines from its queries to its keys.

    Raises:
        AttnvizError: for a table, if there are more heads or tokens than arcs can show, or if the heads cannot share
            one picture that overlays them.
    """
    _refuse_undrawable(heads, options)
    panels = [_arcs_panel(head, options, head_heading(recording, head, notes.get(head.key, ""))) for head in heads]
    scaled_panels = _with_scale_from_uniform(share_scales(panels, _with_linear_colors(options.look)), options.look)
    return Arcs(
        title=report_title(recording, options.look),
        panels=scaled_panels,
        caption=heads_caption(recording, heads, panels, ARC_SIDES),
        remarks=(
            _arcs_remark(scaled_panels, options.look),
            *scale_remarks(options.look),
            *pool_remarks(options.look, scaled_panels),
            *recording_remarks(recording),
        ),
        look=options.look,
        about={"recording": origin(recording)},
    )


def text_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> ShadedText:
    """Returns the report of what one query attends to in every head: the shaded text, or the top keys of a long text.

    Raises:
        AttnvizError: for a table, if there are more heads than such a picture can show, if the heads cannot share one
            picture that overlays them, or if the query does not exist.
    """
    _refuse_undrawable(heads, options)
    look, first_head = options.look, heads[0]
    query_of_maps = {head.maps: _chosen_query(head, look.query) for head in heads}  # with a remark on the query
    grows = options.medium.one_page and look.inches is None
    max_keys = MAX_TEXT_TOKENS if grows else MAX_SCREEN_TOKENS
    is_sound = isinstance(first_head.maps.key_tokens.canvas, Sound)  # whose frames are one strip, however many
    is_one_text = is_sound or first_head.keys.stop - first_head.keys.start <= max_keys
    row_panels = _whole_text_panels if is_one_text else _panels_around_strongest_keys
    panels = []
    for head in heads:
        heading = head_heading(recording, head)
        head_query, _ = query_of_maps[head.maps]
        panels += row_panels(head, head_query, options, heading)
    query, query_remark = query_of_maps[first_head.maps]
    remarks = [query_remark] if query_remark else []
    if not is_one_text:
        labels = first_head.maps.query_tokens.labels
        before, after = labels[max(query - CONTEXT_TOKENS, 0) : query], labels[query + 1 : query + 1 + CONTEXT_TOKENS]
        words = " ".join((*before, f"[{labels[query]}]", *after))
        remarks.append(
            f"Around the query: {words}. The text is long; only the {MAX_KEYS} keys with the largest weights are shown."
        )
    if not all(panel.visible.all() for panel in panels):
        remarks.append("Masked tokens have no shade: the query cannot see them.")
    # In a terminal colours stand on its background, elsewhere they begin at that of the page.
    colormap = SEQUENTIAL if look.colors else TEXT_COLORMAPS[look.drawn_theme]
    names = {_quoted_token(maps.query_tokens, query) for maps, (query, _) in query_of_maps.items()}
    subject = names.pop() if len(names) == 1 else "one query of each text"
    heads_text = head_phrase(recording, first_head) if len(heads) == 1 else heads_phrase(heads)
    keys = count_phrase(first_head.keys.stop - first_head.keys.start, "keys")
    keys_text = f"{keys}, in {heads_text} of {model_name(recording)}{texts_phrase(heads)}"
    return ShadedText(
        title=report_title(recording, look),
        panels=share_scales(panels, _with_linear_colors(look), colormap),
        caption=f"What {subject} attends to among {keys_text}{largest_key_clause(panels)}.",
        remarks=(*remarks, *scale_remarks(look), *pool_remarks(look, panels), *recording_remarks(recording)),
        look=look,
        about={"recording": origin(recording)},
    )


def _refuse_undrawable(heads: list[ChosenHead], options: ReportOptions) -> None:
    """Raises AttnvizError for a table, for more than `MAX_HEADS` heads, or for heads that cannot be overlaid."""
    style = option("style", options.look.style or options.look.drawn_style)
    if options.look.overlaid:
        _refuse_unfit_overlay(heads, style)
    if options.table is not None:
        raise style_without_numbers_error(options.look)
    if len(heads) > MAX_HEADS:
        example = option("heads", "0.3,1.2")
        raise AttnvizError(f"{style} draws up to {MAX_HEADS} heads, not {len(heads)}; choose some, such as {example}")


def _refuse_unfit_overlay(heads: list[ChosenHead], style: str) -> None:
    """Raises AttnvizError unless there are two to `MAX_OVERLAID` heads over the same tokens."""
    if not 2 <= len(heads) <= MAX_OVERLAID:
        example = option("heads", "0.3,1.2")
        raise AttnvizError(
            f"{style} draws two to {MAX_OVERLAID} heads, not {len(heads)}; choose some, such as {example}"
        )
    if len({(head.maps.query_tokens.labels, head.maps.key_tokens.labels) for head in heads}) > 1:
        raise AttnvizError(
            f"{style} needs heads over the same tokens; choose heads of one text and one kind of attention"
        )


def _arcs_panel(head: ChosenHead, options: ReportOptions, heading: Heading) -> Panel:
    """Returns the panel of a head whose cells are drawn as lines."""
    [panel] = head_panels(head, [PERCENT], limit_cells(options, MAX_ARC_TOKENS), heading)
    if panel.pooled:
        count = max(axis.edges[-1] - axis.edges[0] for axis in (panel.rows, panel.columns))
        raise AttnvizError(
            f"{option('style', 'arcs')} draws up to {MAX_ARC_TOKENS} tokens, not {count}; "
            f"use {option('queries', '0:40')} {option('keys', '0:40')}"
        )
    return panel


def _with_scale_from_uniform(panels: tuple[Panel, ...], look: Look) -> tuple[Panel, ...]:
    """Returns the panels with scales that begin at uniform attention, so that smaller weights get no line."""
    visible_counts = [
        panel.visible_key_counts.max()
        for panel in panels
        if panel.visible_key_counts is not None and panel.quantity.is_weight
    ]
    if look.limits != "shared" or len(visible_counts) < len(panels):
        return panels
    low, high = 1 / float(max(visible_counts)), panels[0].scale.high
    if high < MIN_PREFERENCE * low:
        return panels
    return tuple(replace(panel, scale=replace(panel.scale, low=low)) for panel in panels)


def _arcs_remark(panels: Sequence[Panel], look: Look) -> str:
    """Returns the remark on how lines show weights, and on the weights and pairs that have no line."""
    largest = panels[0].quantity.text(max(panel.peak for panel in panels))
    noun = panels[0].quantity.noun
    up_to = f", up to {largest}" if look.limits == "shared" else ""
    masked_remark = "" if all(panel.visible.all() for panel in panels) else " Masked pairs have no line."
    low = 0.0 if look.limits == "head" else panels[0].scale.low
    uniform = " (no preference)" if low > 0 and look.limits == "shared" else ""
    no_line = f" A {noun} of {panels[0].quantity.text(low)} or less{uniform} has no line." if low > 0 else ""
    strength = f"it is stronger for a larger {noun}{up_to}"
    return f"A line joins a query (left) to a key (right); {strength}.{no_line}{masked_remark}"


def _whole_text_panels(head: ChosenHead, query: int, options: ReportOptions, heading: Heading) -> list[Panel]:
    """Returns the panel of one query's weights over all chosen keys, in a list."""
    aspect = f": {_quoted_token(head.maps.query_tokens, query)} attends to"
    return [_row_panel(head, query, head.keys, options, replace(heading, aspect=aspect))]


def _panels_around_strongest_keys(
    head: ChosenHead, query: int, options: ReportOptions, heading: Heading
) -> list[Panel]:
    """Returns panels of the keys with the largest weights, each with the tokens around it; near keys share a panel."""
    maps, keys = cell_maps(head.maps), head.keys
    window = maps.window((head.head,), slice(query, query + 1), keys)
    weights = np.where(window.visible[0], np.nan_to_num(window.weights[0, 0]), 0)
    # Counted from the first chosen key, the largest weight first.
    strongest_keys = [int(key) for key in np.argsort(-weights, kind="stable")[:MAX_KEYS] if weights[key] > 0]
    panels = []
    for group in _groups_of_near_keys(strongest_keys) or [[]]:  # an empty group: the start of the keys
        center = keys.start + (group[0] if group else 0)
        context = slice(max(center - CONTEXT_TOKENS, keys.start), min(center + CONTEXT_TOKENS + 1, keys.stop))
        quantity = quantity_of(maps, PERCENT)
        shares = ", ".join(
            f"{quantity.text(float(weights[key]))} to {_quoted_token(maps.key_tokens, keys.start + key)}"
            for key in group
        )
        aspect = f": {_quoted_token(maps.query_tokens, query)} attends {shares or 'to no key'}"
        panels.append(_row_panel(head, query, context, options, replace(heading, aspect=aspect)))
    return panels


def _groups_of_near_keys(keys: list[int]) -> list[list[int]]:
    """Returns the keys in groups; empty without keys."""
    groups: list[list[int]] = []
    for key in keys:
        near_group = next((group for group in groups if abs(group[0] - key) <= CONTEXT_TOKENS), None)
        if near_group is None:
            groups.append([key])
        else:
            near_group.append(key)
    return groups


def _row_panel(head: ChosenHead, query: int, keys: slice, options: ReportOptions, heading: Heading) -> Panel:
    """Returns the panel of one query's weights over a range of keys, pooled above `MAX_TEXT_TOKENS` keys."""
    row_head = replace(head, queries=slice(query, query + 1), keys=keys)
    [panel] = head_panels(row_head, [PERCENT], limit_cells(options, MAX_TEXT_TOKENS), heading, heading.head)
    return panel


def _with_linear_colors(look: Look) -> Look:
    """Returns the look with linear colours, which tell strong lines and words apart; unchanged if it names others."""
    return replace(look, color_scale=look.color_scale or "linear")


def _quoted_token(tokens: Tokens, index: int) -> str:
    """Returns a token in quotes and its number; a mark keeps the number after a token that is written right to left."""
    label = tokens.labels[index]
    mark = LEFT_TO_RIGHT if any(unicodedata.bidirectional(character) in ("R", "AL") for character in label) else ""
    return f"{quoted_token(label)}{mark} ({index})"


def _chosen_query(head: ChosenHead, name: str | None) -> tuple[int, str]:
    """Returns the index of the query with this name, and a remark on how the name was understood; "" if it is clear."""
    tokens = head.maps.query_tokens
    start, stop = head.queries.start, head.queries.stop
    if name is None:
        return next((index for index in range(stop - 1, start, -1) if not is_padding(tokens, index)), start), ""
    query, remark = find_place(tokens, name)
    if not start <= query < stop:
        raise AttnvizError(
            f"query {query} is not among {option('queries', f'{start}:{stop}')}; leave {option('queries')} out"
        )
    return query, remark
