"""Makes the tokens that stand for parts of pictures and sounds: places, and labels by row and column or by second."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.text.tokens import PADDING_LABEL, Tokens

if TYPE_CHECKING:
    from attnviz.base.arrays import IntArray
    from attnviz.media.image import Image
    from attnviz.media.sound import Sound

CLASS_TOKEN, PROBE = "[CLS]", "[probe]"
OVERLAP = "Patches overlap; each is drawn as the cell around its centre."
NUMBERED = "Tokens are numbered, not placed on the image, since"  # the begin of a remark
RECTANGLE_NUMBERS = 4  # left, top, right and bottom
MAX_SIZE_RATIO = 1.5  # of parts whose rows and columns are counted together; a thumbnail is about twice as wide


def with_pictures(tokens: Tokens, images: "Sequence[Image]", picture_indices: "IntArray", places: "IntArray") -> Tokens:
    """Returns the tokens of a text; the tokens of pictures have a rectangle as their place.

    A token of a picture is labelled by row and column, ``r3c7``, has the id -1, and is not special. With several
    pictures, the label begins with the picture's number, from 1: ``2:r3c7``.

    Args:
        places: a rectangle for each of these tokens, ``(tokens, 4)``; it is read where the token is in a picture.
    """
    boxes, medium = np.zeros((len(tokens), RECTANGLE_NUMBERS), dtype=np.int64), tokens.medium.copy()
    boxes[:, :2] = tokens.places[:, :2]  # start and stop in the text
    is_part = np.zeros(len(tokens), dtype=bool)
    is_part[: len(picture_indices)] = picture_indices >= 0
    # Medium 0 is the text; the pictures follow it.
    boxes[is_part], medium[is_part] = places[picture_indices >= 0], 1 + picture_indices[picture_indices >= 0]
    labels = list(tokens.labels)
    for picture_number in range(1, len(images) + 1):
        prefix = "" if len(images) == 1 else f"{picture_number}:"
        parts = np.flatnonzero(medium == picture_number)
        widths = boxes[parts, 2] - boxes[parts, 0]
        is_narrow = widths <= MAX_SIZE_RATIO * widths.min(initial=np.iinfo(np.int32).max)  # no minimum without parts
        for size, similar_parts in (("", parts[is_narrow]), ("whole ", parts[~is_narrow])):
            columns, rows = (_lattice_numbers(boxes[similar_parts], side) for side in (0, 1))
            for token, row, column in zip(similar_parts.tolist(), rows, columns, strict=True):
                labels[token] = f"{prefix}{size}r{row}c{column}"
    return replace(
        tokens,
        labels=tuple(labels),
        ids=np.where(is_part, -1, tokens.ids),  # all parts share the id of a placeholder
        special=tokens.special & ~is_part,
        media=(*tokens.media, *images),
        medium=medium,
        places=boxes,
    )


def _lattice_numbers(boxes: "IntArray", side: int) -> list[int]:
    """Returns the column of each box, or its row on the other side, also counting those that were left out between."""
    if not len(boxes):
        return []
    starts, places = np.unique(boxes[:, side], return_inverse=True)
    stops = np.full(len(starts), np.iinfo(np.int64).max)
    np.minimum.at(stops, places, boxes[:, side + 2])
    steps = np.diff(starts)
    counts = np.where(starts[1:] > stops[:-1], np.rint(steps / steps.min(initial=stops.max())), 1)
    numbers: list[int] = np.cumsum([0, *counts])[places].astype(int).tolist()
    return numbers


def extra_labels(count: int, has_class_token: bool) -> list[str]:
    """Returns the labels of tokens without a place: ``[CLS]`` for the first, if there is one, then ``[extra 1]``, …."""
    extras = [f"[extra {number}]" for number in range(1, count + 1)]
    return [CLASS_TOKEN, *extras[:-1]] if has_class_token else extras


def image_tokens(image: "Image", places: "IntArray") -> Tokens:
    """Returns the tokens of an image; a patch is labelled by row and column, ``r3c7``, from 0 at the upper left.

    Tokens without a place are special. They are labelled ``[CLS]`` if first, else ``[extra 1]``, ``[extra 2]``, ….

    Args:
        places: ``(tokens, 4)``, left, top, right and bottom of each token in pixels; all 0 for a token without a place.
    """
    has_place = places[:, 2] > 0
    columns, rows = (_lattice_numbers(places[has_place], side) for side in (0, 1))
    names = iter(extra_labels(int((~has_place).sum()), has_class_token=not has_place[:1].all()))
    labels = ["" if is_placed else next(names) for is_placed in has_place.tolist()]
    for token, row, column in zip(np.flatnonzero(has_place).tolist(), rows, columns, strict=True):
        labels[token] = f"r{row}c{column}"
    return replace(
        Tokens.numbered(len(labels)),
        labels=tuple(labels),
        special=~has_place,
        media=(image,),
        medium=np.where(has_place, 0, -1),
        places=places,
        groups={},
    )


def picture_tokens(images: "Sequence[Image]", owners: "IntArray", places: "IntArray") -> Tokens:
    """Returns the tokens of one image or of several; those without a place are labelled as in `image_tokens`.

    Args:
        owners: ``(tokens,)``, the number of each token's image; -1 for a token without a place.
        places: ``(tokens, 4)``, its rectangle there.
    """
    if len(images) == 1:
        return image_tokens(images[0], places)
    names = iter(extra_labels(int((owners < 0).sum()), has_class_token=bool(owners[0] < 0)))
    labels = tuple("" if owner >= 0 else next(names) for owner in owners.tolist())
    return with_pictures(replace(Tokens.labelled(labels), special=owners < 0), images, owners, places)


def frame_tokens(sound: "Sound", spans: "IntArray", before: int = 0, after: int = 0) -> Tokens:
    """Returns the frames of a sound as tokens, each labelled by the second at its middle, such as ``0.25s``.

    ``spans`` are ``(frames, 2)``, the first sample of each frame and the one after its last, at the sound's rate. A
    frame whose middle lies after the end of the sound is padding: a special token without a place. So are the tokens
    before and after the frames.
    """
    middles = spans.mean(axis=1)
    is_in_sound = middles < sound.samples
    labels = tuple(
        f"{max(middle, 0.0) / sound.rate:.2f}s" if in_sound else PADDING_LABEL  # frame 0 may begin before the sound
        for middle, in_sound in zip(middles.tolist(), is_in_sound.tolist(), strict=True)
    )
    frames = replace(
        Tokens.labelled(labels),
        special=~is_in_sound,
        media=(sound,),
        medium=np.where(is_in_sound, 0, -1),
        places=np.where(is_in_sound[:, None], np.minimum(spans, sound.samples), 0),
        groups={},
    )
    names = tuple(extra_labels(before + after, has_class_token=before > 0))
    return frames.first(0).followed_by(names[:before]).joined(frames).followed_by(names[before:])
