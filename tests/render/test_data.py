"""Numbers as CSV, JSON and NPZ: exact, whole, and in memory that does not grow with them."""

import csv
import io
import json
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.change import compare
from attnviz.render.data import spreadsheet_text
from attnviz.render.formats import draw, medium_of, write
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, Report
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import HEADS, KEYS, LAYERS, QUERIES, dense_maps
from tests.maps.examples import ComputedMaps

DATA = (".csv", ".json", ".npz")


def report(recording: Recording, table: str | None = None, **selection: str) -> Report:
    options = ReportOptions(selection=Selection.parse(**selection), table=table, medium=medium_of(".csv", Look()))
    return build_report(recording, options)


def csv_rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def npz(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content)) as archive:
        return dict(archive)


def with_labels(*labels: str) -> Recording:
    """A recording of one head over these tokens, each attending to all alike."""
    count = len(labels)
    tokens = replace(Tokens.numbered(count), labels=labels)
    even = np.full((1, count, count), 1 / count, dtype=np.float32)
    maps = DenseMaps(
        layer=0,
        module="m",
        heads=(0,),
        query_tokens=tokens,
        key_tokens=tokens,
        scores=np.zeros_like(even),
        weights=even,
        visible=np.ones((count, count), dtype=bool),
    )
    return Recording(maps=(maps,), model="a test")


def test_csv_has_one_row_for_each_cell_with_its_exact_numbers(causal_recording: Recording) -> None:
    rows = csv_rows(draw(report(causal_recording), ".csv"))
    assert len(rows) == LAYERS * HEADS * QUERIES * KEYS
    for row in rows:
        layer, head, query, key = (int(row[name]) for name in ("layer", "head", "query", "key"))
        maps = causal_recording.maps[layer]
        assert isinstance(maps, DenseMaps)
        assert (row["query_token"], row["key_token"]) == (f"q{query}", f"k{key}")
        assert row["visible"] == ("true" if key <= query else "false")
        if key <= query:
            assert np.float32(row["score"]) == maps.scores[head, query, key]
            assert np.float32(row["weight"]) == maps.weights[head, query, key]
        else:
            assert row["score"] == row["weight"] == ""


def test_json_has_the_exact_numbers_and_null_where_masked(causal_recording: Recording) -> None:
    numbers = json.loads(draw(report(causal_recording), ".json"))
    assert (numbers["format"], numbers["version"]) == ("attnviz numbers", 1)
    names = [f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)]
    assert [head["name"] for head in numbers["heads"]] == names
    for head in numbers["heads"]:
        maps = causal_recording.maps[head["layer"]]
        assert isinstance(maps, DenseMaps)
        for row in head["rows"]:
            query = row["query"]
            assert row["visible"] == maps.visible[query].tolist()
            for name, exact in (("score", maps.scores), ("weight", maps.weights)):
                assert row[name][query + 1 :] == [None] * (KEYS - query - 1)
                given = np.array(row[name][: query + 1], dtype=np.float32)
                np.testing.assert_array_equal(given, exact[head["head"], query, : query + 1])


def test_npz_has_an_array_for_each_field_of_each_head(causal_recording: Recording) -> None:
    arrays = npz(draw(report(causal_recording), ".npz"))
    maps = causal_recording.maps[1]
    assert isinstance(maps, DenseMaps)
    np.testing.assert_array_equal(arrays["1.2.visible"], maps.visible)
    assert arrays["1.2.weight"].dtype == np.float32
    np.testing.assert_array_equal(arrays["1.2.weight"], np.where(maps.visible, maps.weights[2], np.nan))
    np.testing.assert_array_equal(arrays["1.2.score"], np.where(maps.visible, maps.scores[2], np.nan))
    about = json.loads(str(arrays["about"]))
    labels = [f"q{query}" for query in range(QUERIES)]
    assert about["heads"][5]["queries"] == {"first": 0, "tokens": labels, "axis": 2}
    assert about["tokens"][2]["labels"] == labels


def test_only_chosen_heads_queries_and_keys_are_written_with_their_own_indices(recording: Recording) -> None:
    chosen = report(recording, heads="1.2,0.1", queries="1:3", keys="4:")
    rows = csv_rows(draw(chosen, ".csv"))
    cells = [(row["layer"], row["head"], row["query"], row["key"]) for row in rows]
    assert cells == [(*head, q, k) for head in (("1", "2"), ("0", "1")) for q in "12" for k in "456"]
    assert [(row["query_token"], row["key_token"]) for row in rows[:6]] == [
        (f"q{q}", f"k{k}") for q in "12" for k in "456"
    ]
    [first, _] = json.loads(draw(chosen, ".json"))["heads"]
    assert first["keys"] == {"first": 4, "tokens": ["k4", "k5", "k6"]}
    assert [row["query"] for row in first["rows"]] == [1, 2]
    assert npz(draw(chosen, ".npz"))["0.1.score"].shape == (2, 3)


def test_table_of_scores_leaves_weights_out(recording: Recording) -> None:
    header = draw(report(recording, table="scores"), ".csv").decode().split("\n")[0]
    assert header == "layer,head,module,kind,item,query,query_token,key,key_token,visible,score"


def test_long_maps_are_never_pooled() -> None:
    labels = [f"t{number}" for number in range(40)]
    assert len(csv_rows(draw(report(with_labels(*labels)), ".csv"))) == 1600


