"""Chooses the hues of heads that share one picture, and mixes them where several heads shade a token."""

from collections.abc import Sequence

import numpy as np

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.report.picture.panels import Panel

# Blue, orange, green and purple of Okabe and Ito 2008, which colour-blind readers tell apart.
HUES = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167))
MAX_OVERLAID = len(HUES)


def mixed_hues(strengths: Float64Array) -> ByteArray:
    """Returns the colour of each token, ``(tokens, 3)``: white, from which each head absorbs the complement of its hue.

    Args:
        strengths: ``(heads, tokens)``, the part that each head absorbs, from 0 to 1; 0 for masked tokens. There are at
            most `MAX_OVERLAID` heads.
    """
    complements = 255 - np.array(HUES[: len(strengths)], dtype=np.float64)
    absorbed_light = (np.nan_to_num(strengths).clip(0, 1)[:, :, None] * complements[:, None, :]).sum(axis=0)
    colors: ByteArray = np.rint((255 - absorbed_light).clip(0, 255)).astype(np.uint8)
    return colors


def overlaid_strengths(panels: Sequence[Panel]) -> Float64Array:
    """Returns the position of each weight of a row on its colour scale, 0 for masked keys, ``(heads, keys)``."""
    rows = [np.where(panel.visible[0], panel.scale.fraction(panel.levels[0]), 0.0) for panel in panels]
    return np.asarray(rows, dtype=np.float64)
