"""Turns a recording into a report of what one query looks at in a text: in chosen heads, or in all of them at once."""

import math
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.media.sound import Sound
from attnviz.report.maps.head_panels import drawn, head_panels, with_fewer_remarks
from attnviz.report.maps.rows import MAX_HEADS, refuse_undrawable, with_linear_colors
from attnviz.report.picture.options import ReportOptions, limit_cells
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel, quantity_of
from attnviz.report.picture.report import DrawnReport
from attnviz.report.picture.scales import pool_remarks, scale_remarks, share_scales
from attnviz.report.picture.structure import RowOfHeads, left_out_keys
from attnviz.report.words.captions import (
    Notes,
    count_phrase,
    head_heading,
    head_phrase,
    heads_phrase,
    largest_key_clause,
    model_name,
    numbered_token,
    texts_phrase,
)
from attnviz.text.named_groups import singular
from attnviz.text.places import find_place
from attnviz.text.tokens import is_padding

MAX_TEXT_TOKENS, MAX_SCREEN_TOKENS = 2000, 500  # longest text shown whole, on a page that grows and elsewhere
MAX_KEYS, CONTEXT_TOKENS = 8, 8  # for a longer text: the number of keys shown, and of tokens on either side of each
MAX_TELLING_HEADS = 4  # beside the mean of many heads
MAX_EXCERPTS = 3  # of a long text, around the strongest keys of the mean
MEAN_WEIGHT = "mean weight"
MAX_ROWS, MAX_COLUMNS = 24, 4  # of heads with a row each, below each other until the page is full, and side by side


def text_report(recording: Recording, heads: list[ChosenHead], options: ReportOptions, notes: Notes) -> DrawnReport:
    """Returns the report of what one query attends to in every head: its text, or the top keys of a long one.

    Of many heads, none of which the user chose, it is their mean and the heads that look at a key most clearly.
    """
    look, first_head = options.look, heads[0]
    is_sound = isinstance(first_head.maps.key_tokens.canvas, Sound)  # whose frames are one strip, however many
    if len(heads) > MAX_HEADS and not (options.chooses_heads or options.medium.has_slides or look.overlaid or is_sound):
        query, query_remark = _chosen_query(first_head, look.query)
        if row := RowOfHeads.of(heads, query, sets_apart=not options.chooses_keys):
            report = row_report(recording, row, options, notes)
            return replace(report, remarks=(*filter(None, [query_remark]), *report.remarks))
    refuse_undrawable(heads, options)
    query_of_maps = {head.maps: _chosen_query(head, look.query) for head in heads}  # with a remark on the query
    grows = options.medium.one_page and look.inches is None
    max_keys = MAX_TEXT_TOKENS if grows else MAX_SCREEN_TOKENS
    is_one_text = is_sound or first_head.keys.stop - first_head.keys.start <= max_keys
    panels = []
    for head in heads:
        heading = head_heading(recording, head)
        head_query, _ = query_of_maps[head.maps]
        if is_one_text:
            aspect = f": {numbered_token(head.maps.query_tokens, head_query)} attends to"
            panels.append(_row_panel(head, head_query, head.keys, options, replace(heading, aspect=aspect)))
        else:
            panels += _panels_around_strongest_keys(head, head_query, options, heading)
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
    names = {numbered_token(maps.query_tokens, query) for maps, (query, _) in query_of_maps.items()}
    subject = names.pop() if len(names) == 1 else "one query of each text"
    heads_text = head_phrase(recording, first_head) if len(heads) == 1 else heads_phrase(heads)
    keys = count_phrase(first_head.keys.stop - first_head.keys.start, "keys")
    keys_text = f"{keys}, in {heads_text} of {model_name(recording)}{texts_phrase(heads)}"
    return drawn(
        "text",
        recording,
        look,
        share_scales(panels, with_linear_colors(look)),
        f"What {subject} attends to among {keys_text}{largest_key_clause(panels)}.",
        (*remarks, *scale_remarks(look), *pool_remarks(look, panels)),
    )


