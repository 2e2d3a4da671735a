"""Measures where the tokens of a vision-language model stand in its pictures, as `patch_places` does for one image.

The input of such a model may be flattened patches, tiles and thumbnails of several pictures. So the place of every
single number of it is measured, and the pixels of a token are those numbers that its features depend on.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.models.huggingface.patch_places import (
    MIN_BLUE,
    WHITE,
    ramp_of,
    refuse_small_patches,
    shares_between,
    token_of_number,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn

Process = Callable[[Sequence["PillowImage"]], "Tensor"]
COLOUR_STEPS = 128
# The names under which modules get the features of tokens; a layer with cross-attention gets two, of keys first.
FEATURE_ARGUMENTS = ("cross_attention_states", "inputs_embeds", "hidden_states")
MAX_NEIGHBOUR_STEP = 1.5  # of the usual distance of two columns: farther ones have a gap between them
SAME_SIZE = 0.25  # boxes of one kind differ by less than this share of their sides; thumbnails and tiles differ by more


class _ModuleReached(Exception):
    """Ends a forward pass where a part of the model begins, with the arguments of the part by name."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


def module_arguments(model: "nn.Module", module: "nn.Module", inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, by name, of the model's first call of a part with features of tokens."""
    names = [name for name in inspect.signature(module.forward).parameters if name != "self"]

    def stop(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # torch calls this hook before the part
        arguments = dict(zip(names, args, strict=False)) | kwargs
        if _features_among(arguments) is not None:
            raise _ModuleReached(arguments)

    hook = module.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        model(**inputs)
    except _ModuleReached as reached:
        return reached.arguments
    finally:
        hook.remove()
    raise AttnvizError(
        f"places of pictures are not known: {type(module).__name__} gets no features of tokens; use "
        "attnviz.record(model) in Python"
    )


def _features_among(arguments: dict[str, Any]) -> "Tensor | None":
    """Returns the features of tokens among the arguments of a module; ``None`` if there are none."""
    tensors = (arguments.get(name) for name in (*FEATURE_ARGUMENTS, *arguments))
    # ``bool()`` is False, so arguments that are no tensors do not count.
    return next((tensor for tensor in tensors if getattr(tensor, "is_floating_point", bool)()), None)


def picture_places(
    model: "nn.Module",
    module: "nn.Module",
    inputs: dict[str, Any],
    process: Process,
    sizes: Sequence[tuple[int, int]],
) -> tuple[IntArray, IntArray, bool]:
    """Returns the picture of each token, ``(tokens,)``, -1 for none, its rectangle there, and whether tokens overlap.

    A rectangle, of ``(tokens, 4)``, is left, top, right and bottom in pixels of the picture; all 0 for a token without
    a picture. Those of tokens that overlap are the cells around their centres. Costs one
    forward and two backward passes of the tower, and two runs of the image processor plus one for each picture.
    """
    from PIL import Image as Pillow

    def features_of(pixel_values: "Tensor") -> "Tensor":
        features = _features_among(module_arguments(model, module, {**inputs, "pixel_values": pixel_values}))
        assert features is not None
        return features.flatten(0, -2)  # (tokens, features); the tiles follow one another

    tokens, count, overlap = token_of_number(model, inputs["pixel_values"], features_of)
    owners = _pixel_colours(tokens).max(axis=-1)
    black = _pixel_values(process, [Pillow.new("RGB", size) for size in sizes])
    white = _pixel_values(process, [Pillow.new("RGB", size, (WHITE,) * 3) for size in sizes])
    picture_numbers, boxes = np.full(count, -1), np.zeros((count, 4), dtype=np.int64)
    for number, size in enumerate(sizes):
        # The ramp replaces one picture, and the others are black, so that only the numbers of this one have blue.
        ramp_pictures = [Pillow.new("RGB", other_size) for other_size in sizes]
        ramp_pictures[number] = ramp_of(size)
        ramp = _pixel_values(process, ramp_pictures)
        colours = _pixel_colours(shares_between(ramp, black, white))
        is_inside = (owners >= 0) & (colours[..., 2] > MIN_BLUE)
        picture_tokens = np.unique(owners[is_inside])
        if len(picture_tokens):
            # Red and green are the place of a pixel, as shares of width and height.
            pixels = [colours[is_inside & (owners == token)][:, :2] * size for token in picture_tokens]
            extents = [np.concatenate([places.min(axis=0), places.max(axis=0)]) for places in pixels]
            picture_numbers[picture_tokens] = number
            boxes[picture_tokens] = _adjacent_boxes(np.array(extents), size)
            refuse_small_patches(boxes[picture_tokens], size)
    return picture_numbers, boxes, overlap


def _pixel_values(process: Process, pictures: "Sequence[PillowImage]") -> Float64Array:
    """Returns the pixels from the image processor as float64, in the shape of ``pixel_values``."""
    return np.asarray(process(pictures).double().cpu().numpy())


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
            edges = _shared_edges((lows + highs) / 2, side)
            moved_to_far_border = np.where(edges > size[axis] - margin, size[axis], edges)
            boxes[tokens, axis], boxes[tokens, axis + 2] = np.where(edges < margin, 0, moved_to_far_border)
        remaining = remaining[~is_same_size]
    return np.rint(boxes).astype(np.int64)


def _shared_edges(centres: Float64Array, side: float) -> Float64Array:
    """Returns the low and the high edge of each token along an axis, ``(2, tokens)``."""
    order = np.argsort(centres, kind="stable")
    column_of_token = np.empty(len(centres), dtype=np.int64)
    column_of_token[order] = np.cumsum(np.diff(centres[order], prepend=centres[order[0]]) > side / 2)
    columns = np.bincount(column_of_token, centres) / np.bincount(column_of_token)
    steps = np.diff(columns)
    pitch = float(np.median(steps)) if len(steps) else side
    lows, highs = columns - pitch / 2, columns + pitch / 2
    are_neighbours = steps < MAX_NEIGHBOUR_STEP * pitch
    middles = (columns[1:] + columns[:-1]) / 2  # each rounded once, so that no pixel is left between two tokens
    highs[:-1] = np.where(are_neighbours, middles, highs[:-1])
    lows[1:] = np.where(are_neighbours, middles, lows[1:])
    return np.stack([lows[column_of_token], highs[column_of_token]])
