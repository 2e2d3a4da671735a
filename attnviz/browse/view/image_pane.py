"""Composes the images that a row of a map looks at, next to each other; clicks on them choose a patch."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.browse.session.state import Size
from attnviz.browse.view.boxes import Box, BoxColumn, BoxRow, FixedBox, OverImage, StyledText
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.render.terminal.media import seconds_axis
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.overlays import panel_image
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel
from attnviz.text.tokens import Tokens

MIN_LINES = 4  # of an image: in fewer nothing can be recognised
GAP = 2  # columns between two images
WORDS_COLUMNS = 18  # that images leave free for the words of a prompt


@dataclass(frozen=True, eq=False)
class ImageRow:
    """The weights of one query over its keys, some of which are patches of images.

    Attributes:
        keys: the tokens of the keys, a weight each.
        values: the weights, ``(keys,)``.
        visible: False for masked keys, ``(keys,)``.
        scale: the colour scale.
        cursor: the key under the cursor.
        queries: the tokens of the queries.
        query: the query; ``None`` for the mean of several.
        are_shares: True if the values are weights, of which sums are shares of the row.
    """

    keys: Tokens
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int
    queries: Tokens
    query: int | None
    are_shares: bool = False

    @property
    def words(self) -> IntArray:
        """The keys outside of the images, ``(words,)``; empty if none of the keys is in a text."""
        media = [self.keys.media[index] for index in np.unique(self.keys.medium).tolist() if index >= 0]
        if not any(isinstance(medium, Text) for medium in media):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(~np.isin(self.keys.medium, self.keys.image_indices))

    @property
    def share_texts(self) -> list[str]:
        """The share of the row on each image, then on the words; empty if the values are not weights."""
        if not self.are_shares:
            return []
        images, weights = self.keys.image_indices, np.where(self.visible, np.nan_to_num(self.values), 0)
        kinds = [medium.kind for medium in self.keys.media if isinstance(medium, Image)]
        numbers = [f" {number}" for number in range(1, len(images) + 1)] if len(images) > 1 else [""]
        shares = [weights[self.keys.medium == image_index].sum() for image_index in images]
        texts = [f"{share:.0%} on {kind}{number}" for share, kind, number in zip(shares, kinds, numbers, strict=True)]
        return [*texts, f"{weights[self.words].sum():.0%} on words"]


def image_pane(row: ImageRow, width: int, lines: int, size: Size) -> BoxRow | None:
    """Composes the images side by side, as large as the pane allows; ``None`` if there are none or they are too
    small.
    """
    boxes, end = list[Box](), 0
    for image_index, start, columns, height in _image_positions(row, width, lines):
        shaded_image = _shaded_image(row, image_index, columns, height, size)
        axis = _seconds_line(shaded_image)
        margin = FixedBox(BoxColumn(()), start - end, height + len(axis))
        boxes += [margin, BoxColumn((shaded_image, *axis)) if axis else shaded_image]
        end = start + columns
    return BoxRow(tuple(boxes)) if boxes else None


def _seconds_line(box: OverImage) -> tuple[StyledText, ...]:
    """Returns the line of seconds below a spectrogram; empty for a picture."""
    image = panel_image(box.panel)
    return (StyledText(seconds_axis(image, box.columns), style="dim"),) if image.seconds else ()


def words_start(row: ImageRow, width: int, lines: int) -> int | None:
    """Returns the first column of the words beside the images; ``None`` if there are no words, or no images are
    drawn.
    """
    positions = _image_positions(row, width, lines)
    if not positions or not len(row.words):
        return None
    _, start, columns, _ = positions[-1]
    return start + columns + GAP


def key_at(row: ImageRow, width: int, lines: int, x: int, y: int) -> int | None:
    """Returns the index of the key whose patch is under a position of the pane; ``None`` if there is none."""
    for image_index, start, columns, height in _image_positions(row, width, lines):
        image = row.keys.media[image_index]
        if isinstance(image, Image) and start <= x < start + columns and y < height:
            # the pixel under the middle of the character
            pixel_x, pixel_y = (x - start + 0.5) / columns * image.width, (y + 0.5) / height * image.height
            first_x, first_y, end_x, end_y = row.keys.places.T
            is_inside = (first_x <= pixel_x) & (pixel_x < end_x) & (first_y <= pixel_y) & (pixel_y < end_y)
            keys = np.flatnonzero(is_inside & (row.keys.medium == image_index))
            return int(keys[0]) if len(keys) else None
    return None


def _image_positions(row: ImageRow, width: int, lines: int) -> list[tuple[int, int, int, int]]:
    """Returns for each image its index among the media, its first column in the pane, its columns and its lines."""
    images = row.keys.image_indices
    media = [row.keys.media[image_index] for image_index in images]
    aspects = [medium.width / medium.height for medium in media if isinstance(medium, Image)]
    words_columns = GAP + WORDS_COLUMNS if len(row.words) else 0
    free_columns = width - 1 - GAP * (len(images) - 1) - words_columns
    lines -= any(isinstance(medium, Image) and medium.seconds > 0 for medium in media)  # for the seconds
    height = min(lines, int(free_columns / 2 / sum(aspects))) if aspects else 0  # a line is as high as two columns
    if height < MIN_LINES:
        return []
    positions, start = [], 1
    for image_index, aspect in zip(images, aspects, strict=True):
        columns = max(1, round(2 * height * aspect))
        positions.append((image_index, start, columns, height))
        start += columns + GAP
    return positions


def _shaded_image(row: ImageRow, image_index: int, columns: int, lines: int, size: Size) -> OverImage:
    """Composes one image shaded by the weights of its patches, with frames around the query's and the cursor's
    patch.
    """
    in_image = row.keys.medium == image_index
    image, places = row.keys.media[image_index], np.where(in_image[:, None], row.keys.places, 0)
    query_places = None
    if row.query is not None:
        query_medium = row.queries.medium[row.query]  # an index; -1 for a token without a place
        if query_medium >= 0 and row.queries.media[query_medium] is image:
            query_places = row.queries.places[[row.query]]
    panel = Panel(
        heading=Heading(),
        values=row.values[None],
        visible=(row.visible & in_image)[None],
        rows=Axis("queries", ("",), (0, 1), places=query_places),
        columns=Axis("keys", row.keys.labels, tuple(range(len(row.keys) + 1)), canvas=image, places=places),
        quantity=PERCENT,
        scale=row.scale,
    )
    left, top, right, bottom = row.keys.places[row.cursor].tolist()
    cursor_box = (left, top, right, bottom) if in_image[row.cursor] else None
    return OverImage(panel, columns, lines, cursor_box, size.character)