def row_report(
    recording: Recording, row: RowOfHeads, options: ReportOptions, notes: Notes, summary: str = ""
) -> DrawnReport:
    """Returns the report of what one query looks at in all heads: on average, and in the heads that tell most.

    The text is whole if it fits the screen with one head at least, else the strongest keys stand in what is around
    them. ``summary`` says what the heads do.
    """
    look, heads = options.look, row.heads
    fits = options.medium.fits or (lambda report: True)
    grows = options.medium.one_page and look.inches is None
    key_count = heads[0].keys.stop - heads[0].keys.start
    telling_heads = row.telling_heads[:MAX_TELLING_HEADS]
    head_counts = list(range(len(telling_heads), -1, -1))
    variants: list[tuple[int | None, int]] = []  # excerpts, or the whole text, and heads
    if key_count <= (MAX_TEXT_TOKENS if grows else MAX_SCREEN_TOKENS):
        variants += [(None, count) for count in head_counts if count or not telling_heads]
    variants += [(MAX_EXCERPTS, count) for count in head_counts]
    variants += [(count, 0) for count in range(MAX_EXCERPTS - 1, 0, -1)]
    title = f"mean of {len(heads)} heads"
    query = numbered_token(heads[0].maps.query_tokens, row.query)
    for excerpts, head_count in variants:
        panels = _mean_panels(row, excerpts, options, title)
        for index in telling_heads[:head_count]:
            heading = head_heading(recording, heads[index], notes.get(heads[index].key, ""))
            weights, visible = row.weights[index], row.visible[index] & ~row.set_apart
            panels += _panels_of_row(heads[index], row.query, weights, visible, excerpts and 1, options, heading)
        in_heads = f" and in {head_count} heads" if head_count > 1 else " and in one head" if head_count else ""
        clauses = [f"{len(heads)} heads of {model_name(recording)}"] + ([f": {summary}"] if summary else [])
        shown = f"showing what {query} looks at among {count_phrase(key_count, 'keys')}, on average{in_heads}"
        example = option("heads", heads[(telling_heads or [0])[0]].name)
        advice = f"Use {example} for its map, {option('all', True)} for all; attnviz heads lists what each does."
        colored_panels = share_scales(panels, with_linear_colors(look))
        report = drawn(
            "text",
            recording,
            look,
            colored_panels,
            f"{''.join(clauses)}; {shown}.",
            (*(() if options.medium.has_lines else (advice,)), *scale_remarks(look), *pool_remarks(look, panels)),
            answer=row.text(singular(options.grouping.units)),
        )
        for candidate in with_fewer_remarks(report, options.medium.masked_look):
            if fits(candidate):
                return candidate
    return candidate


