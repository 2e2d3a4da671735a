"""Lines of a terminal: what is cut, wrapped and coloured, and bars."""

import io
import math
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.render.terminal.lines import (
    Line,
    Span,
    bar,
    fit,
    nearest_of_256,
    print_lines,
    right_aligned,
    widest_label,
    wrap,
)
from attnviz.report.picture.look import Look

LABELS = ["नमस्ते", "हिन्दी", "தமிழ்", "👋🏽", "❤️", "cat", "शुभ रात्रि"]


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


def columns_of(line: str, mark: str, wide_marks: bool) -> list[int]:
    """Where each mark lands on a terminal that counts vowel signs and shades of skin as columns, or as none."""
    column, found = 1, []
    for escape, character in re.findall(r"\x1b\[(\d+)G|(.)", re.sub(r"\x1b\[[\d;]*m", "", line)):
        if escape:
            column = int(escape)
            continue
        if character == mark:
            found.append(column)
        spare = {"Mc": 1, "Sk": 2}.get(unicodedata.category(character), 0)
        column += (spare if wide_marks else 0) + (0 if spare else cell_len(character))
    return found


@pytest.mark.parametrize("wide_marks", [False, True])
def test_cells_stand_below_each_other_whatever_columns_a_terminal_gives_vowel_signs(wide_marks: bool) -> None:
    width = widest_label(LABELS)
    rows: list[Line] = [
        [Span(f"{right_aligned(label, width)} "), Span("  #", paper=(9, 9, 9)), Span("  #")] for label in LABELS
    ]
    with io.BytesIO() as file:
        print_lines(rows, replace(Look(), moves_cursor=True, colors=256), file)
        lines = file.getvalue().decode().splitlines()
    assert {tuple(columns_of(line, "#", wide_marks)) for line in lines} == {(width + 4, width + 7)}


def test_running_text_is_not_written_over() -> None:
    with io.BytesIO() as file:
        print_lines([[Span("हिन्दी தமிழ் 👋🏽 ❤️ cat")]], replace(Look(), moves_cursor=True, colors=256), file)
        assert file.getvalue().decode() == "हिन्दी தமிழ் 👋🏽 ❤️ cat\n"


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(1, "██████"), (0.5, "███   "), (0.152, "▉     "), (0.02, "▏     "), (0.005, "      "), (0, "      ")],
)
def test_bar_is_as_long_as_the_share_in_eighths(value: float, drawn: str) -> None:
    assert bar(value, 1, 6) == drawn


def test_bar_of_what_is_no_number_or_beyond_the_most_stays_in_its_columns() -> None:
    assert bar(math.nan, 1, 4) == bar(1, 0, 4) == " " * 4
    assert bar(-9, 3, 4) == "█" * 4