@pytest.mark.parametrize("suffix", DATA)
def test_same_report_gives_same_bytes(recording: Recording, suffix: str) -> None:
    assert draw(report(recording), suffix) == draw(report(recording), suffix)


def test_archive_carries_no_date(recording: Recording) -> None:
    with zipfile.ZipFile(io.BytesIO(draw(report(recording), ".npz"))) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("token", ["=1+1", "+1", "-2", "@SUM(A1)", "\t1", "\r=1", " =1", "＝1", "'=1"])
def test_token_that_a_spreadsheet_would_run_stays_text(token: str) -> None:
    shielded = spreadsheet_text(token)
    assert shielded == f"'{token}"
    assert csv_rows(draw(report(with_labels("=1", "b")), ".csv"))[0]["query_token"] == "'=1"


@given(st.text(alphabet=st.sampled_from("=+-@'\t\r\n a1,;\"＝é"), max_size=6))
def test_leaving_out_one_leading_apostrophe_gives_every_token_back(token: str) -> None:
    shielded = spreadsheet_text(token)
    assert (shielded[1:] if shielded.startswith("'") else shielded) == token


@given(st.lists(st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()), min_size=1, max_size=4))
def test_any_token_survives_each_format(labels: list[str]) -> None:
    built = report(with_labels(*labels))
    rows = csv_rows(draw(built, ".csv"))[: len(labels)]
    assert [row["key_token"] for row in rows] == [spreadsheet_text(label) for label in labels]
    assert json.loads(draw(built, ".json"))["heads"][0]["keys"]["tokens"] == labels
    about = json.loads(str(npz(draw(built, ".npz"))["about"]))
    assert about["heads"][0]["keys"]["tokens"] == labels


def test_numbers_that_are_not_finite_are_told_from_masked_ones() -> None:
    maps = dense_maps(causal=True)
    scores = maps.scores.copy()
    scores[0, 1, :2] = np.nan, -np.inf
    built = report(Recording(maps=(replace(maps, scores=scores, fidelity=float("nan")),), model="a test"))
    row = csv_rows(draw(built, ".csv"))[KEYS : KEYS + 3]
    assert [cell["score"] for cell in row] == ["nan", "-inf", ""]
    [head, *_] = json.loads(draw(built, ".json"), parse_constant=pytest.fail)["heads"]
    assert head["rows"][1]["score"][:3] == ["NaN", "-Infinity", None]
    assert head["fidelity"] == "NaN"


def test_comparison_gives_a_and_b_their_difference_and_each_heads_change(
    recording: Recording, causal_recording: Recording
) -> None:
    options = ReportOptions(medium=medium_of(".json", Look()))
    built = comparison_report(recording, causal_recording, "--causal", options)
    changes = compare(recording, causal_recording)
    rows = csv_rows(draw(built, ".csv"))
    hidden = rows[1]
    assert (hidden["visible_a"], hidden["visible_b"], hidden["score_b"], hidden["weight_b"]) == (
        "true",
        "false",
        "",
        "",
    )
    assert np.float32(hidden["weight_change"]) == -np.float32(hidden["weight_a"])
    assert float(hidden["variation_mean"]) == changes.column("variation_mean")[0]
    numbers = json.loads(draw(built, ".json"))
    assert numbers["change"] == "--causal"
    assert numbers["heads"][4]["change"]["divergence_max"] == changes.column("divergence_max")[4]
    arrays = npz(draw(built, ".npz"))
    expected = np.where(causal_recording.maps[0].visible, arrays["0.1.weight_b"], 0)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(arrays["0.1.weight_change"], expected - arrays["0.1.weight_a"])


def test_report_without_cells_is_refused() -> None:
    drawn = DrawnReport(kind="maps", title="t", panels=(), caption="c", remarks=())
    with pytest.raises(AttnvizError, match=r"no numbers of cells for \.csv"):
        draw(drawn, ".csv")


class Sink(io.RawIOBase):
    """A file that keeps nothing but how long it is."""

    length = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.length += len(content)
        return len(content)


def peak_of_writing(queries: int, suffix: str) -> tuple[int, int]:
    tokens, keys = Tokens.numbered(queries), Tokens.numbered(100)
    maps = ComputedMaps(layer=0, module="m", heads=(0,), query_tokens=tokens, key_tokens=keys, kind="cross")
    built, sink = report(Recording(maps=(maps,), model="a test")), Sink()
    tracemalloc.start()
    write(built, suffix, sink)  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, sink.length


@pytest.mark.parametrize("suffix", DATA)
def test_ten_times_the_rows_take_no_more_memory(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.report.picture.report.MAX_BLOCK_CELLS", 1000)
    peak_of_writing(30, suffix)  # what is imported and cached once
    few, short = peak_of_writing(30, suffix)
    many, long = peak_of_writing(300, suffix)
    assert long > 6 * short  # an archive also holds the tokens of the 100 keys
    tokens = 40_000 if suffix == ".npz" else 0  # of the further queries, whose description is written at once
    assert many < few + 20_000 + tokens  # bytes: the numbers alone are 270,000 more


def test_documented_columns_are_those_written(recording: Recording) -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    options = ReportOptions(medium=medium_of(".csv", Look()))
    for built in (report(recording), comparison_report(recording, recording, "nothing", options)):
        assert draw(built, ".csv").decode().split("\n")[0] in page.split("\n")
