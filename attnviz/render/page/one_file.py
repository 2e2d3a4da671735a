"""Builds pages of one file, with a script or without one: policy, style, tables and data, and writes the atlas."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import IO, Any
from urllib.parse import quote

import numpy as np

from attnviz.maps.recording import head_name
from attnviz.render.page.encoding import base85
from attnviz.render.page.scripts import bundle, read_asset
from attnviz.report.picture.colors import DIVERGING, ON_DARK_PAPER, SAMPLES, colormap, ink_on
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadCells, HeadList, SurveyedHeads, WhyAnswer
from attnviz.report.picture.structure import Phrase
from attnviz.report.words.choices import page_table
from attnviz.text.places import place_name

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; worker-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
# The frame of each kind of page, and its style sheets besides the common one; its script has the kind's name.
KINDS = {
    "page": ("page.html", ()),
    "why_page": ("page.html", ("why.css",)),
    "survey": ("survey.html", ("survey.css",)),
    "changes": ("changes.html", ()),
}
STATIC_POLICY = "default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'"
STATIC_STYLE = """:root { color-scheme: light dark; --paper: #fff; --ink: #1d2027; --dim: #5c6370; --line: #d9dce3;
  --card: #f6f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161b; --ink: #e7e9ee; --dim: #9aa1ad; --line: #343944; --card: #1f2228 } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { margin: 0 auto; padding: 1.5rem 1rem 3rem }
h1 { font-size: 1.3rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere }
h2 { font-size: 1rem; margin: 0 }
p { margin: .3rem 0; max-width: 60rem } .dim, figcaption { color: var(--dim) } .wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums }
th { font-weight: normal; color: var(--dim) } td, th { padding: 2px 6px; text-align: right }
"""
ATLAS_STYLE = """main { max-width: 90rem }
.atlas { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); gap: 1.6rem;
  margin: 1.5rem 0 } .atlas figure { margin: 0; max-width: 100% }
.atlas td { min-width: 2.2em; border: 1px solid var(--paper) }
.heads td { border-top: 1px solid var(--line) } .heads :is(td, th):nth-child(-n+2) { text-align: left }
.heads td:nth-child(2) { white-space: nowrap }
"""


def opening(
    report: ExactNumbers | HeadList | SurveyedHeads,
    name: str,
    kind: str,
    remarks: Sequence[str],
    data: Mapping[str, Any],
    frame_html: str = "",
) -> bytes:
    """Returns the HTML of a page up to the packed numbers, so that a browser can draw it before it has read these."""
    frame_name, own_sheets = KINDS[name]
    sheets = "\n".join(map(read_asset, ("page.css", *own_sheets)))
    style, script = themed(sheets, report.look), bundle(f"{name}.js")
    # No text in the data can end a script element or begin a comment.
    json_text = (
        json.dumps({**data, "table": page_table()}, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )
    answer = ""
    if isinstance(report, ExactNumbers):
        of_turns = report.by_turns.first_sentence if report.by_turns and not report.answer else ()
        of_tokens = (Phrase(report.answer),) if report.answer else report.first_sentence
        answer = _sentence(of_turns, "answer of-turns") + _sentence(
            of_tokens, "answer of-tokens" if of_turns else "answer"
        )
        if report.answered is not None:
            addresses = _addresses_of_heads(report.answered, report.heads)
            sentences = (_linked(sentence, addresses) for sentence in report.answered.sentences)
            answer = "".join(
                _sentence(
                    phrases, "answer why-answer" if number < report.answered.leading else "answer why-answer more"
                )
                for number, phrases in enumerate(sentences)
            )
    fields = {
        "policy": POLICY.format(script=digest_of(script), style=digest_of(style)),
        "title": escape(report.title),
        "kind": kind,
        "caption": escape(report.caption),
        "answer": answer,
        "remarks": "".join(f"<li>{escape(remark)}</li>" for remark in remarks),
        "more": frame_html,
        "scheme": report.look.theme or "light dark",
        "style": style,
        "data": json_text,
        "script": script,
    }
    frame = read_asset("start.html") + read_asset(frame_name)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], frame).encode()


def _sentence(phrases: Sequence[Phrase], css_class: str) -> str:
    """Returns what a page says first: each phrase is a link to the place that it speaks of."""
    words = (
        f'<a href="#{escape(phrase.address)}">{escape(phrase.text)}</a>' if phrase.address else escape(phrase.text)
        for phrase in phrases
    )
    return f'<p class="{css_class}">{"".join(words)}</p>' if phrases else ""


def _addresses_of_heads(answer: WhyAnswer, heads: Sequence[HeadCells]) -> dict[str, str]:
    """Returns the addresses of the heads that an answer may name, in the row that predicts, by their names there."""
    page_names = {(head.maps.module, head.maps.layer, head.head): head_name(head.maps, head.head) for head in heads}
    unit_heads = () if answer.units is None else answer.units.heads
    addresses = {name: f"head={name}" for name in unit_heads if name in page_names.values()}
    if answer.why is not None:
        query = quote(place_name(answer.why.tokens, answer.why.position))
        keys = {part.name: (part.module, part.layer or 0, part.head or 0) for part in answer.why.leading_heads}
        addresses |= {name: f"head={page_names[key]}&query={query}" for name, key in keys.items() if key in page_names}
    return addresses


def _linked(sentence: str, addresses: Mapping[str, str]) -> tuple[Phrase, ...]:
    """Returns a sentence in which the names of heads lead to their addresses."""
    pattern = "|".join(rf"(?<![\w.+-]){re.escape(name)}(?!\w)" for name in addresses)
    texts = re.split(f"({pattern})", sentence) if pattern else [sentence]
    return tuple(Phrase(text, addresses[text] if place % 2 else "") for place, text in enumerate(texts) if text)


def themed(style: str, look: Look) -> str:
    """Returns a style sheet for the system's theme in the look's theme, if the look names one."""
    if look.theme is None:
        return style
    condition = "all" if look.theme == "dark" else "not all"
    return style.replace("(prefers-color-scheme: dark)", condition).replace("light dark;", f"{look.theme};")


def write_data(file: IO[bytes], name: str, content: bytes) -> None:
    """Writes an element of data, which the browser does not run."""
    file.write(b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), content))


def text85(content: bytes) -> str:
    """Returns bytes as text in base 85."""
    return base85(content).decode("ascii")


def palettes_of(sequential: str) -> dict[str, str]:
    """Returns the colours of a page by the names of colormaps, for numbers and changes on light and dark paper."""
    names = (sequential, DIVERGING, sequential + ON_DARK_PAPER, DIVERGING + ON_DARK_PAPER)
    known_names = (name for name in names if not name.endswith(ON_DARK_PAPER) or name in SAMPLES)
    return {name: text85(colormap(name).tobytes()) for name in known_names}


def digest_of(content: str) -> str:
    """Returns the hash of a script or style as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"


