"""Selects heads of a recording, and names them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from attnviz.base.errors import option
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.pooled import CallMetrics, PooledMaps
from attnviz.maps.recording import Recording
from attnviz.text.head_name import refuse_other_tower
from attnviz.text.selection import Selection, resolve_span

HeadKey = tuple[str, int, str, int, int]


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """A head chosen by the user, with the queries and keys that are shown."""

    maps: LayerMaps  # the attention call that it belongs to
    head: int  # number of the head in that call
    queries: slice  # the queries, with start and stop
    keys: slice  # the keys, with start and stop

    @property
    def name(self) -> str:
        """The name as in all output; see `head_name`."""
        return head_name(self.maps, self.head)

    @property
    def key(self) -> HeadKey:
        """What identifies the head in its recording; see `head_key`."""
        return head_key(self.maps, self.head)


def head_key(maps: LayerMaps, head: int) -> HeadKey:
    """Returns the module, layer, kind and text index of the attention call, and the number of the head.

    They identify the head in its recording, and are equal for maps over tokens and over groups of tokens.
    """
    return maps.module, maps.layer, maps.kind, maps.item, head


def head_name(maps: LayerMaps, head: int) -> str:
    """Returns the name of a head as in all output, unique in its recording: ``layer.head`` or ``part:layer.head``."""
    return maps.known_head(head).name


def chosen_heads(recording: Recording, selection: Selection) -> list[ChosenHead]:
    """Returns the selected heads in the order of the selection, each with its selected queries and keys."""
    return [
        ChosenHead(
            maps=maps,
            head=head,
            queries=resolve_span(selection.queries, len(maps.query_tokens), "queries"),
            keys=resolve_span(selection.keys, len(maps.key_tokens), "keys"),
        )
        for maps, head in _selected_heads(recording, selection)
    ]


def cell_heads(heads: Iterable[ChosenHead]) -> list[tuple[CellMaps, int]]:
    """Returns the maps and the number of each head."""
    return [(cell_maps(head.maps), head.head) for head in heads]


class _MapsHead(Protocol):
    """Anything with the maps of an attention call and the number of one of its heads."""

    @property
    def maps(self) -> LayerMaps:
        """The attention call that it belongs to."""

    @property
    def head(self) -> int:
        """The number of the head in that call."""


def measurable_heads(heads: Iterable[_MapsHead]) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each head, after a check that all of them can be measured."""
    pairs: list[tuple[LayerMaps, int]] = []
    for head in heads:
        has_metrics = captured_metrics_of(head.maps) is not None
        pairs.append((head.maps if has_metrics else cell_maps(head.maps.pooled_source), head.head))
    return pairs


def captured_metrics_of(maps: LayerMaps) -> CallMetrics | None:
    """Returns the metrics that were measured at capture; ``None`` if the maps have none or are not pooled."""
    source = maps.pooled_source
    return source.metrics if isinstance(source, PooledMaps) else None


def heads_with_cells(heads: Iterable[_MapsHead]) -> list[tuple[CellMaps, int]]:
    """Returns the maps and the number of each head whose maps have single cells."""
    return [(head.maps, head.head) for head in heads if isinstance(head.maps, CellMaps)]


def _selected_heads(recording: Recording, selection: Selection) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each selected head, in the order of the selection."""
    advice = f"record it with {option('attention', selection.tower)}"
    refuse_other_tower(selection.tower, recording.tower, recording.model, advice)
    heads = [(maps, head) for maps in recording.maps for head in maps.heads]
    known = [maps.known_head(head) for maps, head in heads]
    chosen = [heads[index] for index in selection.indices_in(known, recording.silent_layers)]
    if selection.heads is None:
        return chosen
    calls = {id(maps): call for call, (maps, _) in reversed(list(enumerate(chosen)))}
    ranks = {head: rank for rank, head in enumerate(selection.heads)}
    return sorted(chosen, key=lambda head: (calls[id(head[0])], ranks[head[1]]))
