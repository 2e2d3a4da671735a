"""A safetensors file with a JSON header, written without a copy, and read only where it is used, each value checked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.text.tokens import is_printable

METADATA_KEY = "attnviz"  # of the header
DTYPE_CODES = {"int64": "I64", "float32": "F32", "uint16": "U16", "bool": "BOOL"}
MAX_COUNT = 1_000_000_000  # of whatever a header counts
MAX_DEPTH = 20  # levels of JSON within a value
T = TypeVar("T")


class TensorFile:
    """A file of tensors, mapped into memory: opening it reads the header alone.

    Attributes:
        header: what the file says about its tensors.

    Raises:
        AttnvizError: if it is not a whole safetensors file with a header of ours.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
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
        self.header = Entry(_parsed(metadata[METADATA_KEY], path), str(path))

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The tensor of this name, a read-only view of the file.

        Raises:
            AttnvizError: if it is missing or of another type or shape.
        """
        entry = self.entries.get(name, {})
        found, expected = (entry.get("dtype"), tuple(entry.get("shape", ()))), (DTYPE_CODES[dtype], shape)
        if found != expected:
            described = f"{found[0]} of shape {found[1]}" if entry else "missing"
            raise AttnvizError(f"{str(self.path)!r}: {name} is {described}, expected {expected[0]} of shape {shape}")
        start, stop = (self.start + offset for offset in entry["data_offsets"])
        content = self.content[start:stop]
        if dtype == "bool" and content.max(initial=0) > 1:
            raise AttnvizError(f"{str(self.path)!r}: {name} holds bytes that are neither true nor false")
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

    def count(self, name: str, below: int = MAX_COUNT) -> int:
        """A whole number from 0 to one below ``below``."""
        value = self.take(name, int)
        if not 0 <= value < below:
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
        if not is_printable(value):
            raise self.refusal(f"has control characters in {name!r}")
        return value

    def lines(self, name: str) -> tuple[str, ...]:
        """Texts that can be printed as they are."""
        texts = self.take(name, list)
        if not all(type(text) is str and is_printable(text) for text in texts):
            raise self.refusal(f"has {name!r} that are no texts, or hold control characters")
        return tuple(texts)

    def entry(self, name: str) -> "Entry":
        """An object within this one."""
        return Entry(self.take(name, dict), self.what)

    def entries(self, name: str) -> list["Entry"]:
        """The objects of a list."""
        return [Entry(value, self.what) for value in self.take(name, list)]


class StoredMaps(Entry):
    """What a file holds of one attention call: a JSON object, and the arrays that belong to it.

    Args:
        file: where they stand.
        number: the call's place among all.
        value: what should be a JSON object.
    """

    def __init__(self, file: TensorFile, number: int, value: Any) -> None:
        super().__init__(value, str(file.path))
        self.file, self.prefix = file, f"maps.{number}."

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name, a read-only view of the file.

        Raises:
            AttnvizError: if it is missing or of another type or shape.
        """
        return self.file.array(self.prefix + name, dtype, shape)


def write_tensors(file: IO[bytes], header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes the arrays as safetensors, each from where it stands: the library would join copies of them first.

    Args:
        file: open for writing.
        header: JSON values about the arrays.
        arrays: int64, float32, uint16 or bool, by name.
    """
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)  # each aligned to its own size
    entries: dict[str, Any] = {"__metadata__": {METADATA_KEY: json.dumps(header)}}
    stop = 0
    for name, array in ordered:
        start, stop = stop, stop + array.nbytes
        entries[name] = {"dtype": DTYPE_CODES[array.dtype.name], "shape": array.shape, "data_offsets": (start, stop)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, array in ordered:
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _parsed(text: str, path: Path) -> Any:
    try:
        value = json.loads(text)
        _refuse_deep(value, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise AttnvizError(f"{str(path)!r} is not a recording that attnviz can read: its header is broken") from error
    return value


def _refuse_deep(value: Any, levels: int) -> None:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not levels:
        raise ValueError("nested too deeply")
    for child in children:
        _refuse_deep(child, levels - 1)
