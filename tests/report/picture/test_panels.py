"""The numbers of a panel as they are written."""

import re

import attnviz
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import CHANGE, PERCENT, SCORE
from attnviz.text.selection import Selection


def test_cells_leave_the_unit_to_the_legend() -> None:
    assert (PERCENT.cell(0.374), PERCENT.text(0.374)) == ("37", "37%")
    assert CHANGE.cell(-0.12) == "-12"
    assert SCORE.cell(1.23456) == "1.2346"
    assert PERCENT.cell(float("nan")) == "NaN"


def test_numbers_too_large_for_a_cell_are_written_as_powers() -> None:
    assert (SCORE.cell(-1.5e30), SCORE.cell(1_000_000), PERCENT.cell(1e30)) == ("-1.5e+30", "1000000.0000", "1.0e+32")
    assert (CHANGE.cell(2e9), SCORE.cell(float("inf"))) == ("+2.0e+11", "inf")


def test_small_share_is_written_with_digits_enough_to_be_told_from_none() -> None:
    assert [PERCENT.text(share) for share in (0, 0.01, 0.0064, 0.004, 0.00003, 2e-8, 1e-12)] == [
        "0%", "1%", "0.64%", "0.40%", "0.0030%", "0.000002%", "0%"
    ]  # fmt: skip


def test_contributions_have_two_digits_of_the_largest_in_maps_and_all_of_theirs_in_tables() -> None:
    source = open_reader(ModelSettings(model="trained"))
    moved = attnviz.contributions(source.record(Example("one two three one two three"), Selection(), values=True))
    shown = attnviz.draw(moved, ".txt", heads="0.0").decode()
    exact = attnviz.draw(moved, ".txt", heads="0.0", table="weights").decode()
    assert re.search(r" \d+(\.\d)? ", shown.split("\n\n")[1])
    assert not re.search(r"\d\.\d{3}", shown.split("\n\n")[1])
    assert re.search(r"\d\.\d{3}", exact.split("\n\n")[1])


def test_ticks_that_need_many_digits_are_still_percent() -> None:
    labels = [label for _, label in PERCENT.ticks(ColorScale(0.5, 0.5 + 1e-9))]
    assert labels[0] == "50.0%"
    assert len(set(labels)) == len(labels)
