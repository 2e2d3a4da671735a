import math

import pytest

from attnviz.render.terminal.bars import bar


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(1, "██████"), (0.5, "███   "), (0.152, "▉     "), (0.02, "▏     "), (0.005, "      "), (0, "      ")],
)
def test_bar_is_as_long_as_the_share_in_eighths(value: float, drawn: str) -> None:
    assert bar(value, 1, 6) == drawn


def test_bar_of_what_is_no_number_or_beyond_the_most_stays_in_its_columns() -> None:
    assert bar(math.nan, 1, 4) == bar(1, 0, 4) == " " * 4
    assert bar(-9, 3, 4) == "█" * 4
