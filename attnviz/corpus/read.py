"""Reads the texts of a corpus one by one from text, JSON lines, CSV, Parquet and Arrow files, or standard input."""

import csv
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, did_you_mean, install, option, or_list
from attnviz.base.machine import is_out_of_memory
from attnviz.base.reading import open_file, parse_json
from attnviz.media.image import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from attnviz.media.image import ImageSource
    from attnviz.text.tokens import Tokens

STANDARD_INPUT = "-"
DEFAULT_COLUMN = "text"
MAX_ROW_BYTES = 64 * 10**6
DERIVED_PREFIX = "cache-"  # of files that `datasets` derives from others, with the same texts
EMPTY, NOT_UTF8, NOT_JSON, NO_TEXT = "empty", "not UTF-8", "not JSON", "no text"
MAX_TEXT_BYTES = 64 * 10**6  # of one text, and of all texts that are converted to Python at once
ROWS_AT_ONCE = 1024  # rows of a Parquet file that are read at once


@dataclass(frozen=True)
class CorpusText:
    """A text or picture of the corpus."""

    source: str  # the name of its file
    row: int  # its line or row in the file, from 1; 0 for a picture, which is the whole file
    text: str  # the text itself; of a picture, a digest of its file or its pixels
    tokens: "Tokens | None" = None  # the tokens of a picture; ``None`` for a text, which is tokenized later
    image: "ImageSource | None" = None  # the picture or its file; ``None`` for a text


@dataclass(eq=False)
class CorpusReader:
    """The texts of some files, read lazily; rows without a text are counted."""

    paths: Sequence[str]  # files, folders, patterns such as ``data/*.txt``, names of cached datasets, or ``-``
    column: str | None = None  # the column of a table that holds the text; ``None`` for the only column, or ``text``
    skipped: Counter[str] = field(default_factory=Counter)  # the number of rows that hold no text, by the reason

    def __post_init__(self) -> None:
        self.files = [file for path in self.paths for file in _corpus_files(path)]
        self.sizes = {file: os.path.getsize(file) for file in self.files if file != STANDARD_INPUT}
        self.bytes_of_earlier_files = self.bytes_of_this_file = 0

    @property
    def share(self) -> float | None:
        """The approximate share of the corpus that has been read, 0 to 1; ``None`` with standard input."""
        if len(self.sizes) < len(self.files):
            return None
        return (self.bytes_of_earlier_files + self.bytes_of_this_file) / max(1, sum(self.sizes.values()))

    def __iter__(self) -> Iterator[CorpusText]:
        """Yields the texts file by file; counts the rows without a text in ``skipped``, and the bytes that are read."""
        for index, file in enumerate(self.files):
            self.bytes_of_earlier_files = sum(self.sizes.get(earlier_file, 0) for earlier_file in self.files[:index])
            self.bytes_of_this_file = 0
            name = "standard input" if file == STANDARD_INPUT else file
            for row, text in enumerate(self._rows(file), 1):
                if isinstance(text, _Skipped):
                    self.skipped[text.reason] += 1
                    continue
                # characters and a line ending, which are about as many bytes as the row has
                self.bytes_of_this_file = min(self.bytes_of_this_file + len(text) + 1, self.sizes.get(file, 0))
                if not text.strip():
                    self.skipped[EMPTY] += 1
                else:
                    yield CorpusText(name, row, text)

    def _rows(self, file: str) -> "Iterator[str | _Skipped]":
        """Yields the text of each row of a file, or the reason why a row has none."""
        if file == STANDARD_INPUT:
            if sys.stdin is None:
                raise AttnvizError("standard input is closed; give a file")
            yield from _lines(sys.stdin.buffer)
            return
        path = Path(file)
        try:
            yield from READERS[path.suffix.lower()](path, self.column)
        except OSError as error:
            raise AttnvizError(f"cannot read {file!r}: {error.strerror or error}") from error


