"""Draws a row of weights over its medium in a terminal: a text on colours, an image or a sound."""

from collections.abc import Iterator
from typing import assert_never

import numpy as np
from rich.cells import cell_len

from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.render.terminal.lines import Line, Span, fit, wrap
from attnviz.render.terminal.over_image import image_lines
from attnviz.render.terminal.over_sound import sound_lines
from attnviz.report.picture.colors import ink_on
from attnviz.report.picture.hues import HUES, mixed_hues, overlaid_strengths
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel

MIN_WRITTEN_SHARE = 0.1  # share of the scale below which weights are not written in texts without colour


def shaded_texts(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the lines of the panels over their medium, with titles; images stand side by side."""
    match panels[0].columns.canvas:
        case Image():
            yield from image_lines(panels, look)
        case Text():
            yield from _text_lines(panels, look)
        case Sound():
            for panel in panels:
                yield from sound_lines(panel, look)
        case unknown:
            assert_never(unknown)


def _text_lines(panels: list[Panel], look: Look) -> Iterator[Line]:
    if look.overlaid:
        yield from _overlaid_lines(panels, look)
        return
    for panel in panels:
        yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
        yield from _wrapped_lines(_token_spans(panel, look), look.width)
        yield []


def _token_spans(panel: Panel, look: Look) -> Iterator[Span]:
    """Yields a span for each token of a text: on the colour of its weight, with its weight in brackets, or masked."""
    has_colors = bool(look.colors) and not look.ascii
    papers = panel.scale.rgb(panel.levels[0])
    inks, fraction = ink_on(papers), panel.scale.fraction(panel.levels[0])
    for index, label in enumerate(panel.columns.labels):
        text = fit(label, look.width).rstrip() or " "
        value = float(panel.values[0, index])
        style = "underline" if _is_query(panel, index) else ""
        if not panel.visible[0, index]:
            yield Span(text, style="dim")
        elif has_colors:
            yield Span(text, ink=tuple(inks[index].tolist()), paper=tuple(papers[index].tolist()), style=style)
        else:
            has_number = fraction[index] >= MIN_WRITTEN_SHARE or value == panel.peak
            number = f" ({panel.quantity.text(value)})" if has_number else ""
            yield Span(fit(label, look.width - len(number)).rstrip() + number, style=style)


def _overlaid_lines(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the title of each head, and one text with the weights of all heads, as hues if there are colours."""
    has_colors = bool(look.colors) and not look.ascii
    for panel, hue in zip(panels, HUES, strict=False):
        *_, (_, highest_tick) = panel.quantity.ticks(panel.scale)
        title = fit(f"{panel.title}, up to {highest_tick}", look.width).rstrip()
        red, green, blue = ink_on(np.array(hue)).tolist()
        yield [Span(title, ink=(red, green, blue), paper=hue) if has_colors else Span(title, style="bold")]
    yield from _wrapped_lines(_overlaid_spans(panels, look, has_colors), look.width)
    yield []


def _overlaid_spans(panels: list[Panel], look: Look, has_colors: bool) -> Iterator[Span]:
    """Yields each token on the mixed hue of the heads; without colours, with its large weights and their heads."""
    strengths = overlaid_strengths(panels)
    papers = mixed_hues(strengths)
    inks = ink_on(papers)
    for index, label in enumerate(panels[0].columns.labels):
        style = "underline" if _is_query(panels[0], index) else ""
        text = fit(label, look.width).rstrip() or " "
        if has_colors:
            yield Span(text, ink=tuple(inks[index].tolist()), paper=tuple(papers[index].tolist()), style=style)
            continue
        weights_of_heads = [
            f"{panel.head.removeprefix('head ')} {panel.quantity.text(float(panel.values[0, index]))}"
            for panel, strength in zip(panels, strengths[:, index].tolist(), strict=True)
            if strength >= MIN_WRITTEN_SHARE
        ]
        yield Span(text + (f" ({', '.join(weights_of_heads)})" if weights_of_heads else ""), style=style)


def _is_query(panel: Panel, index: int) -> bool:
    first_token, query = panel.columns.edges[0], panel.rows.edges[0]
    return first_token + index == query and panel.columns.labels[index] == panel.rows.labels[0]


def _wrapped_lines(tokens: Iterator[Span], width: int) -> Iterator[Line]:
    """Yields the tokens in lines of at most ``width`` columns, separated by spaces; one empty line for no tokens."""
    line: Line = []
    used_columns = 0
    for token in tokens:
        width_of_token = cell_len(token.text)
        if line and used_columns + 1 + width_of_token > width:
            yield line
            line, used_columns = [], 0
        if line:
            line.append(Span(" "))
            used_columns += 1
        line.append(token)
        used_columns += width_of_token
    yield line
