"""Packs the norms that keys move, with which a page can switch between weights and contributions."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.maps.contributions import contribution_bound, contribution_maps, divided_contributions
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.render.page.encoding import base85, without_nan
from attnviz.render.page.packing import FirstLook, PackedHead, PageCells, PagePlan, look_at, look_at_overview
from attnviz.report.picture.numbers import HeadCells


@dataclass(frozen=True, eq=False)
class PackedContributions:
    """The data with which a page of weights can also show contributions.

    Attributes:
        content: one encoded float32 norm per key, head after head, then the codes of the thumbnails.
        about: the unit and scales of the content, as JSON values.
    """

    content: bytes
    about: dict[str, Any]


def pack_contributions(
    heads: tuple[HeadCells, ...], packed: list[PackedHead], plan: PagePlan
) -> PackedContributions | None:
    """Returns the norms that keys move, in units of the largest; ``None`` if some are unknown or cells are pooled.

    Args:
        heads: the heads of the page.
        packed: the same heads, packed.
        plan: the plan of the page.
    """
    if plan.block > 1 or any(len(head.sides) > 1 or _lacks_norms(head.maps) for head in heads):
        return None
    each = {id(head.maps): head.maps for head in heads}
    moved = {name: contribution_maps(maps) for name, maps in each.items()}
    unit = max(map(contribution_bound, moved.values())) or 1.0
    scaled = {name: divided_contributions(maps, unit) for name, maps in moved.items()}
    pairs = zip(heads, packed, strict=True)
    looks = [_look(replace(head, sides={"": scaled[id(head.maps)]}), one) for head, one in pairs]
    about = {
        "unit": unit,
        "high": max(look.top for look in looks) or 1.0,
        "tops": [look.top for look in looks],
        "peaks": [look.peak for look in looks],
        "thumbnailHighs": [look.thumbnail_highs for look in looks],
    }
    norms = b"".join((_norms(head) / unit).astype("<f4").tobytes() for head in heads)
    return PackedContributions(base85(norms + b"".join(look.thumbnail for look in looks)), about)


def _lacks_norms(maps: LayerMaps) -> bool:
    return maps.quantity != "weight" or maps.moved is None


def _norms(head: HeadCells) -> FloatArray:
    """Returns the norm that each key moves, ``(keys,)``."""
    moved = head.maps.moved
    assert moved is not None
    return np.asarray(moved[head.maps.positions((head.head,))[0], head.keys])


def _look(head: HeadCells, packed: PackedHead) -> FirstLook:
    """Returns the first look at a head's contributions, with as many cells as that at its weights."""
    maps, [side] = head.maps, packed.sides
    if side.factors is not None:
        height, width = side.factors.overview.visible.shape
        return look_at_overview(maps, head, maps.overview((head.head,), height, width, head.queries, head.keys))
    window = cell_maps(maps).window((head.head,), head.queries, head.keys)
    cells = window.weights[0]
    shown = np.where(window.visible, cells, np.float32(-1))
    high = max(float(without_nan(shown).max(initial=0)), 1e-9)
    return look_at(
        PageCells(cells, cells, cells, window.visible, maps.visible_keys(head.head, head.queries)), shown, high
    )
