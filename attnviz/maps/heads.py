"""Chooses heads of a recording by a selection, and names them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from attnviz.maps.captured_metrics import CapturedMetrics
from attnviz.maps.grouped import GroupedMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection, refuse_missing, resolve_span


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """A head chosen by the user, with the queries and keys that are shown.

    Attributes:
        maps: the attention call that it belongs to.
        head: number of the head in that call.
        queries: the queries, with both ends.
        keys: the keys, with both ends.
    """

    maps: LayerMaps
    head: int
    queries: slice
    keys: slice

    @property
    def name(self) -> str:
        """The name ``layer.head``, as in all output."""
        return head_name(self.maps, self.head)

    @property
    def key(self) -> tuple[str, int, str, int, int]:
        """Identifies the head within its recording, whether the maps are over tokens or over words."""
        return self.maps.module, self.maps.layer, self.maps.kind, self.maps.item, self.head


def head_name(maps: LayerMaps, head: int) -> str:
    """Returns the name of a head as in all output: ``layer.head``."""
    return f"{maps.layer}.{head}"


def choose(recording: Recording, selection: Selection) -> list[ChosenHead]:
    """Returns the selected heads in the order of the selection, each with its selected queries and keys.

    Raises:
        AttnvizError: if a layer, head or position does not exist; the message lists those that do.
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
    """Returns the maps and the number of each head, for callers that need single cells.

    Raises:
        AttnvizError: if a head's maps are pooled, so that single cells are not known.
    """
    return [(cell_maps(head.maps), head.head) for head in heads]


class OneHead(Protocol):
    """A head of some maps."""

    @property
    def maps(self) -> LayerMaps:
        """The attention call that it belongs to."""

    @property
    def head(self) -> int:
        """The number of the head in that call."""


def measurable_heads(heads: Iterable[OneHead]) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each head, for metrics; pooled maps must have metrics from their capture.

    Raises:
        AttnvizError: if a head's maps are pooled and have no metrics.
    """
    return [
        (cell_maps(tokens_of(head.maps)) if measured_of(head.maps) is None else head.maps, head.head) for head in heads
    ]


def can_be_measured(maps: LayerMaps) -> bool:
    """True if single cells are known, or metrics were measured at capture."""
    return isinstance(maps, CellMaps) or measured_of(maps) is not None


def measured_of(maps: LayerMaps) -> CapturedMetrics | None:
    """Returns the metrics that were measured at capture, if the maps are pooled and have them."""
    source = tokens_of(maps)
    return source.metrics if isinstance(source, PooledMaps) else None


def tokens_of(maps: LayerMaps) -> LayerMaps:
    """Returns the pooled maps behind maps whose cells are their blocks; other maps are returned unchanged."""
    return maps.source if isinstance(maps, GroupedMaps) and maps.source.block != (1, 1) else maps


def heads_with_cells(heads: Iterable[OneHead]) -> list[tuple[CellMaps, int]]:
    """Like ``cell_heads``, but skips heads whose single cells are not known."""
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
