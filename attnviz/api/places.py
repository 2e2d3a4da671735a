"""Says by hand which part of a picture or sound each token stands for, for a module that `attnviz.record` records."""

import math
from dataclasses import fields
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.labels import UnboundedPatches
from attnviz.media.image import image_of, image_source, open_images
from attnviz.media.sound import Sound, open_sound, sound_of
from attnviz.models.reading.media_tokens import frame_tokens, picture_tokens
from attnviz.text.samples import picture_or_sample
from attnviz.text.tokens import Tokens

MILLISECONDS = 1000  # a second; the rate of a sound of which only the length is known
SILENT = np.zeros(1, dtype=np.uint8)  # the envelope of such a sound


def patches(
    image: Any,
    grid: tuple[int, int],
    extra: int = 0,
    after: int = 0,
    box: tuple[float, float, float, float] | None = None,
) -> Tokens:
    """Returns the patches of a picture as tokens with their places, row by row, for ``record(model, tokens=…)``.

    A patch is labelled by row and column, ``r3c7``. Use `attnviz.reading` where a function makes the model's input: it
    measures the places, so that none has to be said.

    Args:
        image: a path of a PNG, JPEG or WebP file, a PIL image, an array ``(rows, columns, 3)`` of uint8, or
            ``sample:digits.png``, the picture that comes with the package. A list holds the frames of a video, whose
            patches follow one another, ``2:r3c7``.
        grid: the number of rows and of columns of patches.
        extra: the number of tokens before the patches, which have no place, such as ``[CLS]`` and registers.
        after: the number of such tokens after the patches.
        box: left, top, right and bottom of what the model reads, in pixels, if its input is a crop; ``None`` for the
            whole picture, with a remark where the patches are not square there. The corners of the whole picture say
            that the model squeezes it.

    Raises:
        AttnvizError: if the image cannot be read, a number is negative, or the grid does not fit into the picture.

    Example:
        >>> import attnviz, numpy
        >>> tokens = attnviz.patches(numpy.zeros((64, 96, 3), dtype=numpy.uint8), grid=(2, 3), extra=1)
        >>> tokens.labels[:3], tokens.places[2].tolist()  # left, top, right and bottom in pixels
        (('[CLS]', 'r0c0', 'r0c1'), [32, 0, 64, 32])
    """
    _refuse_uncounted(extra=extra, after=after)
    given = [picture_or_sample(each) for each in (image if isinstance(image, (list, tuple)) else [image])]
    if not given:
        raise AttnvizError("there is no image; give a path, a PIL image, an array, or a list of them")
    sources = [image_source(each, number, len(given)) for number, each in enumerate(given, 1)]
    pictures = open_images(sources)
    images = [image_of(picture, source.name) for picture, source in zip(pictures, sources, strict=True)]
    boxes = np.concatenate([_lattice(grid, picture.size, box) for picture in pictures])
    places = np.pad(boxes, ((extra, after), (0, 0)))
    owners = np.repeat(np.arange(len(images)), len(boxes) // len(images))
    tokens = picture_tokens(images, np.pad(owners, (extra, after), constant_values=-1), places)
    return tokens if box else UnboundedPatches(**{each.name: getattr(tokens, each.name) for each in fields(tokens)})


def _lattice(grid: tuple[int, int], size: tuple[int, int], box: tuple[float, float, float, float] | None) -> IntArray:
    """Returns the rectangles of a grid, row by row, ``(patches, 4)``, in whole pixels of a picture of this size."""
    try:
        rows, columns = map(index, grid)
    except (TypeError, ValueError):
        raise AttnvizError(
            f"grid is {grid!r}; give the whole numbers of rows and columns, such as grid=(14, 14)"
        ) from None
    width, height = size
    left, top, right, bottom = box or (0, 0, width, height)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise AttnvizError(
            f"box {box} is no part of an image of {width} x {height} pixels; give left, top, right, bottom"
        )
    if not (0 < rows <= bottom - top and 0 < columns <= right - left):
        raise AttnvizError(
            f"a grid of {rows} x {columns} patches does not fit into {right - left:g} x {bottom - top:g} pixels; give "
            "at most as many rows and columns as pixels"
        )
    xs = np.rint(np.linspace(left, right, columns + 1)).astype(np.int64)
    ys = np.rint(np.linspace(top, bottom, rows + 1)).astype(np.int64)
    low_y, low_x = np.meshgrid(ys[:-1], xs[:-1], indexing="ij")
    high_y, high_x = np.meshgrid(ys[1:], xs[1:], indexing="ij")
    return np.stack([low_x, low_y, high_x, high_y], axis=-1).reshape(-1, 4)


def frames(
    sound: Any,
    count: int,
    extra: int = 0,
    after: int = 0,
    step: float | None = None,
    rate: int | None = None,
) -> Tokens:
    """Returns the frames of a sound as tokens with their places, for ``record(model, tokens=…)``.

    A frame is labelled by the second at its middle, ``0.25s``. A frame after the end of the sound is padding. Use
    `attnviz.reading` where a function makes the model's input: it measures the seconds.

    Args:
        sound: a path of a WAV, FLAC, OGG or MP3 file; samples, ``(samples,)``, with their ``rate``; or the length of
            the sound in seconds.
        count: the number of frames.
        extra: the number of tokens before the frames, which have no place.
        after: the number of such tokens after the frames.
        step: seconds from one frame to the next; ``None`` if the frames divide the sound evenly.
        rate: samples per second, if ``sound`` is samples.

    Raises:
        AttnvizError: if the sound cannot be read, or a number is out of range.

    Example:
        >>> import attnviz
        >>> tokens = attnviz.frames(2.0, 4)  # four frames of a sound of two seconds
        >>> tokens.labels, tokens.places[1].tolist()  # in samples; without samples, in milliseconds
        (('0.25s', '0.75s', '1.25s', '1.75s'), [500, 1000])
    """
    _refuse_uncounted(extra=extra, after=after, count=count)
    heard = _sound(sound, rate)
    if count < 1 or (step is not None and not 0 < step < math.inf):
        raise AttnvizError(
            f"{count} frames with a step of {step} s are impossible; give one frame or more, and a step above 0"
        )
    edges = np.arange(count + 1) * (heard.samples / count if step is None else step * heard.rate)
    whole_edges = np.rint(edges).astype(np.int64)
    if (np.diff(whole_edges) < 1).any():
        raise AttnvizError(f"{count} frames do not fit into {heard.samples} samples; give fewer")
    return frame_tokens(heard, np.stack([whole_edges[:-1], whole_edges[1:]], axis=1), extra, after)


def _refuse_uncounted(**counts: int) -> None:
    """Raises AttnvizError if one of these numbers of tokens is no whole number from 0."""
    for name, count in counts.items():
        if not isinstance(count, SupportsIndex) or index(count) < 0:
            raise AttnvizError(f"{name} is {count!r}; give a whole number of tokens, from 0")


def _sound(sound: Any, rate: int | None) -> Sound:
    """Returns a sound of a file, of samples, or of a length in seconds alone."""
    if isinstance(sound, (str, Path)):
        return sound_of(*open_sound(Path(sound)), Path(sound).name)
    if isinstance(sound, (int, float)):
        if not 0 < sound < math.inf:
            raise AttnvizError(f"a sound of {sound} seconds is impossible; give a length above 0")
        return Sound(SILENT.copy(), max(round(sound * MILLISECONDS), 1), MILLISECONDS)
    samples: FloatArray = np.asarray(sound, dtype=np.float32)
    if samples.ndim != 1 or not samples.any() or not np.isfinite(samples).all() or rate is None:
        raise AttnvizError(
            f"samples of shape {samples.shape} with rate={rate} are no sound; give samples in one row, not silent, "
            "and their number per second as rate"
        )
    return sound_of(samples, rate)
