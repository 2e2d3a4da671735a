"""Colours of the inspector: the terminal's own, or light or dark whatever the terminal is."""

from dataclasses import dataclass, replace

from attnviz.browse.session.state import Theme
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import Rgb

CURSOR_COLOR: Rgb = (255, 0, 170)


@dataclass(frozen=True)
class Paper:
    """What a theme writes on, and with what.

    Attributes:
        ink: of what has no colour of its own.
        dim: of what is said beside.
        paper: behind it.
    """

    ink: Rgb
    dim: Rgb
    paper: Rgb


PAPERS = {
    "light": Paper((28, 30, 34), (96, 102, 112), (252, 252, 250)),
    "dark": Paper((222, 225, 230), (148, 154, 164), (20, 22, 27)),
}


def on_paper(line: Line, theme: Theme) -> Line:
    """The line with the theme's ink and paper where a span has none."""
    if theme == "terminal":
        return line
    paper = PAPERS[theme]
    return [_on(span, paper) for span in line]


def _on(span: Span, paper: Paper) -> Span:
    words = span.style.split()
    ink = span.ink or (paper.dim if "dim" in words else paper.ink)
    style = " ".join(word for word in words if word != "dim")
    return replace(span, ink=ink, paper=span.paper or paper.paper, style=style)
