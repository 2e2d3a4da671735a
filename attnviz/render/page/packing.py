"""Packs the weights of a page, rounded as finely as its size allows, and the norms with which it moves them."""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.derived import contribution_bound, contribution_maps, divided_contributions
from attnviz.maps.layer_maps import LONG_MAP_TOKENS, LayerMaps, cell_maps, mean_visible_key_counts
from attnviz.maps.recurrent import PartMaps, known_recurrence
from attnviz.render.page.encoding import PRECISIONS, Precision, base85, encode_weights, weight_pieces, without_nan
from attnviz.render.page.packed_factors import (
    FACTORS_SENTENCE,
    KeyPool,
    factored_bytes,
    factored_overview,
    pack_factors,
    page_factors,
)
from attnviz.report.picture.report import ExactNumbers, HeadCells
from attnviz.streaming.overview import Overview, bands_of_queries, block_edges, pool_weights

PART_SIGNS = {"_a": -1, "_b": 1}  # the signs of the two parts of implicit attention, by the suffix of their side
THUMBNAIL_SIDE = 48  # largest number of rows or columns
MAX_BAND_CELLS = 4_000_000  # cells compared at once
MIN_CHECKED_WEIGHT = 1e-4  # the logarithm of a smaller weight may be too imprecise for a check
CHECKED_CELLS = 4  # cells per row on which the row's log-sum-exp is checked
SCORES_SENTENCE = "Scores follow from the weights and each row’s log-sum-exp; the page shows their error."
# The lower limit of ``high`` · keys. Codes reach 253 and rows sum to 1, so the mean square of a row's codes is then at
# most 253² / 80, and every distribution of codes with that mean square has less than 6 bits of entropy.
MIN_HIGH_TIMES_KEYS = 80
MIN_HIGH = 1e-9  # above 0, since codes are divided by it
LOG_SUM_EXP_TOLERANCE = 0.05  # of score − (ln(weight) + log-sum-exp); this large because weights may be bfloat16


@dataclass(frozen=True)
class PagePlan:
    """The form in which numbers fit on a page."""

    precision: Precision  # the precision of a stored weight
    block: int  # the number of queries, and of keys, per cell; 1 if nothing is pooled
    factored: bool = False  # True if the page has queries and keys instead of weights

    @property
    def sentence(self) -> str:
        """A sentence or two on the precision of weights and scores; of weights alone if tokens are pooled."""
        if self.factored:
            return FACTORS_SENTENCE
        if self.block > 1:
            return self.precision.sentence
        scores = "Scores are exact too." if self.precision.is_exact else SCORES_SENTENCE
        return f"{self.precision.sentence} {scores}"


@dataclass(frozen=True, eq=False)
class FirstLook:
    """The data with which a page shows a head before it has read the head's numbers."""

    thumbnail: bytes  # the means, then the maxima, ``(height, width)`` each, as uint8 codes
    shape: tuple[int, int]  # the height and width of the thumbnail
    thumbnail_highs: tuple[float, float]  # the weights that the largest codes of means and of maxima stand for
    # the row, column and value of the largest weight; ``None`` if no cell has a weight
    peak: tuple[int, int, float] | None
    top: float  # the largest weight of queries that see several keys; of all queries if none does


@dataclass(frozen=True, eq=False)
class PackedSide:
    """One head of one recording, packed."""

    content: bytes  # encoded pieces of weights and the array stored with them, or of factors
    look: FirstLook
    high: float  # the weight that the largest code stands for
    has_masked: bool  # True if some cell is masked
    has_nan: bool  # True if some visible cell is NaN
    about_factors: dict[str, Any] | None = None  # how the content is read if it is factors


@dataclass(frozen=True, eq=False)
class PackedHead:
    """One head, packed."""

    sides: tuple[PackedSide, ...]  # the head in each recording: one, or two that are compared
    largest_change: float  # the largest absolute change of a weight between the two; 0 for one recording


