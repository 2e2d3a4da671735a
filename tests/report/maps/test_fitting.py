"""The first answer about many heads: a screenful that finds what they do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.change import compare
from attnviz.metrics.head_frame import HeadFrame
from attnviz.render.formats import medium_of
from attnviz.render.terminal.draw import report_lines
from attnviz.report.build import build_report, report_of_heads
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList, Report
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps
from tests.report.examples import drawn

LAYERS, HEADS = 6, 12
SENTENCE = "The nurse in the store said that she was right"


def many_heads(text: str = SENTENCE, untrained: bool = False) -> Recording:
    """72 heads of which 2.7 looks at the token before, 3.1 and 3.2 at the first, and the others here and there."""
    tokens = tokenize(text)
    maps = [random_maps(tokens, layer=layer, heads=HEADS, peak=1.5) for layer in range(LAYERS)]
    count = len(tokens)
    before = np.eye(count, k=-1, dtype=np.float32)
    before[0, 0] = 1
    first = np.zeros((count, count), dtype=np.float32)
    first[:, 0] = 1
    for layer, head, weights in ((2, 7, before), (3, 1, first), (3, 2, first)):
        held = maps[layer].weights.copy()
        held[head] = weights
        maps[layer] = replace(maps[layer], weights=held)
    return Recording(maps=tuple(maps), model="a model", untrained=untrained)


def on_screen(
    recording: Recording, width: int = 80, height: int = 24, look: Look | None = None, **options: object
) -> Report:
    look = look or Look(width=width, height=height, colors=2**24)
    return build_report(recording, ReportOptions(look=look, medium=medium_of(".txt", look), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["Life is short", SENTENCE, "so it goes on and on " * 4, "so it goes " * 60], ids=len)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (100, 30)])
def test_first_answer_fits_the_screen(text: str, width: int, height: int) -> None:
    assert len(report_lines(on_screen(many_heads(text), width, height))) < height


def test_the_previous_token_head_is_drawn_first_under_what_it_does() -> None:
    report = on_screen(many_heads())
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert report.panels[0].title == "head 2.7 · previous token 1.00"
    assert "sink: The 1.00" in "".join(panel.title for panel in report.panels)
    assert "72 heads of a model: 1 previous token, " in report.caption
    assert "2 sinks on The" in report.caption
    assert "Use all=True for all, heads='2.7' for one" in report.remarks[0]


def test_a_short_text_is_drawn_whole_and_of_a_longer_one_the_caption_says_what_is_left_out() -> None:
    short, longer = on_screen(many_heads("Life is short")), on_screen(many_heads(SENTENCE))
    assert isinstance(short, DrawnReport)
    assert short.kind == "maps"
    assert isinstance(longer, DrawnReport)
    assert longer.kind == "maps"
    assert short.panels[0].values.shape == (3, 3)
    rows = longer.panels[0].values.shape[0]
    assert rows == 10 or f"over the first {rows} of 10 tokens" in longer.caption


def test_all_heads_are_thumbnails_where_asked_for_and_where_the_screen_holds_them() -> None:
    assert drawn(on_screen(many_heads(), all=True)).kind == "thumbnails"
    assert drawn(on_screen(many_heads(), 160, 70)).kind == "thumbnails"
    in_file = build_report(many_heads(), ReportOptions(medium=medium_of(".txt", Look())))
    assert isinstance(in_file, DrawnReport)
    assert in_file.kind == "thumbnails"
    assert in_file.remarks[0].startswith("Patterns: 1 previous token, ")


def test_chosen_heads_are_drawn_as_chosen_and_random_weights_have_no_clearest_head() -> None:
    assert drawn(on_screen(many_heads(untrained=True), 160, 70)).kind == "thumbnails"
    untrained = drawn(on_screen(many_heads(untrained=True)))
    assert "Use all=True to draw all 72 heads." in untrained.remarks
    assert [panel.heading.head for panel in untrained.panels] == [
        f"head 0.{head}" for head in range(len(untrained.panels))
    ]
    assert len(report_lines(untrained)) < 24
    chosen = on_screen(many_heads(), sort="previous", top=2)
    assert isinstance(chosen, DrawnReport)
    assert chosen.kind == "maps"
    assert chosen.panels[0].heading.head == "head 2.7"


def test_a_few_heads_that_the_screen_does_not_hold_are_the_clearest_too() -> None:
    layer = many_heads().maps[2]
    assert isinstance(layer, DenseMaps)
    shown = slice(5, 10)
    few = replace(layer, heads=tuple(range(5, 10)), weights=layer.weights[shown], scores=layer.scores[shown])
    recording = Recording(maps=(few,), model="a model")
    whole, clearest = on_screen(recording, height=99), on_screen(recording)
    assert isinstance(whole, DrawnReport)
    assert whole.kind == "maps"
    assert isinstance(clearest, DrawnReport)
    assert clearest.kind == "maps"
    assert [panel.heading.head for panel in whole.panels] == [f"head 2.{number}" for number in (5, 6, 7, 8, 9)]
    assert clearest.panels[0].title == "head 2.7 · previous token 1.00"
    assert len(clearest.panels) < 5


def test_a_sentence_is_drawn_whole_in_colours_where_its_numbers_do_not_fit() -> None:
    report = on_screen(many_heads())
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert not report.numbers
    assert report.panels[0].values.shape == (10, 10)
    assert len(report.panels) >= 3
    assert on_screen(many_heads("Life is short")).numbers  # type: ignore[union-attr]


def test_a_head_that_looks_at_repeats_is_never_shown_by_the_first_tokens() -> None:
    tokens = tokenize("one two three four five six seven eight nine ten " * 2)
    after = np.eye(len(tokens), k=-9, dtype=np.float32)
    after[:9, 0] = 1
    for heads, shown in ((after, (10, 20)), (np.eye(len(tokens), k=-1, dtype=np.float32), (8, 8))):
        maps = replace(random_maps(tokens, heads=30), weights=np.stack([heads] * 30))
        look = Look(width=80, height=24)
        report = build_report(
            Recording(maps=(maps,), model="a model"), ReportOptions(look=look, medium=medium_of(".txt", look))
        )
        assert isinstance(report, DrawnReport)
        assert report.kind == "maps"
        assert report.panels[0].values.shape == shown


def test_heads_that_are_drawn_first_are_not_called_the_clearest_and_rows_at_the_end_not_the_first() -> None:
    tokens = tokenize("so it goes on and on " * 5)
    maps = random_maps(tokens, tokenize("a b c"), heads=30)
    look = Look(width=80, height=20)
    options = ReportOptions(look=look, medium=medium_of(".txt", look))
    key = (maps.module, maps.layer, maps.kind, maps.item, 4)
    recording = Recording(maps=(maps,), model="a model")
    report = report_of_heads(recording, options, recording, answering_heads=[key])
    rows = len(report.panels[0].values)  # type: ignore[union-attr]
    assert rows < len(tokens)
    assert f"; showing 1: the last {rows} of 30 queries (rows) over 3 keys (columns)." in report.caption


def test_a_list_of_many_heads_shows_the_clearest_and_sums_up_the_rest() -> None:
    look = Look(width=80, height=24)
    options = ReportOptions(look=look, medium=medium_of(".txt", look))
    report = heads_report((many_heads(),), options)
    assert isinstance(report, HeadList)
    assert len(report_lines(report)) < 24
    assert report.summary.rows[0][:2] == ("2.7", "previous token 1.00")
    assert "1 previous token" in report.caption
    assert isinstance(report.results, HeadFrame)
    assert len(report.results.rows) == LAYERS * HEADS
    whole = heads_report((many_heads(),), replace(options, all=True))
    assert isinstance(whole, HeadList)
    assert len(whole.summary.rows) == LAYERS * HEADS


def test_a_short_list_of_heads_keeps_warnings_and_says_that_dropout_changes_nothing() -> None:
    look, recording = Look(width=80, height=24), many_heads()
    first_layer = tuple(maps for maps in recording.maps if maps.layer == 0)
    doubtful = replace(recording, maps=first_layer, settings={"dropout": 0.3}, doubts=("Warning: no softmax.",))
    report = heads_report((doubtful,), ReportOptions(look=look, medium=medium_of(".txt", look)))
    assert isinstance(report, HeadList)
    assert len(report.summary.rows) < HEADS
    assert report.remarks[-2] == "Warning: no softmax."
    assert report.remarks[-1].startswith("Dropout comes after the weights")


def test_patterns_are_those_of_tokens_where_words_are_drawn() -> None:
    report = on_screen(many_heads(), grouping=Grouping(words=True))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert report.panels[0].title == "head 2.7 · previous token 1.00"


def test_long_maps_are_measured_over_some_of_their_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = many_heads("so it goes on " * 50)
    whole = sum(len(maps.query_tokens) ** 2 * HEADS for maps in recording.maps)
    monkeypatch.setattr("attnviz.metrics.call_metrics.MAX_MEASURED_CELLS", whole // 4)
    report = on_screen(recording)
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert report.panels[0].title.startswith("head 2.7 · previous token 1.00")
    assert "(measured over one in 4 blocks of queries)" in report.caption
    monkeypatch.setattr("attnviz.metrics.call_metrics.MAX_MEASURED_CELLS", whole // 40)
    assert drawn(on_screen(recording)).kind == "thumbnails"


def test_a_long_text_keeps_its_shape_before_what_explains_the_drawing() -> None:
    tokens = tokenize("so it goes on and on " * 60)
    maps = random_maps(tokens, heads=20)
    report = on_screen(Recording(maps=(maps,), model="a model", remarks=("A remark.", "Another.")))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert len(report.panels[0].values) >= 12
    assert "Another." in report.remarks
    assert "Pooled: " in " ".join(report.remarks)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 22), (120, 40), (200, 60)])
def test_of_random_heads_as_many_are_drawn_as_a_screen_holds_and_that_there_are_more_is_said(
    width: int, height: int
) -> None:
    tokens = tokenize("Life is short , eat dessert first")
    recording = Recording(maps=(random_maps(tokens, heads=4),), model="a model", untrained=True)
    report = on_screen(recording, width, height)
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert len(report_lines(report)) < height
    fewer = len(report.panels) < 4
    assert fewer == (width == 80)
    assert ("Use all=True to draw all 4 heads." in report.remarks) == fewer
    assert len(drawn(on_screen(recording, width, height, all=True)).panels) == 4
    assert any(remark.startswith("Untrained") for remark in report.remarks)


@pytest.mark.parametrize(("width", "height", "heads"), [(80, 24, 4), (80, 24, 16), (120, 40, 4), (200, 60, 16)])
def test_a_comparison_fits_the_screen_with_the_head_that_changes_most(width: int, height: int, heads: int) -> None:
    tokens = tokenize("Life is short , eat dessert first")
    before, after = (
        Recording(maps=(random_maps(tokens, heads=heads, causal=causal, seed=causal),), model="a", untrained=True)
        for causal in (False, True)
    )
    look = Look(width=width, height=height, colors=2**24)
    options = ReportOptions(look=look, medium=medium_of(".txt", look))
    report = drawn(comparison_report(before, after, "--causal", options))
    assert len(report_lines(report)) < height
    if len(report.panels) == 3:
        changes = compare(before, after)
        assert report.panels[0].title.startswith(changes.rows[changes.ranked_rows("variation_mean")[0]].name)
        assert report.remarks[0] == f"Showing the head that changed most, of {heads}; use all=True for all."
    else:
        assert len(report.panels) == 3 * heads
    whole = drawn(comparison_report(before, after, "--causal", replace(options, all=True)))
    assert len(whole.panels) == 3 * heads


@pytest.mark.parametrize("count", [6, 21, 200, 1000])
def test_a_causal_text_of_any_length_begins_with_what_its_last_token_looks_at(count: int) -> None:
    tokens = tokenize(" ".join(f"w{number}" for number in range(count)))
    maps = random_maps(tokens, heads=20, causal=True, peak=0.2)
    weights = maps.weights.copy()
    weights[:7, -1] = np.eye(count)[2]
    recording = Recording(maps=(replace(maps, weights=weights),), model="a model")
    for width in (40, 80, 120):
        report = drawn(on_screen(recording, width, 24))
        lines = ["".join(span.text for span in line) for line in report_lines(report)]
        assert len(lines) < 24
        first_lines = " ".join(lines[2:7])
        assert first_lines.startswith(f"“w{count - 1}”, the last token")
        assert (
            f"7 of 20 heads look most at “w2” with {34 if count == 6 else 10}% or more (100% in 0.0, 100% in 0.1)"
            in first_lines
        )
        if report.kind == "text":
            assert report.panels[0].heading.name == "mean of 20 heads"
            assert any("w2" in panel.columns.labels for panel in report.panels)
            assert f"showing what “w{count - 1}” ({count - 1}) looks at among {count} keys" in report.caption
        else:
            assert report.panels[0].values.shape == (count, count)


@pytest.mark.parametrize(
    "options",
    [
        {"all": True},
        {"sort": "previous"},
        {"selection": Selection(heads=(1,))},
        {"selection": Selection(queries=(0, 9))},
    ],
)
def test_what_a_user_chose_of_a_causal_text_is_drawn_as_chosen(options: dict[str, Any]) -> None:
    maps = random_maps(tokenize("so it goes on and on " * 5), heads=20, causal=True)
    report = drawn(on_screen(Recording(maps=(maps,), model="a model"), **options))
    assert (report.answer, report.kind == "text") == ("", False)


def test_a_query_of_many_heads_is_drawn_in_their_mean_and_in_those_that_tell_most() -> None:
    report = drawn(on_screen(many_heads(), look=Look(width=80, height=40, colors=0, query="she")))
    assert [panel.heading.head for panel in report.panels][:1] == ["mean of 72 heads"]
    assert 2 <= len(report.panels) <= 5
    windows = [cell_maps(maps).window(maps.heads, slice(7, 8), slice(0, 10)) for maps in many_heads().maps]
    mean = np.mean([window.weights[:, 0] for window in windows], axis=(0, 1))
    np.testing.assert_allclose(report.panels[0].values[0], mean, atol=1e-6)
    assert not report.panels[0].visible[0, 0]  # the first token is set apart
    assert report.answer.startswith("“she” puts ")
    assert "attnviz heads lists what each does" in report.remarks[0]
    figure = drawn(build_report(many_heads(), ReportOptions(look=Look(query="she"), medium=medium_of(".svg", Look()))))
    assert figure.caption.startswith(report.answer)
    assert figure.remarks[0] == report.answer
    assert not any("attnviz heads" in remark for remark in figure.remarks)