class Papers:
    """The colours of cells, each a class of the page's style sheet.

    Attributes:
        rules: the rule of each class, by its name.
    """

    def __init__(self) -> None:
        self.rules: dict[str, str] = {}

    def class_of(self, paper: Sequence[int]) -> str:
        """Returns the class of cells of this colour, whose letters are black or white."""
        color = bytes(paper).hex()
        if f"c{color}" not in self.rules:
            ink = bytes(ink_on(np.array(paper)).tolist()).hex()
            self.rules[f"c{color}"] = f".c{color} {{ background: #{color}; color: #{ink} }}\n"
        return f"c{color}"


def write_static_page(title: str, body: Iterable[str], style: str, papers: Papers, look: Look, file: IO[bytes]) -> None:
    """Writes a page: its title, the elements of its body, and its style besides the common one."""
    elements = list(body)  # which choose the colours
    sheet = themed(STATIC_STYLE, look) + style + "".join(papers.rules.values())
    lines = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{STATIC_POLICY.format(style=digest_of(sheet))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{sheet}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        *elements,
        "</main></body></html>\n",
    )
    file.write("\n".join(lines).encode())


def table_html(name: str, header: Sequence[str], rows: Iterable[str], css_class: str = "", caption: str = "") -> str:
    """Returns a table that scrolls on its own, also by keyboard."""
    headings = "".join(f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in header)
    class_html = f' class="{css_class}"' if css_class else ""
    caption_html = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">'
        f"<table{class_html}>{caption_html}<thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def write_atlas(report: DrawnReport, file: IO[bytes]) -> None:
    """Writes the atlas as a page: a coloured table of layers by heads for each metric, and the table of all heads."""
    table = report.results
    assert table is not None
    rows, papers = {row.name: row for row in table.rows}, Papers()
    metrics = {metric.name: metric for metric in table.applicable}

    figures = []  # a table of layers by heads for each metric
    for panel in report.panels:
        limits = " to ".join(panel.quantity.cell(end) for end in (panel.scale.low, panel.scale.high))
        metric = metrics[panel.title]
        description = f"{metric.meaning}; {metric.unit}, coloured from {limits}"
        colors = panel.scale.rgb(panel.values).tolist()
        table_rows = []
        for layer, values, colors_of_layer in zip(panel.rows.labels, panel.values.tolist(), colors, strict=True):
            table_cells = [f'<th scope="row">{escape(layer)}</th>']
            for head, value, color in zip(panel.columns.labels, values, colors_of_layer, strict=True):
                if math.isnan(value):
                    table_cells.append("<td></td>")
                    continue
                number, _, kind = layer.partition(" ")  # a layer's label is as in names, perhaps with its kind
                name, text = f"{number}.{head}", panel.quantity.cell(value)
                row = rows.get(name)
                pattern = f" ({row.pattern})" if row and row.pattern else ""
                tooltip = escape(f"head {name} {kind}".rstrip() + f": {panel.title} {text}{pattern}")
                table_cells.append(f'<td class="{papers.class_of(color)}" title="{tooltip}">{text}</td>')
            table_rows.append("".join(table_cells))
        html = table_html(panel.title, ("layer\\head", *panel.columns.labels), table_rows)
        caption = f"<figcaption>{escape(description)}</figcaption>"
        figures.append(f"<figure><h2>{escape(panel.title)}</h2>{caption}{html}</figure>")

    names = [metric.name for metric in table.applicable]
    head_rows = []
    for row, numbers in zip(table.rows, table.select(names).values.tolist(), strict=True):
        cells = (row.title, row.pattern, *("" if math.isnan(number) else f"{number:.3f}" for number in numbers))
        head_rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    body = (
        f"<p>{escape(report.caption)}</p>",
        *(f'<p class="dim">{escape(remark)}</p>' for remark in report.remarks),
        '<div class="atlas">',
        *figures,
        "</div>",
        table_html("All heads", ("head", "pattern", *names), head_rows, "heads"),
    )
    write_static_page(report.title, body, ATLAS_STYLE, papers, report.look, file)
