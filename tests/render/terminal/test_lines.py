"""Lines of a terminal: what is cut, wrapped and coloured."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.render.terminal.lines import fit, nearest_of_256, wrap


def test_both_texts_of_a_label_survive_cutting() -> None:
    assert fit("日本語", 5) == "日本…"
    assert fit("日本語", 4) == "日 …"
    assert fit("ab", 4) == "ab  "


@given(st.text(), st.integers(4, 40))
def test_wrapped_lines_hold_every_visible_character_within_the_width(text: str, width: int) -> None:
    text = " ".join(text.split())
    lines = wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(line) <= width for line in lines)


def test_indexed_colours_are_the_nearest_of_the_table() -> None:
    assert nearest_of_256((255, 0, 0)) == 196
    assert nearest_of_256((8, 8, 8)) == 232
    assert nearest_of_256((95, 135, 175)) == 67
