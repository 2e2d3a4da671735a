"""Draws the frames of a sound under its envelope: words, amplitudes, weights and seconds."""

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import Float64Array
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.view.boxes import OverSound
from attnviz.browse.view.sound_pane import marked_seconds, sample_edges
from attnviz.media.sound import Sound
from attnviz.render.terminal.lines import Line, Span
from attnviz.render.terminal.media import BARS, envelope_heights, weight_spans


def over_sound_lines(box: OverSound, colors: int) -> list[Line]:
    """Returns the lines of a sound: its words, if any, its envelope, its weights and its seconds."""
    sound, places = box.panel.columns.canvas, box.panel.columns.places
    assert isinstance(sound, Sound)
    assert places is not None
    edges = sample_edges(places, box.columns)
    seconds = edges / sound.rate
    words: list[Line] = [[Span(_words_text(box.words, seconds), style="dim")]] if box.words else []
    envelope: list[Line] = [
        [Span(text, style="dim")] for text in _envelope_lines(envelope_heights(sound, edges), box.envelope_lines)
    ]
    weights = list(weight_spans(box.panel, edges, BARS, has_colors=colors > ANSI_COLORS))
    before_cursor, cursor_text, after_cursor = marked_seconds(seconds, box.cursor, "▴")
    labels = [Span(before_cursor, style="dim"), Span(cursor_text, style="bold"), Span(after_cursor, style="dim")]
    return [*words, *envelope, weights, labels]


def _envelope_lines(heights: Float64Array, lines: int) -> list[str]:
    """Returns the envelope as bars that stand on the last line."""
    eighths = np.rint(heights * 8 * lines)
    texts = []
    for line in range(lines):
        levels = np.clip(eighths - 8 * (lines - 1 - line), 0, 8).astype(int)
        texts.append("".join(BARS[level] for level in levels.tolist()))
    return texts


def _words_text(words: tuple[tuple[float, str], ...], seconds: Float64Array) -> str:
    """Returns a line with each spoken word at its column; words without space or outside of the seconds are left
    out.
    """
    text, columns = "", len(seconds) - 1
    for second, word in words:
        column = max(0, int(np.searchsorted(seconds, second + 1e-9, side="right")) - 1)  # for rounding
        has_space = not text or cell_len(text) < column
        if seconds[0] <= second < seconds[-1] and has_space and column + cell_len(word) <= columns:
            text += " " * (column - cell_len(text)) + word
    return text
