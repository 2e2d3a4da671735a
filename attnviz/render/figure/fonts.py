"""Chooses fonts that have the characters of a figure, and names the characters that no installed font has."""

import logging
import unicodedata
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import cache

from attnviz.render.figure.picture import Picture
from attnviz.report.picture.panels import Axis

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


@dataclass(frozen=True)
class Fonts:
    """The fonts that a figure needs.

    Attributes:
        families: the font families, in the order in which they are tried for each character.
        missing: the characters that no installed font has.
    """

    families: tuple[str, ...]
    missing: frozenset[str]


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


def with_readable_texts(picture: Picture, fonts: Fonts) -> Picture:
    """Returns a picture with code points (⟨U+1F600⟩) for characters that no font has, and a remark that names them.

    Returns the picture unchanged if no character is missing.
    """
    if not fonts.missing:
        return picture
    code_points = {ord(character): f"⟨U+{ord(character):04X}⟩" for character in fonts.missing}

    def readable_axis(axis: Axis) -> Axis:
        marks = tuple((token, label.translate(code_points)) for token, label in axis.marks)
        return replace(axis, labels=tuple(label.translate(code_points) for label in axis.labels), marks=marks)

    return replace(
        picture,
        title=picture.title.translate(code_points),
        source=picture.source.translate(code_points),
        panels=tuple(
            replace(
                panel,
                heading=panel.heading.with_words(lambda words: words.translate(code_points)),
                rows=readable_axis(panel.rows),
                columns=readable_axis(panel.columns),
            )
            for panel in picture.panels
        ),
        remarks=(*(remark.translate(code_points) for remark in picture.remarks), _missing_remark(fonts.missing)),
    )


def shown_texts(picture: Picture, *, labels: bool = True) -> Iterable[str]:
    """Returns the title, source, remarks and panel titles of a figure, with or without labels and landmarks."""
    axes = (axis for panel in picture.panels for axis in (panel.rows, panel.columns)) if labels else ()
    label_texts = {label for axis in axes for label in (*axis.labels, *(text for _, text in axis.marks))}
    return (picture.title, picture.source, *picture.remarks, *(panel.title for panel in picture.panels), *label_texts)


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


def _missing_remark(missing: frozenset[str]) -> str:
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
