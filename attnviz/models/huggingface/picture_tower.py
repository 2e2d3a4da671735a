"""Gives the maps of a tower, the part of a model that reads pictures alone, the places of its patches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.maps.layer_maps import LayerMaps
from attnviz.media.image import Image
from attnviz.models.huggingface.image_reader import image_tokens, with_probe

if TYPE_CHECKING:
    from attnviz.base.arrays import IntArray
    from attnviz.text.tokens import Tokens


def tower_maps(
    maps: Sequence[LayerMaps], images: Sequence[Image], picture_numbers: "IntArray", places: "IntArray"
) -> list[LayerMaps]:
    """Returns the maps with patches as tokens, at their places; maps of tiles without a picture are left out.

    Args:
        places: ``(tokens, 4)``, the rectangle of each token in its picture.
    """
    tokens_of_tiles: dict[int, Tokens] = {}
    size = len(maps[0].key_tokens)
    for item in sorted({layer_maps.item for layer_maps in maps}):
        tile = slice(item * size, (item + 1) * size)
        picture = int(picture_numbers[tile].max(initial=-1))
        if picture >= 0:
            tokens_of_tiles[item] = image_tokens(images[picture], places[tile])
    return [
        _with_tile_tokens(layer_maps, tokens_of_tiles[layer_maps.item])
        for layer_maps in maps
        if layer_maps.item in tokens_of_tiles
    ]


def _with_tile_tokens(maps: LayerMaps, tokens: "Tokens") -> LayerMaps:
    """Returns maps with the tokens of their tile as queries and keys."""
    if len(maps.query_tokens) == len(tokens):
        return replace(maps, query_tokens=tokens, key_tokens=tokens)
    return with_probe(replace(maps, key_tokens=tokens))
