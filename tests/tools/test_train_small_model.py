"""Training: its data, that the same seed gives the same model, and the figures of the model that travels."""

from pathlib import Path

import pytest
import torch

from attnviz.models.trained import START_TOKEN, load_model
from tools.train_small_model import WARM_UP, check, draw_repeats, learning_rate, main, train

pytestmark = pytest.mark.slow


def test_rows_are_segments_said_again_and_what_can_be_known_is_marked() -> None:
    ids, known = draw_repeats(torch.Generator().manual_seed(0), 50, 40)
    assert ids.shape == (50, 41)
    assert (ids[:, 0] == START_TOKEN).all()
    for row, marks in zip(ids[:, 1:], known, strict=True):
        period = int((marks == 0).sum())
        assert 6 <= period <= 20
        assert torch.equal(row[period:], row[:-period])


def test_same_seed_trains_the_same_model() -> None:
    one, other = train(seed=3, steps=2).state_dict(), train(seed=3, steps=2).state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())
    changed = train(seed=4, steps=2).state_dict()
    assert not all(torch.equal(weight, changed[name]) for name, weight in one.items())


def test_learning_rate_rises_stays_and_falls() -> None:
    rates = [learning_rate(step, 1000) for step in (0, WARM_UP // 2, WARM_UP, 600, 800, 999)]
    assert rates == pytest.approx([0, 0.5, 1, 1, 0.5, 0.02])


def test_model_that_travels_reaches_its_figures_on_held_out_repeats() -> None:
    figures = check(load_model())
    assert figures.accuracy >= 0.99
    assert figures.previous[0].max() >= 0.95
    assert figures.induction[1].max() >= 0.95


def test_untrained_model_reaches_none_of_them() -> None:
    figures = check(train(steps=1), texts=2)
    assert figures.accuracy < 0.1
    assert figures.induction.max() < 0.2


def test_command_writes_the_model_and_prints_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model.safetensors"
    monkeypatch.setattr("sys.argv", ["train", "--steps", "1", "-o", str(target)])
    main()
    assert target.stat().st_size <= 500_000
    printed = capsys.readouterr()
    assert "induction head" in printed.out
    assert printed.err == ""
