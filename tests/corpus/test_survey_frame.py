"""The table of a survey's heads, and the changes between two surveys: differences of means and their intervals."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.surveys import TABLES
from attnviz.corpus import sums
from attnviz.corpus import survey_frame as module
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import (
    COLUMNS,
    SCHEMA_VERSION,
    WRITERS,
    chosen_indices,
    save_tables,
    survey_changes,
    survey_frame,
    table_rows,
)
from attnviz.render.formats import draw, format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.report.survey.tables import survey_comparison_report
from attnviz.text.head_name import KnownHead
from attnviz.text.selection import Selection
from tests.corpus.surveys import HEADS, METRICS, numbers_of, survey_of

BEFORE, AFTER = survey_of(numbers_of(40, 1), 0), survey_of(numbers_of(30, 2), 0)
SINK = [metric.name for metric in METRICS].index("sink")


@pytest.mark.parametrize("texts", [1, 3])
def test_patterns_are_found_for_texts_of_the_mean_length(texts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def note_length(means: Any, counts: Any, beside_sink: Any, length: int, sink: str) -> tuple[()]:
        lengths.append(length)
        return ()

    monkeypatch.setattr(module, "find_patterns", note_length)
    survey_frame(survey_of(numbers_of(texts, 0), 0), range(len(HEADS)))  # each text has 7 tokens
    assert lengths == [7] * len(HEADS)


def test_heads_of_two_towers_keep_their_names_and_are_chosen_by_them(tmp_path: Path) -> None:
    towers = (
        KnownHead(0, 0, module="image_blocks.0"),
        KnownHead(0, 0, module="text_blocks.0"),
        KnownHead(1, 0, module="text_blocks.1"),
    )
    saved = tmp_path / "towers.safetensors"
    save_survey(replace(survey_of(numbers_of(2, 0), 0), heads=towers), saved)
    survey = load_survey(saved)
    names = ["image_blocks:0.0", "text_blocks:0.0", "1.0"]
    assert [row.name for row in survey_frame(survey, range(3)).rows] == names
    assert [chosen_indices(survey, Selection.parse(heads=name)) for name in names] == [[0], [1], [2]]
    assert chosen_indices(survey, Selection.parse(heads="1.0,image_blocks:0.0,9.9", layers="0")) == [0]
    with pytest.raises(AttnvizError, match=r"could be 2 heads; write image_blocks:0\.0 or text_blocks:0\.0"):
        chosen_indices(survey, Selection.parse(heads="0.0"))


def test_a_change_is_the_difference_of_means_and_its_variance_the_sum_of_theirs() -> None:
    changes = survey_changes(BEFORE, AFTER, range(3), "sink").changes
    assert sorted(each.name for each in changes) == ["0.0", "0.1", "1.0"]
    one = next(each for each in changes if each.name == "0.1")
    assert one.difference == AFTER.means[1, SINK] - BEFORE.means[1, SINK]
    errors = [survey.spreads[1, SINK] / np.sqrt(survey.tallies.count[1, SINK]) for survey in (BEFORE, AFTER)]
    assert one.margin == pytest.approx(1.96 * np.hypot(*errors), rel=1e-4)
    assert one.clearness == pytest.approx(abs(one.difference) / np.hypot(*errors))


def test_the_clearest_change_comes_first_and_a_survey_does_not_change_from_itself() -> None:
    found = [each.clearness for each in survey_changes(BEFORE, AFTER, range(3)).changes]
    assert found == sorted(found, reverse=True)
    assert {each.clearness for each in survey_changes(BEFORE, BEFORE, range(3)).changes} == {0.0}


def test_other_models_corpora_and_heads_are_said() -> None:
    other = replace(AFTER, model="another", corpus=("b.txt",))
    said = " ".join(survey_changes(BEFORE, other, range(3)).remarks)
    assert "The models differ" in said
    assert "The corpora differ" in said
    assert "differ" not in " ".join(survey_changes(BEFORE, BEFORE, range(3)).remarks)
    with pytest.raises(AttnvizError, match="no head has a metric in both surveys"):
        survey_changes(BEFORE, AFTER, [])


def test_list_numbers_and_picture_say_the_same() -> None:
    listed = survey_comparison_report(BEFORE, AFTER, ReportOptions(medium=format_of(".json").medium(Look())))
    assert isinstance(listed, HeadList)
    content = json.loads(draw(listed, ".json"))
    first = content["changes"][0]
    assert listed.summary.rows[0][:2] == (first["head"], first["metric"])
    assert len(draw(listed, ".csv").decode().splitlines()) == 1 + len(content["changes"])
    options = ReportOptions(sort="sink", medium=format_of(".png").medium(Look()))
    picture = survey_comparison_report(BEFORE, AFTER, options)
    assert isinstance(picture, DrawnReport)
    assert picture.kind == "maps"
    expected = np.float32(AFTER.means[1, SINK] - BEFORE.means[1, SINK])
    assert picture.panels[0].values[0, 1] == expected
    assert np.isnan(picture.panels[0].values[1, 1])
    assert picture.panels[0].title == f"sink, up to ±{np.nanmax(np.abs(AFTER.means - BEFORE.means)[:, SINK]):.2g}"
    assert "after minus before: red is more" in picture.remarks[0]
    page = survey_comparison_report(BEFORE, AFTER, ReportOptions(medium=format_of(".html").medium(Look())))
    content = draw(page, ".html").decode()
    assert f'"name":"{first["head"]}"' in content
    assert first["metric"] in content


@pytest.fixture(scope="module")
def survey() -> Survey:
    return survey_of(numbers_of(30, 0), 0)


def test_a_row_holds_each_number_offset_and_position_of_each_head(survey: Survey) -> None:
    rows = list(table_rows(survey))
    [entropy] = [
        row for row in rows if (row["layer"], row["head"], row["kind"], row["name"]) == (1, 0, "metric", "entropy")
    ]
    number = [metric.name for metric in survey.metrics].index("entropy")
    assert entropy["mean"] == survey.means[2, number]
    assert entropy["margin_95"] == survey.margins[2, number]
    assert [entropy[f"decile_{tenth}"] for tenth in range(11)] == survey.deciles(2, number).tolist()
    place = sums.offset_spans().index((-1, -1))
    [before] = [row for row in rows if row["kind"] == "offset" and row["layer"] == 1 and row["last"] == -1]
    assert before["count"] == survey.tallies.pairs[2, place]
    assert before["mean_score"] == survey.tallies.scores.total[2, place] / survey.tallies.pairs[2, place]
    [third] = [row for row in rows if row["kind"] == "position" and row["layer"] == 1 and row["first"] == 2]
    assert third["mean"] == survey.tallies.entropies.total[2, 2] / survey.tallies.rows[2, 2]


def test_csv_json_and_parquet_hold_the_same_rows(survey: Survey, tmp_path: Path) -> None:
    rows = [{name: row.get(name) for name in COLUMNS} for row in table_rows(survey)]
    for suffix in (".csv", ".json"):
        save_tables(survey, tmp_path / f"a{suffix}")
    value = json.loads((tmp_path / "a.json").read_text())
    assert value["schema"] == SCHEMA_VERSION
    assert [{name: row.get(name) for name in COLUMNS} for row in value["rows"]] == rows
    with (tmp_path / "a.csv").open(newline="") as file:
        read = [
            {name: COLUMNS[name](cell) if cell else None for name, cell in row.items()} for row in csv.DictReader(file)
        ]
    assert read == rows
    best = next(each for each in value["examples"] if (each["layer"], each["metric"]) == (1, "peak"))
    assert best["rank"] == 1
    assert math.isclose(best["value"], survey.examples.values[2, [m.name for m in survey.metrics].index("peak"), 0])
    parquet = pytest.importorskip("pyarrow.parquet")
    save_tables(survey, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == rows
    assert json.loads(table.schema.metadata[b"attnviz.survey"])["texts"] == 30


def test_a_table_is_not_written_over(survey: Survey, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(AttnvizError, match="exists"):
        save_tables(survey, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_the_command_line_names_every_format_of_tables() -> None:
    assert set(TABLES) == set(WRITERS)
