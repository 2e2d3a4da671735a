"""The one door for files that anyone may have written: each is opened here, up to a limit that is said, and checked.

No other room opens a file (``tests/base/test_door.py`` lists the exceptions). Tensors have a door of their own in
``tensor_file``, which checks each value as it is read.
"""

import json
import re
import stat
from pathlib import Path
from typing import IO, Any

from attnviz.base.errors import AttnvizError

MAX_TEXT_BYTES = 64 * 10**6  # of a text, or of the texts of a batch
MAX_JSON_BYTES = 256 * 10**6  # of a file of a model's folder; the largest vocabularies take a fifth of it
MAX_TOML_BYTES = 256_000
MAX_JSON_LEVELS = 100
MEDIA = {  # by how their files begin, where they are no texts
    b"\x89PNG": "picture",
    b"\xff\xd8\xff": "picture",
    b"GIF8": "picture",
    b"RIFF": "picture or sound",
    b"ID3": "sound",
    b"\xff\xfb": "sound",
    b"fLaC": "sound",
    b"OggS": "sound",
    b"%PDF-": "PDF",
    b"PK\x03\x04": "archive",
}
MAX_KEY_PARTS = 32  # of a key of TOML: the standard library takes time that grows with their square
DOTTED = re.compile(rb"(?<![\w-])(?:(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*\.[ \t]*){%d}" % MAX_KEY_PARTS)


class NotJsonError(AttnvizError):
    """A text that should be JSON is none, or is nested too deeply."""


def open_file(path: Path, wanted: str = "a file") -> IO[bytes]:
    """Opens a regular file to be read; the caller bounds what it reads of it.

    Args:
        path: of the file; links are followed.
        wanted: what should be there, as a refusal names it.

    Raises:
        AttnvizError: if it is missing, a folder, a pipe or a device, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():  # opening a pipe would wait for its writer
            raise AttnvizError(f"{str(path)!r} is a pipe or a device; give {wanted}")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, wanted) from error


def read_start(path: Path, count: int) -> bytes:
    """Returns the first bytes of a regular file, at most ``count``; none of what cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(count)
    except (AttnvizError, OSError):
        return b""


def read_text(path: Path, limit: int | None = None) -> str:
    """Returns the text of a UTF-8 file, pipe or device, its line ends unchanged.

    Args:
        path: where it is.
        limit: bytes that are read at most; ``None`` for ``MAX_TEXT_BYTES``.

    Raises:
        AttnvizError: if it is missing, a folder, longer than can be read, binary, or not UTF-8.
    """
    content = _content(path, MAX_TEXT_BYTES if limit is None else limit, "a text file")
    return decode_text(content, repr(str(path)))


def read_lines(path: Path, limit: int, wanted: str) -> list[str]:
    """Returns the lines of a regular UTF-8 file of at most ``limit`` bytes.

    Raises:
        AttnvizError: as ``open_file`` and ``read_text`` do.
    """
    with open_file(path, wanted) as file:
        return decode_text(_all_of(file, path, limit, wanted), repr(str(path))).splitlines()


def read_stream(file: IO[bytes], what: str) -> str:
    """Returns the text of an open file, up to its end.

    Raises:
        AttnvizError: if it is longer than can be read, binary, or not UTF-8.
    """
    return decode_text(_bounded(file, MAX_TEXT_BYTES, what), what)


def decode_text(content: bytes, what: str) -> str:
    """Returns the bytes as text, without a byte-order mark.

    Raises:
        AttnvizError: if they are binary or not UTF-8.
    """
    medium = next((name for start, name in MEDIA.items() if content.startswith(start)), None)
    other = f"{what} is a {medium}, and a text is read here; in Python attnviz.record(model) records any input"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = f"{what} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise AttnvizError(line if medium is None else other) from error
    if content.count(0) > len(content) // 10:
        raise AttnvizError(f"{what} is binary; give a UTF-8 text" if medium is None else other)
    return text


def read_json(path: Path, limit: int | None = None) -> Any:
    """Returns the value of a JSON file.

    Args:
        path: of a regular file.
        limit: bytes that are read at most; ``None`` for ``MAX_JSON_BYTES``.

    Raises:
        AttnvizError: if it cannot be read, is too long, is no JSON, or is nested too deeply.
    """
    with open_file(path, "a JSON file") as file:
        content = _all_of(file, path, MAX_JSON_BYTES if limit is None else limit, "a JSON file")
    return parse_json(content, repr(str(path)))


def parse_json(content: str | bytes, what: str, levels: int = MAX_JSON_LEVELS) -> Any:
    """Returns the value of a text in JSON.

    Args:
        content: the text.
        what: how a refusal names it.
        levels: how deep lists and objects may stand within one another.

    Raises:
        NotJsonError: if it is no JSON, or is nested more deeply than that.
    """
    try:
        value = json.loads(content)
        refuse_deep(value, levels)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise NotJsonError(f"{what} is not valid JSON: {reason}") from error
    return value


def refuse_deep(value: Any, levels: int = MAX_JSON_LEVELS) -> None:
    """Raises RecursionError where lists and objects of JSON stand within one another more than ``levels`` deep."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not levels:
        raise RecursionError
    for child in children:
        if isinstance(child, dict | list):
            refuse_deep(child, levels - 1)


def read_toml(path: Path, mark: bytes = b"") -> dict[str, Any]:
    """Returns the value of a TOML file; empty where there is none, or where it does not hold ``mark``.

    Raises:
        AttnvizError: if it is too long, is no TOML, or is nested too deeply.
    """
    content = read_start(path, MAX_TOML_BYTES + 1)
    if mark not in content:
        return {}
    if len(content) > MAX_TOML_BYTES:
        raise AttnvizError(f"{str(path)!r} is longer than {MAX_TOML_BYTES // 1000} kB, the most that is read")
    if DOTTED.search(content):
        raise AttnvizError(f"{str(path)!r} has a key of more than {MAX_KEY_PARTS} parts; give tables of few levels")
    import tomllib

    try:
        value = tomllib.loads(content.decode())
        refuse_deep(value)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(f"{str(path)!r} is no TOML: {reason}") from error
    return value


def _content(path: Path, limit: int, wanted: str) -> bytes:
    try:
        with path.open("rb") as file:
            return _all_of(file, path, limit, wanted)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, wanted) from error


def _all_of(file: IO[bytes], path: Path, limit: int, wanted: str) -> bytes:
    """Returns all that an open file holds, or refuses it with its path."""
    try:
        return _bounded(file, limit, repr(str(path)))
    except OSError as error:
        raise _unreadable(path, error, wanted) from error


def _unreadable(path: Path, error: OSError | ValueError, wanted: str) -> AttnvizError:
    if isinstance(error, AttnvizError):
        return error
    if isinstance(error, IsADirectoryError):
        return AttnvizError(f"{str(path)!r} is a folder; give {wanted}")
    reason = error.strerror if isinstance(error, OSError) else error
    return AttnvizError(f"cannot read {str(path)!r}: {reason}")


def _bounded(file: IO[bytes], limit: int, what: str) -> bytes:
    content = file.read(limit + 1)
    if len(content) > limit:
        raise AttnvizError(f"{what} is longer than {_megabytes(limit)} MB, the most that is read; a part of it works")
    return content


def _megabytes(count: int) -> str:
    return f"{count / 1e6:g}"
