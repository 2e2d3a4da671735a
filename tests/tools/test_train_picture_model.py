"""Training of the picture model: its pictures, that a seed always gives the same model, and what the file holds."""

from pathlib import Path

import pytest
import torch

from attnviz.models.digit_picture import FIRST_DIGIT, PATCHES, PICTURE_ID, SIDE
from attnviz.models.trained_picture import load_held_out, load_model

pytest.importorskip("sklearn", reason="the digits are those of scikit-learn")

from tools.train_picture_model import check, draw_batch, held_out_pictures, main, sort_heads, split_digits, tiled, train

pytestmark = pytest.mark.slow


def test_a_picture_has_its_digits_row_by_row() -> None:
    digits = torch.arange(9.0)[None, :, None, None].expand(1, 9, 10, 10)
    picture = tiled(digits)[0, 0]
    assert picture.shape == (SIDE, SIDE)
    assert picture[5::10, 5::10].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("with_answers", [True, False])
def test_words_ask_for_each_digit_once_and_answers_are_those_in_the_picture(with_answers: bool) -> None:
    digits = torch.arange(10.0)[:, None, None].expand(10, 10, 10)
    random = torch.Generator().manual_seed(0)
    ids, pixels, positions, answers = draw_batch(digits, torch.arange(10), random, with_answers)
    assert (ids[:, :PATCHES] == PICTURE_ID).all()
    words = ids[:, positions]
    assert torch.equal(words.sort(dim=1).values, torch.arange(9).expand(len(ids), -1))
    drawn = pixels[:, 0, 5::10, 5::10].flatten(1)
    assert torch.equal(drawn.gather(1, words) + FIRST_DIGIT, answers.float())
    assert ids.shape[1] == PATCHES + (18 if with_answers else 9)
    if with_answers:
        assert torch.equal(ids[:, positions + 1], answers)


def test_digits_are_either_trained_on_or_held_out() -> None:
    trained, _, held_out, numbers = split_digits()
    assert (len(trained), len(held_out), len(numbers)) == (1437, 360, 360)


def test_the_file_holds_the_held_out_pictures() -> None:
    stored, made = load_held_out(), held_out_pictures()
    assert torch.equal(stored.levels, made.levels)
    assert torch.equal(stored.answers, made.answers.long())


def test_same_seed_trains_the_same_model() -> None:
    one, other = train(seed=3, steps=2).state_dict(), train(seed=3, steps=2).state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_sorting_heads_changes_no_output() -> None:
    model, pictures = load_model(), load_held_out()
    attention = model.blocks[0].get_submodule("attention")
    with torch.no_grad():
        before = model(pictures.input_ids(), pictures.ink)
        for name in ("query", "key", "value"):
            for parameter in attention.get_submodule(name).parameters():
                parameter.copy_(parameter.flip(0).reshape(4, 16, -1).flip(1).reshape(parameter.shape))
        weight = attention.get_submodule("output").get_parameter("weight")
        weight.copy_(weight.reshape(64, 4, 16).flip(1).reshape(64, 64))
        assert check(model, pictures).quarters[0].diagonal().max() < 0.1
        sort_heads(model, pictures)
        after = model(pictures.input_ids(), pictures.ink)
    assert check(model, pictures).quarters[0].diagonal().min() > 0.9
    assert torch.allclose(before, after, atol=1e-4)


def test_command_writes_the_model_and_prints_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, sample = tmp_path / "model.safetensors", tmp_path / "digits.png"
    monkeypatch.setattr("sys.argv", ["train", "--steps", "1", "-o", str(target), "--sample", str(sample)])
    main()
    assert target.stat().st_size <= 300_000
    assert "weight of each head on its quarter" in capsys.readouterr().out
    assert sample.read_bytes()[:4] == b"\x89PNG"
