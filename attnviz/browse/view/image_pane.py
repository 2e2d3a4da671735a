"""Composes the images that a row of a map looks at, next to each other; clicks on them choose a patch."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import Size
from attnviz.browse.view.boxes import Box, BoxColumn, BoxRow, FixedBox, OverImage
from attnviz.media.image import Image
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import PERCENT, Axis, Panel
from attnviz.text.tokens import Tokens

MIN_LINES = 4  # of an image: in fewer nothing can be recognised
GAP = 2  # columns between two images


@dataclass(frozen=True, eq=False)
class ImageRow:
    """The weights of one query over the images that its keys stand in.

    Attributes:
        keys: the tokens of the keys, a weight each.
        values: the weights, ``(keys,)``.
        visible: False for masked keys, ``(keys,)``.
        scale: the colour scale.
        cursor: the key under the cursor.
        queries: the tokens of the queries.
        query: the query; ``None`` for the mean of several.
    """

    keys: Tokens
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int
    queries: Tokens
    query: int | None


def images_of(tokens: Tokens) -> list[int]:
    """Returns the indices of the images among the media of tokens."""
    return [number for number, medium in enumerate(tokens.media) if isinstance(medium, Image)]


def image_pane(row: ImageRow, width: int, lines: int, size: Size) -> BoxRow | None:
    """Composes the images side by side, as large as the pane allows; ``None`` if they would be too small.

    Args:
        row: the weights.
        width: columns of the pane.
        lines: lines of the pane.
        size: the size of the terminal.
    """
    boxes, right = list[Box](), 0
    for number, left, columns, height in _places(row.keys, width, lines):
        margin = FixedBox(BoxColumn(()), left - right, height)
        boxes += [margin, _over_image(row, number, columns, height, size)]
        right = left + columns
    return BoxRow(tuple(boxes)) if boxes else None


def key_at(row: ImageRow, width: int, lines: int, x: int, y: int) -> int | None:
    """Returns the key whose patch is under a position of the pane; ``None`` if there is none.

    Args:
        row: the weights.
        width: columns of the pane.
        lines: lines of the pane.
        x: the column.
        y: the line.
    """
    for number, left, columns, height in _places(row.keys, width, lines):
        image = row.keys.media[number]
        if isinstance(image, Image) and left <= x < left + columns and y < height:
            pixel_x, pixel_y = (x - left + 0.5) / columns * image.width, (y + 0.5) / height * image.height
            first_x, first_y, end_x, end_y = row.keys.places.T
            is_inside = (first_x <= pixel_x) & (pixel_x < end_x) & (first_y <= pixel_y) & (pixel_y < end_y)
            keys = np.flatnonzero(is_inside & (row.keys.medium == number))
            return int(keys[0]) if len(keys) else None
    return None


def _places(tokens: Tokens, width: int, lines: int) -> list[tuple[int, int, int, int]]:
    """Returns the place of each image: its index among the media, first column, columns and lines.

    Images are as high as the pane allows, all equally high; none is shown if they would be too small.
    """
    images = images_of(tokens)
    media = [tokens.media[number] for number in images]
    aspects = [medium.width / medium.height for medium in media if isinstance(medium, Image)]
    free_columns = width - 1 - GAP * (len(images) - 1)
    height = min(lines, int(free_columns / 2 / sum(aspects))) if aspects else 0  # a line is as high as two columns
    if height < MIN_LINES:
        return []
    places, left = [], 1
    for number, aspect in zip(images, aspects, strict=True):
        columns = max(1, round(2 * height * aspect))
        places.append((number, left, columns, height))
        left += columns + GAP
    return places


def _over_image(row: ImageRow, number: int, columns: int, lines: int, size: Size) -> OverImage:
    """Composes one image under the weights of its patches, with the query's patch framed if it is in this image.

    Args:
        row: the weights of the query over all images.
        number: the index of the image among the media of the keys.
        columns: columns of the screen.
        lines: lines of the screen.
        size: the size of the terminal.
    """
    in_image = row.keys.medium == number
    image, places = row.keys.media[number], np.where(in_image[:, None], row.keys.places, 0)
    count = len(row.keys)
    query_places = None
    if row.query is not None:
        medium = row.queries.medium[row.query]
        if medium >= 0 and row.queries.media[medium] is image:
            query_places = row.queries.places[[row.query]]
    panel = Panel(
        title="",
        values=row.values[None],
        visible=(row.visible & in_image)[None],
        rows=Axis("queries", ("",), (0, 1), places=query_places),
        columns=Axis("keys", row.keys.labels, tuple(range(count + 1)), canvas=image, places=places),
        quantity=PERCENT,
        scale=row.scale,
    )
    left, top, right, bottom = row.keys.places[row.cursor].tolist()
    cursor_box = (left, top, right, bottom) if in_image[row.cursor] else None
    return OverImage(panel, columns, lines, cursor_box, size.character)
