"""Measures the rectangle of an image from which a vision model computes each token; no model or grid is known by name.

Two facts are measured and joined. *Colours are coordinates*: the image processor reads an image whose red says how far
right a pixel is, and whose green says how far down, so that every number of its output tells its place in the original.
*Own values*: the model runs with attention that gives each query the value of its own key. Attention then mixes no
tokens, so that the gradient of a token reaches only the pixels from which it is computed. With yⱼ a random projection
of token j, the gradients of Σ j·yⱼ and Σ yⱼ at a pixel have the ratio j, which is the number of the pixel's token.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn

Process = Callable[["PillowImage"], "Tensor"]
NO_TOKEN = -1
LEFT, TOP, RIGHT, BOTTOM = range(4)  # columns of an array of rectangles
MIN_GRADIENT = 1e-3  # as a share of the largest gradient; smaller ones are noise of float32
MAX_CODE_ERROR = 0.2  # the largest distance of a token's measured number from a whole number
MAX_UNSURE = 0.05  # tokens overlap if a larger share of pixels has no whole number
MAX_BEND = 0.02  # the largest deviation of the processor from a linear map, as a share of the image's side
MIN_CONTRAST = 1e-6  # between white and black in a number of the processor's output; smaller ones are rounding
MAX_BEND_PIXELS = 0.5  # its least allowed deviation: filters bend the line by half a pixel at the image's border
STRAIGHT_SHARE = 0.95  # of pixels must lie near the line; filters of the processor bend it at the image's border
WHITE = 255
MIN_BLUE = 0.5  # a pixel with a smaller share of blue belongs to the padding


class UnknownPlacesError(AttnvizError):
    """The model or its image processor does not give each token a part of the image; the message says why."""


class OwnValueAttention(TorchFunctionMode):
    """Attention that gives each query the value of its own key, and nothing if the keys are other tokens."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the result of a function of torch, with attention replaced.

        An attention kernel with as many queries as keys returns its values, repeated for each query head. A softmax
        over square scores returns the identity. With another number of keys, as for latents that read an image, both
        return zeros. Other functions run unchanged.
        """
        arguments = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            query = args[0] if args else arguments["query"]
            value = args[2] if len(args) > 2 else arguments["value"]
            if query.dim() == 4:  # (batch, heads, tokens, features)
                if query.shape[-2] != value.shape[-2]:  # keys of other tokens add nothing
                    return value.new_zeros(*query.shape[:-1], value.shape[-1])
                return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        if name == "softmax" and args and args[0].dim() >= 3:
            scores = args[0]
            query_count, key_count = scores.shape[-2:]
            if query_count == key_count:
                return torch.eye(key_count, dtype=scores.dtype, device=scores.device).expand(scores.shape)
            if scores.dim() == 4:  # (batch, heads, queries, keys)
                return torch.zeros_like(scores)
        return func(*args, **arguments)


class _CentralTaps(OwnValueAttention):
    """The same attention, and convolutions that read only the middle of windows that overlap.

    A token then reaches the middle pixel of the windows from which it is computed.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the result of a function of torch, with attention and 2-D convolutions replaced."""
        if getattr(func, "__name__", "") == "conv2d" and len(args) > 3:  # input, weight, bias, stride, …
            strides = (args[3],) * 2 if isinstance(args[3], int) else args[3]
            args = (args[0], _central_taps(args[1], strides), *args[2:])
        return super().__torch_function__(func, types, args, kwargs)


def _central_taps(weight: "Tensor", strides: Sequence[int]) -> "Tensor":
    """Returns the weight of a convolution, with zeros beside the middle of each axis whose windows overlap."""
    is_kept = torch.zeros_like(weight)
    rows, columns = (
        slice((size - 1) // 2, (size - 1) // 2 + 1) if size > stride else slice(None)
        for size, stride in zip(weight.shape[2:], strides, strict=True)
    )
    is_kept[:, :, rows, columns] = 1
    return weight * is_kept


@dataclass(frozen=True, eq=False)
class PixelTokens:
    """The token of each pixel of a model's input.

    Attributes:
        numbers: ``(rows, columns)``, the number of the token; -1 for none.
        count: the number of tokens.
        overlap: true if tokens overlap, so that these are the cells around their centres.
    """

    numbers: IntArray
    count: int
    overlap: bool


def measured_places(
    module: "nn.Module",
    pixels: "Tensor",
    process: Process,
    size: tuple[int, int],
    measured_pixels: dict[tuple[int, ...], PixelTokens] | None = None,
) -> IntArray:
    """Returns left, top, right and bottom of each token, ``(tokens, 4)`` in pixels of the image; all 0 for no place.

    The place of a token that overlaps others is the cell around its centre. Costs about three forward passes, or six
    for such tokens, and three runs of the image processor.
    """
    if pixels.dim() != 4 or pixels.shape[:2] != (1, 3):
        raise UnknownPlacesError(
            f"the image processor gives numbers of shape {tuple(pixels.shape)}, and not one image of "
            "(1, 3, rows, columns)"
        )
    results = {} if measured_pixels is None else measured_pixels
    shape = tuple(pixels.shape)
    if shape not in results:
        results[shape] = token_of_pixel(module, pixels)
    numbers, count = results[shape].numbers, results[shape].count

    column_line, row_line, is_inside = _pixel_lines(process, size, pixels.shape[2:])
    extents = np.array([extent_of(is_inside & (numbers == token)) for token in range(count)])
    has_place = extents[:, RIGHT] > 0
    if not has_place.any():
        raise UnknownPlacesError("no token of the model's output belongs to a part of the image alone")
    places = np.zeros((count, 4), dtype=np.int64)
    width, height = size
    for low, high, (first_edge, step), side in ((LEFT, RIGHT, column_line, width), (TOP, BOTTOM, row_line, height)):
        edges = without_gaps(extents[has_place][:, [low, high]])  # in pixels of the model's input
        measured_edges = first_edge + step * edges
        # Near the image's border, filters of the processor bend the measured line.
        margin = abs(step) / 2
        moved_to_far_border = np.where(measured_edges > side - margin, side, measured_edges)
        rounded_edges = np.rint(np.where(measured_edges < margin, 0, moved_to_far_border)).astype(np.int64)
        places[has_place, low], places[has_place, high] = rounded_edges.T
    refuse_small_patches(places[has_place], size)
    return places


def refuse_small_patches(boxes: IntArray, size: tuple[int, int]) -> None:
    """Raises AttnvizError if a rectangle is empty, since its patch is smaller than a pixel of the image."""
    if (boxes[:, [RIGHT, BOTTOM]] <= boxes[:, [LEFT, TOP]]).any():
        raise AttnvizError(
            f"an image of {size[0]} x {size[1]} pixels is too small or too thin: the model's patches are smaller than "
            "its pixels; crop or enlarge it"
        )


def token_of_pixel(module: "nn.Module", pixels: "Tensor") -> PixelTokens:
    """Returns the token of each pixel; of tokens that overlap, the one whose centre is nearest."""
    numbers, count, overlap = token_of_number(module, pixels, lambda leaf: _token_features(module, leaf)[0])
    pixel_numbers = numbers[0].max(axis=0)  # of red, green and blue
    return PixelTokens(_nearest_tokens(pixel_numbers) if overlap else pixel_numbers, count, overlap)


def token_of_number(
    module: "nn.Module", pixels: "Tensor", features_of: Callable[["Tensor"], "Tensor"]
) -> tuple[IntArray, int, bool]:
    """Returns the token of each number of ``pixels``, -1 for none, how many tokens there are, and if they overlap.

    Of tokens that overlap because of convolutions, only the middle has numbers.

    Args:
        features_of: returns the features of each token, ``(tokens, features)``, for pixels.
    """
    for attention in (OwnValueAttention, _CentralTaps):
        gradient, coded_gradient, count = coded_gradients(module, pixels, features_of, attention)
        numbers = whole_token_numbers(gradient, coded_gradient)
        if numbers is not None:
            return numbers, count, attention is _CentralTaps
    raise UnknownPlacesError("each pixel belongs to several tokens of this model")


def _nearest_tokens(numbers: IntArray) -> IntArray:
    """Returns the token whose middle is nearest to each pixel, ``(rows, columns)``; -1 for all pixels without
    tokens.
    """
    is_middle = numbers != NO_TOKEN
    if not is_middle.any():
        return numbers
    rows, columns = (np.flatnonzero(is_middle.any(axis=axis)) for axis in (1, 0))
    nearest_row, nearest_column = (
        places[np.abs(places - np.arange(size)[:, None]).argmin(axis=1)]
        for places, size in zip((rows, columns), numbers.shape, strict=True)
    )
    return numbers[np.ix_(nearest_row, nearest_column)]


def coded_gradients(
    module: "nn.Module",
    pixels: "Tensor",
    features_of: Callable[["Tensor"], "Tensor"],
    attention: type[OwnValueAttention] = OwnValueAttention,
) -> tuple[Float64Array, Float64Array, int]:
    """Returns the gradients of Σ yⱼ and of Σ (j + 1) yⱼ with respect to the pixels, and the number of tokens.

    yⱼ is the projection of the features of token j on a random direction. At a pixel of token j alone, the second
    gradient divided by the first is j + 1.

    Args:
        features_of: returns the features of each token, ``(tokens, features)``, for pixels.
    """
    dtype = torch.promote_types(pixels.dtype, torch.float32)
    leaf = pixels.detach().to(dtype, copy=True).requires_grad_()
    with (
        in_precision(module, dtype),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        attention(),
    ):
        features = features_of(leaf)
        directions = torch.randn(features.shape[-1], generator=torch.Generator().manual_seed(1))
        projections = (features * directions.to(features)).sum(-1)
        codes = torch.arange(1, len(projections) + 1).to(projections)
        if not projections.requires_grad:  # no pixel reaches a token
            return np.zeros(leaf.shape), np.zeros(leaf.shape), len(projections)
        (gradient,) = torch.autograd.grad(projections.sum(), leaf, retain_graph=True, materialize_grads=True)
        (coded_gradient,) = torch.autograd.grad((projections * codes).sum(), leaf, materialize_grads=True)
    return gradient.double().cpu().numpy(), coded_gradient.double().cpu().numpy(), len(projections)


@contextmanager
def in_precision(module: "nn.Module", dtype: torch.dtype) -> Iterator[None]:
    """Converts weights and buffers of a lower precision to ``dtype``; restores each old dtype after the block.

    The conversion loses no values. Tensors of ``dtype``, such as rotary frequencies in float32, are not changed.
    """
    precision = torch.finfo(dtype).eps
    dtypes = [(tensor, tensor.dtype) for tensor in chain(module.parameters(), module.buffers())]
    dtypes = [(tensor, old) for tensor, old in dtypes if old.is_floating_point and torch.finfo(old).eps > precision]
    for tensor, _ in dtypes:
        tensor.data = tensor.data.to(dtype)
    try:
        yield
    finally:
        for tensor, old in dtypes:
            tensor.data = tensor.data.to(old)


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


def whole_token_numbers(
    gradient: Float64Array,
    coded_gradient: Float64Array,
    max_code_error: float = MAX_CODE_ERROR,
    max_unsure: float = MAX_UNSURE,
) -> IntArray | None:
    """Returns the token index of each input value, in the shape of the gradients; -1 for none or several tokens.

    Returns ``None`` if a larger share of the input values than ``max_unsure`` belongs to several tokens.
    """
    has_gradient = np.abs(gradient) > MIN_GRADIENT * np.abs(gradient).max()
    ratio = np.divide(coded_gradient, gradient, out=np.zeros_like(coded_gradient), where=has_gradient)
    is_whole = np.abs(ratio - np.rint(ratio)) < max_code_error
    if (has_gradient & ~is_whole).sum() > max_unsure * has_gradient.sum():
        return None
    return np.where(has_gradient & is_whole, np.rint(ratio).astype(np.int64) - 1, NO_TOKEN)


def _pixel_lines(process: Process, size: tuple[int, int], input_shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Measures where the pixels of the model's input lie in the image."""
    from PIL import Image as Pillow

    black, white, ramp = (
        process(image)[0].double().cpu().numpy()
        for image in (Pillow.new("RGB", size), Pillow.new("RGB", size, (WHITE,) * 3), ramp_of(size))
    )
    shares = shares_between(ramp, black, white)
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


def shares_between(numbers: Float64Array, black: Float64Array, white: Float64Array) -> Float64Array:
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


def extent_of(mask: BoolArray) -> tuple[int, int, int, int]:
    """Returns left, top, right and bottom of a token's pixels, the last two one past the end; all 0 for no pixels.

    ``mask`` is True at the token's pixels, ``(rows, columns)``.
    """
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    if not len(columns):
        return 0, 0, 0, 0
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def without_gaps(spans: IntArray) -> Float64Array:
    """Returns the spans of tokens along an axis without gaps between them, ``(tokens, 2)``.

    At a gap, the end before it and the start after it are moved to its middle: pixels there belong to no token, because
    they have no gradient.

    Args:
        spans: ``(tokens, 2)``, the first pixel of each token and the one after its last.
    """
    edges = spans.astype(np.float64)
    starts, stops = (np.unique(spans[:, side]) for side in (0, 1))
    for stop in stops:
        later_starts = starts[starts >= stop]
        if len(later_starts) and later_starts[0] > stop:
            middle = (stop + later_starts[0]) / 2
            edges[:, 1][spans[:, 1] == stop] = middle
            edges[:, 0][spans[:, 0] == later_starts[0]] = middle
    return edges
