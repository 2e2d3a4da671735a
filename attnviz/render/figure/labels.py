"""Chooses the labels of an axis of a figure: all tokens if they fit, otherwise every nth token, or round positions."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnviz.render.figure.words import POINTS_PER_INCH, Ruler
from attnviz.report.picture.panels import Axis

LABEL_LINE_HEIGHT = 1.18  # in font sizes
TOKENS_GAP, DENSE_GAP = 0.6, 0.4  # between flat labels, in font sizes; numbers of heads can stand closer than words
ROUNDING = 1e-6  # cells; a label exactly as wide as its cells fits, despite rounding
MAX_LABEL_STRIDE = 3  # if fewer than every third token could be labelled, positions tell more
ROUND_STEPS = (1, 2, 5)
ORDINALS = {2: "2nd", 3: "3rd"}


@dataclass(frozen=True)
class Labelling:
    """The style of labels for all panels of a figure."""

    points: float  # the font size
    is_turned: bool  # True if key labels are turned by 90 degrees
    limit: float  # the greatest width of a label in inches; longer labels are cut
    # the names of the axes that show positions instead of tokens
    position_axes: frozenset[str] = field(default_factory=frozenset)
    min_position_tokens: int = 0  # the fewest tokens of such an axis; a shorter one shows its tokens

    @property
    def line_height(self) -> float:
        """The height of a line of labels in inches."""
        return self.points * LABEL_LINE_HEIGHT / POINTS_PER_INCH

    def shows_positions(self, axis: Axis) -> bool:
        """True if the axis shows positions instead of tokens: it is pooled, or a position axis with enough tokens."""
        if axis.pooled:
            return True
        return axis.name in self.position_axes and len(axis.labels) >= self.min_position_tokens

    def are_alike(self, axis: Axis, other: Axis) -> bool:
        """True if two axes have the same labels."""
        if self.shows_positions(axis) and self.shows_positions(other) and not (axis.marks or other.marks):
            return axis.edges == other.edges and len(axis.labels) == len(other.labels)
        return axis.labels == other.labels


@dataclass(frozen=True)
class Labels:
    """The labels of one axis of one panel."""

    centers: tuple[float, ...]  # their centers along the axis, in cells; 0 is the middle of the first
    texts: tuple[str, ...]  # their texts
    is_turned: bool  # True if they are turned by 90 degrees
    name: str  # the name of the axis
    depth: float = 0.0  # their depth in inches beside the panel, under which the name stands


def label_depth(axis: Axis, labelling: Labelling, ruler: Ruler, stride: int = 1) -> float:
    """Returns the depth in inches of the labels beside a panel, perpendicular to the axis.

    For labels along the axis, it is the height of a line; for others, the widest label's width, at most the limit.
    """
    if axis.marks:
        return min(ruler.longest_width((label for _, label in axis.marks), labelling.points), labelling.limit)
    return labelling.line_height if _is_flat(axis, labelling) else _label_width(axis, labelling, ruler, stride)


def labels_fit(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> bool:
    """True if every cell has space for its label; landmarks and positions always fit."""
    if axis.marks or labelling.shows_positions(axis):
        return True
    return _label_distance(axis, labelling, ruler) <= cell


def _label_distance(axis: Axis, labelling: Labelling, ruler: Ruler) -> float:
    """Returns the smallest distance in inches between the middles of two labels that do not touch.

    For labels along the axis, it is the widest label's width plus a gap; for others, the height of a line.
    """
    if not axis.marks and _is_flat(axis, labelling):
        gap = DENSE_GAP if axis.dense else TOKENS_GAP
        return _label_width(axis, labelling, ruler) + gap * labelling.points / POINTS_PER_INCH
    return labelling.line_height


def label_axis(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> Labels:
    """Returns the labels that fit on an axis: landmarks if it has any, else positions if it shows these, else tokens.

    If labels of all tokens would touch, every nth token has one, and the axis' name says so.
    """
    stride = label_stride(axis, labelling, cell, ruler)
    depth = label_depth(axis, labelling, ruler, stride)
    min_distance = _label_distance(axis, labelling, ruler) / cell  # in cells
    if axis.marks:
        centers: list[float] = []
        landmark_texts: list[str] = []
        for token, label in axis.marks:
            center = float(_cells_on_axis(axis, token))
            if not centers or center - centers[-1] >= min_distance:
                centers.append(center)
                landmark_texts.append(ruler.cut(label, labelling.points, labelling.limit))
        note = f", {len(landmark_texts)} of {len(axis.marks)} marks" if len(landmark_texts) < len(axis.marks) else ""
        return Labels(tuple(centers), tuple(landmark_texts), axis.across, f"{axis.name}{note}", depth)
    if labelling.shows_positions(axis):
        start, token_seconds = axis.seconds if axis.seconds is not None and axis.seconds[1] > 0 else (0.0, 0.0)
        unit, powers = (token_seconds, range(-2, 6)) if token_seconds else (1, range(12))
        first, last = (start + edge * unit for edge in (axis.edges[0], axis.edges[-1]))
        min_step = min_distance * (axis.edges[-1] - axis.edges[0]) / len(axis.labels) * unit
        round_steps = (size * 10**power for power in powers for size in ROUND_STEPS)
        step = next(round_step for round_step in round_steps if round_step >= min_step)
        positions = np.arange(math.ceil(first / step) * step, last, step)
        centers = _cells_on_axis(axis, (positions - start) / unit).tolist()
        position_texts = tuple(
            f"{position:g}" if token_seconds else f"{position:.0f}" for position in positions.tolist()
        )
        position_name = f"{axis.name}, in seconds" if token_seconds else f"{axis.name}, by position"
        return Labels(tuple(centers), position_texts, is_turned=False, name=position_name, depth=depth)
    is_turned = axis.across and not axis.dense and labelling.is_turned
    cells = range(0, len(axis.labels), stride)
    texts = tuple(ruler.cut(axis.labels[cell_index], labelling.points, labelling.limit) for cell_index in cells)
    name = axis.name if stride == 1 else f"{axis.name}, every {ORDINALS.get(stride, f'{stride}th')}"
    return Labels(tuple(map(float, cells)), texts, is_turned, name, depth)


def label_stride(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> int:
    """Returns the smallest step from one labelled token to the next at which labels do not touch; at least 1."""
    return max(1, math.ceil(_label_distance(axis, labelling, ruler) / cell - ROUNDING))


def prefers_positions(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> bool:
    """True if fewer than one in `MAX_LABEL_STRIDE` tokens could have a label; False for an axis with landmarks."""
    return not axis.marks and _label_distance(axis, labelling, ruler) > MAX_LABEL_STRIDE * cell


def _cells_on_axis(axis: Axis, positions: Any) -> Any:
    """Returns where tokens are along an axis, in cells; 0 is the middle of the first cell."""
    half_cell = 0.5 if axis.pooled else 0.0
    return np.interp(positions, axis.edges, np.arange(len(axis.edges))) - half_cell


def _is_flat(axis: Axis, labelling: Labelling) -> bool:
    """True if labels are side by side along the axis: numbers of heads, and key labels that are not turned."""
    is_turned = labelling.is_turned and not axis.dense and not labelling.shows_positions(axis)
    return axis.across and not is_turned


def _label_width(axis: Axis, labelling: Labelling, ruler: Ruler, stride: int = 1) -> float:
    if labelling.shows_positions(axis):
        return ruler.width("0" * len(str(axis.edges[-1])), labelling.points)
    return min(ruler.longest_width(axis.labels[::stride], labelling.points), labelling.limit)
