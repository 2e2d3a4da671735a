"""Intervals of means over few texts: Student's t in place of the normal distribution."""

import math
from dataclasses import replace
from functools import cache

import numpy as np

from attnviz.metrics.head_frame import HeadFrame
from attnviz.metrics.measure import NORMAL_95

SHARE = 0.95
HALVINGS = 60  # of the interval of the angle; more change nothing in float64
MANY_TEXTS = 200  # for more texts the two distributions differ by less than 1 %


def with_few_texts(frame: HeadFrame) -> HeadFrame:
    """Returns the frame with margins widened by Student's t; for three texts they more than double."""
    assert frame.margins is not None
    assert frame.counts is not None
    factors = np.vectorize(_factor, otypes=[np.float64])(frame.counts)
    return replace(frame, margins=frame.margins * factors)


@cache
def _factor(count: int) -> float:
    """Returns the width of the interval for this many texts, relative to that of the normal distribution."""
    return students_t(count - 1) / NORMAL_95 if 1 < count <= MANY_TEXTS else 1.0


def students_t(freedom: int) -> float:
    """Returns the number that Student's t of this many degrees of freedom exceeds in 5 % of all cases, either way.

    Found by halving, since the share within ``tan(angle) * sqrt(freedom)`` is a finite sum (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < SHARE else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """Returns the share of the distribution within ``tan(angle) * sqrt(freedom)`` of 0."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = cosine if is_odd else 1.0
    total = 0.0 if freedom == 1 else term
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
