"""The matplotlib figure that attnviz draws, which no setting of the user's matplotlib changes, and its images.

Matplotlib is imported at once: import this module where a figure is drawn.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.image import BboxImage
from matplotlib.patches import Rectangle
from matplotlib.transforms import BboxBase

from attnviz.render.figure.page import Box, Word
from attnviz.render.figure.picture import Theme
from attnviz.report.picture.colors import ink_on
from attnviz.report.picture.overlays import overlay_pixels
from attnviz.report.picture.panels import Panel

FRAME_POINTS = 0.5  # width of the frame around cells, of which those of zero have the colour of the paper
UNSCALED_TOKEN_POINTS = 14  # font size of tokens at which lines and frames have the widths of their constants
MARK_POINTS = 2.0  # width of the frame around a marked token
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnviz",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "hatch.linewidth": 0.6,
    "path.simplify": True,
}


@contextmanager
def own_settings(settings: dict[Any, Any] | None = None) -> Iterator[None]:
    """Draws and saves by matplotlib's defaults and `SETTINGS` alone, whatever matplotlibrc, styles and rcParams say."""
    # A backend is no setting of a figure, and setting it would close the user's windows.
    defaults: dict[Any, Any] = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context({**defaults, **SETTINGS, **(settings or {})}):
        yield


class OwnFigure(Figure):
    """A figure that looks the same under all settings, when it is drawn and saved, and that a notebook shows."""

    # ``none`` keeps the letters of an SVG as text, ``path`` turns them into shapes
    letters: Literal["none", "path"] = "none"

    def draw(self, renderer: RendererBase) -> None:
        """Draws the figure by attnviz's settings."""
        with own_settings({"svg.fonttype": self.letters}):
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Saves the figure by attnviz's settings; the options are matplotlib's, such as ``dpi`` and ``transparent``."""
        with own_settings({"svg.fonttype": self.letters}):
            super().savefig(fname, **options)

    def write(self, x: float, y: float, text: str, points: float, color: str, **style: Any) -> None:
        """Writes a text at a position in inches; ``$`` and other signs of formulas are plain characters."""
        self.text(x, y, text, fontsize=points, color=color, transform=self.dpi_scale_trans, parse_math=False, **style)

    def write_word(self, word: Word, points: float, theme: Theme) -> None:
        """Writes a token on the rectangle behind it, if it has one; ``points`` is the font size of all tokens."""
        points, ink = word.points or points, theme["faint" if word.faint else "ink"]
        if (box := word.box) is not None:
            patch = Rectangle((box.x, box.y), box.width, box.height, edgecolor="none", linewidth=0.0)
            patch.set(facecolor="none" if word.fill is None else np.divide(word.fill, 255))
            if word.marked:
                patch.set(edgecolor=theme["mark"], linewidth=MARK_POINTS * points / UNSCALED_TOKEN_POINTS)
            patch.set_transform(self.dpi_scale_trans)
            self.add_artist(patch)
            ink = theme["faint"] if word.fill is None else "#{:02x}{:02x}{:02x}".format(*ink_on(word.fill).tolist())
        self.write(word.x, word.y, word.text, points, ink, ha=word.align, va="center_baseline")

    def axes_at(self, box: Box, color: str, frame: str | None = None) -> Axes:
        """Adds axes at a place in inches, on a background of this colour, with a thin frame of another, if given."""
        width, height = self.get_figwidth(), self.get_figheight()
        shares = (box.x / width, box.y / height, box.width / width, box.height / height)
        axes = self.add_axes(shares, facecolor=color)
        for spine in axes.spines.values():
            spine.set(visible=frame is not None, edgecolor=frame, linewidth=FRAME_POINTS)
        return axes

    def _repr_png_(self) -> bytes:
        """Returns the picture that a notebook shows, since this figure is not one of pyplot's."""
        png_file = io.BytesIO()
        self.savefig(png_file, format="png")
        return png_file.getvalue()


class OverlaidImage(BboxImage):
    """The image of a panel, coloured by its weights; its pixels are those of the output, so that edges are sharp."""

    def __init__(self, panel: Panel, area: BboxBase) -> None:
        super().__init__(area)
        self.panel = panel
        self.set_data(np.zeros((1, 1, 3), dtype=np.uint8))  # matplotlib draws no artist without data

    def make_image(self, renderer: Any, magnification: float = 1.0, unsampled: bool = False) -> tuple[Any, ...]:
        """Returns the pixels, and the x and y of their lower left corner in pixels of the figure.

        The pixels are ``(rows, columns, 4)``, red to opacity as uint8, the lowest row first.
        """
        extents = np.multiply(self.get_window_extent().extents, magnification)
        left, bottom, right, top = np.rint(extents).astype(int).tolist()
        rows, columns = max(top - bottom, 1), max(right - left, 1)
        opaque = np.full((rows, columns, 1), 255, dtype=np.uint8)
        pixels = np.concatenate([overlay_pixels(self.panel, rows, columns), opaque], axis=2)
        return pixels[::-1], left / magnification, bottom / magnification, None
