"""The matplotlib figure that attnviz draws, which no setting of the user's matplotlib changes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure

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
    """A figure that looks the same under all settings, when it is drawn and saved, and that a notebook shows.

    Attributes:
        letters: ``none`` keeps the letters of an SVG as text, ``path`` turns them into shapes.
    """

    letters: Literal["none", "path"] = "none"

    def draw(self, renderer: RendererBase) -> None:
        """Draws the figure by attnviz's settings."""
        with own_settings({"svg.fonttype": self.letters}):
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Saves the figure by attnviz's settings; the options are matplotlib's, such as ``dpi`` and ``transparent``."""
        with own_settings({"svg.fonttype": self.letters}):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        """Returns the picture that a notebook shows, since this figure is not one of pyplot's."""
        png_file = io.BytesIO()
        self.savefig(png_file, format="png")
        return png_file.getvalue()
