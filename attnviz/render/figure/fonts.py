"""Chooses fonts that have the characters of a figure, and names each character that no installed font has."""

import logging
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from attnviz.render.figure.picture import Picture
from attnviz.report.picture.panels import Axis, Panel

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
FONT_PACKAGES = (
    ("EMOJI", "Symbola (Debian: fonts-symbola)"),
    ("CJK", "Noto Sans CJK (Debian: fonts-noto-cjk)"),
    ("", "Noto Sans (Debian: fonts-noto-core, fonts-noto-extra)"),
)


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
    """Returns the fewest families, the default one first, that have all characters of the texts."""
    uncovered = {character for text in texts for character in text if ord(character) >= FIRST_UNCOMMON}
    uncovered = {
        one
        for one in uncovered
        if unicodedata.category(one) not in INVISIBLE_CATEGORIES and ord(one) not in VARIATION_SELECTORS
    }
    families = [DEFAULT_FAMILY]
    if uncovered:
        for family, file in _families().items():
            found = uncovered & _characters(file)
            if found:
                families += [family] if family != DEFAULT_FAMILY else []
                uncovered -= found
            if not uncovered:
                break
    return Fonts(tuple(families), frozenset(uncovered))


def readable(picture: Picture, fonts: Fonts) -> Picture:
    """Returns the picture with each missing character replaced by its code point, and a remark on which fonts to install."""
    if not fonts.missing:
        return picture
    names = {ord(character): f"⟨U+{ord(character):04X}⟩" for character in fonts.missing}
    return replace(
        picture,
        title=picture.title.translate(names),
        source=picture.source.translate(names),
        panels=tuple(_renamed(panel, names) for panel in picture.panels),
        remarks=(*(remark.translate(names) for remark in picture.remarks), _advice(fonts.missing)),
    )


def shown_texts(picture: Picture, *, labels: bool = True) -> Iterable[str]:
    """Returns all texts that a figure shows, with or without the labels of its axes."""
    axes = (axis for panel in picture.panels for axis in (panel.rows, panel.columns)) if labels else ()
    shown = {label for axis in axes for label in axis.labels}
    return (picture.title, picture.source, *picture.remarks, *(panel.title for panel in picture.panels), *shown)


def font_runs(text: str) -> list[tuple[str, str | None]]:
    """Returns the text in runs, each with the path of a font that has its characters; ``None`` stands for the default font."""
    if all(ord(character) < FIRST_UNCOMMON for character in text):
        return [(text, None)]
    runs: list[tuple[str, str | None]] = []
    paths = [_families()[family] for family in choose_fonts([text]).families]
    for character in text:
        index = next((number for number, path in enumerate(paths) if character in _characters(path)), 0)
        path = paths[index] if index else None
        if runs and runs[-1][1] == path:
            runs[-1] = (runs[-1][0] + character, path)
        else:
            runs.append((character, path))
    return runs


def _renamed(panel: Panel, names: dict[int, str]) -> Panel:
    def renamed(axis: Axis) -> Axis:
        return replace(axis, labels=tuple(label.translate(names) for label in axis.labels))

    return replace(panel, title=panel.title.translate(names), rows=renamed(panel.rows), columns=renamed(panel.columns))


def _advice(missing: frozenset[str]) -> str:
    ordered = sorted(missing)
    names = [f"U+{ord(character):04X} ({unicodedata.name(character, 'no name').lower()})" for character in ordered]
    more = f" and {len(names) - MAX_NAMED_CHARACTERS} more" if len(names) > MAX_NAMED_CHARACTERS else ""
    packages = dict.fromkeys(_package(character) for character in ordered)
    named = ", ".join(names[:MAX_NAMED_CHARACTERS])
    return f"No installed font has outlines of {named}{more}; install {' or '.join(packages)}."


def _package(character: str) -> str:
    emoji = ord(character) >= 0x1F000 and ord(character) < 0x20000
    kind = "EMOJI" if emoji else "CJK" if unicodedata.east_asian_width(character) in "WF" else ""
    return next(package for name, package in FONT_PACKAGES if name == kind)


@cache
def _families() -> dict[str, str]:
    """Returns the file of every installed font family that matplotlib can draw; families with many scripts come first."""
    from matplotlib.font_manager import fontManager

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it warns of each font without a bold face
    files: dict[str, str] = {}
    for entry in sorted(fontManager.ttflist, key=lambda entry: abs(_weight(entry.weight) - REGULAR_WEIGHT)):
        if entry.style == "normal" and not any(unfit in entry.name for unfit in UNUSABLE_FAMILIES):
            files.setdefault(entry.name, entry.fname)
    order = sorted(files, key=lambda name: (_place(name), name))
    return {name: files[name] for name in order}


def _place(name: str) -> int:
    return next(
        (place for place, first in enumerate(PREFERRED_FAMILIES) if name.startswith(first)), len(PREFERRED_FAMILIES)
    )


def _weight(weight: str | int) -> int:
    return weight if isinstance(weight, int) else REGULAR_WEIGHT


@cache
def _characters(file: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(file).get_charmap()))
    except (RuntimeError, OSError):  # FreeType cannot open the font, so nothing can be drawn with it
        return frozenset()
