import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.api.drawing import draw
from attnviz.base.errors import AttnvizError, flag
from attnviz.base.options import declared_options
from attnviz.maps.recording import Recording
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look, parse_size, refuse_uninspected
from attnviz.text.selection import Selection


@pytest.mark.parametrize(
    ("text", "size"),
    [("16:9", (13.333, 7.5)), ("4:3", (10, 7.5)), ("8x6", (8, 6)), ("1920x1080", (9.6, 5.4))],
)
def test_sizes_are_slides_inches_or_pixels(text: str, size: tuple[float, float]) -> None:
    assert parse_size(text, dpi=200) == size


@pytest.mark.parametrize(
    ("text", "inches"),
    [("column", 3.5), ("page", 7.0), ("3.25in", 3.25), ("88.9mm", 3.5), ("17.78 cm", 7.0), ("252.945pt", 3.5)],
)
def test_widths_of_a_column_are_those_of_a_journal(text: str, inches: float) -> None:
    look = Look(size=text)
    assert look.column_inches == pytest.approx(inches)
    assert look.inches is None


def test_refuses_a_column_that_no_page_has() -> None:
    with pytest.raises(AttnvizError, match="'1in' is 1 inches wide; choose 2in to 60in"):
        Look(size="1in")


@pytest.mark.parametrize("text", ["16x", "x", "0x0", "1e3x5", "-8x6", "nanxnan", "99999x99999", "1x8"])
def test_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(AttnvizError, match="choose"):
        parse_size(text, dpi=200)


@pytest.mark.parametrize("dpi", [0, -1, 100_000])
def test_refuses_dots_that_no_figure_has(dpi: int) -> None:
    with pytest.raises(AttnvizError, match="give 20 to 2400"):
        Look(dpi=dpi)


def test_refuses_an_unknown_theme() -> None:
    with pytest.raises(AttnvizError, match="choose light or dark"):
        Look(theme="pink")


NUMBERS = st.integers(-9, 99_999) | st.floats(-2, 300, allow_nan=False).map(lambda number: round(number, 6))
WRITTEN = {
    "limits": st.builds("{}:{}".format, NUMBERS, NUMBERS) | st.text(max_size=4),
    "size": st.builds("{}{}{}".format, NUMBERS, st.sampled_from(["x", "in", "mm", "pt"]), NUMBERS | st.just(""))
    | st.text(max_size=4),
    "max_size": st.builds("{}{}".format, NUMBERS, st.sampled_from(["kB", "MB", "GB", "TB"])),
    "theme": st.text(max_size=4),
    "style": st.text(max_size=4),
    "color_scale": st.text(max_size=4),
    "pool": st.text(max_size=4),
    "dpi": st.integers(),
    "per_slide": st.integers(),
    "font_size": st.floats(allow_nan=False),
    "layers": st.lists(st.sampled_from("0123456789-, x"), max_size=6).map("".join),
    "heads": st.lists(st.sampled_from("0123456789-,. x"), max_size=6).map("".join),
    "queries": st.lists(st.sampled_from("0123456789-: x"), max_size=6).map("".join),
    "num_heads": st.integers(),
    "num_layers": st.integers(),
    "generate": st.integers(),
    "scale": st.text(max_size=4),
    "init": st.text(max_size=4),
    "attention": st.text(max_size=4),
    "dropout": st.floats(),
    "temperature": st.floats(),
    "seed": st.integers(),
}
MAKERS: tuple[Callable[..., object], ...] = (Look, ModelSettings, Selection.parse)
MAX_SEED = str(2**63 - 1)


def refusal(make: Callable[..., object], **options: Any) -> str | None:
    """What the options are refused with, if they are."""
    try:
        make(**options)
    except AttnvizError as error:
        return error.message_with(flag)
    return None


def remedies(message: str) -> list[str]:
    """What a refusal advises, as a user would type it; words in brackets only explain those before them."""
    said = re.sub(
        r" \([^)]*\)|did you mean [^?]*\? |\b([Cc]hoose|give|use|write) |one such as ",
        "",
        message.rpartition("; ")[2],
    )
    said = re.sub(
        r"two numbers such as|a number such as|a number|from|points|inches a side|, 1 changes nothing|or more|works?\b",
        "",
        said,
    )
    return [part.strip() for part in re.split(r",\s| or | to |below |above ", said) if part.strip()]


@pytest.mark.parametrize("name", WRITTEN)
@given(data=st.data())
def test_what_a_refusal_says_would_work_is_accepted(name: str, data: st.DataObject) -> None:
    [make] = [make for make in MAKERS if name in declared_options(make)]
    more: dict[str, Any] = {"embed_dim": 65_536, "qk_dim": 1, "value_dim": 1} if name == "num_heads" else {}
    message = refusal(make, **{name: data.draw(WRITTEN[name])}, **more)
    found = [] if message is None else remedies(message)
    assert found or message is None
    kind = str(declared_options(make)[name].type)
    for remedy in found:
        number = float if "float" in kind else int
        value: Any = remedy if "str" in kind else number(remedy.replace("2**63 - 1", MAX_SEED))
        if name == "size" and re.fullmatch(r"\d+", remedy):
            value = f"{remedy}x{remedy}"  # inches a side
        if (name, value) not in (("dropout", 1.0), ("temperature", 0.0)):  # which are said to be just outside
            assert refusal(make, **{name: value}, **more) is None


def test_limits_that_are_equal_are_said_to_be() -> None:
    with pytest.raises(AttnvizError, match=r"^limits '0\.5:0\.5': low and high are equal; write 0:0\.5$"):
        Look(limits="0.5:0.5")


def test_the_inspector_refuses_what_it_would_not_look_at() -> None:
    refuse_uninspected(Look(theme="dark", dpi=50, limits="head"))
    for name in ("style", "query", "mark", "pool", "per_slide", "max_size"):
        value: Any = {"style": "text", "query": "a", "mark": "lines", "pool": "max", "per_slide": 2}.get(name, "1MB")
        with pytest.raises(AttnvizError, match=f"^{name} has no effect in browse; leave it out"):
            refuse_uninspected(Look(**{name: value}))


def test_a_query_asks_for_the_style_text() -> None:
    assert Look(query="a").drawn_style == "text"
    assert Look().drawn_style == "heatmap"


def test_a_picture_has_no_more_pixels_than_can_be_drawn(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match=r"dpi=2400 has 20736 million pixels, more than 150 million; use dpi=204"):
        parse_size("60x60", dpi=2400)
    assert parse_size("60x60", dpi=204) == (60, 60)
    with pytest.raises(AttnvizError, match=r"size '12000x13000' is 156 million pixels, .*; choose 11766x12747 or less"):
        parse_size("12000x13000", dpi=300)
    assert parse_size("11766x12747", dpi=300)
    with pytest.raises(AttnvizError, match=r"million pixels, more than 150 million; use dpi=.*"):
        draw(recording, ".png", dpi=2400)
