"""Packs the weights of a page, rounded as finely as its size allows, and the norms with which it moves them."""

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.derived import contribution_bound, contribution_maps, divided_contributions
from attnviz.maps.layer_maps import LayerMaps, cell_maps, mean_visible_key_counts
from attnviz.render.page.encoding import PRECISIONS, Precision, base85, encode_weights, weight_pieces, without_nan
from attnviz.render.page.packed_factors import (
    FACTORS_SENTENCE,
    KeyPool,
    PackedFactors,
    factored_bytes,
    pack_factors,
    page_factors,
    peak_of,
)
from attnviz.report.picture.numbers import HeadCells
from attnviz.report.picture.report import ExactNumbers
from attnviz.streaming.overview import Overview, bands_of_queries, block_edges, pool_weights

THUMBNAIL_SIDE = 48  # largest number of rows or columns
MAX_BAND_CELLS = 4_000_000  # cells compared at once
MIN_CHECKED_WEIGHT = 1e-4  # the logarithm of a smaller weight may be too imprecise for a check
CHECKED_CELLS = 4  # cells per row on which the row's log-sum-exp is checked
SCORES_SENTENCE = "Scores follow from the weights and each row’s log-sum-exp; the page shows their error."
# The lower limit of ``high`` · keys. Codes reach 253 and rows sum to 1, so the mean square of a row's codes is then at
# most 253² / 80, and every distribution of codes with that mean square has less than 6 bits of entropy.
MIN_HIGH_TIMES_KEYS = 80
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
class PageCells:
    """The numbers of one head of one recording, before they are packed for a page."""

    weights: FloatArray  # ``(queries, keys)``; means if pooled
    # the array stored with the weights: scores ``(queries, keys)`` if exact, else log-sum-exps ``(queries,)``; if
    # pooled, maxima ``(queries, keys)``
    second_array: FloatArray
    largest: FloatArray  # ``(queries, keys)``, the weights; maxima if pooled
    visible: BoolArray  # ``(queries, keys)``
    # ``(queries,)``, the number of keys that each query can see; means of blocks if pooled
    visible_key_counts: Float64Array


@dataclass(frozen=True, eq=False)
class FirstLook:
    """The data with which a page shows a head before it has read the head's numbers."""

    thumbnail: bytes  # the means, then the maxima, ``(height, width)`` each, as uint8 codes
    thumbnail_highs: tuple[float, float]  # the weights that the largest codes of means and of maxima stand for
    # the row, column and value of the largest weight; ``None`` if no cell has a weight
    peak: tuple[int, int, float] | None
    top: float  # the largest weight of queries that see several keys; of all queries if none does


@dataclass(frozen=True, eq=False)
class _PackedSide:
    """One head of one recording, packed."""

    content: bytes  # encoded pieces of weights and the array stored with them, or of factors
    look: FirstLook  # the data for the first look
    high: float  # the weight that the largest code stands for
    has_masked: bool  # True if some cell is masked
    has_nan: bool  # True if some visible cell is NaN
    factors: PackedFactors | None = None  # the packed factors if the content is factors, else ``None``


@dataclass(frozen=True, eq=False)
class PackedHead:
    """One head, packed."""

    sides: tuple[_PackedSide, ...]  # the head in each recording: one, or two that are compared
    largest_change: float  # the largest absolute change of a weight between the two; 0 for one recording


def plan_page(heads: Iterable[HeadCells], budget: int) -> PagePlan:
    """Returns the plan that stores the heads as precisely as ``budget`` bytes allow.

    The first of these that fits is chosen: weights in float32, if the cells are few; queries and keys, if all heads
    have them; weights in fewer bits; means and maxima of the smallest blocks of tokens that fit. Maps that are pooled
    are always stored in blocks. A cell in 8 bits counts as one byte: compression leaves about six bits, and the letters
    that encode these in a page take a quarter more.
    """
    all_heads = tuple(heads)
    cells, bytes_of_factors = _total_cells(all_heads, 1), factored_bytes(all_heads)
    if cells > PRECISIONS[0].max_cells and bytes_of_factors is not None and bytes_of_factors <= budget:
        return PagePlan(PRECISIONS[0], 1, factored=True)
    block = 1
    while _total_cells(all_heads, block) > budget or not all(_resolves_blocks(head, block) for head in all_heads):
        block += 1
    if block > 1:
        return PagePlan(PRECISIONS[-1], block)
    fitting_precisions = (
        precision for precision in PRECISIONS if cells <= min(precision.max_cells, budget // precision.bytes_per_cell)
    )
    return PagePlan(next(fitting_precisions), block)


def pack_heads(heads: Iterable[HeadCells], plan: PagePlan) -> tuple[list[PackedHead], list[bytes]]:
    """Returns the packed heads, in order, and the packed keys of heads; no keys if the page has weights."""
    key_pool = KeyPool()
    if plan.factored:
        packed_heads = []
        for head in heads:
            sides = []
            for maps in head.sides.values():
                factors = page_factors(maps)
                if factors is None:
                    continue
                packed_factors = pack_factors(maps, factors, head, key_pool)
                look = first_look_at_overview(maps, head, packed_factors.overview)
                side = _PackedSide(
                    content=packed_factors.content,
                    look=look,
                    high=look.thumbnail_highs[1],
                    has_masked=not factors.mask.coverage(head.queries, head.keys),
                    has_nan=bool(np.isnan(packed_factors.overview.mean).any()),
                    factors=packed_factors,
                )
                sides.append(side)
            packed_heads.append(PackedHead(tuple(sides), _largest_factored_change(head) if len(sides) > 1 else 0.0))
        return packed_heads, key_pool.contents
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda head: _pack_head(head, plan), heads)), []


