"""Measures from which part of a sound a speech model computes each frame, or each patch of a spectrogram.

No model is known by name. For frames, two facts are measured and joined, as the places of patches are. *A click tells
the column*: where the extractor's output changes when one sample changes. *Own values*: the encoder runs with attention
that gives each query the value of its own key, and with convolutions that mix no frames, so that the gradient of a
frame reaches only the columns from which it is computed. The gradient's centre, of a few frames far apart in one pass,
lies on a line over the number of the frame.

A spectrogram whose patches are read, and no frames, is kept as an image, with time to the right and high bands at the
top, at most ``MAX_ASPECT`` times as wide as high; a patch's place is a rectangle of it. Patches may overlap. At a
number of the spectrogram that only one patch reads, the ratio of the gradients of `coded_gradients` is whole, and names
the patch. Neighbours meet in the middle between such numbers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.model_calls import same_draws, with_tensor
from attnviz.media.image import image_of
from attnviz.media.sound import Sound
from attnviz.models.places.image_places import lattice_boxes
from attnviz.models.places.token_inputs import (
    Axis,
    FeaturesOf,
    OwnFrameConvolution,
    OwnValueAttention,
    coded_gradients,
    features_at,
    projected_tokens,
    whole_token_numbers,
)
from attnviz.models.reading.media_tokens import frame_tokens, image_tokens
from attnviz.text.tokens import PADDING_LABEL, Tokens

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.media.image import Image

Extract = Callable[[FloatArray], "Tensor"]
CLICKS = (0.2, 0.5, 0.8)  # of the sound's length, where a sample is changed
PROBES, MIN_PROBES = 8, 3  # frames whose columns are measured
MAX_OUTSIDE = 8  # tokens before the frames, and after them, that are no frames
APART = 24  # frames between two probes at least, where there are more than MIN_PROBES
NOISE_LEVEL = 0.1  # standard deviation of the noise, as a share of full scale
MAX_CODE_ERROR = 1e-8  # from a whole number: float64 comes nearer, and a mean of several numbers hardly ever does
MAX_UNEVENNESS = 0.05  # of three clicks, as a share of their range
MIN_SAMPLES = 1600  # of a sound in which the columns of clicks can be told apart
MAX_ASPECT = 4  # width to height, above which rows of the image are repeated
MAX_UNREAD_SECONDS = 0.1  # at the end of a sound, where no window of the extractor fits
SHADES = (1, 99)  # the percentiles of the spectrogram that are drawn black and white
WHITE = 255
UNEVEN = "the model's frames do not follow each other evenly in time"
MAX_BEND = 0.5  # the largest distance of a frame from the line, as a share of the step between frames


class UnevenFramesError(AttnvizError):
    """The refusal of a model whose frames do not follow each other evenly in time."""

    def __init__(self) -> None:
        super().__init__(
            f"{UNEVEN}, and are no patches of a spectrogram; record it in Python with attnviz.record(model)"
        )


def measured_spans(encoder: "nn.Module", extract: Extract, length: int, name: str) -> IntArray:
    """Returns the first sample of each frame of an encoder's output and the one after its last, ``(frames, 2)``.

    Frames past the end of the sound begin at ``length`` or later. Costs about three forward passes of the encoder, and
    four runs of the extractor.
    """
    return frame_spans(encoder, extract, length, partial(_features_of_frames, encoder, name))[0]


def frame_spans(
    module: "nn.Module", extract: Extract, length: int, features_of: FeaturesOf
) -> tuple[IntArray, int, int]:
    """Returns the spans of frames, ``(frames, 2)``, and how many tokens that are no frames come before and after them.

    Adjacent spans meet in the middle between the centres of their frames.
    """
    # Noise, because models that normalize each frame amplify the gradient where a sound is silent.
    samples = _noise_of(length)
    features = extract(samples)
    time_axis, columns = _clicked_columns(features, extract, samples)
    clicks = np.array([int(share * len(samples)) for share in CLICKS])
    if not np.ptp(columns):
        raise UnevenFramesError
    step, first = np.polyfit(columns, clicks, 1)  # samples of a column, and the sample of column 0
    with projected_tokens(module, features, features_of) as (leaf, tokens):
        if not tokens.requires_grad:
            raise UnevenFramesError

        def hears(index: int) -> bool:
            [gradient] = torch.autograd.grad(tokens[index], leaf, retain_graph=True, materialize_grads=True)
            return bool(gradient.any())

        before = next((index for index in range(min(MAX_OUTSIDE, len(tokens))) if hears(index)), MAX_OUTSIDE)
        after = next((index for index in range(min(MAX_OUTSIDE, len(tokens))) if hears(-1 - index)), MAX_OUTSIDE)
        frames = tokens[before : len(tokens) - after]
        frame_count = len(frames)
        if frame_count < MIN_PROBES:
            raise UnevenFramesError
        probes = min(PROBES, max(MIN_PROBES, frame_count // APART))
        frame_indices = np.array(
            [int((part + 0.5) * frame_count / probes) for part in range(probes)]
        )  # the middle of each part
        width, frame_columns = max(leaf.shape[time_axis] // frame_count, 1), np.empty(probes)
        for probe, index in enumerate(frame_indices.tolist()):  # each by itself: patches of bands are not in order
            [gradient] = torch.autograd.grad(frames[index].sum(), leaf, retain_graph=True)
            sums = gradient.abs().movedim(time_axis, -1).reshape(-1, leaf.shape[time_axis]).sum(0)
            frame_columns[probe] = _centre_of_peak(sums.double().cpu().numpy(), width)
    frame_samples = first + step * frame_columns
    if not np.isfinite(frame_samples).all():
        raise UnevenFramesError
    frame_step, frame_first = np.polyfit(frame_indices, frame_samples, 1)
    deviations = np.abs(frame_first + frame_step * frame_indices - frame_samples)
    if frame_step <= 0 or deviations.max() > MAX_BEND * frame_step:
        raise UnevenFramesError
    edges = frame_first + frame_step * (np.arange(frame_count + 1) - 0.5)
    edges[0] = min(edges[0], 0)  # the samples before the first centre belong to the first frame
    whole_edges = np.maximum(np.rint(edges), 0).astype(np.int64)
    return np.stack([whole_edges[:-1], whole_edges[1:]], axis=1), before, after


@dataclass(eq=False)
class SoundAxes:
    """The tokens of the axes of maps, as one module computed them from a sound.

    Attributes:
        module: the module that was recorded.
        inputs: its arguments.
        argument: the name of the one among them that the sound sets.
        extract: returns this argument for samples.
        sound: the sound.
        length: how many samples the module's function read.
        reason: why the seconds of an axis are unknown, of the first such axis; "" for none.
    """

    module: "nn.Module"
    inputs: Mapping[str, Any]
    argument: str
    extract: Extract
    sound: Sound
    length: int
    reason: str = ""
    _measured: dict[tuple[object, ...], Tokens | None] = field(default_factory=dict)

    def placed(self, maps: "LayerMaps") -> "LayerMaps":
        """Returns maps with the frames of both axes; an axis of which nothing is known stays as it is."""
        shape = len(maps.query_tokens), len(maps.key_tokens)
        keys = self._frames(maps.module, "keys", shape) or maps.key_tokens
        is_shared = maps.kind == "self" and shape[0] == shape[1]
        queries = keys if is_shared else self._frames(maps.module, "queries", shape) or maps.query_tokens
        return replace(maps, query_tokens=queries, key_tokens=keys)

    def _frames(self, path: str, side: Axis, shape: tuple[int, int]) -> Tokens | None:
        """Returns the frames that are the queries or keys of attention in a part of the module; ``None`` for none."""

        def features_of(leaf: "Tensor") -> "Tensor":
            with same_draws(), OwnFrameConvolution():
                inputs = with_tensor(self.inputs, self.argument, leaf)
                features = features_at(self.module, [path], inputs, side, shape)
            if features is None:
                raise UnevenFramesError
            return features

        key = side, shape, path
        if key not in self._measured:
            try:
                spans, before, after = frame_spans(self.module, self.extract, self.length, features_of)
                samples = np.rint(spans * (self.sound.samples / self.length)).astype(np.int64)
                self._measured[key] = frame_tokens(self.sound, samples, before, after)
            except UnevenFramesError:  # which may be patches of a spectrogram: for these no one looks here
                self.reason, self._measured[key] = UNEVEN, None
        return self._measured[key]


def _noise_of(length: int) -> FloatArray:
    """Returns ``length`` samples of noise, equal in every call."""
    return (NOISE_LEVEL * np.random.default_rng(0).standard_normal(length)).astype(np.float32)


def _clicked_columns(features: "Tensor", extract: Extract, samples: FloatArray) -> tuple[int, Float64Array]:
    """Returns the axis of time of the features, and the mean column that each click changes, ``(clicks,)``.

    A click is one loud sample. Along the axis of time, the columns of the clicks are spaced most evenly.
    """
    values = features.double().cpu().numpy()
    changes = []
    for share in CLICKS:
        click_samples = samples.copy()
        click_samples[int(share * len(samples))] += 3 * np.abs(samples).max()  # louder than all others
        changes.append(np.abs(extract(click_samples).double().cpu().numpy() - values))
    columns = [np.array([_centre(change, axis) for change in changes]) for axis in range(1, values.ndim)]
    time_axis = int(np.argmin([_unevenness(centres) for centres in columns]))
    return 1 + time_axis, columns[time_axis]


def _unevenness(columns: Float64Array) -> float:
    """Returns the difference of the two steps between three columns, divided by their range.

    It is infinite if the range is one column or less.
    """
    extent = float(np.ptp(columns))
    return abs(float(columns[2] - 2 * columns[1] + columns[0])) / extent if extent > 1 else np.inf


def _centre(change: Float64Array, axis: int) -> float:
    """Returns the mean index along an axis, weighted by the change above the median; 0 if nothing changed."""
    sums = np.moveaxis(change, axis, -1).reshape(-1, change.shape[axis])
    excess = np.maximum(sums - np.median(sums, axis=1, keepdims=True), 0).sum(axis=0)
    return _centre_of_peak(excess) if excess.any() else 0.0


def _centre_of_peak(sums: Float64Array, width: int = 1) -> float:
    """Returns the mean index near the largest value, weighted by the values there; NaN if all values are 0."""
    peak = int(np.convolve(sums, np.ones(width), "same").argmax())
    around = slice(max(peak - 2 * width, 0), peak + 2 * width + 1)
    weights, indices = sums[around], np.arange(len(sums))[around]
    if not weights.any():
        return np.nan
    return float(weights @ indices / weights.sum())


def _features_of_frames(encoder: "nn.Module", name: str, features: "Tensor") -> "Tensor":
    """Returns the encoder's output, ``(frames, features)``, computed with `OwnFrameConvolution`."""
    with OwnFrameConvolution() as own_frames:
        output: Any = getattr(encoder(**{name: features}), "last_hidden_state", None)
    if output is None or output.dim() != 3:
        fault = "has no" if output is None else f"is {tuple(output.shape)}, not a"
        raise AttnvizError(
            f"the model's output {fault} sequence of frames, "
            "so the seconds of frames are not known; record the model in Python with attnviz.record(model)"
        )
    if own_frames.lengths and output.shape[1] not in own_frames.lengths:
        raise AttnvizError(
            f"attention runs over {max(own_frames.lengths)} frames, and the output has {output.shape[1]}, so the "
            "seconds of attention's frames are not known; record it in Python with attnviz.record(model)"
        )
    return output[0]  # type: ignore[no-any-return]


