"""The heads of a survey as points and cards: which texts show a head, and what is said where no model can draw them."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus import example_weights
from attnviz.corpus.example_weights import WeightsRequest
from attnviz.metrics.metrics import METRICS as ALL_METRICS
from attnviz.render.formats import format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import HeadCards, SurveyedHeads
from attnviz.report.survey import pictures
from attnviz.report.survey.pictures import SHOWN_AFTER, SHOWN_TOKENS, classes_of, survey_title
from attnviz.report.survey.tables import survey_card_report
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import tokenize
from tests.corpus.surveys import METRICS, numbers_of, survey_of
from tests.report.examples import drawn

SURVEY = survey_of(numbers_of(40, 1), 0)
PAGE, FIGURE, SLIDES = (format_of(suffix).medium(Look()) for suffix in (".html", ".png", ".pptx"))
SINK = [metric.name for metric in METRICS].index("sink")


def report(medium: Medium, **options: object) -> SurveyedHeads:
    heads = options.pop("heads", None)
    selection = Selection.parse(heads=str(heads)) if heads else Selection()
    found = survey_card_report(SURVEY, ReportOptions(medium=medium, selection=selection, **options))  # type: ignore[arg-type]
    assert isinstance(found, SurveyedHeads)
    return found


def test_a_page_has_all_heads_with_the_largest_texts_and_one_for_each_decile() -> None:
    found = report(PAGE, sort="sink")
    order = np.argsort(-SURVEY.means[:, SINK])
    assert tuple(row.name for row in found.frame.rows) == tuple(SURVEY.heads[place].name for place in order)
    assert found.shown_by == ("sink",) * 3
    np.testing.assert_array_equal(found.frame.values, SURVEY.means[order])
    place, examples = int(order[0]), found.examples[0]
    assert [example.value for example in examples[:10]] == SURVEY.examples.values[place, SINK].tolist()
    rows = [f"a:{int(number) + 1}" for number in SURVEY.examples.ids[place, SINK]]
    assert [found.texts[example.text].corpus_position for example in examples[:10]] == rows
    assert [example.reason for example in examples[10:]] == [*(f"{tenth} %" for tenth in range(90, 0, -10)), "smallest"]
    sample = SURVEY.examples.sample[:, place, SINK]
    assert examples[-1].value == pytest.approx(np.nanmin(sample))
    assert abs(examples[14].value - np.nanmedian(sample)) < 0.1


def test_a_page_and_a_picture_are_titled_by_their_model_and_corpus() -> None:
    size = f"{SURVEY.texts} texts, {SURVEY.tokens} tokens"
    assert report(PAGE).title == report(FIGURE, axes="previous,sink").title == f"a test: {size}"
    assert survey_title(replace(SURVEY, corpus=("wiki.txt", "books"))) == f"a test over wiki.txt, books: {size}"
    assert survey_title(replace(SURVEY, corpus=("a", "b", "c", "d"))) == f"a test over a, b and 2 more: {size}"


def test_a_model_that_is_not_here_leaves_the_texts_without_shades_and_says_so() -> None:
    found = report(PAGE)
    assert all(example.weights is None for of_head in found.examples for example in of_head)
    start = "The examples are not shaded by what a token looks at: the model 'a test' is not on this machine; "
    assert any(remark.startswith(start) for remark in found.remarks)


def test_each_text_has_the_command_that_draws_it_again() -> None:
    survey = replace(SURVEY, settings={"model": "./my bert", "dtype": "float16", "window": None}, model="my bert")
    found = survey_card_report(survey, ReportOptions(medium=PAGE))
    assert isinstance(found, SurveyedHeads)
    labels = found.texts[0].labels[-1]
    assert found.texts[0].command == (
        f"attnviz show 'text {labels}' --model './my bert' --dtype float16 --heads",
        "",
    )


def test_of_a_long_text_the_part_around_the_query_is_shown() -> None:
    words = " ".join(map(str, range(500)))
    best = int(SURVEY.examples.ids[0, SINK, 0])
    queries = SURVEY.examples.queries.copy()
    queries[0, SINK, 0] = 300
    longer = replace(SURVEY.examples.texts[best], tokens=tokenize(words))
    examples = replace(SURVEY.examples, queries=queries, texts={**SURVEY.examples.texts, best: longer})
    survey = replace(SURVEY, examples=examples)
    found = survey_card_report(survey, ReportOptions(medium=PAGE, sort="sink", selection=Selection.parse(heads="0.0")))
    assert isinstance(found, SurveyedHeads)
    example = found.examples[0][0]
    text = found.texts[example.text]
    assert (len(text.labels), text.whole) == (SHOWN_TOKENS, False)
    assert example.query is not None
    assert text.labels[example.query] == "300"
    assert text.labels[-1] == str(300 + SHOWN_AFTER)


def test_a_picture_is_cards_of_few_heads_points_for_axes_and_else_profiles() -> None:
    assert report(FIGURE, heads="0.1").cards
    points = report(FIGURE, axes="previous,sink,entropy,layer")
    assert (points.cards, points.axes) == (False, ("previous", "sink", "entropy", "layer"))
    assert drawn(survey_card_report(SURVEY, ReportOptions(medium=FIGURE))).kind == "maps"
    assert drawn(survey_card_report(SURVEY, ReportOptions(medium=SLIDES))).kind == "maps"


@pytest.mark.parametrize("factor", [1, 0.5])
def test_tokens_without_a_place_are_no_second_class_if_they_are_the_special_tokens(factor: float) -> None:
    names = [metric.name for metric in METRICS]
    special, other = names.index("special"), names.index("next")
    numbers = numbers_of(40, 1)
    numbers.values[:, :, other] = factor * numbers.values[:, :, special]
    metrics = tuple(ALL_METRICS["registers"] if metric.name == "next" else metric for metric in METRICS)
    classes = classes_of(replace(survey_of(numbers, 0), metrics=metrics))
    assert "special" in classes
    assert ("registers" in classes) == (factor < 1)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("previous", "does not name two to four metrics"),
        ("a,b,c,d,e", "does not name two to four"),
        ("previos,sink", "unknown metric 'previos' in axes; did you mean previous"),
    ],
)
def test_refuses_axes_that_are_none(axes: str, said: str) -> None:
    with pytest.raises(AttnvizError, match=said):
        report(FIGURE, axes=axes)
    with pytest.raises(AttnvizError, match=r"-o heads\.png"):
        report(Medium(lists_heads=True), axes="previous,sink")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"reduce": "mean"}, "reduce"),
        ({"table": "both"}, "table"),
        ({"of": "contributions"}, "of"),
        ({"grouping": Grouping(words=True)}, "words"),
        ({"look": Look(style="arcs")}, "style"),
        ({"selection": Selection.parse(queries="1:2")}, "queries"),
    ],
)
def test_refuses_what_only_a_text_has(options: dict[str, object], name: str) -> None:
    with pytest.raises(AttnvizError, match="a survey holds means over all of them") as refusal:
        survey_card_report(SURVEY, ReportOptions(medium=PAGE, **options))  # type: ignore[arg-type]
    assert name in str(refusal.value)


def test_a_filter_leaves_the_heads_for_which_it_holds() -> None:
    least = SURVEY.means[:, SINK].min() + 1e-6
    kept = [head.name for head, mean in zip(SURVEY.heads, SURVEY.means[:, SINK], strict=True) if mean > least]
    cards = survey_card_report(
        SURVEY, ReportOptions(medium=Medium(lists_heads=True), filter=f"sink>{least:.7f}", all=True)
    )
    assert isinstance(cards, HeadCards)
    assert [section.title.split()[1].rstrip(":") for section in cards.sections[::3]] == kept
    assert len(kept) == 2


def test_a_page_has_the_three_texts_with_the_largest_of_every_other_metric() -> None:
    found = report(PAGE, sort="sink")
    order = np.argsort(-SURVEY.means[:, SINK])
    names = [metric.name for metric in SURVEY.metrics]
    present = [name for name in names if SURVEY.tallies.count[:, names.index(name)].any()]
    for place, more in zip(order, found.more_examples, strict=True):
        listed = {name: [each for each in more if each.metric == name] for name in names}
        assert [name for name in names if listed[name]] == [name for name in present if name != "sink"]
        for name in present:
            top = [number for number in SURVEY.examples.ids[place, names.index(name)][:3] if name != "sink"]
            assert [found.texts[each.text].corpus_position for each in listed[name]] == [
                f"a:{int(number) + 1}" for number in top
            ]
    assert report(FIGURE, heads="0.1").more_examples == ((),)


def test_a_page_of_too_many_heads_has_texts_by_one_metric_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("fewer heads" in remark for remark in report(PAGE).remarks)
    monkeypatch.setattr(pictures, "MAX_OTHER_EXAMPLES", 5)
    found = report(PAGE)
    assert found.more_examples == ((),) * 3
    assert any("fewer heads" in remark for remark in found.remarks)


def test_texts_by_another_metric_are_shaded_by_the_row_of_their_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def weights_of(_: object, wanted: list[WeightsRequest]) -> dict[WeightsRequest, np.ndarray]:
        assert len(set(wanted)) == len(wanted)  # each is computed once
        return {one: rows_of(one) for one in wanted}

    def rows_of(one: WeightsRequest) -> np.ndarray:
        every = np.arange(one.keys[1], dtype=np.float32)[:, None] + np.zeros(one.keys[1], dtype=np.float32)
        return every.mean(axis=0, keepdims=True) if one.queries is None else every[slice(*one.queries)]

    monkeypatch.setattr(example_weights, "example_weights", weights_of)
    found = report(PAGE)
    more = [(each, len(found.texts[each.text].labels)) for of_head in found.more_examples for each in of_head]
    within = [(each, count) for each, count in more if (each.query or 0) < count]  # queries of these texts are made up
    assert any(each.query for each, _ in within)
    for each, count in within:
        row = (count - 1) / 2 if each.query is None else each.query
        np.testing.assert_array_equal(each.weights, np.full((1, count), row, dtype=np.float32))
