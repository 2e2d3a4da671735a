"""The heads of a recording: chosen by a selection, and named."""

from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection, refuse_missing


def head_name(maps: LayerMaps, head: int) -> str:
    """A head as it is written everywhere: ``layer.head``."""
    return f"{maps.layer}.{head}"


def select_heads(recording: Recording, selection: Selection) -> list[tuple[LayerMaps, int]]:
    """The chosen heads in the order chosen.

    Raises:
        AttnvizError: naming what is not there and what is.
    """
    refuse_missing(selection.chosen_layers, recording.layers, "layer")
    layers = selection.chosen_layers or recording.layers
    chosen = [maps for layer in layers for maps in recording.maps if maps.layer == layer]
    for maps in chosen:
        refuse_missing(selection.heads_of(maps.layer), maps.heads, f"head in layer {maps.layer}:")
    pairs = [(maps, head) for maps in chosen for head in selection.heads_of(maps.layer) or maps.heads]
    order = {pair: place for place, pair in enumerate(selection.pairs or ())}
    return sorted(pairs, key=lambda pair: order.get((pair[0].layer, pair[1]), 0))
