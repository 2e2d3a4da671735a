"""The heads of a survey as a figure: points where their numbers are, and cards with their texts."""

import io
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnviz.base.errors import AttnvizError
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.render.figure.draw import figure
from attnviz.render.figure.surveyed import SurveySheet, fonts_of
from attnviz.render.formats import draw, format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import SurveyedHeads
from attnviz.report.survey.tables import survey_card_report
from attnviz.text.head_name import HeadName
from attnviz.text.selection import Selection
from tests.corpus.surveys import METRICS, numbers_of, survey_of

SURVEY = survey_of(numbers_of(40, 1), 0)
NAMES = [metric.name for metric in METRICS]


def report(look: Look = Look(), heads: str | None = None, axes: str | None = None) -> SurveyedHeads:  # noqa: B008
    options = ReportOptions(
        medium=format_of(".png").medium(look), look=look, axes=axes, selection=Selection.parse(heads=heads)
    )
    found = survey_card_report(SURVEY, options)
    assert isinstance(found, SurveyedHeads)
    return found


def test_points_lie_where_the_means_are_and_their_bars_reach_as_far_as_the_intervals() -> None:
    axes = figure(report(axes="previous,sink")).axes[0]
    across, up = (SURVEY.means[:, NAMES.index(name)] for name in ("previous", "sink"))
    np.testing.assert_allclose(np.asarray(axes.collections[-1].get_offsets()), np.stack([across, up], axis=1))
    bars = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    margin = SURVEY.margins[0, NAMES.index("previous")]
    np.testing.assert_allclose(bars[0][:, 0], [across[0] - margin, across[0] + margin])
    assert {text.get_text() for text in axes.texts} == {"0.0", "0.1", "1.0"}


def test_naming_the_points_of_many_heads_takes_memory_for_some_of_their_distances() -> None:
    whole = report(axes="previous,sink")
    count = 2500
    rows = tuple(HeadRow((HeadName(layer, 0),)) for layer in range(count))
    random = np.random.default_rng(0)
    values = random.normal(size=(count, len(whole.frame.measures)))
    values[count // 2] = 50  # far from all others
    frame = HeadFrame(rows=rows, measures=whole.frame.measures, values=values)
    sheet = SurveySheet(replace(whole, frame=frame), fonts_of(whole))
    named = list[str]()
    axes: Any = SimpleNamespace(annotate=lambda name, place, **style: named.append(name))
    tracemalloc.start()
    sheet.name_points(axes, values[:, 0], values[:, 1], np.ones(count, dtype=bool))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert named[0] == f"{count // 2}.0"
    assert len(named) == 12
    assert peak < 8 * count**2  # a single array of all distances


def test_a_card_writes_its_texts_and_frames_the_query() -> None:
    found = report(heads="0.1")
    svg = draw(found, ".svg").decode()
    for example in found.examples[0]:
        for label in found.texts[example.text].labels:
            assert f">{label}</text>" in svg
    assert found.frame.rows[0].pattern in svg


def test_fonts_are_chosen_for_names_of_heads_and_places_of_texts_too() -> None:
    found = report(heads="0.1")
    rows = tuple(replace(row, given_name="\U000e1231") for row in found.frame.rows)
    texts = tuple(replace(text, corpus_position="\U000e1232") for text in found.texts)
    changed = replace(found, frame=replace(found.frame, rows=rows), texts=texts)
    assert fonts_of(changed).missing == {chr(0xE1231), chr(0xE1232)}


def test_a_figure_has_the_size_that_was_asked_for() -> None:
    for one in (
        report(Look(size="800x600", dpi=100), axes="previous,sink"),
        report(Look(size="800x600", dpi=100), "0.1"),
    ):
        assert Image.open(io.BytesIO(draw(one, ".png"))).size == (800, 600)


def test_refuses_axes_that_no_head_has_both_of() -> None:
    found = report(axes="previous,sink")
    nothing = found.frame.values.copy()
    nothing[:, NAMES.index("sink")] = np.nan
    with pytest.raises(AttnvizError, match="no head has both previous and sink"):
        draw(replace(found, frame=replace(found.frame, values=nothing)), ".png")


def test_sizes_of_points_have_a_legend_with_their_numbers() -> None:
    found = report(axes="previous,sink,entropy")
    words = [text.get_text() for text in figure(found).texts]
    numbers = found.frame.column("entropy")
    for number in (np.nanmin(numbers), np.nanmax(numbers)):
        assert f"{number:.2g}" in words


def test_a_picture_names_model_and_corpus() -> None:
    found = report(axes="previous,sink")
    assert found.title == f"{SURVEY.model}: {SURVEY.texts} texts, {SURVEY.tokens} tokens", "its corpus has no name"
