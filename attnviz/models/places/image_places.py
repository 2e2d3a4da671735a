"""Measures the rectangle of a picture from which a vision model computes each token.

Two facts are measured and joined. *Grey values are coordinates*: the function that makes the model's input reads images
that grow brighter to the right and downwards, so that every number of its output tells its place in the original, in
whatever layout and number of colours. *Token inputs*: which of these numbers each token is computed from.

An image may be read whole: the places of its pixels then lie on lines. An input may also be flattened patches, tiles
and thumbnails of several pictures, so that each number has a place of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.model_calls import tensors_in
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
SAME_NUMBERS = (
    "the function for pictures gives the same numbers for a black and for a white one, as when it scales each by its "
    "own mean"
)
WHITE = 255
FAINT, MAX_MOVED = 0.25, 0.05  # the part of grey values over a picture; the largest difference, as a share of its side
COLOUR_STEPS = 128
LATTICE_AXES, FLAT_AXES = 3, 2  # colours, rows and columns; patches and their numbers
MAX_NEIGHBOUR_STEP = 1.5  # of the usual distance of two columns: farther ones have a gap between them
SAME_SIZE = 0.25  # boxes of one kind differ by less than this share of their sides; thumbnails and tiles differ by more


@dataclass(frozen=True, eq=False)
class PixelTokens:
    """The token of each number of a module's input."""

    numbers: IntArray  # the number of the token, in the shape of the input; -1 for none
    count: int  # the number of tokens
    overlap: bool  # true if tokens overlap, so that only their middles have a number


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Where each number of a module's input lies in its picture; each array has the shape of the input."""

    across: Float64Array  # from the left, as a share of the width
    down: Float64Array  # from the top, as a share of the height
    pictures: IntArray  # the number of the picture; -1 for a number of none, such as padding
    sizes: Sequence[tuple[int, int]]  # the width and the height of each picture

    def of_shape(self, shape: tuple[int, ...]) -> "Coordinates":
        """Returns the coordinates of the same numbers in an input with another axis of texts."""
        across, down, pictures = self.across.reshape(shape), self.down.reshape(shape), self.pictures.reshape(shape)
        return Coordinates(across, down, pictures, self.sizes)

    @property
    def lacks_texts(self) -> bool:
        """True if the input has axes for colours, rows and columns, or for patches and their numbers, but no more."""
        is_lattice = _lattice_lines(self, self.pictures == 0, self.sizes[0]) is not None
        return self.across.ndim <= (LATTICE_AXES if is_lattice else FLAT_AXES)


