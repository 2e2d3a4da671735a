"""Measures, cuts and wraps text in inches, in fonts that have its characters."""

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

POINTS_PER_INCH = 72
LINE_HEIGHT = 1.3  # in font sizes
MEASURED_POINTS = 40  # font size at which text is measured
SLACK = 1.03  # hinting makes small text up to a few percent wider than text of the measured size
ROUNDING_INCHES = 1e-6  # a text exactly as wide as its place fits, despite rounding
ELLIPSIS = "…"
CACHED_WIDTHS = 8192  # texts; a notebook draws many figures with the same ones
WORD_GAPS = re.compile(r"(?<![“‘])(?<! ')\s+(?![”’])")  # a quoted token keeps the space that it begins with
MIN_FONT_PIXELS = 6
DEFAULT_FAMILY = "DejaVu Sans"  # comes with matplotlib
PREFERRED_FAMILIES = (
    DEFAULT_FAMILY,
    "Noto Sans CJK SC",
    "Noto Sans CJK",
    "Noto Sans",
    "Source Han",
    "WenQuanYi",
    "Symbola",
    "Noto Emoji",
    "FreeSans",
    "Unifont",
)
UNUSABLE_FAMILIES = (
    "Color Emoji",
    "Last Resort",
    "LastResort",
    "Adobe Blank",
)  # they have bitmaps or boxes, no outlines
INVISIBLE_CATEGORIES = ("Cf", "Cc", "Zs")  # their characters need no glyph
VARIATION_SELECTORS = range(0xFE00, 0xFE10)  # they choose a variant of the character before them
REGULAR_WEIGHT = 400
FIRST_UNCOMMON = 0x250  # characters below it are in every font
MAX_NAMED_CHARACTERS = 4  # in a remark
EMOJI_CODE_POINTS = range(0x1F000, 0x20000)
EMOJI_FONT = "Symbola (Debian: fonts-symbola)"
CJK_FONT = "Noto Sans CJK (Debian: fonts-noto-cjk)"
OTHER_FONT = "Noto Sans (Debian: fonts-noto-core, fonts-noto-extra)"
_unreadable_files: set[str] = set()  # font files that matplotlib's list cannot take


class Ruler:
    """Measures text in inches as matplotlib draws it in some font families."""

    def __init__(self, families: tuple[str, ...]) -> None:
        self._families = families

    def width(self, text: str, points: float, bold: bool = False) -> float:
        """Returns the width of a text in inches."""
        return _width_per_point(self._families, text, bold) * points

    def longest_width(self, texts: Iterable[str], points: float, bold: bool = False) -> float:
        """Returns the width of the widest text in inches; 0 if there is no text."""
        return max((self.width(text, points, bold) for text in texts), default=0.0)

    def largest_points(
        self, texts: Iterable[str], limit: float, largest: float, smallest: float = 0.0, bold: bool = False
    ) -> float:
        """Returns the largest font size, between two sizes, at which every text fits a width; else the smallest."""
        fitting_points = limit / max(self.longest_width(texts, 1.0, bold), 1e-6)  # texts may be empty
        return max(min(largest, fitting_points), smallest)

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
        for word in WORD_GAPS.split(text.strip()) if text.strip() else ():
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


class PillowRuler(Ruler):
    """Measures text as Pillow draws it, without importing matplotlib."""

    def __init__(self) -> None:
        super().__init__((DEFAULT_FAMILY,))

    def width(self, text: str, points: float, bold: bool = False) -> float:
        """Returns the width of a text in inches."""
        return _pillow_width(text, bold) * points


@lru_cache(maxsize=CACHED_WIDTHS)
def _pillow_width(text: str, bold: bool) -> float:
    """Returns the width of a text in inches per point of the font size, `SLACK` times as wide as measured."""
    pixels = sum(font.getlength(run) for run, font in pillow_runs(text, MEASURED_POINTS, bold))
    return float(pixels) / POINTS_PER_INCH / MEASURED_POINTS * SLACK


def pillow_runs(text: str, size: int, bold: bool = False) -> "Iterator[tuple[str, FreeTypeFont]]":
    """Yields the parts of a text, each with the font of ``size`` pixels that has its characters."""
    yield from ((run, _pillow_font(max(size, MIN_FONT_PIXELS), bold, file)) for run, file in font_runs(text))


@cache
def _pillow_font(size: int, bold: bool, file: str | None) -> "FreeTypeFont":
    """Returns a font, read from its file without importing matplotlib."""
    from PIL import ImageFont

    if file is not None:
        return ImageFont.truetype(file, size)
    matplotlib = find_spec("matplotlib")
    assert matplotlib is not None
    assert matplotlib.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.origin).parent / "mpl-data" / "fonts" / "ttf" / name), size)