@dataclass(eq=False)
class PassedTexts:
    """Texts that a caller passes one by one, checked like those of files."""

    texts: Iterable[Any]  # the texts
    skipped: Counter[str] = field(default_factory=Counter)  # the number of values that were no text, by the reason
    share: float | None = None  # ``None``, since the number of texts is unknown

    def __iter__(self) -> Iterator[CorpusText]:
        """Yields each text with its number, from 1; counts the values that are no text or blank in ``skipped``."""
        for row, value in enumerate(self.texts, 1):
            text = _text_of(value, DEFAULT_COLUMN) if isinstance(value, str) else _Skipped(NO_TEXT)
            if isinstance(text, _Skipped):
                self.skipped[text.reason] += 1
            elif not text.strip():
                self.skipped[EMPTY] += 1
            else:
                yield CorpusText("texts", row, text)


@dataclass(frozen=True)
class _Skipped:
    """A row that holds no text."""

    reason: str  # the reason, such as ``not UTF-8``


def _corpus_files(path: str) -> list[str]:
    """Returns the files that a path names: itself, those of a folder or cached dataset, or those that match a pattern.

    A dash stands for standard input and is returned unchanged.
    """
    if path == STANDARD_INPUT:
        return [path]
    if not path:  # Path("") is the working folder
        raise AttnvizError("an empty name is not a corpus; give a file, a folder or - for standard input")
    resolved_path = Path(path)
    if not resolved_path.exists() and _cached_dataset(path).is_dir():
        resolved_path = _cached_dataset(path)
    if resolved_path.is_dir():
        readable_files = sorted(
            file for file in resolved_path.rglob("*") if file.is_file() and file.suffix.lower() in READERS
        )
        original_files = [
            file for file in readable_files if not (file.suffix == ".arrow" and file.name.startswith(DERIVED_PREFIX))
        ]
        if not original_files:
            raise AttnvizError(
                f"no texts or pictures in the folder {path!r}; give files that end in "
                f"{or_list((*READERS, *IMAGE_SUFFIXES))}"
            )
        return list(map(str, original_files))
    is_pattern = not resolved_path.exists() and any(character in path for character in "*?[")
    files = [resolved_path]
    if is_pattern:
        from attnviz.base.reading import MAX_ENTRIES, matching_files

        files = matching_files(path, MAX_ENTRIES, repr(path))
        if not files:
            raise AttnvizError(f"no file matches {path!r}; give a file, a folder or another pattern")
    for file in files:
        if not file.exists():
            advice = "give a file, a folder, a pattern in quotes, the name of a cached dataset, or -"
            raise AttnvizError(f"there is no file {str(file)!r}; {advice}")
        if file.suffix.lower() not in READERS:
            raise AttnvizError(f"{str(file)!r} has an unknown suffix; give files that end in {or_list(READERS)}")
    return list(map(str, files))


def _cached_dataset(name: str) -> Path:
    """Returns the folder in which Hugging Face's `datasets` caches a dataset; it may not exist."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    return Path(os.environ.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")) / name.replace("/", "___")


def _read_lines(path: Path, column: str | None) -> "Iterator[str | _Skipped]":
    """Yields each line of a file as a text, or the reason to skip it; raises AttnvizError if a column is named."""
    if column is not None:
        raise AttnvizError(
            f"{option('column', column)} does not apply to {str(path)!r}, which has lines, not columns; leave it out"
        )
    with open_file(path) as file:
        yield from _lines(file)


def _lines(file: IO[bytes]) -> "Iterator[str | _Skipped]":
    """Yields each line without its line ending, or the reason to skip it."""
    is_first = True
    for line in _bounded_lines(file):
        try:
            text = line.decode("utf-8-sig" if is_first else "utf-8").rstrip("\r\n")
            yield text if "\0" not in text else _Skipped("binary")
        except UnicodeDecodeError:
            yield _Skipped(NOT_UTF8)
        is_first = False


def _bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yields each line with its line ending; raises AttnvizError for a line of more than `MAX_ROW_BYTES`."""
    while line := file.readline(MAX_ROW_BYTES + 1):
        if len(line) > MAX_ROW_BYTES:
            raise AttnvizError(f"a line is longer than {MAX_ROW_BYTES // 10**6} MB, the most that is read; split it")
        yield line


