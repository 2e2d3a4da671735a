"""A corpus is read in lists of bounded size, and each list is run in batches of bounded size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.corpus import batches
from attnviz.corpus.batches import CorpusPictures, SurveyOptions, chunks_of, pack, picture_files
from attnviz.corpus.read import CorpusText
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.metrics.call_metrics import measure
from attnviz.metrics.metrics import METRICS
from attnviz.models.places import image_places
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests.streams import Streams

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
OPTIONS = SurveyOptions(corpus=("photos",), settings={"model": "vit"}, pictures=True)
SIZES = {"a.png": (96, 64), "b.jpg": (50, 80), "c.webp": (96, 64), "deep/d.png": (30, 30)}


def texts_of(*lengths: int) -> list[CorpusText]:
    return [CorpusText("a.txt", row, "x" * length) for row, length in enumerate(lengths, 1)]


def test_a_list_ends_with_the_text_that_reaches_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNK_TEXTS", 3)
    monkeypatch.setattr(batches, "CHUNK_CHARACTERS", 10)
    rows = [[text.row for text in chunk] for chunk in chunks_of(texts_of(1, 1, 1, 4, 5, 1, 9, 10, 2))]
    assert rows == [[1, 2, 3], [4, 5, 6], [7, 8], [9]]
    assert list(chunks_of([])) == []


def test_a_batch_has_no_more_tokens_or_cells_than_its_device_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_TOKENS", {"cpu": 12, "cuda": 100})
    monkeypatch.setattr(batches, "BATCH_CELLS", 60)
    assert pack([3, 20, 4, 4, 3], "cpu") == [[1], [0, 2, 3], [4]]
    assert pack([5, 5, 5], "cuda") == [[0, 1], [2]]  # a third text would make 75 cells
    assert pack([], "cpu") == []


@pytest.mark.parametrize("chosen", [{"heads": "encoder:0.0"}, {"layers": "encoder:0-1"}])
def test_a_survey_refuses_parts_that_it_does_not_tell_apart(chosen: dict[str, str]) -> None:
    with pytest.raises(AttnvizError, match=f"{next(iter(chosen))} names a part of the model, encoder, but a survey"):
        SurveyOptions(selection=Selection.parse(**chosen))


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "vit"
    torch.manual_seed(0)
    config = t.ViTConfig(**SMALL, image_size=[32, 48], patch_size=16, initializer_range=0.5)
    t.ViTModel(config).save_pretrained(folder)
    t.ViTImageProcessor(size={"height": 32, "width": 48}).save_pretrained(folder)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name, (width, height) in SIZES.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(random.integers(0, 256, (height, width, 3)).astype(np.uint8)).save(path)
    return tmp_path / "photos"


def reader_of(folder: Path) -> Reader:
    return open_reader(ModelSettings(model=str(folder)), "images")


def surveyed(reader: Reader, photos: Path, lines: list[str] | None = None) -> Survey:
    corpus = CorpusPictures(picture_files([str(photos)]), reader, print if lines is None else lines.append)
    survey = SurveyRun(reader, OPTIONS).run(corpus)
    assert survey is not None
    return survey


def test_a_folder_of_texts_stays_one_and_a_mixed_corpus_is_refused(photos: Path, tmp_path: Path) -> None:
    assert [Path(file).name for file in picture_files([str(photos)])] == ["a.png", "b.jpg", "c.webp", "d.png"]
    assert picture_files([str(photos / "*.jpg")]) == [str(photos / "b.jpg")]
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "notes.txt").write_text("one two")
    assert picture_files([str(texts)]) == picture_files(["-"]) == picture_files([""]) == []
    with pytest.raises(AttnvizError, match=r"texts' holds no pictures, and another part of the corpus does"):
        picture_files([str(photos), str(texts)])
    (photos / "captions.txt").write_text("a park")
    assert picture_files([str(photos)]) == []


def test_means_are_those_of_the_pictures_one_by_one(vit: Path, photos: Path) -> None:
    reader = reader_of(vit)
    survey = surveyed(reader, photos)
    recordings = [reader.record(Example(image=photos / name), Selection()) for name in sorted(SIZES)]
    names = tuple(metric.name for metric in survey.metrics)
    assert {"on-picture", "mass-60", "spatial-entropy", "left", "picture-distance"} <= set(names)
    assert not {"previous", "distance", "induction"} & set(names)
    numbers = np.array(
        [
            [[head.values[name] for name in names] for maps in recording.maps for head in measure(maps, tuple(METRICS))]
            for recording in recordings
        ]
    )
    np.testing.assert_allclose(survey.means, np.nanmean(numbers, axis=0), atol=1e-9)
    assert (survey.texts, survey.tokens, survey.example_noun) == (4, 4 * 7, "pictures")
    [entropy] = [index for index, name in enumerate(names) if name == "entropy"]
    best = survey.examples.texts[int(survey.examples.ids[0, entropy, 0])]
    assert best.corpus_position == str(photos / sorted(SIZES)[int(numbers[:, 0, entropy].argmax())])


def test_pictures_of_one_shape_share_the_forward_passes_that_measure_places(
    vit: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []
    token_of_pixel = image_places.token_of_pixel

    def counted(module: Any, pixels: Any, *given: Any) -> Any:
        shapes.append(pixels.shape)
        return token_of_pixel(module, pixels, *given)

    monkeypatch.setattr(image_places, "token_of_pixel", counted)
    surveyed(reader_of(vit), photos)
    assert len(shapes) == 1  # the processor makes one shape of all three sizes


def test_bad_pictures_are_skipped_with_a_line_each(vit: Path, photos: Path) -> None:
    (photos / "cut.png").write_bytes((photos / "a.png").read_bytes()[:300])
    (photos / "empty.jpg").write_bytes(b"")
    Pillow.new("RGB", (8, 8)).save(photos / "old.gif")
    lines: list[str] = []
    survey = surveyed(reader_of(vit), photos, lines)
    assert survey.texts == len(SIZES)
    assert dict(survey.skipped) == {"damaged or of another format": 3}
    assert [next(name for name in ("cut", "empty", "old") if name in line) for line in lines] == ["cut", "empty", "old"]
    assert not any("\n" in line for line in lines)


def test_a_resumed_survey_and_a_saved_one_have_the_same_bytes(vit: Path, photos: Path, tmp_path: Path) -> None:
    reader = reader_of(vit)
    whole, saved = surveyed(reader, photos), tmp_path / "s.safetensors"
    save_survey(whole, saved)
    save_survey(load_survey(saved), tmp_path / "again.safetensors")
    assert saved.read_bytes() == (tmp_path / "again.safetensors").read_bytes()

    class KilledError(Exception):
        pass

    class Mortal(CorpusPictures):
        def __iter__(self) -> Any:
            for number, picture in enumerate(super().__iter__()):
                if number == 3:
                    raise KilledError
                yield picture

    files, checkpoint = picture_files([str(photos)]), tmp_path / "s.checkpoint"
    from attnviz.corpus import survey_corpus

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_corpus, "CHUNK_PICTURES", 1)
        with pytest.raises(KilledError):
            SurveyRun(reader, OPTIONS, checkpoint=checkpoint, seconds=0).run(Mortal(files, reader, print))
        run = SurveyRun(reader, OPTIONS, checkpoint=checkpoint, seconds=0)
        resumed = run.run(CorpusPictures(files, reader, print), resume=True)
    assert resumed is not None
    save_survey(resumed, tmp_path / "resumed.safetensors")
    assert (tmp_path / "resumed.safetensors").read_bytes() == saved.read_bytes()


def test_commands_survey_list_and_draw_pictures(
    vit: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.safetensors"
    (photos / "cut.png").write_bytes((photos / "a.png").read_bytes()[:300])
    assert main(["survey", str(photos), "--model", str(vit), "-o", str(out)]) == 0
    error = capsys.readouterr().err
    assert "cut.png' cannot be read" in error
    assert "left out of the corpus: 1 damaged or of another format" in error
    assert main(["show", str(out), "--heads", "0.1", "--sort", "spatial-entropy"]) == 0
    card = capsys.readouterr().out
    assert "pictures with the largest numbers of spatial-entropy" in card
    assert "offset" not in card
    assert main(["heads", str(out)]) == 0
    assert "over 4 pictures" in " ".join(capsys.readouterr().out.split())
    for name in ("card.png", "page.html", "heads.svg"):
        heads = ["--heads", "0.1"] if name == "card.png" else []
        assert main(["show", str(out), *heads, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 0
    assert "by offset" not in (tmp_path / "heads.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--model", "vit", "--column", "text"], "--column is for texts, and the corpus holds pictures; leave it out"),
        (["--model", "vit", "--tokens", "1k"], "--tokens is for texts"),
        (["--model", "trained"], "the trained model reads text; for an image use --model trained-picture"),
    ],
)
def test_what_does_not_apply_to_pictures_is_refused_in_a_line(
    arguments: list[str], line: str, photos: Path, tmp_path: Path, shell: Streams
) -> None:
    out = tmp_path / "s.safetensors"
    assert line in shell.refused("survey", str(photos), "-o", str(out), *arguments)
    assert not list(tmp_path.glob("s.safetensors*"))


def test_a_corpus_without_an_intact_picture_is_refused_and_nothing_is_written(
    vit: Path, tmp_path: Path, shell: Streams
) -> None:
    (tmp_path / "words.png").write_text("not a picture")
    out = tmp_path / "s.safetensors"
    assert shell.run("survey", str(tmp_path / "words.png"), "--model", str(vit), "-o", str(out), code=1) == ""
    assert "no picture to survey in" in shell.err
    assert not list(tmp_path.glob("s.safetensors*"))
