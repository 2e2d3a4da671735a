"""Finds GGUF files, the format of llama.cpp, Ollama and LM Studio, and checks one before a library opens it.

A file begins with its counts, then metadata as keys and values, then a table of its tensors. Every number of it is a
stranger's: each count is bounded, and every tensor must lie in the file, before anything of its size is allocated.
"""

import mmap
import os
import re
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from attnviz.base.errors import AttnvizError, or_list
from attnviz.base.progress import track, working
from attnviz.base.reading import MAX_JSON_BYTES, open_file, read_json, read_start
from attnviz.models.huggingface.safety import MAX_COUNT, MAX_LAYERS

MAGIC, SUFFIX = b"GGUF", ".gguf"
VERSIONS = (2, 3)  # the first counted in 32 bits, and no file of it is left
SHARD_NAME = re.compile(r"(.+-)(\d{5})(-of-)(\d{5})(\.gguf)")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_HEADER_BYTES = MAX_JSON_BYTES  # Gemma's, with 262,144 tokens, has 12 MB
MAX_STRINGS = 2**22  # of an array: tokens, or merges of two tokens
MAX_KEPT = MAX_LAYERS  # entries of an array that are kept; of a longer one, such as the vocabulary, only the length
MAX_TENSORS, MAX_AXES, MAX_ALIGNMENT = 100_000, 4, 2**20
OLLAMA_NAME = re.compile(r"(?:([\w.-]+\.[\w.-]+)/)?(?:([\w.-]+)/)?([\w.-]+)(?::([\w.-]+))?", re.ASCII)
OLLAMA_FOLDERS = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
OLLAMA_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")
MAX_MANIFEST_BYTES = 10**6
PROJECTOR = "mmproj"  # the begin of the names of files that turn pictures into tokens
LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")


class _Tensor(NamedTuple):
    """Where a tensor lies in its file."""

    name: bytes
    shape: tuple[int, ...]  # the axis whose numbers are neighbours in the file comes first
    type_number: int
    offset: int  # from the begin of the data
    byte_count: int