@dataclass(frozen=True)
class Fonts:
    """The fonts that a figure needs."""

    families: tuple[str, ...]  # the font families, in the order in which they are tried for each character
    missing: frozenset[str]  # the characters that no installed font has

    @property
    def code_points(self) -> dict[int, str]:
        """A text like ⟨U+1F600⟩ for each missing character, by the number of the character."""
        return {ord(character): f"⟨U+{ord(character):04X}⟩" for character in self.missing}


def choose_fonts(texts: Iterable[str]) -> Fonts:
    """Returns the default font family, installed families that add characters of the texts, and missing characters.

    Reads font files only if the texts have characters that some fonts lack.
    """
    characters = {
        character
        for character in set[str]().union(*texts)
        if ord(character) >= FIRST_UNCOMMON
        and ord(character) not in VARIATION_SELECTORS
        and unicodedata.category(character) not in INVISIBLE_CATEGORIES
    }
    fonts = _known_fonts(characters)
    return _known_fonts(characters) if fonts.missing and _found_newer_fonts() else fonts


def _known_fonts(characters: Set[str]) -> Fonts:
    missing_characters = set(characters)
    families = [DEFAULT_FAMILY]
    if missing_characters:
        for family, file in _font_files().items():
            font_characters = missing_characters & _characters_of(file)
            if font_characters:
                if family != DEFAULT_FAMILY:
                    families.append(family)
                missing_characters -= font_characters
            if not missing_characters:
                break
    return Fonts(tuple(families), frozenset(missing_characters))


def _found_newer_fonts() -> bool:
    """Adds font files that are installed to matplotlib's list, which may be older; True if there are any."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed_files = {entry.fname for entry in fontManager.ttflist}
    added = False
    for file in sorted(set(findSystemFonts()) - listed_files - _unreadable_files):
        try:
            fontManager.addfont(file)
        except (RuntimeError, OSError, UnicodeError):  # FreeType cannot read it, so nothing can be drawn with it
            _unreadable_files.add(file)
        else:
            added = True
    if added:
        _font_files.cache_clear()
    return added


def font_runs(text: str) -> list[tuple[str, str | None]]:
    """Returns a text as runs of characters, each with the file of a font that has them; ``None`` for the default font.

    Characters that no font has are in runs of the default font; an empty text is one empty run.
    """
    if all(ord(character) < FIRST_UNCOMMON for character in text):
        return [(text, None)]
    runs: list[tuple[str, str | None]] = []
    paths = [_font_files()[family] for family in choose_fonts([text]).families]
    for character in text:
        covering_paths = (path for path in paths if character in _characters_of(path))
        path = next(covering_paths, paths[0])
        file = None if path == paths[0] else path
        if runs and runs[-1][1] == file:
            runs[-1] = (runs[-1][0] + character, file)
        else:
            runs.append((character, file))
    return runs


def missing_remark(missing: frozenset[str]) -> str:
    """Returns the sentence that names characters without a font, and the packages that have them."""
    names, packages = [], []
    for character in sorted(missing):
        names.append(f"U+{ord(character):04X} ({unicodedata.name(character, 'no name').lower()})")
        if ord(character) in EMOJI_CODE_POINTS:
            packages.append(EMOJI_FONT)
        else:
            is_wide = unicodedata.east_asian_width(character) in "WF"  # Unicode's classes wide and full-width
            packages.append(CJK_FONT if is_wide else OTHER_FONT)
    more_text = f" and {len(names) - MAX_NAMED_CHARACTERS} more" if len(names) > MAX_NAMED_CHARACTERS else ""
    first_names = ", ".join(names[:MAX_NAMED_CHARACTERS])
    fonts = " and ".join(dict.fromkeys(packages))
    return f"No installed font has outlines of {first_names}{more_text}; install {fonts}."


@cache
def _font_files() -> dict[str, str]:
    """Returns the file of each installed font family that matplotlib can draw, by name; preferred families are
    first.
    """
    from matplotlib.font_manager import fontManager

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it warns of each font without a bold face
    entries = sorted(
        fontManager.ttflist,
        # Matplotlib has only a word for some weights.
        key=lambda entry: abs(entry.weight - REGULAR_WEIGHT) if isinstance(entry.weight, int) else 0,
    )
    files: dict[str, str] = {}
    for entry in entries:
        if entry.style == "normal" and not any(name in entry.name for name in UNUSABLE_FAMILIES):
            files.setdefault(entry.name, entry.fname)
    ranks = {
        name: next(
            (rank for rank, start in enumerate(PREFERRED_FAMILIES) if name.startswith(start)), len(PREFERRED_FAMILIES)
        )
        for name in files
    }
    return {name: files[name] for name in sorted(files, key=lambda name: (ranks[name], name))}


@cache
def _characters_of(file: str) -> frozenset[str]:
    """Returns the characters that a font file has; an empty set if it cannot be opened."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(file).get_charmap()))
    except (RuntimeError, OSError):  # FreeType cannot open the font, so nothing can be drawn with it
        return frozenset()
