"""Finds the seconds in which each word of a text is said, from cross-attention to the frames of a sound.

The method is that of Whisper (`timing.py` of openai/whisper). Over the frames of the sound, the rows of each head are
standardised by their mean and deviation over the rows, and smoothed by a median of seven frames. The mean of the heads
is the gain of a path, which dynamic time warping finds. A row is the query that predicts a token.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.sound import Sound
from attnviz.media.timed_words import TimedWord
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.text.groups import WORDS, Groups
from attnviz.text.tokens import Tokens

MEDIAN_FRAMES = 7  # of the filter along the frames
PAUSE = "(pause)"  # the label of frames between two words
ALIGNMENT = Measure(
    "alignment",
    "alignment",
    "seconds",
    "mean distance of a head's word ends from the reference, after its lag",
    smallest_first=True,
)
LAG = Measure("lag", "lag", "seconds", "median of a head's word ends less those of the reference")


def is_aligned(maps: LayerMaps) -> bool:
    """True if the queries are tokens of a text and the keys are frames of a sound."""
    return isinstance(maps.key_tokens.canvas, Sound) and bool(len(_text_span(maps.query_tokens)))


def alignment_heads(recording: Recording) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each alignment head that the settings of the recording name.

    Empty if the settings name none, or if one of them was not recorded.
    """
    names = {(int(layer), int(head)) for layer, head in recording.settings.get("alignment_heads", ())}
    aligned_maps = [maps for maps in recording.maps if is_aligned(maps)]
    heads = [(maps, head) for maps in aligned_maps for head in maps.heads if (maps.layer, head) in names]
    return heads if len(heads) == len(names) else []


def with_spoken_words(recording: Recording) -> Recording:
    """Returns the recording with its spoken words as groups of frames; unchanged if `alignment_heads` finds none."""
    heads = alignment_heads(recording)
    if not heads:
        return recording
    words = aligned_words(heads)
    first_maps, _ = heads[0]
    frames = first_maps.key_tokens  # all heads attend to the same frames
    times = _frame_times(frames)
    edges = [time for word in words for time in (word.start, word.end)]
    labels = [label for word in words for label in (word.text, PAUSE)]
    # starts and ends of words take turns, so even groups are pauses and odd groups are words
    numbers = np.full(len(frames), -1, dtype=np.int64)  # frames after the end of the sound are in no group
    numbers[: len(times)] = np.searchsorted(edges, times, side="right")
    groups = Groups(numbers, (PAUSE, *labels))
    grouped_frames = replace(frames, groups={**frames.groups, WORDS: groups})
    maps = tuple(
        replace(layer_maps, key_tokens=grouped_frames) if is_aligned(layer_maps) else layer_maps
        for layer_maps in recording.maps
    )
    return replace(recording, maps=maps)


def spoken_words(tokens: Tokens, frames: Tokens) -> list[tuple[range, range]]:
    """Returns the range of tokens and the range of frames of each spoken word, in the order of the text.

    Empty if the frames have no groups of `with_spoken_words`. A word without frames is left out.
    """
    groups, span = frames.groups.get(WORDS), _text_span(tokens)
    if groups is None or not isinstance(frames.canvas, Sound) or isinstance(tokens.canvas, Sound):
        return []
    word_ranges = []
    for index, positions in enumerate(_positions_of_words(tokens, span)):
        word_frames = np.flatnonzero(groups.numbers == 2 * index + 1)  # even groups are pauses
        if len(word_frames):
            first, last = int(word_frames[0]), int(word_frames[-1])
            word_ranges.append((range(positions[0], positions[-1] + 1), range(first, last + 1)))
    return word_ranges


def alignment_frame(heads: Sequence[tuple[LayerMaps, int]], reference: Sequence[TimedWord]) -> HeadFrame:
    """Returns a table with the alignment and the lag, in seconds, of each head that attends from a text to a sound.

    Both are NaN if no word of the head matches the reference.
    """
    sound_heads = [(maps, head) for maps, head in heads if is_aligned(maps)]
    lags_and_jitters = [lag_and_jitter(aligned_words([head]), reference) for head in sound_heads]
    return HeadFrame(
        rows=tuple(HeadRow.of(maps, head) for maps, head in sound_heads),
        measures=(ALIGNMENT, LAG),
        values=np.array([(jitter, lag) for lag, jitter in lags_and_jitters]).reshape(-1, 2),  # also for no head
    )


def aligned_words(heads: Sequence[tuple[LayerMaps, int]]) -> tuple[TimedWord, ...]:
    """Returns the words of a text with their seconds, computed from the weights of some heads together."""
    first_maps, _ = heads[0]
    times = _frame_times(first_maps.key_tokens)
    span = _text_span(first_maps.query_tokens)
    rows = slice(span.start - 1, span.stop)  # the row before a token predicts it; the last row predicts the end
    all_rows, frames = slice(0, len(first_maps.query_tokens)), slice(0, len(times))
    weights = np.concatenate([cell_maps(maps).window((head,), all_rows, frames).weights for maps, head in heads])
    tokens, starts = first_maps.query_tokens, times[first_frames(weights, rows)]
    words = []
    for positions in _positions_of_words(tokens, span):
        lettered_positions = [position for position in positions if _letters(_text_of(tokens, position, position))]
        spoken_positions = lettered_positions or positions
        start, end = starts[spoken_positions[0] - span.start], starts[spoken_positions[-1] + 1 - span.start]
        words.append(TimedWord(_text_of(tokens, positions[0], positions[-1]).strip(), float(start), float(end)))
    return tuple(words)


