from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import View
from attnviz.maps.recording import Recording
from attnviz.report.picture.scales import EVEN_REACH
from attnviz.text.tokens import Tokens
from tests.browse.examples import other_recording, worded_recording
from tests.conftest import HEADS, KEYS, LAYERS, QUERIES, dense_maps
from tests.maps.examples import ComputedMaps

ROWS, COLUMNS = slice(0, QUERIES), slice(0, KEYS)


def test_cells_are_the_window_where_all_fit(recording: Recording) -> None:
    cells = Session(recording).cells(4, View(), ROWS, COLUMNS, 10, 10)
    assert np.array_equal(cells.values, dense_maps(1).weights[1])
    scores = Session(recording).cells(4, View(scores=True), ROWS, COLUMNS, 10, 10)
    assert np.array_equal(scores.values, dense_maps(1).scores[1])


@pytest.mark.parametrize("mean", [False, True])
def test_pooled_cells_are_those_of_the_overview(causal_recording: Recording, mean: bool) -> None:
    overview = dense_maps(0, causal=True).overview((2,), 2, 3, ROWS, COLUMNS)
    cells = Session(causal_recording).cells(2, View(mean=mean), ROWS, COLUMNS, 2, 3)
    assert np.allclose(cells.values, (overview.mean if mean else overview.maximum)[0])
    assert np.array_equal(cells.visible, overview.visible)


def test_pooled_scores_are_the_mean_of_the_visible(causal_recording: Recording) -> None:
    cells = Session(causal_recording).cells(0, View(scores=True), ROWS, COLUMNS, 1, 1)
    maps = dense_maps(0, causal=True)
    assert cells.values[0, 0] == pytest.approx(maps.scores[0][maps.visible].mean(), rel=1e-5)


def test_weights_of_a_word_are_summed_over_keys_and_averaged_over_queries() -> None:
    cells = Session(worded_recording()).cells(0, View(words=True, special=False), slice(0, 2), slice(0, 2), 9, 9)
    # Rows 1-2 and 3, columns 1-2 and 3, of 1..25: (7 + 8 + 12 + 13) / 2, (9 + 14) / 2, 17 + 18, 19.
    assert cells.values.tolist() == [[20.0, 11.5], [35.0, 19.0]]


def test_word_has_no_score_and_a_token_alone_keeps_its_own() -> None:
    view = View(words=True, special=False, scores=True)
    cells = Session(worded_recording()).cells(0, view, slice(0, 2), slice(0, 2), 9, 9)
    assert np.array_equal(cells.values, [[np.nan, np.nan], [np.nan, 190.0]], equal_nan=True)


def test_row_is_every_key_of_one_query(recording: Recording) -> None:
    row = Session(recording).row(1, View(), 3)
    assert np.array_equal(row.weights, dense_maps(0).weights[1, 3])
    assert np.array_equal(row.scores, dense_maps(0).scores[1, 3])


def test_difference_is_the_other_minus_this(recording: Recording) -> None:
    session, view = Session(recording, other_recording()), View(difference=True)
    change = dense_maps(1, seed=9).weights[2] - dense_maps(1).weights[2]
    assert np.allclose(session.cells(5, view, ROWS, COLUMNS, 9, 9).values, change)
    row = session.row(5, view, 2)
    assert np.allclose(row.shown(view).values, change[2])
    scale = session.panel(5, view, ROWS, COLUMNS, 9, 9).scale
    assert scale.low == -scale.high


def test_refuses_recordings_that_do_not_correspond(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="different attention calls"):
        Session(recording, Recording(maps=(dense_maps(0),), model="short"))


def test_thumbnails_come_in_slices_and_once(recording: Recording) -> None:
    session, heads = Session(recording), list(range(LAYERS * HEADS))
    slices = 0
    while session.thumbnails.compute(heads, View(), 4):
        slices += 1
    assert slices == LAYERS
    overview = dense_maps(1).overview((0,), 4, 4, ROWS, COLUMNS)
    thumbnail = session.thumbnails.find(HEADS, View(), 4)
    assert thumbnail is not None
    assert np.array_equal(thumbnail.values, overview.maximum[0])


def test_heads_are_sorted_by_what_was_measured(recording: Recording) -> None:
    session = Session(recording)
    assert session.ranking.order(View(order="peak")) == list(range(6))
    session.ranking.measure("peak")
    numbers = [maps.weights[head].max(axis=-1).mean() for maps in (dense_maps(0), dense_maps(1)) for head in range(3)]
    order = session.ranking.order(View(order="peak"))
    assert order == sorted(range(6), key=lambda head: -numbers[head])
    assert session.ranking.order(View(order="peak", ascending=True)) == order[::-1]


def test_heads_without_a_number_come_last_either_way(recording: Recording) -> None:
    session = Session(recording)
    session.ranking.measure("peak")
    values = session.ranking.frame.values.copy()
    values[1] = np.nan
    session.ranking.frame = replace(session.ranking.frame, values=values)
    assert session.ranking.order(View(order="peak"))[-1] == 1
    assert session.ranking.order(View(order="peak", ascending=True))[-1] == 1


def test_weights_of_all_heads_share_the_scale_from_0_to_1(recording: Recording) -> None:
    session = Session(recording)
    shared = session.panel(0, View(), ROWS, COLUMNS, 9, 9).scale
    assert (shared.low, shared.high) == (0, 1)
    own = session.panel(0, View(own_scale=True), ROWS, COLUMNS, 9, 9).scale
    whole = session.cells(0, View(), ROWS, COLUMNS, 9, 9)
    assert own.high == whole.values[whole.visible].max() < 1, "who asks for a head's own scale gets it"
    fitted = session.scale(View(), [whole], fits=True)
    assert fitted.high == min(1, EVEN_REACH / KEYS), "of few keys, what is even looks even"
    log = session.panel(0, View(steps="log"), ROWS, COLUMNS, 9, 9).scale
    assert log.steps == "log"
    assert log.low == pytest.approx(1e-4)


def test_long_maps_are_never_made_whole() -> None:
    tokens = Tokens.numbered(32_000)
    maps = ComputedMaps(layer=0, module="", heads=(0, 1), query_tokens=tokens, key_tokens=tokens)
    session = Session(Recording(maps=(maps,), model="long"))
    whole = slice(0, 32_000)
    for view in (View(), View(scores=True), View(words=True), View(special=False)):
        assert session.cells(0, view, whole, whole, 30, 40).values.max() == 0.25
        session.unfinished_blocks[0].advance()
        refined = session.cells(0, view, whole, whole, 30, 40).values
        assert refined[0].max() == (0.25 if view.scores else 0.5)
        assert refined[1:].max() == 0.25
        session.unfinished_blocks.clear()
        session._blocks.clear()
        assert len(session.row(0, view, 31_999).weights) == 32_000
    near = slice(31_990, 32_000)
    assert session.cells(0, replace(View(), scores=True), near, near, 30, 40).values.max() == 0.25
    while session.thumbnails.compute([0, 1], View(), 9):
        pass


def test_scale_of_nothing_yet_is_that_of_weights(recording: Recording) -> None:
    assert Session(recording).scale(View(scores=True), []).high == 1
