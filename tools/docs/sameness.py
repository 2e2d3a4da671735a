"""Tells whether what a command prints or draws today is what a document shows, as far as two machines can agree."""

import html
import re
from collections import Counter
from pathlib import Path

from PIL import Image, ImageChops, ImageStat

from tools.docs.stills import on_white, still, words_of

NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)")
BAR = re.compile("[▏▎▍▌▋▊▉█]+")  # whose length a number beside it says

COMPARED = 48  # pixels a side: letters of other fonts blur, maps stay
FAINTEST, STRONGEST = 4, 60  # of 255: the mean and the largest difference of two pictures of one thing


def same_text(before: str, today: str) -> bool:
    """True if two outputs differ by nothing but the last digits of numbers, as those of two machines do."""
    old, new = (NUMBER.split(" ".join(BAR.sub("", text).split())) for text in (before, today))
    return old[::2] == new[::2] and all(map(_near, old[1::2], new[1::2]))


def _near(before: str, today: str) -> bool:
    """True if two numbers differ by one in the last digit; one whole digit may be a count, which is exact."""
    if "e" in before:  # the size of a rounding error
        return float(before) / 30 <= float(today) <= 30 * float(before)
    unit = 10.0 ** -len(before.partition(".")[2]) if "." in before or len(before) > 1 else 0
    return abs(float(before) - float(today)) <= 1.01 * unit


def alike(file: Path, target: Path) -> bool:
    """True if ``target`` shows what ``file`` does, or if nothing here can open ``file``."""
    if not target.exists():
        return False
    if file.suffix == target.suffix == ".svg":
        (words, shades), (words_today, shades_today) = terminal(target), terminal(file)
        return same_text(words, words_today) and shades == shades_today
    before, today = words_of(target), words_of(file)
    if before.keys() != today.keys() or not all(same_text(before[name], today[name]) for name in before):
        return False
    if (picture := still(file)) is None:
        return True
    with Image.open(target) as shown:
        return difference(shown, picture) is None


def terminal(file: Path) -> tuple[str, Counter[tuple[int, ...]]]:
    """Returns the words that the drawing of a terminal shows, and how many backgrounds have each colour, coarsely."""
    drawing = file.read_text(encoding="utf-8")
    words = "".join(html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)", drawing))
    colors = re.findall(r'<rect fill="#(\w{2})(\w{2})(\w{2})"', drawing)
    return " ".join(words.split()), Counter(tuple(round(int(part, 16) / 64) for part in color) for color in colors)


def difference(before: Image.Image, today: Image.Image) -> str | None:
    """Returns how two pictures differ to the eye, or None if they do not."""
    shapes = [one.width / one.height for one in (before, today)]
    if abs(shapes[0] / shapes[1] - 1) > 0.04:
        return f"{before.width} x {before.height} and {today.width} x {today.height}"
    size = (COMPARED, COMPARED)
    small = [on_white(one).resize(size, Image.Resampling.BOX) for one in (before, today)]
    gap = ImageChops.difference(*small)
    mean, largest = max(ImageStat.Stat(gap).mean), max(high for _, high in gap.getextrema())  # type: ignore[misc]
    return f"{mean:.1f} and {largest} of 255" if mean > FAINTEST or largest > STRONGEST else None
