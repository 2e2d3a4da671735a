"""The overview: many heads at once as thumbnails, decided in the report and drawn in the terminal."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.formats import TERMINAL, draw, medium_of
from attnviz.render.terminal.draw import report_lines
from attnviz.report.build import build_report
from attnviz.report.build import build_report as full_report
from attnviz.report.film import film_of_recordings
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.maps.heatmaps import MAX_UNCHOSEN_MAPS
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.report.words.captions import part_title
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.report.examples import drawn


def many_heads(layers: int = 2, heads: int = 12, queries: int = 20, keys: int = 30) -> Recording:
    """Each head looks at one key alone: the one of its own number."""
    weights = np.zeros((heads, queries, keys), dtype=np.float32)
    weights[np.arange(heads), :, np.arange(heads)] = 1
    maps = [
        DenseMaps(
            layer=layer,
            module=f"layers.{layer}",
            heads=tuple(range(heads)),
            query_tokens=Tokens.numbered(queries, "q"),
            key_tokens=Tokens.numbered(keys, "k"),
            scores=weights,
            weights=weights,
            visible=np.ones((queries, keys), dtype=bool),
        )
        for layer in range(layers)
    ]
    return Recording(maps=tuple(maps), model="a test")


def test_many_heads_without_a_choice_become_thumbnails_a_row_a_layer() -> None:
    report = build_report(many_heads(), ReportOptions(medium=Medium(thumbnail_cells=10)))
    assert isinstance(report, DrawnReport)
    assert report.kind == "thumbnails"
    assert Counter(panel.group for panel in report.panels) == {"layer 0": 12, "layer 1": 12}
    assert [panel.title for panel in report.panels[11:13]] == ["0.11", "1.0"]
    assert [panel.group for panel in report.panels[11:13]] == ["layer 0", "layer 1"]
    assert report.panels[0].values.shape == (10, 10)


def test_heads_of_two_parts_of_a_model_are_told_apart_in_every_picture() -> None:
    maps = [
        replace(each, layer=0, module=f"{part}.0")
        for part, each in zip(("encoder", "decoder"), many_heads().maps, strict=True)
    ]
    recording = Recording(maps=tuple(maps), model="a test")
    thumbnails = build_report(recording, ReportOptions(medium=Medium(has_lines=False, thumbnail_cells=10)))
    assert any("heads='encoder:0.0'" in line and "layers=0" in line for line in thumbnails.remarks)

    two_heads = ReportOptions(selection=Selection.parse(heads="encoder:0.0,decoder:0.1"))
    overlay = replace(two_heads, look=Look(style="overlay", query="1"))
    assert "encoder:0.0 100%" in draw(build_report(recording, overlay), TERMINAL).decode()
    film = film_of_recordings([recording] * 2, ["a", "b"], replace(two_heads, look=Look(limits="head")))
    assert [panel.heading.head for panel in film.frames[0].panels] == ["head encoder:0.0", "head decoder:0.1"]


def test_chosen_heads_stay_maps_with_labels_however_many() -> None:
    options = ReportOptions(selection=Selection(heads=tuple(range(MAX_UNCHOSEN_MAPS // 2 + 1))))
    assert drawn(build_report(many_heads(), options)).kind == "maps"


def test_few_heads_stay_maps_with_labels(recording: Recording) -> None:
    assert drawn(build_report(recording, ReportOptions())).kind == "maps"


@pytest.mark.parametrize(("suffix", "is_said"), [(".txt", True), (".pptx", False), (".png", False)])
def test_overview_says_how_to_open_one_head_where_a_command_is_typed(suffix: str, is_said: bool) -> None:
    report = drawn(build_report(many_heads(), ReportOptions(medium=medium_of(suffix, Look()))))
    assert ("Use heads='0.0' to open one head, layers=0 for a layer." in report.remarks) == is_said
    overview = report.story[0].report if report.story else report
    assert (part_title(overview) == "24 heads, 0.0 to 1.11") or suffix == ".png"


def test_one_scale_is_shared_by_all_thumbnails() -> None:
    report = drawn(build_report(many_heads(), ReportOptions(medium=Medium(thumbnail_cells=10))))
    assert len({panel.scale for panel in report.panels}) == 1


@pytest.mark.parametrize("width", [20, 40, 79, 80, 107, 108, 120, 200, 300])
@pytest.mark.parametrize("colors", [0, 2**24])
def test_no_line_is_wider_than_the_terminal(width: int, colors: int) -> None:
    look = Look(width=width, colors=colors)
    report = build_report(many_heads(), ReportOptions(medium=medium_of(TERMINAL, look), look=look))
    lengths = [sum(len(span.text) for span in line) for line in report_lines(report)]
    assert max(lengths) <= width


def test_every_head_is_numbered_and_a_layer_starts_a_new_line() -> None:
    look = Look(width=80)
    report = build_report(many_heads(), ReportOptions(medium=Medium(thumbnail_cells=11), look=look))
    lines = draw(report, TERMINAL).decode().splitlines()
    starting = [line for line in lines if line.startswith(("0.", "1.")) and " " in line]
    assert [line.split() for line in starting if "×" not in line and "(" not in line] == [
        [f"{layer}.{head}" for head in range(start, start + 6)] for layer in (0, 1) for start in (0, 6)
    ]


@pytest.mark.parametrize("queries", [4, 20])
def test_sorted_heads_fill_the_lines_of_a_terminal_and_no_number_is_cut(queries: int) -> None:
    look = Look(width=80)
    options = ReportOptions(medium=Medium(thumbnail_cells=11), look=look, sort="first")
    lines = draw(build_report(many_heads(queries=queries, keys=13), options), TERMINAL).decode().splitlines()
    titles = [re.findall(r"\d+\.\d+ · \d\.\d\d", line) for line in lines if " · 0." in line or " · 1." in line]
    assert titles[0][:2] == ["0.0 · 1.00", "1.0 · 1.00"]
    assert sum(map(len, titles)) == 24
    assert {len(line) for line in titles} == {6}, "as many on each line, though layers change"


def test_thumbnail_shows_where_the_head_looks() -> None:
    look = Look(width=200, ascii=True)
    report = build_report(many_heads(queries=5, keys=14), ReportOptions(medium=Medium(thumbnail_cells=16), look=look))
    lines = draw(report, TERMINAL).decode().splitlines()
    row = lines[lines.index(next(line for line in lines if line.startswith("0.0"))) + 1]
    assert [column for column, sign in enumerate(row) if sign == "@"] == [15 * head + head for head in range(12)]


def test_thumbnails_of_another_size_keep_their_columns() -> None:
    recording = many_heads(layers=2)
    [first, second] = recording.maps
    short = many_heads(layers=1, queries=3, keys=4, heads=3).maps[0]
    mixed = replace(recording, maps=(first, second, replace(short, layer=2)))
    look = Look(width=80)
    lines = report_lines(build_report(mixed, ReportOptions(medium=Medium(thumbnail_cells=11), look=look)))
    assert max(sum(len(span.text) for span in line) for line in lines) <= 80


def test_texts_of_a_batch_are_told_apart_and_their_title_is_the_model() -> None:
    recording = many_heads(layers=1)
    batch = replace(recording, maps=tuple(replace(recording.maps[0], item=item) for item in range(2)))
    report = build_report(batch, ReportOptions(medium=Medium(thumbnail_cells=11), look=Look(width=80)))
    lines = draw(report, TERMINAL).decode().splitlines()
    assert lines[0] == "a test"
    assert [line for line in lines if line.startswith("layer")] == ["layer 0, text 0", "layer 0, text 1"]


def test_a_filter_chooses_texts_of_a_batch_for_maps_and_for_means() -> None:
    [maps] = many_heads(layers=1).maps
    queries, keys = len(maps.query_tokens), len(maps.key_tokens)
    batch = many_heads(layers=1)
    batch = replace(
        batch,
        maps=tuple(
            replace(maps, item=item, query_tokens=labelled(queries, name), key_tokens=labelled(keys, name))
            for item, name in enumerate("abc")
        ),
    )
    for texts, names in (("1", "b"), ("0,2", "ac"), ("1-2", "bc")):
        report = full_report(batch, ReportOptions(filter=f"text:{texts}", medium=Medium(fits=None)))
        assert isinstance(report, DrawnReport)
        assert [name for name in "abc" if name in report.title] == list(names)
        alone = replace(batch, maps=tuple(batch.maps["abc".index(name)] for name in names))
        means = drawable(batch).head_table(filter=f"text:{texts} previous>=0")
        for column, values in drawable(alone).head_table(filter="previous>=0").items():
            np.testing.assert_array_equal(means[column], values)
    for refused in (full_report, lambda recording, options: heads_report((recording,), options)):
        with pytest.raises(AttnvizError, match=r"no text 7; there are 0-2 \(counted from 0\)"):
            refused(batch, ReportOptions(filter="text:7"))
    with pytest.raises(AttnvizError, match="leaves none of"):  # means are of all texts
        heads_report((batch,), ReportOptions(filter="-text:1"))


def labelled(count: int, name: str) -> Tokens:
    return replace(Tokens.numbered(count), labels=(name,) * count)