def first_look_at_overview(maps: LayerMaps, head: HeadCells, overview: Overview) -> FirstLook:
    """Returns the first look at a head whose cells the page computes from queries and keys."""
    high = max(float(without_nan(overview.maximum[0]).max(initial=0)), 1e-9)  # above 0, since codes are divided by it
    highs = _code_highs(overview, high)
    return FirstLook(
        thumbnail=_thumbnail_codes(overview, highs),
        thumbnail_highs=highs,
        peak=peak_of(maps, head, overview),
        top=_largest_informative_weight(
            overview.maximum[0], overview.visible, _mean_visible_key_counts(maps, head, overview.visible.shape[0])
        ),
    )


def _largest_factored_change(head: HeadCells) -> float:
    """Returns the largest absolute change of a weight between two recordings; reads bands to bound memory."""
    spans = bands_of_queries(head.queries, head.keys.stop - head.keys.start, MAX_BAND_CELLS)
    plan = PagePlan(PRECISIONS[0], 1)
    return max(
        _largest_change([_read_exact(maps, replace(head, queries=span), plan) for maps in head.sides.values()])
        for span in spans
    )


def _pack_head(head: HeadCells, plan: PagePlan) -> PackedHead:
    """Returns one head packed as weights, or as weights of blocks."""
    read_cells = _read_exact if plan.block == 1 else _read_pooled
    sides = [read_cells(maps, head, plan) for maps in head.sides.values()]
    return PackedHead(
        tuple(_pack_side(side, plan) for side in sides), _largest_change(sides) if len(sides) > 1 else 0.0
    )


def _read_exact(maps: LayerMaps, head: HeadCells, plan: PagePlan) -> PageCells:
    """Returns the cells of a head at every query and key, with scores, or with log-sum-exps if the page has codes."""
    window = cell_maps(maps).window((head.head,), head.queries, head.keys)
    weights, scores, visible = window.weights[0], window.scores[0], window.visible
    if plan.precision.is_exact:
        second_array = np.where(visible, scores, np.float32(np.nan))
    else:
        second_array = log_sum_exp(scores, weights, visible)
    return PageCells(weights, second_array, weights, visible, maps.visible_key_counts(head.head, head.queries))


def _read_pooled(maps: LayerMaps, head: HeadCells, plan: PagePlan) -> PageCells:
    """Returns the cells of a head pooled over blocks of tokens."""
    height, width = _blocks_shape(head, plan.block)
    overview = maps.overview((head.head,), height, width, head.queries, head.keys)
    visible_key_counts = _mean_visible_key_counts(maps, head, height)
    return PageCells(overview.mean[0], overview.maximum[0], overview.maximum[0], overview.visible, visible_key_counts)


def _pack_side(cells: PageCells, plan: PagePlan) -> _PackedSide:
    """Returns the packed cells of one head of one recording, with the first look at them."""
    is_pooled = plan.block > 1
    visible_largest = np.where(cells.visible, cells.largest, np.float32(0))
    min_high = min(1.0, MIN_HIGH_TIMES_KEYS * plan.block / cells.visible.shape[1])
    high = max(float(without_nan(visible_largest).max(initial=0)), min_high)
    second_array = (
        encode_weights(cells.second_array, cells.visible, plan.precision, high) if is_pooled else cells.second_array
    )
    shown_weights = np.where(cells.visible, cells.weights, np.float32(-1))
    return _PackedSide(
        content=weight_pieces(encode_weights(cells.weights, cells.visible, plan.precision, high), second_array),
        look=first_look_at_cells(cells, shown_weights, high),
        high=high,
        has_masked=not cells.visible.all(),
        has_nan=bool(np.isnan(shown_weights.max())),
    )


