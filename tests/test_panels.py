"""The numbers of a panel as they are written."""

from attnviz.panels import CHANGE, PERCENT, SCORE


def test_cells_leave_the_unit_to_the_legend() -> None:
    assert (PERCENT.cell(0.374), PERCENT.text(0.374)) == ("37", "37%")
    assert CHANGE.cell(-0.12) == "-12"
    assert SCORE.cell(1.23456) == "1.2346"
    assert PERCENT.cell(float("nan")) == "NaN"
