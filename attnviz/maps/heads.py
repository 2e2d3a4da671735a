"""The heads of a recording: chosen by a selection, and named."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from attnviz.maps.grouped import GroupedMaps
from attnviz.maps.held_numbers import HeldNumbers
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection, refuse_missing, resolve_span


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """A head that is shown, and which part of it.

    Attributes:
        maps: the attention call that it belongs to.
        head: its own number there.
        queries: the first query and the one after the last.
        keys: the same for keys.
    """

    maps: LayerMaps
    head: int
    queries: slice
    keys: slice

    @property
    def name(self) -> str:
        """As it is written everywhere: ``layer.head``."""
        return head_name(self.maps, self.head)

    @property
    def key(self) -> tuple[str, int, str, int, int]:
        """What tells it from the other heads of its recording, whether over tokens or over words."""
        return self.maps.module, self.maps.layer, self.maps.kind, self.maps.item, self.head


def head_name(maps: LayerMaps, head: int) -> str:
    """A head as it is written everywhere: ``layer.head``."""
    return f"{maps.layer}.{head}"


def choose(recording: Recording, selection: Selection) -> list[ChosenHead]:
    """The chosen heads in the order chosen, each with its chosen queries and keys.

    Raises:
        AttnvizError: naming what is not there and what is.
    """
    return [
        ChosenHead(
            maps=maps,
            head=head,
            queries=resolve_span(selection.queries, len(maps.query_tokens), "queries"),
            keys=resolve_span(selection.keys, len(maps.key_tokens), "keys"),
        )
        for maps, head in _selected(recording, selection)
    ]


def cell_heads(heads: Iterable[ChosenHead]) -> list[tuple[CellMaps, int]]:
    """The maps and the number of each head, for what needs single cells.

    Raises:
        AttnvizError: if these are not known of one of them.
    """
    return [(cell_maps(head.maps), head.head) for head in heads]


class OneHead(Protocol):
    """A head of some maps."""

    @property
    def maps(self) -> LayerMaps:
        """The attention call that it belongs to."""

    @property
    def head(self) -> int:
        """Its own number there."""


def measurable_heads(heads: Iterable[OneHead]) -> list[tuple[LayerMaps, int]]:
    """The maps and the number of each head, for metrics: of maps without single cells those that were measured.

    Raises:
        AttnvizError: if one of them cannot be measured and was not.
    """
    return [
        (cell_maps(tokens_of(head.maps)) if measured_of(head.maps) is None else head.maps, head.head) for head in heads
    ]


def can_be_measured(maps: LayerMaps) -> bool:
    """Whether single cells are known, or were measured while they were."""
    return isinstance(maps, CellMaps) or measured_of(maps) is not None


def measured_of(maps: LayerMaps) -> HeldNumbers | None:
    """What was measured of maps while they were captured, where their single cells are not known."""
    source = tokens_of(maps)
    return source.measured if isinstance(source, PooledMaps) else None


def tokens_of(maps: LayerMaps) -> LayerMaps:
    """The maps over tokens, of maps whose cells are blocks of them."""
    return maps.source if isinstance(maps, GroupedMaps) and maps.source.block != (1, 1) else maps


def heads_with_cells(heads: Iterable[OneHead]) -> list[tuple[CellMaps, int]]:
    """The same for those heads of which single cells are known."""
    return [(head.maps, head.head) for head in heads if isinstance(head.maps, CellMaps)]


def _selected(recording: Recording, selection: Selection) -> list[tuple[LayerMaps, int]]:
    refuse_missing(selection.chosen_layers, recording.layers, "layer")
    layers = selection.chosen_layers or recording.layers
    chosen = [maps for layer in layers for maps in recording.maps if maps.layer == layer]
    for maps in chosen:
        refuse_missing(selection.heads_of(maps.layer), maps.heads, f"head in layer {maps.layer}:")
    pairs = [(maps, head) for maps in chosen for head in selection.heads_of(maps.layer) or maps.heads]
    order = {pair: place for place, pair in enumerate(selection.pairs or ())}
    return sorted(pairs, key=lambda pair: order.get((pair[0].layer, pair[1]), 0))
