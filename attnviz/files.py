"""Recordings to safetensors and back, texts read, and every file written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from attnviz.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.maps import DenseMaps, LayerMaps, Recording
    from attnviz.tokens import Tokens

FORMAT_VERSION = 1
SUFFIX = ".safetensors"
TOKEN_ARRAYS = ("ids", "offsets", "words", "special", "segments")


@contextmanager
def atomic_file(path: Path, force: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to, which appears under its name only when all of it is written.

    Raises:
        AttnvizError: if the target exists and ``force`` is not given, or cannot be written.
    """
    refuse_target(path, force)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise AttnvizError(f"cannot write to {str(path.parent)!r}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise AttnvizError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def refuse_target(path: Path, force: bool = False) -> None:
    """Raises AttnvizError where the path is a folder, its folder is missing, or it exists and must not be replaced."""
    if path.is_dir():
        raise AttnvizError(f"{str(path)!r} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise AttnvizError(f"no folder {str(path.parent)!r}; create it, or write to one that is there")
    if path.exists() and not force:
        raise AttnvizError(f"{str(path)!r} exists; --force replaces it")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, line ends as they are.

    Raises:
        AttnvizError: if it is missing, a folder, binary, or not UTF-8.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise AttnvizError(f"{str(path)!r} is a folder; give a text file") from error
    except OSError as error:
        raise AttnvizError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return decode_text(content, repr(str(path)))


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


def save(recording: "Recording", path: Path, force: bool = False) -> None:
    """Writes the recording as safetensors, with tokens and settings as JSON in its header.

    Raises:
        AttnvizError: if the file exists and ``force`` is not given, or cannot be written.
    """
    import numpy as np
    from safetensors.numpy import save as to_bytes

    texts = list({id(tokens): tokens for tokens in _all_tokens(recording)}.values())
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for number, tokens in enumerate(texts):
        arrays |= {f"tokens.{number}.{name}": getattr(tokens, name) for name in TOKEN_ARRAYS}
    for number, maps in enumerate(recording.maps):
        arrays |= {f"maps.{number}.{name}": getattr(maps, name) for name in ("scores", "weights", "visible")}
    numbers = {id(tokens): number for number, tokens in enumerate(texts)}
    header = {
        "format": FORMAT_VERSION,
        "recording": {name: value for name, value in vars(recording).items() if name != "maps"},
        "tokens": [{"text": tokens.text, "labels": tokens.labels} for tokens in texts],
        "maps": [_map_header(maps, numbers) for maps in recording.maps],
    }
    content = to_bytes(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata={"attnviz": json.dumps(header)}
    )
    with atomic_file(path, force) as file:
        file.write(content)


def load(path: Path) -> "Recording":
    """The recording that a file holds, equal to the one written.

    Raises:
        AttnvizError: if the file is not a whole recording of a version that this one can read.
    """
    from safetensors import SafetensorError, safe_open

    from attnviz.maps import Recording
    from attnviz.tokens import Tokens

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {})["attnviz"])
            if header["format"] > FORMAT_VERSION:
                raise AttnvizError(f"{str(path)!r} is of a later format ({header['format']}); update attnviz")
            texts = [
                Tokens(
                    text=entry["text"],
                    labels=tuple(entry["labels"]),
                    **{name: file.get_tensor(f"tokens.{number}.{name}") for name in TOKEN_ARRAYS},
                )
                for number, entry in enumerate(header["tokens"])
            ]
            maps = [_read_maps(file, number, entry, texts) for number, entry in enumerate(header["maps"])]
            settings = header["recording"]
            return Recording(maps=tuple(maps), **(settings | {"remarks": tuple(settings["remarks"])}))
    except AttnvizError:
        raise
    except OSError as error:
        raise AttnvizError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise AttnvizError(f"{str(path)!r} is not a recording of attnviz, or is cut off") from error


def _read_maps(file: Any, number: int, entry: dict[str, Any], texts: "list[Tokens]") -> "DenseMaps":
    from attnviz.maps import DenseMaps

    arrays = {name: file.get_tensor(f"maps.{number}.{name}") for name in ("scores", "weights", "visible")}
    known = {name: value for name, value in entry.items() if name not in ("heads", "query_tokens", "key_tokens")}
    return DenseMaps(
        heads=tuple(entry["heads"]),
        query_tokens=texts[entry["query_tokens"]],
        key_tokens=texts[entry["key_tokens"]],
        **known,
        **arrays,
    )


def _map_header(maps: "LayerMaps", numbers: dict[int, int]) -> dict[str, Any]:
    header = {name: getattr(maps, name) for name in ("layer", "module", "heads", "kind", "item", "scale", "fidelity")}
    return header | {
        "query_tokens": numbers[id(maps.query_tokens)],
        "key_tokens": numbers[id(maps.key_tokens)],
    }


def _all_tokens(recording: "Recording") -> "Iterable[Tokens]":
    for maps in recording.maps:
        yield maps.query_tokens
        yield maps.key_tokens


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