@dataclass(frozen=True)
class GgufFile:
    """The checked header of a GGUF file, which may be cut into shards.

    Attributes:
        shards: its files in order; the first has the metadata.
        metadata: the values of its keys; of a long array, its length.
        number_count: how many numbers its tensors hold.
        types: names of the types in which numbers are stored, such as ``Q4_K``, the most frequent first.
    """

    shards: tuple[Path, ...]
    metadata: dict[str, Any]
    number_count: int
    types: tuple[str, ...]
    _tables: tuple[tuple[tuple[_Tensor, ...], int], ...] = field(repr=False)  # of each shard, and where its data begins
    _pairs: bytes = field(repr=False)  # the metadata as they are in the file

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """The numbers of layers and of heads, the largest where layers differ; ``None`` if the file names none."""
        architecture = self.metadata.get("general.architecture")
        layers = self.metadata.get(f"{architecture}.block_count")
        heads = self.metadata.get(f"{architecture}.attention.head_count")
        heads = max(heads, default=None) if isinstance(heads, tuple) else heads
        return (layers if type(layers) is int else None), (heads if type(heads) is int else None)

    @contextmanager
    def joined(self) -> Iterator[Path]:
        """Yields one file with all tensors: the file itself, or a temporary one with those of all shards."""
        if len(self.shards) == 1:
            yield self.shards[0].resolve()
            return
        with tempfile.TemporaryDirectory(prefix="attnviz-") as folder:
            size, free = sum(shard.stat().st_size for shard in self.shards), shutil.disk_usage(folder).free
            if size > free:
                raise AttnvizError(
                    f"joining the {len(self.shards)} shards of {self.shards[0].name!r} takes {size / 1e9:.1f} GB in "
                    f"{tempfile.gettempdir()!r}, which has {free / 1e9:.1f} GB; set TMPDIR to a folder with more room"
                )
            path = Path(folder) / f"model{SUFFIX}"
            with working(f"joining the shards of {self.shards[0].name}"):
                self._write_joined(path)
            yield path

    def _write_joined(self, path: Path) -> None:
        """Writes the metadata of the first shard, a table of all tensors, and the data of all shards."""
        alignment = _alignment(self.metadata)
        data_sizes = [
            -(-(shard.stat().st_size - start) // alignment) * alignment
            for shard, (_, start) in zip(self.shards, self._tables, strict=True)
        ]
        table = b"".join(
            struct.pack("<Q", len(tensor.name))
            + tensor.name
            + struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            + struct.pack("<IQ", tensor.type_number, tensor.offset + sum(data_sizes[:shard]))
            for shard, (tensors, _) in enumerate(self._tables)
            for tensor in tensors
        )
        tensor_count = sum(len(tensors) for tensors, _ in self._tables)
        # The file's own count of metadata stands in the bytes before the pairs.
        header = MAGIC + struct.pack("<IQ", VERSIONS[-1], tensor_count) + self._pairs + table
        with path.open("wb") as joined:
            joined.write(header + bytes(-len(header) % alignment))
            for shard, (_, start), size in zip(self.shards, self._tables, data_sizes, strict=True):
                with open_file(shard) as source:
                    source.seek(start)
                    end = joined.tell() + size
                    shutil.copyfileobj(source, joined)
                joined.write(bytes(end - joined.tell()))


def gguf_at(path: Path) -> Path | None:
    """Returns the GGUF file at a path, the first of several shards; ``None`` for none.

    The path may be a folder, if it holds no other weights.

    Raises:
        AttnvizError: for a folder with several models.
    """
    if path.is_file():
        shard_name = SHARD_NAME.fullmatch(path.name)
        first_shard = (
            path if shard_name is None else path.with_name("{}00001{}{}{}".format(*shard_name.group(1, 3, 4, 5)))
        )
        path = first_shard if first_shard.is_file() else path
        return path if path.suffix == SUFFIX or read_start(path, len(MAGIC)) == MAGIC else None
    if any(path.glob("*.safetensors")):
        return None
    files = sorted(file for file in path.glob(f"*{SUFFIX}") if not file.name.startswith(PROJECTOR))
    models = [file for file in files if (shard := SHARD_NAME.fullmatch(file.name)) is None or int(shard[2]) == 1]
    if len(models) > 1:
        raise AttnvizError(f"{str(path)!r} has several models; choose {or_list(repr(str(file)) for file in models)}")
    return next(iter(models or files), None)


def gguf_named(name: str) -> Path | None:
    """Returns the GGUF file of a model of LM Studio or Ollama on this disk by its name there; ``None`` for none."""
    if ".." in Path(name).parts:
        return None
    for place in LM_STUDIO_FOLDERS:
        if (path := gguf_at(Path(place).expanduser() / name)) is not None:
            return path
    ollama_name = OLLAMA_NAME.fullmatch(name)
    if ollama_name is None:
        return None
    registry, owner, model, tag = ollama_name.groups()
    parts = (registry or "registry.ollama.ai", owner or "library", model, tag or "latest")
    for place in filter(None, (os.environ.get("OLLAMA_MODELS"), *OLLAMA_FOLDERS)):
        folder = Path(place).expanduser()
        manifest = folder.joinpath("manifests", *parts)
        if manifest.is_file():
            return _ollama_weights(manifest, folder, name)
    return None


def _ollama_weights(manifest: Path, folder: Path, name: str) -> Path:
    """Returns the file of a model's weights, which its manifest names by their hash."""
    content = read_json(manifest, MAX_MANIFEST_BYTES)
    layers = content.get("layers") if isinstance(content, dict) else None
    layers = [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
    digest = next((layer.get("digest") for layer in layers if layer.get("mediaType") == OLLAMA_WEIGHTS), None)
    if not isinstance(digest, str) or not OLLAMA_DIGEST.fullmatch(digest):
        raise AttnvizError(f"{str(manifest)!r} names no weights of {name!r}; get it again with ollama pull {name}")
    weights = folder / "blobs" / digest.replace(":", "-")
    if not weights.is_file():
        raise AttnvizError(f"the weights of {name!r} are not in {str(weights.parent)!r}; run ollama pull {name}")
    return weights


def read_gguf(path: Path, name: str) -> GgufFile:
    """Returns the checked header of a GGUF file, with all shards of its model."""
    shards: tuple[Path, ...] = (path,)
    if shard_name := SHARD_NAME.fullmatch(path.name):
        begin, _, middle, count, end = shard_name.groups()
        if int(count) > MAX_COUNT:
            raise AttnvizError(f"{name!r} is one of {int(count)} shards, above the limit of {MAX_COUNT}")
        shards = tuple(path.with_name(f"{begin}{one:05}{middle}{count}{end}") for one in range(1, int(count) + 1))
        missing = next((shard for shard in shards if not shard.is_file()), None)
        if missing is not None:
            raise AttnvizError(
                f"{missing.name!r} is missing, one of the {int(count)} shards of {name!r}; copy it there"
            )
    return _read_shards(shards, name, tuple((shard.stat().st_mtime_ns, shard.stat().st_size) for shard in shards))


@lru_cache(maxsize=4)  # checked, counted and loaded at different times
def _read_shards(shards: tuple[Path, ...], name: str, stamps: tuple[tuple[int, int], ...]) -> GgufFile:
    """Returns the header of a model; its stamps, times and sizes, make a changed file be read again."""
    try:
        headers = [_read_header(shard) for shard in shards]
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, AttnvizError):
            raise
        raise AttnvizError(f"{name!r} is cut off or damaged; copy it again") from error
    metadata, pairs = headers[0][0], headers[0][1]
    architecture = metadata.get("general.architecture")
    if metadata.get("general.type") == "adapter":
        raise AttnvizError(f"{name!r} is an adapter and no model; give the folder of its safetensors")
    if not isinstance(architecture, str):
        raise AttnvizError(f"{name!r} names no architecture; give a GGUF file of a model")
    for key, value in metadata.items():
        if key.endswith("_count") and not key.startswith("split."):
            limit = MAX_LAYERS if key.endswith(".block_count") else MAX_COUNT
            count = max(value, default=0) if isinstance(value, tuple) else value
            if isinstance(count, int | float) and count > limit:
                raise AttnvizError(f"{name!r} has {key} {count:g}, above the limit of {limit}")
    from gguf import GGMLQuantizationType

    numbers = Counter[str]()
    for _, _, tensors, _ in headers:
        for tensor in tensors:
            numbers[GGMLQuantizationType(tensor.type_number).name] += prod(tensor.shape)
    types = tuple(type_name for type_name, _ in numbers.most_common())
    tables = tuple((tensors, start) for _, _, tensors, start in headers)
    return GgufFile(shards, metadata, numbers.total(), types, tables, pairs)


def _read_header(path: Path) -> tuple[dict[str, Any], bytes, tuple[_Tensor, ...], int]:
    """Returns the metadata of one file, as values and as bytes with their count, its tensors, and its data's begin.

    Raises:
        struct.error, UnicodeDecodeError, ValueError: if the file is cut off or damaged.
    """
    from gguf import GGML_QUANT_SIZES

    with open_file(path, "a GGUF file") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        cursor = _Cursor(content)
        magic, version, tensor_count, pair_count = cursor.take("4sIQQ")
        if magic != MAGIC or version not in VERSIONS:
            reason = f"of version {version}, not {or_list(map(str, VERSIONS))}" if magic == MAGIC else "no GGUF file"
            raise AttnvizError(f"{str(path)!r} is {reason}; convert the model again with llama.cpp")
        for what, count in (("tensors", tensor_count), ("metadata", pair_count)):
            if count > MAX_TENSORS:
                raise AttnvizError(f"{str(path)!r} counts {count} {what}, above the limit of {MAX_TENSORS}")
        metadata = {cursor.text().decode(): cursor.value() for _ in range(pair_count)}
        pairs = bytes(content[16 : cursor.place])
        tensors, used_bytes = [], 0
        for _ in range(tensor_count):
            tensor_name, (axes,) = cursor.text(), cursor.take("I")
            if axes > MAX_AXES:
                raise ValueError
            shape = cursor.take(f"{axes}Q")
            type_number, offset = cursor.take("IQ")
            if type_number not in GGML_QUANT_SIZES:
                raise AttnvizError(
                    f"{str(path)!r} stores {tensor_name.decode()!r} in the type {type_number}, which the package gguf "
                    "does not know; convert the model again, or update the package"
                )
            block, block_bytes = GGML_QUANT_SIZES[type_number]
            tensors.append(_Tensor(tensor_name, shape, type_number, offset, prod(shape) // block * block_bytes))
            used_bytes += tensors[-1].byte_count
        alignment = _alignment(metadata)
        start = -(-cursor.place // alignment) * alignment
        end = max((start + tensor.offset + tensor.byte_count for tensor in tensors), default=start)
        if max(end, start + used_bytes) > len(content):  # the sum too: tensors that share bytes are no real ones
            raise AttnvizError(
                f"{str(path)!r} is cut off: its tensors take {max(end, start + used_bytes)} bytes, and it has "
                f"{len(content)}; copy it again"
            )
    return metadata, pairs, tuple(tensors), start


def _alignment(metadata: dict[str, Any]) -> int:
    """Returns the number of which the begins of tensors are multiples; raises ValueError for no power of two."""
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError
    return alignment


class _Cursor:
    """Reads the header of a file from its begin; raises struct.error or ValueError beyond its end or the limit."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.place = content, 0

    def take(self, pattern: str) -> tuple[Any, ...]:
        """Returns the next numbers, which ``pattern`` describes as `struct` does."""
        values = struct.unpack_from(f"<{pattern}", self.content, self.place)
        self._move(struct.calcsize(f"<{pattern}"))
        return values

    def text(self) -> bytes:
        """Returns the next text, which follows its length."""
        (length,) = self.take("Q")
        begin = self.place
        self._move(length)
        return self.content[begin : self.place]

    def value(self) -> Any:
        """Returns the next value, which follows the number of its type; of a long array, its length."""
        (kind,) = self.take("I")
        if kind == STRING:
            return self.text().decode()
        if kind != ARRAY:
            if kind not in SCALARS:
                raise ValueError
            return self.take(SCALARS[kind])[0]
        kind, count = self.take("IQ")
        if kind == STRING:
            if count > MAX_STRINGS:
                raise ValueError
            texts = [self.text() for _ in range(count)]
            return tuple(text.decode() for text in texts) if count <= MAX_KEPT else count
        if kind not in SCALARS or count > MAX_HEADER_BYTES:
            raise ValueError
        if count <= MAX_KEPT:
            return self.take(f"{count}{SCALARS[kind]}")
        self._move(count * struct.calcsize(f"<{SCALARS[kind]}"))
        return count

    def _move(self, byte_count: int) -> None:
        self.place += byte_count
        if self.place > min(len(self.content), MAX_HEADER_BYTES):
            raise ValueError


@contextmanager
def quick_gguf() -> Iterator[None]:
    """Makes transformers read the metadata of a GGUF file once in the block, and show one bar for its tensors.

    The reader of the package gguf makes several objects for each of the 262,144 tokens of a vocabulary, and
    transformers calls it anew for the configuration, the tokenizer and the weights: two thirds of the time.
    """
    import gguf
    import numpy as np
    from transformers import modeling_gguf_pytorch_utils

    library: Any = modeling_gguf_pytorch_utils

    class QuickReader(gguf.GGUFReader):
        """A reader that makes one view of each entry of an array, and nothing else."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            count, place, raw = int(length[0]), orig_offs + 12, self.data.view(np.ndarray)
            parts = [kind, length]
            if kind[0] == STRING:
                for _ in range(count):
                    begin = place + 8
                    place = begin + int.from_bytes(raw[place:begin], "little")
                    parts.append(raw[begin:place])
            else:
                numbers = self._get(place, self.gguf_scalar_to_np[gguf.GGUFValueType(kind[0])], count)
                place += numbers.nbytes
                parts += list(numbers.view(np.ndarray).reshape(-1, 1))
            types = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(kind[0])]
            return place - orig_offs, parts, list(range(2, count + 2)), types

    load, settings = library.load_gguf_checkpoint, dict[str, Any]()

    def load_once(path: str, return_tensors: bool = False, **options: Any) -> Any:
        if return_tensors:
            return load(path, return_tensors=True, **options)
        if path not in settings:
            settings[path] = load(path)
        return deepcopy(settings[path])

    with replaced(
        (gguf, "GGUFReader", QuickReader),
        (library, "load_gguf_checkpoint", load_once),
        (library, "tqdm", lambda items, **_: track(items, "dequantizing")),
    ):
        yield


@contextmanager
def replaced(*attributes: tuple[Any, str, object]) -> Iterator[None]:
    """Gives attributes of modules other values in the block; each is a module, a name and the value."""
    originals = [getattr(module, name) for module, name, _ in attributes]
    try:
        for module, name, value in attributes:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(attributes, originals, strict=True):
            setattr(module, name, value)
