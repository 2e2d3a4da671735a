"""Pooled maps as maps whose cells are their blocks, to compare and inspect: the finest there are."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.derived import DerivedMaps
from attnviz.maps.layer_maps import Window, cells_unknown
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.maps.seen_cells import seen_by
from attnviz.streaming.overview import block_edges
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

REMARK = (
    "Layer {}: a row or a column is a block of {} x {} tokens, as it was pooled when it was captured; a weight is "
    "summed over its keys and averaged over its queries."
)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BlockMaps(DerivedMaps):
    """The blocks of pooled maps as cells: rows still sum to what they did, and no cell has a score (NaN).

    Attributes:
        source: the pooled maps over tokens, whose numbers were measured cell by cell.
    """

    source: PooledMaps

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The blocks, joined as the tokens of words are."""
        held = self.source.positions(heads)
        counts = seen_by(self.source.counts[..., queries, keys], held)
        tall = np.diff(block_edges(len(self.source.query_tokens), len(self.query_tokens)))[queries, None]
        weights: FloatArray = (self.source.mean[held, queries, keys] * counts / tall).astype(np.float32)
        return Window(scores=np.full_like(weights, np.nan), weights=weights, visible=counts > 0)

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Those of the pooled maps."""
        return self.source.head_groups(heads)


def block_cells(recordings: Iterable[Recording], selection: Selection) -> list[Recording]:
    """The recordings with blocks for cells where single ones are not known, and a remark that says so.

    Raises:
        AttnvizError: if a layer is known by its cells in one recording alone, or was not measured when it was captured,
            or a part of the maps is chosen.
    """
    recordings = list(recordings)
    pooled = [{maps.layer for maps in one.maps if isinstance(maps, PooledMaps)} for one in recordings]
    if not any(pooled):
        return recordings
    for one in recordings:
        for maps in one.maps:
            known_by_cells = not all(maps.layer in others for others in pooled)
            if isinstance(maps, PooledMaps) and (known_by_cells or maps.measured is None):
                raise cells_unknown(maps)
    for name in ("queries", "keys"):
        if getattr(selection, name) != (None, None):
            raise AttnvizError(f"{option(name)} chooses tokens, and these maps are known by blocks; leave it out")
    return [_with_blocks(one) for one in recordings]


def _with_blocks(recording: Recording) -> Recording:
    maps = tuple(_blocks_of(each) if isinstance(each, PooledMaps) else each for each in recording.maps)
    remarks = dict.fromkeys(
        REMARK.format(each.layer, *each.block) for each in recording.maps if isinstance(each, PooledMaps)
    )
    return replace(recording, maps=maps, remarks=(*remarks, *recording.remarks))


def _blocks_of(maps: PooledMaps) -> BlockMaps:
    rows, columns = maps.counts.shape[-2:]
    return BlockMaps(
        layer=maps.layer,
        module=maps.module,
        kind=maps.kind,
        heads=maps.heads,
        query_tokens=_block_tokens(maps.query_tokens, rows),
        key_tokens=_block_tokens(maps.key_tokens, columns),
        item=maps.item,
        scale=maps.scale,
        fidelity=maps.fidelity,
        source=maps,
    )


def _block_tokens(tokens: Tokens, blocks: int) -> Tokens:
    """A token for each block, called by the first of it."""
    edges = block_edges(len(tokens), blocks)
    joined = Units(tokens, edges[:-1], edges[1:]).as_tokens()
    several = np.diff(edges) > 1
    labels = (f"{tokens.labels[first]}…" if more else tokens.labels[first]
              for first, more in zip(edges[:-1].tolist(), several.tolist(), strict=True))  # fmt: skip
    return replace(joined, labels=tuple(labels), special=joined.special & ~several)
