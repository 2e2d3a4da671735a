"""The numbers of chosen heads as a page carries them: quantized, compressed, and within a budget of bytes."""

import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.cells import HeadCells
from attnviz.errors import AttnvizError
from attnviz.maps import LayerMaps, block_edges, pool_weights

ABSENT = np.float32(-2)  # stands for a masked cell among float32 weights, which are never negative
THUMBNAIL = 48  # cells a side
STEPS = 4  # cells of a row on which its log-sum-exp is checked
SCORES_SAID = "Scores follow from them and each row’s log-sum-exp, and are shown with their error."
# The least ``high`` times keys: with codes up to 253 and rows that sum to one, the mean square of a row's codes is then
# at most 253² / 80, and no distribution of codes with that mean square has quite 6 bits.
FINEST = 80
CLOSE = 0.05  # how far a score may be from ln(weight) + log-sum-exp: weights may come from bfloat16


@dataclass(frozen=True)
class Precision:
    """How a page keeps a weight.

    An integer ``code`` of at most ``largest`` stands for the weight ``high · (code / largest)²``, where ``high`` is
    the head's largest one (or a little more, so that codes stay short): small weights are kept finer than large
    ones, with an error of at most ``√(weight · high) / largest``. The two codes above stand for a masked cell and
    for NaN. Scores follow from a weight and its row's log-sum-exp: ``ln(weight) + lse``. As float32, weights and
    scores are both kept as they are.

    Attributes:
        dtype: of what is kept for a weight: float32, uint16 or uint8.
        most_cells: the most cells of a page for which it is chosen.
        size: bytes that a cell takes in the page at most, with its score, deflated and in base64.
    """

    dtype: str
    most_cells: int
    size: int

    @property
    def exact(self) -> bool:
        """Whether the numbers are kept as they are."""
        return self.dtype == "float32"

    @property
    def largest(self) -> int:
        """The code of the weight 1; 0 where there are no codes."""
        return 0 if self.exact else int(np.iinfo(self.dtype).max) - 2

    @property
    def sentence(self) -> str:
        """The precision in one sentence."""
        if self.exact:
            return "Weights are kept exactly, as float32."
        bits = np.dtype(self.dtype).itemsize * 8
        error, small = (rounded_up(100 * root / self.largest) for root in (1, 0.1))
        return (
            f"Weights are kept in {bits} bits on a square-root scale: within {error:g} percentage points, and within "
            f"{small:g} below 1%."
        )


def rounded_up(number: float) -> float:
    """The number in two digits, never less than it is."""
    step = 10.0 ** (np.floor(np.log10(number)) - 1)
    return float(np.ceil(number / step) * step)


PRECISIONS = (Precision("float32", 250_000, 11), Precision("uint16", 3_000_000, 3), Precision("uint8", 2**62, 1))


@dataclass(frozen=True)
class Plan:
    """What of the numbers fits a page.

    Attributes:
        precision: how a weight is kept.
        block: tokens a cell stands for, each way; 1 where every token has its own.
    """

    precision: Precision
    block: int

    @property
    def sentence(self) -> str:
        """What is kept of weights and scores."""
        if self.block > 1:
            return self.precision.sentence
        scores = "So are scores." if self.precision.exact else SCORES_SAID
        return f"{self.precision.sentence} {scores}"


@dataclass(frozen=True, eq=False)
class Cells:
    """The numbers of one head of one recording that the page carries, before they are packed.

    Attributes:
        weights: ``(queries, keys)``; the means where pooled.
        second: what goes with them: scores ``(queries, keys)`` where exact, else log-sum-exps ``(queries,)``; the
            maxima ``(queries, keys)`` where pooled.
        largest: the weights, or the maxima where pooled, ``(queries, keys)``.
        visible: ``(queries, keys)``.
    """

    weights: NDArray[np.float32]
    second: NDArray[np.float32]
    largest: NDArray[np.float32]
    visible: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PackedSide:
    """One head of one recording, packed.

    Attributes:
        content: weights and what goes with them, one after the other, deflated.
        thumbnail: the means and the maxima ``(height, width)`` of its thumbnail, as uint8 codes.
        peak: row and column of the largest weight, and that weight; ``None`` where no cell has one.
        high: what the largest code stands for.
        marks: whether a cell is absent, and whether one is NaN.
    """

    content: bytes
    thumbnail: bytes
    peak: tuple[int, int, float] | None
    high: float
    marks: tuple[bool, bool]


