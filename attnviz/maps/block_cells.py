"""Turns pooled maps into maps with a cell per block, so that they can be compared and inspected."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import GroupedMaps
from attnviz.maps.layer_maps import unknown_cells_error
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.streaming.overview import block_edges
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

REMARK = (
    "Layer {}: a row is a block of {} queries and a column a block of {} keys, pooled at capture; a weight is summed "
    "over its keys and averaged over its queries."
)


def block_cells(recordings: Iterable[Recording], selection: Selection) -> list[Recording]:
    """Returns the recordings with each pooled layer as maps with a cell per block, and a remark on each such layer.

    Recordings without pooled layers are returned unchanged.

    Raises:
        AttnvizError: if a layer is pooled in only some recordings, or has no metrics from its capture, or if the
            selection names queries or keys.
    """
    all_recordings = list(recordings)
    pooled_layers = [
        {maps.layer for maps in recording.maps if isinstance(maps, PooledMaps)} for recording in all_recordings
    ]
    if not any(pooled_layers):
        return all_recordings
    for recording in all_recordings:
        for maps in recording.maps:
            is_pooled_everywhere = all(maps.layer in layers for layers in pooled_layers)
            if isinstance(maps, PooledMaps) and not (is_pooled_everywhere and maps.metrics is not None):
                raise unknown_cells_error(maps)
    for name in ("queries", "keys"):
        if getattr(selection, name) != (None, None):
            raise AttnvizError(f"{option(name)} selects tokens, but these maps were pooled to blocks; leave it out")
    return [_with_block_maps(recording) for recording in all_recordings]


def _with_block_maps(recording: Recording) -> Recording:
    """Returns the recording with block maps in place of its pooled maps, and remarks that describe them."""
    maps = tuple(
        _block_maps(layer_maps) if isinstance(layer_maps, PooledMaps) else layer_maps for layer_maps in recording.maps
    )
    remarks = dict.fromkeys(
        REMARK.format(layer_maps.layer, *layer_maps.block)
        for layer_maps in recording.maps
        if isinstance(layer_maps, PooledMaps)
    )
    return replace(recording, maps=maps, remarks=(*remarks, *recording.remarks))


def _block_maps(maps: PooledMaps) -> GroupedMaps:
    """Returns maps whose rows and columns are the blocks of the pooled maps."""
    rows, columns = (
        _block_units(tokens, block_count)
        for tokens, block_count in zip((maps.query_tokens, maps.key_tokens), maps.counts.shape[-2:], strict=True)
    )
    return GroupedMaps(
        layer=maps.layer,
        module=maps.module,
        part=maps.part,
        kind=maps.kind,
        heads=maps.heads,
        query_tokens=_block_tokens(rows),
        key_tokens=_block_tokens(columns),
        item=maps.item,
        scale=maps.scale,
        fidelity=maps.fidelity,
        source=maps,
        rows=rows,
        columns=columns,
    )


def _block_units(tokens: Tokens, block_count: int) -> Units:
    """Returns the blocks of an axis, each labelled by its first token, with ``…`` if it has more than one."""
    edges = block_edges(len(tokens), block_count)
    sizes = np.diff(edges)
    labels = (
        tokens.labels[first] + ("…" if size > 1 else "")
        for first, size in zip(edges[:-1].tolist(), sizes.tolist(), strict=True)
    )
    numbers = np.repeat(np.arange(block_count, dtype=np.int64), sizes)
    return Units(numbers=numbers, labels=tuple(labels), tokens=tokens)


def _block_tokens(blocks: Units) -> Tokens:
    """Returns one token per block; it is special if the block is a single special token."""
    joined_tokens = blocks.as_tokens()
    return replace(joined_tokens, special=joined_tokens.special & (blocks.sizes == 1))
