"""Recordings as safetensors files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.base.files import atomic_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.maps.tensor_file import Entry, TensorFile
    from attnviz.text.tokens import Tokens


FORMAT_VERSION = 1
SUFFIX = ".safetensors"
TOKEN_ARRAYS = {"ids": "int64", "offsets": "int64", "words": "int64", "special": "bool", "segments": "int64"}
DENSE_ARRAYS = {"scores": "float32", "weights": "float32", "visible": "bool"}
POOLED_ARRAYS = {"mean": "float32", "maximum": "float32", "counts": "int64"}


def save(recording: "Recording", path: Path, force: bool = False) -> None:
    """Writes the recording as safetensors, with tokens and settings as JSON in its header.

    Raises:
        AttnvizError: if the file exists and ``force`` is not given, or cannot be written, or if a label could
            not be printed as it is, or the suffix is another.
    """
    if path.suffix.lower() != SUFFIX:
        raise AttnvizError(f"{str(path)!r} does not end in {SUFFIX}, by which a recording is known; run{SUFFIX} works")
    from attnviz.maps.tensor_file import write_tensors
    from attnviz.text.tokens import is_printable

    texts = list({id(tokens): tokens for maps in recording.maps for tokens in _tokens_of(maps)}.values())
    unsafe = next((label for tokens in texts for label in tokens.labels if not is_printable(label)), None)
    if unsafe is not None:
        raise AttnvizError(
            f"the label {unsafe!r} holds control characters; attnviz.text.tokens.visible_label shows them"
        )
    header: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "recording": {name: value for name, value in vars(recording).items() if name != "maps"},
        "tokens": [{"text": tokens.text, "labels": tokens.labels} for tokens in texts],
        "maps": [],
    }
    arrays = {
        f"tokens.{number}.{name}": getattr(tokens, name) for number, tokens in enumerate(texts) for name in TOKEN_ARRAYS
    }
    numbers = {id(tokens): number for number, tokens in enumerate(texts)}
    for number, maps in enumerate(recording.maps):
        header["maps"].append(_map_header(maps, numbers))
        arrays |= {f"maps.{number}.{name}": array for name, array in _arrays_of(maps).items()}
    with atomic_file(path, force) as file:
        write_tensors(file, header, arrays)


def load(path: str | Path) -> "Recording":
    """The recording that a file holds, equal to the one written; maps are read from it as they are used.

    Raises:
        AttnvizError: if the file is not a whole recording of a version that this one can read.
    """
    from attnviz.maps.recording import Recording
    from attnviz.maps.tensor_file import TensorFile

    file = TensorFile(Path(path))
    version = file.header.count("format")
    if version != FORMAT_VERSION:
        raise AttnvizError(
            f"{str(path)!r} is of format {version} and this attnviz reads {FORMAT_VERSION}; a newer one may read it"
        )
    texts = [_read_tokens(file, number, entry) for number, entry in enumerate(file.header.entries("tokens"))]
    maps = [_read_maps(file, number, entry, texts) for number, entry in enumerate(file.header.entries("maps"))]
    entry = file.header.entry("recording")
    return Recording(
        maps=tuple(maps),
        model=entry.line("model"),
        untrained=entry.take("untrained", bool),
        settings=entry.take("settings", dict),
        seed=None if entry.value.get("seed") is None else entry.count("seed", 2**64),
        version=entry.line("version"),
        remarks=entry.lines("remarks"),
    )


def _read_tokens(file: "TensorFile", number: int, entry: "Entry") -> "Tokens":
    from attnviz.text.tokens import Tokens, refuse_surrogates

    text, labels = entry.take("text", str), entry.lines("labels")
    refuse_surrogates(text)
    count = len(labels)
    arrays = {
        name: file.array(f"tokens.{number}.{name}", dtype, (count, 2) if name == "offsets" else (count,))
        for name, dtype in TOKEN_ARRAYS.items()
    }
    starts, stops = arrays["offsets"].T
    if not ((starts >= 0) & (starts <= stops) & (stops <= len(text))).all():
        raise entry.refusal("has offsets outside its text")
    return Tokens(text=text, labels=labels, **arrays)


def _read_maps(file: "TensorFile", number: int, entry: "Entry", texts: "list[Tokens]") -> "LayerMaps":
    from attnviz.maps.half import read_factored

    kind, held = entry.take("kind", str), entry.take("class", str)
    if kind not in ("self", "cross") or held not in ("dense", "factored", "pooled"):
        raise entry.refusal(f"has maps of the unknown kind {kind!r} or class {held!r}")
    heads = entry.counts("heads")
    query_tokens, key_tokens = (texts[entry.count(name, len(texts))] for name in ("query_tokens", "key_tokens"))
    common: dict[str, Any] = {
        "layer": entry.count("layer"),
        "module": entry.line("module"),
        "heads": heads,
        "query_tokens": query_tokens,
        "key_tokens": key_tokens,
        "kind": kind,
        "item": entry.count("item"),
        "scale": entry.number("scale"),
        "fidelity": entry.number("fidelity"),
    }
    prefix = f"maps.{number}."
    if held == "factored":
        return read_factored(file, prefix, entry, common)
    return _read_pooled(file, prefix, entry, common) if held == "pooled" else _read_dense(file, prefix, common)


def _read_dense(file: "TensorFile", prefix: str, common: dict[str, Any]) -> "LayerMaps":
    from attnviz.maps.dense import DenseMaps

    shape = tuple(len(common[name]) for name in ("heads", "query_tokens", "key_tokens"))
    arrays: dict[str, Any] = {
        name: file.array(prefix + name, dtype, shape[1:] if name == "visible" else shape)
        for name, dtype in DENSE_ARRAYS.items()
    }
    return DenseMaps(**common, **arrays)


def _read_pooled(file: "TensorFile", prefix: str, entry: "Entry", common: dict[str, Any]) -> "LayerMaps":
    from attnviz.maps.pooled import PooledMaps

    rows, columns = (entry.count(name) for name in ("rows", "columns"))
    shape = (len(common["heads"]), rows, columns)
    arrays: dict[str, Any] = {
        name: file.array(prefix + name, dtype, shape[1:] if name == "counts" else shape)
        for name, dtype in POOLED_ARRAYS.items()
    }
    return PooledMaps(**common, **arrays)


def _arrays_of(maps: "LayerMaps") -> "dict[str, NDArray[Any]]":
    from attnviz.maps.factored import FactoredMaps
    from attnviz.maps.half import factored_arrays
    from attnviz.maps.pooled import PooledMaps

    if isinstance(maps, FactoredMaps):
        return factored_arrays(maps)
    if isinstance(maps, PooledMaps):
        return {name: getattr(maps, name) for name in POOLED_ARRAYS}
    return {name: getattr(maps, name) for name in DENSE_ARRAYS}


def _map_header(maps: "LayerMaps", numbers: dict[int, int]) -> dict[str, Any]:
    from attnviz.maps.factored import FactoredMaps
    from attnviz.maps.half import factored_header
    from attnviz.maps.pooled import PooledMaps

    header = {name: getattr(maps, name) for name in ("layer", "module", "heads", "kind", "item", "scale", "fidelity")}
    queries, keys = (numbers[id(tokens)] for tokens in _tokens_of(maps))
    header |= {"query_tokens": queries, "key_tokens": keys}
    if isinstance(maps, FactoredMaps):
        return {"class": "factored", **header, **factored_header(maps)}
    if isinstance(maps, PooledMaps):
        rows, columns = maps.counts.shape
        return {"class": "pooled", **header, "rows": rows, "columns": columns}
    return {"class": "dense", **header}


def _tokens_of(maps: "LayerMaps") -> "tuple[Tokens, Tokens]":
    return maps.query_tokens, maps.key_tokens