def first_frames(weights: FloatArray | Float64Array, rows: slice = slice(None)) -> IntArray:
    """Returns the frame at which each of some rows begins on their path of least cost, ``(rows,)``.

    The cost of a cell is minus its standardised weight, smoothed along the frames, mean over the heads.

    Args:
        weights: ``(heads, rows, frames)``, the weights of some heads on the frames of the sound.
        rows: the rows of the path; all rows, such as those of start tokens too, count for mean and deviation.
    """
    # The maxima avoid divisions by 0, for a row without weight on the sound and a frame that all rows see alike.
    shares = weights / np.maximum(weights.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    deviation = np.maximum(shares.std(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    standard_scores: Float64Array = (shares - shares.mean(axis=1, keepdims=True)) / deviation

    # The running median of `MEDIAN_FRAMES` values along the frames, which are reflected at both ends.
    margin = min(MEDIAN_FRAMES // 2, weights.shape[-1] - 1)
    padded_scores = np.pad(standard_scores, ((0, 0), (0, 0), (margin, margin)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded_scores, 2 * margin + 1, axis=-1)
    cost = -np.median(windows, axis=-1).mean(axis=0)[rows]
    path_rows, frames = warping_path(cost)
    is_first = np.diff(path_rows, prepend=-1) > 0
    return frames[is_first]


def warping_path(cost: Float64Array) -> tuple[IntArray, IntArray]:
    """Returns rows and columns of the path of least cost from the first cell to the last, ``(steps,)`` each.

    A step goes one row down, one column across, or both (dynamic time warping).

    Args:
        cost: ``(rows, columns)``.
    """
    rows, columns = cost.shape
    # Cells of an anti-diagonal do not depend on each other, so that numpy computes a whole one at once.
    # The least cost of a path to the cell (row, diagonal - row), at row + 1; column 0 stands for cells above row 0.
    path_costs = np.full((rows + columns - 1, rows + 1), np.inf)
    shifted_rows = np.full((rows, rows + columns - 1), np.inf)
    for row in range(rows):
        shifted_rows[row, row : row + columns] = cost[row]
    diagonal_costs = np.ascontiguousarray(shifted_rows.T)
    path_costs[0, 1] = cost[0, 0]
    for diagonal in range(1, len(path_costs)):
        above_left = path_costs[diagonal - 2, :-1] if diagonal > 1 else np.inf
        above, left = path_costs[diagonal - 1, :-1], path_costs[diagonal - 1, 1:]
        path_costs[diagonal, 1:] = diagonal_costs[diagonal] + np.minimum(np.minimum(above_left, above), left)

    # Back from the last cell to the first.
    row, column = rows - 1, columns - 1
    cells = [(row, column)]
    while row > 0 or column > 0:
        diagonal = row + column
        cost_above_left = path_costs[diagonal - 2, row] if diagonal > 1 else np.inf
        cost_above, cost_left = path_costs[diagonal - 1, row], path_costs[diagonal - 1, row + 1]
        # Of equal costs the step across is taken, as Whisper does, then the one in both directions.
        if cost_left <= cost_above and cost_left <= cost_above_left:
            column -= 1
        elif cost_above_left <= cost_above:
            row, column = row - 1, column - 1
        else:
            row -= 1
        cells.append((row, column))
    path = np.array(cells[::-1])
    return path[:, 0], path[:, 1]


def _frame_times(frames: Tokens) -> Float64Array:
    """Returns the second at the middle of each frame, ``(frames,)``; frames after the sound's end are left out."""
    sound = frames.canvas
    assert isinstance(sound, Sound)
    return sound.middles(frames.places[frames.medium >= 0])


def lag_and_jitter(words: Sequence[TimedWord], reference: Sequence[TimedWord]) -> tuple[float, float]:
    """Returns the lag and the jitter of word ends in seconds; both are NaN if no words match.

    An error is the end of a word minus the end of its match in the reference. The lag is the median error. The jitter
    is the mean absolute difference between the errors and the lag.
    """
    pairs = matching_words(words, reference)
    if not pairs:
        return float("nan"), float("nan")
    errors = np.array([word.end - true_word.end for word, true_word in pairs])
    lag = float(np.median(errors))
    return lag, float(np.abs(errors - lag).mean())


def matching_words(words: Sequence[TimedWord], reference: Sequence[TimedWord]) -> list[tuple[TimedWord, TimedWord]]:
    """Returns pairs of a word and its match in the reference, which has the same letters and digits, in order.

    Words without a match are left out.
    """
    from difflib import SequenceMatcher

    letters = [_letters(word.text) for word in words]
    reference_letters = [_letters(word.text) for word in reference]
    matcher = SequenceMatcher(None, letters, reference_letters, autojunk=False)
    return [
        (words[block.a + index], reference[block.b + index])
        for block in matcher.get_matching_blocks()
        for index in range(block.size)
    ]


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _text_span(tokens: Tokens) -> range:
    """Returns the positions from the first to the last token that is not special."""
    positions = np.flatnonzero(~tokens.special)
    return range(int(positions[0]), int(positions[-1]) + 1) if len(positions) and positions[0] > 0 else range(0)


def _positions_of_words(tokens: Tokens, span: range) -> list[list[int]]:
    """Returns the positions of each word's tokens in a span; blanks and marks belong to no word."""
    positions: dict[int, list[int]] = {}
    for position in span:
        if tokens.words[position] >= 0:
            positions.setdefault(int(tokens.words[position]), []).append(position)
    return list(positions.values())


def _text_of(tokens: Tokens, first: int, last: int) -> str:
    """Returns the text from the token at the index ``first`` to the token at ``last``, both included."""
    return tokens.text[int(tokens.offsets[first, 0]) : int(tokens.offsets[last, 1])]
