"""Draws the example pictures of a head's card in a row, each under the weights of its query."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.media.image import Image
from attnviz.report.picture.colors import SEQUENTIAL, ColorScale
from attnviz.report.picture.panels import WEIGHT, Axis, Panel
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array

GAP = 0.15  # inches between pictures
MOST_ACROSS = 6  # pictures in a row
TALLEST = 1.4  # the largest ratio of a picture's height to its width; a taller one is narrower


class PicturePlace(NamedTuple):
    """The place of an example picture, in inches from the upper left corner of all pictures of a card.

    Attributes:
        left: the left edge of the picture, and of the words above it.
        top: the upper edge of the words.
        width: the width of the picture.
        height: the height of the picture.
    """

    left: float
    top: float
    width: float
    height: float


def picture_places(images: list[Image], width: float, words_height: float) -> tuple[list[PicturePlace], float]:
    """Returns the places of pictures in rows, each below its words, and the height of all rows in inches."""
    across = min(len(images), MOST_ACROSS)
    column_width = (width - GAP * (across - 1)) / across
    places, top = list[PicturePlace](), 0.0
    for first in range(0, len(images), across):
        sizes = [_size(image, column_width) for image in images[first : first + across]]
        bottom = top + words_height + max(height for _, height in sizes)
        for column, (picture_width, height) in enumerate(sizes):
            places.append(PicturePlace(column * (column_width + GAP), top, picture_width, height))
        top = bottom + GAP
    return places, top


def _size(image: Image, width: float) -> tuple[float, float]:
    """Returns the largest width and height in inches of a picture in a column that is ``width`` inches wide."""
    height = min(width * image.height / image.width, width * TALLEST)
    return height * image.width / image.height, height


def shown_image(tokens: Tokens) -> Image:
    """Returns the first image among the media of a picture's tokens."""
    return next(medium for medium in tokens.media if isinstance(medium, Image))


def picture_panel(tokens: Tokens, weights: "Float64Array | None", query: int | None, cmap: str | None) -> Panel:
    """Returns the panel of one row of weights over a picture; its colours end at the largest weight on the picture.

    Args:
        weights: ``(tokens,)``; ``None`` for a picture without colours.
    """
    image = shown_image(tokens)
    in_image = tokens.medium == tokens.media.index(image)
    values = np.zeros(len(tokens), dtype=np.float32) if weights is None else weights.astype(np.float32)
    largest = float(values[in_image].max(initial=0.0))
    places = np.where(in_image[:, None], tokens.places, 0)
    return Panel(
        title="",
        values=values[None],
        visible=(in_image & (weights is not None))[None],
        rows=Axis("queries", ("",), (0, 1), places=None if query is None else places[[query]]),
        columns=Axis("keys", tokens.labels, tuple(range(len(tokens) + 1)), canvas=image, places=places),
        quantity=WEIGHT,
        scale=ColorScale(0, largest or 1.0, colormap=cmap or SEQUENTIAL),
    )
