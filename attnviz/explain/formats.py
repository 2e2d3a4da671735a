"""An Explanation to a file: the table of its formats, each renderer imported when it is used."""

from dataclasses import dataclass
from importlib import import_module
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, known_names
from attnviz.render.formats import TERMINAL

if TYPE_CHECKING:
    from attnviz.explain.tables import Explanation
    from attnviz.report.picture.look import Look


@dataclass(frozen=True)
class ExplanationFormat:
    """A kind of file that explanations are written as: a row of the table.

    Attributes:
        suffix: of such files.
        module: whose ``write(explanation, suffix, file)`` writes them.
        room: characters that a line of a table may take; ``None`` where the look's width says.
    """

    suffix: str
    module: str
    room: int | None = None


FORMATS = {
    row.suffix: row
    for row in (
        ExplanationFormat(TERMINAL, "attnviz.explain.terminal"),
        ExplanationFormat(".html", "attnviz.explain.page", room=88),
        ExplanationFormat(".md", "attnviz.explain.markdown", room=88),
    )
}


def write(explanation: "Explanation", suffix: str, file: IO[bytes]) -> None:
    """Writes the explanation to an open file, which is of the kind that ``suffix`` names."""
    import_module(FORMATS[suffix].module).write(explanation, suffix, file)


def room(suffix: str, look: "Look") -> int:
    """How many characters a line of a table may take in such a file."""
    return FORMATS[suffix].room or look.width - 2


def format_of(suffix: str) -> ExplanationFormat:
    """The row of the table for such files.

    Raises:
        AttnvizError: if no renderer makes them of an explanation.
    """
    if suffix not in FORMATS:
        raise AttnvizError(f"explain writes no {suffix or 'file without a suffix'}; {known_names(FORMATS)} works")
    return FORMATS[suffix]
