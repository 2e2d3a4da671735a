"""Words on a time axis: the path of least cost, words from planted weights, lag and jitter."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.arrays import Float64Array
from attnviz.maps.recording import Recording
from attnviz.media.timed_words import TimedWord
from attnviz.metrics.alignment import (
    PAUSE,
    aligned_words,
    alignment_frame,
    alignment_heads,
    first_frames,
    is_aligned,
    lag_and_jitter,
    matching_words,
    spoken_words,
    warping_path,
    with_spoken_words,
)
from tests.conftest import random_maps
from tests.metrics.sound_examples import FRAME, frames, planted_maps, text_tokens

ENDS = (20, 45, 60, 90)  # frames at which words end


def naive_path(cost: Float64Array) -> list[tuple[int, int]]:
    """Dynamic time warping, cell by cell, as its definition says; of equal steps the one across, then in both."""
    rows, columns = cost.shape
    sums = np.full((rows + 1, columns + 1), np.inf)
    sums[0, 0] = 0
    step = {}
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            options = sums[row - 1, column - 1], sums[row - 1, column], sums[row, column - 1]
            best = min((2, 0, 1), key=options.__getitem__)
            sums[row, column] = cost[row - 1, column - 1] + options[best]
            step[row, column] = best
    row, column, cells = rows, columns, []
    while (row, column) != (0, 0):
        cells.append((row - 1, column - 1))
        best = step[row, column] if row > 1 and column > 1 else 1 if column == 1 and row > 1 else 2
        row, column = row - (best != 2), column - (best != 1)
        row, column = (row, column) if row and column else (0, 0)
    return cells[::-1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2), (5, 9), (9, 5), (12, 40)])
@pytest.mark.parametrize("seed", range(3))
def test_path_is_that_of_the_definition(shape: tuple[int, int], seed: int) -> None:
    cost = np.random.default_rng(seed).standard_normal(shape)
    rows, columns = warping_path(cost)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == naive_path(cost)


@pytest.mark.parametrize("costs", [1, 2, 3])
def test_of_equal_costs_the_path_is_still_of_the_least_and_goes_across(costs: int) -> None:
    cost = np.random.default_rng(costs).integers(costs, size=(12, 9)).astype(np.float64)
    rows, columns = warping_path(cost)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == naive_path(cost)


def test_words_are_where_the_weights_are() -> None:
    words = aligned_words([(planted_maps(), 0)])
    assert [word.text for word in words] == ["And", "so,", "my", "fellow"]
    assert [word.end for word in words] == pytest.approx([(end + 0.5) * FRAME for end in ENDS], abs=0.05)
    assert words[1].end <= words[2].start + 1e-9  # the comma takes no time of its word


def test_lag_and_jitter_of_a_late_head() -> None:
    reference = aligned_words([(planted_maps(), 0)])
    lag, jitter = lag_and_jitter(aligned_words([(planted_maps(lag=5), 0)]), reference)
    assert lag == pytest.approx(5 * FRAME, abs=0.021)
    assert jitter < 0.03
    assert np.isnan(lag_and_jitter((), reference)).all()


def test_words_are_compared_by_their_letters_in_order() -> None:
    words = [TimedWord(text, 0, end) for end, text in enumerate(["And", "so,", "my", "fellow"])]
    others = [TimedWord(text, 0, 9) for text in ("and", "well", "my", "Fellow!")]
    assert [(word.text, other.text) for word, other in matching_words(words, others)] == [
        ("And", "and"),
        ("my", "my"),
        ("fellow", "Fellow!"),
    ]


def test_frames_have_the_spoken_words_if_the_aligning_heads_were_recorded() -> None:
    maps = (planted_maps(0), planted_maps(1))
    recording = Recording(maps=maps, model="drawn", settings={"alignment_heads": [[0, 0], [1, 0]]})
    assert [(each.layer, head) for each, head in alignment_heads(recording)] == [(0, 0), (1, 0)]
    groups = with_spoken_words(recording).maps[1].key_tokens.groups["words"]
    assert [groups.labels[number] for number in dict.fromkeys(groups.numbers.tolist())][:4] == [
        *("And", "so,", PAUSE, "my")
    ]
    part = replace(recording, maps=maps[:1])
    assert alignment_heads(part) == []
    assert with_spoken_words(part) is part


def test_spoken_words_have_their_tokens_and_their_frames() -> None:
    [maps] = with_spoken_words(
        Recording(maps=(planted_maps(),), model="drawn", settings={"alignment_heads": [[0, 0]]})
    ).maps
    spoken = spoken_words(maps.query_tokens, maps.key_tokens)
    assert [(word.start, word.stop) for word, _ in spoken] == [(1, 2), (2, 4), (4, 5), (5, 6)]
    times = aligned_words([(maps, 0)])
    for (_, heard), word in zip(spoken, times, strict=True):
        assert (heard.start + 0.5) * FRAME == pytest.approx(word.start, abs=1.5 * FRAME)
        assert (heard.stop - 0.5) * FRAME == pytest.approx(word.end, abs=1.5 * FRAME)
    assert spoken_words(maps.query_tokens, frames()) == []  # no words were found
    assert spoken_words(maps.key_tokens, maps.key_tokens) == []


def test_frame_sorts_the_best_head_first() -> None:
    maps = planted_maps()
    frame = alignment_frame([(maps, 0), (maps, 1)], aligned_words([(maps, 0)]))
    assert frame.values[0].tolist() == [0.0, 0.0]
    assert frame.values[1, 0] > 0.05
    assert [row.name for row in frame.with_selected_rows("alignment").rows] == ["0.0", "0.1"]
    assert [row.name for row in frame.with_selected_rows("-alignment").rows] == ["0.1", "0.0"]


def test_a_map_of_a_text_is_not_aligned() -> None:
    assert is_aligned(planted_maps())
    assert not is_aligned(random_maps(text_tokens()))
    assert not is_aligned(random_maps(frames()))


@pytest.mark.parametrize("rows", [slice(None), slice(2, -1)], ids=["all rows", "without start and end"])
@pytest.mark.parametrize("frames", [2, 3, 4, 30])
def test_rows_begin_on_the_path_through_medians_standardised_over_all_rows(frames: int, rows: slice) -> None:
    weights = np.random.default_rng(frames).random((2, 7, frames))
    shares = weights / weights.sum(axis=2, keepdims=True)
    standardised = (shares - shares.mean(axis=1, keepdims=True)) / shares.std(axis=1, keepdims=True)
    margin = min(3, frames - 1)  # Whisper's median of seven frames, mirrored at the ends
    padded = np.pad(standardised, ((0, 0), (0, 0), (margin, margin)), mode="reflect")
    medians = np.stack([np.median(padded[..., at : at + 2 * margin + 1], axis=-1) for at in range(frames)], axis=-1)
    cost = -medians.mean(axis=0)[rows]
    path = naive_path(cost)
    expected = [min(frame for row, frame in path if row == wanted) for wanted in range(len(cost))]
    assert first_frames(weights, rows).tolist() == expected
