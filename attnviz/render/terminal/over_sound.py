"""Draws a row of weights over a sound in a terminal: its envelope, the weights below it, and seconds."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.media.sound import Sound
from attnviz.render.terminal.lines import Line, Span, wrap
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel

BARS, ASCII_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"  # by eighths of the largest amplitude
COLUMNS_OF_LABEL = 10  # from one second that is written to the next, at least
ROUND_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


def sound_lines(panel: Panel, look: Look) -> Iterator[Line]:
    """Yields the title, the envelope of the sound, the weights of the row, and the seconds.

    A column shows the largest weight of its frames.
    """
    sound, frames = panel.columns.canvas, panel.columns.places
    assert isinstance(sound, Sound)
    assert frames is not None
    yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
    in_sound = frames[:, 1] > frames[:, 0]
    columns = min(look.width, int(in_sound.sum()))
    first, last = int(frames[in_sound, 0].min()), int(frames[in_sound, 1].max())
    edges = np.linspace(first, last, columns + 1)
    bars = ASCII_BARS if look.ascii else BARS
    yield [Span(_envelope_text(sound, edges, bars), style="dim")]
    yield list(weight_spans(panel, edges, bars, has_colors=bool(look.colors) and not look.ascii))
    yield [Span(seconds_text(edges / sound.rate), style="dim")]
    yield []


def _envelope_text(sound: Sound, edges: Float64Array, bars: str = BARS) -> str:
    """Returns a bar for each column: the largest amplitude between its two edges."""
    return "".join(bars[round(height * (len(bars) - 1))] for height in envelope_heights(sound, edges).tolist())


def envelope_heights(sound: Sound, edges: Float64Array) -> Float64Array:
    """Returns the largest amplitude of each column, from 0 to 1, ``(columns,)``; 0 after the end of the envelope."""
    envelope_positions = edges / sound.samples * len(sound.envelope)
    heights = [
        sound.envelope[int(start) : max(int(stop), int(start) + 1)].max(initial=0)
        for start, stop in pairwise(envelope_positions.tolist())
    ]
    return np.array(heights, dtype=np.float64) / 255  # the envelope is in uint8


def weight_spans(panel: Panel, edges: Float64Array, bars: str, *, has_colors: bool) -> Iterator[Span]:
    """Yields a span for each column, in the colour of its largest weight; without colours, one span of bars."""
    values = _largest_weights(panel, edges)
    if not has_colors:
        shares = np.clip(panel.scale.fraction(values), 0, 1)
        yield Span("".join(bars[round(float(share) * (len(bars) - 1))] for share in shares))
        return
    for color in panel.scale.rgb(values):
        red, green, blue = (int(part) for part in color)
        yield Span(" ", paper=(red, green, blue))


def _largest_weights(panel: Panel, edges: Float64Array) -> FloatArray:
    """Returns the weight or change of each column's frames that is furthest from 0, ``(columns,)``; 0 without
    frames.
    """
    assert panel.columns.places is not None
    column_of_frame: IntArray = np.searchsorted(edges, panel.columns.places.mean(axis=1), side="right") - 1
    in_sound = panel.columns.places[:, 1] > panel.columns.places[:, 0]
    largest_weights = np.zeros(len(edges) - 1, dtype=np.float32)
    columns = np.clip(column_of_frame, 0, len(largest_weights) - 1)[in_sound]
    weights = np.nan_to_num(panel.levels[0][in_sound])
    order = np.argsort(np.abs(weights), kind="stable")  # the largest of a column is written last, and stays
    largest_weights[columns[order]] = weights[order]
    return largest_weights


def seconds_text(edges: Float64Array, covered_columns: range = range(0)) -> str:
    """Returns a line with round seconds, each at its column; labels without space are left out."""
    columns = len(edges) - 1
    seconds_per_column = (edges[-1] - edges[0]) / columns
    step = next(
        (seconds for seconds in ROUND_SECONDS if seconds >= COLUMNS_OF_LABEL * seconds_per_column), ROUND_SECONDS[-1]
    )
    text = ""
    for second in np.arange(np.ceil(edges[0] / step) * step, edges[-1], step).tolist():
        column = int((second - edges[0]) / seconds_per_column + 1e-6)  # a second on an edge stays in its column
        label = f"{second:g}s"
        is_covered = bool(covered_columns) and covered_columns.start - len(label) <= column <= covered_columns.stop
        if column + len(label) <= columns and not is_covered:
            text = text.ljust(column) + label
    return text
