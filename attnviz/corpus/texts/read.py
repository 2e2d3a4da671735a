"""Reads the texts of a corpus one by one: files of lines, JSON lines, CSV, Parquet, Arrow; folders, standard input."""

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from attnviz.base.errors import AttnvizError, known_names, nearest, option

STANDARD_INPUT = "-"
DEFAULT_COLUMN = "text"
MAX_ROW_BYTES = 64 * 10**6
PARQUET_ROWS = 1024  # read at once
DERIVED = "cache-"  # before the names of files that `datasets` made of others: the same texts again
EMPTY, NOT_UTF8, NOT_JSON, NO_TEXT = "empty", "not UTF-8", "not JSON", "no text"


@dataclass(frozen=True)
class CorpusText:
    """A text of the corpus.

    Attributes:
        source: the name of its file.
        row: its line or row there, from 1.
        text: itself.
    """

    source: str
    row: int
    text: str


@dataclass(eq=False)
class CorpusReader:
    """The texts of some files, read as they are asked for; rows that hold none are counted.

    Attributes:
        paths: files, folders, patterns such as ``data/*.txt``, or ``-``.
        column: which column of a table holds the text; ``None`` for ``text``, or the only one.
        skipped: how many rows hold no text, by the reason.

    Raises:
        AttnvizError: where there is no such file, or none that can be read.
    """

    paths: Sequence[str]
    column: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.files = [file for path in self.paths for file in files_of(path)]
        self.sizes = {file: os.path.getsize(file) for file in self.files if file != STANDARD_INPUT}
        self.passed = self.within = 0

    @property
    def share(self) -> float | None:
        """About how much of the corpus has been read, 0 to 1; ``None`` of standard input."""
        if len(self.sizes) < len(self.files):
            return None
        return (self.passed + self.within) / max(1, sum(self.sizes.values()))

    def __iter__(self) -> Iterator[CorpusText]:
        for place, file in enumerate(self.files):
            self.passed, self.within = sum(self.sizes.get(before, 0) for before in self.files[:place]), 0
            name = "standard input" if file == STANDARD_INPUT else file
            for row, text in enumerate(self._rows(file), 1):
                if isinstance(text, Skipped):
                    self.skipped[text.reason] += 1
                    continue
                self.within = min(self.within + len(text) + 1, self.sizes.get(file, 0))
                if not text.strip():
                    self.skipped[EMPTY] += 1
                else:
                    yield CorpusText(name, row, text)

    def _rows(self, file: str) -> "Iterator[str | Skipped]":
        if file == STANDARD_INPUT:
            if sys.stdin is None:
                raise AttnvizError("standard input is closed; a file works")
            yield from _lines(sys.stdin.buffer)
            return
        path = Path(file)
        try:
            yield from READERS[path.suffix.lower()](path, self.column)
        except OSError as error:
            raise AttnvizError(f"cannot read {file!r}: {error.strerror or error}") from error


@dataclass(eq=False)
class GivenTexts:
    """Texts that a caller gives one by one, read as those of files are.

    Attributes:
        texts: the texts.
        skipped: how many were none, by the reason.
    """

    texts: Iterable[Any]
    skipped: Counter[str] = field(default_factory=Counter)
    share: float | None = None

    def __iter__(self) -> Iterator[CorpusText]:
        for row, value in enumerate(self.texts, 1):
            text = _text_of(value, DEFAULT_COLUMN) if isinstance(value, str) else Skipped(NO_TEXT)
            if isinstance(text, Skipped):
                self.skipped[text.reason] += 1
            elif not text.strip():
                self.skipped[EMPTY] += 1
            else:
                yield CorpusText("texts", row, text)


@dataclass(frozen=True)
class Skipped:
    """A row that holds no text.

    Attributes:
        reason: why, as ``not UTF-8``.
    """

    reason: str


def files_of(path: str) -> list[str]:
    """The files that a path names: itself, those in a folder, or those that a pattern matches.

    Raises:
        AttnvizError: if there are none, or none of a kind that is read.
    """
    if path == STANDARD_INPUT:
        return [path]
    found = Path(path)
    if not found.exists() and (cached := cached_dataset(path)).is_dir():
        found = cached
    if found.is_dir():
        files = sorted(file for file in found.rglob("*") if file.is_file() and file.suffix.lower() in READERS)
        files = [file for file in files if not (file.suffix == ".arrow" and file.name.startswith(DERIVED))]
        if not files:
            raise AttnvizError(f"no texts in the folder {path!r}; {known_names(READERS)} are read")
        return list(map(str, files))
    if not found.exists() and any(character in path for character in "*?["):
        from glob import glob

        files = sorted(Path(file) for file in glob(path, recursive=True) if Path(file).is_file())
        if not files:
            raise AttnvizError(f"no file matches {path!r}")
    else:
        files = [found]
    for file in files:
        if not file.exists():
            known = "a file, a folder, a pattern in quotes, the name of a cached dataset or - works"
            raise AttnvizError(f"there is no file {str(file)!r}; {known}")
        if file.suffix.lower() not in READERS:
            raise AttnvizError(f"{str(file)!r} is of no kind that is read; {known_names(READERS)} works")
    return list(map(str, files))


