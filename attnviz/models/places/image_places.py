"""Measures the rectangle of a picture from which a vision model computes each token.

Two facts are measured and joined. *Colours are coordinates*: the image processor reads an image whose red says how far
right a pixel is, and whose green says how far down, so that every number of its output tells its place in the original.
*Token inputs*: which of these numbers each token is computed from.

An image may be read whole: the places of its pixels then lie on lines. The input of a vision-language model may be
flattened patches, tiles and thumbnails of several pictures, so that each number has a place of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.models.places.token_inputs import (
    NO_TOKEN,
    FeaturesOf,
    UnknownPlacesError,
    features_among,
    module_arguments,
    token_of_number,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn

LEFT, TOP, RIGHT, BOTTOM = range(4)  # columns of an array of rectangles
MAX_BEND = 0.02  # the largest deviation of the processor from a linear map, as a share of the image's side
MIN_CONTRAST = 1e-6  # between white and black in a number of the processor's output; smaller ones are rounding
MAX_BEND_PIXELS = 0.5  # its least allowed deviation: filters bend the line by half a pixel at the image's border
STRAIGHT_SHARE = 0.95  # of pixels must lie near the line; filters of the processor bend it at the image's border
WHITE = 255
MIN_BLUE = 0.5  # a pixel with a smaller share of blue belongs to the padding
COLOUR_STEPS = 128
MAX_NEIGHBOUR_STEP = 1.5  # of the usual distance of two columns: farther ones have a gap between them
SAME_SIZE = 0.25  # boxes of one kind differ by less than this share of their sides; thumbnails and tiles differ by more


@dataclass(frozen=True, eq=False)
class PixelTokens:
    """The token of each pixel of a model's input."""

    numbers: IntArray  # ``(rows, columns)``, the number of the token; -1 for none
    count: int  # the number of tokens
    overlap: bool  # true if tokens overlap, so that these are the cells around their centres


def measured_places(
    module: "nn.Module",
    pixels: "Tensor",
    process: Callable[["PillowImage"], "Tensor"],
    size: tuple[int, int],
    measured_pixels: dict[tuple[int, ...], PixelTokens] | None = None,
    features_of: FeaturesOf | None = None,
) -> IntArray:
    """Returns left, top, right and bottom of each token, ``(tokens, 4)`` in pixels of the image; all 0 for no place.

    The tokens are those of the module's output, or of other features that ``features_of`` computes from the pixels. The
    place of a token that overlaps others is the cell around its centre. Costs about three forward passes, or six for
    such tokens, and three runs of the image processor.
    """
    if pixels.dim() != 4 or pixels.shape[:2] != (1, 3):
        raise UnknownPlacesError(
            f"the image processor gives numbers of shape {tuple(pixels.shape)}, and not one image of "
            "(1, 3, rows, columns)"
        )
    results = {} if measured_pixels is None else measured_pixels
    shape = tuple(pixels.shape)
    if shape not in results:
        results[shape] = token_of_pixel(module, pixels, features_of)
    numbers, count = results[shape].numbers, results[shape].count

    column_line, row_line, is_inside = _pixel_lines(process, size, pixels.shape[2:])
    boxes = lattice_boxes(np.where(is_inside, numbers, NO_TOKEN), count)  # in pixels of the model's input
    has_place = boxes[:, RIGHT] > 0
    if not has_place.any():
        raise UnknownPlacesError("no token of the model's output belongs to a part of the image alone")
    places = np.zeros((count, 4), dtype=np.int64)
    width, height = size
    for low, high, (first_edge, step), side in ((LEFT, RIGHT, column_line, width), (TOP, BOTTOM, row_line, height)):
        measured_edges = first_edge + step * boxes[has_place][:, [low, high]]
        # Near the image's border, filters of the processor bend the measured line.
        margin = abs(step) / 2
        moved_to_far_border = np.where(measured_edges > side - margin, side, measured_edges)
        rounded_edges = np.rint(np.where(measured_edges < margin, 0, moved_to_far_border)).astype(np.int64)
        places[has_place, low], places[has_place, high] = rounded_edges.T
    _refuse_small_patches(places[has_place], size)
    return places


