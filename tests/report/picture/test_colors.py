import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.render.figure.picture import THEME_COLORS
from attnviz.render.page.scripts import read_asset
from attnviz.report.picture.colors import (
    DIVERGING,
    SEQUENTIAL,
    ColorScale,
    Steps,
    colormap,
    ink_on,
    luminance,
    on_paper,
)
from attnviz.report.picture.look import THEMES

ANY_STEPS: st.SearchStrategy[Steps] = st.sampled_from(["linear", "sqrt", "log"])


def cielab(rgb: ByteArray) -> Float64Array:
    """Colours of sRGB in CIELAB under D65, ``(..., 3)``: lightness from 0 to 100, a and b (IEC 61966-2-1, CIE 15)."""
    fraction = np.asarray(rgb, dtype=np.float64) / 255
    linear = np.where(fraction <= 0.04045, fraction / 12.92, ((fraction + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    share = linear @ to_xyz.T / to_xyz.sum(axis=1)  # of white
    root = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


# From the paper to the ink: the colours of numbers, and both halves of those of changes.
RAMPS = {f"numbers {theme}": colormap(on_paper(SEQUENTIAL, theme)) for theme in THEMES}
RAMPS |= {f"less {theme}": colormap(on_paper(DIVERGING, theme))[127::-1] for theme in THEMES}
RAMPS |= {f"more {theme}": colormap(on_paper(DIVERGING, theme))[128:] for theme in THEMES}


@pytest.mark.parametrize("ramp", RAMPS.values(), ids=RAMPS)
def test_steps_from_paper_to_ink_are_even_to_the_eye_and_the_ink_is_read(ramp: ByteArray) -> None:
    colors = cielab(ramp[np.rint(np.linspace(0, len(ramp) - 1, 17)).astype(int)])
    lightness_steps = np.abs(np.diff(colors[:, 0]))
    distances = np.linalg.norm(np.diff(colors, axis=0), axis=1)
    assert len(set(np.sign(np.diff(cielab(ramp)[:, 0])).tolist()) - {0.0}) == 1  # never back towards the paper
    assert lightness_steps.max() < 1.6 * lightness_steps.min()
    assert distances.max() < 1.6 * distances.min()
    paper, ink = luminance(ramp[[0, -1]])
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 6  # WCAG asks for 4.5 of text


@pytest.mark.parametrize("ramp", [RAMPS[f"numbers {theme}"] for theme in THEMES], ids=THEMES)
def test_weights_have_one_hue(ramp: ByteArray) -> None:
    _, a, b = cielab(ramp[64:]).T
    assert np.ptp(np.degrees(np.arctan2(b, a))) < 20


@pytest.mark.parametrize("theme", THEMES)
def test_zero_of_numbers_and_of_changes_is_the_paper_of_every_medium(theme: str) -> None:
    page = re.sub(
        r".*?(--card: \S+;.*)",
        r"\1",
        read_asset("page.css").partition("dark)")[0 if theme == "light" else 2],
        flags=re.S,
    )
    numbers, changes = (colormap(on_paper(name, theme)) for name in (SEQUENTIAL, DIVERGING))
    hexes = ["#" + bytes(color).hex() for color in (numbers[0], numbers[-1], changes[0], changes[-1])]
    assert hexes == [re.search(rf"--{name}: (#\w+);", page)[1] for name in ("card", "arc", "less", "more")]  # type: ignore[index]
    assert (THEME_COLORS[theme]["paper"], THEME_COLORS[theme]["line"]) == tuple(hexes[:2])
    assert np.abs(changes[[127, 128]].astype(int) - numbers[0]).max() <= 1
    less, more = cielab(changes[[0, -1]])[:, 0]
    assert less == pytest.approx(more, abs=2)  # a fall is as strong as a rise


def test_ends_of_the_scale_take_the_ends_of_the_map() -> None:
    scale = ColorScale(0.2, 0.6)
    assert scale.rgb([0.2, 0.6, -1, 2]).tolist() == colormap(SEQUENTIAL)[[0, 255, 0, 255]].tolist()


@given(st.floats(0, 1))
def test_colour_of_a_value_is_that_of_its_fraction(fraction: float) -> None:
    scale = ColorScale(-3.0, 5.0)
    assert scale.fraction(-3 + 8 * fraction) == pytest.approx(fraction, abs=1e-9)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_ink_contrasts_at_least_as_much_as_readers_need(color: tuple[int, int, int]) -> None:
    paper, ink = luminance(color), luminance(ink_on(np.array(color)))
    lighter, darker = max(paper, ink), min(paper, ink)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (0.5, 0.5), (0.0, float("nan")), (float("-inf"), 0.0)])
def test_refuses_limits_that_are_no_scale(low: float, high: float) -> None:
    with pytest.raises(AttnvizError, match="give the smaller number first"):
        ColorScale(low, high)


def test_refuses_an_unknown_colormap() -> None:
    with pytest.raises(AttnvizError, match="Choose viridis, magma, cividis, Blues or any of matplotlib's"):
        colormap("rainbows")


def test_any_map_of_matplotlib_works() -> None:
    assert colormap("magma").shape == (256, 3)


def test_logarithmic_scale_gives_each_power_of_ten_as_much_colour() -> None:
    scale = ColorScale(1e-4, 1.0, steps="log")
    assert scale.fraction([1e-4, 1e-3, 1e-2, 0.1, 1.0]) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert scale.fraction([0.0, 2.0]).tolist() == [0, 1]
    assert np.isnan(scale.fraction([np.nan])).all()
    assert scale.ticks() == pytest.approx((1e-4, 1e-3, 1e-2, 0.1, 1.0))


def test_logarithmic_scale_from_zero_is_refused() -> None:
    with pytest.raises(AttnvizError, match=r"give positive numbers: 0\.001:1"):
        ColorScale(0.0, 1.0, steps="log")


@given(
    st.floats(0, 1), st.sampled_from(["linear", "sqrt", "log"]), st.sampled_from([(0.0, 0.6), (0.2, 3.0), (-2.0, 2.0)])
)
def test_value_of_a_colour_has_that_colour(fraction: float, steps: Steps, limits: tuple[float, float]) -> None:
    low, high = limits
    scale = ColorScale(0.01 if steps == "log" and low == 0 else low, high, steps=steps, signed=low < 0)
    assert scale.fraction(scale.value(fraction)) == pytest.approx(fraction, abs=1e-6)


@given(st.floats(1e-6, 1e4), ANY_STEPS, st.integers(1, 8), st.booleans())
def test_ticks_are_both_ends_and_numbers_that_stand_apart(high: float, steps: Steps, most: int, signed: bool) -> None:
    low = -high if signed else high * 1e-3 if steps == "log" else 0.0
    scale = ColorScale(low, high, steps=steps, signed=signed)
    ticks = scale.ticks(most)
    assert (ticks[0], ticks[-1]) == (low, high)
    assert len(ticks) <= most + 3
    apart = np.diff(scale.fraction(ticks))
    assert apart.min() >= (0.4 if signed else 0.8) / max(most, 2)


def test_square_root_gives_small_weights_more_colour() -> None:
    scale = ColorScale(0, 0.64, steps="sqrt")
    assert scale.fraction([0, 0.01, 0.04, 0.16, 0.64]) == pytest.approx([0, 0.125, 0.25, 0.5, 1])
    assert ColorScale(-0.64, 0.64, steps="sqrt", signed=True).fraction([-0.16, 0, 0.16]) == pytest.approx(
        [0.25, 0.5, 0.75]
    )


def test_changes_over_an_image_are_as_strong_in_both_directions_and_none_is_palest() -> None:
    scale = ColorScale(-2, 2, DIVERGING, signed=True, grey=100.0)
    faded = float(scale.over_image(255, 100.0))
    less, none, more = (np.abs(scale.rgb(change) - faded).max() for change in (-2, 0, 2))
    assert none <= 1
    assert less == pytest.approx(more, rel=0.1)