def measured_coordinates(
    process: Callable[[Sequence["PillowImage"]], Mapping[str, Any]],
    sizes: Sequence[tuple[int, int]],
    shown: Sequence["PillowImage"] = (),
) -> dict[str, Coordinates]:
    """Measures where the numbers that a function computes from pictures of these sizes lie in them.

    *Grey values are coordinates*: the function reads one picture that grows brighter to the right, and one that grows
    brighter downwards, between those of black and white pictures. Costs three runs for each picture, and one.
    Pictures that are ``shown`` must be read alike: with the same grey values faintly over them, in three runs more.

    Returns:
        The coordinates of each tensor, by name, that the pictures set.

    Raises:
        UnknownPlacesError: if what is read, or where, depends on what is in a picture.
    """
    from PIL import Image as Pillow

    def numbers(pictures: "Sequence[PillowImage]") -> dict[str, Float64Array]:
        tensors = tensors_in(process(pictures))
        return {name: tensor.detach().double().cpu().numpy() for name, tensor in tensors.items()}

    black_pictures = [Pillow.new("RGB", size) for size in sizes]
    black = numbers(black_pictures)
    found: dict[str, Coordinates] = {}
    contrasts: dict[str, Float64Array] = {}  # between white and black, the largest of all pictures
    for number, size in enumerate(sizes):
        runs = [
            numbers([*black_pictures[:number], picture, *black_pictures[number + 1 :]])
            for picture in (Pillow.new("RGB", size, (WHITE,) * 3), grey_ramp(size, "across"), grey_ramp(size, "down"))
        ]
        for name, dark in black.items():
            if any(name not in run or run[name].shape != dark.shape for run in runs):
                raise UnknownPlacesError(f"the shape of {name} depends on what is in the picture, not on its size")
            contrast = runs[0][name] - dark
            is_inside = np.abs(contrast) > np.abs(contrasts.setdefault(name, np.full(dark.shape, MIN_CONTRAST)))
            if not is_inside.any():
                continue
            if name not in found:
                found[name] = Coordinates(np.zeros(dark.shape), np.zeros(dark.shape), np.full(dark.shape, -1), sizes)
            for shares, run in ((found[name].across, runs[1]), (found[name].down, runs[2])):
                shares[is_inside] = (run[name] - dark)[is_inside] / contrast[is_inside]
            found[name].pictures[is_inside], contrasts[name][is_inside] = number, contrast[is_inside]
    if not shown:
        return found

    # Patches that were chosen by what is in them lie elsewhere in a picture that is shown.
    plain, across, down = (
        numbers([Pillow.blend(picture, over(picture.size), FAINT) for picture in shown])
        for over in (
            partial(Pillow.new, "RGB"),
            partial(grey_ramp, direction="across"),
            partial(grey_ramp, direction="down"),
        )
    )
    for name, coordinates in found.items():
        if any(name not in run or run[name].shape != black[name].shape for run in (plain, across, down)):
            raise UnknownPlacesError(f"the shape of {name} depends on what is in the picture, not on its size")
        inside = coordinates.pictures >= 0
        for shares, run in ((coordinates.across, across), (coordinates.down, down)):
            moved = (run[name] - plain[name])[inside] / (FAINT * contrasts[name][inside])
            if np.median(np.abs(moved - shares[inside])) > MAX_MOVED:
                raise UnknownPlacesError(f"which part of the picture {name} holds depends on what is in it")
    return found


def measured_places(
    module: "nn.Module",
    pixels: "Tensor",
    process: Callable[["PillowImage"], "Tensor"],
    size: tuple[int, int],
    measured_pixels: dict[tuple[int, ...], PixelTokens] | None = None,
) -> IntArray:
    """Returns left, top, right and bottom of each token, ``(tokens, 4)`` in pixels of the image; all 0 for no place.

    The tokens are those of the module's output. The place of a token that overlaps others is the cell around its
    centre. Costs about three forward passes, or six for such tokens, and four runs of the image processor.
    """
    if pixels.dim() != 4 or pixels.shape[:2] != (1, 3):
        raise UnknownPlacesError(
            f"the image processor gives numbers of shape {tuple(pixels.shape)}, and not one image of "
            "(1, 3, rows, columns)"
        )
    results = {} if measured_pixels is None else measured_pixels
    shape = tuple(pixels.shape)
    if shape not in results:
        results[shape] = token_of_pixel(module, pixels, lambda leaf: _token_features(module, leaf)[0])
    coordinates = measured_coordinates(lambda pictures: {"pixels": process(pictures[0])}, [size]).get("pixels")
    if coordinates is None:
        raise AttnvizError(
            f"the image processor leaves nothing of an image of {size[0]} x {size[1]} pixels; give a larger image, or "
            "correct the sizes in preprocessor_config.json"
        )
    _, places = token_places(results[shape], coordinates)
    if not places.any():
        raise UnknownPlacesError("no token of the model's output belongs to a part of the image alone")
    return places


def token_of_pixel(module: "nn.Module", pixels: "Tensor", features_of: FeaturesOf) -> PixelTokens:
    """Returns the token of each number of a module's input, of the tokens whose features a function computes."""
    return PixelTokens(*token_of_number(module, pixels, features_of))


