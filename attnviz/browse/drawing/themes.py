"""Holds the inspector's themes: the terminal's own colours, or light or dark ones on any terminal."""

from dataclasses import dataclass, replace

from attnviz.browse.session.state import Theme
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import Rgb

CURSOR_COLOR: Rgb = (255, 0, 170)


@dataclass(frozen=True)
class Paper:
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
    "light": Paper((28, 30, 34), (96, 102, 112), (252, 252, 250)),
    "dark": Paper((222, 225, 230), (148, 154, 164), (20, 22, 27)),
}


def on_paper(line: Line, theme: Theme) -> Line:
    """Returns a line with the theme's colours in every span that has none."""
    if theme == "terminal":
        return line
    paper = PAPERS[theme]
    return [_on(span, paper) for span in line]


def _on(span: Span, paper: Paper) -> Span:
    words = span.style.split()
    ink = span.ink or (paper.dim if "dim" in words else paper.ink)
    style = " ".join(word for word in words if word != "dim")
    return replace(span, ink=ink, paper=span.paper or paper.paper, style=style)
