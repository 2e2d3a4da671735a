"""The weights of a survey's examples, against recordings of the same texts by the same model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import BboxImage
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.corpus.batches import CorpusPictures, SurveyOptions, batches_of, chunks_of
from attnviz.corpus.example_weights import SIDE, WeightsRequest, example_pictures, example_weights
from attnviz.corpus.read import CorpusText
from attnviz.corpus.survey import Survey, merge_surveys
from attnviz.corpus.survey_batch import open_survey_model, survey_of_batch
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.maps.layer_maps import cell_maps
from attnviz.media.image import Image
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.render.figure.draw import figure
from attnviz.render.formats import format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import SurveyedHeads
from attnviz.report.survey.tables import survey_card_report
from attnviz.text.selection import Selection
from tests import room
from tests.corpus.examples import MODELS, RandomTexts

TEXTS = ("the cat sat. the cat sat", "a b a b a c a b", "one two three", "so it goes so it goes so it")
SETTINGS = ModelSettings(model="trained")
MODEL = ModelSettings(model="trained-picture")


@pytest.fixture(scope="module")
def survey() -> Survey:
    options = SurveyOptions(settings={"model": "trained", "dtype": "float32"})
    model, whole = open_survey_model(SETTINGS, Selection(), None), None
    for chunk in chunks_of(CorpusText("texts.txt", row + 1, text) for row, text in enumerate(TEXTS)):
        for batch in batches_of(chunk, model, options, 0, None).batches:
            whole = merge_surveys(whole, survey_of_batch(model, batch, options))
    assert whole is not None
    return whole


def test_weights_of_examples_are_those_of_a_recording_in_every_layer(survey: Survey) -> None:
    expected, largest = dict[WeightsRequest, np.ndarray](), 0.0
    for text, words in enumerate(TEXTS):
        maps = {one.layer: one for one in open_reader(SETTINGS).record(Example(words), Selection()).maps}
        count = len(survey.examples.texts[text].tokens)
        for place, head in enumerate(survey.heads):
            window = cell_maps(maps[head.layer]).window((head.head,), slice(0, count), slice(0, count))
            weights, largest = window.weights[0], max(largest, float(np.abs(window.scores).max()))
            expected[WeightsRequest(text, place, (0, count), (0, count))] = weights
            expected[WeightsRequest(text, place, (2, 3), (1, 4))] = weights[2:3, 1:4]
            expected[WeightsRequest(text, place, None, (0, count))] = weights.mean(axis=0, keepdims=True)
    found = example_weights(survey, list(expected))
    for wanted, weights in expected.items():
        np.testing.assert_allclose(found[wanted], weights, atol=room.of_weights(largest))


def test_a_model_that_is_not_here_or_gives_other_numbers_is_refused(survey: Survey) -> None:
    wanted = [WeightsRequest(0, 0, None, (0, 3))]
    gone = replace(survey, settings={"model": "some-org/some-model"}, model="some-org/some-model")
    with pytest.raises(AttnvizError, match="'some-org/some-model' is not on this machine"):
        example_weights(gone, wanted)
    other = replace(survey, examples=replace(survey.examples, sample=survey.examples.sample + np.float32(0.01)))
    with pytest.raises(AttnvizError, match="gives other numbers than when it was surveyed"):
        example_weights(other, wanted)


def test_the_last_layer_of_a_transformer_is_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model, options = RandomTexts(MODELS["bert"]), SurveyOptions(settings={"model": "trained"})
    [batch] = batches_of([CorpusText("texts.txt", 1, "the cat sat")], model, options, 0, None).batches
    survey = survey_of_batch(model, batch, options)
    monkeypatch.setattr("attnviz.corpus.example_weights.open_survey_model", lambda *_: model)
    wanted = [WeightsRequest(0, place, (0, 3), (0, 3)) for place in range(len(survey.heads))]
    found = example_weights(survey, wanted)
    assert len(found) == len(survey.heads) == 6
    for weights in found.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)


@pytest.fixture(scope="module")
def reader() -> Reader:
    return open_reader(MODEL, "images")


@pytest.fixture
def pictures(tmp_path: Path, reader: Reader) -> Survey:
    random = np.random.default_rng(0)
    for name, size in {"a.png": (600, 300, 3), "b.png": (90, 90, 3)}.items():
        Pillow.fromarray(random.integers(0, 256, size).astype(np.uint8)).save(tmp_path / name)
    options = SurveyOptions(corpus=("photos",), settings={"model": "trained-picture"}, pictures=True)
    survey = SurveyRun(reader, options).run(CorpusPictures([str(tmp_path / "a.png"), str(tmp_path / "b.png")], reader))
    assert survey is not None
    return survey


def test_weights_are_those_of_a_recording_of_the_file(pictures: Survey, reader: Reader, tmp_path: Path) -> None:
    requests = [WeightsRequest(0, 5, (2, 4), (0, 30)), WeightsRequest(0, 1, None, (0, 36))]
    drawn_weights, drawn_tokens, _ = example_pictures(pictures, requests)
    recording = reader.record(Example(image=tmp_path / "a.png"), Selection())
    for request in requests:
        head = pictures.heads[request.head]
        [maps] = [maps for maps in recording.maps if maps.layer == head.layer]
        weights = cell_maps(maps).window((head.head,), slice(0, len(maps.query_tokens)), slice(0, 36)).weights[0]
        expected = weights.mean(0)[None, :36] if request is requests[1] else weights[2:4, :30]
        np.testing.assert_allclose(drawn_weights[request], expected, atol=1e-6)
    [tokens] = drawn_tokens.values()
    [image] = [medium for medium in tokens.media if isinstance(medium, Image)]
    assert (image.width, image.height, image.pixels.shape[0]) == (300, 600, SIDE)
    assert tokens.labels == recording.maps[0].key_tokens.labels


def test_a_picture_that_is_gone_is_named_and_the_others_are_drawn(pictures: Survey, tmp_path: Path) -> None:
    requests = [WeightsRequest(0, 0, None, (0, 36)), WeightsRequest(1, 0, None, (0, 36))]
    (tmp_path / "a.png").unlink()
    _, drawn_tokens, missing = example_pictures(pictures, requests)
    assert (list(drawn_tokens), missing) == ([1], [str(tmp_path / "a.png")])
    (tmp_path / "b.png").unlink()
    with pytest.raises(AttnvizError, match=r"no picture is where it was, such as '.*a\.png'"):
        example_pictures(pictures, requests)


def test_another_picture_of_the_same_name_is_refused(pictures: Survey, tmp_path: Path) -> None:
    Pillow.new("RGB", (90, 90)).save(tmp_path / "b.png")
    with pytest.raises(AttnvizError, match=r"b\.png' gives other numbers than when it was surveyed"):
        example_pictures(pictures, [WeightsRequest(1, 0, None, (0, 36))])


def test_a_card_draws_the_pictures_and_a_page_names_the_missing(pictures: Survey, tmp_path: Path) -> None:
    options = ReportOptions(
        selection=Selection.parse(heads="0.1"), medium=format_of(".png").medium(Look()), sort="peak"
    )
    report = survey_card_report(pictures, options)
    assert isinstance(report, SurveyedHeads)
    assert all(text.picture is not None for text in report.texts)
    assert sum(isinstance(artist, BboxImage) for artist in figure(report).artists) == len(report.examples[0]) > 2
    largest = report.examples[0][0]
    assert largest.query is not None
    assert largest.weights is not None
    assert largest.weights[1:].max(axis=1).argmax() + 1 == largest.query  # the first token sees itself alone
    (tmp_path / "a.png").unlink()
    report = survey_card_report(pictures, options)
    assert isinstance(report, SurveyedHeads)
    assert any("1 picture is not drawn: no such file as" in remark for remark in report.remarks)
