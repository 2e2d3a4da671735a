"""Values to colours, and to an ink that is legible on them: one table, used by every renderer."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.base.errors import AttnvizError

Rgb = tuple[int, int, int]

# Samples of colormaps, evenly spaced; between them colours are interpolated. The first two are matplotlib's, the
# others begin beside the paper of a light and of a dark page, so that a text in their colours stays a text.
SAMPLES = {
    "viridis": "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c"
    " 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
    "RdBu_r": "053061 2065ab 4393c3 90c4dd d1e5f0 f7f6f6 fddbc7 f3a481 d6604d b1182b 67001f",
    "light-blue": "eaf0fa c6d9f4 8fb5ea 4f8cdd 1f5fbf 0f3f8f",
    "dark-blue": "22262f 2c3f63 3a5f9e 5488d8 7fb2ff c9e0ff",
}
SEQUENTIAL = "viridis"
TEXT_COLORMAPS = {"light": "light-blue", "dark": "dark-blue"}
DIVERGING = "RdBu_r"
NAN = (255, 0, 200)


@dataclass(frozen=True)
class ColorScale:
    """A linear (or logarithmic) scale from ``low`` to ``high`` through a colormap; values beyond take its ends.

    Raises:
        AttnvizError: if the limits are not finite, the wrong way round, or not positive where logarithmic.
    """

    low: float
    high: float
    colormap: str = SEQUENTIAL
    log: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise AttnvizError(f"limits {self.low:g}:{self.high:g} are no scale; a smaller number comes first, as 0:1")
        if self.log and self.low <= 0:
            raise AttnvizError(f"limits {self.low:g}:{self.high:g} are no logarithmic scale; 0.001:1 works")

    def fraction(self, values: ArrayLike) -> Float64Array:
        """How far each value is from low to high, 0 to 1; NaN stays NaN."""
        shown, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.log:
            shown, low, high = np.log(np.maximum(shown, low)), np.log(low), np.log(high)
        return np.asarray(np.clip((shown - low) / (high - low), 0.0, 1.0))

    def rgb(self, values: ArrayLike) -> ByteArray:
        """The colour of each value, ``(..., 3)``; NaN has one of its own, which is in no colormap."""
        fraction = self.fraction(values)
        index = np.nan_to_num(np.rint(fraction * 255)).astype(np.intp)
        colors = np.asarray(colormap(self.colormap)[index])
        return np.where(np.isnan(fraction)[..., None], np.array(NAN, dtype=np.uint8), colors)

    def ticks(self, most: int = 6) -> tuple[float, ...]:
        """Round numbers within the limits, 2 to ``most`` of them, evenly spaced; powers of ten where logarithmic."""
        if self.log:
            first, last = np.ceil(np.log10(self.low) - 1e-9), np.floor(np.log10(self.high) + 1e-9)
            powers = tuple(float(10**power) for power in np.arange(first, last + 1))[
                :: -(-int(last - first + 1) // most)
            ]
            return powers if len(powers) > 1 else (self.low, self.high)
        span = self.high - self.low
        power = 10.0 ** np.floor(np.log10(span / most))
        step = next(size * power for size in (1, 2, 5, 10, 20) if span / (size * power) <= most - 1)
        first, last = np.ceil(self.low / step - 1e-9), np.floor(self.high / step + 1e-9)
        ticks = [float(number * step) for number in np.arange(first, last + 1)]
        return tuple(ticks) if len(ticks) > 1 else (self.low, self.high)


@cache
def colormap(name: str) -> ByteArray:
    """The colours of a map, ``(256, 3)``: one of ours, or any that matplotlib knows.

    Raises:
        AttnvizError: if there is none of that name.
    """
    if name not in SAMPLES:
        return _matplotlib_colormap(name)
    samples = np.array([list(bytes.fromhex(color)) for color in SAMPLES[name].split()], dtype=np.float64)
    places = np.linspace(0, len(samples) - 1, 256)
    channels = [np.interp(places, np.arange(len(samples)), samples[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def luminance(rgb: ArrayLike) -> Float64Array:
    """Relative luminance of sRGB colours, 0 to 1 (WCAG 2.1), ``(..., 3)`` to ``(...)``."""
    fraction = np.asarray(rgb, dtype=np.float64) / 255
    linear = np.where(fraction <= 0.04045, fraction / 12.92, ((fraction + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def ink_on(rgb: ArrayLike) -> ByteArray:
    """Black or white, whichever contrasts more with each colour, ``(..., 3)``."""
    dark_paper = luminance(rgb) < 0.179  # where contrast with white equals contrast with black
    return np.where(dark_paper[..., None], np.uint8(255), np.uint8(0)) * np.ones(3, dtype=np.uint8)


def import_matplotlib() -> Any:
    """matplotlib, which has no word about its caches and fonts: what is missing is said in the picture."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    return matplotlib


def _matplotlib_colormap(name: str) -> ByteArray:
    matplotlib = import_matplotlib()
    if name not in matplotlib.colormaps:
        raise AttnvizError(f"unknown colormap {name!r}; viridis, magma, cividis, Blues or any of matplotlib's works")
    colors = matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    return np.asarray(np.rint(colors * 255), dtype=np.uint8)
