"""Builds the panels and the exact numbers of chosen heads."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.base.progress import track
from attnviz.maps.layer_maps import cell_maps, mean_visible_key_counts
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, SCORE, WEIGHT, Heading, Panel, Quantity, quantity_of, token_axis
from attnviz.report.picture.report import DrawingKind, DrawnReport, origin
from attnviz.report.picture.scales import LIFTED, scale_remarks
from attnviz.report.picture.structure import LeftOutKeys
from attnviz.report.words.captions import (
    Notes,
    exactness_remarks,
    head_heading,
    mark_remarks,
    masked_remark,
    panel_remarks,
    recording_remarks,
    report_title,
)


def drawn(
    kind: DrawingKind,
    recording: Recording,
    look: Look,
    panels: Iterable[Panel],
    caption: str,
    remarks: Iterable[str],
    title: str = "",
    **fields: Any,
) -> DrawnReport:
    """Returns a report that draws panels of a recording; adds the recording's title, remarks and origin."""
    return DrawnReport(
        kind=kind,
        title=title or report_title(recording, look),
        panels=tuple(panels),
        caption=caption,
        remarks=(*remarks, *recording_remarks(recording)),
        look=look,
        checks=exactness_remarks(recording),
        for_audience=dict.fromkeys(recording.advice, ""),
        **{"about": {"recording": origin(recording)}, **fields},
    )


def map_remarks(panels: Sequence[Panel], options: ReportOptions) -> tuple[str, ...]:
    """Returns the remarks on labels, cells and colours."""
    look, masked_look = options.look, options.medium.masked_look
    return (*mark_remarks(look.mark, panels), *panel_remarks(panels, masked_look), *scale_remarks(look, panels))


def with_fewer_remarks(report: DrawnReport, masked_look: str) -> Iterator[DrawnReport]:
    """Yields the report, then one without remarks on exact weights, then one also without those on masks and
    colours.
    """
    yield report
    for omitted_remarks in (report.checks, (*report.checks, masked_remark(masked_look), LIFTED)):
        yield replace(report, remarks=tuple(remark for remark in report.remarks if remark not in omitted_remarks))


def titled_panels(
    recording: Recording,
    heads: list[ChosenHead],
    quantities: list[Quantity],
    options: ReportOptions,
    notes: Notes,
) -> list[Panel]:
    """Returns the panels of these heads, titled with name and note; `share_scales` must set their colour scales."""
    return [
        panel
        for head in track(heads, "pooling heads")
        for panel in head_panels(head, quantities, options, head_heading(recording, head, notes.get(head.key, "")))
    ]


def head_panels(
    head: ChosenHead,
    quantities: list[Quantity],
    options: ReportOptions,
    heading: Heading,
    group: str = "",
    left_out: LeftOutKeys | None = None,
) -> list[Panel]:
    """Returns one panel for each quantity of a head, pooled if the tokens outnumber the medium's cells.

    Panels of a table are not pooled, but cut to the medium's cells. Keys that are left out have no column at the ends,
    and a blank one between others, or none of their own if the panel is pooled. `share_scales` must set the colour
    scales.
    """
    maps, look = head.maps, options.look
    queries, keys = head.queries, head.keys
    if left_out is not None:
        other_keys = np.flatnonzero(~left_out.among(maps.key_tokens, keys)) + keys.start
        keys = slice(int(other_keys[0]), int(other_keys[-1]) + 1)
    if options.table is not None:  # whose numbers cannot be pooled
        queries, keys = (
            slice(span.start, min(span.stop, span.start + options.medium.max_cells)) for span in (queries, keys)
        )
    resolution = maps.resolution(queries, keys)
    block_sizes = (math.ceil(count / min(options.medium.max_cells, count)) for count in resolution)
    row_count, column_count = (math.ceil(count / size) for count, size in zip(resolution, block_sizes, strict=True))
    over_blocks = maps.pooled_source is not maps
    rows = token_axis(
        "blocks of queries" if over_blocks else "queries", maps.query_tokens, queries, row_count, look.mark
    )
    columns_name = "blocks of keys" if over_blocks else "keys"
    columns = token_axis(columns_name, maps.key_tokens, keys, column_count, look.mark, across=True)
    if options.table is None and (rows.pooled or columns.pooled):
        pools_maximum = look.pool == "max"
        overview = maps.overview(
            (head.head,), len(rows.labels), len(columns.labels), queries, keys, maximum=pools_maximum
        )
        pooled_weights = overview.maximum[0] if pools_maximum else overview.mean[0]
        values, visible = {WEIGHT: pooled_weights, PERCENT: pooled_weights}, overview.visible
    else:
        window = cell_maps(maps).window((head.head,), queries, keys)
        values = {SCORE: window.scores[0], WEIGHT: window.weights[0], PERCENT: window.weights[0]}
        visible = window.visible
    if left_out is not None and not columns.pooled:
        visible = visible & ~left_out.among(maps.key_tokens, keys)
    visible_counts = mean_visible_key_counts(maps, head.head, rows.edges) if maps.quantity == "weight" else None
    visible_key_counts = None if visible_counts is None else visible_counts.astype(np.float32)
    return [
        Panel(
            heading=replace(heading, aspect=f" {quantity.plural}") if len(quantities) > 1 else heading,
            values=values[quantity],
            visible=visible,
            rows=rows,
            columns=columns,
            quantity=quantity_of(maps, quantity),
            scale=ColorScale(0, 1),  # a placeholder
            group=group,
            pool=look.pool,
            visible_key_counts=visible_key_counts,
            units="blocks" if over_blocks else "tokens",
            zooms=not over_blocks and resolution == (queries.stop - queries.start, keys.stop - keys.start),
        )
        for quantity in quantities
    ]