def spectrogram_tokens(
    encoder: "nn.Module", extract: Extract, samples: FloatArray, rate: int, title: str, name: str
) -> Tokens:
    """Returns the patches of a sound's spectrogram as tokens, labelled by second and band, such as ``0.24s b3``.

    Band 0 is the lowest. Patches after the end of the sound, and tokens such as ``[CLS]``, are special and have no
    place. Costs about five forward passes of the encoder, in float64.
    """
    features, noise = extract(samples), extract(_noise_of(len(samples)))
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
        gradient, coded_gradient, count = coded_gradients(encoder, exact_features, token_features, OwnValueAttention())
    finally:
        encoder.to(device)
    numbers = whole_token_numbers(gradient[0], coded_gradient[0], count, MAX_CODE_ERROR, max_unsure=1)
    assert numbers is not None
    boxes = lattice_boxes(_time_across(numbers, time_axis), count)
    has_place = boxes[:, 2] > 0
    edges = [np.unique(boxes[has_place, side]) for side in (0, 1)]
    if (
        has_place.sum() < 2 or len(edges[0]) * len(edges[1]) != has_place.sum()
    ):  # a lattice has a patch at each crossing
        raise UnevenFramesError
    seconds = np.maximum(first + step * (boxes[:, [0, 2]].mean(axis=1) - 0.5), 0) / rate
    is_in_sound = has_place & (boxes[:, [0, 2]].mean(axis=1) < width)
    places = np.where(is_in_sound[:, None], np.rint(boxes), 0).astype(np.int64)
    places[:, 2] = np.minimum(places[:, 2], width)
    tops = edges[1][::-1].tolist()
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
        samples = _noise_of(length)
        time_axis, columns = _clicked_columns(extract(samples), extract, samples)
        if _unevenness(columns) < MAX_UNEVENNESS:
            step, first = np.polyfit(columns, [int(share * length) for share in CLICKS], 1)
            return time_axis, float(step), float(first)
        length //= 2
    raise UnevenFramesError


def _time_across(values: Any, time_axis: int) -> Any:
    """Returns a spectrogram with time to the right and high bands at the top."""
    return (values.T if time_axis == 1 else values)[::-1]


def _image(spectrogram: Float64Array, title: str, seconds: float) -> "Image":
    """Returns a spectrogram as an image in shades of grey; each band has enough rows to stay within ``MAX_ASPECT``."""
    from PIL import Image as Pillow

    low, high = np.percentile(spectrogram, SHADES)
    shares = np.clip((spectrogram - low) / max(high - low, 1e-9), 0, 1)
    bands, columns = shares.shape
    grey = np.repeat(np.rint(shares * WHITE).astype(np.uint8), math.ceil(columns / bands / MAX_ASPECT), axis=0)
    return replace(image_of(Pillow.fromarray(grey), title), seconds=float(seconds))
