"""Tokens joined on the command line: every view that draws tokens draws units."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from attnviz import draw, load
from attnviz.cli.commands import main
from tests.streams import Streams

TEXT = "Chapter 1. It was late.\nNobody came.\n\nChapter 2. Then it rained."
SHOW = ("show", TEXT, "--set", "num-heads=1")
LINES = ["Chapter 1. It was late.", "Nobody came.", "Chapter 2. Then it rained."]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def rows_of(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("suffix", [".svg", ".html", ".csv", ".json"])
@pytest.mark.parametrize("style", ["heatmap", "arcs", "text"])
def test_every_view_draws_units(style: str, suffix: str) -> None:
    given = () if suffix in (".csv", ".json") else ("--style", style)
    assert main([*SHOW, "--by", "lines", *given, "-o", f"run{suffix}"]) == 0
    assert "Nobody came." in Path(f"run{suffix}").read_text(encoding="utf-8")


def test_terminal_draws_units(shell: Streams) -> None:
    shown = shell.words(*SHOW, "--by", "paragraphs")
    assert "2 queries (rows) over 2 keys" in shown
    assert "Paragraphs: weights are summed over the tokens of a paragraph" in shown


def test_numbers_are_those_of_units() -> None:
    assert main([*SHOW, "--by", "lines", "-o", "lines.csv"]) == 0
    assert main([*SHOW, "-o", "tokens.csv"]) == 0
    joined, single = rows_of("lines.csv"), rows_of("tokens.csv")
    assert list(dict.fromkeys(row["key_token"] for row in joined)) == LINES
    tokens = np.array([float(row["weight"]) for row in single]).reshape(17, 17)
    line = np.repeat([0, 1, 2], [7, 3, 7])  # of each word and mark
    parts = np.eye(3)[line]
    expected = (parts / parts.sum(axis=0)).T @ tokens @ parts
    np.testing.assert_allclose(np.array([float(row["weight"]) for row in joined]).reshape(3, 3), expected, atol=1e-6)


def test_a_name_of_groups_may_be_singular(shell: Streams) -> None:
    shown = []
    for how in (["--by", "words"], ["--by", "word"]):
        shown.append(shell.run(*SHOW, "--set", "tokenizer=char", *how))
    assert len(set(shown)) == 1


def test_comparison_joins_both_sides(shell: Streams) -> None:
    assert "Lines: weights are summed over the tokens of a line" in shell.words(
        "compare", *SHOW[1:], "--causal", "--by", "lines"
    )


def test_texts_of_a_pair_are_units_of_python_too() -> None:
    pair = Path(__file__).parents[1] / "maps" / "data" / "pair.safetensors"
    Path("pair.csv").write_bytes(draw(load(pair), ".csv", by="texts", heads="0.0"))
    units = ["[CLS]", "Is it un able.", "[SEP]", "It is.", "[SEP]"]
    assert [row["key_token"] for row in rows_of("pair.csv")[: len(units)]] == units