def _read_json_lines(path: Path, column: str | None) -> "Iterator[str | _Skipped]":
    """Yields the text of each line, a string or an object with the column, or the reason to skip it."""
    column_name = column or DEFAULT_COLUMN
    has_checked_column = False
    with open_file(path) as file:
        for line in _lines(file):
            if isinstance(line, _Skipped) or not line.strip():
                yield line
                continue
            try:
                value = parse_json(line, "a line")
            except AttnvizError:
                yield _Skipped(NOT_JSON)
                continue
            if isinstance(value, dict) and not has_checked_column and column_name not in value:
                raise _missing_column_error(path, column_name, value)
            has_checked_column = True
            yield _text_of(value.get(column_name) if isinstance(value, dict) else value, column_name)


def _read_csv(path: Path, column: str | None) -> "Iterator[str | _Skipped]":
    """Yields the text of each row of a table whose first line names the columns, or the reason to skip the row."""
    csv.field_size_limit(MAX_ROW_BYTES)
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with open_file(path) as file:
        lines = _TableLines(file)
        reader = csv.reader(lines, delimiter=separator)
        try:
            names = next(reader, [])
            column_name = _text_column(path, column, names)
            index = names.index(column_name)
            for row in reader:
                lines.row_bytes = 0
                yield _text_of(row[index] if index < len(row) else None, column_name)
        except csv.Error as error:
            raise AttnvizError(f"{str(path)!r} is not a readable table, line {reader.line_num}: {error}") from error


@dataclass
class _TableLines:
    """The lines of a table, with bytes that are not UTF-8 as lone surrogates, which `_text_of` skips."""

    file: IO[bytes]  # the file, open for reading
    row_bytes: int = 0  # the number of bytes since the end of the last row; a quoted field may span many lines

    def __iter__(self) -> Iterator[str]:
        """Yields each line with its line ending, without a byte order mark before the first."""
        is_first = True
        # csv also takes a lone carriage return for the end of a line
        for line in chain.from_iterable(part.splitlines(keepends=True) for part in _bounded_lines(self.file)):
            self.row_bytes += len(line)
            if self.row_bytes > MAX_ROW_BYTES:
                raise AttnvizError(f"a row is longer than {MAX_ROW_BYTES // 10**6} MB, the most that is read; split it")
            yield line.decode("utf-8-sig" if is_first else "utf-8", "surrogateescape")
            is_first = False


def _read_parquet(path: Path, column: str | None) -> "Iterator[str | _Skipped]":
    """Yields the text of each row of a Parquet file, or the reason why a row has none."""
    library = _import_pyarrow(path)
    try:
        with open_file(path) as file:
            parquet = library.parquet.ParquetFile(file)
            column_name = _text_column(path, column, parquet.schema_arrow.names)
            for number in range(parquet.metadata.num_row_groups):
                row_group = parquet.metadata.row_group(number)
                if row_group.total_byte_size > MAX_TEXT_BYTES * max(1, row_group.num_rows):
                    raise _too_long(path)
            # Repeated texts are stored once, and 5 kB can decode to gigabytes: the column stays dictionary-encoded.
            rows = library.parquet.ParquetFile(file, metadata=parquet.metadata, read_dictionary=[column_name])
            for batch in rows.iter_batches(ROWS_AT_ONCE, columns=[column_name]):
                yield from (_text_of(value, column_name) for value in _text_bytes(library, path, batch.column(0)))
    except Exception as error:
        raise _refusal(path, "Parquet file", error) from error


def _read_arrow(path: Path, column: str | None) -> "Iterator[str | _Skipped]":
    """Yields the text of each row of an Arrow stream, as `datasets` caches tables, or the reason why it has none."""
    library = _import_pyarrow(path)
    try:
        with open_file(path), library.memory_map(str(path)) as file, library.ipc.open_stream(file) as batches:
            column_name = _text_column(path, column, batches.schema.names)
            for batch in batches:
                column_values = _text_bytes(library, path, batch.column(column_name))
                yield from (_text_of(value, column_name) for value in column_values)
    except Exception as error:
        raise _refusal(path, "Arrow stream", error) from error


