"""Finds the files that a pattern matches, within bounds: every folder is read once, whatever links lead to it."""

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from attnviz.base.errors import AttnvizError
from attnviz.base.progress import working

MAX_ENTRIES = 1_000_000  # of folders that are read for one pattern
MAX_PATTERN_PARTS = 100
WILD = "*?["  # characters of a pattern; ``**`` alone stands for any folders


def matching_files(pattern: str, most: int, what: str) -> list[Path]:
    """Returns the files that a pattern of ``*``, ``?``, ``[a-z]`` and ``**`` matches, in the order of their paths.

    Names that begin with a dot match only a pattern that does.

    Raises:
        AttnvizError: for more than ``most`` files, or ``MAX_ENTRIES`` in folders; ``what`` begins the refusal.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    parts = [part for index, part in enumerate(parts) if parts[index : index + 2] != ["**", "**"]]
    if len(parts) > MAX_PATTERN_PARTS:
        raise AttnvizError(f"{what} has more than {MAX_PATTERN_PARTS} folders; give a shorter pattern")
    files = set[Path]()
    with working("looking for files"):
        walk = _Walk(what)
        for path in walk.matches(Path("/" if pattern.startswith("/") else ""), parts):
            if path.is_file():
                files.add(path)
            if len(files) > most:
                raise AttnvizError(f"{what} matches more than {most} files; give a pattern that matches fewer")
    return sorted(files)


class _Walk:
    """A search through folders that counts what it reads."""

    def __init__(self, what: str) -> None:
        self.what, self.entries = what, 0

    def matches(self, folder: Path, parts: list[str]) -> Iterator[Path]:
        """Yields the paths below a folder that the parts of a pattern match."""
        if not parts:
            yield folder
        elif parts[0] == "**":
            for inner_folder in self._folders(folder, set()):
                yield from self.matches(inner_folder, parts[1:] or ["*"])
        elif any(character in parts[0] for character in WILD):
            for name in self._names(folder):
                if fnmatchcase(name, parts[0]) and (name[0] != "." or parts[0][0] == "."):
                    yield from self.matches(folder / name, parts[1:])
        elif os.path.lexists(folder / parts[0]):
            yield from self.matches(folder / parts[0], parts[1:])

    def _folders(self, folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
        """Yields a folder and all below it, each once; ``visited`` holds the device and number of those before."""
        try:
            status = os.stat(folder)
        except (OSError, ValueError):
            return
        place = status.st_dev, status.st_ino
        if not stat.S_ISDIR(status.st_mode) or place in visited:
            return
        visited.add(place)
        yield folder
        for name in self._names(folder):
            if name[0] != ".":
                yield from self._folders(folder / name, visited)

    def _names(self, folder: Path) -> list[str]:
        """Returns the names in a folder in order; none if it is no folder, or cannot be read."""
        try:
            names = sorted(os.listdir(folder))
        except (OSError, ValueError):
            return []
        self.entries += len(names)
        if self.entries > MAX_ENTRIES:
            raise AttnvizError(f"{self.what} leads through more than {MAX_ENTRIES:,} files; give a narrower pattern")
        return names
