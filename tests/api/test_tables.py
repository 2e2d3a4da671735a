"""Tables of a recording in memory have the columns and the numbers of the files that the command line writes."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps


def recording() -> attnviz.Recording:
    tokens = tokenize("a b = c a")
    maps = tuple(random_maps(tokens, layer=layer, heads=2, causal=layer == 1) for layer in (0, 1))
    return drawable(Recording(maps=maps, model="drawn"))


def test_cells_are_those_of_the_file() -> None:
    table = recording().cell_table(heads="1.1,0.0", queries="1:3")
    rows = list(csv.DictReader(io.StringIO(attnviz.draw(recording(), ".csv", heads="1.1,0.0", queries="1:3").decode())))
    assert list(table) == list(rows[0])
    assert {len(column) for column in table.values()} == {len(rows)} == {2 * 2 * 5}
    for name in ("layer", "head", "query", "key", "query_token", "key_token"):
        assert [str(value) for value in table[name]] == [row[name].removeprefix("'") for row in rows]
    for name in ("score", "weight"):
        expected = [np.float32(row[name] or "nan") for row in rows]
        np.testing.assert_array_equal(table[name], np.array(expected, np.float32))


def test_heads_are_those_of_the_file(tmp_path: Path) -> None:
    recording().save(tmp_path / "run.safetensors")
    main(["heads", str(tmp_path / "run.safetensors"), "--sort", "entropy", "-o", str(tmp_path / "heads.csv")])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "heads.csv").read_text(encoding="utf-8"))))
    table = recording().head_table(sort="entropy")
    assert list(table) == list(rows[0])
    assert [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)] == [
        f"{row['layer']}.{row['head']}" for row in rows
    ]
    for name in ("entropy", "previous", "sink"):
        np.testing.assert_array_equal(table[name], [float(row[name] or "nan") for row in rows])


@pytest.mark.parametrize(("library", "table"), [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")])
def test_a_library_of_data_frames_takes_the_columns(library: str, table: str) -> None:
    make_table = getattr(pytest.importorskip(library), table)
    weights = np.asarray(make_table(recording().cell_table(heads="0.1"))["weight"])
    assert weights.reshape(5, 5).sum(axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    assert len(np.asarray(make_table(recording().head_table())["pattern"])) == 4


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(AttnvizError, match="head"):
        recording().head_table(haeds="0.1")  # type: ignore[call-arg]


def test_a_table_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 1000)
    with pytest.raises(AttnvizError, match=r"a table of 100 cells would take .* choose fewer with"):
        recording().cell_table()
