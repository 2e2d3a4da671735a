import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.maps.recording import Recording
from attnviz.render.formats import draw, medium_of
from attnviz.render.terminal.draw import report_lines, table_lines
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, Report, Summary
from attnviz.text.selection import Selection
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps
from tests.render.terminal.examples import HOSTILE
from tests.report.examples import drawn

TRUE, INDEXED = 2**24, 256
WIDTHS = (20, 40, 80, 200)


def report_at(width: int, colors: int = 0, text: str = "Life is short", **options: object) -> DrawnReport:
    look = Look(width=width, colors=colors, ascii=bool(options.pop("ascii", False)))
    causal, heads = bool(options.pop("causal", False)), int(str(options.pop("heads", 2)))
    tokens = tokenize(text)
    recording = Recording(maps=(random_maps(tokens, heads=heads, causal=causal),), model="a model", untrained=True)
    chosen = ReportOptions(look=look, medium=medium_of(".txt", look), **options)  # type: ignore[arg-type]
    return drawn(build_report(recording, chosen))


def text_of(report: Report) -> str:
    return draw(report, ".txt").decode()


def plain(report: Report) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text_of(report)).splitlines()


@pytest.mark.parametrize("colors", [0, TRUE])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", ["Life", "Life is short, eat dessert first", HOSTILE, "so it goes " * 30])
def test_no_line_is_wider_than_the_terminal(width: int, colors: int, text: str) -> None:
    for style in (None, "both"):
        for ascii in (False, True):
            report = report_at(width, colors, text, table=style, ascii=ascii, causal=True)
            assert max(map(cell_len, plain(report))) <= width


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: text.strip()))
def test_no_text_sends_a_control_character_or_breaks_a_line(text: str) -> None:
    drawn = text_of(report_at(60, 0, text))
    assert not any(ord(character) < 32 and character != "\n" for character in drawn)
    assert max(map(cell_len, drawn.splitlines())) <= 60


def test_what_a_head_does_stands_in_a_second_line_where_the_first_is_full() -> None:
    report = report_at(80)
    panels = tuple(replace(panel, heading=replace(panel.heading, note="own token 0.50")) for panel in report.panels)
    lines = plain(replace(report, panels=panels))
    assert lines[2].split() == ["head", "0.0", "head", "0.1"]
    assert lines[3].split() == ["own", "token", "0.50"] * 2


def test_percentages_stand_at_their_query_and_key() -> None:
    report = report_at(80)
    rows = [line.split() for line in plain(report)]
    weights = report.panels[0].values
    for label, row in zip(("Life", "is", "short"), weights, strict=True):
        [line] = [words for words in rows if words and words[0] == label and len(words) == 7]
        assert line[1:4] == [f"{value:.0%}".rstrip("%") for value in row]


def test_masked_cells_are_dots_never_zeros() -> None:
    lines = plain(report_at(80, causal=True))
    [line] = [line.split() for line in lines if line.split()[:1] == ["Life"] and "·" in line]
    assert line == ["Life", "100", "·", "·", "100", "·", "·"]


def test_table_writes_four_decimals_and_leaves_masked_cells_blank_of_numbers() -> None:
    report = report_at(120, causal=True, table="weights", heads=1)
    [line] = [line.split() for line in plain(report) if line.split()[:1] == ["is"]]
    assert line == ["is", f"{report.panels[0].values[1, 0]:.4f}", f"{report.panels[0].values[1, 1]:.4f}", "·"]


def test_table_of_numbers_wider_than_any_cell_has_them_all() -> None:
    tokens = tokenize("Life is short")
    maps = random_maps(tokens, heads=1)
    huge = replace(maps, scores=np.full_like(maps.scores, 1e30))
    look = Look(width=80)
    options = ReportOptions(look=look, medium=medium_of(".txt", look), table="both")
    assert "1.0e+30" in text_of(build_report(Recording(maps=(huge,), model="a"), options))


def test_table_too_wide_goes_on_below_with_every_column_once() -> None:
    report = report_at(40, text="one two three four five six seven eight nine", table="weights", heads=1)
    text = "\n".join(plain(report))
    values = [f"{value:.4f}" for value in report.panels[0].values[0]]
    assert all(value in text for value in values)
    assert "keys 0:" in text


def test_colours_are_those_of_the_scale() -> None:
    report = report_at(80, TRUE, heads=1)
    red, green, blue = report.panels[0].scale.rgb(report.panels[0].values)[2, 1].tolist()
    [line] = [line for line in text_of(report).splitlines() if line.startswith("short")]
    assert re.findall(r"48;2;(\d+);(\d+);(\d+)", line)[1] == (str(red), str(green), str(blue))


def test_many_tokens_are_half_blocks_of_two_queries() -> None:
    report = report_at(80, TRUE, " ".join(f"w{number}" for number in range(50)), heads=1)
    lines = [line for line in plain(report) if "▀" in line]
    assert len(lines) == 25
    assert all(line.count("▀") == 50 for line in lines)
    upper = report.panels[0].scale.rgb(report.panels[0].values)[2, 7].tolist()
    lower = report.panels[0].scale.rgb(report.panels[0].values)[3, 7].tolist()
    spans = [span for line in report_lines(report) for span in line if span.text == "▀"]
    assert (list(spans[57].ink or ()), list(spans[57].paper or ())) == (upper, lower)


