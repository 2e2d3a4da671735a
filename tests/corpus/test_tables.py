"""Tables of a survey: the same rows in every format."""

import csv
import json
import math
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.surveys import TABLES
from attnviz.corpus.sums import bins
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.tables import COLUMNS, SCHEMA_VERSION, WRITERS, save_tables, table_rows
from tests.corpus.surveys import numbers_of, survey_of


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
    assert [entropy[f"decile_{tenth}"] for tenth in range(11)] == list(survey.deciles(2, number))
    place = bins.offset_spans().index((-1, -1))
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