@dataclass(frozen=True, eq=False)
class PackedHead:
    """One head, packed.

    Attributes:
        sides: one for each recording: one, or two that are compared.
        reach: the largest absolute change from the first to the second; 0 where there is one.
    """

    sides: tuple[PackedSide, ...]
    reach: float


def plan_page(heads: Iterable[HeadCells], budget: int) -> Plan:
    """The finest plan with which the heads fit ``budget`` bytes.

    A cell takes a byte of the budget: six bits when deflated (see FINEST), and a third more in base64.
    """
    heads = tuple(heads)
    block = 1
    while (cells := sum(_cells(head, block) for head in heads)) > budget:
        block += 1
    if block > 1:
        return Plan(PRECISIONS[-1], block)
    return Plan(next(one for one in PRECISIONS if cells <= min(one.most_cells, budget // one.size)), block)


def pack_heads(heads: Iterable[HeadCells], plan: Plan) -> list[PackedHead]:
    """Each head, packed, in order."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda head: pack_head(head, plan), heads))


def pack_head(head: HeadCells, plan: Plan) -> PackedHead:
    """One head, packed."""
    read = read_exact if plan.block == 1 else read_pooled
    sides = [read(maps, head, plan) for maps in head.sides.values()]
    return PackedHead(tuple(pack_side(side, plan) for side in sides), _reach(sides) if len(sides) > 1 else 0.0)


def read_exact(maps: LayerMaps, head: HeadCells, plan: Plan) -> Cells:
    """A cell for every query and key."""
    window = maps.window((head.head,), head.queries, head.keys)
    weights, scores, visible = window.weights[0], window.scores[0], window.visible
    if plan.precision.exact:
        second = np.where(visible, scores, np.float32(np.nan))
    else:
        second = log_sum_exp(scores, weights, visible)
    return Cells(weights, second, weights, visible)


def read_pooled(maps: LayerMaps, head: HeadCells, plan: Plan) -> Cells:
    """A cell for every block."""
    height, width = (len(axis_edges(span, plan.block)) - 1 for span in (head.queries, head.keys))
    overview = maps.overview((head.head,), height, width, head.queries, head.keys)
    return Cells(overview.mean[0], overview.maximum[0], overview.maximum[0], overview.visible)


def pack_side(cells: Cells, plan: Plan) -> PackedSide:
    """One head of one recording, packed."""
    pooled = plan.block > 1
    largest = np.where(cells.visible, cells.largest, np.float32(0))
    least = min(1.0, FINEST * plan.block / cells.visible.shape[1])
    high = max(float(without_nan(largest).max(initial=0)), least)
    second = encode_weights(cells.second, cells.visible, plan.precision, high) if pooled else cells.second
    shown = np.where(cells.visible, cells.weights, np.float32(-1))
    nan = bool(np.isnan(shown.max()))
    return PackedSide(
        content=deflated((encode_weights(cells.weights, cells.visible, plan.precision, high), second)),
        thumbnail=_thumbnail(cells, high),
        peak=_peak(shown),
        high=high,
        marks=(not cells.visible.all(), nan),
    )


def axis_edges(span: slice, block: int) -> NDArray[np.int64]:
    """The token at which each cell of an axis begins, and the end: ``(cells + 1,)``."""
    count = span.stop - span.start
    return np.asarray(span.start + block_edges(count, -(-count // block)))


def encode_weights(
    weights: NDArray[np.float32], visible: NDArray[np.bool_], precision: Precision, high: float = 1.0
) -> NDArray[Any]:
    """The weights as the page keeps them, ``(queries, keys)``; the largest code stands for ``high``.

    Raises:
        AttnvizError: if codes cannot stand for a weight because it is not within 0 to 1.
    """
    if precision.exact:
        return np.asarray(np.where(visible, weights, ABSENT))
    roots = np.where(visible, weights, np.float32(0))
    least, most = (float(roots.min()), float(roots.max())) if roots.size else (0.0, 0.0)  # NaN where any is
    nothing = np.isnan(roots) if np.isnan(most) else None
    if nothing is not None:
        roots[nothing] = 0
        least, most = float(roots.min()), float(roots.max())
    if least < 0 or most > 1 + 1e-3:
        raise AttnvizError("weights outside 0 to 1 do not fit a page of this many cells; fewer heads or tokens work")
    np.sqrt(np.minimum(roots, np.float32(high), out=roots), out=roots)
    roots *= np.float32(precision.largest / np.sqrt(high))
    codes = np.rint(roots, out=roots).astype(precision.dtype)
    if nothing is not None:
        codes[nothing] = precision.largest + 2
    np.copyto(codes, precision.largest + 1, where=~visible)
    return np.asarray(codes)


def log_sum_exp(
    scores: NDArray[np.float32], weights: NDArray[np.float32], visible: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """What ln(weight) lacks to the score, ``(queries,)``; NaN for a row where no one number does for all its cells."""
    rows = np.arange(len(weights))
    columns = np.unique(np.linspace(0, weights.shape[1] - 1, STEPS).astype(int))
    best = without_nan(np.where(visible, weights, np.float32(0))).argmax(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = scores[rows, best].astype(np.float64) - np.log(weights[rows, best].astype(np.float64))
        misses = np.abs(np.log(weights[:, columns]) + lse[:, None] - scores[:, columns])
    wrong = visible[:, columns] & (weights[:, columns] > 1e-4) & ~(misses <= CLOSE)
    seen = visible[rows, best] & np.isfinite(lse)
    return np.where(seen & ~wrong.any(axis=-1), lse, np.nan).astype(np.float32)


def without_nan(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values with -1 for NaN; themselves where none is."""
    return np.nan_to_num(values, nan=-1) if np.isnan(values.max(initial=-1)) else values


def deflated(arrays: Iterable[NDArray[Any]]) -> bytes:
    """The arrays' bytes, little-endian; run lengths and Huffman codes are all that noise of few values gains from."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    parts = [deflate.compress(one.astype(one.dtype.newbyteorder("<"), copy=False).tobytes()) for one in arrays]
    return b"".join((*parts, deflate.flush()))


def thumbnail_shape(height: int, width: int) -> tuple[int, int]:
    """The cells of the thumbnail of a map of so many."""
    return min(height, THUMBNAIL), min(width, THUMBNAIL)


def _thumbnail(cells: Cells, high: float) -> bytes:
    height, width = thumbnail_shape(*cells.visible.shape)
    means = pool_weights(cells.weights[None], cells.visible, height, width)
    same = cells.largest is cells.weights
    maxima = means if same else pool_weights(cells.largest[None], cells.visible, height, width)
    pictures = (means.mean[0], maxima.maximum[0])
    return b"".join(encode_weights(one, means.visible, PRECISIONS[-1], high).tobytes() for one in pictures)


def _peak(shown: NDArray[np.float32]) -> tuple[int, int, float] | None:
    safe = without_nan(shown)
    row, column = divmod(int(safe.argmax()), safe.shape[1])
    largest = float(safe[row, column])
    return (row, column, largest) if largest >= 0 else None


def _reach(sides: list[Cells]) -> float:
    before, after = (np.where(side.visible, side.weights, np.float32(0)) for side in sides)
    change = np.abs(after - before)
    return float(change[np.isfinite(change)].max(initial=0))


def _cells(head: HeadCells, block: int) -> int:
    rows, columns = (len(axis_edges(span, block)) - 1 for span in (head.queries, head.keys))
    return rows * columns * len(head.sides) * (1 if block == 1 else 2)