def token_of_pixel(module: "nn.Module", pixels: "Tensor", features_of: FeaturesOf | None = None) -> PixelTokens:
    """Returns the token of each pixel; of tokens that overlap, the one whose middle is nearest."""
    features_of = features_of or (lambda leaf: _token_features(module, leaf)[0])
    numbers, count, overlap = token_of_number(module, pixels, features_of)
    middles = numbers[0].max(axis=0)  # of red, green and blue
    if not overlap or (middles == NO_TOKEN).all():
        return PixelTokens(middles, count, overlap)
    nearest_row, nearest_column = (
        places[np.abs(places - np.arange(size)[:, None]).argmin(axis=1)]
        for places, size in zip(
            (np.flatnonzero((middles != NO_TOKEN).any(axis=axis)) for axis in (1, 0)), middles.shape, strict=True
        )
    )
    return PixelTokens(middles[np.ix_(nearest_row, nearest_column)], count, overlap)


def _token_features(module: "nn.Module", pixels: "Tensor") -> "Tensor":
    """Returns the features of each token, ``(1, tokens, features)``; those of a feature map are its rows in turn."""
    random_state = torch.get_rng_state()
    features: Tensor | None = getattr(module(pixel_values=pixels), "last_hidden_state", None)
    if features is not None and features.dim() == 4:  # (1, features, rows, columns)
        features = features.flatten(2).transpose(1, 2)
    if features is None or features.dim() != 3:
        raise UnknownPlacesError("the model's output is not one row or map of tokens")
    if not torch.equal(random_state, torch.get_rng_state()):
        raise UnknownPlacesError(
            "the model draws random numbers, perhaps to leave out or shuffle patches, so its tokens change places in "
            "every run"
        )
    return features


