"""Measures text in inches as matplotlib draws it, and cuts and wraps text to a width."""

from functools import cache, lru_cache
from typing import Any

POINTS_PER_INCH = 72
LINE_HEIGHT = 1.3  # in font sizes
MEASURED_POINTS = 40.0  # font size at which text is measured
SLACK = 1.03  # hinting makes small text up to a few percent wider than text of the measured size
ELLIPSIS = "…"
CACHED_WIDTHS = 8192  # texts; a notebook draws many figures with the same ones


class Ruler:
    """Measures text in some font families."""

    def __init__(self, families: tuple[str, ...]) -> None:
        self._families = families

    def width(self, text: str, points: float, bold: bool = False) -> float:
        """Returns the width of a text in inches."""
        return _width_per_point(self._families, text, bold) * points

    def longest_width(self, texts: tuple[str, ...], points: float) -> float:
        """Returns the width of the widest text in inches; 0 if there is no text."""
        return max((self.width(text, points) for text in texts), default=0.0)

    def cut(self, text: str, points: float, limit: float, bold: bool = False) -> str:
        """Returns a text unchanged if it fits, else its longest beginning that fits with an ellipsis after it.

        Returns the ellipsis alone if no character fits.
        """
        if self.width(text, points, bold) <= limit:
            return text
        min_count, max_count = 0, len(text)  # of characters; a binary search
        while min_count < max_count:
            middle = (min_count + max_count + 1) // 2
            if self.width(text[:middle].rstrip() + ELLIPSIS, points, bold) <= limit:
                min_count = middle
            else:
                max_count = middle - 1
        return text[:min_count].rstrip() + ELLIPSIS

    def wrap(self, text: str, points: float, limit: float, bold: bool = False) -> list[str]:
        """Returns a text in lines, broken at spaces; no line if it is blank.

        A word that is too wide is broken after a hyphen if it has one, else anywhere.
        """
        lines, line_width, space_width = [""], 0.0, self._advance(" ", points, bold)
        for word in text.split():
            # The sum of the widths of words: a measurement of each longer line would take far longer.
            word_width = self._advance(word, points, bold)
            longer_width = line_width + space_width + word_width if lines[-1] else word_width
            if longer_width <= limit:
                lines[-1], line_width = f"{lines[-1]} {word}" if lines[-1] else word, longer_width
                continue
            if lines[-1]:
                lines.append("")
            if word_width <= limit:
                lines[-1], line_width = word, word_width
                continue
            for character in word:
                if lines[-1] and self.width(lines[-1] + character, points, bold) > limit:
                    first_part, hyphen, rest = lines[-1].rpartition("-")
                    lines[-1:] = [first_part + hyphen, rest] if hyphen else [rest, ""]
                lines[-1] += character
            line_width = self._advance(lines[-1], points, bold)
        return [line for line in lines if line]

    def clamp(self, text: str, points: float, limit: float, max_lines: int, bold: bool = False) -> list[str]:
        """Returns a text in at most ``max_lines`` lines; a longer text is cut with an ellipsis in the last line."""
        lines = self.wrap(text, points, limit, bold)
        if len(lines) <= max_lines:
            return lines
        rest = " ".join(lines[max_lines - 1 :])
        return [*lines[: max_lines - 1], self.cut(rest + ELLIPSIS, points, limit, bold)] if max_lines else []

    def _advance(self, text: str, points: float, bold: bool) -> float:
        """Returns the width of a text inside of a line, in inches, with the space before its first and last letter."""
        return self.width(f"|{text}|", points, bold) - self.width("||", points, bold)


@cache
def _renderer() -> Any:
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, POINTS_PER_INCH)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=CACHED_WIDTHS)
def _width_per_point(families: tuple[str, ...], text: str, bold: bool) -> float:
    """Returns the width of a text in inches per point of the font size, `SLACK` times as wide as measured."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=list(families), size=MEASURED_POINTS, weight="bold" if bold else "normal")
    pixels, _, _ = _renderer().get_text_width_height_descent(text, font, ismath=False)
    return float(pixels) / POINTS_PER_INCH / MEASURED_POINTS * SLACK
