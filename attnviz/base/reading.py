"""Opens, bounds and checks every untrusted file, declares what its JSON may hold, and finds files by patterns.

No other package opens a file (``tests/base/test_opened_files.py`` lists the exceptions). Files of tensors are read by
``tensor_file``, which checks each value when it is read. Whatever is taken out of a model's folder, a recording, an
answer, a chat or word times is checked by a `ValueKind`.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import IO, Any

from attnviz.base.errors import AttnvizError, did_you_mean, option
from attnviz.base.progress import working

MAX_TEXT_BYTES = 64 * 10**6  # of a text, or of all texts of a batch
MAX_JSON_BYTES = 256 * 10**6  # of a file in a model's folder; the largest vocabularies are a fifth of it
MAX_TOML_BYTES = 256_000
MAX_JSON_LEVELS = 100
MAX_DIGITS = 300  # of an integer in JSON: each that is shorter is a float, too
LONG_NUMBER = re.compile(f"[0-9]{{{MAX_DIGITS}}}")
LONG_NUMBER_BYTES = re.compile(LONG_NUMBER.pattern.encode())
MAX_NEAR = 1000  # files of a folder whose names are compared with one that is not there
FILE_KINDS = {  # kinds of files that are not texts, by their first bytes
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
    b"GGUF": "model",
}
MAX_KEY_PARTS = 32  # of a dotted key of TOML; the standard library's time is quadratic in their number
LONG_DOTTED_KEY = re.compile(rb"(?<![\w-])(?:(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*\.[ \t]*){%d}" % MAX_KEY_PARTS)


class NotJsonError(AttnvizError):
    """The refusal of a text that is not valid JSON, or is nested too deeply."""


def open_file(path: Path, expected_kind: str = "a file") -> IO[bytes]:
    """Opens a regular file for reading; the caller bounds how much it reads."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():  # opening a pipe blocks until a writer opens it
            raise AttnvizError(f"{str(path)!r} is a pipe or a device; give {expected_kind}")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise read_error(path, error, expected_kind) from error


def read_start(path: Path, count: int) -> bytes:
    """Returns the first ``count`` bytes of a regular file, or all if there are fewer; b"" if it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(count)
    except (AttnvizError, OSError):
        return b""


def read_text(path: Path, limit: int | None = None) -> str:
    """Returns the text of a UTF-8 file, pipe or device, its line ends unchanged."""
    expected_kind = "a text file"
    try:
        with path.open("rb") as file:
            content = _read_all(file, path, MAX_TEXT_BYTES if limit is None else limit, expected_kind)
    except (OSError, ValueError) as error:
        raise read_error(path, error, expected_kind) from error
    return decode_text(content, repr(str(path)))


def read_lines(path: Path, limit: int, expected_kind: str) -> list[str]:
    """Returns the lines of a regular UTF-8 file."""
    with open_file(path, expected_kind) as file:
        return decode_text(_read_all(file, path, limit, expected_kind), repr(str(path))).splitlines()


def read_stream(file: IO[bytes], what: str) -> str:
    """Returns the text of an open file from its position to its end; ``what`` names the file in refusals."""
    return decode_text(_read_bounded(file, MAX_TEXT_BYTES, what), what)


def decode_text(content: bytes, what: str) -> str:
    """Returns the bytes as text, without a byte-order mark; ``what`` names their source in refusals."""
    kind = next((name for first_bytes, name in FILE_KINDS.items() if content.startswith(first_bytes)), None)
    kind_refusal = f"{what} is a {kind}; give a text, or record any input in Python with attnviz.record(model)"
    if kind == "model":
        kind_refusal = f"{what} is a model; give a text, and the model with {option('model', 'model.gguf')}"
    if kind == "picture":
        kind_refusal = f"{what} is a picture; give a text, or give the picture to a vision model in place of a text"
    # safetensors: the length of a header in 8 bytes, then the header as JSON with its metadata at the start
    if content[8:9] == b"{" and b'"__metadata__"' in content[:200]:
        kind = "file of tensors"
        kind_refusal = f"{what} is a file of tensors; give a saved recording without {option('file')}"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refusal = f"{what} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise AttnvizError(refusal if kind is None else kind_refusal) from error
    if content.count(0) > len(content) // 10:
        raise AttnvizError(f"{what} is binary; give a UTF-8 text" if kind is None else kind_refusal)
    return text


def read_json(path: Path, limit: int | None = None) -> Any:
    """Returns the value of a JSON file."""
    with open_file(path, "a JSON file") as file:
        content = _read_all(file, path, MAX_JSON_BYTES if limit is None else limit, "a JSON file")
    return parse_json(content, repr(str(path)))


def parse_json(content: str | bytes, what: str, levels: int = MAX_JSON_LEVELS) -> Any:
    """Returns the value of a JSON text."""
    try:
        value = json.loads(content)
        refuse_deep_nesting(value, levels)
        if LONG_NUMBER.search(content) if isinstance(content, str) else LONG_NUMBER_BYTES.search(content):
            json.loads(content, parse_int=_refuse_long_number)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise NotJsonError(f"{what} is not valid JSON: {reason}") from error
    return value


def _refuse_long_number(digits: str) -> int:
    """Returns the number; raises ValueError if it is too large for a float."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def refuse_deep_nesting(value: Any, levels: int = MAX_JSON_LEVELS) -> None:
    """Raises RecursionError if lists and objects of a JSON value are nested more than ``levels`` deep."""
    if not levels:
        raise RecursionError
    if not isinstance(value, dict | list):
        return
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, dict | list):
            refuse_deep_nesting(child, levels - 1)


