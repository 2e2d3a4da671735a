"""Tables of the terminal: bars of numbers with signs point both ways."""

import math

import pytest

from attnviz.render.terminal.table import bar, summary_lines
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import Summary


def printed(lengths: tuple[float | None, ...], look: Look | None = None) -> list[str]:
    rows = tuple((f"{length}",) for length in lengths)
    table = Summary(header=("n",), rows=rows, bars=tuple((length,) for length in lengths))
    return ["".join(span.text for span in line) for line in summary_lines(table, look or Look())][1:]


def test_a_negative_bar_points_left_and_a_positive_one_right() -> None:
    assert printed((1.0, -0.625, None)) == ["   1.0     ████", "-0.625  ▐██".ljust(15), "  None".ljust(15)]


@pytest.mark.parametrize(("look", "drawn"), [(Look(), "██  "), (Look(ascii=True), "##  ")])
def test_without_negative_numbers_bars_begin_beside_them(look: Look, drawn: str) -> None:
    assert printed((0.5, -0.001), look)[0].endswith(f" {drawn}")


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(1, "██████"), (0.5, "███   "), (0.152, "▉     "), (0.02, "▏     "), (0.005, "      "), (0, "      ")],
)
def test_bar_is_as_long_as_the_share_in_eighths(value: float, drawn: str) -> None:
    assert bar(value, 1, 6) == drawn


def test_bar_of_what_is_no_number_or_beyond_the_most_stays_in_its_columns() -> None:
    assert bar(math.nan, 1, 4) == bar(1, 0, 4) == " " * 4
    assert bar(-9, 3, 4) == "█" * 4
