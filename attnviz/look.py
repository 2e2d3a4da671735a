"""How a report is drawn: the page or the screen, not what is on it."""

import re
from dataclasses import dataclass
from typing import Any, Self

from attnviz.errors import AttnvizError

SLIDES = {"16:9": (13.333, 7.5), "4:3": (10.0, 7.5), "1:1": (7.5, 7.5)}
LARGEST_INCHES = 60
UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
SMALLEST_PAGE = 100_000


@dataclass(frozen=True, eq=False)
class Look:
    """How a report is drawn: the page or the screen, not what is on it.

    Attributes:
        theme: ``light`` or ``dark``.
        size: width and height of a figure in inches; ``None`` lets the content choose.
        dpi: pixels an inch of a figure.
        per_slide: heads on one slide of a deck.
        title: over the whole; ``None`` for the text itself.
        width: columns of the terminal.
        colors: how many colours the terminal has: 16777216, 256, or 0 for none.
        ascii: draw with ASCII characters only.
        max_size: the most bytes of a page; what does not fit is pooled.
    """

    theme: str = "light"
    size: tuple[float, float] | None = None
    dpi: int = 200
    per_slide: int = 1
    title: str | None = None
    width: int = 80
    colors: int = 0
    ascii: bool = False
    max_size: int = 50_000_000

    def __post_init__(self) -> None:
        if self.theme not in ("light", "dark"):
            raise AttnvizError(f"unknown theme {self.theme!r}; light or dark works")
        if not 1 <= self.per_slide <= 64:
            raise AttnvizError(f"--per-slide {self.per_slide} is out of range; 1 to 64 works")

    @classmethod
    def parse(cls, size: str | None = None, dpi: int = 200, max_size: str = "50MB", **rest: Any) -> Self:
        """The look written as on the command line: ``16:9``, ``8x6``, ``1920x1080``; ``50MB``.

        Raises:
            AttnvizError: for a size, dpi or theme that is none.
        """
        return cls(size=parse_size(size, dpi), dpi=dpi, max_size=parse_bytes(max_size), **rest)


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