def read_toml(path: Path, mark: bytes = b"") -> dict[str, Any]:
    """Returns the value of a TOML file; {} if the file cannot be read, or if its content lacks ``mark``."""
    content = read_start(path, MAX_TOML_BYTES + 1)
    if mark not in content:
        return {}
    if len(content) > MAX_TOML_BYTES:
        raise AttnvizError(
            f"{str(path)!r} is longer than {MAX_TOML_BYTES // 1000} kB, the most that is read; shorten it"
        )
    if LONG_DOTTED_KEY.search(content):
        raise AttnvizError(f"{str(path)!r} has a key of more than {MAX_KEY_PARTS} parts; give tables of few levels")
    import tomllib

    try:
        value = tomllib.loads(content.decode())
        refuse_deep_nesting(value)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(f"{str(path)!r} is not valid TOML: {reason}") from error
    return value


def _read_all(file: IO[bytes], path: Path, limit: int, expected_kind: str) -> bytes:
    """Returns the whole content of an open file; raises AttnvizError if it cannot be read or is too long."""
    try:
        return _read_bounded(file, limit, repr(str(path)))
    except OSError as error:
        raise read_error(path, error, expected_kind) from error


def nearest_file(path: Path) -> str:
    """Returns the question ``did you mean run.safetensors?`` for the nearest name in a path's folder; "" for none."""
    folder = path.expanduser().parent
    try:
        names = [str(folder / entry.name) for entry in islice(os.scandir(folder), MAX_NEAR)]
    except OSError:
        return ""
    return did_you_mean(str(path), names).strip()


def read_error(path: Path, error: OSError | ValueError, expected_kind: str) -> AttnvizError:
    """Returns the refusal for an error that opening or reading a file raised; an AttnvizError unchanged."""
    if isinstance(error, AttnvizError):
        return error
    if isinstance(error, IsADirectoryError):
        return AttnvizError(f"{str(path)!r} is a folder; give {expected_kind}")
    if isinstance(error, FileNotFoundError):
        return AttnvizError(f"there is no file {str(path)!r}; {nearest_file(path) or f'give {expected_kind}'}")
    reason = error.strerror if isinstance(error, OSError) else error
    return AttnvizError(f"cannot read {str(path)!r}: {reason}")


