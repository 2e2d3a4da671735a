"""Writes explanations: for a terminal, as an HTML page without scripts, or as Markdown with formulas in LaTeX."""

import re
from dataclasses import replace
from html import escape
from typing import IO, TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.explain.tables import (
    ABSENT_SIGN,
    GAP_SIGN,
    MAX_COLUMN_LABEL_WIDTH,
    MAX_ROW_LABEL_WIDTH,
    Explanation,
    Step,
    Table,
)
from attnviz.render.formats import TERMINAL
from attnviz.render.terminal.lines import Line, Span, fit, print_lines, right_aligned, wrap
from attnviz.report.picture.colors import ink_on
from attnviz.report.picture.look import Look

if TYPE_CHECKING:
    from attnviz.render.page.one_file import Papers

# The most characters on a line of a table by the suffix of a format; None if the look's width decides.
FORMATS = {TERMINAL: None, ".html": 88, ".md": 88}
PAGE_STYLE = """main { max-width: 60rem }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 1rem 0 0; font-size: .9rem } nav a { color: inherit }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.25rem }
h2 { font-size: 1.2rem; margin: 0 0 .5rem } h2 span { color: var(--dim); font-weight: 400; margin-right: .5rem }
.formula { font: italic 1.2rem/1.5 "Latin Modern Math", "STIX Two Math", Cambria, Georgia, serif;
  margin: .75rem 0 .25rem; white-space: pre-wrap } .formula sub { font-size: .7em }
.shape { font-size: .9rem; margin: 0 0 .75rem }
.wide { display: inline-block; vertical-align: top; max-width: calc(100% - 2rem); margin: .75rem 2rem 0 0 }
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
        _write_lines(explanation, file)


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
        if table.starts_line:
            parts.append("<br>")
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


INDENT = 2
GUTTER = 4
OVERVIEW_STEPS = ("scores", "scaling", "mask", "softmax")  # the overview shows the last query's row of each
SIGNS_IN_ASCII = str.maketrans(  # print_lines replaces the signs that occur in any text; formulas have these too
    {"√": "sqrt ", "Σ": "sum", "ₖ": "_k", "ᵀ": "^T", "→": "->", "×": "x", "∞": "inf", "⊙": "*", "′": "'", "″": "''"}
    | {"α": "a", "²": "^2", "≤": "<=", "─": "-"}
)


def _write_lines(explanation: Explanation, file: IO[bytes]) -> None:
    """Writes an explanation as text: every step, or an overview if the terminal has too few lines for several."""
    look = explanation.look
    lines = explanation_lines(explanation)
    if look.height is not None and len(lines) >= look.height and len(explanation.steps) > 1:
        lines = _overview_lines(explanation)
    if look.ascii:
        lines = [[Span(span.text.translate(SIGNS_IN_ASCII)) for span in line] for line in lines]
    print_lines(lines, look, file)


def explanation_lines(explanation: Explanation) -> list[Line]:
    """Returns the lines of the title, of every step and of the remarks."""
    width = explanation.look.width
    lines: list[Line] = [[Span(line, style="bold")] for line in wrap(explanation.title, width)]
    for number, step in enumerate(explanation.steps, 1):
        lines += [[], *_step_lines(number, step, explanation)]
    return [*lines, [], *([Span(line, style="dim")] for remark in explanation.remarks for line in wrap(remark, width))]


def _overview_lines(explanation: Explanation) -> list[Line]:
    """Returns the title, a line per step, the table of the last query if the screen has room, and the remarks."""
    look, steps = explanation.look, explanation.steps
    name_width = max(len(step.name) for step in steps)
    lines: list[Line] = [[Span(fit(explanation.title, look.width).rstrip(), style="bold")], []]
    for number, step in enumerate(steps, 1):
        formula = step.formula.partition("    ")[0].partition("; ")[0]  # without further formulas and remarks
        shape = f"  → {step.after}"
        label = f"{number:2} {step.name.ljust(name_width)}  "
        free_columns = look.width - cell_len(label + formula)
        fitting_shape = shape if cell_len(shape) <= free_columns else ""
        fitting_formula = fit(formula, look.width - cell_len(label)).rstrip()
        lines.append([Span(label), Span(fitting_formula, style="bold"), Span(fitting_shape, style="dim")])
    query_lines = _last_query_lines(explanation)
    free_lines = (look.height or 0) - len(lines) - len(explanation.remarks) - 1  # the last line is for the prompt
    if query_lines and len(query_lines) + 2 <= free_lines:  # with an empty line above and below
        lines += [[], *query_lines]
    lines.append([])
    remarks = [remark_line for remark in explanation.remarks for remark_line in wrap(remark, look.width)]
    advice = (
        f"Use {option('step', 'sum')} for one step, {option('all', True)} for all in full, -o notes.html for a page."
    )
    with_advice = [*wrap(look.format_options(advice), look.width), *remarks]
    if len(lines) + len(with_advice) < (look.height or 0):
        remarks = with_advice
    return [*lines, *([Span(remark_line, style="dim")] for remark_line in remarks)]


def _last_query_lines(explanation: Explanation) -> list[Line]:
    """Returns the lines of a table of the last query: a row per step from scores to weights, a column per key."""
    steps = [step for step in explanation.steps if step.name in OVERVIEW_STEPS and step.tables]
    steps = [step for step in steps if step.tables[0].columns == steps[0].tables[0].columns]
    if not steps:
        return []
    tables = [step.tables[0] for step in steps]
    names = [f"{step.name} of “{table.rows[-1]}”" for step, table in zip(steps, tables, strict=True)]
    table_of_steps = Table(
        title=f"head {explanation.head}",
        rows=tuple(names),
        columns=tables[0].columns,
        cells=tuple(table.cells[-1] for table in tables),
        values=np.stack([table.values[-1] for table in tables]),
    )
    width = explanation.look.width
    label_width = max(map(cell_len, names)) + 1
    cell_widths = _cell_widths(table_of_steps)
    if label_width + sum(cell_widths) > width:
        return []
    title = right_aligned(table_of_steps.title, label_width - 1) + " "
    column_labels = _column_labels(table_of_steps, cell_widths)
    lines: list[Line] = [[Span(title, style="bold"), Span(column_labels, style="dim")]]
    for row, name in enumerate(names):
        scale = tables[row].scale if steps[row].name == "softmax" else None  # scores have other scales
        row_table = replace(table_of_steps, scale=scale)
        spans = _row_spans(row_table, row, cell_widths, explanation.look)
        lines.append([Span(right_aligned(name, label_width - 1) + " "), *spans])
    return lines


def _step_lines(number: int, step: Step, explanation: Explanation) -> list[Line]:
    width, inner_width = explanation.look.width, explanation.look.width - INDENT
    step_number = f"{number} " if len(explanation.steps) > 1 else ""
    heading = f"{step_number}{step.title} "
    name = f" {step.name}"
    formula_lines = [step.formula]
    if cell_len(step.formula) > inner_width:  # four spaces separate its parts
        formula_lines = [line for part in step.formula.split("    ") for line in wrap(part, inner_width)]
    shape_lines = [f"{step.before} → {step.after}"]
    if cell_len(shape_lines[0]) > inner_width:
        parts = (step.before, f"→ {step.after}")
        # wrap breaks at spaces: those inside a shape become no-break spaces until the lines are cut
        unbroken = (re.sub(r" ?\([^)]*\)", lambda match: match[0].replace(" ", "\xa0"), part) for part in parts)
        shape_lines = [line.replace("\xa0", " ") for part in unbroken for line in wrap(part, inner_width)]
    lines: list[Line] = [
        [Span(heading, style="bold"), Span("─" * max(0, width - cell_len(heading + name)), style="dim"), Span(name)],
        *([Span(line)] for line in wrap(step.sentence, width)),
        [],
        *([Span(" " * INDENT), Span(line, style="bold")] for line in formula_lines),
        *([Span(" " * INDENT), Span(line, style="dim")] for line in shape_lines),
    ]

    bands: list[list[Table]] = []  # the tables of a band stand side by side
    for table in step.tables:
        neighbours = bands[-1] if bands else []
        used_width = sum(_table_width(neighbour, inner_width) + GUTTER for neighbour in neighbours)
        fits = used_width + _table_width(table, inner_width) <= inner_width
        if neighbours and fits and not table.starts_line:
            neighbours.append(table)
        else:
            bands.append([table])
    for tables in bands:
        blocks: list[list[Line]] = []  # the lines of each table, all of one width
        for table in tables:
            label_width, cell_widths = _label_width(table), _cell_widths(table)
            table_width = _table_width(table, inner_width)
            padding = Span(" " * (table_width - label_width - sum(cell_widths)))
            block: list[Line] = [
                [Span(fit(table.title, table_width), style="bold")],
                [Span(" " * label_width + _column_labels(table, cell_widths), style="dim"), padding],
            ]
            for row, label in enumerate(table.rows):
                spans = _row_spans(table, row, cell_widths, explanation.look)
                block.append([Span(right_aligned(label, label_width - 1) + " "), *spans, padding])
            blocks.append(block)
        lines.append([])
        for row in range(max(len(block) for block in blocks)):
            line: Line = [Span(" " * INDENT)]
            for index, block in enumerate(blocks):
                if row < len(block):
                    line += [Span(" " * GUTTER), *block[row]] if index else block[row]
            lines.append(line)
        sentences = [table.cut for table in tables if table.cut]
        lines += [[Span(" " * INDENT), Span(line, style="dim")] for cut in sentences for line in wrap(cut, inner_width)]
    if step.examples:
        lines.append([])
    return lines + [
        [Span(" " * INDENT), Span(line)] for example in step.examples for line in wrap(example, inner_width)
    ]


def _label_width(table: Table) -> int:
    """Returns the terminal columns of the row labels, with a space after them."""
    return 1 + min(MAX_ROW_LABEL_WIDTH, max(cell_len(row) for row in table.rows))


def _cell_widths(table: Table) -> list[int]:
    """Returns the terminal columns of each cell of a row, with a space before its text; a gap takes two."""
    width = 1 + max(table.width, min(MAX_COLUMN_LABEL_WIDTH, max(cell_len(column) for column in table.columns)))
    return [2 if column == table.gap else width for column in range(len(table.columns))]


def _table_width(table: Table, max_width: int) -> int:
    """Returns the terminal columns of a table, whose title is cut to ``max_width``."""
    return max(_label_width(table) + sum(_cell_widths(table)), min(cell_len(table.title), max_width))


def _column_labels(table: Table, widths: list[int]) -> str:
    """Returns the labels of a table's columns on one line, each right-aligned in the width of its cell."""
    labels = zip(table.columns, widths, strict=True)
    return "".join(" " + right_aligned(label, width - 1) for label, width in labels)


def _row_spans(table: Table, row: int, widths: list[int], look: Look) -> Line:
    """Returns the spans of a row of cells; coloured if the table has a scale and the look has colours."""
    texts = [text.rjust(width) for text, width in zip(table.cells[row], widths, strict=True)]
    are_signs = [cell in (GAP_SIGN, ABSENT_SIGN) for cell in table.cells[row]]
    if table.scale is None or not look.colors:
        return [Span(text, style="dim" if is_sign else "") for text, is_sign in zip(texts, are_signs, strict=True)]
    papers = table.scale.on_paper(look.drawn_theme).rgb(table.values[row])
    inks = ink_on(papers).tolist()
    return [
        Span(text, style="dim") if is_sign else Span(text, ink=tuple(ink), paper=tuple(paper))
        for text, is_sign, ink, paper in zip(texts, are_signs, inks, papers.tolist(), strict=True)
    ]
