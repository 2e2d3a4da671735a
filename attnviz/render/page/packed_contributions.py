"""Contributions in a page: scaled to percent of the largest norm, or as norms of keys beside the weights."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.derived import contribution_bound, contribution_maps, divided_contributions
from attnviz.maps.layer_maps import cell_maps
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
from attnviz.report.picture.report import ExactNumbers


def report_in_percent(report: ExactNumbers) -> ExactNumbers:
    """Returns the report with its contributions divided by their common bound, and a first remark that names the bound.

    The contributions then lie in 0 to 1. A report of weights is returned unchanged.

    Raises:
        AttnvizError: if contributions are shown and the user gave colour limits, which do not fit scaled numbers.
    """
    heads = report.numbers.heads
    if heads[0].maps.quantity == "weight":
        return report
    if not isinstance(report.look.color_limits, str):
        raise AttnvizError(
            f"a page shows contributions in percent of the largest norm, so {option('limits', report.look.limits)} "
            f"does not apply; use {option('limits', 'shared')}"
        )
    bounds = [contribution_bound(maps) for head in heads for maps in head.sides.values()]
    unit = max(bounds) or 1.0  # every contribution is 0 if the bound is
    scaled_heads = tuple(
        replace(head, sides={name: divided_contributions(maps, unit) for name, maps in head.sides.items()})
        for head in heads
    )
    unit_remark = f"On this page contributions are in percent of {unit:.4g}, which none of them exceeds."
    return replace(report, numbers=replace(report.numbers, heads=scaled_heads), remarks=(unit_remark, *report.remarks))


@dataclass(frozen=True, eq=False)
class _PackedContributions:
    """The data with which a page of weights can show contributions as well.

    Attributes:
        content: one encoded float32 norm per key, head after head, then the codes of the thumbnails.
        about: the unit and scales of the content, as JSON values.
    """

    content: bytes
    about: dict[str, Any]


def pack_contributions(
    heads: tuple[HeadCells, ...], packed_heads: list[PackedHead], plan: PagePlan
) -> _PackedContributions | None:
    """Returns the packed norms that keys move, and the first look at each head's contributions.

    Their unit is a common bound of all contributions.

    Returns:
        ``None`` if cells are pooled, two recordings are compared, or some maps are not of weights or have no norms.
    """
    if plan.block > 1 or any(len(head.sides) > 1 or head.maps.quantity != "weight" for head in heads):
        return None
    value_norms = [head.maps.value_norms for head in heads]
    known_norms = [norms for norms in value_norms if norms is not None]
    if len(known_norms) < len(heads):
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
    parts = [
        (norms[head.maps.head_indices((head.head,))[0], head.keys] / unit).astype("<f4").tobytes()
        for head, norms in zip(heads, known_norms, strict=True)
    ]
    return _PackedContributions(base85(b"".join((*parts, *(look.thumbnail for look in looks)))), about)


def _first_look(head: HeadCells, packed_head: PackedHead) -> FirstLook:
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
