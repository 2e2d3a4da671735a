"""Gives the tokens of a text that stand for parts of pictures their places there, and labels by row and column."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.base.arrays import IntArray
    from attnviz.media.image import Image

CLASS_TOKEN = "[CLS]"


def with_pictures(tokens: Tokens, images: "Sequence[Image]", pictures: "IntArray", places: "IntArray") -> Tokens:
    """Returns the tokens of a text with the parts of pictures at their places, labelled ``r3c7``.

    If there are several pictures, the label begins with the number of the picture, from 1: ``2:r3c7``.

    Args:
        tokens: all tokens, whose medium is the text.
        images: the pictures.
        pictures: the index of each token's picture, without generated tokens; -1 for a token outside all pictures.
        places: ``(tokens, 4)``, the rectangle of each part of a picture.
    """
    count = len(pictures)
    boxes, medium = np.zeros((len(tokens), 4), dtype=np.int64), tokens.medium.copy()
    boxes[:, :2] = tokens.places[:, :2]
    is_part = np.zeros(len(tokens), dtype=bool)
    is_part[:count] = pictures >= 0
    boxes[is_part], medium[is_part] = places[pictures >= 0], 1 + pictures[pictures >= 0]
    labels = list(tokens.labels)
    for number in range(len(images)):
        for token, label in _part_labels(np.flatnonzero(medium == 1 + number), boxes).items():
            labels[token] = label if len(images) == 1 else f"{number + 1}:{label}"
    return replace(
        tokens,
        labels=tuple(labels),
        ids=np.where(is_part, -1, tokens.ids),  # all parts share the id of a placeholder
        special=tokens.special & ~is_part,
        media=(*tokens.media, *images),
        medium=medium,
        places=boxes,
    )


def picture_keys(images: "Sequence[Image]", picture_numbers: "IntArray", places: "IntArray") -> Tokens:
    """Returns the tokens of pictures that a text attends to by cross-attention; one without a place is ``[CLS]``.

    Args:
        images: the pictures.
        picture_numbers: the picture of each token, -1 for none.
        places: ``(tokens, 4)``, the rectangle of each token in its picture.
    """
    tokens = with_pictures(Tokens.numbered(len(places)), images, picture_numbers, places)
    has_place = picture_numbers >= 0
    labels = (label if placed else CLASS_TOKEN for label, placed in zip(tokens.labels, has_place.tolist(), strict=True))
    return replace(tokens, labels=tuple(labels), special=~has_place)


def _part_labels(parts: "IntArray", boxes: "IntArray") -> dict[int, str]:
    """Returns the label of each part by its token: row and column among the parts of about its size, such as ``r0c1``.

    A part wider than 1.5 times the narrowest one is labelled ``whole r0c1``, since a thumbnail shows the whole picture.

    Args:
        parts: the tokens that are parts of one picture.
        boxes: ``(tokens, 4)``, the rectangle of each token.
    """
    sizes = boxes[parts, 2] - boxes[parts, 0]
    labels = {}
    is_small = sizes <= 1.5 * sizes.min(initial=2**31)
    for prefix, same_size in (("", parts[is_small]), ("whole ", parts[~is_small])):
        lefts, tops = (np.unique(boxes[same_size, side]).tolist() for side in (0, 1))
        for token in same_size.tolist():
            labels[token] = f"{prefix}r{tops.index(boxes[token, 1])}c{lefts.index(boxes[token, 0])}"
    return labels
