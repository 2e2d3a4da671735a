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
    """Returns the frame with margins from Student's t instead of the normal distribution, for means over few texts.

    For three texts the margins more than double. The frame must have margins and counts.
    """
    assert frame.margins is not None
    assert frame.counts is not None
    factors = np.vectorize(_widening_factor, otypes=[np.float64])(frame.counts)
    return replace(frame, margins=frame.margins * factors)


@cache
def _widening_factor(count: int) -> float:
    """Returns the factor by which Student's t widens the interval of a mean over ``count`` texts."""
    return students_t(count - 1) / NORMAL_95 if 1 < count <= MANY_TEXTS else 1.0


def students_t(freedom: int) -> float:
    """Returns the number that the absolute value of Student's t exceeds in 5 % of all cases."""
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _share_within(middle, freedom) < SHARE:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """Returns the probability that the absolute value of Student's t is at most ``tan(angle) * sqrt(freedom)``."""
    # The finite series for odd and even degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2 == 1
    term = cosine if is_odd else 1.0
    series_sum = 0.0 if freedom == 1 else term
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        series_sum += term
    return 2 / math.pi * (angle + sine * series_sum) if is_odd else sine * series_sum
