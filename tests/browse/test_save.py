from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.save import picture, save_picture
from attnviz.browse.session.state import State, View
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium
from tests.browse.examples import screen_of, worded_recording
from tests.conftest import dense_maps


def test_picture_of_the_overview_has_the_heads_on_the_screen(recording: Recording) -> None:
    report = picture(screen_of(recording), State(), Medium(max_cells=100), Look())
    assert [panel.title for panel in report.panels] == [
        f"head {layer}.{head} cross" for layer in "01" for head in "012"
    ]


def test_picture_of_a_head_has_its_words_and_says_so() -> None:
    report = picture(
        screen_of(worded_recording()), State(has_open_head=True, view=View(words=True)), Medium(max_cells=100), Look()
    )
    [panel] = report.panels
    assert panel.columns.labels == ("[CLS]", "playing", "cards", "[SEP]")
    assert not panel.columns.pooled
    assert any("summed over its keys" in remark for remark in report.remarks)


def test_pooled_picture_says_what_a_cell_is(recording: Recording) -> None:
    screen = screen_of(recording)
    assert any(
        "maximum of its block" in remark for remark in picture(screen, State(), Medium(max_cells=3), Look()).remarks
    )
    mean = picture(screen, State(view=View(mean=True)), Medium(max_cells=3), Look())
    assert any("mean of its block" in remark for remark in mean.remarks)


def test_picture_of_a_long_map_does_not_say_that_tokens_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.browse.session.session.MAX_JOINED_CELLS", 24)
    view = View(words=True, special=False)
    report = picture(screen_of(worded_recording()), State(has_open_head=True, view=view), Medium(max_cells=100), Look())
    assert len(report.panels[0].columns.labels) == 5
    assert not any("joined" in remark or "Special" in remark for remark in report.remarks)


def test_only_weights_have_logarithmic_colours(recording: Recording) -> None:
    screen, logarithmic = screen_of(recording), View(steps="log")
    assert "Colours are logarithmic." in picture(screen, State(view=logarithmic), Medium(max_cells=100), Look()).remarks
    scores = picture(screen, State(view=replace(logarithmic, scores=True)), Medium(max_cells=100), Look())
    assert "Colours are logarithmic." not in scores.remarks


def test_caption_of_a_combination_is_not_that_of_a_head(recording: Recording) -> None:
    screen = screen_of(recording)
    mean = screen.session.combine((0, 1), "mean")
    report = picture(screen, State(has_open_head=True, head=mean), Medium(max_cells=100), Look())
    assert report.caption.startswith("Attention of mean of heads 0.0, 0.1 in ")
    assert report.panels[0].title.startswith("mean of heads 0.0, 0.1")


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_what_is_seen_is_written_and_not_overwritten(recording: Recording, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"head{suffix}"
    save_picture(screen_of(recording), State(has_open_head=True, head=4), path, Look(dpi=40))
    assert path.stat().st_size > 1000
    if suffix == ".svg":
        assert "head 1.1" in path.read_text(encoding="utf-8")
    with pytest.raises(AttnvizError, match="exists; choose another name"):
        save_picture(screen_of(recording), State(), path, Look())


def test_a_format_that_draws_nothing_is_refused(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match=r"\.png, \.svg or \.pdf"):
        save_picture(screen_of(recording), State(), tmp_path / "head.csv", Look())


def test_picture_of_one_token_has_a_row_for_each_head(recording: Recording) -> None:
    report = picture(screen_of(recording), State(lens=True, query=2), Medium(max_cells=100), Look())
    [panel] = report.panels
    assert panel.rows.labels == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    assert np.array_equal(panel.values[4], dense_maps(1).weights[1, 2])
    assert report.caption.startswith("what “q2” (2) attends to in ")


def test_picture_of_heads_side_by_side_has_both_and_of_a_difference_its_change(recording: Recording) -> None:
    screen = screen_of(recording)
    assert len(picture(screen, State(has_open_head=True, heads_beside=(3,)), Medium(max_cells=100), Look()).panels) == 2
    made = screen.session.combine((0, 3), "difference")
    [panel] = picture(screen, State(has_open_head=True, head=made), Medium(max_cells=100), Look()).panels
    assert np.allclose(panel.values, dense_maps(1).weights[0] - dense_maps(0).weights[0])
