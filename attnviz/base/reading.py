"""Reads texts and JSON that anyone may have written: of files, pipes and devices, up to a limit that is said."""

import json
from pathlib import Path
from typing import IO, Any

from attnviz.base.errors import AttnvizError

MAX_TEXT_BYTES = 64 * 10**6  # of a text, or of the texts of a batch
MAX_JSON_BYTES = 256 * 10**6  # of a file of a model's folder; the largest vocabularies take a fifth of it
MAX_JSON_LEVELS = 100


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, its line ends unchanged.

    Raises:
        AttnvizError: if it is missing, a folder, longer than can be read, binary, or not UTF-8.
    """
    return decode_text(_content(path, MAX_TEXT_BYTES, "a text file"), repr(str(path)))


def read_stream(file: IO[bytes], what: str) -> str:
    """The text of an open file, up to its end.

    Raises:
        AttnvizError: if it is longer than can be read, binary, or not UTF-8.
    """
    return decode_text(_bounded(file, MAX_TEXT_BYTES, what), what)


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


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        AttnvizError: if it cannot be read, is too long, is no JSON, or is nested more deeply than any that is meant.
    """
    content = _content(path, MAX_JSON_BYTES, "a JSON file")
    try:
        value = json.loads(content)
        refuse_deep(value)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(f"{str(path)!r} is not valid JSON: {reason}") from error
    return value


def refuse_deep(value: Any, levels: int = MAX_JSON_LEVELS) -> None:
    """Raises RecursionError where lists and objects of JSON stand within one another more than ``levels`` deep."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not levels:
        raise RecursionError
    for child in children:
        if isinstance(child, dict | list):
            refuse_deep(child, levels - 1)


def _content(path: Path, limit: int, wanted: str) -> bytes:
    try:
        with path.open("rb") as file:
            return _bounded(file, limit, repr(str(path)))
    except IsADirectoryError as error:
        raise AttnvizError(f"{str(path)!r} is a folder; give {wanted}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, AttnvizError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise AttnvizError(f"cannot read {str(path)!r}: {reason}") from error


def _bounded(file: IO[bytes], limit: int, what: str) -> bytes:
    content = file.read(limit + 1)
    if len(content) > limit:
        raise AttnvizError(f"{what} is longer than {limit // 10**6} MB, the most that is read; a part of it works")
    return content