def _pixel_lines(process: Any, size: tuple[int, int], input_shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Measures where the pixels of the model's input lie in the image."""
    from PIL import Image as Pillow

    black, white, ramp = (
        process(image)[0].double().cpu().numpy()
        for image in (Pillow.new("RGB", size), Pillow.new("RGB", size, (WHITE,) * 3), ramp_of(size))
    )
    shares = _shares_between(ramp, black, white)
    is_inside = shares[2] > MIN_BLUE
    if not is_inside.any():
        raise AttnvizError(
            f"the image processor leaves nothing of an image of {size[0]} x {size[1]} pixels; give a larger image, or "
            "correct the sizes in preprocessor_config.json"
        )
    rows, columns = np.indices(input_shape)
    lines = []
    for places, positions, side in ((columns, shares[0], size[0]), (rows, shares[1], size[1])):
        step, first_centre = side, 0.0  # if the image has one pixel along this axis
        if np.ptp(places[is_inside]):
            step, first_centre = np.polyfit(places[is_inside], positions[is_inside] * side, 1)
        deviation = np.abs(first_centre + step * places - positions * side)[is_inside]
        if np.quantile(deviation, STRAIGHT_SHARE) > max(MAX_BEND * side, MAX_BEND_PIXELS, abs(step)):
            raise UnknownPlacesError("the image processor does more than resize, crop and pad, as when it cuts tiles")
        lines.append((first_centre - step / 2, step))
    return lines[0], lines[1], is_inside


def picture_places(
    model: "nn.Module",
    module: "nn.Module",
    inputs: dict[str, Any],
    process: Callable[[Sequence["PillowImage"]], "Tensor"],
    sizes: Sequence[tuple[int, int]],
) -> tuple[IntArray, IntArray, bool]:
    """Returns the picture of each token, ``(tokens,)``, -1 for none, its rectangle there, and whether tokens overlap.

    A rectangle, of ``(tokens, 4)``, is left, top, right and bottom in pixels of the picture; all 0 for a token without
    a picture. Those of tokens that overlap are the cells around their centres. Costs one
    forward and two backward passes of the tower, and two runs of the image processor plus one for each picture.
    """
    from PIL import Image as Pillow

    def features_of(pixel_values: "Tensor") -> "Tensor":
        features = features_among(module_arguments(model, module, {**inputs, "pixel_values": pixel_values}))
        assert features is not None
        return features.flatten(0, -2)  # (tokens, features); the tiles follow one another

    tokens, count, overlap = token_of_number(model, inputs["pixel_values"], features_of)
    owners = _pixel_colours(tokens).max(axis=-1)

    def pixel_values(pictures: "Sequence[PillowImage]") -> Float64Array:
        return np.asarray(process(pictures).double().cpu().numpy())

    black_pictures = [Pillow.new("RGB", size) for size in sizes]
    black = pixel_values(black_pictures)
    white = pixel_values([Pillow.new("RGB", size, (WHITE,) * 3) for size in sizes])
    picture_numbers, boxes = np.full(count, -1), np.zeros((count, 4), dtype=np.int64)
    for number, size in enumerate(sizes):
        # The ramp replaces one picture, and the others are black, so that only the numbers of this one have blue.
        ramp = pixel_values([*black_pictures[:number], ramp_of(size), *black_pictures[number + 1 :]])
        colours = _pixel_colours(_shares_between(ramp, black, white))
        is_inside = (owners >= 0) & (colours[..., 2] > MIN_BLUE)
        picture_tokens = np.unique(owners[is_inside])
        if len(picture_tokens):
            # Red and green are the place of a pixel, as shares of width and height.
            pixels = [colours[is_inside & (owners == token)][:, :2] * size for token in picture_tokens]
            extents = [np.concatenate([places.min(axis=0), places.max(axis=0)]) for places in pixels]
            picture_numbers[picture_tokens] = number
            boxes[picture_tokens] = _adjacent_boxes(np.array(extents), size)
            _refuse_small_patches(boxes[picture_tokens], size)
    return picture_numbers, boxes, overlap


def _pixel_colours(numbers: Any) -> Any:
    """Returns an array of the shape of ``pixel_values`` as ``(pixels, 3)``: red, green and blue of each pixel."""
    if numbers.ndim >= 4:
        return np.moveaxis(numbers, -3, -1).reshape(-1, 3)
    return np.moveaxis(numbers.reshape(*numbers.shape[:-1], 3, -1), -2, -1).reshape(-1, 3)


def _adjacent_boxes(extents: Float64Array, size: tuple[int, int]) -> IntArray:
    """Returns rectangles that touch their neighbours, ``(tokens, 4)``, in whole pixels."""
    boxes = np.zeros_like(extents)
    remaining = np.arange(len(extents))
    while len(remaining):  # tokens of one size at a time: thumbnails lie over tiles
        box_sizes = extents[remaining][:, 2:] - extents[remaining][:, :2]
        is_same_size = (np.abs(box_sizes - box_sizes[0]) <= SAME_SIZE * np.maximum(box_sizes[0], 1)).all(axis=1)
        tokens = remaining[is_same_size]
        for axis in (0, 1):
            lows, highs = extents[tokens, axis], extents[tokens, axis + 2]
            margin = size[axis] / COLOUR_STEPS  # colours of 8 bits cannot tell smaller distances
            side = float((highs - lows).mean()) or 2 * margin  # 0 if only the middle of each token is known
            centres = (lows + highs) / 2
            order = np.argsort(centres, kind="stable")
            column_of_token = np.empty(len(centres), dtype=np.int64)
            column_of_token[order] = np.cumsum(np.diff(centres[order], prepend=centres[order[0]]) > side / 2)
            columns = np.bincount(column_of_token, centres) / np.bincount(column_of_token)
            steps = np.diff(columns)
            pitch = float(np.median(steps)) if len(steps) else side
            low_edges, high_edges = columns - pitch / 2, columns + pitch / 2
            are_neighbours = steps < MAX_NEIGHBOUR_STEP * pitch
            middles = (columns[1:] + columns[:-1]) / 2  # each rounded once, so that no pixel is left between two tokens
            high_edges[:-1] = np.where(are_neighbours, middles, high_edges[:-1])
            low_edges[1:] = np.where(are_neighbours, middles, low_edges[1:])
            edges = np.stack([low_edges[column_of_token], high_edges[column_of_token]])
            moved_to_far_border = np.where(edges > size[axis] - margin, size[axis], edges)
            boxes[tokens, axis], boxes[tokens, axis + 2] = np.where(edges < margin, 0, moved_to_far_border)
        remaining = remaining[~is_same_size]
    return np.rint(boxes).astype(np.int64)


def _refuse_small_patches(boxes: IntArray, size: tuple[int, int]) -> None:
    """Raises AttnvizError if a rectangle is empty, since its patch is smaller than a pixel of the image."""
    if (boxes[:, [RIGHT, BOTTOM]] <= boxes[:, [LEFT, TOP]]).any():
        raise AttnvizError(
            f"an image of {size[0]} x {size[1]} pixels is too small or too thin: the model's patches are smaller than "
            "its pixels; crop or enlarge it"
        )


def _shares_between(numbers: Float64Array, black: Float64Array, white: Float64Array) -> Float64Array:
    """Returns the share of white in each number of an image processor's output; 0 where it is no colour."""
    contrast = white - black
    return np.divide(numbers - black, contrast, out=np.zeros_like(contrast), where=np.abs(contrast) > MIN_CONTRAST)


def ramp_of(size: tuple[int, int]) -> "PillowImage":
    """Returns an image whose red grows from left to right and green from top to bottom, with full blue everywhere."""
    from PIL import Image as Pillow

    width, height = size
    colors = np.full((height, width, 3), WHITE, dtype=np.uint8)  # in bytes, since an image may have 100 megapixels
    colors[..., 0] = np.rint((np.arange(width) + 0.5) / width * WHITE)
    colors[..., 1] = np.rint((np.arange(height) + 0.5) / height * WHITE)[:, None]
    return Pillow.fromarray(colors)


def lattice_boxes(numbers: IntArray, count: int) -> Float64Array:
    """Returns left, top, right and bottom of each token on a lattice, ``(tokens, 4)``; all 0 for no place.

    Neighbours meet in the middle of a gap between them: a number there belongs to no token alone, or has no gradient.

    Args:
        numbers: ``(rows, columns)``, the token of each place of the lattice; -1 for none.
    """
    rows, columns = np.nonzero(numbers != NO_TOKEN)
    tokens, places = numbers[rows, columns], np.stack([columns, rows], axis=1)
    lows, highs = np.full((count, 2), max(numbers.shape)), np.zeros((count, 2), dtype=np.int64)
    np.minimum.at(lows, tokens, places)
    np.maximum.at(highs, tokens, places + 1)
    extents = np.where(highs[:, :1] > 0, np.concatenate([lows, highs], axis=1), 0)
    boxes, has_place = extents.astype(np.float64), extents[:, RIGHT] > 0
    for low, high in ((LEFT, RIGHT), (TOP, BOTTOM)):
        starts, stops = (np.unique(extents[has_place, side]) for side in (low, high))
        for stop, start in zip(stops, np.append(starts, -1)[np.searchsorted(starts, stops)], strict=True):
            if start > stop:
                boxes[has_place & (extents[:, high] == stop), high] = (stop + start) / 2
                boxes[has_place & (extents[:, low] == start), low] = (stop + start) / 2
    return boxes
