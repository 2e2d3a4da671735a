"""Holds the inspector's themes: the terminal's own colours, light, and dark."""

from dataclasses import dataclass, replace

from attnviz.browse.session.state import Theme
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import Rgb

CURSOR_COLOR: Rgb = (255, 0, 170)


@dataclass(frozen=True)
class _Paper:
    """The default colours of a theme.

    Attributes:
        ink: the colour of text.
        dim: the colour of dim text.
        paper: the background.
    """

    ink: Rgb
    dim: Rgb
    paper: Rgb


PAPERS = {
    "light": _Paper((28, 30, 34), (96, 102, 112), (252, 252, 250)),
    "dark": _Paper((222, 225, 230), (148, 154, 164), (20, 22, 27)),
}


def themed_line(line: Line, theme: Theme) -> Line:
    """Returns a line whose spans without colours have those of the theme; unchanged in the terminal's own colours."""
    if theme == "terminal":
        return line
    paper = PAPERS[theme]
    return [_themed_span(span, paper) for span in line]


def _themed_span(span: Span, paper: _Paper) -> Span:
    """Returns a span with the theme's colours where it has none; dim text gets the theme's dim colour."""
    words = span.style.split()
    ink = span.ink or (paper.dim if "dim" in words else paper.ink)
    style = " ".join(word for word in words if word != "dim")
    return replace(span, ink=ink, paper=span.paper or paper.paper, style=style)
