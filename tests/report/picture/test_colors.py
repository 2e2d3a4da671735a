import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.report.picture.colors import DIVERGING, SEQUENTIAL, ColorScale, Steps, colormap, ink_on, luminance

ANY_STEPS: st.SearchStrategy[Steps] = st.sampled_from(["linear", "sqrt", "log"])


@pytest.mark.parametrize(("name", "error"), [("viridis", 6), ("RdBu_r", 3)])
def test_our_tables_are_those_of_matplotlib(name: str, error: int) -> None:
    import matplotlib

    theirs = matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3] * 255
    assert np.abs(colormap(name) - theirs).max() <= error


def test_sequential_map_never_darkens() -> None:
    assert (np.diff(luminance(colormap(SEQUENTIAL))) > -1e-3).all()


def test_diverging_map_is_lightest_in_the_middle() -> None:
    assert luminance(colormap(DIVERGING)).argmax() in (127, 128)


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
