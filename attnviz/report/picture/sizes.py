"""Parses sizes as users write them: those of figures, of columns in a journal, and of files."""

import re

from attnviz.base.errors import AttnvizError, option

COLUMNS = {"column": 3.5, "page": 7.0}  # widths in inches of one journal column and of a page of two
LENGTHS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # inches per unit; points are TeX's
SLIDES = {"16:9": (13.333, 7.5), "4:3": (10.0, 7.5), "1:1": (7.5, 7.5)}
MIN_PICTURE_INCHES, MAX_PICTURE_INCHES = 2, 60
MAX_PICTURE_PIXELS = 150_000_000  # a picture takes four bytes per pixel, and two copies are in memory at once
BYTE_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
MIN_PAGE_BYTES = 100_000


def parse_size(text: str, dpi: int) -> tuple[float, float]:
    """Returns width and height in inches of ``16:9``, ``4:3``, ``1:1``, ``8x6`` (inches) or ``1920x1080`` (pixels).

    Two numbers are pixels if one of them is too large for inches. A width alone, such as ``84mm``, is refused here,
    since `parse_width` reads it, but the refusal names this form too.
    """
    if text in SLIDES:
        return SLIDES[text]
    match = re.fullmatch(r"(\d{1,5}(?:\.\d{1,4})?)x(\d{1,5}(?:\.\d{1,4})?)", text, re.ASCII)
    if match is None:
        pixels = f"{round(9.6 * dpi)}x{round(5.4 * dpi)}"  # 1920x1080 at 200 dpi
        sizes = f"{', '.join(SLIDES)}, 8x6 (inches), {pixels} (pixels), {', '.join(COLUMNS)}, 3.25in or 84mm"
        raise AttnvizError(f"{option('size')} {text!r} is not a size; choose {sizes}")
    sides = (float(match[1]), float(match[2]))
    width, height = sides if max(sides) <= MAX_PICTURE_INCHES else (sides[0] / dpi, sides[1] / dpi)
    if min(width, height) < MIN_PICTURE_INCHES or max(width, height) > MAX_PICTURE_INCHES:
        stated_size = f"{option('size')} {text!r} is {width:g} x {height:g} inches"
        raise AttnvizError(f"{stated_size}; choose {MIN_PICTURE_INCHES} to {MAX_PICTURE_INCHES} inches a side")
    refuse_pixels(width, height, dpi)
    return width, height


def parse_width(text: str) -> float | None:
    """Returns the inches of ``column``, ``page``, ``3.25in``, ``84mm``, ``8.4cm`` or ``252pt``.

    Returns:
        The width; ``None`` if the text has another form.
    """
    match = re.fullmatch(rf"(\d{{1,4}}(?:\.\d{{1,5}})?) ?({'|'.join(LENGTHS)})", text, re.ASCII)
    width = COLUMNS.get(text) if match is None else float(match[1]) * LENGTHS[match[2]]
    if width is not None and not MIN_PICTURE_INCHES <= width <= MAX_PICTURE_INCHES:
        stated_size = f"{option('size')} {text!r} is {width:.3g} inches wide"
        raise AttnvizError(f"{stated_size}; choose {MIN_PICTURE_INCHES}in to {MAX_PICTURE_INCHES}in")
    return width


def refuse_pixels(width: float, height: float, dpi: int) -> None:
    """Raises AttnvizError if a picture has more pixels than can be drawn."""
    if width * height * dpi**2 > MAX_PICTURE_PIXELS:
        largest_dpi = int((MAX_PICTURE_PIXELS / (width * height)) ** 0.5)
        raise AttnvizError(
            f"a picture of {width:.3g} x {height:.3g} inches at {option('dpi', dpi)} has "
            f"{width * height * dpi**2 / 1e6:.0f} million pixels, more than {MAX_PICTURE_PIXELS // 10**6} million; "
            f"use {option('dpi', largest_dpi)}"
        )


def parse_bytes(text: str) -> int:
    """Returns the number of bytes that a size such as ``50MB``, ``500kB`` or ``1.5GB`` stands for."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*(kB|MB|GB)\s*", text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise AttnvizError(f"{option('max_size')} {text!r} is not a file size; give 50MB, 500kB or 1.5GB")
    count = int(float(match[1]) * BYTE_UNITS[match[2].lower()])
    if count < MIN_PAGE_BYTES:
        minimum = f"{MIN_PAGE_BYTES // 1000}kB or more"
        raise AttnvizError(f"{option('max_size')} {text!r} is too small for any page; choose {minimum}")
    return count
