"""Writes an explanation as one HTML page that opens anywhere: it has no scripts and loads no other file."""

import re
from html import escape
from typing import IO

from attnviz.explain.tables import ABSENT_SIGN, GAP_SIGN, Explanation, Step, Table
from attnviz.report.picture.colors import ink_on

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = """
:root { color-scheme: light dark; --ink: #191b1f; --paper: #fff; --soft: #5a6069; --line: #dfe2e6; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --paper: #16181c; --soft: #a3aab5; --line: #343941; --card: #1f2228; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
header p, .shape, .cut, footer { color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0 0; font-size: .9rem; }
nav a { color: inherit; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.25rem; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
h2 span { color: var(--soft); font-weight: 400; margin-right: .5rem; }
.formula { font: italic 1.2rem/1.5 "Latin Modern Math", "STIX Two Math", Cambria, Georgia, serif;
  margin: .75rem 0 .25rem; white-space: pre-wrap; }
.formula sub { font-size: .7em; }
.shape { font-size: .9rem; margin: 0 0 .75rem; }
.scroll { overflow-x: auto; margin: .75rem 0 0; }
table { border-collapse: collapse; font: .82rem/1.3 ui-monospace, "DejaVu Sans Mono", monospace; }
caption { text-align: left; white-space: nowrap; font: 600 .9rem/1.5 system-ui, sans-serif; padding-bottom: .25rem; }
th { color: var(--soft); font-weight: 400; text-align: right; white-space: nowrap; max-width: 9rem; overflow: hidden;
  text-overflow: ellipsis; }
th, td { padding: .22rem .5rem; }
td { text-align: right; }
td.none { color: var(--soft); }
.cut { font-size: .85rem; margin: .25rem 0 0; }
.worked { background: var(--card); border-left: 3px solid var(--line); margin: .9rem 0 0; padding: .5rem .9rem;
  overflow-wrap: anywhere; }
.worked p { margin: .2rem 0; }
"""


def write(explanation: Explanation, suffix: str, file: IO[bytes]) -> None:
    """Writes an explanation as an HTML page in UTF-8; equal explanations give equal bytes."""
    title = escape(explanation.title)
    links = "".join(f'<a href="#{step.name}">{escape(step.title)}</a>' for step in explanation.steps)
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>",
        f"<header>\n<h1>{title}</h1>\n<p>Attention step by step, in head {explanation.head}.</p>",
        f'<nav aria-label="Steps">{links}</nav>\n</header>' if len(explanation.steps) > 1 else "</header>",
        *(_section(number, step) for number, step in enumerate(explanation.steps, 1)),
        "<footer>",
        *(f"<p>{escape(remark)}</p>" for remark in explanation.remarks),
        "</footer>\n</main>\n</body>\n</html>\n",
    ]
    file.write("\n".join(parts).encode())


def _section(number: int, step: Step) -> str:
    """Returns one step as a section of HTML."""
    parts = [
        f'<section id="{step.name}">',
        f"<h2><span>{number}</span>{escape(step.title)}</h2>",
        f"<p>{escape(step.sentence)}</p>",
        f'<p class="formula">{_formula(step.formula)}</p>',
        f'<p class="shape">{escape(step.before)} → {escape(step.after)}</p>',
        *(_table(table) for table in step.tables),
    ]
    if step.examples:
        parts.append('<div class="worked">' + "".join(f"<p>{escape(line)}</p>" for line in step.examples) + "</div>")
    return "\n".join([*parts, "</section>"])


def _formula(formula: str) -> str:
    """Returns a formula as HTML; letters after an underscore become subscripts, as in ``W_Q``."""
    return re.sub(r"_(\w+)", r"<sub>\1</sub>", escape(formula))


def _table(table: Table) -> str:
    """Returns a table as HTML, with a sentence below it if rows or columns are left out."""
    header_cells = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = [
        f'<tr><th scope="row">{escape(label)}</th>{"".join(_row_cells(table, row))}</tr>'
        for row, label in enumerate(table.rows)
    ]
    parts = [
        f'<div class="scroll"><table>\n<caption>{escape(table.title)}</caption>',
        f"<thead><tr><td></td>{header_cells}</tr></thead>\n<tbody>",
        *rows,
        "</tbody>\n</table></div>",
        *([f'<p class="cut">{escape(table.cut)}</p>'] if table.cut else []),
    ]
    return "\n".join(parts)


def _row_cells(table: Table, row: int) -> list[str]:
    """Returns the cells of a row as HTML, coloured by value if the table has a colour scale."""
    texts = table.cells[row]
    if table.scale is None:
        classes = (' class="none"' if text in (GAP_SIGN, ABSENT_SIGN) else "" for text in texts)
        return [f"<td{html_class}>{text}</td>" for html_class, text in zip(classes, texts, strict=True)]
    backgrounds = table.scale.rgb(table.values[row])
    return [
        f'<td class="none">{text}</td>'
        if text in (GAP_SIGN, ABSENT_SIGN)
        else f'<td style="background:{_hex(background)};color:{_hex(ink)}">{text}</td>'
        for text, background, ink in zip(texts, backgrounds.tolist(), ink_on(backgrounds).tolist(), strict=True)
    ]


def _hex(color: list[int]) -> str:
    """Returns a colour of red, green and blue as CSS writes it, ``#ff00c8``."""
    return "#" + bytes(color).hex()
