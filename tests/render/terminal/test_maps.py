"""A map of few queries over many keys: its labels, its positions, and the parts of one that is too wide."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.formats import medium_of
from attnviz.render.terminal.draw import report_lines
from attnviz.render.terminal.maps import thumbnails
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps
from tests.metrics.sound_examples import planted_maps


def lines_of(maps: DenseMaps, width: int, **options: Any) -> list[str]:
    """The lines of a drawn map, without the title."""
    look = Look(width=width, colors=0)
    chosen = ReportOptions(look=look, medium=medium_of(".txt", look), **options)
    report = build_report(Recording(maps=(maps,), model="m"), chosen)
    lines = ["".join(span.text for span in line).rstrip() for line in report_lines(report)]
    return lines[2:]


def test_frames_of_a_sound_are_labelled_by_seconds() -> None:
    title, seconds, first_row, *_ = lines_of(planted_maps(heads=1), 60)
    assert title.strip() == "head 0.0"
    margin = first_row.index("<s>") + len("<s> ")
    assert seconds.index("1s") - margin in (16, 17)  # 100 frames of 0.02 s in 34 cells
    assert seconds.split() == ["1s"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_long_labels_are_cut_so_that_pooled_keys_fit_beside_them(width: int) -> None:
    maps = planted_maps(heads=1)
    labels = tuple(label.ljust(30, "!") for label in maps.query_tokens.labels)
    lines = lines_of(replace(maps, query_tokens=replace(maps.query_tokens, labels=labels)), width)
    assert not any("keys 0" in line for line in lines)
    assert sum(line.lstrip().startswith("head 0.0") for line in lines) == 1
    assert max(map(cell_len, lines)) <= width
    assert sum("…" in line[:20] for line in lines) >= len(labels)


@pytest.mark.parametrize(("timed", "ranges"), [(False, ("5:9", "9:12")), (True, ("0.11s:0.19s", "0.19s:0.25s"))])
def test_parts_of_a_wide_table_name_their_keys(timed: bool, ranges: tuple[str, str]) -> None:
    keys = planted_maps().key_tokens.first(12) if timed else Tokens.numbered(12)
    maps = replace(random_maps(Tokens.numbered(3, "query"), keys, heads=1), kind="cross")
    titles = [
        line for line in lines_of(maps, 40, table="weights", selection=Selection(keys=(5, None))) if "keys" in line
    ]
    assert all(any(f"keys {part}" in title for title in titles) for part in ranges), titles


@pytest.mark.parametrize(("colors", "ascii"), [(2**24, False), (256, False), (0, False), (0, True)])
def test_masked_cells_look_unlike_cells_of_zero_which_look_like_paper(colors: int, ascii: bool) -> None:
    """Each query of a causal map puts all of its weight on the first key."""
    count = 12
    weights = np.zeros((20, count, count), dtype=np.float32)
    weights[:, :, 0] = 1
    tokens, visible = Tokens.numbered(count), np.tri(count, dtype=bool)
    maps = replace(random_maps(tokens, tokens, heads=20), scores=weights, weights=weights, visible=visible)
    options = ReportOptions(grouping=Grouping(special=True), look=Look(colors=colors, ascii=ascii, theme="dark"))
    report = build_report(Recording(maps=(maps,), model="a test"), options)
    assert isinstance(report, DrawnReport)
    assert report.kind == "thumbnails"
    lines = list(thumbnails(list(report.panels[:1]), report.look))[1:-1]
    line = lines[3 if len(lines) == count // 2 else 6]  # of queries 6 and 7, or of query 6 alone
    cells = [(sign, span.ink, span.paper) for span in line for sign in span.text]
    weight, zero, masked = cells[0], cells[1], cells[9]
    assert len({weight, zero, masked}) == 3
    assert masked == ("·", None, None)
    paper = (0x16, 0x19, 0x1F)  # of dark figures and pages
    assert zero == (("▀", paper, paper) if colors else (" ", None, None))
