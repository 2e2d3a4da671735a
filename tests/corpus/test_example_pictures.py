"""Example pictures of a survey: recorded again from their files, and refused if they or the model have changed."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import BboxImage
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.corpus.example_pictures import SIDE, example_pictures
from attnviz.corpus.example_weights import WeightsRequest
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.corpus.texts.batches import SurveyOptions
from attnviz.corpus.texts.pictures import CorpusPictures
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
from attnviz.report.survey.survey_card import survey_card_report
from attnviz.text.selection import Selection

MODEL = ModelSettings(model="trained-picture")


@pytest.fixture(scope="module")
def reader() -> Reader:
    return open_reader(MODEL, "images")


@pytest.fixture
def survey(tmp_path: Path, reader: Reader) -> Survey:
    random = np.random.default_rng(0)
    for name, size in {"a.png": (600, 300, 3), "b.png": (90, 90, 3)}.items():
        Pillow.fromarray(random.integers(0, 256, size).astype(np.uint8)).save(tmp_path / name)
    options = SurveyOptions(corpus=("photos",), settings={"model": "trained-picture"}, pictures=True)
    survey = SurveyRun(reader, options).run(CorpusPictures([str(tmp_path / "a.png"), str(tmp_path / "b.png")], reader))
    assert survey is not None
    return survey


def test_weights_are_those_of_a_recording_of_the_file(survey: Survey, reader: Reader, tmp_path: Path) -> None:
    requests = [WeightsRequest(0, 5, (2, 4), (0, 30)), WeightsRequest(0, 1, None, (0, 36))]
    drawn = example_pictures(survey, requests)
    recording = reader.record(Example(image=tmp_path / "a.png"), Selection())
    for request in requests:
        head = survey.heads[request.head]
        [maps] = [maps for maps in recording.maps if maps.layer == head.layer]
        weights = cell_maps(maps).window((head.head,), slice(0, len(maps.query_tokens)), slice(0, 36)).weights[0]
        expected = weights.mean(0)[None, :36] if request is requests[1] else weights[2:4, :30]
        np.testing.assert_allclose(drawn.weights[request], expected, atol=1e-6)
    [tokens] = drawn.tokens.values()
    [image] = [medium for medium in tokens.media if isinstance(medium, Image)]
    assert (image.width, image.height, image.pixels.shape[0]) == (300, 600, SIDE)
    assert tokens.labels == recording.maps[0].key_tokens.labels


def test_a_picture_that_is_gone_is_named_and_the_others_are_drawn(survey: Survey, tmp_path: Path) -> None:
    requests = [WeightsRequest(0, 0, None, (0, 36)), WeightsRequest(1, 0, None, (0, 36))]
    (tmp_path / "a.png").unlink()
    drawn = example_pictures(survey, requests)
    assert (list(drawn.tokens), drawn.missing) == ([1], [str(tmp_path / "a.png")])
    (tmp_path / "b.png").unlink()
    with pytest.raises(AttnvizError, match=r"no picture is where it was, such as '.*a\.png'"):
        example_pictures(survey, requests)


def test_another_picture_of_the_same_name_is_refused(survey: Survey, tmp_path: Path) -> None:
    Pillow.new("RGB", (90, 90)).save(tmp_path / "b.png")
    with pytest.raises(AttnvizError, match=r"b\.png' gives other numbers than when it was surveyed"):
        example_pictures(survey, [WeightsRequest(1, 0, None, (0, 36))])


def test_a_card_draws_the_pictures_and_a_page_names_the_missing(survey: Survey, tmp_path: Path) -> None:
    options = ReportOptions(
        selection=Selection.parse(heads="0.1"), medium=format_of(".png").medium(Look()), sort="peak"
    )
    report = survey_card_report(survey, options)
    assert isinstance(report, SurveyedHeads)
    assert all(text.picture is not None for text in report.texts)
    assert sum(isinstance(artist, BboxImage) for artist in figure(report).artists) == len(report.examples[0]) > 2
    largest = report.examples[0][0]
    assert largest.query is not None
    assert largest.weights is not None
    assert largest.weights[1:].max(axis=1).argmax() + 1 == largest.query  # the first token sees itself alone
    (tmp_path / "a.png").unlink()
    report = survey_card_report(survey, options)
    assert isinstance(report, SurveyedHeads)
    assert any("1 picture is not drawn: no such file as" in remark for remark in report.remarks)