def token_report(
    recording: Recording,
    heads: list[ChosenHead],
    options: ReportOptions,
    token: int,
    other_token: int | None = None,
    *,
    is_query: bool = True,
) -> DrawnReport:
    """Returns the report of one token's weights in all heads, with a row for each head that shows the token.

    A query's row has a cell for each key, a key's row one for each query; ``other_token`` is outlined among these.
    """
    left_out = left_out_keys(heads) if is_query and other_token is None and not options.chooses_keys else None
    across = min(math.ceil(len(heads) / MAX_ROWS), MAX_COLUMNS)
    row_options = limit_cells(options, max(options.medium.max_cells // across, 1))
    rows_of_all_tokens = []
    for head in heads:
        selected_tokens = head.queries if is_query else head.keys
        if not selected_tokens.start <= token < selected_tokens.stop:
            continue
        span = slice(token, token + 1)
        restricted_head = replace(head, queries=span) if is_query else replace(head, keys=span)
        [panel] = head_panels(restricted_head, [PERCENT], row_options, Heading(head.name), left_out=left_out)
        if not is_query:
            values, visible, columns = panel.values.T, panel.visible.T, replace(panel.rows, across=True)
            panel = replace(panel, values=values, visible=visible, columns=columns)
        rows_of_all_tokens.append(replace(panel, visible_key_counts=None))
    rows = [row for row in rows_of_all_tokens if row.columns.labels == rows_of_all_tokens[0].columns.labels]
    label = (heads[0].maps.query_tokens if is_query else heads[0].maps.key_tokens).labels[token]
    if not rows:
        axis = "queries" if is_query else "keys"
        raise AttnvizError(f"“{label}” is not among the {axis} shown; leave {option(axis)} out")
    subject = f"What “{label}” attends to" if is_query else f"What attends to “{label}”"
    in_heads = "all heads" if len(rows) == len(heads) else f"{len(rows)} of {len(heads)} heads"
    other_count = len(rows_of_all_tokens) - len(rows)
    heads_left_out = "1 head" if other_count == 1 else f"{other_count} heads"

    # Whole layers stand below each other, in a few columns.
    heads_of_layer = sum(head.maps.layer == heads[0].maps.layer for head in heads)
    size = math.ceil(len(rows) / across / heads_of_layer) * heads_of_layer
    panels = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        names = tuple(row.heading.name for row in part)
        title = f"heads {names[0]} to {names[-1]}" if size < len(rows) else f"{subject} in {in_heads}"
        stacked_panel = replace(
            part[0],
            heading=Heading(title),
            values=np.concatenate([row.values for row in part]),
            visible=np.concatenate([row.visible for row in part]),
            rows=Axis("heads", names, tuple(range(len(part) + 1))),
            marked=(None, other_token),
        )
        panels.append(stacked_panel)
    return drawn(
        "maps",
        recording,
        options.look,
        share_scales(panels, options.look),
        f"{subject} in {in_heads} of {model_name(recording)}, one row per head.",
        (
            *((left_out.sentence,) if left_out is not None else ()),
            *((f"Without {heads_left_out} over other tokens.",) if other_count else ()),
        ),
    )


def _mean_panels(row: RowOfHeads, count: int | None, options: ReportOptions, title: str) -> list[Panel]:
    """Returns the panels of the mean row, whose numbers have a colour scale of their own."""
    visible = row.visible.any(axis=0) & ~row.set_apart
    panels = _panels_of_row(row.heads[0], row.query, row.mean, visible, count, options, Heading(title))
    return [replace(panel, quantity=panel.quantity.with_name(MEAN_WEIGHT), visible_key_counts=None) for panel in panels]


def _panels_of_row(
    head: ChosenHead,
    query: int,
    weights: Float64Array,
    visible: BoolArray,
    count: int | None,
    options: ReportOptions,
    heading: Heading,
) -> list[Panel]:
    """Returns the panel of a row of weights, ``(keys,)``, or the panels around its strongest keys."""
    keys = head.keys
    parts: list[tuple[slice, list[int]]] = [(keys, [])]
    if count is not None:
        parts = text_excerpts(np.where(visible, weights, 0)[keys], keys, count)
    panels = []
    for context, strongest_keys in parts:
        shares = ", ".join(
            f"{PERCENT.text(float(weights[key]))} at {numbered_token(head.maps.key_tokens, key)}"
            for key in strongest_keys
        )
        panel = _row_panel(head, query, context, options, replace(heading, aspect=f": {shares}" if shares else ""))
        values = weights[None, context].astype(np.float32)
        panels.append(replace(panel, values=values, visible=visible[None, context]))
    return panels


def _panels_around_strongest_keys(
    head: ChosenHead, query: int, options: ReportOptions, heading: Heading
) -> list[Panel]:
    """Returns panels of the keys with the largest weights, each with the tokens around it; near keys share a panel."""
    maps, keys = cell_maps(head.maps), head.keys
    window = maps.window((head.head,), slice(query, query + 1), keys)
    weights = np.where(window.visible[0], np.nan_to_num(window.weights[0, 0]), 0)
    quantity = quantity_of(maps, PERCENT)
    panels = []
    for context, strongest_keys in text_excerpts(weights, keys, MAX_KEYS):
        shares = ", ".join(
            f"{quantity.text(float(weights[key - keys.start]))} to {numbered_token(maps.key_tokens, key)}"
            for key in strongest_keys
        )
        aspect = f": {numbered_token(maps.query_tokens, query)} attends {shares or 'to no key'}"
        panels.append(_row_panel(head, query, context, options, replace(heading, aspect=aspect)))
    return panels


def text_excerpts(weights: FloatArray | Float64Array, keys: slice, count: int) -> list[tuple[slice, list[int]]]:
    """Returns the strongest keys of a row in groups of near ones, each with the keys around it, the strongest first.

    Without a weight above 0 it is the start of the keys, with no strongest key.
    """
    groups: list[list[int]] = []
    for index in np.argsort(-weights, kind="stable")[:count].tolist():
        if weights[index] > 0:
            near_group = next((group for group in groups if abs(group[0] - index) <= CONTEXT_TOKENS), None)
            if near_group is None:
                groups.append([index])
            else:
                near_group.append(index)
    excerpts = []
    for group in groups or [[]]:
        center = keys.start + (group[0] if group else 0)
        context = slice(max(center - CONTEXT_TOKENS, keys.start), min(center + CONTEXT_TOKENS + 1, keys.stop))
        excerpts.append((context, [keys.start + index for index in group]))
    return excerpts


def _row_panel(head: ChosenHead, query: int, keys: slice, options: ReportOptions, heading: Heading) -> Panel:
    """Returns the panel of one query's weights over a range of keys, pooled above `MAX_TEXT_TOKENS` keys."""
    row_head = replace(head, queries=slice(query, query + 1), keys=keys)
    [panel] = head_panels(row_head, [PERCENT], limit_cells(options, MAX_TEXT_TOKENS), heading, heading.head)
    return panel


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
