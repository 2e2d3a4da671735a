"""Which token labels an axis of a figure gets: all where they fit, every nth or round positions where they don't."""

import math
from dataclasses import dataclass, field

import numpy as np

from attnviz.render.figure.ruler import POINTS_PER_INCH, Ruler
from attnviz.report.picture.panels import Axis

LABEL_LINE_HEIGHT = 1.18  # heights of a label, of its font's size
MAX_LABEL_STRIDE = 3  # every third token may carry its label; beyond that positions say more
ROUND_STEPS = (1, 2, 5)
ORDINALS = {2: "2nd", 3: "3rd"}


@dataclass(frozen=True)
class Labelling:
    """How labels are written, for all panels of a figure alike.

    Attributes:
        points: size of the labels' font.
        turned: whether the keys' labels are turned by 90 degrees.
        counted: the names of the axes that carry positions instead of tokens.
        limit: inches that a label may take; longer ones are cut.
    """

    points: float
    turned: bool
    limit: float
    counted: frozenset[str] = field(default_factory=frozenset)

    @property
    def line(self) -> float:
        """Inches that a line of labels takes."""
        return self.points * LABEL_LINE_HEIGHT / POINTS_PER_INCH

    def counts(self, axis: Axis) -> bool:
        """Whether the axis carries positions."""
        return axis.pooled or axis.name in self.counted


@dataclass(frozen=True)
class Labels:
    """The labels of one axis of one panel.

    Attributes:
        places: where they stand, in cells; 0 is the middle of the first.
        texts: what they say.
        turned: whether they are turned by 90 degrees.
        name: the axis's name.
    """

    places: tuple[float, ...]
    texts: tuple[str, ...]
    turned: bool
    name: str


def room(axis: Axis, labelling: Labelling, ruler: Ruler) -> float:
    """Inches that the labels of an axis take, away from the panel."""
    if axis.marks:
        return min(ruler.longest(tuple(label for _, label in axis.marks), labelling.points), labelling.limit)
    return labelling.line if _flat(axis, labelling) else _widest(axis, labelling, ruler)


def fits(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> bool:
    """Whether every label has its place where a cell takes ``cell`` inches along the axis."""
    if axis.marks or labelling.counts(axis):
        return True
    return pace(axis, labelling, ruler) <= cell


def pace(axis: Axis, labelling: Labelling, ruler: Ruler) -> float:
    """Inches from one label to the next at the least, so that they do not touch."""
    if not axis.marks and _flat(axis, labelling):
        return _widest(axis, labelling, ruler) + 0.6 * labelling.points / POINTS_PER_INCH
    return labelling.line


def label_axis(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> Labels:
    """The labels that fit where a cell takes ``cell`` inches along the axis."""
    if axis.marks:
        return _marks(axis, labelling, pace(axis, labelling, ruler) / cell, ruler)
    turned = axis.name == "keys" and labelling.turned and not labelling.counts(axis)
    every = max(1, math.ceil(pace(axis, labelling, ruler) / cell - 1e-6))
    if labelling.counts(axis):
        return _positions(axis, pace(axis, labelling, ruler) / cell)
    places = range(0, len(axis.labels), every)
    texts = tuple(ruler.cut(axis.labels[place], labelling.points, labelling.limit) for place in places)
    name = axis.name if every == 1 else f"{axis.name}, every {ORDINALS.get(every, f'{every}th')}"
    return Labels(tuple(map(float, places)), texts, turned, name)


def skipped(axis: Axis, labelling: Labelling, cell: float, ruler: Ruler) -> bool:
    """Whether so few tokens would carry a label that positions say more."""
    return not axis.marks and pace(axis, labelling, ruler) > MAX_LABEL_STRIDE * cell


def _marks(axis: Axis, labelling: Labelling, apart: float, ruler: Ruler) -> Labels:
    """The landmarks that stand at least ``apart`` cells from the one before."""
    shift = 0.5 if axis.pooled else 0.0
    places: list[float] = []
    texts: list[str] = []
    for token, label in axis.marks:
        place = float(np.interp(token, axis.edges, np.arange(len(axis.edges)))) - shift
        if not places or place - places[-1] >= apart:
            places.append(place)
            texts.append(ruler.cut(label, labelling.points, labelling.limit))
    some = f", {len(texts)} of {len(axis.marks)} marks" if len(texts) < len(axis.marks) else ""
    return Labels(tuple(places), tuple(texts), axis.name == "keys", f"{axis.name}{some}")


def _positions(axis: Axis, cells: float) -> Labels:
    """Round positions of tokens, at least ``cells`` cells apart."""
    first, last = axis.edges[0], axis.edges[-1]
    tokens = cells * (last - first) / len(axis.labels)
    step = next(size * 10**power for power in range(12) for size in ROUND_STEPS if size * 10**power >= tokens)
    shown = np.arange(-(-first // step) * step, last, step)
    shift = 0.5 if axis.pooled else 0.0
    places = np.interp(shown, axis.edges, np.arange(len(axis.edges))) - shift
    return Labels(tuple(places.tolist()), tuple(map(str, shown.tolist())), False, f"{axis.name}, by position")


def _flat(axis: Axis, labelling: Labelling) -> bool:
    """Whether labels stand side by side: those of the atlas's heads are numbers, which are never turned."""
    return axis.name == "heads" or (axis.name == "keys" and (labelling.counts(axis) or not labelling.turned))


def _widest(axis: Axis, labelling: Labelling, ruler: Ruler) -> float:
    if labelling.counts(axis):
        return ruler.width("0" * len(str(axis.edges[-1])), labelling.points)
    return min(ruler.longest(axis.labels, labelling.points), labelling.limit)
