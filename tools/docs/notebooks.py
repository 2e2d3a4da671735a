"""Runs the notebooks of the site in kernels while Sphinx reads the other pages; a cell that fails breaks the build."""

import base64
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from sphinx.application import Sphinx

from tools.docs.stills import draw

SECONDS_OF_A_CELL = 300


def executed(notebook: Path) -> str:
    """Runs a notebook in a temporary folder, and returns it with its outputs.

    Raises:
        CellExecutionError: if a cell fails.
    """
    cells = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="attnviz-docs-") as folder:
        client = NotebookClient(cells, timeout=SECONDS_OF_A_CELL, resources={"metadata": {"path": folder}})
        commands = Path(sys.executable).parent  # of this environment, also where nobody activated it
        env = os.environ | {"PATH": os.pathsep.join([str(commands), os.environ.get("PATH", "")])}
        return str(nbformat.writes(client.execute(env=env)))  # type: ignore[no-untyped-call]


def write(notebook: Path) -> None:
    """Writes today's outputs into a notebook; an interactive page, which no repository's page runs, as a picture."""
    book = nbformat.reads(executed(notebook), as_version=4)  # type: ignore[no-untyped-call]
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "<iframe" in data.get("text/html", ""):
                data["image/png"] = picture_of(data.pop("text/html"))
    nbformat.write(book, notebook)  # type: ignore[no-untyped-call]


def picture_of(frame: str) -> str:
    """Returns a frame as it opens in a browser, as a PNG in base64."""
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "page.png")
        page.write_text(frame, encoding="utf-8")
        draw(page, picture)
        return base64.b64encode(picture.read_bytes()).decode()


def start_notebooks(app: Sphinx) -> None:
    """Starts to run every notebook of the site, unless its pages are built without commands."""
    source = Path(app.srcdir)
    files = sorted(source.rglob("*.ipynb")) if app.config.attnviz_runs else []
    pool = ThreadPoolExecutor(1)
    runs = {file.relative_to(source).with_suffix("").as_posix(): pool.submit(executed, file) for file in files}
    setattr(app, "attnviz_notebooks", runs)  # noqa: B010
    pool.shutdown(wait=False)


def insert_outputs(app: Sphinx, page: str, text: list[str]) -> None:
    """Replaces the text of a notebook by the notebook with its outputs, when Sphinx reads its page."""
    runs = getattr(app, "attnviz_notebooks")  # noqa: B009  # Sphinx declares no such attribute
    if page in runs:
        text[0] = runs[page].result()


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the runs with Sphinx."""
    app.connect("builder-inited", start_notebooks)
    app.connect("source-read", insert_outputs)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
