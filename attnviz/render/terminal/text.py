"""Draws a row of weights over its medium in a terminal: the tokens of a text on colours, or an image in half blocks."""

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
    """Yields the lines of each panel's text under its title, or of images side by side."""
    match panels[0].columns.canvas:
        case Image():
            yield from image_lines(panels, look)
        case Text():
            yield from _text_lines(panels, look)
        case unknown:
            assert_never(unknown)


def _text_lines(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the lines of each panel: its title, and its tokens on the colours of their weights."""
    for panel in panels:
        yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
        yield from _wrapped_lines(_token_spans(panel, look), look.width)
        yield []


def _token_spans(panel: Panel, look: Look) -> Iterator[Span]:
    """Yields a span for each token of a text: on the colour of its weight, or with its weight in brackets.

    The query is underlined, and masked tokens are dim.
    """
    colored = bool(look.colors) and not look.ascii
    papers = panel.scale.rgb(panel.levels[0])
    inks, fraction = ink_on(papers), panel.scale.fraction(panel.levels[0])
    for index, label in enumerate(panel.columns.labels):
        text = fit(label, look.width).rstrip() or " "
        value = float(panel.values[0, index])
        style = "underline" if _is_query(panel, index) else ""
        if not panel.visible[0, index]:
            yield Span(text, style="dim")
        elif colored:
            yield Span(text, ink=tuple(inks[index].tolist()), paper=tuple(papers[index].tolist()), style=style)
        else:
            has_number = fraction[index] >= MIN_WRITTEN_SHARE or value == panel.peak
            number = f" ({panel.quantity.text(value)})" if has_number else ""
            yield Span(fit(label, look.width - len(number)).rstrip() + number, style=style)


def _is_query(panel: Panel, index: int) -> bool:
    """True if the token at an index is the query of the panel."""
    first, query = panel.columns.edges[0], panel.rows.edges[0]
    return first + index == query and panel.columns.labels[index] == panel.rows.labels[0]


def _wrapped_lines(tokens: Iterator[Span], width: int) -> Iterator[Line]:
    """Yields the tokens in lines of at most ``width`` columns, separated by spaces."""
    line: Line = []
    used_columns = 0
    for token in tokens:
        width_of_token = cell_len(token.text)
        if line and used_columns + 1 + width_of_token > width:
            yield line
            line, used_columns = [], 0
        line, used_columns = (
            ([*line, Span(" "), token], used_columns + 1 + width_of_token) if line else ([token], width_of_token)
        )
    yield line