def token_places(tokens: PixelTokens, coordinates: Coordinates) -> tuple[IntArray, IntArray]:
    """Returns the picture of each token, ``(tokens,)``, -1 for none, and its rectangle there, ``(tokens, 4)``.

    A rectangle is left, top, right and bottom in pixels of the picture; all 0 for a token without a picture.
    """
    owners, boxes = np.full(tokens.count, -1), np.zeros((tokens.count, 4), dtype=np.int64)
    for number, size in enumerate(coordinates.sizes):
        is_mine = coordinates.pictures == number
        lines = _lattice_lines(coordinates, is_mine, size)
        if lines is None:
            found = _scattered_boxes(tokens, coordinates, is_mine, size)
        else:
            found = _lattice_places(tokens, lines, is_mine, size)
        has_place = (found[:, RIGHT] > 0) & (owners < 0)
        owners[has_place], boxes[has_place] = number, found[has_place]
        _refuse_small_patches(boxes[has_place], size)
    return owners, boxes


@dataclass(frozen=True)
class _Line:
    """How an index along one axis of a module's input gives a pixel of the picture."""

    axis: int
    first: float  # the first edge of index 0
    step: float  # pixels between neighbours


def _lattice_lines(coordinates: Coordinates, is_mine: Any, size: tuple[int, int]) -> tuple[_Line, _Line] | None:
    """Returns the line of rows and that of columns, if one axis of the input is rows and another is columns."""
    if not is_mine.any():
        return None
    places = np.nonzero(is_mine)
    lines: list[_Line] = []
    for shares, side, default in ((coordinates.down, size[1], -2), (coordinates.across, size[0], -1)):
        positions = shares[is_mine] * side
        best, least = _Line(default % is_mine.ndim, -side / 2, float(side)), np.inf
        for axis, indices in enumerate(places):
            if not np.ptp(indices) or (lines and axis == lines[0].axis):
                continue
            step, first_centre = np.polyfit(indices, positions, 1)
            deviation = np.quantile(np.abs(first_centre + step * indices - positions), STRAIGHT_SHARE)
            if deviation < least and deviation <= max(MAX_BEND * side, MAX_BEND_PIXELS, abs(step)):
                best, least = _Line(axis, float(first_centre - step / 2), float(step)), deviation
        is_one_place = is_mine.shape[best.axis] == 1 if is_mine.ndim > 1 else False
        if least == np.inf and not is_one_place:
            return None
        lines.append(best)
    return (lines[0], lines[1]) if lines[0].axis != lines[1].axis else None


def _lattice_places(tokens: PixelTokens, lines: tuple[_Line, _Line], is_mine: Any, size: tuple[int, int]) -> IntArray:
    """Returns the rectangles of tokens that are computed from an input with rows and columns, ``(tokens, 4)``."""
    axes = lines[0].axis, lines[1].axis
    numbers = np.moveaxis(tokens.numbers, axes, (-2, -1))
    if tokens.overlap:
        numbers = nearest_middles(numbers)
    numbers = np.where(np.moveaxis(is_mine, axes, (-2, -1)), numbers, NO_TOKEN)
    boxes = lattice_boxes(numbers, tokens.count)  # in pixels of the module's input
    has_place = boxes[:, RIGHT] > 0
    places = np.zeros((tokens.count, 4), dtype=np.int64)
    width, height = size
    for low, high, line, side in ((LEFT, RIGHT, lines[1], width), (TOP, BOTTOM, lines[0], height)):
        measured_edges = np.sort(line.first + line.step * boxes[has_place][:, [low, high]], axis=1)
        # Near the image's border, filters of the processor bend the measured line.
        margin = abs(line.step) / 2
        moved_to_far_border = np.where(measured_edges > side - margin, side, measured_edges)
        rounded_edges = np.rint(np.where(measured_edges < margin, 0, moved_to_far_border)).astype(np.int64)
        places[has_place, low], places[has_place, high] = rounded_edges.T
    lefts, tops = (np.unique(places[has_place, edge]) for edge in (LEFT, TOP))
    if tokens.overlap and len(lefts) * len(tops) != has_place.sum():
        raise UnknownPlacesError("patches overlap, and their middles are on no lattice")
    return places


