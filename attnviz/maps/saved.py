"""Saves recordings as safetensors files, and loads them."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.base.files import output_file
from attnviz.base.reading import FLAG, HEAD_PAIRS, TEXT, number, refuse_other_kinds, whole

if TYPE_CHECKING:
    from attnviz.base.tensor_file import Entry, Tensors
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording

FORMAT_VERSION = 2
SUFFIX = ".safetensors"
KINDS_OF_MAPS = ("dense", "factored", "pooled", "recurrent")  # their names in files
KINDS_OF_SETTINGS = {
    "model|dtype|tower|architecture|tokenizer|attention|pair|context|init|device|device_map": TEXT,
    "causal|bias|chat|truncate|dense": FLAG,
    "num_heads|embed_dim|num_layers|qk_dim|value_dim|generate|window": whole(0, 10**9),
    "seed": whole(0, 2**63 - 1),
    "dropout|temperature": number(-1e9, 1e9),
    "alignment_heads": HEAD_PAIRS,
}
SAVED_IF_ANY = ("advice", "unused_labels")  # sentences that few recordings have
# Are no entries of the header, or not always
UNSAVED = ("maps", "silent_layers", "tells_silence", "doubts", *SAVED_IF_ANY)
CALL_FIELDS = ("layer", "module", "heads", "kind", "item", "scale", "fidelity")  # stored in the header unchanged


def save(recording: "Recording", path: Path, force: bool = False) -> None:
    """Writes the recording as safetensors, with tokens and settings as JSON in its header."""
    if path.suffix.lower() != SUFFIX:
        raise AttnvizError(
            f"{str(path)!r} does not end in {SUFFIX}, the suffix of recordings; give a name such as run{SUFFIX}"
        )
    from attnviz.base.tensor_file import MemoryTensors, write_tensors
    from attnviz.maps.layer_maps import MAX_DIFFERENCE
    from attnviz.maps.recording import Recording
    from attnviz.maps.saved_tokens import tokens_to_tensors

    names = [field.name for field in fields(Recording) if field.name not in UNSAVED]
    tokens_by_id = {id(tokens): tokens for maps in recording.maps for tokens in (maps.query_tokens, maps.key_tokens)}
    axes = list(tokens_by_id.values())
    token_header, arrays = tokens_to_tensors(axes)
    header: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "recording": {name: getattr(recording, name) for name in names} | silence_header(recording.silent_layers),
        **token_header,
        "maps": [],
    }
    header["recording"] |= {name: sentences for name in SAVED_IF_ANY if (sentences := getattr(recording, name))}
    axis_indices = {id(tokens): index for index, tokens in enumerate(axes)}
    for index, maps in enumerate(recording.maps):
        tensors = maps.to_tensors()
        queries, keys = axis_indices[id(maps.query_tokens)], axis_indices[id(maps.key_tokens)]
        call = {name: getattr(maps, name) for name in CALL_FIELDS} | {"query_tokens": queries, "key_tokens": keys}
        if maps.tolerance != MAX_DIFFERENCE:
            call["tolerance"] = maps.tolerance
        if maps.pools_queries:
            call["pools_queries"] = True
        if maps.key_layer is not None:
            call["key_layer"] = maps.key_layer
        value_norms = {}
        if maps.value_norms is not None:  # files call them "moved"
            call |= {"has_moved": maps.value_norms.ndim, "moved_fidelity": maps.value_norms_fidelity}
            value_norms = {"moved": maps.value_norms}
        header["maps"].append({"class": tensors.kind, **call, **tensors.header})
        arrays |= {f"maps.{index}.{name}": array for name, array in (tensors.arrays | value_norms).items()}
    _from_tensors(MemoryTensors(header, arrays, str(path)))  # before writing, refuses what `load` would refuse
    with output_file(path, force) as file:
        write_tensors(file, header, arrays)


def load(path: str | Path, whole: bool = False) -> "Recording":
    """Returns the recording of a file; its maps are read from the file at access."""
    from attnviz.base.tensor_file import TensorFile
    from attnviz.maps.recording import weight_warnings

    recording = _from_tensors(TensorFile(Path(path), whole))
    return replace(recording, doubts=weight_warnings(recording.maps))


def _from_tensors(file: "Tensors") -> "Recording":
    """Returns the recording that a header and its arrays describe."""
    from attnviz.maps.layer_maps import MAX_DIFFERENCE, CallFields
    from attnviz.maps.recording import Recording
    from attnviz.maps.saved_tokens import read_tokens

    if "survey" in file.header.value:
        raise AttnvizError(f"{file.what!r} is a survey, not a recording; open it with attnviz heads or attnviz show")
    version = file.header.count("format")
    if version != FORMAT_VERSION:
        advice = "try a newer attnviz" if version > FORMAT_VERSION else "record it again"
        raise AttnvizError(
            f"{file.what!r} has format {version}, but this attnviz reads format {FORMAT_VERSION}; {advice}"
        )
    axes = read_tokens(file)
    maps: list[LayerMaps] = []
    for stored in file.stored_entries("maps"):
        kind, saved_as = stored.required_value("kind", str), stored.required_value("class", str)
        if kind not in ("self", "cross") or saved_as not in KINDS_OF_MAPS:
            raise stored.refusal(f"has maps of the unknown kind {kind!r} or class {saved_as!r}")
        heads = stored.counts("heads")
        query_tokens, key_tokens = (axes[stored.count(name, len(axes))] for name in ("query_tokens", "key_tokens"))
        tolerance = stored.number("tolerance")
        norm_axes, axis_sizes = stored.value.get("has_moved"), (len(heads), len(query_tokens), len(key_tokens))
        norms_shape = axis_sizes if norm_axes == len(axis_sizes) else axis_sizes[::2]  # each query's, or all queries'
        call = CallFields(
            layer=stored.count("layer"),
            module=stored.line("module"),
            heads=heads,
            query_tokens=query_tokens,
            key_tokens=key_tokens,
            kind="cross" if kind == "cross" else "self",
            item=stored.count("item"),
            scale=stored.number("scale"),
            fidelity=stored.number("fidelity"),
            tolerance=MAX_DIFFERENCE if tolerance is None else tolerance,
            pools_queries=stored.value.get("pools_queries") is True,
            value_norms=stored.array("moved", "float32", norms_shape) if norm_axes else None,
            value_norms_fidelity=stored.number("moved_fidelity"),
            key_layer=None if stored.value.get("key_layer") is None else stored.count("key_layer"),
        )
        if saved_as == "dense":
            from attnviz.maps.cell_maps import DenseMaps

            maps.append(DenseMaps.from_tensors(stored, call))
        elif saved_as == "factored":
            from attnviz.maps.cell_maps import FactoredMaps

            maps.append(FactoredMaps.from_tensors(stored, call))
        elif saved_as == "recurrent":
            from attnviz.maps.recurrent import RecurrentMaps

            maps.append(RecurrentMaps.from_tensors(stored, call))
        else:
            from attnviz.maps.pooled import PooledMaps

            maps.append(PooledMaps.from_tensors(stored, call))
    entry = file.header.entry("recording")
    has_seed = entry.value.get("seed") is not None
    return Recording(
        maps=tuple(maps),
        model=entry.line("model"),
        untrained=entry.required_value("untrained", bool),
        settings=read_settings(entry),
        seed=entry.count("seed", below=2**64) if has_seed else None,  # torch's seeds have 64 bits
        version=entry.line("version"),
        silent_layers=read_silent_layers(entry),
        remarks=entry.sentences("remarks"),
        tells_silence=True,
        **{name: entry.sentences(name) for name in SAVED_IF_ANY if name in entry.value},
    )


def silence_header(silent_layers: Mapping[int, str]) -> dict[str, Any]:
    """Returns the layers without attention as JSON values of a header; none if all layers attend."""
    contents = list(silent_layers.values())
    return {"silent_layers": list(silent_layers), "silent_contents": contents} if silent_layers else {}


def read_silent_layers(entry: "Entry") -> dict[int, str]:
    """Returns what the layers without attention compute, by number, as `silence_header` wrote it."""
    if "silent_layers" not in entry.value:
        return {}
    layers, contents = entry.whole_numbers("silent_layers"), entry.sentences("silent_contents")
    if len(layers) != len(contents):
        raise entry.refusal(f"names {len(layers)} silent layers, but {len(contents)} contents of them")
    return dict(zip(layers, contents, strict=True))


def read_settings(entry: "Entry") -> dict[str, Any]:
    """Returns the settings of a recording or a survey; those that this package reads are of their kind."""
    settings = entry.required_value("settings", dict)
    refuse_other_kinds(settings, KINDS_OF_SETTINGS, repr(entry.what))
    return settings
