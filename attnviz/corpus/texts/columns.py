"""Reads the texts of one column of a Parquet file or an Arrow stream, and checks every length and offset in it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.base.reading import open_file

MAX_TEXT_BYTES = 64 * 10**6  # of one text, and of all texts that are converted to Python at once
ROWS_AT_ONCE = 1024  # rows of a Parquet file that are read at once
Chooser = Callable[[Sequence[str]], str]  # returns the column that holds the texts, given the names of all columns


def parquet_values(path: Path, choose: Chooser) -> Iterator[tuple[str, bytes | None]]:
    """Yields for each row the name of the text column and the text as bytes; ``None`` for a row without a text.

    Raises:
        AttnvizError: if the file cannot be read, holds a text of more than `MAX_TEXT_BYTES`, or pyarrow is missing.
        MemoryError: if memory runs out.
    """
    library = _import_pyarrow(path)
    try:
        with open_file(path) as file:
            parquet = library.parquet.ParquetFile(file)
            column = choose(parquet.schema_arrow.names)
            _refuse_large_rows(path, parquet.metadata)
            # Repeated texts are stored once, and 5 kB can decode to gigabytes: the column stays dictionary-encoded.
            rows = library.parquet.ParquetFile(file, metadata=parquet.metadata, read_dictionary=[column])
            for batch in rows.iter_batches(ROWS_AT_ONCE, columns=[column]):
                yield from ((column, value) for value in _text_bytes(library, path, batch.column(0)))
    except Exception as error:
        raise _refusal(path, "Parquet file", error) from error


def arrow_values(path: Path, choose: Chooser) -> Iterator[tuple[str, bytes | None]]:
    """Yields for each row the name of the text column and the text as bytes; ``None`` for a row without a text.

    The file is an Arrow stream, the format in which Hugging Face's `datasets` caches tables.

    Raises:
        AttnvizError: if the file cannot be read, holds a text of more than `MAX_TEXT_BYTES`, or pyarrow is missing.
    """
    library = _import_pyarrow(path)
    try:
        with open_file(path), library.memory_map(str(path)) as file, library.ipc.open_stream(file) as batches:
            column = choose(batches.schema.names)
            for batch in batches:
                yield from ((column, value) for value in _text_bytes(library, path, batch.column(column)))
    except Exception as error:
        raise _refusal(path, "Arrow stream", error) from error


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
        raise AttnvizError(f"{str(path)!r} needs pyarrow; pip install 'attnviz[corpus]' installs it") from error
    return pyarrow


def _refuse_large_rows(path: Path, metadata: Any) -> None:
    for number in range(metadata.num_row_groups):
        row_group = metadata.row_group(number)
        if row_group.total_byte_size > MAX_TEXT_BYTES * max(1, row_group.num_rows):
            raise _too_long(path)


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
