"""Measures the rectangle of an image that each token of a vision model was made of; no model or grid is known by name.

Two facts are measured and joined. *Colours are coordinates*: the image processor reads an image whose red says how far
right a pixel is, and whose green says how far down, so that every number of its output tells its place in the original.
*Own values*: the model runs with attention that gives each query the value of its own key. Nothing mixes tokens then,
so the gradient of a token reaches only the pixels that it was made of. Of Σ yⱼ and Σ j·yⱼ, with yⱼ a random projection
of token j, the gradients at a pixel have the ratio j, which is the number of the pixel's token.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn

Process = Callable[["PillowImage"], "Tensor"]
NO_TOKEN = -1
MIN_GRADIENT = 1e-3  # of the largest; smaller gradients are noise of float32
MAX_CODE_ERROR = 0.2  # how far a token's measured number may be from a whole number
MAX_UNSURE = 0.05  # share of pixels without a whole number from which on tokens overlap
MAX_BEND = 0.02  # of the image's side: how far the processor may deviate from a linear map
MIN_BLUE = 0.5  # share of blue from which on a pixel is part of the image and not of its padding


class OwnValues(TorchFunctionMode):
    """Attention that gives each query the value of its own key."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Replaces the call of an attention kernel, and a softmax over as many keys as queries."""
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            names = ("query", "key", "value")
            query, _, value = (args[at] if at < len(args) else named[name] for at, name in enumerate(names))
            if query.dim() == 4 and query.shape[-2] == value.shape[-2]:
                return value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        if name == "softmax" and args and args[0].dim() >= 3 and args[0].shape[-1] == args[0].shape[-2]:
            return torch.eye(args[0].shape[-1], dtype=args[0].dtype, device=args[0].device).expand(args[0].shape)
        return func(*args, **named)


def measured_places(module: "nn.Module", pixels: "Tensor", process: Process, size: tuple[int, int]) -> IntArray:
    """Returns left, top, right and bottom of each token in pixels of the image, ``(tokens, 4)``; 0 for no place.

    Costs about three forward passes, and three runs of the image processor.

    Args:
        module: a vision model whose output has ``last_hidden_state``, ``(1, tokens, features)``.
        pixels: its input, ``(1, 3, rows, columns)``.
        process: the image processor.
        size: width and height of the image.

    Raises:
        AttnvizError: if tokens overlap, or the processor cuts the image into tiles.
    """
    if pixels.dim() != 4 or pixels.shape[:2] != (1, 3):
        raise AttnvizError(
            f"the image processor gives numbers of shape {tuple(pixels.shape)}, and attnviz needs one image of "
            "(1, 3, rows, columns); record the model in Python with attnviz.record(model)"
        )
    owners, count = token_of_pixel(module, pixels)
    across, down, inside = _lines(process, size, pixels.shape[2:])
    owners = np.where(inside, owners, NO_TOKEN)
    cells = np.array([_extent(owners == token) for token in range(count)])
    placed = cells[:, 2] > 0
    places = np.zeros((count, 4), dtype=np.int64)
    for low, high, (first, step), side in ((0, 2, across, size[0]), (1, 3, down, size[1])):
        edges = _closed(cells[placed][:, [low, high]])
        places[placed, low], places[placed, high] = _snapped(first + step * edges, side, abs(step) / 2).T
    return places


def _snapped(edges: Float64Array, side: int, near: float) -> IntArray:
    """Returns edges in whole pixels within the image; the borders draw those that are near, where filters bend."""
    edges = np.where(edges < near, 0, np.where(edges > side - near, side, edges))
    return np.rint(edges).astype(np.int64)


def token_of_pixel(module: "nn.Module", pixels: "Tensor") -> tuple[IntArray, int]:
    """Returns the number of each pixel's token, ``(rows, columns)``, and the number of tokens; -1 for no token.

    Raises:
        AttnvizError: if pixels belong to several tokens, or the model has no row of tokens, or shuffles them.
    """
    dtype = pixels.dtype
    half = dtype in (torch.float16, torch.bfloat16)  # too coarse for the numbers; they become float32 without a loss
    given = (pixels.float() if half else pixels).detach().clone().requires_grad_(True)
    module.float() if half else None
    try:
        with torch.inference_mode(False), torch.enable_grad(), OwnValues():
            features = _features(module, given)[0]
            directions = torch.randn(features.shape[-1], generator=torch.Generator().manual_seed(1))
            tokens = (features * directions.to(features)).sum(-1)
            codes = torch.arange(1, len(tokens) + 1).to(tokens)
            (single,) = torch.autograd.grad(tokens.sum(), given, retain_graph=True)
            (coded,) = torch.autograd.grad((tokens * codes).sum(), given)
    finally:
        module.to(dtype) if half else None
    return _whole_numbers(single[0].double().cpu().numpy(), coded[0].double().cpu().numpy()), len(tokens)


