"""Writes explanations to files, through a table of formats that imports each renderer when it is used."""

from dataclasses import dataclass
from importlib import import_module
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, or_list
from attnviz.render.formats import TERMINAL

if TYPE_CHECKING:
    from attnviz.explain.tables import Explanation
    from attnviz.report.picture.look import Look


@dataclass(frozen=True)
class _ExplanationFormat:
    """A file format of explanations, a row of the table.

    Attributes:
        suffix: the suffix of its files.
        module: the module whose ``write(explanation, suffix, file)`` writes them.
        line_width: the most characters on a line of a table; ``None`` if the look's width decides.
    """

    suffix: str
    module: str
    line_width: int | None = None


FORMATS = {
    row.suffix: row
    for row in (
        _ExplanationFormat(TERMINAL, "attnviz.explain.terminal"),
        _ExplanationFormat(".html", "attnviz.explain.page", line_width=88),
        _ExplanationFormat(".md", "attnviz.explain.markdown", line_width=88),
    )
}


def write(explanation: "Explanation", suffix: str, file: IO[bytes]) -> None:
    """Writes an explanation to an open file."""
    import_module(FORMATS[suffix].module).write(explanation, suffix, file)


def line_width(suffix: str, look: "Look") -> int:
    """Returns the most characters on a line of a table: the format's, or else the look's width minus the indent, 2."""
    return FORMATS[suffix].line_width or look.width - 2


def format_of(suffix: str) -> _ExplanationFormat:
    """Returns the format of a suffix.

    Raises:
        AttnvizError: if explanations have no such format.
    """
    if suffix not in FORMATS:
        raise AttnvizError(f"explain cannot write {suffix or 'a file without a suffix'}; choose {or_list(FORMATS)}")
    return FORMATS[suffix]
