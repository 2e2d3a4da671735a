"""Writes an explanation as Markdown for course notes, with formulas in LaTeX."""

import re
from typing import IO

from attnviz.explain.tables import Explanation, Step, Table


def write(explanation: Explanation, suffix: str, file: IO[bytes]) -> None:
    """Writes an explanation as Markdown in UTF-8."""
    parts = [f"# {escape(explanation.title)}", f"Attention step by step, in head {explanation.head}."]
    for number, step in enumerate(explanation.steps, 1):
        parts += _step_paragraphs(number, step)
    parts += [f"*{escape(remark)}*" for remark in explanation.remarks]
    file.write(("\n\n".join(parts) + "\n").encode())


def escape(text: str) -> str:
    """Returns a text on one line with Markdown and HTML syntax escaped."""
    signs = re.sub(r"([\\`*_{}\[\]()#+|~$!])", r"\\\1", " ".join(text.splitlines()))
    return signs.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _step_paragraphs(number: int, step: Step) -> list[str]:
    """Returns the paragraphs of one step."""
    parts = [
        f"## {number}. {step.title}",
        escape(step.sentence),
        f"$$\n{step.latex}\n$$",
        f"Shape: `{step.before}` → `{step.after}`",
    ]
    for table in step.tables:
        parts += [f"**{escape(table.title)}**", _table_text(table)]
        if table.cut:
            parts.append(f"*{table.cut}*")
    return parts + [f"> {escape(example)}" for example in step.examples]


def _table_text(table: Table) -> str:
    """Returns a table of Markdown, with a row of labels on top and a column of labels at the left."""
    rows = [("", *table.columns), *((row, *cells) for row, cells in zip(table.rows, table.cells, strict=True))]
    lines = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    rule = "|" + "---:|" * (len(table.columns) + 1)
    return "\n".join([lines[0], rule, *lines[1:]])
