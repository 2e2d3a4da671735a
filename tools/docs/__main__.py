"""Builds the site into ``site/``, offline, and opens it in a browser: ``python -m tools.docs``.

``python -m tools.docs --write`` first writes into the documents what their commands print and draw today.

Every warning is an error: a broken link, a page that no menu lists, a missing picture, a command that fails. So is what
Chromium reports: a page wider than a phone, a faint text, an error on the console.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

from sphinx.cmd.build import build_main

from tools.docs import commands, gallery, notebook
from tools.docs.look import faults
from tools.docs.reference import write_reference

ROOT = Path(__file__).parents[2]
PAGES, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "site"
STRICT = ["--fail-on-warning", "--keep-going", "--quiet"]


def main() -> int:
    """Builds the site and opens it in a browser; returns 0 if neither finds a fault."""
    parser = argparse.ArgumentParser("python -m tools.docs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="leave the interactive pages out")
    parser.add_argument("--check", action="store_true", help="build nothing: open the site that was built last")
    parser.add_argument(
        "--write",
        nargs="*",
        metavar="PAGE",
        help="build nothing: write today's outputs and pictures into all documents, or into these, such as gallery",
    )
    options = parser.parse_args()
    if options.write is not None:
        return write(options.write)
    if not options.check and (code := build(options.fast)):
        return code
    lines = faults(SITE)
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    return min(len(lines), 1)


def write(names: list[str]) -> int:
    """Writes today's outputs and pictures into the documents of these names; returns 0 if no command fails."""
    documents: dict[str, list[Callable[[], None]]] = {"gallery": [gallery.write]}
    for page in commands.pages():
        documents.setdefault(page.stem, []).append(partial(commands.write, page))
    for path in notebook.NOTEBOOKS:
        documents.setdefault(path.stem, []).append(partial(notebook.write, path))
    if unknown := [name for name in names if name not in documents]:
        print(f"no document {unknown[0]} has commands; choose from {', '.join(documents)}", file=sys.stderr)
        return 2
    failures = 0
    with commands.loaded_once():
        for name in names or documents:
            begin = monotonic()
            try:
                for write_document in documents[name]:
                    write_document()
            except (ValueError, SystemExit) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failures += 1
            print(f"{name}: {monotonic() - begin:.0f} s", flush=True)
    return min(failures, 1)


def build(fast: bool) -> int:
    """Builds the site, and returns 0 if there was no warning."""
    prepare_source()
    options = ["-D", "attnviz_runs=0"] if fast else []
    return build_main(
        [*STRICT, *options, "-b", "dirhtml", "-d", str(SOURCE.with_name("doctrees")), str(SOURCE), str(SITE)]
    )


def prepare_source() -> None:
    """Copies the pages to where they are built, and adds the generated reference to them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(PAGES, SOURCE)
    write_reference(SOURCE / "reference")


if __name__ == "__main__":
    sys.exit(main())
