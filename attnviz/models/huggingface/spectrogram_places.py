"""Measures the seconds and the bands of each patch of a spectrogram; no model or lattice is known by name.

The spectrogram is kept as an image, with time to the right and high bands at the top, at most ``MAX_ASPECT`` times as
wide as high; a patch's place is a rectangle of it. Patches may overlap. At a number of the spectrogram that only one
patch reads, the ratio of the gradients of `coded_gradients` is whole, and names the patch. Neighbours meet in the
middle between such numbers.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.media.image_file import image_of
from attnviz.models.huggingface.frame_times import (
    CLICKS,
    Extract,
    UnevenFramesError,
    clicked_columns,
    noise_of,
    unevenness,
)
from attnviz.models.huggingface.image_reader import image_tokens
from attnviz.models.huggingface.patch_places import coded_gradients, extent_of, whole_token_numbers, without_gaps
from attnviz.text.tokens import PADDING_LABEL, Tokens

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnviz.base.arrays import FloatArray
    from attnviz.media.image import Image

MAX_CODE_ERROR = 1e-8  # from a whole number: float64 comes nearer, and a mean of several numbers hardly ever does
MAX_UNEVENNESS = 0.05  # of three clicks, as a share of their range
MIN_SAMPLES = 1600  # of a sound in which the columns of clicks can be told apart
MAX_ASPECT = 4  # width to height, above which rows of the image are repeated
MAX_UNREAD_SECONDS = 0.1  # at the end of a sound, where no window of the extractor fits
SHADES = (1, 99)  # the percentiles of the spectrogram that are drawn black and white
WHITE = 255


def spectrogram_tokens(
    encoder: "nn.Module", extract: Extract, samples: "FloatArray", rate: int, title: str, name: str
) -> Tokens:
    """Returns the patches of a sound's spectrogram as tokens, labelled by second and band, such as ``0.24s b3``.

    Band 0 is the lowest. Patches after the end of the sound, and tokens such as ``[CLS]``, are special and have no
    place. Costs about five forward passes of the encoder, in float64.

    Raises:
        UnevenFramesError: if the features are no spectrogram, or its patches are no lattice.
        AttnvizError: if the extractor cuts off the end of the sound.
    """
    features, noise = extract(samples), extract(noise_of(len(samples)))
    if features.dim() != 3 or features.shape != noise.shape:
        raise UnevenFramesError
    time_axis, step, first = _columns_in_time(extract, len(samples))
    spectrogram = _time_across(features[0].double().cpu().numpy(), time_axis)
    # Columns of padding are the same for every sound.
    is_heard = (spectrogram != _time_across(noise[0].double().cpu().numpy(), time_axis)).any(axis=0)
    width = int(np.flatnonzero(is_heard)[-1]) + 1
    read_seconds = (first + step * (width - 0.5)) / rate
    if len(samples) / rate > read_seconds + MAX_UNREAD_SECONDS:
        raise AttnvizError(
            f"the sound lasts {len(samples) / rate:.1f} s, and the model reads {read_seconds:.1f} s at once; "
            "cut it into parts"
        )
    numbers, count = _patch_numbers(encoder, features, name)
    boxes = _boxes(_time_across(numbers, time_axis), count)
    has_place = boxes[:, 2] > 0
    seconds = np.maximum(first + step * (boxes[:, [0, 2]].mean(axis=1) - 0.5), 0) / rate
    is_in_sound = has_place & (boxes[:, [0, 2]].mean(axis=1) < width)
    places = np.where(is_in_sound[:, None], np.rint(boxes), 0).astype(np.int64)
    places[:, 2] = np.minimum(places[:, 2], width)
    tops = np.unique(boxes[has_place, 1])[::-1].tolist()
    image = _image(spectrogram[:, :width], f"{title}, spectrogram of {read_seconds:.2f} s", read_seconds)
    places[:, [1, 3]] *= image.height // len(spectrogram)
    tokens = image_tokens(image, places)
    labels = [
        f"{second:.2f}s b{tops.index(top)}" if in_sound else PADDING_LABEL if placed else label
        for label, second, top, in_sound, placed in zip(
            tokens.labels, seconds, boxes[:, 1].tolist(), is_in_sound, has_place, strict=True
        )
    ]
    return replace(tokens, labels=tuple(labels))


def _columns_in_time(extract: Extract, length: int) -> tuple[int, float, float]:
    """Returns the features' axis of time, the number of samples per column, and the sample at the middle of column
    0.
    """
    while length >= MIN_SAMPLES:
        samples = noise_of(length)
        time_axis, columns = clicked_columns(extract(samples), extract, samples)
        if unevenness(columns) < MAX_UNEVENNESS:
            step, first = np.polyfit(columns, [int(share * length) for share in CLICKS], 1)
            return time_axis, float(step), float(first)
        length //= 2
    raise UnevenFramesError


def _time_across(values: Any, time_axis: int) -> Any:
    """Returns a spectrogram with time to the right and high bands at the top."""
    return (values.T if time_axis == 1 else values)[::-1]


def _patch_numbers(encoder: "nn.Module", features: "Tensor", name: str) -> tuple[IntArray, int]:
    """Returns the token that alone reads each input value, -1 for none, and the number of tokens."""
    device = features.device
    exact_device = "cpu" if device.type == "mps" else device  # which has no float64

    def token_features(leaf: "Tensor") -> "Tensor":
        output: Any = getattr(encoder(**{name: leaf}), "last_hidden_state", None)
        if output is None or output.dim() != 3:
            raise UnevenFramesError
        return output[0]  # type: ignore[no-any-return]

    encoder.to(exact_device)
    try:
        exact_features = features.to(device=exact_device, dtype=torch.float64)
        gradient, coded_gradient, count = coded_gradients(encoder, exact_features, token_features)
    finally:
        encoder.to(device)
    numbers = whole_token_numbers(gradient[0], coded_gradient[0], MAX_CODE_ERROR, max_unsure=1)
    assert numbers is not None
    return numbers, count


def _boxes(numbers: IntArray, count: int) -> Float64Array:
    """Returns left, top, right and bottom of each patch, ``(tokens, 4)``, in columns and bands; all 0 for no place."""
    boxes = np.array([extent_of(numbers == token) for token in range(count)], dtype=np.float64)
    has_place = boxes[:, 2] > 0
    if has_place.sum() < 2:
        raise UnevenFramesError
    for sides in ([0, 2], [1, 3]):
        spans = boxes[:, sides]
        spans[has_place] = without_gaps(spans[has_place].astype(np.int64))
        boxes[:, sides] = spans
    placed_count, corners = int(has_place.sum()), (np.unique(boxes[has_place, side]) for side in (0, 1))
    if np.prod([len(edges) for edges in corners]) != placed_count:  # a lattice has a patch at each crossing
        raise UnevenFramesError
    return boxes


def _image(spectrogram: Float64Array, title: str, seconds: float) -> "Image":
    """Returns a spectrogram as an image in shades of grey; each band has enough rows to stay within ``MAX_ASPECT``."""
    from PIL import Image as Pillow

    low, high = np.percentile(spectrogram, SHADES)
    shares = np.clip((spectrogram - low) / max(high - low, 1e-9), 0, 1)
    bands, columns = shares.shape
    grey = np.repeat(np.rint(shares * WHITE).astype(np.uint8), math.ceil(columns / bands / MAX_ASPECT), axis=0)
    return replace(image_of(Pillow.fromarray(grey), title), seconds=float(seconds))