def _text_column(path: Path, column: str | None, names: Sequence[str]) -> str:
    """Returns the name of the column that holds the text."""
    default_name = names[0] if len(names) == 1 else DEFAULT_COLUMN
    column_name = column or default_name
    if column_name not in names:
        raise _missing_column_error(path, column_name, names)
    if list(names).count(column_name) > 1:
        raise AttnvizError(f"{str(path)!r} has several columns {column_name!r}; rename all but one")
    return column_name


def _text_of(value: Any, column: str) -> "str | _Skipped":
    """Returns the text of a cell; ``_Skipped`` with the reason if the cell holds no text, or text that is not UTF-8."""
    text = value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return _Skipped(f"without a text in {column!r}")
    has_surrogate = any("\ud800" <= character <= "\udfff" for character in text)  # bytes that are not UTF-8 become one
    return _Skipped(NOT_UTF8) if has_surrogate else text


def _missing_column_error(path: Path, column_name: str, names: Iterable[str]) -> AttnvizError:
    """Returns the error for a table that lacks a column; its message lists the names of all columns."""
    present_names = list(names)
    if not present_names:
        return AttnvizError(f"{str(path)!r} has no columns; give a table with a column {column_name!r}")
    return AttnvizError(
        f"{str(path)!r} has no column {column_name!r}; {did_you_mean(column_name, present_names)}use "
        f"{option('column', present_names[0])} ({or_list(present_names)})"
    )


READERS: "dict[str, Callable[[Path, str | None], Iterator[str | _Skipped]]]" = {
    ".txt": _read_lines,
    ".jsonl": _read_json_lines,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}


def _refusal(path: Path, kind: str, error: Exception) -> Exception:
    """Returns the error to raise for a file that pyarrow cannot read, as pyarrow raises errors of many types."""
    if isinstance(error, AttnvizError) or is_out_of_memory(error):
        return error
    return AttnvizError(f"{str(path)!r} is not a readable {kind}: {str(error) or type(error).__name__}")


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise AttnvizError(f"{str(path)!r} needs pyarrow; run {install('corpus')}") from error
    return pyarrow


def _text_bytes(library: Any, path: Path, array: Any) -> Iterator[bytes | None]:
    """Yields the text of each row of a column as bytes, ``None`` for a row without one; checks every offset first."""
    texts = _as_bytes(library, array)
    if texts is None:
        yield from (None for _ in range(len(array)))
        return
    texts.validate(full=True)
    values = texts.dictionary if library.types.is_dictionary(texts.type) else texts
    max_bytes = library.compute.max(library.compute.binary_length(values)).as_py() or 0  # None for no text
    if max_bytes > MAX_TEXT_BYTES:
        raise _too_long(path)
    # as many rows as stay within MAX_TEXT_BYTES even if each has the longest text
    rows_at_once = max(1, MAX_TEXT_BYTES // max(1, max_bytes))
    for start in range(0, len(texts), rows_at_once):
        yield from texts.slice(start, rows_at_once).to_pylist()


def _as_bytes(library: Any, array: Any) -> Any:
    """Returns a column of texts with the type bytes, since texts need not be valid UTF-8; ``None`` for other types."""
    types, array_type = library.types, array.type
    if types.is_dictionary(array_type):
        values = _as_bytes(library, array.dictionary)
        return None if values is None else library.DictionaryArray.from_arrays(array.indices, values, safe=False)
    if types.is_string(array_type):
        return array.view(library.binary())
    return array.view(library.large_binary()) if types.is_large_string(array_type) else None


def _too_long(path: Path) -> AttnvizError:
    """Returns the error to raise for a file with a text of more than `MAX_TEXT_BYTES`."""
    megabytes = MAX_TEXT_BYTES // 10**6
    return AttnvizError(f"{str(path)!r} has a text longer than {megabytes} MB, the most that is read; split it")
