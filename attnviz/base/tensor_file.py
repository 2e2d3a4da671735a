"""A safetensors file with a JSON header, written without a copy, and read only where it is used, each value checked."""

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
from attnviz.base.reading import refuse_deep

METADATA_KEY = "attnviz"  # of the header
DTYPE_CODES = {"int64": "I64", "float32": "F32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
MAX_COUNT = 1_000_000_000  # of whatever a header counts
MAX_SHOWN_CHARACTERS = 100_000  # of a name or of all remarks, which are shown whole
MAX_DEPTH = 20  # levels of JSON within a value
MAX_HEADER_BYTES = 100_000_000  # that safetensors reads
MAX_CHECKED_BYTES = 256_000_000  # of arrays that are read whole when a file is opened, to compare their checksums
CHECKSUMS = "crc32"  # of the header: the CRC-32 of each array, which finds what was damaged and not what was forged
T = TypeVar("T")


class Tensors(ABC):
    """Arrays with a JSON header, each value checked as it is taken: those of a file, or those to be written to one.

    Attributes:
        what: how a refusal names them.
        header: what is said about the arrays.
    """

    what: str
    header: "Entry"

    @abstractmethod
    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name, read-only.

        Raises:
            AttnvizError: if it is missing, of another type or shape, or not as it was written.
        """

    def stored(self, name: str) -> "list[StoredEntry]":
        """The objects of a list of the header, each with its arrays: ``maps.0.weights`` is one of the first of maps."""
        entries = self.header.entries(name)
        return [StoredEntry(self, f"{name}.{number}.", entry.value) for number, entry in enumerate(entries)]

    def refuse_unlike(self, name: str, found: tuple[str, tuple[int, ...]] | None, wanted: tuple[str, Any]) -> None:
        """Raises AttnvizError where an array is missing, or of another type or shape."""
        if found != wanted:
            described = "missing" if found is None else f"{found[0]} of shape {found[1]}"
            raise AttnvizError(f"{self.what!r}: {name} is {described}, expected {wanted[0]} of shape {wanted[1]}")


class HeldTensors(Tensors):
    """Arrays in memory, with a header as it would come back from a file.

    Raises:
        AttnvizError: if the header could not be read again.
    """

    def __init__(self, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]], what: str) -> None:
        self.what, self.arrays = what, arrays
        self.header = Entry(_parsed(json.dumps(header), what), what)

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name."""
        array = self.arrays.get(name)
        found = None if array is None else (DTYPE_CODES.get(array.dtype.name, array.dtype.name), array.shape)
        self.refuse_unlike(name, found, (DTYPE_CODES[dtype], shape))
        return self.arrays[name]


class TensorFile(Tensors):
    """A file of tensors, mapped into memory: opening it reads the header, and the numbers where they are few.

    Args:
        path: of the file.
        whole: whether the numbers are compared with their checksums however many they are.

    Raises:
        AttnvizError: if it is not a whole safetensors file with a header of ours.
    """

    def __init__(self, path: Path, whole: bool = False) -> None:
        from safetensors import SafetensorError, safe_open

        self.what = str(path)
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise AttnvizError(f"{str(path)!r} is not a file; give a recording that attnviz record wrote")
        try:
            with safe_open(str(path), framework="numpy") as file:  # refuses what is cut off or overlaps
                metadata = file.metadata() or {}
            with path.open("rb") as opened:
                self.entries = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
                self.start = opened.tell()
            self.content = np.asarray(np.memmap(path, np.uint8, mode="r"))
        except SafetensorError as error:
            raise AttnvizError(f"{str(path)!r} is no safetensors file, or is cut off: {error}") from error
        except (OSError, ValueError) as error:
            reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
            raise AttnvizError(f"cannot read {str(path)!r}: {reason}") from error
        if METADATA_KEY not in metadata:
            raise AttnvizError(f"{str(path)!r} holds tensors but no recording; attnviz record writes one")
        self.header = Entry(_parsed(metadata[METADATA_KEY], self.what), self.what)
        self.checksums = self.header.optional(CHECKSUMS, dict) or {}
        self.checks = whole or len(self.content) - self.start <= MAX_CHECKED_BYTES

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name, a read-only view of the file."""
        entry = self.entries.get(name)
        found = None if entry is None else (entry.get("dtype"), tuple(entry.get("shape", ())))
        self.refuse_unlike(name, found, (DTYPE_CODES[dtype], shape))
        start, stop = (self.start + offset for offset in entry["data_offsets"])
        content = self.content[start:stop]
        if dtype == "bool" and content.max(initial=0) > 1:
            raise AttnvizError(f"{self.what!r}: {name} holds bytes that are neither true nor false")
        if self.checks and self.checksums.get(name, (checksum := zlib.crc32(content.data))) != checksum:
            raise AttnvizError(f"{self.what!r} is damaged: the numbers of {name} are not those that were written")
        array: NDArray[Any] = content.view(dtype).reshape(shape)
        return array


class Entry:
    """A JSON object from a file that anyone may have written: every value is checked as it is taken.

    Args:
        value: what should be an object.
        what: how a refusal names it.
    """

    def __init__(self, value: Any, what: str) -> None:
        self.what = what
        if not isinstance(value, dict):
            raise self.refusal("is not a JSON object")
        self.value: dict[str, Any] = value

    def refusal(self, reason: str) -> AttnvizError:
        """The error that says what is wrong."""
        return AttnvizError(f"{self.what!r} is not a recording that attnviz can read: the header {reason}")

    def take(self, name: str, kind: type[T]) -> T:
        """The value of exactly this type."""
        value = self.value.get(name)
        if type(value) is not kind:
            raise self.refusal(f"has no {kind.__name__} {name!r}")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        """The same, or ``None`` where there is none."""
        return None if self.value.get(name) is None else self.take(name, kind)

    def count(self, name: str, below: int = MAX_COUNT) -> int:
        """A whole number from 0 to one below ``below``."""
        value = self.take(name, int)
        if not 0 <= value < below:
            raise self.refusal(f"has {name!r} out of range")
        return value

    def place(self, name: str) -> int:
        """A whole number, which may be negative."""
        value = self.take(name, int)
        if not -MAX_COUNT < value < MAX_COUNT:
            raise self.refusal(f"has {name!r} out of range")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """One or more whole numbers from 0, no two the same."""
        numbers = self.take(name, list)
        if not all(type(number) is int and 0 <= number < MAX_COUNT for number in numbers):
            raise self.refusal(f"has {name!r} that are not whole numbers")
        if not numbers or len(set(numbers)) < len(numbers):
            raise self.refusal(f"has {name!r} that are none, or not different")
        return tuple(numbers)

    def number(self, name: str) -> float | None:
        """A number, or ``None``."""
        value = self.value.get(name)
        if value is not None and type(value) is not float:
            return self.count(name)
        return value

    def line(self, name: str) -> str:
        """A text that can be printed as it is."""
        value = self.take(name, str)
        self._refuse_long(name, value)
        if not is_printable(value):
            raise self.refusal(f"has control characters in {name!r}")
        return value

    def lines(self, name: str) -> tuple[str, ...]:
        """Texts that can be printed as they are."""
        texts = self.take(name, list)
        if not all(type(text) is str and is_printable(text) for text in texts):
            raise self.refusal(f"has {name!r} that are no texts, or hold control characters")
        return tuple(texts)

    def sentences(self, name: str) -> tuple[str, ...]:
        """The same, as few and short as can be shown."""
        texts = self.lines(name)
        self._refuse_long(name, "".join(texts) + " " * len(texts))
        return texts

    def _refuse_long(self, name: str, value: str) -> None:
        if len(value) > MAX_SHOWN_CHARACTERS:
            raise self.refusal(f"has {len(value)} characters in {name!r}, and at most {MAX_SHOWN_CHARACTERS} are read")

    def entry(self, name: str) -> "Entry":
        """An object within this one."""
        return Entry(self.take(name, dict), self.what)

    def entries(self, name: str) -> list["Entry"]:
        """The objects of a list."""
        return [Entry(value, self.what) for value in self.take(name, list)]


class StoredEntry(Entry):
    """What a file holds of one thing, such as an attention call: a JSON object, and the arrays that belong to it.

    Args:
        file: where they stand.
        prefix: of the names of the arrays, such as ``maps.0.``.
        value: what should be a JSON object.
    """

    def __init__(self, file: Tensors, prefix: str, value: Any) -> None:
        super().__init__(value, file.what)
        self.file, self.prefix = file, prefix

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name, read-only.

        Raises:
            AttnvizError: if it is missing or of another type or shape.
        """
        return self.file.array(self.prefix + name, dtype, shape)


def write_tensors(file: IO[bytes], header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes the arrays as safetensors, each from where it stands: the library would join copies of them first.

    Args:
        file: open for writing.
        header: JSON values about the arrays.
        arrays: int64, float32, uint16, uint8 or bool, by name.

    Raises:
        AttnvizError: if the header is longer than one can be.
    """
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)  # each aligned to its own size
    header = header | {CHECKSUMS: {name: zlib.crc32(_bytes(array)) for name, array in ordered}}
    entries: dict[str, Any] = {"__metadata__": {METADATA_KEY: json.dumps(header)}}
    stop = 0
    for name, array in ordered:
        start, stop = stop, stop + array.nbytes
        entries[name] = {"dtype": DTYPE_CODES[array.dtype.name], "shape": array.shape, "data_offsets": (start, stop)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise AttnvizError(
            f"text and labels would take {len(text) / 1e6:.0f} MB of the file's header, and it holds "
            f"{MAX_HEADER_BYTES // 10**6} MB; a shorter text works"
        )
    file.write(len(text).to_bytes(8, "little") + text)
    for _, array in ordered:
        file.write(_bytes(array))


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _parsed(text: str, what: str) -> Any:
    try:
        value = json.loads(text)
        refuse_deep(value, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise AttnvizError(f"{what!r} is not a recording that attnviz can read: its header is broken") from error
    return value
