"""Packs the norms that keys move, with which a page can switch between weights and contributions."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.maps.contributions import contribution_bound, contribution_maps, divided_contributions
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.render.page.encoding import base85, without_nan
from attnviz.render.page.packing import (
    FirstLook,
    PackedHead,
    PageCells,
    PagePlan,
    first_look_at_cells,
    first_look_at_overview,
)
from attnviz.report.picture.numbers import HeadCells


@dataclass(frozen=True, eq=False)
class PackedContributions:
    """The data with which a page of weights can show contributions as well.

    Attributes:
        content: one encoded float32 norm per key, head after head, then the codes of the thumbnails.
        about: the unit and scales of the content, as JSON values.
    """

    content: bytes
    about: dict[str, Any]


def pack_contributions(
    heads: tuple[HeadCells, ...], packed_heads: list[PackedHead], plan: PagePlan
) -> PackedContributions | None:
    """Returns the packed norms that keys move, and the first look at each head's contributions.

    Their unit is a common bound of all contributions.

    Returns:
        ``None`` if cells are pooled, two recordings are compared, or some maps are not of weights or have no norms.
    """
    if plan.block > 1 or any(len(head.sides) > 1 or not _has_contributions(head.maps) for head in heads):
        return None
    maps_by_id = {id(head.maps): head.maps for head in heads}
    contributions = {maps_id: contribution_maps(maps) for maps_id, maps in maps_by_id.items()}
    unit = max(map(contribution_bound, contributions.values())) or 1.0  # every contribution is 0 if the bound is
    scaled_maps = {maps_id: divided_contributions(maps, unit) for maps_id, maps in contributions.items()}
    looks = [
        _first_look(replace(head, sides={"": scaled_maps[id(head.maps)]}), packed_head)
        for head, packed_head in zip(heads, packed_heads, strict=True)
    ]
    about = {
        "unit": unit,
        "high": max(look.top for look in looks) or 1.0,
        "tops": [look.top for look in looks],
        "peaks": [look.peak for look in looks],
        "thumbnailHighs": [look.thumbnail_highs for look in looks],
    }
    norms = b"".join((_norms(head) / unit).astype("<f4").tobytes() for head in heads)
    return PackedContributions(base85(norms + b"".join(look.thumbnail for look in looks)), about)


def _has_contributions(maps: LayerMaps) -> bool:
    """True if contributions can be computed from the maps: these are weights with norms."""
    return maps.quantity == "weight" and maps.value_norms is not None


def _norms(head: HeadCells) -> FloatArray:
    """Returns the norm that each key of a head moves, ``(keys,)``, over the head's range of keys."""
    value_norms = head.maps.value_norms
    assert value_norms is not None
    return np.asarray(value_norms[head.maps.head_indices((head.head,))[0], head.keys])


def _first_look(head: HeadCells, packed_head: PackedHead) -> FirstLook:
    """Returns the first look at a head's contributions, from an overview if the head is packed as factors."""
    maps, [side] = head.maps, packed_head.sides
    if side.factors is not None:
        height, width = side.factors.overview.visible.shape
        return first_look_at_overview(maps, head, maps.overview((head.head,), height, width, head.queries, head.keys))
    window = cell_maps(maps).window((head.head,), head.queries, head.keys)
    cells = window.weights[0]
    visible_cells = np.where(window.visible, cells, np.float32(-1))
    high = max(float(without_nan(visible_cells).max(initial=0)), 1e-9)  # above 0, since codes are divided by it
    visible_key_counts = maps.visible_key_counts(head.head, head.queries)
    page_cells = PageCells(
        weights=cells, second_array=cells, largest=cells, visible=window.visible, visible_key_counts=visible_key_counts
    )
    return first_look_at_cells(page_cells, visible_cells, high)
