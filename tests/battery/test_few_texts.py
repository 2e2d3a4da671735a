"""Student's t, whose quantiles are printed in every table."""

import pytest

from attnviz.battery.few_texts import students_t


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (11, 2.2010), (30, 2.0423), (199, 1.9720)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert students_t(freedom) == pytest.approx(expected, abs=1e-4)
