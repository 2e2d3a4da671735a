"""Writes explanations to files: an HTML page without scripts, or Markdown for course notes, with formulas in LaTeX."""

import re
from html import escape
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, or_list
from attnviz.explain.tables import ABSENT_SIGN, GAP_SIGN, Explanation, Step
from attnviz.render.formats import TERMINAL

if TYPE_CHECKING:
    from attnviz.render.page.one_file import Papers
    from attnviz.report.picture.look import Look

# The most characters on a line of a table by the suffix of a format; None if the look's width decides.
FORMATS = {TERMINAL: None, ".html": 88, ".md": 88}
PAGE_STYLE = """main { max-width: 60rem }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0 0; font-size: .9rem } nav a { color: inherit }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.25rem }
h2 { font-size: 1.2rem; margin: 0 0 .5rem } h2 span { color: var(--dim); font-weight: 400; margin-right: .5rem }
.formula { font: italic 1.2rem/1.5 "Latin Modern Math", "STIX Two Math", Cambria, Georgia, serif;
  margin: .75rem 0 .25rem; white-space: pre-wrap } .formula sub { font-size: .7em }
.shape { font-size: .9rem; margin: 0 0 .75rem } .wide { margin: .75rem 0 0 }
table { font: .82rem/1.3 ui-monospace, "DejaVu Sans Mono", monospace } th, td { padding: .22rem .5rem }
caption { text-align: left; white-space: nowrap; font: 600 .9rem/1.5 system-ui, sans-serif; padding-bottom: .25rem }
th { white-space: nowrap; max-width: 9rem; overflow: hidden; text-overflow: ellipsis }
td.dim { color: var(--dim) } .cut { font-size: .85rem; margin: .25rem 0 0 } footer { margin-top: 2rem }
.worked { background: var(--card); border-left: 3px solid var(--line); margin: .9rem 0 0; padding: .5rem .9rem;
  overflow-wrap: anywhere } .worked p { margin: .2rem 0 }
"""


def write(explanation: Explanation, suffix: str, file: IO[bytes]) -> None:
    """Writes an explanation to an open file; equal explanations give equal bytes."""
    if suffix == ".html":
        from attnviz.render.page.one_file import Papers, write_static_page

        papers = Papers()
        links = "".join(f'<a href="#{step.name}">{escape(step.title)}</a>' for step in explanation.steps)
        body = (
            f'<p class="dim">Attention step by step, in head {explanation.head}.</p>',
            *([f'<nav aria-label="Steps">{links}</nav>'] if len(explanation.steps) > 1 else []),
            *(
                _section(number, step, papers, explanation.look.drawn_theme)
                for number, step in enumerate(explanation.steps, 1)
            ),
            '<footer class="dim">',
            *(f"<p>{escape(remark)}</p>" for remark in explanation.remarks),
            "</footer>",
        )
        write_static_page(explanation.title, body, PAGE_STYLE, papers, explanation.look, file)
    elif suffix == ".md":
        parts = [f"# {escape_markdown(explanation.title)}", f"Attention step by step, in head {explanation.head}."]
        for number, step in enumerate(explanation.steps, 1):
            parts += [
                f"## {number}. {step.title}",
                escape_markdown(step.sentence),
                f"$$\n{step.latex}\n$$",
                f"Shape: `{step.before}` → `{step.after}`",
            ]
            for table in step.tables:
                header = ("", *table.columns)
                rows = [header, *((row, *cells) for row, cells in zip(table.rows, table.cells, strict=True))]
                lines = [f"| {' | '.join(escape_markdown(cell) for cell in row)} |" for row in rows]
                rule = "|" + "---:|" * (len(table.columns) + 1)
                parts += [f"**{escape_markdown(table.title)}**", "\n".join([lines[0], rule, *lines[1:]])]
                if table.cut:
                    parts.append(f"*{table.cut}*")
            parts += [f"> {escape_markdown(example)}" for example in step.examples]
        parts += [f"*{escape_markdown(remark)}*" for remark in explanation.remarks]
        file.write(("\n\n".join(parts) + "\n").encode())
    else:
        from attnviz.explain.terminal import write_lines

        write_lines(explanation, file)


def line_width(suffix: str, look: "Look") -> int:
    """Returns the most characters on a line of a table: the format's, or else the look's width minus the indent, 2."""
    return FORMATS[suffix] or look.width - 2


def refuse_format(suffix: str) -> None:
    """Raises AttnvizError if explanations have no format with this suffix."""
    if suffix not in FORMATS:
        raise AttnvizError(f"explain cannot write {suffix or 'a file without a suffix'}; choose {or_list(FORMATS)}")


def _section(number: int, step: Step, papers: "Papers", theme: str) -> str:
    from attnviz.render.page.one_file import table_html

    formula = re.sub(r"_(\w+)", r"<sub>\1</sub>", escape(step.formula))  # as in W_Q
    parts = [
        f'<section id="{step.name}">',
        f"<h2><span>{number}</span>{escape(step.title)}</h2>",
        f"<p>{escape(step.sentence)}</p>",
        f'<p class="formula">{formula}</p>',
        f'<p class="shape dim">{escape(step.before)} → {escape(step.after)}</p>',
    ]
    for table in step.tables:
        rows = []
        for row, label in enumerate(table.rows):
            cells = [f'<th scope="row">{escape(label)}</th>']
            colors = None if table.scale is None else table.scale.on_paper(theme).rgb(table.values[row]).tolist()
            for column, text in enumerate(table.cells[row]):
                css_class = "dim" if text in (GAP_SIGN, ABSENT_SIGN) else ""
                if colors is not None and not css_class:
                    css_class = papers.class_of(colors[column])
                cells.append(f'<td class="{css_class}">{text}</td>' if css_class else f"<td>{text}</td>")
            rows.append("".join(cells))
        parts.append(table_html(table.title, ("", *table.columns), rows, caption=table.title))
        if table.cut:
            parts.append(f'<p class="cut dim">{escape(table.cut)}</p>')
    if step.examples:
        parts.append('<div class="worked">' + "".join(f"<p>{escape(line)}</p>" for line in step.examples) + "</div>")
    return "\n".join([*parts, "</section>"])


def escape_markdown(text: str) -> str:
    """Returns a text on one line with Markdown and HTML syntax escaped."""
    signs = re.sub(r"([\\`*_{}\[\]()#+|~$!])", r"\\\1", " ".join(text.splitlines()))
    return signs.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
