"""How a report is drawn: the page or the screen, not what is on it."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from attnviz.base.errors import AttnvizError, known_names

SLIDES = {"16:9": (13.333, 7.5), "4:3": (10.0, 7.5), "1:1": (7.5, 7.5)}
THEMES = ("light", "dark")
STYLES = ("heatmap", "arcs", "text")
POOLS = ("mean", "max")
COLOR_SCALES = ("linear", "log")
LIMITS = ("shared", "head")
NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?(?:e-?\d{1,2})?"
LARGEST_INCHES = 60
UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
SMALLEST_PAGE = 100_000


@dataclass(frozen=True, eq=False)
class Look:
    """How a report is drawn: the page or the screen, not what is on it.

    Attributes:
        theme: ``light`` or ``dark``; ``None`` for what the medium has: light, or as the reader's system.
        size: width and height of a figure in inches; ``None`` lets the content choose.
        dpi: pixels an inch of a figure.
        per_slide: heads on one slide of a deck.
        title: over the whole; ``None`` for the text itself.
        width: columns of the terminal.
        colors: how many colours the terminal has: 16777216, 256, or 0 for none.
        ascii: draw with ASCII characters only.
        max_size: the most bytes of a page; what does not fit is pooled.
        style: ``heatmap``, ``arcs`` (tokens in two columns, joined by lines) or ``text`` (the text, shaded).
        query: the token whose attention a text is shaded by: its number or the token itself; ``None`` for the last.
        color_scale: ``linear`` or ``log``.
        limits: of the colour scale: ``shared`` by all heads, each ``head`` its own, or two numbers.
        cmap: name of the colormap; ``None`` for the default.
        mark: landmarks that label the axes instead of tokens: ``lines``, ``paragraphs`` or a regular expression.
        pool: what a cell that stands for several tokens shows of its block: ``mean`` or ``max``.
        annotate: write the numbers into the cells of a figure's maps.
        font_size: of a figure's token labels in points; ``None`` lets their room choose.
        transparent: leave a figure without a background.
    """

    theme: str | None = None
    size: tuple[float, float] | None = None
    dpi: int = 200
    per_slide: int = 1
    title: str | None = None
    width: int = 80
    colors: int = 0
    ascii: bool = False
    max_size: int = 50_000_000
    style: str = "heatmap"
    query: str | None = None
    color_scale: str = "linear"
    limits: str | tuple[float, float] = "shared"
    cmap: str | None = None
    mark: str | None = None
    pool: str = "mean"
    annotate: bool = False
    font_size: float | None = None
    transparent: bool = False

    def __post_init__(self) -> None:
        for name, known in (
            ("theme", THEMES),
            ("style", STYLES),
            ("color_scale", COLOR_SCALES),
            ("pool", POOLS),
        ):
            if getattr(self, name) not in (*known, *((None,) if name == "theme" else ())):
                said = name.replace("_", "-")
                raise AttnvizError(f"unknown {said} {getattr(self, name)!r}; {known_names(known)} works")
        if self.query is not None and self.style != "text":
            raise AttnvizError(f"--query shades a text, and --style {self.style} draws every query; one of them works")
        if self.font_size is not None and not 3 <= self.font_size <= 144:
            raise AttnvizError(f"--font-size {self.font_size:g} is out of range; 3 to 144 points work")
        if not 1 <= self.per_slide <= 64:
            raise AttnvizError(f"--per-slide {self.per_slide} is out of range; 1 to 64 works")

    @property
    def paper(self) -> str:
        """``light`` or ``dark``, for a medium that is one of them."""
        return self.theme or THEMES[0]

    @classmethod
    def parse(
        cls,
        size: str | None = None,
        dpi: int = 200,
        max_size: str = "50MB",
        limits: str = "shared",
        cmap: str | None = None,
        style: str | None = None,
        query: str | None = None,
        mark: str | None = None,
        **rest: Any,
    ) -> Self:
        """The look written as on the command line: ``16:9``, ``8x6``, ``1920x1080``; ``50MB``; ``0:0.5``.

        A query asks for the style ``text`` where no style is given.

        Raises:
            AttnvizError: for a size, limits, colormap, mark or anything else that is none.
        """
        if cmap is not None:
            from attnviz.report.colors import colormap

            colormap(cmap)
        if mark is not None:
            from attnviz.text.landmarks import compile_mark

            compile_mark(mark)
        return cls(
            size=parse_size(size, dpi),
            dpi=dpi,
            max_size=parse_bytes(max_size),
            limits=parse_limits(limits),
            cmap=cmap,
            style=style or ("heatmap" if query is None else "text"),
            query=query,
            mark=mark,
            **rest,
        )


def refuse_style(look: Look, drawn: str) -> None:
    """Raises AttnvizError where a style, or a query, is asked for that what is drawn does not have."""
    if look.style != "heatmap":
        asked = "--query" if look.query is not None else f"--style {look.style}"
        raise AttnvizError(f"{asked} draws the heads of one recording, one by one; {drawn} is a heatmap without it")


def refuse_unused(look: Look, names: Iterable[str], command: str) -> None:
    """Raises AttnvizError where one of these was chosen, which the command would not look at."""
    usual = Look()
    chosen = [name.replace("_", "-") for name in names if getattr(look, name) != getattr(usual, name)]
    if chosen:
        raise AttnvizError(f"--{chosen[0]} changes nothing in {command}; leave it out, or use it with attnviz show")


def parse_size(text: str | None, dpi: int) -> tuple[float, float] | None:
    """Width and height in inches of ``16:9``, ``4:3``, ``1:1``, inches as ``8x6`` or pixels as ``1920x1080``.

    Raises:
        AttnvizError: for anything else, or a size that no picture has.
    """
    if not 20 <= dpi <= 2400:
        raise AttnvizError(f"--dpi {dpi} is out of range; 20 to 2400 works")
    if text is None:
        return None
    if text in SLIDES:
        return SLIDES[text]
    match = re.fullmatch(r"(\d{1,5}(?:\.\d{1,4})?)x(\d{1,5}(?:\.\d{1,4})?)", text, re.ASCII)
    if match is None:
        raise AttnvizError(f"--size {text!r} is no size; {', '.join(SLIDES)}, 8x6 (inches) or 1920x1080 (pixels) works")
    sides = (float(match[1]), float(match[2]))
    width, height = sides if max(sides) <= LARGEST_INCHES else (sides[0] / dpi, sides[1] / dpi)
    if not (2 <= width <= LARGEST_INCHES and 2 <= height <= LARGEST_INCHES):
        raise AttnvizError(f"--size {text!r} is {width:g} x {height:g} inches; 2 to {LARGEST_INCHES} a side works")
    return width, height


def parse_limits(text: str) -> str | tuple[float, float]:
    """The limits of a colour scale: ``shared``, ``head``, or both numbers of ``0:0.5``.

    Raises:
        AttnvizError: for anything else, or a larger number first.
    """
    if text in LIMITS:
        return text
    match = re.fullmatch(rf"({NUMBER}):({NUMBER})", text, re.ASCII)
    if match is None:
        raise AttnvizError(f"--limits {text!r} are none; shared, head or two numbers as 0:0.5 works")
    low, high = float(match[1]), float(match[2])
    if low >= high:
        raise AttnvizError(f"--limits {text!r} are the wrong way round; {high:g}:{low:g} works")
    return low, high


def parse_bytes(text: str) -> int:
    """The number of bytes of ``50MB``, ``500kB`` or ``1.5GB``.

    Raises:
        AttnvizError: for anything else, or less than any page takes.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*(kB|MB|GB)\s*", text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise AttnvizError(f"--max-size {text!r} is no size of a file; 50MB, 500kB or 1.5GB works")
    count = int(float(match[1]) * UNITS[match[2].lower()])
    if count < SMALLEST_PAGE:
        raise AttnvizError(f"--max-size {text!r} is less than any page takes; {SMALLEST_PAGE // 1000}kB or more works")
    return count


def on_terminal(look: Look) -> Look:
    """The look on the terminal of standard output: its width and colours, and ASCII where it cannot write more."""
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, 20),
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )
