"""Metrics of a user's own: the numbers of the built-in ones that they repeat, in every engine, or one clear line."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.base.own_file import own_function
from attnviz.corpus.saved import load_survey
from attnviz.metrics import torch_rows
from attnviz.metrics.call_metrics import all_metrics, measure, measure_queries
from attnviz.metrics.measure import Need
from attnviz.metrics.metrics import METRICS
from attnviz.metrics.own_metric import add_metric, metric_of
from attnviz.text.tokens import Tokens
from tests.conftest import dense_maps
from tests.maps.examples import CASES, factored, with_factors
from tests.metrics.examples import maps_of
from tests.streams import Streams

DOCUMENT = Path(__file__).parents[2] / "docs" / "heads.md"
NAMES = ("kurtosis", "evenness", "token_before", "largest_key")
BUILT_IN = {"evenness": "relative-entropy", "token-before": "previous", "largest-key": "sink"}
TEXTS = "the cat sat. the cat sat\na dog ran. a dog ran home\n"


@pytest.fixture(autouse=True)
def without_added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes away what a test adds."""
    monkeypatch.setattr("sys.path", [*sys.path])
    built_in = dict(METRICS)
    yield
    METRICS.clear()
    METRICS.update(built_in)


@pytest.fixture
def mine(in_folder: Path) -> str:
    """The file of metrics in the documents."""
    [source] = re.findall(r'```python\n("""mine.py""".*?)```', DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (in_folder / "mine.py").write_text(source, encoding="utf-8")
    return "mine.py"


@pytest.fixture
def added(mine: str) -> None:
    """The metrics of the documents, added."""
    for name in NAMES:
        add_metric(own_function("metric", f"{mine}:{name}"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["short", "long", "factors"])
def test_three_built_in_metrics_written_as_a_users_have_the_same_numbers(
    added: None, case: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.metrics.row_blocks.is_long", lambda queries, keys: engine != "short")
    monkeypatch.setattr("attnviz.metrics.call_metrics.is_long", lambda queries, keys: engine == "factors")
    monkeypatch.setattr(torch_rows, "MAX_ROWS", 16)
    maps = replace(with_factors(factored(**CASES[case]), device="cpu"), kind="self")
    for numbers in measure(maps):
        assert not np.isnan([numbers.values["previous"], numbers.values["kurtosis"]]).any()
        for own, built_in in BUILT_IN.items():
            assert numbers.values[own] == pytest.approx(numbers.values[built_in], rel=1e-5), own
            assert numbers.counts[own] == numbers.counts[built_in], own


def test_pooled_maps_keep_the_numbers_that_were_measured_at_capture(added: None) -> None:
    metrics = all_metrics(replace(dense_maps(causal=True), kind="self"))
    values = dict(zip(metrics.names, metrics.values.T, strict=True))
    for own, built_in in BUILT_IN.items():
        np.testing.assert_array_equal(values[own], values[built_in], err_msg=own)


@pytest.mark.parametrize("engine", ["short", "long"])
def test_a_metric_reads_the_groups_of_its_own_axis(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.metrics.row_blocks.is_long", lambda queries, keys: engine == "long")
    club = [None, "red", "blue", "red", "blue"]
    weights = np.random.default_rng(0).dirichlet([1.0] * 5, size=(2, 5))

    @add_metric
    def same_club(grid):  # type: ignore[no-untyped-def]
        """weight on nodes of the same club"""
        return (grid.query_numbers("club") >= 0) & (grid.key_numbers("club") == grid.query_numbers("club"))

    recording = attnviz.from_arrays(weights=weights, tokens=attnviz.tokens("abcde", groups={"club": club}))
    same = np.array([[a is not None and a == b for b in club] for a in club])
    expected = (weights * same).sum(-1).mean(-1)
    table = recording.head_table(sort="same-club", all=True)
    np.testing.assert_allclose(table["same-club"], np.sort(expected)[::-1], rtol=1e-6)


def test_kurtosis_of_rows_worked_by_hand(added: None) -> None:
    weights = np.array([[[0.7, 0.1, 0.1, 0.1, 0], [0.5, 0.5, 0, 0, 0]]])
    visible = np.array([[True] * 4 + [False], [True] * 5])
    maps = maps_of(weights, Tokens.numbered(2), visible, key_tokens=Tokens.numbered(5), kind="cross")
    # Deviations 0.45, three times -0.15: 0.010631 / 0.0675² = 2.3333. Twice 0.3, three times -0.2: 0.0042 / 0.06².
    numbers = measure_queries(maps, ("kurtosis",), (0,)).numbers
    np.testing.assert_allclose(numbers[0, 0], [2 + 1 / 3, 1 + 1 / 6], rtol=1e-5)


def test_a_survey_has_the_same_numbers_and_opens_without_the_file(mine: str, shell: Streams) -> None:
    built_in = dict(METRICS)
    Path("texts.txt").write_text(TEXTS, encoding="utf-8")
    metrics = [word for name in NAMES for word in ("--metric", f"{mine}:{name}")]
    shell.run("survey", "texts.txt", "--model", "trained", *metrics, "-o", "all.safetensors")
    for name in METRICS.keys() - built_in:
        del METRICS[name]
    Path(mine).unlink()

    survey = load_survey("all.safetensors")
    column = {metric.name: index for index, metric in enumerate(survey.metrics)}
    for own, name in BUILT_IN.items():
        np.testing.assert_array_equal(survey.tallies.count[:, column[own]], survey.tallies.count[:, column[name]])
        np.testing.assert_allclose(survey.means[:, column[own]], survey.means[:, column[name]], rtol=1e-6)
    assert survey.metrics[column["kurtosis"]].meaning.startswith("kurtosis of the weights of a row")
    table = shell.run("heads", "all.safetensors", "--sort", "kurtosis", "--filter", "kurtosis>1")
    assert re.search(r"head +pattern +kurtosis +evenness", table)
    assert "kurtosis" in shell.run("show", "all.safetensors", "--sort", "kurtosis", "--top", "1")


def test_lists_pictures_pages_and_python_show_a_users_metric_first(mine: str, shell: Streams) -> None:
    line = ("the cat sat. the cat sat", "--model", "trained", "--metric", f"{mine}:kurtosis")
    shown = shell.json("heads", *line, "--sort", "kurtosis", "--top", "2")
    assert shell.run("heads", *line).splitlines()[2].split()[:3] == ["head", "pattern", "kurtosis"]
    best = shown["heads"][0]["values"]["kurtosis"]
    assert f"kurtosis {best:.2f}" in shell.run("show", *line, "--sort", "kurtosis", "--top", "1")
    shell.run("show", *line, "-o", "run.html")
    shell.run("heads", *line, "-o", "atlas.html")
    shell.run("show", *line[:3], "-o", "run.safetensors")
    for page in ("run.html", "atlas.html"):
        assert "kurtosis of the weights of a row" in Path(page).read_text(encoding="utf-8")
    table = attnviz.load("run.safetensors").head_table(sort="kurtosis")
    assert table["kurtosis"][0] == pytest.approx(best, rel=1e-6)


def returning(value: Any, parameter: str = "rows", **defaults: Any) -> Callable[..., Any]:
    """A metric ``odd`` that returns a value, or what it makes of its first argument."""
    words = "".join(f", {name}={default!r}" for name, default in defaults.items())
    space: dict[str, Any] = {"value": value}
    exec(f"def odd({parameter}{words}):\n    return value({parameter}) if callable(value) else value", space)
    function: Callable[..., Any] = space["odd"]
    return function


SHARE = {"unit": "share"}
WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "nothing": (
        returning(None),
        r"odd returned a value of type NoneType; return real numbers of the shape \(heads, queries\) = \(",
    ),
    "one number": (returning(1.0), "odd returned a value of type float; return real numbers"),
    "a number for each cell": (returning(lambda rows: rows.key_weights), r"odd returned an array of float(32|64) of "),
    "complex": (returning(lambda rows: rows.entropy * 1j), "odd returned an array of complex"),
    "a share above 1": (
        returning(lambda rows: rows.entropy * 0 + 1.7, **SHARE),
        "odd returned 1.7, and its unit 'share' goes from 0 to 1; scale it, or declare another unit",
    ),
    "infinite": (returning(lambda rows: rows.entropy / 0), "odd returned inf, and a metric goes from -2097152 to"),
    "a number for each key": (returning(lambda columns: columns.received, "columns"), r"the shape \(heads,\) = \("),
    "numbers for cells": (
        returning(lambda grid: grid.visible * 1.0, "grid"),
        r"odd returned an array of float(32|64) of the shape .*; return True and False for each cell",
    ),
    "groups that no token has": (
        returning(lambda grid: grid.key_numbers("clubs") >= 0, "grid"),
        "the tokens have no numbers 'clubs'; choose ids, words, segments, special",
    ),
    "cells of other keys": (returning(lambda grid: grid.visible[..., 1:], "grid"), "odd returned an array of bool"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("command", ["heads", "survey"])
def test_a_wrong_return_is_one_line_that_names_the_function(
    case: str, command: str, in_folder: Path, shell: Streams
) -> None:
    function, expected = WRONG[case]
    add_metric(function)
    Path("texts.txt").write_text(TEXTS, encoding="utf-8")
    given = ["texts.txt", "-o", "out.safetensors"] if command == "survey" else ["--file", "texts.txt"]
    assert re.search(expected, shell.refused(command, *given, "--model", "trained"))
    assert not Path("out.safetensors").exists()


def test_a_survey_refuses_a_number_that_some_heads_of_a_query_lack(in_folder: Path, shell: Streams) -> None:
    add_metric(returning(lambda rows: rows.where(rows.grid.visible_counts > 0, (rows.peak - 0.5) ** 0.5)))
    Path("texts.txt").write_text(TEXTS, encoding="utf-8")
    line = shell.refused("survey", "texts.txt", "--model", "trained", "-o", "out.safetensors")
    assert "odd is NaN for some heads of a query and a number for others" in line


def test_a_row_of_one_key_may_have_any_number_since_it_does_not_count(in_folder: Path, shell: Streams) -> None:
    add_metric(returning(lambda rows: rows.entropy * 0 + 1 / (rows.grid.visible_counts - 1)))
    [single, *_] = shell.json("heads", "a b c", "--model", "trained")["heads"]
    assert single["values"]["odd"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    Path("texts.txt").write_text("a b c\n", encoding="utf-8")
    shell.run("survey", "texts.txt", "--model", "trained", "-o", "out.safetensors")
    [surveyed, *_] = shell.json("heads", "out.safetensors")["heads"]
    assert surveyed["values"]["odd"] == pytest.approx(single["values"]["odd"])


def test_a_metric_that_would_change_nothing_is_refused(mine: str, shell: Streams) -> None:
    metric = ("--metric", f"{mine}:kurtosis")
    assert "adds a number to sort and filter heads by; add --sort" in shell.refused("show", "a b", *metric)
    Path("texts.txt").write_text(TEXTS, encoding="utf-8")
    shell.run("survey", "texts.txt", "--model", "trained", "-o", "all.safetensors")
    for command in ("show", "heads"):
        assert "give it to attnviz survey" in shell.refused(command, "all.safetensors", *metric)
    assert "no head has the metric 'odd' here: it needs a pair of texts; pooled maps" in shell.refused(
        "heads", "a b", "--model", "trained", "--sort", "odd", *odd_of_pairs()
    )


def test_a_name_that_is_taken_is_refused(mine: str, shell: Streams) -> None:
    Path("other.py").write_text("def kurtosis(rows):\n    pass\n\n\ndef digits(rows):\n    pass\n", encoding="utf-8")
    Path("texts.txt").write_text(TEXTS, encoding="utf-8")
    both = ("--metric", f"{mine}:kurtosis", "--metric", "other.py:kurtosis")
    assert "two metrics are named 'kurtosis'" in shell.refused("heads", "a b", *both)
    line = shell.refused(
        "survey", "texts.txt", "--model", "trained", "--metric", "other.py:digits", "-o", "a.safetensors"
    )
    assert "a survey has a 'digits' already; give your metric another name" in line


def odd_of_pairs() -> tuple[str, ...]:
    Path("odd.py").write_text("def odd(rows, needs='pair'):\n    return rows.peak\n", encoding="utf-8")
    return "--metric", "odd.py:odd"


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (returning(0, "weights"), "the first parameter of odd is weights; name it rows, grid or columns"),
        (returning(0, ""), "the first parameter of odd is missing"),
        (returning(0, units="bits"), "odd has a parameter 'units'; did you mean unit"),
        (returning(0, unit="percent"), 'odd has the unit \'percent\'; choose share, bits, nats, tokens or ""'),
        (returning(0, unit=3), "odd has a parameter 'unit' whose default is no text"),
        (returning(0, needs="selfattention"), "odd needs 'selfattention'; did you mean self-attention"),
        (returning(0, only_seeing="yes"), "whose default is no True or False"),
        (np.sum, "the first parameter of sum is a;"),
        (partial(returning(0)), "a partial has no name, which a metric needs; give a function"),
    ],
)  # fmt: skip
def test_what_declares_no_metric_is_refused(function: Callable[..., Any], match: str) -> None:
    with pytest.raises(AttnvizError, match=match):
        add_metric(function)


def test_a_built_in_name_is_refused_and_an_own_one_may_be_written_again() -> None:
    def entropy(rows: Any) -> Any:
        return rows.entropy

    with pytest.raises(AttnvizError, match="there already is a metric 'entropy'; give your function another name"):
        add_metric(entropy)
    assert add_metric(returning(0)) is not add_metric(returning(1))


def test_a_function_declares_its_metric_by_its_name_its_docstring_and_its_defaults() -> None:
    def far_share(grid: Any, needs: str = "self-attention sequence", smallest_first: bool = True) -> Any:
        """weight on far keys.

        More about it.
        """
        return grid.keys < grid.positions[:, None] - 9

    metric = metric_of(far_share)
    assert (metric.name, metric.header, metric.unit, metric.meaning) == (
        "far-share", "far-share", "share", "weight on far keys",
    )  # fmt: skip
    assert metric.needs == {Need.SELF_ATTENTION, Need.SEQUENCE}
    assert metric.smallest_first
    assert metric.is_own
