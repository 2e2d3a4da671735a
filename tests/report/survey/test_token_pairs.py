"""Who looks at whom: pairs of a query and its strongest key, counted over the texts of a survey."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus import example_weights
from attnviz.corpus.example_weights import WeightsRequest
from attnviz.corpus.survey import Survey
from attnviz.render.formats import format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import HeadCards
from attnviz.report.survey.survey_card import survey_card_report
from attnviz.report.survey.token_pairs import strongest_pairs, token_pairs
from attnviz.text.selection import Selection
from tests.corpus.surveys import numbers_of, survey_of

SURVEY = survey_of(numbers_of(40, 1), 0)
SCREEN = Medium(draws_maps=True, lists_heads=True)


def previous(survey: Survey, requests: Sequence[WeightsRequest]) -> Mapping[WeightsRequest, FloatArray]:
    """Weights of heads whose queries look at the token before with 0.75; the first query sees itself alone."""
    found = {}
    for request in requests:
        assert request.queries is not None
        count = request.queries[1]
        rows = np.zeros((count, count), dtype=np.float32)
        rows[0, 0] = 1
        for query in range(1, count):
            rows[query, query - 1 : query + 1] = 0.75, 0.25
        found[request] = rows
    return found


def test_a_query_that_sees_one_key_is_left_out() -> None:
    rows = np.array([[1, 0, 0], [0.2, 0.8, 0], [0.5, 0.1, 0.4], [np.nan, np.nan, np.nan]], dtype=np.float32)
    found = strongest_pairs(rows)
    assert [(query, key) for query, key, _ in found] == [(1, 1), (2, 0)]
    assert [weight for *_, weight in found] == pytest.approx([0.8, 0.5])


def test_pairs_are_counted_over_the_sampled_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_weights, "example_weights", previous)
    expected = Counter[tuple[str, str]]()
    for number in SURVEY.examples.sampled.tolist():
        labels = SURVEY.examples.texts[number].tokens.labels
        expected.update((labels[place], labels[place - 1]) for place in range(1, len(labels)))
    found = token_pairs(SURVEY, [0, 2])
    for place in (0, 2):
        assert {(pair.query, pair.key): pair.times for pair in found[place]} == expected
        assert [pair.times for pair in found[place]] == sorted(expected.values(), reverse=True)
        assert all(pair.weight == pytest.approx(0.75) for pair in found[place])


def test_a_list_of_each_chosen_head_says_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_weights, "example_weights", previous)
    options = ReportOptions(selection=Selection.parse(heads="0.1"), table="pairs", medium=SCREEN)
    report = survey_card_report(SURVEY, options)
    assert isinstance(report, HeadCards)
    [section] = report.sections
    assert section.title.startswith("head 0.1: ")
    assert section.summary.header == ("query", "looks at", "times", "weight")
    assert f"Which token looks at which in {len(SURVEY.examples.sampled)} texts" in report.caption


def test_pairs_are_no_picture() -> None:
    options = ReportOptions(table="pairs", medium=format_of(".png").medium(Look()))
    with pytest.raises(AttnvizError, match="is a list for the terminal"):
        survey_card_report(SURVEY, options)
