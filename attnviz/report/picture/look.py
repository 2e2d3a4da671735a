"""The look of a report: options that change how it is drawn, not what it contains."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from attnviz.base.errors import AttnvizError, argument, flag, format_options, option
from attnviz.base.options import OneOf, Option, check_options, declared_options, in_range, not_blank

THEMES = ("light", "dark")
OVERLAY = "overlay"  # arcs, or with a query the text, of several heads in one picture
FIGURE_DPI = 200  # unless the user chooses another number
STYLES = ("heatmap", "arcs", "text", OVERLAY)
POOLS = ("mean", "max")
COLOR_SCALES = ("linear", "sqrt", "log", "lift")
LIMITS = ("shared", "head")
NUMBER_PATTERN = r"-?\d{1,9}(?:\.\d{1,9})?(?:e-?\d{1,2})?"
FIGURES = ("figure", "slides")  # kinds of media
PICTURE_MEDIA = ("terminal", *FIGURES, "page")
COLUMNS = {"column": 3.5, "page": 7.0}  # widths in inches of one journal column and of a page of two
LENGTHS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # inches per unit; points are TeX's
SLIDES = {"16:9": (13.333, 7.5), "4:3": (10.0, 7.5), "1:1": (7.5, 7.5)}
MIN_PICTURE_INCHES, MAX_PICTURE_INCHES = 2, 60
MAX_PICTURE_PIXELS = 150_000_000  # a picture takes four bytes per pixel, and two copies are in memory at once
BYTE_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
MIN_PAGE_BYTES = 100_000


def _check_colormap(name: str, value: str) -> None:
    """Raises AttnvizError if no colormap is called ``value``."""
    from attnviz.report.picture.colors import colormap

    colormap(value)


def _colormaps() -> dict[str, str]:
    """Returns the names of the colormaps to suggest, each with an empty description."""
    from attnviz.report.picture.colors import SAMPLES

    return dict.fromkeys(SAMPLES, "")


def _check_mark(name: str, value: str) -> None:
    """Raises AttnvizError if the mark is a pattern that cannot be compiled."""
    from attnviz.text.named_groups import compile_mark

    compile_mark(value)


@dataclass(frozen=True, eq=False)
class Look:
    """Options of how a report is drawn, not of what it contains, as the user wrote them.

    If a query is given without a style, the style is ``text``.

    Attributes:
        width: the columns of the terminal.
        height: the lines of the terminal's screen; ``None`` where the output has no limit, as in a file.
        moves_cursor: True if escapes may move the cursor, as on a terminal, but not in a pipe or a file.
        colors: the number of colours of the terminal: 16777216, 256, or 0 for none.
        frame: width and height in inches of the area that a figure fills, instead of its size.
        for_command_line: True if remarks name options as the command line does, ``--all``; False for Python's
            ``all=True``.
        head_names: what the file of ``names`` says, by ``layer.head``; ``None`` until it was read.
        pinned_notes: what the file of ``notes`` says; ``None`` until it was read.
    """

    ascii: Annotated[bool, Option("Draw with ASCII characters only, without colour.", media=("terminal",))] = False
    theme: Annotated[
        str | None,
        Option(
            "Use the light or dark theme (default: light; pages follow the reader's system, terminals their own).",
            OneOf(THEMES),
            media=PICTURE_MEDIA,
        ),
    ] = None
    size: Annotated[
        str | None,
        Option(
            "Fit a figure to 16:9, 4:3, 1:1, 8x6 (inches) or 1920x1080 (pixels), or to the width of a journal: column, "
            "page, 3.25in, 84mm or 252pt.",
            media=FIGURES,
        ),
    ] = None
    dpi: Annotated[
        int | None,
        Option(
            "Pixels per inch of a figure: 200 by default, 300 on slides, 100 in films.",
            in_range(20, 2400),
            media=FIGURES,
        ),
    ] = None
    per_slide: Annotated[
        int, Option("Number of heads per slide of a .pptx.", in_range(1, 64), inspector=False, media=("slides",))
    ] = 1
    title: Annotated[str | None, Option("Show this heading instead of the text.", not_blank, media=PICTURE_MEDIA)] = (
        None
    )
    style: Annotated[
        str | None,
        Option(
            "Draw a heatmap, arcs (lines between tokens), text (shaded by what --query attends to), or an overlay, "
            "which joins two to four heads in one picture, each in its own hue.",
            OneOf(STYLES),
            inspector=False,
            brief="Draw a heatmap, arcs, shaded text or an overlay.",
        ),
    ] = None
    query: Annotated[
        str | None,
        Option(
            "Shade the text by what this token attends to; give the token, or its number as @4. "
            "A word that patches look at shades their picture.",
            inspector=False,
            brief="Shade the text by what this token attends to.",
        ),
    ] = None
    color_scale: Annotated[
        str | None,
        Option(
            "Scale the colours: linear, sqrt, log or lift (weight / uniform weight); default: what suits the weights.",
            OneOf(COLOR_SCALES),
            media=PICTURE_MEDIA,
        ),
    ] = None
    limits: Annotated[
        str,
        Option(
            "Set the limits of the colours: shared (one scale for all heads), head (a scale for each head), or numbers "
            "such as 0:0.5.",
            media=PICTURE_MEDIA,
        ),
    ] = "shared"
    cmap: Annotated[
        str | None,
        Option(
            "Use this colormap: viridis, magma, cividis, Blues or any of matplotlib's.",
            _check_colormap,
            names=_colormaps,
            media=PICTURE_MEDIA,
        ),
    ] = None
    pool: Annotated[
        str,
        Option(
            "Draw the mean or max of the weights that share a cell.",
            OneOf(POOLS),
            inspector=False,
            media=("terminal", *FIGURES),
        ),
    ] = "mean"
    mark: Annotated[
        str | None,
        Option(
            "Label the axes by words, sentences, lines, paragraphs or matches of this pattern.",
            _check_mark,
            inspector=False,
        ),
    ] = None
    annotate: Annotated[bool, Option("Write the numbers into the cells of a figure.", media=FIGURES)] = False
    font_size: Annotated[
        float | None, Option("Size of the tokens in a figure, in points.", in_range(3, 144, "points"), media=FIGURES)
    ] = None
    bare: Annotated[
        bool,
        Option(
            "Omit title, model, notes and table from a figure; put them in your caption.",
            inspector=False,
            media=FIGURES,
        ),
    ] = False
    transparent: Annotated[bool, Option("Draw a figure without a background.", media=FIGURES)] = False
    max_size: Annotated[
        str,
        Option(
            "Limit the size of a page, such as 50MB; larger maps are pooled to fit.", inspector=False, media=("page",)
        ),
    ] = "50MB"
    notes: Annotated[
        str | None,
        Option(
            "Add notes to a page or slides from a file with lines such as: #head=3.4 Looks at the previous word.",
            inspector=False,
            media=("page", "slides"),
        ),
    ] = None
    effects: Annotated[
        str | None,
        Option(
            "Add effects from attnviz ablate -o effects.json, to colour, sort and filter heads by.",
            media=("page",),
        ),
    ] = None
    names: Annotated[
        str | None,
        Option(
            "Name heads from a file with lines such as: 4.11 name mover; browse writes such a file.",
            media=("terminal", "page", *FIGURES),
        ),
    ] = None
    width: int = 80
    height: int | None = None
    moves_cursor: bool = False
    colors: int = 0
    frame: tuple[float, float] | None = None
    for_command_line: bool = False
    head_names: Mapping[str, str] | None = None
    pinned_notes: Sequence[dict[str, str]] | None = None

    def __post_init__(self) -> None:
        if self.frame is None:  # a look with a frame is a copy of one that was checked
            check_options(self)
        if self.query is not None and self.drawn_style != "text":
            raise AttnvizError(
                f"{option('query')} shades a text, and {option('style', self.style)} draws every query; use one of them"
            )
        _ = self.inches, self.max_bytes  # parsing them raises if they are invalid
        limits = self.color_limits
        if self.color_scale == "log" and not isinstance(limits, str) and limits[0] <= 0:
            raise AttnvizError(
                f"limits {limits[0]:g}:{limits[1]:g} are not a logarithmic scale; give positive numbers: 0.001:1"
            )

    def format_options(self, text: str) -> str:
        """Returns the text with its options as the command line writes them, ``--all``, or Python, ``all=True``."""
        return format_options(text, flag if self.for_command_line else argument)

    @property
    def pixels_per_inch(self) -> int:
        """The pixels per inch of a figure."""
        return FIGURE_DPI if self.dpi is None else self.dpi

    @property
    def drawn_style(self) -> str:
        """The style that is drawn: ``heatmap``, ``arcs`` (tokens in two columns, joined by lines) or ``text`` (shaded).

        Without a style it is ``text`` if a query is given, else ``heatmap``. An overlay is drawn as arcs, or as text if
        a query is given.
        """
        if self.style == OVERLAY:
            return "arcs" if self.query is None else "text"
        return self.style or ("heatmap" if self.query is None else "text")

    @property
    def overlaid(self) -> bool:
        """True if several heads share one picture, each in its own hue."""
        return self.style == OVERLAY

    @property
    def inches(self) -> tuple[float, float] | None:
        """Width and height of a figure in inches; ``None`` if its content chooses its height, or both."""
        if self.size is None or self.frame is not None:
            return self.frame
        return None if parse_width(self.size) else parse_size(self.size, self.pixels_per_inch)

    @property
    def column_inches(self) -> float | None:
        """The width in inches if ``size`` is a width alone, such as ``84mm``, and no frame is given; else ``None``."""
        return None if self.size is None or self.frame is not None else parse_width(self.size)

    @property
    def color_limits(self) -> str | tuple[float, float]:
        """The limits of the colour scale: ``shared`` by all heads, ``head`` for one each, or two numbers."""
        if self.limits in LIMITS:
            return self.limits
        match = re.fullmatch(rf"({NUMBER_PATTERN}):({NUMBER_PATTERN})", self.limits, re.ASCII)
        if match is None:
            raise AttnvizError(
                f"{option('limits')} {self.limits!r} cannot be read; choose shared, head or two numbers such as 0:0.5"
            )
        low, high = float(match[1]), float(match[2])
        if low == high:
            raise AttnvizError(f"{option('limits')} {self.limits!r}: low and high are equal; write 0:0.5")
        if low > high:
            raise AttnvizError(
                f"{option('limits')} {self.limits!r} are the wrong way round; write {match[2]}:{match[1]}"
            )
        return low, high

    @property
    def max_bytes(self) -> int:
        """The largest size of a page in bytes; longer maps are pooled to fit."""
        return parse_bytes(self.max_size)

    @property
    def drawn_theme(self) -> str:
        """The theme that is drawn where a medium must have one: ``light`` unless the user chose another."""
        return self.theme or THEMES[0]


def refuse_style(look: Look, picture: str) -> None:
    """Raises AttnvizError if the look asks for arcs or text."""
    if look.drawn_style != "heatmap":
        style_option = option("query") if look.query is not None else option("style", look.style)
        raise AttnvizError(
            f"{style_option} needs single heads of one recording; leave it out to draw {picture} as a heatmap"
        )


def refuse_uninspected(look: Look) -> None:
    """Raises AttnvizError if an option is set that the full-screen inspector ignores."""
    for name, declaration in declared_options(Look).items():
        if not declaration.option.inspector and getattr(look, name) != declaration.default:
            raise AttnvizError(f"{option(name)} has no effect in browse; leave it out, or use it with attnviz show")


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
    if max(sides) > MAX_PICTURE_INCHES and sides[0] * sides[1] > MAX_PICTURE_PIXELS:
        share = (MAX_PICTURE_PIXELS / (sides[0] * sides[1])) ** 0.5
        raise AttnvizError(
            f"{option('size')} {text!r} is {sides[0] * sides[1] / 1e6:.0f} million pixels, more than "
            f"{MAX_PICTURE_PIXELS // 10**6} million; choose {int(share * sides[0])}x{int(share * sides[1])} or less"
        )
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