def plan_page(heads: Iterable[HeadCells], budget: int) -> PagePlan:
    """Returns the plan that stores the heads as precisely as ``budget`` bytes allow.

    The first of these that fits is chosen: weights in float32, if the cells are few; queries and keys, if all heads
    have them; weights in fewer bits; means and maxima of the smallest blocks of tokens that fit. Maps that are pooled
    are always stored in blocks. A cell in 8 bits counts as one byte: compression leaves about six bits, and the letters
    that encode these in a page take a quarter more.
    """
    all_heads = tuple(heads)

    def total_cells(block: int) -> int:
        numbers_a_cell = 1 if block == 1 else 2  # a pooled cell has a mean and a maximum
        return sum(math.prod(_blocks_shape(head, block)) * len(head.sides) * numbers_a_cell for head in all_heads)

    def resolves_blocks(block: int) -> bool:  # pooled maps may be too coarse
        return all(
            size <= resolution
            for head in all_heads
            for maps in head.sides.values()
            for size, resolution in zip(
                _blocks_shape(head, block), maps.resolution(head.queries, head.keys), strict=True
            )
        )

    cells, bytes_of_factors = total_cells(1), factored_bytes(all_heads)
    if cells > PRECISIONS[0].max_cells and bytes_of_factors is not None and bytes_of_factors <= budget:
        return PagePlan(PRECISIONS[0], 1, factored=True)
    block = 1
    while total_cells(block) > budget or not resolves_blocks(block):
        block += 1
    if block > 1:
        return PagePlan(PRECISIONS[-1], block)
    fitting_precisions = (
        precision for precision in PRECISIONS if cells <= min(precision.max_cells, budget // precision.bytes_per_cell)
    )
    return PagePlan(next(fitting_precisions), block)


def axis_edges(span: slice, block: int) -> IntArray:
    """Returns the first token of each cell of an axis, and the end of the last cell, ``(cells + 1,)``."""
    count = span.stop - span.start
    return np.asarray(span.start + block_edges(count, math.ceil(count / block)))


def _blocks_shape(head: HeadCells, block: int) -> tuple[int, int]:
    rows, columns = (len(axis_edges(span, block)) - 1 for span in (head.queries, head.keys))
    return rows, columns


def pack_heads(heads: Sequence[HeadCells], plan: PagePlan) -> tuple[list[PackedHead], list[bytes]]:
    """Returns the packed heads, in order, and the packed keys of heads; no keys if the page has weights."""
    key_pool = KeyPool()

    def pack(head: HeadCells) -> PackedHead:
        pack_side = _pack_factored_side if plan.factored else _pack_kept_side
        packed = [pack_side(maps, head, plan, key_pool) for maps in head.sides.values()]
        sides = tuple(side for side, _ in packed)
        if len(sides) == 1:
            return PackedHead(sides, 0.0)
        if not plan.factored:
            return PackedHead(sides, _largest_change([cells for _, cells in packed]))
        bands = bands_of_queries(head.queries, head.keys.stop - head.keys.start, MAX_BAND_CELLS)
        changes = (
            _largest_change([_cells(maps, replace(head, queries=band))[0] for maps in head.sides.values()])
            for band in bands
        )
        return PackedHead(sides, max(changes))

    if plan.factored:  # one after another, since heads share keys
        return [pack(head) for head in heads], key_pool.contents
    with ThreadPoolExecutor() as pool:
        return list(pool.map(pack, heads)), []


def _largest_change(sides: Sequence[Overview]) -> float:
    old_weights, new_weights = (np.where(side.visible, side.mean[0], np.float32(0)) for side in sides)
    change = np.abs(new_weights - old_weights)
    return float(change[np.isfinite(change)].max(initial=0))


def _cells(maps: LayerMaps, head: HeadCells) -> tuple[Overview, FloatArray]:
    """Returns single cells as an overview of which each is a pixel, and their scores, ``(queries, keys)``."""
    window = cell_maps(maps).window((head.head,), head.queries, head.keys)
    return Overview(window.weights, window.weights, window.visible), window.scores[0]


def _pack_factored_side(
    maps: LayerMaps, head: HeadCells, plan: PagePlan, key_pool: KeyPool
) -> tuple[PackedSide, Overview]:
    """Returns one head of one recording packed as queries and keys, and an overview of it."""
    factors = page_factors(maps)
    assert factors is not None  # as the plan says
    content, about = pack_factors(maps, factors, head, key_pool)
    overview = factored_overview(maps, head, factors.queries.shape[-1])
    look = _first_look(maps, head, overview, plan)
    has_masked = not factors.mask.coverage(head.queries, head.keys)
    has_nan = bool(np.isnan(overview.mean).any())
    return PackedSide(content, look, look.thumbnail_highs[1], has_masked, has_nan, about), overview


def _pack_kept_side(maps: LayerMaps, head: HeadCells, plan: PagePlan, key_pool: KeyPool) -> tuple[PackedSide, Overview]:
    """Returns one head of one recording packed as weights, or as means and maxima of blocks, and these themselves."""
    if plan.block == 1:
        cells, scores = _cells(maps, head)
    else:
        cells = maps.overview((head.head,), *_blocks_shape(head, plan.block), head.queries, head.keys)
    weights, visible = cells.mean[0], cells.visible
    largest = float(without_nan(np.where(visible, cells.maximum[0], np.float32(0))).max(initial=0))
    high = max(largest, min(1.0, MIN_HIGH_TIMES_KEYS * plan.block / visible.shape[1]))
    if plan.block > 1:
        second_array = encode_weights(cells.maximum[0], visible, plan.precision, high)
    elif plan.precision.is_exact:  # scores are exact as well
        second_array = np.where(visible, scores, np.float32(np.nan))
    else:
        second_array = log_sum_exp(scores, weights, visible)
    side = PackedSide(
        content=weight_pieces(encode_weights(weights, visible, plan.precision, high), second_array),
        look=_first_look(maps, head, cells, plan, high),
        high=high,
        has_masked=not visible.all(),
        has_nan=bool(np.isnan(np.where(visible, weights, np.float32(0)).max(initial=0))),
    )
    return side, cells


def _first_look(
    maps: LayerMaps, head: HeadCells, cells: Overview, plan: PagePlan, high: float | None = None
) -> FirstLook:
    """Returns the first look at a head.

    Args:
        cells: the stored weights, or means and maxima of their blocks; of factors an overview of any size.
        high: the weight that the largest code of a maximum stands for; the largest of all if it is not given.
    """
    rows, columns = cells.visible.shape
    thumbnail = cells
    if not plan.factored:
        height, width = min(rows, THUMBNAIL_SIDE), min(columns, THUMBNAIL_SIDE)
        thumbnail = pool_weights(cells.mean, cells.visible, height, width)
        if cells.maximum is not cells.mean:
            maxima = pool_weights(cells.maximum, cells.visible, height, width).maximum
            thumbnail = replace(thumbnail, maximum=maxima)
    if high is None:
        largest = float(without_nan(np.where(cells.visible, cells.maximum[0], np.float32(0))).max(initial=0))
        high = max(largest, MIN_HIGH)
    highs = (float(without_nan(thumbnail.mean[0]).max(initial=0)) or high, high)
    codes = (
        encode_weights(picture, thumbnail.visible, PRECISIONS[-1], high).tobytes()
        for picture, high in zip((thumbnail.mean[0], thumbnail.maximum[0]), highs, strict=True)
    )

    peak = _largest_cell(cells.maximum[0] if plan.factored else cells.mean[0], cells.visible)
    if peak is not None and plan.factored:  # the largest cell of the pixel
        spans = []
        for span, pixel, count in zip((head.queries, head.keys), peak[:2], (rows, columns), strict=True):
            edges = block_edges(span.stop - span.start, count)
            spans.append(slice(span.start + int(edges[pixel]), span.start + int(edges[pixel + 1])))
        window, _ = _cells(maps, replace(head, queries=spans[0], keys=spans[1]))
        row, column, value = _largest_cell(window.mean[0], window.visible) or (0, 0, 0.0)
        peak = spans[0].start - head.queries.start + row, spans[1].start - head.keys.start + column, value

    # Rows that see one key do not set the colours, unless no row sees more.
    edges = head.queries.start + block_edges(head.queries.stop - head.queries.start, rows)
    sees_several_keys = mean_visible_key_counts(maps, head.head, edges.tolist()) > 1
    counted = sees_several_keys if sees_several_keys.any() else np.ones(rows, dtype=bool)
    from_first = slice(int(counted.argmax()), None)  # a view: most maps need no copy
    weights = np.where(cells.visible[from_first], without_nan(cells.maximum[0, from_first]), np.float32(0))
    if not counted[from_first].all():
        weights = weights[counted[from_first]]
    return FirstLook(
        thumbnail=b"".join(codes),
        shape=(thumbnail.visible.shape[0], thumbnail.visible.shape[1]),
        thumbnail_highs=highs,
        peak=peak,
        top=float(weights.max(initial=0)),
    )


def _largest_cell(values: FloatArray, visible: BoolArray) -> tuple[int, int, float] | None:
    """Returns the row, the column and the value of the largest visible cell; ``None`` without one that is no NaN."""
    numbers = without_nan(np.where(visible, values, np.float32(-1)))  # below every weight
    row, column = divmod(int(numbers.argmax()), numbers.shape[1])
    largest = float(numbers[row, column])
    return (row, column, largest) if largest >= 0 else None


def log_sum_exp(scores: FloatArray, weights: FloatArray, visible: BoolArray) -> FloatArray:
    """Returns score − ln(weight) of each row, ``(queries,)``, computed from the largest weight of the row.

    It is NaN for a row without a visible weight above 0, and for a row in which a checked cell gives a result that
    differs by more than `LOG_SUM_EXP_TOLERANCE`. Cells of `CHECKED_CELLS` columns with a weight above
    `MIN_CHECKED_WEIGHT` are checked.

    Args:
        scores: ``(queries, keys)``.
        weights: ``(queries, keys)``.
        visible: ``(queries, keys)``, False for masked cells.
    """
    rows = np.arange(len(weights))
    checked_columns = np.unique(np.linspace(0, weights.shape[1] - 1, CHECKED_CELLS).astype(int))
    best_columns = without_nan(np.where(visible, weights, np.float32(0))).argmax(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = scores[rows, best_columns].astype(np.float64) - np.log(weights[rows, best_columns].astype(np.float64))
        errors = np.abs(np.log(weights[:, checked_columns]) + lse[:, None] - scores[:, checked_columns])
    is_wrong = (
        visible[:, checked_columns]
        & (weights[:, checked_columns] > MIN_CHECKED_WEIGHT)
        & ~(errors <= LOG_SUM_EXP_TOLERANCE)
    )
    is_known = visible[rows, best_columns] & np.isfinite(lse)
    return np.where(is_known & ~is_wrong.any(axis=-1), lse, np.nan).astype(np.float32)


def report_in_percent(report: ExactNumbers) -> ExactNumbers:
    """Returns the report with its contributions divided by their common bound, and a first remark that names the bound.

    The contributions then lie in 0 to 1. A report of weights is returned unchanged. The two sides of implicit attention
    are its numbers below and above 0: their change is what the page draws.
    """
    heads = report.heads
    if heads[0].maps.quantity == "weight":
        return report
    if heads[0].maps.quantity == "implicit":
        return _report_of_parts(report)
    bounds = [contribution_bound(maps) for head in heads for maps in head.sides.values()]
    unit = max(bounds) or 1.0  # every contribution is 0 if the bound is
    scaled_heads = tuple(
        replace(head, sides={name: divided_contributions(maps, unit) for name, maps in head.sides.items()})
        for head in heads
    )
    unit_remark = f"On this page contributions are in percent of {unit:.4g}, which none of them exceeds."
    return replace(report, heads=scaled_heads, remarks=(unit_remark, *report.remarks))


def _report_of_parts(report: ExactNumbers) -> ExactNumbers:
    """Returns the report of implicit attention with the numbers below and above 0 as two sides, in shares of a unit."""
    all_maps = {id(head.maps): head.maps for head in report.heads}
    sources = {maps_id: known for maps_id, maps in all_maps.items() if (known := known_recurrence(maps)) is not None}
    is_long = any(len(maps.query_tokens) > LONG_MAP_TOKENS for maps in all_maps.values())
    if len(sources) < len(all_maps) or len(report.heads[0].sides) > 1 or is_long:
        raise AttnvizError(
            f"a page draws implicit attention of single tokens, at most {LONG_MAP_TOKENS}, in one recording; "
            "use -o map.svg (.png .pdf .pptx) or the terminal"
        )
    unit = max(maps.largest for maps in sources.values()) or 1.0
    parts: dict[int, dict[str, LayerMaps]] = {
        maps_id: {
            side: PartMaps(**maps.shared_fields(), source=maps, unit=sign * unit) for side, sign in PART_SIGNS.items()
        }
        for maps_id, maps in sources.items()
    }
    with_parts = tuple(replace(head, sides=parts[id(head.maps)]) for head in report.heads)
    unit_remark = f"On this page implicit attention is in percent of {unit:.4g}, the largest size of a number."
    return replace(report, heads=with_parts, remarks=(unit_remark, *report.remarks))


def pack_contributions(heads: Sequence[HeadCells], plan: PagePlan) -> tuple[bytes, dict[str, Any]] | None:
    """Returns the data with which a page of weights can show contributions as well; their unit is a common bound.

    Returns:
        One encoded float32 norm per key, head after head, then the codes of the thumbnails; and the unit and scales of
        these as JSON values. ``None`` if cells are pooled, two recordings are compared, or some maps are not of weights
        or have no norms of all queries.
    """
    if plan.block > 1 or any(len(head.sides) > 1 or head.maps.quantity != "weight" for head in heads):
        return None
    all_maps = {id(head.maps): head.maps for head in heads}
    if any(maps.value_norms is None or maps.value_norms.ndim > 2 for maps in all_maps.values()):
        return None
    contributions = {maps_id: contribution_maps(maps) for maps_id, maps in all_maps.items()}
    unit = max(map(contribution_bound, contributions.values())) or 1.0  # every contribution is 0 if the bound is
    scaled_maps = {maps_id: divided_contributions(maps, unit) for maps_id, maps in contributions.items()}
    looks, norms = [], []
    for head in heads:
        maps = scaled_maps[id(head.maps)]
        factors = page_factors(head.maps) if plan.factored else None
        cells = _cells(maps, head)[0] if factors is None else factored_overview(maps, head, factors.queries.shape[-1])
        looks.append(_first_look(maps, head, cells, plan))
        assert head.maps.value_norms is not None
        norms_of_head = head.maps.value_norms[head.maps.head_indices((head.head,))[0], head.keys]
        norms.append((norms_of_head / unit).astype("<f4").tobytes())
    about = {
        "unit": unit,
        "high": max(look.top for look in looks) or 1.0,
        "tops": [look.top for look in looks],
        "peaks": [look.peak for look in looks],
        "thumbnailHighs": [look.thumbnail_highs for look in looks],
    }
    return base85(b"".join((*norms, *(look.thumbnail for look in looks)))), about
