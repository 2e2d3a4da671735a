"""The weights of a survey's examples, against recordings of the same texts by the same model."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus.example_weights import WeightsRequest, example_weights
from attnviz.corpus.measuring.survey_batch import survey_of_batch
from attnviz.corpus.sums.survey import Survey, merge_surveys
from attnviz.corpus.texts.batches import SurveyOptions, batches_of, chunks_of
from attnviz.corpus.texts.read import CorpusText
from attnviz.corpus.texts.text_models import open_survey_model
from attnviz.maps.layer_maps import cell_maps
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests import room
from tests.corpus.examples import MODELS, RandomTexts

TEXTS = ("the cat sat. the cat sat", "a b a b a c a b", "one two three", "so it goes so it goes so it")
SETTINGS = ModelSettings(model="trained")


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
    model, options = RandomTexts(MODELS["bert"]), SurveyOptions(settings={"model": "random"})
    [batch] = batches_of([CorpusText("texts.txt", 1, "the cat sat")], model, options, 0, None).batches
    survey = survey_of_batch(model, batch, options)
    monkeypatch.setattr("attnviz.corpus.example_weights._open_model", lambda _: model)
    wanted = [WeightsRequest(0, place, (0, 3), (0, 3)) for place in range(len(survey.heads))]
    found = example_weights(survey, wanted)
    assert len(found) == len(survey.heads) == 6
    for weights in found.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
