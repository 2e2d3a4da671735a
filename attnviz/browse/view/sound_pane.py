"""Composes the row of a map over the frames of a sound: words, envelope, weights and seconds; clicks choose a frame."""

from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.browse.view.boxes import OverSound
from attnviz.media.sound import Sound
from attnviz.metrics.alignment import PAUSE
from attnviz.render.terminal.maps import seconds_text
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel
from attnviz.text.characters import WORDS
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

MIN_LINES = 3  # envelope, weights and seconds
LINES_WITH_WORDS = 4


@dataclass(frozen=True, eq=False)
class SoundRow:
    """The weights of one query over the frames of a sound.

    Attributes:
        keys: the units of the keys: frames, or spoken words.
        values: the weight of each unit, ``(units,)``.
        visible: False for masked units, ``(units,)``.
        scale: the colour scale.
        cursor: the unit under the cursor.
    """

    keys: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int

    @property
    def sound(self) -> Sound:
        """The sound of the keys."""
        sound = self.keys.tokens.canvas
        assert isinstance(sound, Sound)
        return sound

    @property
    def frames(self) -> IntArray:
        """The indices of the tokens that are frames of the sound and have a unit, ``(frames,)``."""
        tokens = self.keys.tokens
        return np.flatnonzero((self.keys.numbers >= 0) & (tokens.medium >= 0))


def is_sound(tokens: Tokens) -> bool:
    """True if some token is a frame of a sound."""
    return isinstance(tokens.canvas, Sound) and bool((tokens.medium >= 0).any())


def sound_pane(row: SoundRow, width: int, lines: int) -> OverSound | None:
    """Composes the sound with the weights of its frames; ``None`` if the pane has too few lines."""
    if lines < MIN_LINES:
        return None
    keys, frames = row.keys, row.frames
    units = keys.numbers[frames]
    tokens = keys.tokens
    edges = tuple(range(len(frames) + 1))
    panel = Panel(
        heading=Heading(),
        values=row.values[units][None],
        visible=row.visible[units][None],
        rows=Axis("queries", ("",), (0, 1)),
        columns=Axis("keys", ("",) * len(frames), edges, canvas=row.sound, places=tokens.places[frames]),
        quantity=PERCENT,
        scale=row.scale,
    )
    words = _spoken_starts(tokens) if lines >= LINES_WITH_WORDS else ()
    envelope_lines = lines - MIN_LINES + 1 - bool(words)
    return OverSound(panel, min(width, len(frames)), envelope_lines, words, _cursor_second(row))


def _spoken_starts(tokens: Tokens) -> tuple[tuple[float, str], ...]:
    """Returns the second at which each spoken word begins, with the word, without pauses; empty if unknown."""
    groups, sound = tokens.groups.get(WORDS), tokens.canvas
    if groups is None or not isinstance(sound, Sound):
        return ()
    numbers, first_frames = np.unique(groups.numbers, return_index=True)
    return tuple(
        (float(tokens.places[frame, 0]) / sound.rate, groups.labels[number])
        for number, frame in zip(numbers.tolist(), first_frames.tolist(), strict=True)
        if number >= 0 and groups.labels[number] != PAUSE
    )


def unit_at(row: SoundRow, width: int, column: int) -> int | None:
    """Returns the unit of largest weight in a column of the pane; ``None`` if no frame has its middle there."""
    frames = row.frames
    columns = min(width, len(frames))
    if column >= columns:
        return None
    edges = sample_edges(row.keys.tokens.places[frames], columns)
    middles = row.keys.tokens.places[frames].mean(axis=1)
    in_column = np.flatnonzero((middles >= edges[column]) & (middles < edges[column + 1]))
    units = row.keys.numbers[frames[in_column]]
    return int(max(units, key=lambda unit: row.values[unit])) if len(units) else None


def sample_edges(places: IntArray, columns: int) -> Float64Array:
    """Returns the samples at which columns begin, and the end of the last, ``(columns + 1,)``.

    Args:
        places: ``(frames, 2)``, the first sample of each frame, and the one after its last.
    """
    return np.linspace(float(places[:, 0].min()), float(places[:, 1].max()), columns + 1)


def marked_seconds(seconds: Float64Array, cursor: tuple[float, str] | None, mark: str) -> tuple[str, str, str]:
    """Returns a line of round seconds in three parts, of which the second is the cursor's mark with its label.

    The label is left of the mark if it fits only there. Without a cursor in these seconds, all is in the first part.
    """
    columns = len(seconds) - 1
    if cursor is None or not seconds[0] <= cursor[0] <= seconds[-1]:
        return seconds_text(seconds), "", ""
    column = min(columns - 1, int(np.searchsorted(seconds, cursor[0], side="right")) - 1)
    width = 2 + cell_len(cursor[1])  # with the mark and a space
    if column + width <= columns:
        start, text = column, f"{mark} {cursor[1]}"
    else:
        start, text = max(0, column + 1 - width), f"{cursor[1]} {mark}"
    line = seconds_text(seconds, range(start, start + width)).ljust(start)
    return line[:start], text, line[start + width :]


def seconds_of_columns(keys: Units, columns: int, span: slice) -> Float64Array | None:
    """Returns the seconds at which the columns of a map begin, and the end, ``(columns + 1,)``.

    ``None`` if the columns are not single frames of a sound, but other tokens or spoken words.
    """
    tokens, first, last = keys.tokens, int(keys.starts[span.start]), int(keys.starts[span.stop - 1])
    are_frames = is_sound(tokens) and last - first == span.stop - 1 - span.start
    if not are_frames or (tokens.medium[[first, last]] < 0).any() or not isinstance(tokens.canvas, Sound):
        return None
    return sample_edges(tokens.places[first : last + 1], columns) / tokens.canvas.rate


def _cursor_second(row: SoundRow) -> tuple[float, str] | None:
    """Returns the second in the middle of the cursor's unit, with a label; ``None`` if it is not in the sound."""
    tokens, unit = row.keys.tokens, row.cursor
    frames = row.frames[row.keys.numbers[row.frames] == unit]
    if not len(frames):
        return None
    second = float(row.sound.middles(tokens.places[frames]).mean())
    groups = tokens.groups.get(WORDS)
    word = groups.labels[groups.numbers[frames[0]]] if groups is not None and groups.numbers[frames[0]] >= 0 else ""
    return second, f"{second:.2f}s {word}".strip()
