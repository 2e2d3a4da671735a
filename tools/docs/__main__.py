"""Builds the site into ``site/``, offline: ``python -m tools.docs`` (add ``--fast`` to leave the commands out).

Every warning is an error: a broken link, a page that no menu lists, a missing picture, a command that fails.
"""

import os
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.docs.reference import write_reference
from tools.docs.run import SCREEN

ROOT = Path(__file__).parents[2]
PAGES, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "site"
STRICT = ["--fail-on-warning", "--keep-going", "--quiet"]


def main() -> int:
    """Builds the site, and returns 0 if there was no warning."""
    fast = "--fast" in sys.argv[1:]
    prepare_source()
    os.environ.update(SCREEN)  # which notebooks inherit: their pages show no colours of a terminal
    options = ["-D", "attnviz_runs=0", "-D", "nb_execution_mode=off"] if fast else []
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
