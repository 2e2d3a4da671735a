"""Lays rows of weights over what their keys stand in: hues of heads on tokens, patches and outlines on an image."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import BoolArray, ByteArray, Float64Array, IntArray
from attnviz.media.image import Image
from attnviz.report.picture.colors import ABSENT_FADED
from attnviz.report.picture.panels import Panel

# Blue, orange, green and purple of Okabe and Ito 2008, which colour-blind readers tell apart.
HUES = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167))
MAX_OVERLAID = len(HUES)
Point = tuple[int, int]
Segment = tuple[Point, Point]


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


def panel_image(panel: Panel) -> Image:
    """Returns the image that the keys of a panel are patches of; the panel must have one."""
    image = panel.columns.canvas
    assert isinstance(image, Image)
    return image


def with_scale_over_image(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    """Returns panels whose scales have the colours that are seen over the commonest grey of the first one's image."""
    colored_panels = tuple(panels)
    grey = float(np.median(panel_image(colored_panels[0]).grey))
    return tuple(replace(panel, scale=replace(panel.scale, grey=grey)) for panel in colored_panels)


def band_tops(panel: Panel) -> list[int]:
    """Returns the row of pixels at which each band of a spectrogram begins, the highest first; empty without bands."""
    places = panel.columns.places
    if places is None or not panel_image(panel).seconds:
        return []
    tops: list[int] = np.unique(places[places[:, 2] > 0, 1]).tolist()
    return tops


def overlay_pixels(panel: Panel, rows: int, columns: int) -> ByteArray:
    """Returns the image in grey, coloured by the weights, ``(rows, columns, 3)``; faded where no visible key lies."""
    image, places = panel_image(panel), panel.columns.places
    assert places is not None
    visible = panel.visible[0]
    scale_of_edges = np.array([columns / image.width, rows / image.height] * 2)
    edges = np.rint(places * scale_of_edges).astype(np.int64).tolist()
    patches = np.full((rows, columns), -1, dtype=np.int64)
    for patch in np.flatnonzero(visible).tolist():
        left, top, right, bottom = edges[patch]
        patches[top:bottom, left:right] = patch
    grey = _resized_grey(image, rows, columns).astype(np.float32)
    grey[patches < 0] += ABSENT_FADED * (panel.scale.ground - grey[patches < 0])
    # The last colour, no ink or no light, is that of pixels outside of every visible patch, whose index is -1.
    colors = np.vstack([replace(panel.scale, grey=None).rgb(panel.levels[0]), np.full((1, 3), panel.scale.ground)])
    return panel.scale.over_image(colors[patches], grey[..., None])


@lru_cache(maxsize=4)
def _resized_grey(image: Image, rows: int, columns: int) -> ByteArray:
    """Returns the brightness of an image at a size; cached, as many heads are drawn over one image."""
    return image.resized_grey(rows, columns)


def outline_segments(places: IntArray, inside: BoolArray) -> list[Segment]:
    """Returns the outline of the patches where ``inside`` is True, in pixels; lines between two of them are left
    out.
    """
    counts: Counter[Segment] = Counter()
    for left, top, right, bottom in places[inside].tolist():
        counts.update([((left, top), (right, top)), ((left, bottom), (right, bottom))])
        counts.update([((left, top), (left, bottom)), ((right, top), (right, bottom))])
    return [segment for segment, count in counts.items() if count == 1]


def query_box(panel: Panel) -> tuple[int, int, int, int] | None:
    """Returns left, top, right and bottom of the panel's query; ``None`` unless it is one, inside the image."""
    places = panel.rows.places
    if places is None or len(places) != 1 or places.shape[1] != 4:  # four numbers are a box in an image
        return None
    left, top, right, bottom = places[0].tolist()
    return (left, top, right, bottom) if left < right else None  # tokens outside of the image have an empty box