def nearest_middles(numbers: IntArray) -> IntArray:
    """Returns for each pixel, on the last two axes, the token whose middle is nearest."""
    planes = numbers.reshape(-1, *numbers.shape[-2:]).max(axis=0)
    if (planes == NO_TOKEN).all():
        return numbers
    for axis, other in ((-2, 1), (-1, 0)):
        middles = np.flatnonzero((planes != NO_TOKEN).any(axis=other))
        distances = np.abs(middles - np.arange(numbers.shape[axis])[:, None])
        numbers = np.take(numbers, middles[distances.argmin(axis=1)], axis=axis)
    return numbers


def _scattered_boxes(tokens: PixelTokens, coordinates: Coordinates, is_mine: Any, size: tuple[int, int]) -> IntArray:
    """Returns the rectangles of tokens that are computed from numbers in any layout, as of flattened patches."""
    places = np.zeros((tokens.count, 4), dtype=np.int64)
    has_token = is_mine & (tokens.numbers != NO_TOKEN)
    owners = tokens.numbers[has_token]
    if len(owners):
        points = np.stack([coordinates.across[has_token], coordinates.down[has_token]], axis=1) * size
        lows, highs = np.full((tokens.count, 2), np.inf), np.full((tokens.count, 2), -np.inf)
        np.minimum.at(lows, owners, points)
        np.maximum.at(highs, owners, points)
        found = np.unique(owners)
        places[found] = _adjacent_boxes(np.concatenate([lows, highs], axis=1)[found], size)
    return places


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
    forward and two backward passes of the tower, and one run of the image processor plus three for each picture.
    """

    def features_of(pixel_values: "Tensor") -> "Tensor":
        features = features_among(module_arguments(model, module, {**inputs, "pixel_values": pixel_values}))
        assert features is not None
        return features.flatten(0, -2)  # (tokens, features); the tiles follow one another

    tokens = token_of_pixel(model, inputs["pixel_values"], features_of)
    coordinates = measured_coordinates(lambda pictures: {"pixels": process(pictures)}, sizes)
    if not coordinates:
        raise UnknownPlacesError(SAME_NUMBERS)
    return *token_places(tokens, coordinates["pixels"]), tokens.overlap


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


def grey_ramp(size: tuple[int, int], direction: Literal["across", "down"]) -> "PillowImage":
    """Returns an image that grows from black to white, to the right or downwards."""
    from PIL import Image as Pillow

    steps = size[0] if direction == "across" else size[1]
    shades = np.rint((np.arange(steps) + 0.5) / steps * WHITE).astype(np.uint8)
    line = Pillow.fromarray(shades[None] if direction == "across" else shades[:, None])
    return line.resize(size, Pillow.Resampling.NEAREST).convert("RGB")


def lattice_boxes(numbers: IntArray, count: int) -> Float64Array:
    """Returns left, top, right and bottom of each token on a lattice, ``(tokens, 4)``; all 0 for no place.

    Neighbours meet in the middle of a gap between them in which no patch was left out: a number there belongs to no
    token alone, or has no gradient.

    Args:
        numbers: ``(…, rows, columns)``, the token of each place of the lattice; -1 for none.
    """
    has_token = numbers != NO_TOKEN
    *_, rows, columns = np.nonzero(has_token)
    tokens, places = numbers[has_token], np.stack([columns, rows], axis=1)
    lows, highs = np.full((count, 2), max(numbers.shape)), np.zeros((count, 2), dtype=np.int64)
    np.minimum.at(lows, tokens, places)
    np.maximum.at(highs, tokens, places + 1)
    extents = np.where(highs[:, :1] > 0, np.concatenate([lows, highs], axis=1), 0)
    boxes, has_place = extents.astype(np.float64), extents[:, RIGHT] > 0
    for low, high in ((LEFT, RIGHT), (TOP, BOTTOM)):
        starts, stops = (np.unique(extents[has_place, side]) for side in (low, high))
        least_step = np.diff(starts).min(initial=max(numbers.shape))
        for stop, start in zip(stops, np.append(starts, -1)[np.searchsorted(starts, stops)], strict=True):
            if stop < start < stop + least_step:
                boxes[has_place & (extents[:, high] == stop), high] = (stop + start) / 2
                boxes[has_place & (extents[:, low] == start), low] = (stop + start) / 2
    return boxes
