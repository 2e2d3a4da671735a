"""Reads text files, and writes files whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attnviz.base.errors import AttnvizError, option


@contextmanager
def atomic_file(path: Path, force: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its name only when it is complete; after an error nothing is left of it.

    Raises:
        AttnvizError: if the target exists and ``force`` is not given, or cannot be written.
    """
    refuse_target(path, force)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".attnviz-", dir=path.parent)
    except OSError as error:
        raise AttnvizError(f"cannot write to {str(path.parent)!r}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise AttnvizError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def refuse_target(path: Path, force: bool = False) -> None:
    """Raises AttnvizError where the path is a folder, its folder is missing, or it exists and must not be replaced."""
    if path.is_dir():
        raise AttnvizError(f"{str(path)!r} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise AttnvizError(f"no folder {str(path.parent)!r}; create it, or write to one that is there")
    if path.exists() and not force:
        raise AttnvizError(f"{str(path)!r} exists; {option('force', True)} replaces it")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, its line ends unchanged.

    Raises:
        AttnvizError: if it is missing, a folder, binary, or not UTF-8.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise AttnvizError(f"{str(path)!r} is a folder; give a text file") from error
    except OSError as error:
        raise AttnvizError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return decode_text(content, repr(str(path)))


def decode_text(content: bytes, what: str) -> str:
    """The bytes as text, a byte-order mark left out.

    Raises:
        AttnvizError: if they are binary or not UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttnvizError(f"{what} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    if content.count(0) > len(content) // 10:
        raise AttnvizError(f"{what} is binary; give a UTF-8 text")
    return text


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
