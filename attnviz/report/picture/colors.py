"""Maps values to colours, and colours to a legible ink: one table for every renderer."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.base.errors import AttnvizError, did_you_mean

Rgb = tuple[int, int, int]
Steps = Literal["linear", "sqrt", "log"]

# One colour language in every medium: zero is the paper, and a number is ink of one hue on it; changes are ink of two
# hues. Colours lie on straight lines from paper to ink, which is what ink of that opacity over the paper gives, and
# their steps are even to the eye (a test measures them in CIELAB).
SEQUENTIAL, DIVERGING = "ink", "change"
ON_DARK_PAPER = "-dark"  # ends the name of a colormap's variant for dark paper
SAMPLES = {  # evenly spaced colours, between which others are interpolated
    SEQUENTIAL: "ffffff 2a30a0",
    SEQUENTIAL + ON_DARK_PAPER: "16191f 9aa8ff",
    DIVERGING: "1d5b9e ffffff b0243a",
    DIVERGING + ON_DARK_PAPER: "7db8f0 16191f ff968c",
}
NAN = (255, 0, 200)
MIN_TICK_SHARE = 0.85  # smallest distance of two ticks, as a share of the distance of evenly spaced ones
# Under colours, an image fades to white by this share, so that colours are ink on a pale print; or to black, where the
# colour of zero is dark, so that they are light on a dim one. No photograph is then as dark as ink, or as bright as
# light. Where no visible patch lies, it fades again, by the second share.
FADED, ABSENT_FADED = 0.65, 0.5
LOG_RANGE = 1e-4  # where logarithmic steps begin, as a share of the largest value


@dataclass(frozen=True)
class ColorScale:
    """A scale from ``low`` to ``high`` through a colormap, in linear, square-root or logarithmic steps.

    Values outside the limits get the colour of the nearer end.
    """

    low: float  # the value at the start of the colormap
    high: float  # the value at its end
    colormap: str = SEQUENTIAL  # the name of the colormap
    steps: Steps = "linear"  # ``linear``, ``sqrt`` or ``log``
    clipped: bool = False  # True if some drawn values lie above ``high``
    signed: bool = False  # True for changes: zero is in the middle of the scale, and the steps run outwards from it
    grey: float | None = None  # the brightness of the image under the colours, 0 to 255; ``None`` for colours on paper

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise AttnvizError(f"limits {self.low:g}:{self.high:g} are not a scale; give the smaller number first: 0:1")
        if self.steps == "log" and self.low <= 0 and not self.signed:
            raise AttnvizError(
                f"limits {self.low:g}:{self.high:g} are not a logarithmic scale; give positive numbers: 0.001:1"
            )

    def fraction(self, values: ArrayLike) -> Float64Array:
        """Returns the position of each value, 0 at low (and below it) and 1 at high (and above it); NaN stays NaN."""
        numbers = np.asarray(values, dtype=np.float64)
        if self.signed:
            return np.asarray(0.5 + np.sign(numbers) * self._position(np.minimum(np.abs(numbers) / self.high, 1)) / 2)
        return self._position(np.clip((numbers - self.low) / (self.high - self.low), 0.0, 1.0))

    def value(self, fractions: ArrayLike) -> Float64Array:
        """Returns the value at each position on the scale, 0 to 1: the inverse of ``fraction`` within the limits."""
        numbers = np.asarray(fractions, dtype=np.float64)
        if self.signed:
            return np.asarray(np.sign(numbers - 0.5) * self.high * self._share_of_span(np.abs(2 * numbers - 1)))
        return np.asarray(self.low + (self.high - self.low) * self._share_of_span(numbers))

    def rgb(self, values: ArrayLike) -> ByteArray:
        """Returns the colour of each value, ``(..., 3)``; NaN gets a colour that no colormap contains."""
        fraction = self.fraction(values)
        index = np.nan_to_num(np.rint(fraction * 255)).astype(np.intp)  # a colormap has 256 colours
        colors = self.colors[index]
        return np.where(np.isnan(fraction)[..., None], np.array(NAN, dtype=np.uint8), colors)

    @property
    def colors(self) -> ByteArray:
        """256 colours along the scale, ``(256, 3)``: those of its colormap, or as they are seen over the grey."""
        colors = np.asarray(colormap(self.colormap))
        return colors if self.grey is None else self.over_image(colors, self.grey)

    @property
    def ground(self) -> int:
        """The brightness to which an image fades under the colours: 255, or 0 if the colour of zero is dark."""
        zero = colormap(self.colormap)[128 if self.signed else 0]
        return 255 if zero.mean() >= 128 else 0

    def over_image(self, colors: ArrayLike, grey: ArrayLike) -> ByteArray:
        """Returns how colours, ``(..., 3)``, are seen over an image of this brightness, ``(..., 1)`` or a number."""
        part_of_color = np.asarray(colors, dtype=np.float32) / 255
        under = (FADED * self.ground + (1 - FADED) * np.asarray(grey, dtype=np.float32)) / 255
        light_added = 1 - (1 - part_of_color) * (1 - under)
        return np.rint(255 * (part_of_color * under if self.ground else light_added)).astype(np.uint8)

    def on_paper(self, theme: str) -> "ColorScale":
        """Returns the scale with its colormap's variant for the paper of a theme."""
        return replace(self, colormap=on_paper(self.colormap, theme))

    def ticks(self, max_ticks: int = 6) -> tuple[float, ...]:
        """Returns about ``max_ticks`` ticks in order: the ends of the scale and round numbers that differ in colour.

        A signed scale has the ticks of its positive half, their negatives, and 0.
        """
        if self.signed:
            half = ColorScale(self.high * (LOG_RANGE if self.steps == "log" else 0), self.high, steps=self.steps)
            positive_ticks = half.ticks(max(1, int(MIN_TICK_SHARE * max_ticks / 2)))[1:]
            return (*(-tick for tick in reversed(positive_ticks)), 0.0, *positive_ticks)
        ticks, positions = [self.low, self.high], [0.0, 1.0]
        min_distance = MIN_TICK_SHARE / max_ticks
        for step in self._round_steps(max_ticks):
            # The margin keeps a multiple at an end of the scale if the division rounds.
            first_multiple, end = np.ceil(self.low / step - 1e-9), self.high / step + 1e-9
            if self.steps != "linear":
                end = min(end, 10)  # larger multiples are those of the next larger step
            multiples = np.arange(first_multiple, end) * step
            for tick, position in zip(multiples.tolist(), self.fraction(multiples).tolist(), strict=True):
                if min(abs(position - other) for other in positions) >= min_distance:
                    ticks.append(tick + 0.0)  # no minus sign before zero
                    positions.append(position)
        return tuple(sorted(ticks))

    def _round_steps(self, max_ticks: int) -> list[float]:
        """Returns the distances between ticks to try, largest first; empty if a linear scale has none that fits."""
        if self.steps == "linear":
            span = self.high - self.low
            power = 10.0 ** np.floor(np.log10(span / max_ticks))
            return [size * power for size in (1, 2, 5, 10, 20) if span / (size * power) <= max_ticks - 1][:1]
        power = 10.0 ** np.floor(np.log10(max(abs(self.low), abs(self.high))))
        if self.steps == "sqrt":
            return [power * size for size in (5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)]
        return [power / 10**exponent for exponent in range(int(np.ceil(np.log10(self.high / self.low))) + 1)]

    def _position(self, share: Float64Array) -> Float64Array:
        """Returns the position in the colormap of each share of the span; on a signed scale, of half the span."""
        if self.steps == "sqrt":
            return np.asarray(np.sqrt(share))
        if self.steps == "linear":
            return np.asarray(share)
        if self.signed:
            return np.asarray(np.maximum(0, 1 - np.log(np.maximum(share, LOG_RANGE)) / np.log(LOG_RANGE)))
        value = self.low + share * (self.high - self.low)
        return np.asarray(np.log(value / self.low) / np.log(self.high / self.low))

    def _share_of_span(self, position: Float64Array) -> Float64Array:
        """Returns the share of the span at each position in the colormap; on a signed scale, of half the span."""
        if self.steps == "sqrt":
            return np.asarray(position**2)
        if self.steps == "linear":
            return np.asarray(position)
        if self.signed:
            return np.asarray(np.where(position > 0, LOG_RANGE ** (1 - position), 0))
        value = self.low * (self.high / self.low) ** position
        return np.asarray((value - self.low) / (self.high - self.low))


