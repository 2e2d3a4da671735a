"""The trained picture model: what it reads, where patches stand, what its heads fetch, and what commands say."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.digit_picture import (
    FIRST_DIGIT,
    PATCHES,
    PICTURE_ID,
    VOCABULARY,
    WORDS,
    ink_of,
    patch_places,
    patches_of_cells,
    sample_picture,
)
from attnviz.models.places.image_places import measured_places
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.trained_picture import (
    TrainedPictureReader,
    load_held_out,
    load_model,
)
from attnviz.text.selection import Selection
from tests.streams import Streams
from tools.train_picture_model import weights_on_quarters

LAYERS, HEADS = 2, 4


def reader() -> TrainedPictureReader:
    return TrainedPictureReader(ModelSettings(model="trained-picture"))


def record(text: str = "middle-right", image: Path | None = None) -> Recording:
    images = () if image is None else (image,)
    return reader().record(Example(text, images=images), Selection())


def test_each_of_the_four_first_heads_fetches_a_quarter_of_the_digit_asked_for() -> None:
    quarters = weights_on_quarters(load_model(), load_held_out())
    assert quarters.shape == (LAYERS, HEADS, 4)
    assert (quarters[0].diagonal() > 0.9).all()
    assert quarters[1].max() < 0.2


def test_digits_that_were_held_out_are_predicted() -> None:
    pictures = load_held_out()
    with torch.no_grad():
        logits = load_model()(pictures.input_ids(), pictures.ink)[:, PATCHES:]
    assert (logits.argmax(-1) == pictures.answers + FIRST_DIGIT).float().mean() >= 0.95


@pytest.mark.parametrize(("width", "height"), [(240, 240), (97, 61)])
def test_places_of_patches_are_those_that_the_measurement_finds(width: int, height: int) -> None:
    class OfPixels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = load_model()

        def forward(self, pixel_values: torch.Tensor) -> SimpleNamespace:
            features = self.model.patch(pixel_values.mean(dim=1, keepdim=True)).flatten(2).transpose(1, 2)
            for block in self.model.blocks:
                features = block(features)
            return SimpleNamespace(last_hidden_state=features)

    def process(picture: Pillow.Image) -> torch.Tensor:
        bands = [torch.from_numpy(ink_of(band)) for band in picture.split()]
        return 1 - torch.stack(bands)[None]

    model, picture = OfPixels(), Pillow.new("RGB", (width, height))
    measured = measured_places(model, process(picture), process, picture.size)
    assert np.abs(measured - patch_places(width, height)).max() <= max(width, height) / 64


def test_cells_are_named_row_by_row() -> None:
    patches = patches_of_cells()
    assert np.flatnonzero(patches[WORDS.index("middle-right")]).tolist() == [16, 17, 22, 23]
    assert patches.sum(axis=0).tolist() == [1] * PATCHES


def test_a_recording_has_the_patches_at_their_places_and_the_words_after_them() -> None:
    tokens = record("Top-Left, bottom-center").maps[0].key_tokens
    assert tokens.labels[:7] == ("r0c0", "r0c1", "r0c2", "r0c3", "r0c4", "r0c5", "r1c0")
    assert tokens.labels[PATCHES:] == ("Top-Left", "bottom-center")
    assert tokens.ids[PATCHES:].tolist() == [WORDS.index("top-left"), WORDS.index("bottom-centre")]
    assert isinstance(tokens.media[1], Image)
    assert tokens.places[7].tolist() == [40, 40, 80, 80]


def test_the_word_looks_at_the_digit_that_it_names_and_the_model_answers_it() -> None:
    pictures = load_held_out()
    recording = record()
    assert f"The model answers {pictures.answers[0, WORDS.index('middle-right')]}, " in recording.remarks[0]
    maps = recording.maps[0]
    assert isinstance(maps, DenseMaps)
    rows = maps.window(maps.heads, slice(PATCHES, PATCHES + 1), slice(0, PATCHES)).weights[:, 0]
    assert rows.argmax(axis=-1).tolist() == [16, 17, 22, 23]


def test_another_picture_is_read(tmp_path: Path) -> None:
    with Pillow.open(sample_picture()) as picture:
        picture.rotate(180).save(tmp_path / "turned.png")
    recording = record(image=tmp_path / "turned.png")
    assert recording.maps[0].key_tokens.media[1].title == "turned.png"
    assert not any("No picture was given" in remark for remark in recording.remarks)
    assert any("No picture was given" in remark for remark in record().remarks)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            Example("middle-rigth"),
            r"does not know the word 'middle-rigth'; did you mean middle-right\? Choose top-left",
        ),
        (Example("7"), r"asks for no digit; give a word such as 'middle-right'"),
        (Example("top-left " * 65), r"the text has 65 words; give 1 to 64"),
        (Example("top-left", images=(Path("a.png"), Path("b.png"))), r"reads one picture, and there are 2"),
        (Example("top-left", context="x"), r"does not read context; give text or image"),
    ],
)
def test_refuses_what_it_does_not_read(example: Example, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        reader().read(example)


def test_a_picture_without_words_is_asked_for_all_nine_digits() -> None:
    prepared = reader().read(Example(image=sample_picture()))
    assert prepared.tokens.labels[PATCHES:] == WORDS
    assert prepared.inputs["input_ids"][0, :PATCHES].tolist() == [PICTURE_ID] * PATCHES


def test_a_new_user_needs_no_file(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "middle-right", "sample:digits.png", "--model", "trained-picture"]) == 0
    named = capsys.readouterr()
    assert main(["show", "--model", "trained-picture"]) == 0
    unnamed = capsys.readouterr()
    assert "no text given: using “middle-right”" in unnamed.err
    assert named.out.splitlines()[:12] == unnamed.out.splitlines()[:12]


def test_a_file_of_the_user_goes_before_the_sample_picture(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Pillow.new("RGB", (24, 24), "white").save("digits.png")
    assert main(["show", "middle-right", "digits.png", "--model", "trained-picture"]) == 0
    assert "sample picture" not in capsys.readouterr().err


def test_ablation_names_the_first_four_heads(shell: Streams) -> None:
    printed = shell.words("ablate", "--model", "trained-picture", "--sets", "0,1", "--metric", "accuracy")
    assert "360 digits in 40 pictures, which the model was not trained on" in printed
    assert "Measured at the word that asks for a digit" in printed


def test_ablation_of_a_picture_measures_the_answer_in_it(tmp_path: Path, shell: Streams) -> None:
    with Pillow.open(sample_picture()) as picture:
        picture.rotate(180).save(tmp_path / "turned.png")
    command = ["ablate", str(tmp_path / "turned.png"), "--model", "trained-picture", "--sets", "0,1"]
    printed = shell.words(*command)
    assert "all words (turned.png)" in printed
    assert "logit of “" in printed


def test_the_battery_finds_heads_that_look_where_the_word_points(shell: Streams) -> None:
    printed = shell.run("heads", "--types", "--model", "trained-picture", "--json")
    assert '"localization"' in printed


def test_vocabulary_names_each_id_once() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)


def test_a_short_list_of_heads_advises_a_metric_that_patches_have(shell: Streams) -> None:
    out = shell.words("heads", "middle-right", "--model", "trained-picture")
    assert "--sort border sorts by weight on patches at the edges." in out
    assert "previous" not in out


def test_a_word_of_the_battery_names_one_cell_and_its_control_each_other_one() -> None:
    ids, named_cells, other_cells = reader().region_probes()
    assert not (named_cells & other_cells).any()
    assert (named_cells.sum(axis=(1, 2)) == other_cells.sum(axis=(1, 2))).all()
    assert not named_cells[:, :-1].any()
    assert not other_cells[:, :-1].any()
    controls = {tuple(np.flatnonzero(cells)) for cells in other_cells[:, -1]}
    assert controls == {tuple(np.flatnonzero(cells)) for cells in named_cells[:, -1]}  # every cell is a control
    assert ids.shape == named_cells.shape[:2]
