"""Measured text: where a line that is too wide is broken."""

import pytest

from attnviz.render.figure.ruler import Ruler


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("spatial-entropy: nats", ["spatial-", "entropy:", "nats"]),
        ("a spatial-entropy", ["a", "spatial-", "entropy"]),
        ("share of weight", ["share of", "weight"]),
    ],
)
def test_a_word_that_is_too_wide_is_broken_after_its_hyphen(text: str, lines: list[str]) -> None:
    ruler = Ruler(("DejaVu Sans",))
    assert ruler.wrap(text, 9, ruler.width("spatial-en", 9)) == lines


def test_a_word_without_a_hyphen_is_broken_where_the_line_ends() -> None:
    ruler = Ruler(("DejaVu Sans",))
    assert ruler.wrap("entropies", 9, ruler.width("entro", 9)) == ["entro", "pies"]
