"""Writes safetensors files that have a JSON header, and reads them lazily, with a check of every value."""

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import is_printable
from attnviz.base.reading import read_error, refuse_deep_nesting

METADATA_KEY = "attnviz"  # the header's key in the metadata of safetensors
DTYPE_CODES = {"int64": "I64", "float32": "F32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
MAX_COUNT = 1_000_000_000  # limit of every count in a header
MAX_SHOWN_CHARACTERS = 100_000  # of one text, or of all remarks together, since these are shown in full
MAX_DEPTH = 20  # nesting levels of JSON within a value
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
MAX_CHECKED_BYTES = 256_000_000  # bytes of arrays up to which checksums are compared
CHECKSUMS = "crc32"  # the header's key for the CRC-32 of each array, which detects damage but no forgery
T = TypeVar("T")


class Tensors(ABC):
    """Arrays with a JSON header, from a file or in memory; every value is checked when it is read."""

    what: str  # the name of the file in refusals
    header: "Entry"  # the JSON object that describes the arrays

    @abstractmethod
    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns an array, which the caller must not change."""

    def stored_entries(self, name: str) -> "list[StoredEntry]":
        """Returns the objects of a list in the header, each with its arrays.

        The arrays of object 0 of the list ``maps`` have names such as ``maps.0.weights``.
        """
        entries = self.header.entries(name)
        return [StoredEntry(self, f"{name}.{number}.", entry.value) for number, entry in enumerate(entries)]

    def refuse_mismatch(
        self, name: str, actual_form: tuple[str, tuple[int, ...]] | None, expected_form: tuple[str, Any]
    ) -> None:
        """Raises AttnvizError if an array is missing, or of another dtype or shape."""
        if actual_form != expected_form:
            description = "missing" if actual_form is None else f"{actual_form[0]} of shape {actual_form[1]}"
            raise AttnvizError(
                f"{self.what!r}: {name} is {description}, expected {expected_form[0]} of shape {expected_form[1]}"
            )


class MemoryTensors(Tensors):
    """Arrays in memory, whose header is converted to JSON and back, as if they were read from a file."""

    def __init__(self, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]], what: str) -> None:
        self.what, self.arrays = what, arrays
        self.header = Entry(_parsed_header(json.dumps(header), what), what)

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns an array; raises AttnvizError if it is missing, or of another dtype or shape."""
        array = self.arrays.get(name)
        actual_form = None if array is None else (DTYPE_CODES.get(array.dtype.name, array.dtype.name), array.shape)
        self.refuse_mismatch(name, actual_form, (DTYPE_CODES[dtype], shape))
        return self.arrays[name]


class TensorFile(Tensors):
    """A safetensors file that is mapped into memory; opening it reads only the header.

    An array's checksum is compared when it is read, in files of at most `MAX_CHECKED_BYTES`.
    """

    def __init__(self, path: Path, checks_all: bool = False) -> None:
        from safetensors import SafetensorError, safe_open

        self.what = str(path)
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise AttnvizError(f"{str(path)!r} is not a file; give a recording that attnviz wrote")
        try:
            with safe_open(str(path), framework="numpy") as file:  # raises for truncated files and overlapping arrays
                metadata = file.metadata() or {}
            with path.open("rb") as raw_file:
                header_bytes = int.from_bytes(raw_file.read(8), "little")  # a safetensors file begins with this number
                self.entries = json.loads(raw_file.read(header_bytes))
                self.start = raw_file.tell()
            self.content = np.asarray(np.memmap(path, np.uint8, mode="r"))
        except SafetensorError as error:
            raise AttnvizError(
                f"{str(path)!r} is not a safetensors file, or is cut off: {error}; copy it again"
            ) from error
        except (OSError, ValueError) as error:
            raise read_error(path, error, "a recording") from error
        if METADATA_KEY not in metadata:
            raise AttnvizError(f"{str(path)!r} holds tensors but no recording; give a file that attnviz wrote")
        self.header = Entry(_parsed_header(metadata[METADATA_KEY], self.what), self.what)
        self.checksums = self.header.optional_value(CHECKSUMS, dict) or {}
        self.checks_arrays = checks_all or len(self.content) - self.start <= MAX_CHECKED_BYTES

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns an array as a read-only view of the file; see `Tensors.array`."""
        entry = self.entries.get(name)
        actual_form = None if entry is None else (entry.get("dtype"), tuple(entry.get("shape", ())))
        self.refuse_mismatch(name, actual_form, (DTYPE_CODES[dtype], shape))
        start, stop = (self.start + offset for offset in entry["data_offsets"])
        content = self.content[start:stop]
        if dtype == "bool" and content.max(initial=0) > 1:
            raise AttnvizError(f"{self.what!r}: {name} holds bytes that are neither true nor false")
        has_checksum = self.checks_arrays and name in self.checksums
        if has_checksum and self.checksums[name] != zlib.crc32(content.data):
            raise AttnvizError(f"{self.what!r} is damaged: the numbers of {name} are not those that were written")
        array: NDArray[Any] = content.view(dtype).reshape(shape)
        return array


class Entry:
    """A JSON object from an untrusted file; every value is checked when it is read."""

    def __init__(self, value: Any, what: str) -> None:
        self.what = what
        if not isinstance(value, dict):
            raise self.refusal("is not a JSON object")
        self.value: dict[str, Any] = value

    def refusal(self, reason: str) -> AttnvizError:
        """Returns the error that refuses the header; ``reason`` is a verb phrase, such as ``is not a JSON object``."""
        return AttnvizError(f"{self.what!r} is not a recording that attnviz can read: the header {reason}")

    def required_value(self, name: str, kind: type[T]) -> T:
        """Returns the value of a field; raises AttnvizError if it is missing or not of exactly this type."""
        value = self.value.get(name)
        if type(value) is not kind:
            raise self.refusal(f"has no {kind.__name__} {name!r}")
        return value

    def optional_value(self, name: str, kind: type[T]) -> T | None:
        """Returns the value of a field as `required_value` does; ``None`` if the field is missing or null."""
        return None if self.value.get(name) is None else self.required_value(name, kind)

    def count(self, name: str, below: int = MAX_COUNT) -> int:
        """Returns the value of a field; raises AttnvizError unless it is a whole number from 0 to ``below - 1``."""
        value = self.required_value(name, int)
        if not 0 <= value < below:
            raise self.refusal(f"has {name!r} out of range")
        return value

    def integer(self, name: str) -> int:
        """Returns the value of a field; raises AttnvizError unless it is a whole number between ±`MAX_COUNT`."""
        value = self.required_value(name, int)
        if not -MAX_COUNT < value < MAX_COUNT:
            raise self.refusal(f"has {name!r} out of range")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """Returns the value of a field; raises AttnvizError unless it is a list of whole numbers from 0 on.

        The list must have at least one number, and no number twice.
        """
        numbers = self.whole_numbers(name)
        if not numbers or len(set(numbers)) < len(numbers):
            raise self.refusal(f"has {name!r} that are empty or repeat a number")
        return numbers

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """Returns the value of a field; raises AttnvizError unless it is a list of whole numbers from 0 on."""
        numbers = self.required_value(name, list)
        if not all(type(number) is int and 0 <= number < MAX_COUNT for number in numbers):
            raise self.refusal(f"has {name!r} that are not whole numbers from 0 to {MAX_COUNT - 1}")
        return tuple(numbers)

    def number(self, name: str) -> float | None:
        """Returns the value of a field; ``None`` if the field is missing or null."""
        value = self.value.get(name)
        if value is not None and type(value) is not float:
            return self.count(name)
        return value

    def line(self, name: str) -> str:
        """Returns the value of a field, a text."""
        value = self.required_value(name, str)
        self._refuse_long(name, value)
        if not is_printable(value):
            raise self.refusal(f"has control characters in {name!r}")
        return value

    def lines(self, name: str) -> tuple[str, ...]:
        """Returns the value of a field; raises AttnvizError unless it is a list of texts of printable characters."""
        texts = self.required_value(name, list)
        if not all(type(text) is str and is_printable(text) for text in texts):
            raise self.refusal(f"has {name!r} that are not texts, or hold control characters")
        return tuple(texts)

    def sentences(self, name: str) -> tuple[str, ...]:
        """Returns texts as `lines` does; raises AttnvizError if together they exceed `MAX_SHOWN_CHARACTERS`."""
        texts = self.lines(name)
        # Each text counts one character more, as a separator.
        self._refuse_long(name, "".join(texts) + " " * len(texts))
        return texts

    def _refuse_long(self, name: str, value: str) -> None:
        """Raises AttnvizError if the value of a field has more than `MAX_SHOWN_CHARACTERS`."""
        if len(value) > MAX_SHOWN_CHARACTERS:
            raise self.refusal(
                f"has {len(value)} characters in {name!r}, more than the limit of {MAX_SHOWN_CHARACTERS}"
            )

    def entry(self, name: str) -> "Entry":
        """Returns the value of a field as an entry; raises AttnvizError unless it is an object."""
        return Entry(self.required_value(name, dict), self.what)

    def entries(self, name: str) -> list["Entry"]:
        """Returns the value of a field as entries; raises AttnvizError unless it is a list of objects."""
        return [Entry(value, self.what) for value in self.required_value(name, list)]


class StoredEntry(Entry):
    """The entry of one item of a file, such as an attention call: a JSON object and the arrays that belong to it."""

    def __init__(self, file: Tensors, prefix: str, value: Any) -> None:
        super().__init__(value, file.what)
        self.file, self.prefix = file, prefix

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns an array of this entry; see `Tensors.array`."""
        return self.file.array(self.prefix + name, dtype, shape)


def write_tensors(file: IO[bytes], header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays as safetensors, one after another, without the copy of all arrays that the library's writer
    makes.
    """
    # The widest items first, so that every array is aligned.
    sorted_arrays = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    checked_header = header | {CHECKSUMS: {name: zlib.crc32(_raw_bytes(array)) for name, array in sorted_arrays}}
    entries: dict[str, Any] = {"__metadata__": {METADATA_KEY: json.dumps(checked_header)}}
    stop = 0
    for name, array in sorted_arrays:
        start, stop = stop, stop + array.nbytes
        entries[name] = {"dtype": DTYPE_CODES[array.dtype.name], "shape": array.shape, "data_offsets": (start, stop)}
    header_text = json.dumps(entries, separators=(",", ":")).encode()
    header_text += b" " * (-len(header_text) % 8)  # spaces up to a multiple of 8 bytes, which aligns the arrays
    if len(header_text) > MAX_HEADER_BYTES:
        raise AttnvizError(
            f"text and labels would take {len(header_text) / 1e6:.0f} MB of the file's header, which holds "
            f"{MAX_HEADER_BYTES // 10**6} MB; use a shorter text"
        )
    file.write(len(header_text).to_bytes(8, "little") + header_text)
    for _, array in sorted_arrays:
        file.write(_raw_bytes(array))


def _raw_bytes(array: NDArray[Any]) -> memoryview:
    """Returns the memory of an array; copies it only if the array is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _parsed_header(text: str, what: str) -> Any:
    """Returns the JSON value of a header; raises AttnvizError with the name ``what`` if it is invalid or too deep."""
    try:
        value = json.loads(text)
        refuse_deep_nesting(value, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise AttnvizError(
            f"{what!r} is not a recording that attnviz can read: its header is not JSON, or nested too deeply; copy "
            "the file again"
        ) from error
    return value
