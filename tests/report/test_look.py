import pytest

from attnviz.base.errors import AttnvizError
from attnviz.report.look import Look, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("16:9", (13.333, 7.5)), ("4:3", (10, 7.5)), ("8x6", (8, 6)), ("1920x1080", (9.6, 5.4))],
)
def test_sizes_are_slides_inches_or_pixels(text: str, size: tuple[float, float]) -> None:
    assert parse_size(text, dpi=200) == size


@pytest.mark.parametrize("text", ["16x", "x", "0x0", "1e3x5", "-8x6", "nanxnan", "99999x99999", "1x8"])
def test_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(AttnvizError, match="works"):
        parse_size(text, dpi=200)


@pytest.mark.parametrize("dpi", [0, -1, 100_000])
def test_refuses_dots_that_no_figure_has(dpi: int) -> None:
    with pytest.raises(AttnvizError, match="20 to 2400 works"):
        Look(dpi=dpi)


def test_refuses_an_unknown_theme() -> None:
    with pytest.raises(AttnvizError, match="light or dark works"):
        Look(theme="pink")