def _read_bounded(file: IO[bytes], limit: int, what: str) -> bytes:
    """Returns the content of an open file, called ``what``; raises AttnvizError if it is longer than ``limit``."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise AttnvizError(f"{what} is longer than {limit / 1e6:g} MB, the most that is read; give a part of it")
    return content


MAX_QUOTED_CHARACTERS = 40  # of a value in a refusal


@dataclass(frozen=True)
class ValueKind:
    """The values that a setting may have."""

    words: str  # what they are, for a refusal: ``a whole number from 1 to 100``
    accepts: Callable[[Any], bool]


def whole(minimum: int, maximum: int) -> ValueKind:
    """Returns the kind of whole numbers in a range; true and false are no numbers."""
    return ValueKind(
        f"a whole number from {minimum} to {maximum}",
        lambda value: type(value) is int and minimum <= value <= maximum,
    )


def number(minimum: float, maximum: float) -> ValueKind:
    """Returns the kind of finite numbers in a range."""
    return ValueKind(
        f"a number from {minimum:g} to {maximum:g}",
        lambda value: type(value) in (int, float) and minimum <= value <= maximum,
    )


def list_of(entry: ValueKind, most: int) -> ValueKind:
    """Returns the kind of lists of up to ``most`` entries of one kind."""
    return ValueKind(
        f"a list of up to {most}, each {entry.words}",
        lambda value: isinstance(value, list) and len(value) <= most and all(map(entry.accepts, value)),
    )


def pair_of(entry: ValueKind) -> ValueKind:
    """Returns the kind of lists of two entries of one kind."""
    return ValueKind(
        f"a pair, each {entry.words}",
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(entry.accepts, value)),
    )


def either(first: ValueKind, second: ValueKind) -> ValueKind:
    """Returns the kind of values that are of one of two kinds."""
    return ValueKind(f"{first.words}, or {second.words}", lambda value: first.accepts(value) or second.accepts(value))


def sizes(minimum: float, maximum: float) -> ValueKind:
    """Returns the kind of one number in a range, or of lists and objects that hold only such numbers, at any depth."""
    one = number(minimum, maximum)

    def accepts(value: Any) -> bool:
        parts = value.values() if isinstance(value, dict) else value
        return all(map(accepts, parts)) if isinstance(value, dict | list) else one.accepts(value)

    return ValueKind(f"{one.words}, or a list of such numbers", accepts)


TEXT = ValueKind("a text", lambda value: isinstance(value, str))
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
FLAG = ValueKind("true or false", lambda value: isinstance(value, bool))
HEAD_PAIRS = list_of(pair_of(whole(0, 100_000)), most=10_000)  # layer and head


def refuse_other_kinds(settings: Any, kinds: Mapping[str, ValueKind], what: str) -> None:
    """Raises AttnvizError if a setting of JSON, at any depth, is of another kind than declared.

    Settings that are null or not declared are accepted.

    Args:
        kinds: the kind of settings by a regular expression of their names.
        what: names the source in the refusal: ``config.json of './bert'``.
    """
    if isinstance(settings, dict):
        for name, value in settings.items():
            kind = next((kind for pattern, kind in kinds.items() if re.fullmatch(pattern, name)), None)
            if kind is not None and value is not None and not kind.accepts(value):
                raise AttnvizError(f"{what} has {name} {quoted(value)}; give {kind.words}")
    for part in settings.values() if isinstance(settings, dict) else settings if isinstance(settings, list) else ():
        if isinstance(part, dict | list):
            refuse_other_kinds(part, kinds, what)


def quoted(value: Any) -> str:
    """Returns a value as a refusal quotes it: the start of its representation."""
    if type(value) is int and abs(value) >= 10**MAX_QUOTED_CHARACTERS:
        return f"a number of more than {MAX_QUOTED_CHARACTERS} digits"
    text = repr(value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str | list) else value)
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"


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