def cached_dataset(name: str) -> Path:
    """Where Hugging Face's `datasets` keeps the dataset of this name, if it has it."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    return Path(os.environ.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")) / name.replace("/", "___")


def _read_lines(path: Path, column: str | None) -> "Iterator[str | Skipped]":
    """A text a line."""
    if column is not None:
        raise AttnvizError(f"{option('column', column)} means nothing to {str(path)!r}, which has lines; leave it out")
    with path.open("rb") as file:
        yield from _lines(file)


def _lines(file: IO[bytes]) -> "Iterator[str | Skipped]":
    first = True
    while line := file.readline(MAX_ROW_BYTES + 1):
        if len(line) > MAX_ROW_BYTES:
            raise AttnvizError(f"a line is longer than {MAX_ROW_BYTES // 10**6} MB, the most that is read")
        try:
            text = line.decode("utf-8-sig" if first else "utf-8").rstrip("\r\n")
            yield text if "\0" not in text else Skipped("binary")
        except UnicodeDecodeError:
            yield Skipped(NOT_UTF8)
        first = False


def _read_json_lines(path: Path, column: str | None) -> "Iterator[str | Skipped]":
    """A JSON object or string a line."""
    wanted, known = column or DEFAULT_COLUMN, False
    with path.open("rb") as file:
        for line in _lines(file):
            if isinstance(line, Skipped) or not line.strip():
                yield line
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield Skipped(NOT_JSON)
                continue
            if isinstance(value, dict) and not known and wanted not in value:
                raise _no_column(path, wanted, value)
            known = True
            yield _text_of(value.get(wanted) if isinstance(value, dict) else value, wanted)


def _read_csv(path: Path, column: str | None) -> "Iterator[str | Skipped]":
    """A row of a table whose first line names the columns."""
    csv.field_size_limit(MAX_ROW_BYTES)
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        try:
            names = next(reader, [])
            place = names.index(wanted := _column_of(path, column, names))
            for row in reader:
                yield _text_of(row[place] if place < len(row) else None, wanted)
        except csv.Error as error:
            raise AttnvizError(
                f"{str(path)!r} is no table that can be read, line {reader.line_num}: {error}"
            ) from error


def _read_parquet(path: Path, column: str | None) -> "Iterator[str | Skipped]":
    """A row of a Parquet file."""
    pyarrow = _arrow(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            wanted = _column_of(path, column, file.schema_arrow.names)
            for batch in file.iter_batches(PARQUET_ROWS, columns=[wanted]):
                yield from (_text_of(value, wanted) for value in batch.column(0).to_pylist())
    except pyarrow.ArrowException as error:
        raise AttnvizError(f"{str(path)!r} is no Parquet file that can be read: {error}") from error


def _read_arrow(path: Path, column: str | None) -> "Iterator[str | Skipped]":
    """A row of a stream of Arrow, as Hugging Face's `datasets` keeps its tables."""
    pyarrow = _arrow(path)
    try:
        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as batches:
            wanted = _column_of(path, column, batches.schema.names)
            for batch in batches:
                yield from (_text_of(value, wanted) for value in batch.column(wanted).to_pylist())
    except pyarrow.ArrowException as error:
        raise AttnvizError(f"{str(path)!r} is no stream of Arrow that can be read: {error}") from error


def _arrow(path: Path) -> Any:
    """The library that reads the file."""
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise AttnvizError(f"{str(path)!r} needs pyarrow; pip install 'attnviz[corpus]' works") from error
    return pyarrow


def _column_of(path: Path, column: str | None, names: Sequence[str]) -> str:
    """The column that holds the text.

    Raises:
        AttnvizError: if there is none of that name.
    """
    wanted = column or (names[0] if len(names) == 1 else DEFAULT_COLUMN)
    if wanted not in names:
        raise _no_column(path, wanted, names)
    return wanted


def _text_of(value: Any, column: str) -> "str | Skipped":
    if not isinstance(value, str):
        return Skipped(f"without a text in {column!r}")
    return Skipped(NOT_UTF8) if any("\ud800" <= character <= "\udfff" for character in value) else value


def _no_column(path: Path, wanted: str, names: Iterable[str]) -> AttnvizError:
    names = list(names)
    meant = nearest(wanted, names)
    return AttnvizError(
        f"{str(path)!r} has no column {wanted!r}; {meant}{option('column', names[0] if names else 'text')} works "
        f"({known_names(names)})"
    )


READERS: "dict[str, Callable[[Path, str | None], Iterator[str | Skipped]]]" = {
    ".txt": _read_lines,
    ".jsonl": _read_json_lines,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}