def on_paper(name: str, theme: str) -> str:
    """Returns the name of a colormap's variant for the paper of a theme; the name itself if it has none."""
    dark_name = name + ON_DARK_PAPER
    return dark_name if theme == "dark" and dark_name in SAMPLES else name


@cache
def colormap(name: str) -> ByteArray:
    """Returns the colours of a colormap, ``(256, 3)``: one of ``SAMPLES`` or any of matplotlib's."""
    if name not in SAMPLES:
        matplotlib = import_matplotlib()
        if name not in matplotlib.colormaps:
            question = did_you_mean(name, matplotlib.colormaps)
            advice = (
                f"{question}{'Choose' if question else 'choose'} viridis, magma, cividis, Blues or any of matplotlib's"
            )
            raise AttnvizError(f"unknown colormap {name!r}; {advice}")
        # With a number of steps, since by default the user's setting image.lut chooses it.
        colors = matplotlib.colormaps[name].resampled(256)(np.linspace(0, 1, 256))[:, :3]
        return np.asarray(np.rint(colors * 255), dtype=np.uint8)
    samples = np.array([list(bytes.fromhex(color)) for color in SAMPLES[name].split()], dtype=np.float64)
    positions = np.linspace(0, len(samples) - 1, 256)
    channels = [np.interp(positions, np.arange(len(samples)), samples[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def luminance(rgb: ArrayLike) -> Float64Array:
    """Returns the relative luminance of sRGB colours (WCAG 2.1), 0 to 1: ``(..., 3)`` to ``(...)``."""
    fraction = np.asarray(rgb, dtype=np.float64) / 255
    linear = np.where(fraction <= 0.04045, fraction / 12.92, ((fraction + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def ink_on(rgb: ArrayLike) -> ByteArray:
    """Returns black or white for each sRGB colour, whichever contrasts more with it, ``(..., 3)`` to ``(..., 3)``."""
    are_dark = luminance(rgb) < 0.179  # where contrast with white equals contrast with black
    return np.where(are_dark[..., None], np.uint8(255), np.uint8(0)) * np.ones(3, dtype=np.uint8)


def import_matplotlib() -> Any:
    """Returns matplotlib, imported with its warnings silenced, since pictures name missing fonts themselves."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    return matplotlib