def first_look_at_cells(cells: PageCells, weights: FloatArray, high: float) -> FirstLook:
    """Returns the first look at a head whose cells are stored in the page.

    Args:
        weights: ``(queries, keys)``, the weights, with -1 for masked cells.
    """
    height, width = thumbnail_shape(*cells.visible.shape)
    means = pool_weights(cells.weights[None], cells.visible, height, width)
    stores_weights = cells.largest is cells.weights  # then means and maxima are pooled from the same array
    maxima = means if stores_weights else pool_weights(cells.largest[None], cells.visible, height, width)
    thumbnail = Overview(means.mean, maxima.maximum, means.visible)
    highs = _code_highs(thumbnail, high)
    numbers = without_nan(weights)
    row, column = divmod(int(numbers.argmax()), numbers.shape[1])
    largest = float(numbers[row, column])
    return FirstLook(
        thumbnail=_thumbnail_codes(thumbnail, highs),
        thumbnail_highs=highs,
        peak=(row, column, largest) if largest >= 0 else None,
        top=_largest_informative_weight(cells.largest, cells.visible, cells.visible_key_counts),
    )


def _mean_visible_key_counts(maps: LayerMaps, head: HeadCells, rows: int) -> Float64Array:
    """Returns the mean number of keys that a query can see in each of ``rows`` blocks of queries, ``(rows,)``."""
    first, stop = head.queries.start, head.queries.stop
    return mean_visible_key_counts(maps, head.head, [first + int(edge) for edge in block_edges(stop - first, rows)])


def _largest_informative_weight(largest: FloatArray, visible: BoolArray, visible_key_counts: Float64Array) -> float:
    """Returns the largest visible weight of queries that see several keys; of all queries if none does."""
    sees_several_keys = visible_key_counts > 1
    # A slice from the first such query on is a view: most maps need no copy.
    rows = slice(None) if not sees_several_keys.any() else slice(int(sees_several_keys.argmax()), None)
    visible_weights = np.where(visible[rows], without_nan(largest[rows]), np.float32(0))
    weights = visible_weights if sees_several_keys[rows].all() else visible_weights[sees_several_keys[rows]]
    return float(weights.max(initial=0)) if weights.size else 0.0


def axis_edges(span: slice, block: int) -> IntArray:
    """Returns the first token of each cell of an axis, and the end of the last cell, ``(cells + 1,)``."""
    count = span.stop - span.start
    return np.asarray(span.start + block_edges(count, math.ceil(count / block)))


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


def thumbnail_shape(height: int, width: int) -> tuple[int, int]:
    """Returns the numbers of rows and columns of the thumbnail of a map."""
    return min(height, THUMBNAIL_SIDE), min(width, THUMBNAIL_SIDE)


def _code_highs(overview: Overview, high: float) -> tuple[float, float]:
    """Returns the weights that the largest codes stand for: the largest mean (``high`` if that is 0), and ``high``."""
    largest = float(without_nan(overview.mean[0]).max(initial=0))
    return (largest if largest > 0 else high), high


def _thumbnail_codes(overview: Overview, highs: tuple[float, float]) -> bytes:
    """Returns an overview as the bytes of uint8 codes: the means, then the maxima, whose scales end at ``highs``."""
    pictures = zip((overview.mean[0], overview.maximum[0]), highs, strict=True)
    return b"".join(
        encode_weights(picture, overview.visible, PRECISIONS[-1], high).tobytes() for picture, high in pictures
    )


def _largest_change(sides: list[PageCells]) -> float:
    old_weights, new_weights = (np.where(side.visible, side.weights, np.float32(0)) for side in sides)
    change = np.abs(new_weights - old_weights)
    return float(change[np.isfinite(change)].max(initial=0))


def _total_cells(heads: Iterable[HeadCells], block: int) -> int:
    numbers_a_cell = 1 if block == 1 else 2  # a pooled cell has a mean and a maximum
    return sum(math.prod(_blocks_shape(head, block)) * len(head.sides) * numbers_a_cell for head in heads)


def _resolves_blocks(head: HeadCells, block: int) -> bool:
    """True if all maps of a head are fine enough for blocks of ``block`` tokens; pooled maps may be too coarse."""
    rows, columns = _blocks_shape(head, block)
    resolutions = [maps.resolution(head.queries, head.keys) for maps in head.sides.values()]
    return all(rows <= max_rows and columns <= max_columns for max_rows, max_columns in resolutions)


def _blocks_shape(head: HeadCells, block: int) -> tuple[int, int]:
    rows, columns = (len(axis_edges(span, block)) - 1 for span in (head.queries, head.keys))
    return rows, columns


def report_in_percent(report: ExactNumbers) -> ExactNumbers:
    """Returns the report with its contributions divided by their common bound, and a first remark that names the bound.

    The contributions then lie in 0 to 1. A report of weights is returned unchanged.
    """
    heads = report.numbers.heads
    if heads[0].maps.quantity == "weight":
        return report
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
    """The data with which a page of weights can show contributions as well."""

    content: bytes  # one encoded float32 norm per key, head after head, then the codes of the thumbnails
    about: dict[str, Any]  # the unit and scales of the content, as JSON values


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
