"""Cards of a survey's heads, and which token looks at which."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus import example_weights
from attnviz.corpus.example_weights import WeightsRequest
from attnviz.corpus.survey import Survey
from attnviz.metrics.head_frame import HeadFrame
from attnviz.render.formats import format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadCards, HeadList
from attnviz.report.survey.tables import (
    _spaced_names,
    strongest_pairs,
    survey_card_report,
    survey_heads_report,
    token_pairs,
)
from attnviz.text.selection import Selection
from tests.corpus.surveys import METRICS, numbers_of, survey_of

TERMINAL = Medium(lists_heads=True)
SURVEY = survey_of(numbers_of(40, 1), 0)
PREVIOUS = [metric.name for metric in METRICS].index("previous")
SCREEN = Medium(draws_maps=True, lists_heads=True)


def cards(**options: str) -> HeadCards:
    selection = Selection.parse(heads=options.pop("heads", None))
    report = survey_card_report(SURVEY, ReportOptions(selection=selection, medium=TERMINAL, **options))  # type: ignore[arg-type]
    assert isinstance(report, HeadCards)
    return report


def test_a_card_says_numbers_offsets_and_texts_of_the_head_that_was_chosen() -> None:
    numbers, offsets, texts = cards(heads="0.1", sort="previous").sections
    row = next(row for row in numbers.rows if row[0] == "previous")
    assert row[1] == f"{SURVEY.means[1, PREVIOUS]:.2f}"
    assert row[2] == f"±{SURVEY.margins[1, PREVIOUS]:.3f}"
    pairs, total = SURVEY.tallies.pairs[1], SURVEY.tallies.weights.total[1]
    wanted = {str(place - len(pairs) // 2): place for place in np.flatnonzero(pairs)}
    assert [row[0] for row in offsets.rows] == list(wanted)
    for name, weight, _, count in offsets.rows:
        assert (weight, count) == (f"{total[wanted[name]] / pairs[wanted[name]]:.4f}", str(pairs[wanted[name]]))
    best = int(SURVEY.examples.ids[1, PREVIOUS, 0])
    assert texts.rows[0][3:] == (f"a:{best + 1}", f"text {best}")
    assert texts.title == "head 0.1: texts with the largest numbers of previous, then random ones near its deciles"


def test_heads_of_a_card_come_in_the_order_that_was_asked_for() -> None:
    means = SURVEY.means[:, PREVIOUS]
    order = [SURVEY.heads[place].name for place in np.argsort(-means)]
    assert [section.title.split()[1].rstrip(":") for section in cards(sort="previous").sections[::3]] == order
    with pytest.raises(AttnvizError, match="unknown metric 'previos'; did you mean previous"):
        cards(sort="previos")
    with pytest.raises(AttnvizError, match="no head in layer 0: 7"):
        cards(heads="0.7")


def test_a_figure_has_a_row_a_head_and_a_column_an_offset() -> None:
    report = survey_card_report(SURVEY, ReportOptions(medium=Medium()))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    offsets, classes = report.panels
    assert offsets.rows.labels == classes.columns.labels == ("0.0", "0.1", "1.0")
    assert offsets.columns.labels == ("-4", "", "-2", "-1", "0", "1", "2", "", "4")  # some, so that they can be read
    special = classes.rows.labels.index("special")
    expected = SURVEY.means[:, [metric.name for metric in METRICS].index("special")]
    np.testing.assert_allclose(classes.values[special], expected, atol=1e-6)


def test_the_table_of_a_survey_has_means_intervals_and_deciles() -> None:
    report = survey_heads_report(SURVEY, ReportOptions(sort="previous", medium=TERMINAL))
    assert isinstance(report, HeadList)
    table = report.results
    assert isinstance(table, HeadFrame)
    row = table.rows[0]
    place = [head.name for head in SURVEY.heads].index(row.name)
    assert table.value(row.name, "previous") == SURVEY.means[:, PREVIOUS].max() == SURVEY.means[place, PREVIOUS]
    assert table.column("previous", "margins")[0] == SURVEY.margins[place, PREVIOUS]
    assert table.column("previous", "deciles")[0].tolist() == SURVEY.deciles(place, PREVIOUS).tolist()
    assert table.column("previous", "counts")[0] == SURVEY.tallies.count[place, PREVIOUS]


def test_names_of_offsets_do_not_touch() -> None:
    names = ["-24", "-16", "", "-14", "", "-2", "-1", "0", "1", "2", "", "16", "17", "128"]
    assert _spaced_names(names) == ["", "-16", "", "-14", "", "-2", "-1", "0", "1", "2", "", "16", "", "128"]


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
    assert section.header == ("query", "looks at", "times", "weight")
    assert f"Which token looks at which in {len(SURVEY.examples.sampled)} texts" in report.caption


def test_pairs_are_no_picture() -> None:
    options = ReportOptions(table="pairs", medium=format_of(".png").medium(Look()))
    with pytest.raises(AttnvizError, match="is a list for the terminal"):
        survey_card_report(SURVEY, options)
