"""Adds to every wheel what is made when it is built: the man page and the bill of materials.

The README of a package index is made here, too: there, a link relative to the repository leads nowhere.
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Gives the distribution a README without relative links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the README with the address that ``project.urls`` in pyproject.toml has as ``Repository``, if any."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_of_index(text, metadata.get("urls", {}).get("Repository", "")),
        }


def readme_of_index(text: str, address: str) -> str:
    """Returns a README whose links and pictures lead to the repository; their words alone if it has no address."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if not address:
            return f"*{words}*" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(absolute, text)


class ManualHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds ``share/man/man1/attnviz.1`` and ``*.dist-info/sboms/attnviz.cdx.json`` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Asks the commands for their help, for which ``build-system`` in pyproject.toml requires what they import."""
        sys.path.insert(0, self.root)
        from attnviz.version import __version__
        from tools.manual import manual
        from tools.sbom import bill_of_materials

        self.folder = TemporaryDirectory()
        page = Path(self.folder.name) / "attnviz.1"
        page.write_text(manual(), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/attnviz.1"
        bill = Path(self.folder.name) / "attnviz.cdx.json"
        bill.write_text(bill_of_materials(__version__), encoding="utf-8")
        build_data.setdefault("sbom_files", []).append(str(bill))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the files that the wheel now has."""
        self.folder.cleanup()
