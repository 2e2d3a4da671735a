"""Draws a row of weights over its medium in a terminal: tokens of a text on colours, an image in half blocks."""

from collections.abc import Iterator
from typing import assert_never

from rich.cells import cell_len

from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.render.terminal.lines import Line, Span, fit, wrap
from attnviz.render.terminal.over_image import image_lines
from attnviz.report.picture.colors import ink_on
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel

MIN_WRITTEN_SHARE = 0.1  # share of the scale below which weights are not written in texts without colour


def shaded_texts(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the text of each panel under its title, or images side by side."""
    match panels[0].columns.canvas:
        case Image():
            yield from image_lines(panels, look)
        case Text():
            yield from _texts(panels, look)
        case unknown:
            assert_never(unknown)


def _texts(panels: list[Panel], look: Look) -> Iterator[Line]:
    for panel in panels:
        yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
        yield from _flowed(_tokens(panel, look), look.width)
        yield []


def _tokens(panel: Panel, look: Look) -> Iterator[Span]:
    """Yields the tokens of a text; the query is underlined."""
    colored = bool(look.colors) and not look.ascii
    papers = panel.scale.rgb(panel.levels[0])
    inks, fraction = ink_on(papers), panel.scale.fraction(panel.levels[0])
    for place, label in enumerate(panel.columns.labels):
        text = fit(label, look.width).rstrip() or " "
        value = float(panel.values[0, place])
        style = "underline" if _is_query(panel, place) else ""
        if not panel.visible[0, place]:
            yield Span(text, style="dim")
        elif colored:
            yield Span(text, ink=tuple(inks[place].tolist()), paper=tuple(papers[place].tolist()), style=style)
        else:
            tells = fraction[place] >= MIN_WRITTEN_SHARE or value == panel.peak
            number = f" ({panel.quantity.text(value)})" if tells else ""
            yield Span(fit(label, look.width - len(number)).rstrip() + number, style=style)


def _is_query(panel: Panel, place: int) -> bool:
    first, query = panel.columns.edges[0], panel.rows.edges[0]
    return first + place == query and panel.columns.labels[place] == panel.rows.labels[0]


def _flowed(tokens: Iterator[Span], width: int) -> Iterator[Line]:
    """Yields the tokens in lines of at most ``width`` columns, separated by spaces."""
    line: Line = []
    used = 0
    for token in tokens:
        wide = cell_len(token.text)
        if line and used + 1 + wide > width:
            yield line
            line, used = [], 0
        line, used = ([*line, Span(" "), token], used + 1 + wide) if line else ([token], wide)
    yield line
