"""The panels and exact numbers of chosen heads."""

from typing import Any

from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.report.colors import ColorScale
from attnviz.report.numbers import QUANTITIES, HeadCells
from attnviz.report.options import ReportOptions
from attnviz.report.panels import PERCENT, SCORE, WEIGHT, Panel, Quantity, token_axis
from attnviz.text.selection import resolve_span


def head_cells(sides: dict[str, LayerMaps], head: int, options: ReportOptions, **rest: Any) -> HeadCells:
    """The exact numbers of the chosen queries and keys of a head, of the chosen quantities."""
    maps = next(iter(sides.values()))
    return HeadCells(
        head=head,
        sides=sides,
        queries=resolve_span(options.selection.queries, len(maps.query_tokens), "queries"),
        keys=resolve_span(options.selection.keys, len(maps.key_tokens), "keys"),
        quantities={"scores": ("score",), "weights": ("weight",)}.get(options.table or "", QUANTITIES),
        **rest,
    )


def head_panels(
    maps: LayerMaps, head: int, quantities: list[Quantity], options: ReportOptions, title: str
) -> list[Panel]:
    """One panel for each quantity of a head: exact where every token has a cell, else pooled."""
    queries = _shown(resolve_span(options.selection.queries, len(maps.query_tokens), "queries"), options)
    keys = _shown(resolve_span(options.selection.keys, len(maps.key_tokens), "keys"), options)
    finest = maps.resolution(queries, keys)
    height, width = (min(options.medium.max_cells, most) for most in finest)
    rows = token_axis("queries", maps.query_tokens, queries, height, options.look.mark)
    columns = token_axis("keys", maps.key_tokens, keys, width, options.look.mark)
    if options.table is None and (rows.pooled or columns.pooled):
        largest = options.look.pool == "max"
        overview = maps.overview((head,), len(rows.labels), len(columns.labels), queries, keys, maximum=largest)
        pooled = overview.maximum[0] if largest else overview.mean[0]
        values, visible = {WEIGHT: pooled, PERCENT: pooled}, overview.visible
    else:
        window = cell_maps(maps).window((head,), queries, keys)
        values = {SCORE: window.scores[0], WEIGHT: window.weights[0], PERCENT: window.weights[0]}
        visible = window.visible
    return [
        Panel(
            title=f"{title} {quantity.name.split()[-1]}s" if len(quantities) > 1 else title,
            values=values[quantity],
            visible=visible,
            rows=rows,
            columns=columns,
            quantity=quantity,
            scale=ColorScale(0, 1),
            pool=options.look.pool,
            zooms=finest == (queries.stop - queries.start, keys.stop - keys.start),
        )
        for quantity in quantities
    ]


def _shown(span: slice, options: ReportOptions) -> slice:
    """The span, cut to the medium's cells in a table, whose numbers cannot be pooled."""
    return span if options.table is None else slice(span.start, min(span.stop, span.start + options.medium.max_cells))