def _features(module: "nn.Module", pixels: "Tensor") -> "Tensor":
    """Returns the features of each token, ``(1, tokens, features)``."""
    drawn = torch.get_rng_state()
    features: Tensor | None = getattr(module(pixel_values=pixels), "last_hidden_state", None)
    if features is None or features.dim() != 3:
        raise AttnvizError(
            "the model's output is no row of tokens, so that their places are not known; record it in Python with "
            "attnviz.record(model)"
        )
    if not torch.equal(drawn, torch.get_rng_state()):
        raise AttnvizError(
            "the model draws random numbers, as to leave out patches, so that places change; set its "
            "mask_ratio to 0 and use a model without random order"
        )
    return features


def _whole_numbers(single: Float64Array, coded: Float64Array) -> IntArray:
    """Returns the ratio of two gradients as token numbers, ``(rows, columns)``, from those of three colours."""
    known = np.abs(single) > MIN_GRADIENT * np.abs(single).max()
    ratio = np.divide(coded, single, out=np.zeros_like(coded), where=known)
    whole = np.abs(ratio - np.rint(ratio)) < MAX_CODE_ERROR
    if (known & ~whole).sum() > MAX_UNSURE * known.sum():
        raise AttnvizError(
            "each pixel belongs to several tokens of this model, as in models with overlapping patches; their places "
            "are not known, so record the model in Python with attnviz.record(model)"
        )
    numbers = np.where(known & whole, np.rint(ratio).astype(np.int64) - 1, NO_TOKEN)
    return np.asarray(numbers.max(axis=0))


def _lines(process: Process, size: tuple[int, int], shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Returns how columns and rows of the model's input stand in the image, and which of its pixels are of the image.

    The first two are the place of the left (upper) edge of the first pixel, and the distance of two pixels.
    """
    from PIL import Image as Pillow

    black, white, coded = (
        process(image)[0].double().cpu().numpy()
        for image in (Pillow.new("RGB", size), Pillow.new("RGB", size, (255, 255, 255)), _ramp(size))
    )
    span = white - black
    part = np.divide(coded - black, span, out=np.zeros_like(span), where=np.abs(span) > 1e-6)
    inside = part[2] > MIN_BLUE
    if not inside.any():
        raise AttnvizError("the image processor leaves nothing of the image; check its settings")
    rows, columns = np.indices(shape)
    lines = []
    for places, numbers, side in ((columns, part[0], size[0]), (rows, part[1], size[1])):
        step, middle = np.polyfit(places[inside], numbers[inside] * side, 1) if np.ptp(places[inside]) else (side, 0)
        bend = np.abs(middle + step * places - numbers * side)[inside]
        if np.quantile(bend, 0.95) > max(MAX_BEND * side, abs(step)):
            raise AttnvizError(
                "the image processor does more than resize, crop and pad, as when it cuts tiles; record the model in "
                "Python with attnviz.record(model)"
            )
        lines.append((middle - step / 2, step))
    return lines[0], lines[1], inside


def _ramp(size: tuple[int, int]) -> "PillowImage":
    """Returns an image that is red on the right and green at the bottom, with as much blue everywhere."""
    from PIL import Image as Pillow

    width, height = size
    right, down = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    return Pillow.fromarray(np.rint(np.stack([right, down, np.ones_like(right)], -1) * 255).astype(np.uint8))


def _extent(owned: Any) -> tuple[int, int, int, int]:
    """Returns the first and one past the last column and row of a token's pixels, as left, top, right, bottom."""
    columns, rows = np.flatnonzero(owned.any(axis=0)), np.flatnonzero(owned.any(axis=1))
    if not len(columns):
        return 0, 0, 0, 0
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _closed(spans: IntArray) -> Float64Array:
    """Returns spans, ``(tokens, 2)``, that meet: a gap of pixels without a gradient is divided between neighbours."""
    edges = spans.astype(np.float64)
    starts, stops = (np.unique(spans[:, side]) for side in (0, 1))
    for stop in stops:
        later = starts[starts >= stop]
        if len(later) and later[0] > stop:
            middle = (stop + later[0]) / 2
            edges[:, 1][spans[:, 1] == stop] = middle
            edges[:, 0][spans[:, 0] == later[0]] = middle
    return edges
