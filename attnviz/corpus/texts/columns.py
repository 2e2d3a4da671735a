"""Reads the texts of one column of a Parquet file or a stream of Arrow, none of which is trusted to be as it says."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import lacks_memory
from attnviz.base.reading import open_file

MAX_TEXT_BYTES = 64 * 10**6  # of one text; and of those that become Python's at once
ROWS = 1024  # of a Parquet file, read at once
Chooser = Callable[[Sequence[str]], str]  # the name of the column that holds the texts, of all names


def parquet_values(path: Path, choose: Chooser) -> Iterator[tuple[str, bytes | None]]:
    """Yields the name of the column with each row of it, as bytes; ``None`` where a row holds no text.

    Args:
        path: of the file.
        choose: picks the column.

    Raises:
        AttnvizError: if the file cannot be read, or holds a text that is longer than any that is read.
    """
    library = _library(path)
    try:
        with open_file(path) as file:
            whole = library.parquet.ParquetFile(file)
            wanted = choose(whole.schema_arrow.names)
            _refuse_large_rows(path, whole.metadata)
            # Texts that repeat are stored once, and 5 kB can stand for gigabytes: they stay numbers of a dictionary.
            rows = library.parquet.ParquetFile(file, metadata=whole.metadata, read_dictionary=[wanted])
            for batch in rows.iter_batches(ROWS, columns=[wanted]):
                yield from ((wanted, value) for value in _values(library, path, batch.column(0)))
    except Exception as error:
        raise _refusal(path, "Parquet file", error) from error


def arrow_values(path: Path, choose: Chooser) -> Iterator[tuple[str, bytes | None]]:
    """Yields the same of a stream of Arrow, as Hugging Face's `datasets` keeps its tables."""
    library = _library(path)
    try:
        with open_file(path), library.memory_map(str(path)) as file, library.ipc.open_stream(file) as batches:
            wanted = choose(batches.schema.names)
            for batch in batches:
                yield from ((wanted, value) for value in _values(library, path, batch.column(wanted)))
    except Exception as error:
        raise _refusal(path, "stream of Arrow", error) from error


def _refusal(path: Path, kind: str, error: Exception) -> Exception:
    """Returns the error for what a library raises about a file, which may be of any type."""
    if isinstance(error, AttnvizError) or lacks_memory(error):
        return error
    return AttnvizError(f"{str(path)!r} is no {kind} that can be read: {error or type(error).__name__}")


def _library(path: Path) -> Any:
    try:
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise AttnvizError(f"{str(path)!r} needs pyarrow; pip install 'attnviz[corpus]' works") from error
    return pyarrow


def _refuse_large_rows(path: Path, metadata: Any) -> None:
    """Raises AttnvizError where the rows of a part of a Parquet file are far larger than texts are."""
    for number in range(metadata.num_row_groups):
        part = metadata.row_group(number)
        if part.total_byte_size > MAX_TEXT_BYTES * max(1, part.num_rows):
            raise _too_long(path)


def _values(library: Any, path: Path, array: Any) -> Iterator[bytes | None]:
    """Yields the texts of a column as bytes, after every offset was checked to be within the file."""
    texts = _as_bytes(library, array)
    if texts is None:
        yield from (None for _ in range(len(array)))
        return
    texts.validate(full=True)
    words = texts.dictionary if library.types.is_dictionary(texts.type) else texts
    longest = library.compute.max(library.compute.binary_length(words)).as_py() or 0
    if longest > MAX_TEXT_BYTES:
        raise _too_long(path)
    at_once = max(1, MAX_TEXT_BYTES // max(1, longest))
    for start in range(0, len(texts), at_once):
        yield from texts.slice(start, at_once).to_pylist()


def _as_bytes(library: Any, array: Any) -> Any:
    """Returns the same array with bytes for texts, which need not be UTF-8; ``None`` where it holds no texts."""
    types, kind = library.types, array.type
    if types.is_dictionary(kind):
        words = _as_bytes(library, array.dictionary)
        return None if words is None else library.DictionaryArray.from_arrays(array.indices, words, safe=False)
    if types.is_string(kind):
        return array.view(library.binary())
    return array.view(library.large_binary()) if types.is_large_string(kind) else None


def _too_long(path: Path) -> AttnvizError:
    return AttnvizError(f"{str(path)!r} has a text longer than {MAX_TEXT_BYTES // 10**6} MB, the most that is read")
