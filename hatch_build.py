"""Writes the man page whenever a wheel is built: it is the help of the commands, and kept nowhere else."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds ``share/man/man1/attnviz.1`` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Asks the commands for their help, for which ``build-system`` in pyproject.toml requires what they import."""
        sys.path.insert(0, self.root)
        from tools.manual import manual

        self.folder = TemporaryDirectory()
        page = Path(self.folder.name) / "attnviz.1"
        page.write_text(manual(), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/attnviz.1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the page that the wheel now has."""
        self.folder.cleanup()