def test_half_blocks_leave_masked_cells_without_colour_and_dot_two_of_them() -> None:
    report = report_at(80, TRUE, " ".join(f"w{number}" for number in range(50)), heads=1, causal=True)
    first = next(line for line in plain(report) if "▀" in line)
    assert first.split()[-1] == "▀▄" + 48 * "·"  # query 0 sees key 0, query 1 keys 0 and 1


def test_pooled_map_says_so_and_counts_positions() -> None:
    lines = plain(report_at(60, TRUE, "so it goes " * 60, heads=1))
    assert any("Pooled: 180 x 180 tokens in 45 x 45 cells" in line for line in " ".join(lines).split("\n"))
    assert any(re.fullmatch(r"\s+0\s+\d+.*", line) for line in lines)


@pytest.mark.parametrize("ascii", [False, True])
def test_without_colour_darker_shades_are_larger_weights(ascii: bool) -> None:
    report = report_at(80, 0, " ".join(f"w{number}" for number in range(30)), heads=1, ascii=ascii)
    ramp = " :-=+*#%@" if ascii else " ░▒▓█"
    [line] = [line for line in plain(report) if line.split()[:1] == ["w3"]]
    shades = line.ljust(64)[4:64:2]
    values = report.panels[0].values[3]
    assert ramp.index(shades[int(values.argmax())]) == max(ramp.index(shade) for shade in shades)
    assert ramp.index(shades[int(values.argmin())]) == min(ramp.index(shade) for shade in shades)


def test_escapes_are_those_of_the_colours_and_ascii_has_none() -> None:
    for colors, codes in ((0, set()), (INDEXED, {"48;5;"}), (TRUE, {"48;2;"})):
        text = text_of(report_at(80, colors))
        assert {code for code in ("48;2;", "48;5;") if code in text} == codes
        assert ("\x1b" in text) == bool(colors)
    in_ascii = draw(report_at(80, TRUE, HOSTILE, ascii=True), ".txt")
    assert in_ascii.isascii()
    assert b"\x1b" not in in_ascii


def test_panels_stand_side_by_side_as_the_width_allows() -> None:
    def titles(width: int) -> list[int]:
        lines = plain(report_at(width, heads=8))
        return [line.count("head 0.") for line in lines if re.fullmatch(r"(\s*head 0\.\d)+\s*", line)]

    assert titles(200) == [8]
    assert titles(120) == [4, 4]
    assert titles(40) == [1] * 8


def test_comparison_keeps_its_three_panels_in_one_row() -> None:
    report = replace(report_at(120, TRUE, heads=6), across=3)
    assert [line.count("head 0.") for line in plain(report) if line.lstrip().startswith("head 0.")] == [3, 3]


def test_legend_caption_and_remarks_close_the_picture_in_the_same_bytes_each_time() -> None:
    report = report_at(80, TRUE)
    high = f"{report.panels[0].scale.high:.0%}"
    assert any(line.startswith("0% ") and f" {high}  attention weight" in line for line in plain(report))
    report = report_at(80, causal=True)
    said = " ".join(plain(report))
    assert "Dotted cells are masked" in said
    assert all(words in said for words in (report.caption, *report.remarks))
    assert draw(report, ".txt") == draw(report_at(80, causal=True), ".txt")


def test_only_the_chosen_rows_are_drawn() -> None:
    lines = plain(report_at(80, selection=Selection.parse(queries="1:2")))
    assert [line.split()[0] for line in lines if re.match(r"\s*(Life|is|short) +\d", line)] == ["is"]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("The nurse thanked the pilot because she had landed the plane safely", ["The", "nurse", "than…"]),
        ("unbelievable tokenization", ["unbelievable", "tokenization"]),
    ],
)
def test_labels_stand_upright_and_cells_widen_before_they_are_cut(text: str, labels: list[str]) -> None:
    assert plain(report_at(80, 0, text, heads=1))[3].split()[:3] == labels


def test_heading_of_a_single_token_has_its_number() -> None:
    assert re.findall(r"head (\S+)", plain(report_at(80, 0, "Life", heads=4))[2]) == ["0.0", "0.1", "0.2", "0.3"]


@pytest.mark.parametrize(
    ("lengths", "look", "cells"),
    [
        ((1.0, -0.625, None), Look(), ["   1.0     ████", "-0.625  ▐██".ljust(15), "  None".ljust(15)]),
        ((0.5, -0.001), Look(), ["   0.5 ██  ", "-0.001     "]),
        ((0.5, -0.001), Look(ascii=True), ["   0.5 ##  ", "-0.001     "]),
    ],
)
def test_negative_bars_of_a_table_point_left_and_without_them_bars_begin_beside_numbers(
    lengths: tuple[float | None, ...], look: Look, cells: list[str]
) -> None:
    rows = tuple((f"{length}",) for length in lengths)
    table = Summary(header=("n",), rows=rows, bars=tuple((length,) for length in lengths))
    assert ["".join(span.text for span in line) for line in table_lines(table, look)][1:-1] == cells
