"""Heads drawn otherwise than as heatmaps: as arcs, or as their text shaded by what one query attends to."""

import re
from dataclasses import replace

from attnviz.captions import head_title
from attnviz.chosen import head_panels
from attnviz.errors import AttnvizError
from attnviz.maps import LayerMaps, Recording
from attnviz.panels import PERCENT, Panel
from attnviz.report_options import ReportOptions
from attnviz.tokens import Tokens

MOST_STYLED, MOST_ARCS, MOST_WORDS = 16, 120, 2000  # heads as arcs or text, tokens as arcs, tokens as text


def styled_panels(
    recording: Recording, heads: list[tuple[LayerMaps, int]], options: ReportOptions
) -> tuple[list[Panel], list[str]]:
    """The panels of heads drawn as arcs or as text, and what a reader must know about them.

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
    build = _arcs_panel if style == "arcs" else _text_panel
    drawn = [build(maps, head, options, head_title(recording, maps, head)) for maps, head in heads]
    return [panel for panel, _ in drawn], [*dict.fromkeys(remark for _, remark in drawn if remark)]


def styled_remarks(style: str, panels: tuple[Panel, ...]) -> list[str]:
    """How lines and shades are read."""
    absent = not all(panel.visible.all() for panel in panels)
    if style == "text":
        return ["Tokens without a colour are masked: the query may not look at them."] if absent else []
    most = panels[0].quantity.text(panels[0].scale.high)
    ends = f", the strongest {most}" if len({panel.scale for panel in panels}) == 1 else ""
    masked = " Masked pairs have no line." if absent else ""
    return [f"A line joins a query (left) to a key (right), the stronger the larger the weight{ends}.{masked}"]


def _arcs_panel(maps: LayerMaps, head: int, options: ReportOptions, title: str) -> tuple[Panel, str]:
    [panel] = head_panels(maps, head, [PERCENT], replace(options, max_cells=MOST_ARCS), title)
    if panel.rows.pooled or panel.columns.pooled:
        count = max(panel.rows.edges[-1], panel.columns.edges[-1])
        raise AttnvizError(
            f"--style arcs draws up to {MOST_ARCS} tokens, not {count}; --queries 0:40 --keys 0:40 works"
        )
    return panel, ""


def _text_panel(maps: LayerMaps, head: int, options: ReportOptions, title: str) -> tuple[Panel, str]:
    """The row of one query, and what a reader must know about which it is."""
    query, remark = find_query(maps.query_tokens, options.look.query)
    chosen = replace(options.selection, queries=(query, query + 1))
    whole = replace(options, selection=chosen, max_cells=MOST_WORDS)
    [panel] = head_panels(maps, head, [PERCENT], whole, title)
    if panel.columns.pooled:
        count = panel.columns.edges[-1]
        raise AttnvizError(f"--style text draws up to {MOST_WORDS} tokens, not {count}; --keys 0:500 works")
    return replace(panel, title=f"{title}: “{maps.query_tokens.labels[query]}” ({query}) attends to"), remark


def find_query(tokens: Tokens, wanted: str | None) -> tuple[int, str]:
    """The position of the query that was asked for by number or by token, and a remark where others are as good.

    Raises:
        AttnvizError: if there is none.
    """
    count = len(tokens)
    if wanted is None:
        return count - 1, ""
    if re.fullmatch(r"\d{1,12}", wanted, re.ASCII) and wanted not in tokens.labels:
        if int(wanted) >= count:
            raise AttnvizError(f"no query {wanted}; there are {count}, so 0 to {count - 1} works")
        return int(wanted), ""
    places = [place for place, label in enumerate(tokens.labels) if wanted in (label, label.strip("␣ "))]
    if not places:
        raise AttnvizError(f"no query {wanted!r} among the tokens; a number from 0 to {count - 1} works")
    others = ", ".join(map(str, places[1:6]))
    return places[0], f"“{wanted}” is also at {others}; --query {places[1]} takes that one." if others else ""
