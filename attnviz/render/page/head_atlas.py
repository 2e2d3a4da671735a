"""Writes the atlas as one page: a coloured table of layers by heads for each metric, and the table of all heads.

The page has no script and loads nothing: its cells are text, coloured by the classes of its style sheet.
"""

import html
import math
from typing import IO

from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.render.page.one_file import digest_of, themed
from attnviz.report.picture.colors import colormap, ink_on
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import HeadAtlas

SHADE_CLASSES = 64  # number of CSS classes for colours
POLICY = "default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'"
STYLE = """:root { color-scheme: light dark; --paper: #fff; --ink: #1d2027; --dim: #5c6370; --line: #d9dce3 }
@media (prefers-color-scheme: dark) { :root { --paper: #14161b; --ink: #e7e9ee; --dim: #9aa1ad; --line: #343944 } }
body { margin: 1.5rem auto; padding: 0 1rem; max-width: 90rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif }
h1 { font-size: 1.3rem } h2 { font-size: 1rem; margin: 0 } p { margin: .3rem 0; max-width: 60rem }
.dim, figcaption { color: var(--dim) }
.atlas { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); gap: 1.6rem;
  margin: 1.5rem 0 } .atlas figure { margin: 0; max-width: 100% }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums }
th { font-weight: normal; color: var(--dim) } td, th { padding: 2px 6px; text-align: right }
.atlas td { min-width: 2.2em; border: 1px solid var(--paper) }
.heads td { border-top: 1px solid var(--line) } .heads :is(td, th):nth-child(-n+2) { text-align: left }
.heads td:nth-child(2) { white-space: nowrap }
"""


def write_atlas(report: HeadAtlas, file: IO[bytes]) -> None:
    """Writes the atlas as a page; the same report gives the same bytes."""
    papers = colormap(report.panels[0].scale.colormap if report.panels else "viridis")
    shades = papers[[round(shade * (len(papers) - 1) / (SHADE_CLASSES - 1)) for shade in range(SHADE_CLASSES)]]
    classes = (
        f".c{shade} {{ background: #{bytes(paper).hex()}; color: #{bytes(ink).hex()} }}\n"
        for shade, (paper, ink) in enumerate(zip(shades.tolist(), ink_on(shades).tolist(), strict=True))
    )
    style = themed(STYLE, report.look) + "".join(classes)
    rows = {row.name: row for row in report.results.rows}
    metrics = {metric.name: metric for metric in report.results.applicable}
    lines = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(style=digest_of(style))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(report.title)}</title><style>{style}</style></head><body><main>",
        f"<h1>{html.escape(report.title)}</h1><p>{html.escape(report.caption)}</p>",
        *(f'<p class="dim">{html.escape(remark)}</p>' for remark in report.remarks),
        '<div class="atlas">',
        *(_metric_table(panel, metrics[panel.title], rows) for panel in report.panels),
        "</div>",
        _heads_table(report.results),
        "</main></body></html>\n",
    )
    file.write("\n".join(lines).encode())


def _metric_table(panel: Panel, metric: Measure, rows: dict[str, HeadRow]) -> str:
    limits = " to ".join(panel.quantity.cell(end) for end in (panel.scale.low, panel.scale.high))
    description = f"{metric.meaning}; {metric.unit}, coloured from {limits}"
    header = "".join(f"<th>{html.escape(label)}</th>" for label in panel.columns.labels)
    shades = panel.scale.fraction(panel.values) * (SHADE_CLASSES - 1)
    body = []
    for row_index, layer in enumerate(panel.rows.labels):
        cells = []
        for column_index, head in enumerate(panel.columns.labels):
            value, shade = float(panel.values[row_index, column_index]), float(shades[row_index, column_index])
            number, _, kind = layer.partition(" ")  # a layer's label is as in names, perhaps with its kind
            name = f"{number}.{head}"
            cells.append(_cell_html(panel, f"{name} {kind}".rstrip(), value, shade, rows.get(name)))
        body.append(f"<tr><th>{html.escape(layer)}</th>{''.join(cells)}</tr>")
    return (
        f"<figure><h2>{html.escape(panel.title)}</h2><figcaption>{html.escape(description)}</figcaption>"
        f"{_scrolling_tag(panel.title)}<table><tr><th>layer\\head</th>{header}</tr>{''.join(body)}</table></div></figure>"
    )


def _scrolling_tag(name: str) -> str:
    """Returns the opening tag of an element that scrolls on its own, also by keyboard."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(name)}">'


def _cell_html(panel: Panel, name: str, value: float, shade: float, row: HeadRow | None) -> str:
    if math.isnan(value):
        return "<td></td>"
    number = panel.quantity.cell(value)
    pattern = f" ({row.pattern})" if row and row.pattern else ""
    tooltip = html.escape(f"head {name}: {panel.title} {number}{pattern}")
    return f'<td class="c{round(shade)}" title="{tooltip}">{number}</td>'


def _heads_table(frame: HeadFrame) -> str:
    names = [metric.name for metric in frame.applicable]
    header = "".join(f"<th>{html.escape(name)}</th>" for name in ("head", "pattern", *names))
    body = []
    for row, numbers in zip(frame.rows, frame.select(names).values.tolist(), strict=True):
        cells = (row.title, row.pattern, *("" if math.isnan(number) else f"{number:.3f}" for number in numbers))
        body.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return f'{_scrolling_tag("All heads")}<table class="heads"><tr>{header}</tr>{"".join(body)}</table></div>'
