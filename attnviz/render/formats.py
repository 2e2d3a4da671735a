"""A Report to a file: the table of formats, each renderer imported when it is used."""

import io
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, known_names

if TYPE_CHECKING:
    from attnviz.report.look import Look
    from attnviz.report.report import Report

TERMINAL, JSON = ".txt", ".json"
FIGURE_THUMBNAIL = 128
RENDERERS = {
    TERMINAL: "attnviz.render.terminal.draw",
    ".png": "attnviz.render.figure.draw",
    ".svg": "attnviz.render.figure.draw",
    ".pdf": "attnviz.render.figure.draw",
    ".html": "attnviz.render.page.draw",
    ".pptx": "attnviz.render.figure.slides",
    ".csv": "attnviz.render.data",
    JSON: "attnviz.render.data",
    ".npz": "attnviz.render.data",
}
PICTURES = (".png", ".svg", ".pdf", ".html", ".pptx")
STYLED = {"arcs": PICTURES, "text": (*PICTURES, TERMINAL)}  # a terminal has no lines to join tokens by
ONE_PAGE = (".png", ".svg", ".pdf")  # all panels share one picture


def write(report: "Report", suffix: str, file: IO[bytes]) -> None:
    """Writes the report to an open file, which is of the kind that ``suffix`` names.

    Raises:
        AttnvizError: if no renderer makes such files.
    """
    import_module(_renderer(suffix)).write(report, suffix, file)


def draw(report: "Report", suffix: str) -> bytes:
    """The bytes that ``write`` writes.

    Raises:
        AttnvizError: if no renderer makes such files.
    """
    with io.BytesIO() as file:
        write(report, suffix, file)
        return file.getvalue()


def max_cells(suffix: str, look: "Look") -> int:
    """The most rows or columns of one map that such a file can show; 0 where it takes the numbers themselves."""
    cells: int = import_module(_renderer(suffix)).max_cells(look)
    return cells


def thumbnail_cells(suffix: str, look: "Look") -> int:
    """The most rows or columns of one head among many in such a file."""
    if suffix != TERMINAL:
        return FIGURE_THUMBNAIL
    from attnviz.render.terminal.overview import thumbnail_cells

    return thumbnail_cells(look)


def suffix_of(path: Path) -> str:
    """The suffix of a path, in lower case.

    Raises:
        AttnvizError: if no renderer makes such files.
    """
    suffix = path.suffix.lower()
    _renderer(suffix)
    return suffix


def _renderer(suffix: str) -> str:
    if suffix not in RENDERERS:
        raise AttnvizError(f"unknown suffix {suffix!r}; {known_names(RENDERERS)} works")
    return RENDERERS[suffix]
