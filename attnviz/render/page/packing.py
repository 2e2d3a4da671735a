"""The numbers of chosen heads as a page carries them: quantized, compressed, and within a budget of bytes."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.layer_maps import LayerMaps, cell_maps, mean_visible_keys
from attnviz.render.page.encoding import PRECISIONS, Precision, encode_weights, without_nan
from attnviz.render.page.packed_factors import (
    FACTORS_SENTENCE,
    KeyPool,
    PackedFactors,
    factored_bytes,
    pack_factors,
    page_factors,
    peak_of,
)
from attnviz.render.page.pieces import weight_pieces
from attnviz.report.picture.numbers import HeadCells
from attnviz.streaming.factors import Factors
from attnviz.streaming.overview import Overview, bands, block_edges, pool_weights

THUMBNAIL_SIDE = 48  # cells a side
MAX_BAND_CELLS = 4_000_000  # cells that are compared at once
CHECKED_CELLS = 4  # cells of a row on which its log-sum-exp is checked
SCORES_SENTENCE = "Scores follow from them and each row’s log-sum-exp, and are shown with their error."
# The least ``high`` times keys: with codes up to 253 and rows that sum to one, the mean square of a row's codes is then
# at most 253² / 80, and no distribution of codes with that mean square has quite 6 bits.
MIN_HIGH_TIMES_KEYS = 80
LOG_SUM_EXP_TOLERANCE = 0.05  # how far a score may be from ln(weight) + log-sum-exp: weights may come from bfloat16


@dataclass(frozen=True)
class PagePlan:
    """What of the numbers fits a page.

    Attributes:
        precision: how a weight is kept.
        block: tokens a cell stands for, each way; 1 where every token has its own.
        factored: whether queries and keys travel instead of weights.
    """

    precision: Precision
    block: int
    factored: bool = False

    @property
    def sentence(self) -> str:
        """What is kept of weights and scores."""
        if self.factored:
            return FACTORS_SENTENCE
        if self.block > 1:
            return self.precision.sentence
        scores = "So are scores." if self.precision.exact else SCORES_SENTENCE
        return f"{self.precision.sentence} {scores}"


@dataclass(frozen=True, eq=False)
class PageCells:
    """The numbers of one head of one recording that the page carries, before they are packed.

    Attributes:
        weights: ``(queries, keys)``; the means where pooled.
        second: what goes with them: scores ``(queries, keys)`` where exact, else log-sum-exps ``(queries,)``; the
            maxima ``(queries, keys)`` where pooled.
        largest: the weights, or the maxima where pooled, ``(queries, keys)``.
        visible: ``(queries, keys)``.
        seen: ``(queries,)``, how many keys each may see, of blocks the mean.
    """

    weights: FloatArray
    second: FloatArray
    largest: FloatArray
    visible: BoolArray
    seen: Float64Array


@dataclass(frozen=True, eq=False)
class FirstLook:
    """What is seen of a head before its numbers are read.

    Attributes:
        thumbnail: the means and the maxima ``(height, width)``, as uint8 codes.
        thumbnail_highs: what the largest code of the means and of the maxima stands for.
        peak: row and column of the largest weight, and that weight; ``None`` where no cell has one.
        top: the largest weight of queries that see several keys; of all where none does.
    """

    thumbnail: bytes
    thumbnail_highs: tuple[float, float]
    peak: tuple[int, int, float] | None
    top: float


@dataclass(frozen=True, eq=False)
class PackedSide:
    """One head of one recording, packed.

    Attributes:
        content: characters of weights and what goes with them, or of factors, in pieces.
        look: what is seen of it at once.
        high: what the largest code stands for.
        marks: whether a cell is absent, and whether one is NaN.
        factors: how the content is read where it is factors.
    """

    content: bytes
    look: FirstLook
    high: float
    marks: tuple[bool, bool]
    factors: PackedFactors | None = None


@dataclass(frozen=True, eq=False)
class PackedHead:
    """One head, packed.

    Attributes:
        sides: one for each recording: one, or two that are compared.
        reach: the largest absolute change from the first to the second; 0 where there is one.
    """

    sides: tuple[PackedSide, ...]
    reach: float


def plan_page(heads: Iterable[HeadCells], budget: int) -> PagePlan:
    """The finest plan with which the heads fit ``budget`` bytes.

    A cell takes a byte of the budget: six bits when deflated (see MIN_HIGH_TIMES_KEYS), a quarter more in characters.
    """
    heads = tuple(heads)
    cells, factors = _all_cells(heads, 1), factored_bytes(heads)
    if cells > PRECISIONS[0].max_cells and factors is not None and factors <= budget:
        return PagePlan(PRECISIONS[0], 1, factored=True)
    block = 1
    while (cells := _all_cells(heads, block)) > budget or not all(_is_known(head, block) for head in heads):
        block += 1
    if block > 1:
        return PagePlan(PRECISIONS[-1], block)
    return PagePlan(next(one for one in PRECISIONS if cells <= min(one.max_cells, budget // one.bytes_per_cell)), block)


def pack_heads(heads: Iterable[HeadCells], plan: PagePlan) -> tuple[list[PackedHead], list[bytes]]:
    """Each head, packed, in order; and the keys that heads share."""
    keys = KeyPool()
    if plan.factored:
        return [pack_factored(head, keys) for head in heads], keys.packed
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda head: pack_head(head, plan), heads)), keys.packed


def pack_factored(head: HeadCells, keys: KeyPool) -> PackedHead:
    """One head as its factors, packed."""
    known = ((maps, page_factors(maps)) for maps in head.sides.values())
    sides = tuple(_factored_side(maps, factors, head, keys) for maps, factors in known if factors is not None)
    return PackedHead(sides, _factored_reach(head) if len(sides) > 1 else 0.0)


def _factored_side(maps: LayerMaps, factors: Factors, head: HeadCells, keys: KeyPool) -> PackedSide:
    packed = pack_factors(maps, factors, head, keys)
    overview = packed.overview
    look = look_at_overview(maps, head, overview)
    return PackedSide(
        content=packed.content,
        look=look,
        high=look.thumbnail_highs[1],
        marks=(not factors.mask.coverage(head.queries, head.keys), bool(np.isnan(overview.mean).any())),
        factors=packed,
    )


def look_at_overview(maps: LayerMaps, head: HeadCells, overview: Overview) -> FirstLook:
    """What is seen of a head whose cells are computed, from what it was pooled to."""
    high = max(float(without_nan(overview.maximum[0]).max(initial=0)), 1e-9)
    return FirstLook(
        thumbnail=_codes_of(overview, highs := _highs_of(overview, high)),
        thumbnail_highs=highs,
        peak=peak_of(maps, head, overview),
        top=_top(overview.maximum[0], overview.visible, _seen(maps, head, overview.visible.shape[0])),
    )


def _factored_reach(head: HeadCells) -> float:
    """The largest absolute change, looked for in bands of queries."""
    spans = bands(head.queries, head.keys.stop - head.keys.start, MAX_BAND_CELLS)
    plan = PagePlan(PRECISIONS[0], 1)
    return max(
        _reach([read_exact(maps, replace(head, queries=span), plan) for maps in head.sides.values()]) for span in spans
    )


def pack_head(head: HeadCells, plan: PagePlan) -> PackedHead:
    """One head, packed."""
    read = read_exact if plan.block == 1 else read_pooled
    sides = [read(maps, head, plan) for maps in head.sides.values()]
    return PackedHead(tuple(pack_side(side, plan) for side in sides), _reach(sides) if len(sides) > 1 else 0.0)


def read_exact(maps: LayerMaps, head: HeadCells, plan: PagePlan) -> PageCells:
    """A cell for every query and key."""
    window = cell_maps(maps).window((head.head,), head.queries, head.keys)
    weights, scores, visible = window.weights[0], window.scores[0], window.visible
    if plan.precision.exact:
        second = np.where(visible, scores, np.float32(np.nan))
    else:
        second = log_sum_exp(scores, weights, visible)
    return PageCells(weights, second, weights, visible, maps.visible_keys(head.head, head.queries))


def read_pooled(maps: LayerMaps, head: HeadCells, plan: PagePlan) -> PageCells:
    """A cell for every block."""
    height, width = _shape(head, plan.block)
    overview = maps.overview((head.head,), height, width, head.queries, head.keys)
    seen = _seen(maps, head, height)
    return PageCells(overview.mean[0], overview.maximum[0], overview.maximum[0], overview.visible, seen)


def pack_side(cells: PageCells, plan: PagePlan) -> PackedSide:
    """One head of one recording, packed."""
    pooled = plan.block > 1
    largest = np.where(cells.visible, cells.largest, np.float32(0))
    least = min(1.0, MIN_HIGH_TIMES_KEYS * plan.block / cells.visible.shape[1])
    high = max(float(without_nan(largest).max(initial=0)), least)
    second = encode_weights(cells.second, cells.visible, plan.precision, high) if pooled else cells.second
    shown = np.where(cells.visible, cells.weights, np.float32(-1))
    return PackedSide(
        content=weight_pieces(encode_weights(cells.weights, cells.visible, plan.precision, high), second),
        look=look_at(cells, shown, high),
        high=high,
        marks=(not cells.visible.all(), bool(np.isnan(shown.max()))),
    )


def look_at(cells: PageCells, shown: FloatArray, high: float) -> FirstLook:
    """What is seen of a head whose cells are kept: ``shown`` are these, below zero where one is masked."""
    thumbnail = _thumbnail(cells)
    return FirstLook(
        thumbnail=_codes_of(thumbnail, highs := _highs_of(thumbnail, high)),
        thumbnail_highs=highs,
        peak=_peak(shown),
        top=_top(cells.largest, cells.visible, cells.seen),
    )


def _seen(maps: LayerMaps, head: HeadCells, rows: int) -> Float64Array:
    """How many keys the queries of each of so many blocks may see on average, ``(rows,)``."""
    first, stop = head.queries.start, head.queries.stop
    return mean_visible_keys(maps, head.head, [first + int(edge) for edge in block_edges(stop - first, rows)])


def _top(largest: FloatArray, visible: BoolArray, seen: Float64Array) -> float:
    """The largest weight of queries that see several keys; of all where none does."""
    several = seen > 1
    rows = slice(None) if not several.any() else slice(int(several.argmax()), None)
    shown = np.where(visible[rows], without_nan(largest[rows]), np.float32(0))
    telling = shown if several[rows].all() else shown[several[rows]]
    return float(telling.max(initial=0)) if telling.size else 0.0


def axis_edges(span: slice, block: int) -> IntArray:
    """The token at which each cell of an axis begins, and the end: ``(cells + 1,)``."""
    count = span.stop - span.start
    return np.asarray(span.start + block_edges(count, -(-count // block)))


def log_sum_exp(scores: FloatArray, weights: FloatArray, visible: BoolArray) -> FloatArray:
    """What ln(weight) lacks to the score, ``(queries,)``; NaN for a row where no one number does for all its cells."""
    rows = np.arange(len(weights))
    columns = np.unique(np.linspace(0, weights.shape[1] - 1, CHECKED_CELLS).astype(int))
    best = without_nan(np.where(visible, weights, np.float32(0))).argmax(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = scores[rows, best].astype(np.float64) - np.log(weights[rows, best].astype(np.float64))
        misses = np.abs(np.log(weights[:, columns]) + lse[:, None] - scores[:, columns])
    wrong = visible[:, columns] & (weights[:, columns] > 1e-4) & ~(misses <= LOG_SUM_EXP_TOLERANCE)
    seen = visible[rows, best] & np.isfinite(lse)
    return np.where(seen & ~wrong.any(axis=-1), lse, np.nan).astype(np.float32)


def thumbnail_shape(height: int, width: int) -> tuple[int, int]:
    """The cells of the thumbnail of a map of so many."""
    return min(height, THUMBNAIL_SIDE), min(width, THUMBNAIL_SIDE)


def _thumbnail(cells: PageCells) -> Overview:
    height, width = thumbnail_shape(*cells.visible.shape)
    means = pool_weights(cells.weights[None], cells.visible, height, width)
    same = cells.largest is cells.weights
    maxima = means if same else pool_weights(cells.largest[None], cells.visible, height, width)
    return Overview(means.mean, maxima.maximum, means.visible)


def _highs_of(overview: Overview, high: float) -> tuple[float, float]:
    """What the largest codes of means and maxima stand for: means of many weights are far smaller."""
    largest = float(without_nan(overview.mean[0]).max(initial=0))
    return (largest if largest > 0 else high), high


def _codes_of(overview: Overview, highs: tuple[float, float]) -> bytes:
    """Its means, then its maxima, as codes."""
    pictures = zip((overview.mean[0], overview.maximum[0]), highs, strict=True)
    return b"".join(encode_weights(one, overview.visible, PRECISIONS[-1], high).tobytes() for one, high in pictures)


def _peak(shown: FloatArray) -> tuple[int, int, float] | None:
    safe = without_nan(shown)
    row, column = divmod(int(safe.argmax()), safe.shape[1])
    largest = float(safe[row, column])
    return (row, column, largest) if largest >= 0 else None


def _reach(sides: list[PageCells]) -> float:
    before, after = (np.where(side.visible, side.weights, np.float32(0)) for side in sides)
    change = np.abs(after - before)
    return float(change[np.isfinite(change)].max(initial=0))


def _all_cells(heads: Iterable[HeadCells], block: int) -> int:
    return sum(_cells(head, block) for head in heads)


def _is_known(head: HeadCells, block: int) -> bool:
    """Whether the maps tell blocks of so many tokens apart."""
    rows, columns = _shape(head, block)
    finest = [maps.resolution(head.queries, head.keys) for maps in head.sides.values()]
    return all(rows <= most and columns <= widest for most, widest in finest)


def _shape(head: HeadCells, block: int) -> tuple[int, int]:
    """Blocks of so many tokens, down and across."""
    rows, columns = (len(axis_edges(span, block)) - 1 for span in (head.queries, head.keys))
    return rows, columns


def _cells(head: HeadCells, block: int) -> int:
    rows, columns = _shape(head, block)
    return rows * columns * len(head.sides) * (1 if block == 1 else 2)
