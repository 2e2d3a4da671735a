"""An Explanation to a file: the table of its formats, each renderer imported when it is used."""

from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, known_names

if TYPE_CHECKING:
    from attnviz.explain.tables import Explanation
    from attnviz.report.look import Look

TERMINAL = ".txt"
RENDERERS = {
    TERMINAL: "attnviz.explain.terminal",
    ".html": "attnviz.explain.page",
    ".md": "attnviz.explain.markdown",
}
PAGE_ROOM = 88  # characters of a line of a table on a page


def write(explanation: "Explanation", suffix: str, file: IO[bytes]) -> None:
    """Writes the explanation to an open file, which is of the kind that ``suffix`` names."""
    import_module(RENDERERS[suffix]).write(explanation, suffix, file)


def room(suffix: str, look: "Look") -> int:
    """How many characters a line of a table may take in such a file."""
    return look.width - 2 if suffix == TERMINAL else PAGE_ROOM


def suffix_of(path: Path) -> str:
    """The suffix of a path, in lower case.

    Raises:
        AttnvizError: if no renderer makes such files of an explanation.
    """
    suffix = path.suffix.lower()
    if suffix not in RENDERERS:
        raise AttnvizError(f"explain writes no {suffix or 'file without a suffix'}; {known_names(RENDERERS)} works")
    return suffix
