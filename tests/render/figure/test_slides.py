"""Decks: a title, a slide for each head, everything said in words too, and nothing that changes from run to run."""

import io
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pptx import Presentation
from pptx.enum.dml import MSO_THEME_COLOR
from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.util import Inches

import attnviz
from attnviz.base.errors import AttnvizError, option
from attnviz.cli.commands import main
from attnviz.cli.decoding import film_options
from attnviz.cli.options import Output
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.media.text import Text
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.render.figure.slides import _picture_dpi
from attnviz.render.formats import draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import QUERIES, dense, random_maps
from tests.patience import PATIENCE
from tests.report.examples import report_of
from tests.report.image_examples import image_recording, tokens_of_image, words_and_images_recording

pytestmark = pytest.mark.slow

PICTURE = 13  # python-pptx's number of this kind of shape


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures with few pixels, which are drawn in a moment."""
    monkeypatch.setattr("attnviz.render.figure.slides.SLIDE_DPI", 40)


def deck(recording: Recording, **options: Any) -> bytes:
    drawn: bytes = attnviz.draw(recording, ".pptx", dpi=40, **options)
    return drawn


@pytest.mark.parametrize(("dpi", "on_slides", "in_films"), [(None, 40, 100), (200, 200, 200), (50, 50, 50)])
def test_a_resolution_that_the_user_chose_is_kept_even_if_it_is_the_default_of_figures(
    dpi: int | None, on_slides: int, in_films: int
) -> None:
    look = Look(dpi=dpi)
    assert _picture_dpi(look) == on_slides
    assert film_options(ReportOptions(look=look), Output(Path("film.gif"))).look.dpi == in_films


def slides(content: bytes) -> list[Any]:
    return list(Presentation(io.BytesIO(content)).slides)


def pictures(slide: Any) -> list[Any]:
    return [shape for shape in slide.shapes if shape.shape_type == PICTURE]


def notes_of(slide: Any) -> str:
    return str(slide.notes_slide.notes_text_frame.text)


def heads_named(slides: list[Any]) -> list[str]:
    """The head that each title names."""
    titles = (slide.shapes.title.text for slide in slides)
    return [found[1] for found in (re.search(r"[Hh]ead (\d+\.\d+)", title) for title in titles) if found]


def texts(slide: Any) -> str:
    return "\n".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame)


def test_deck_has_a_title_slide_and_one_for_each_chosen_head(recording: Recording) -> None:
    title, *heads = slides(deck(recording, heads="1.2,0.1", title="My talk"))
    assert title.shapes.title.text == "My talk"
    assert "Model: a test" in texts(title)
    assert "2 heads of layers 0-1" in texts(title)
    for slide, (layer, head) in zip(heads, ((1, 2), (0, 1)), strict=True):
        weights = dense(recording, layer).weights[head]
        query, key = np.unravel_index(weights.argmax(), weights.shape)
        largest = f"{weights.max():.0%}, from “q{query}” to “k{key}”"
        assert slide.shapes.title.text == f"Head {layer}.{head} has its largest weight, {largest}"
    assert [len(pictures(slide)) for slide in heads] == [1, 1]


def test_deck_tells_the_notes_in_their_order(recording: Recording, tmp_path: Path) -> None:
    file, long = tmp_path / "notes.txt", "A note that is too long for a heading " * 8
    file.write_text(f"#head=1.2&query=1&key=2 Look here.\n#head=0.1 {long}\n#head=1.2 And back.\n")
    _, *told = slides(deck(recording, notes=str(file)))
    assert [slide.shapes.title.text for slide in told] == ["Look here.", "Head 0.1", "And back."]
    assert "Head 1.2." in texts(told[0])
    assert long.strip() in texts(told[1])
    assert [len(pictures(slide)) for slide in told] == [1, 1, 1]
    assert told[0].notes_slide.notes_text_frame.text.startswith("Look here.")


def recording_of(layers: int, heads: int, is_picture: bool) -> Recording:
    tokens = tokens_of_image() if is_picture else Tokens.numbered(7)
    maps = (random_maps(tokens, layer=layer, heads=heads, seed=layer, peak=2) for layer in range(layers))
    return Recording(maps=tuple(maps), model="a test")


@pytest.mark.parametrize("is_picture", [False, True], ids=["text", "picture"])
@pytest.mark.parametrize(
    ("layers", "heads", "options", "all_heads", "single"),
    [
        (1, 1, {}, "", ["0.0"]),
        (1, 4, {}, "looks at in 4 heads", ["0.0", "0.1", "0.2", "0.3"]),
        (3, 4, {}, "looks at in 12 heads", 6),
        (6, 6, {}, "looks at in 36 heads", 6),
        (6, 6, {"query": "@1", "style": "text"}, "looks at in", 6),
        (12, 6, {}, "looks at in 72 heads", 6),
        (12, 6, {"heads": "0.1,3.2,0.0"}, "", ["0.1", "3.2", "0.0"]),
        (12, 6, {"sort": "entropy", "top": 7}, "", 7),
        (2, 9, {"all": True}, "looks at in 18 heads", 18),
    ],
    ids=["1", "4", "12", "36", "36 of a query", "72", "chosen", "top", "all"],
)
def test_a_deck_has_one_slide_of_all_heads_and_at_most_six_of_one_head_unless_more_are_asked_for(
    layers: int, heads: int, options: dict[str, Any], all_heads: str, single: int | list[str], is_picture: bool
) -> None:
    recording = recording_of(layers, heads, is_picture)
    title, *shown = slides(deck(recording, **options))
    count = layers * heads
    if all_heads:
        overview, *shown = shown
        assert all_heads in overview.shapes.title.text
    names = heads_named(shown)
    assert len(names) == len(shown)
    assert (names if isinstance(single, list) else len(names)) == single
    assert len(set(names)) == len(names)
    if is_picture and count > 18 and not options:
        all_maps = [maps for maps in recording.maps if isinstance(maps, DenseMaps)]
        rows = {f"{maps.layer}.{head}": maps.weights[head, 0, 1:] for maps in all_maps for head in range(heads)}
        assert names[0] == max(rows, key=lambda name: float(rows[name].max())), "that with the largest weight first"
        assert len({int(rows[name].argmax()) for name in names}) == 6, "of each of the six patches a head"
        # The patches are 30 of 120 pixels wide, so that the third one is still in the middle third.
        patches = [
            f"the {height} {side} (r{row}c{column})"
            for row, height in enumerate(("upper", "lower"))
            for column, side in enumerate(("left", "middle", "middle"))
        ]
        parts = [patches[rows[name].argmax()].split(" (")[0] for name in names]
        assert len(set(parts[:4])) == 4, "the first ones of different parts of the picture"
        for name, slide in zip(names, shown, strict=True):
            said = f"“[CLS]” looks most at {patches[rows[name].argmax()]}: {rows[name].max():.0%}"
            assert slide.shapes.title.text == f"In head {name}, {said}"
    is_cut = all_heads != "" and len(names) < count
    assert (f"6 of the {count} heads have slides of their own" in texts(title)) == is_cut
    assert (f"all=True gives every head a slide, heads='{names[0]}" in notes_of(title)) == is_cut


def test_the_slides_of_several_pictures_are_of_heads_that_look_at_different_patches() -> None:
    tokens = tokens_of_image()
    places = [(item, layer) for item in range(2) for layer in range(4)]
    maps = (
        replace(random_maps(tokens, layer=layer, seed=10 * item + layer, peak=2), item=item) for item, layer in places
    )
    recording = Recording(maps=tuple(maps), model="a test")
    _, _, *shown = slides(deck(recording))
    names = [re.search(r"[Hh]ead (\d)\.(\d), picture (\d)", slide.shapes.title.text) for slide in shown]
    patches = set()
    for name in names:
        assert name is not None
        layer, head, item = map(int, name.groups())
        head_maps = next(maps for maps in recording.maps if (maps.item, maps.layer) == (item, layer))
        assert isinstance(head_maps, DenseMaps)
        patches.add(int(head_maps.weights[head, 0, 1:].argmax()))
    assert len(patches) == len(names) == 6
    few_heads = tuple(replace(random_maps(tokens, seed=item, peak=2), item=item) for item in range(4))
    _, _, *shown = slides(deck(Recording(maps=few_heads, model="a test")))
    assert set(heads_named(shown[:3])) == {"0.0", "0.1", "0.2"}


def test_of_a_causal_text_without_clear_heads_a_deck_shows_what_the_last_token_looks_at() -> None:
    maps = tuple(random_maps(Tokens.numbered(9), layer=layer, heads=4, seed=layer, causal=True) for layer in range(2))
    _, overview, *single = slides(deck(Recording(maps=maps, model="a test")))
    assert overview.shapes.title.text == "What “8” looks at in 8 heads"
    assert len(single) == 6
    for slide in single:
        assert "“8” looks most at" in slide.shapes.title.text


def test_the_title_of_words_and_pictures_names_the_key_with_the_largest_weight() -> None:
    recording = words_and_images_recording()
    weights = dense(recording, 0).weights[:, -1]
    tokens = recording.maps[0].key_tokens
    _, _, *single = slides(deck(recording))
    for slide in single:
        [head] = map(int, re.findall(r"head 0\.(\d)", slide.shapes.title.text))
        key = int(weights[head].argmax())
        name = f"({tokens.labels[key]})" if tokens.in_image[key] else f"“{tokens.labels[key]}”"
        assert slide.shapes.title.text.endswith(f"{name}: {weights[head].max():.0%}")
        assert slide.shapes.title.text.startswith(f"In head 0.{head}, “red” looks most at ")


def test_the_first_heads_of_a_deck_are_those_that_a_terminal_draws() -> None:
    of_text = recording_of(3, 4, is_picture=False)
    last_layer = of_text.maps[2]
    assert isinstance(last_layer, DenseMaps)
    weights = last_layer.weights.copy()
    weights[1] = np.eye(7, k=-1) + np.eye(7)[0][:, None] * np.eye(7)[0]  # head 2.1 looks at the previous token
    of_text = replace(of_text, maps=(*of_text.maps[:2], replace(last_layer, weights=weights)))
    screen = Medium(fits=lambda report: isinstance(report, DrawnReport) and len(report.panels) <= 3, max_cells=64)
    terminal = build_report(of_text, ReportOptions(medium=screen))
    assert isinstance(terminal, DrawnReport)
    drawn = [panel.heading.name for panel in terminal.panels]
    assert drawn[0] == "2.1"
    _, _, *single = slides(deck(of_text))
    assert heads_named(single)[: len(drawn)] == drawn


def test_accuracy_is_said_in_notes_and_the_query_and_the_line_on_every_slide_over_an_image() -> None:
    of_image = image_recording()
    checked = replace(of_image, maps=tuple(replace(maps, fidelity=1e-6) for maps in of_image.maps))
    title, *heads = slides(deck(checked, query="r0c1", title="My talk"))
    assert "Checked" not in texts(title)
    assert "Checked: weights @ values" in notes_of(title)
    for slide in heads:
        assert "Checked" not in texts(slide)
        assert "Checked: weights @ values" in notes_of(slide)
        assert "The line encloses the fewest patches" in texts(slide)
        assert "Model: a ViT. Colours show what the patch at the upper middle (r0c1) looks at" in texts(slide)
        assert "photo.png" not in texts(slide)


def test_a_slide_and_its_notes_name_no_option() -> None:
    report = report_of(replace(image_recording(), advice=("Give tokens=[a, b].",)))
    report = replace(report, remarks=(f"Nearly even; {option('all')} draws each.", *report.remarks))
    for slide in slides(draw(report, ".pptx")):
        assert "Nearly even" in texts(slide)
        for advice in ("all draws each.", "Give tokens=[a, b]."):
            assert advice not in texts(slide) + notes_of(slide)


@pytest.mark.parametrize(
    ("keys", "said"),
    [(7, ""), (20, "The colours end at 40%, 8 times an even share of the weight.")],
    ids=["to 100%", "to 40%"],
)
def test_a_slide_says_that_its_colours_end_above_the_largest_weight(keys: int, said: str) -> None:
    maps = random_maps(Tokens.numbered(5, "q"), Tokens.numbered(keys, "k"), heads=1, peak=0.3)
    [_, slide] = slides(deck(Recording(maps=(maps,), model="a test")))
    assert "The colours end at" in texts(slide) if said else "The colours" not in texts(slide)
    assert said in texts(slide)


def test_title_slide_carries_the_text_where_the_heading_cuts_it(recording: Recording) -> None:
    for words, shown in (("word " * 41, "word " * 40 + "word”"), ("word " * 300, "word " * 48 + "…”")):
        tokens = replace(Tokens.numbered(QUERIES, "q"), media=(Text(words),))
        maps = tuple(replace(maps, query_tokens=tokens) for maps in recording.maps)
        [title, _] = slides(deck(Recording(maps=maps, model="a test"), heads="0.0"))
        assert f"“{shown}" in texts(title)


@pytest.mark.parametrize(
    ("look", "size", "paper"),
    [({}, (13.333, 7.5), "FFFFFF"), ({"size": "4:3", "theme": "dark"}, (10, 7.5), "16191F")],
)
def test_deck_has_its_size_and_theme_and_everything_on_a_slide_stands_within_it(
    causal_recording: Recording, look: dict[str, Any], size: tuple[float, float], paper: str
) -> None:
    opened: Any = Presentation(io.BytesIO(deck(causal_recording, heads="0.0,0.1", title="long " * 60, **look)))
    assert (opened.slide_width, opened.slide_height) == tuple(map(Inches, size))
    theme = opened.slide_master.part.part_related_by(RELATIONSHIP_TYPE.THEME).blob.decode()
    assert f'<a:lt1><a:srgbClr val="{paper}"/></a:lt1>' in theme
    for slide in opened.slides:
        assert slide.follow_master_background
        assert "srgbClr" not in slide.part.blob.decode(), "colours are the theme's, so that other decks give theirs"
        for shape in slide.shapes:
            assert min(shape.left, shape.top) >= 0
            assert shape.left + shape.width <= opened.slide_width + 2
            assert shape.top + shape.height <= opened.slide_height + 2


def test_caption_is_alternative_text_and_in_the_notes(recording: Recording) -> None:
    [_, slide] = slides(deck(recording, heads="1.2", queries="1:"))
    [picture] = pictures(slide)
    said = picture._element.nvPicPr.cNvPr.get("descr")
    assert said.startswith("Head 1.2: 4 queries (rows) over 7 keys (columns); the largest weight is")
    notes = slide.notes_slide.notes_text_frame.text
    assert notes.startswith(said)
    assert "ttention of head 1.2 in a test" in notes


def test_picture_has_300_dots_an_inch(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.render.figure.slides.SLIDE_DPI", 300)
    [_, slide] = slides(attnviz.draw(recording, ".pptx", heads="1.2"))
    [picture] = pictures(slide)
    assert picture.image.size[0] / (picture.width / Inches(1)) == pytest.approx(300, abs=1)
    assert picture.image.ext == "png"


def test_remarks_stand_on_the_slide_in_letters_that_can_be_read(
    causal_recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained = Recording(maps=causal_recording.maps, model="seeded", untrained=True, seed=3)
    [_, slide] = slides(deck(untrained, heads="0.0"))
    assert "Hatched cells are masked" in texts(slide)
    assert "Untrained: random weights from seed 3" in texts(slide)
    for shape in slide.shapes:
        if shape.has_text_frame:
            assert all(run.font.size.pt >= 14 for paragraph in shape.text_frame.paragraphs for run in paragraph.runs)


@pytest.mark.parametrize(
    ("options", "headings", "said"),
    [
        (
            {"per_slide": 4},
            ["What each token looks at in 6 heads", "Heads 0.0, 0.1, 0.2, 1.0", "Heads 1.1, 1.2"],
            "Heads 0.0, 0.1, 0.2, 1.0, 1.1, 1.2",
        ),
        ({"heads": "1.2,0.1", "style": "text", "per_slide": 2}, ["Heads 1.2, 0.1"], "Heads 1.2, 0.1"),
        (
            {"heads": "1.2,0.1", "style": "arcs"},
            [
                "Head 1.2 has its largest weight, 38%, from “q1” to “k3”",
                "Head 0.1 has its largest weight, 52%, from “q3” to “k6”",
            ],
            "Head 1.2: 5 queries (left) over 7 keys (right)",
        ),
        ({"heads": "1.2", "style": "text"}, None, "Head 1.2: “q4” (4) attends to; the largest"),
    ],
    ids=["four on a slide", "two texts", "arcs", "text"],
)
def test_each_slide_has_a_picture_of_its_heads_which_is_said_in_words(
    recording: Recording, options: dict[str, Any], headings: list[str] | None, said: str
) -> None:
    [_, *heads] = slides(deck(recording, **options))
    assert headings in (None, [slide.shapes.title.text for slide in heads])
    assert [len(pictures(slide)) for slide in heads] == [1] * len(heads)
    assert pictures(heads[0])[0]._element.nvPicPr.cNvPr.get("descr").startswith(said)


def test_slides_of_a_batch_are_of_different_heads_and_show_what_a_word_looks_at_in_each_text() -> None:
    tokens = Tokens.numbered(7)
    maps = [
        replace(random_maps(tokens, layer=layer, heads=6, seed=layer), item=item)
        for layer in range(3)
        for item in (0, 1)
    ]
    recording = Recording(maps=tuple(maps), model="a test")
    title, overview, *single = slides(deck(recording))
    assert overview.shapes.title.text == "What each token looks at in 18 heads for 2 texts"
    assert "6 of the 18 heads have slides of their own, for one text each." in texts(title)
    assert len({tuple(re.findall(r"Head (\d\.\d), text \d", slide.shapes.title.text)) for slide in single}) == 6
    _, first, second, *_ = slides(deck(recording, query="@1"))
    label = tokens.labels[1]
    assert [slide.shapes.title.text for slide in (first, second)] == [
        f"What “{label}” (1) looks at in each of 18 heads, text {item}" for item in (0, 1)
    ]


def test_comparison_keeps_a_b_and_their_difference_on_one_slide(
    recording: Recording, causal_recording: Recording
) -> None:
    options = ReportOptions(
        selection=Selection.parse(heads="0,1", layers="0"), medium=medium_of(".pptx", Look()), look=Look(dpi=40)
    )
    report = comparison_report(recording, causal_recording, "--causal", options)
    title, *heads, last = slides(draw(report, ".pptx"))
    assert heads_named(heads) == ["0.0", "0.1"]
    alternative = pictures(heads[0])[0]._element.nvPicPr.cNvPr.get("descr")
    assert alternative.startswith("Head 0.0: without --causal, with --causal, with − without: 5 queries")
    assert [("Total variation" in texts(slide)) for slide in (title, *heads)] == [True, False, False]
    [table] = [shape.table for shape in last.shapes if shape.has_table]
    assert report.summary is not None
    assert tuple(cell.text for cell in table.rows[2].cells) == report.summary.rows[1]
    inks = [table.cell(row, 0).text_frame.paragraphs[0].font.color.theme_color for row in (0, 1)]
    assert inks == [MSO_THEME_COLOR.TEXT_2, MSO_THEME_COLOR.TEXT_1]


def test_comparison_of_many_heads_has_the_change_of_all_on_a_slide_and_those_that_change_most_on_their_own() -> None:
    before = recording_of(3, 4, is_picture=False)
    after = replace(before, maps=(*before.maps[:2], random_maps(Tokens.numbered(7), layer=2, heads=4, seed=9, peak=2)))
    report = comparison_report(before, after, "a change", ReportOptions(medium=medium_of(".pptx", Look())))
    assert isinstance(report, DrawnReport)
    overview, *single = report.story
    assert (overview.text, overview.report.kind) == ("Where 12 heads look more (red) and less (blue)", "thumbnails")
    assert len(overview.report.panels) == 12
    moved = 0.5 * np.abs(dense(after, 2).weights - dense(before, 2).weights).sum(axis=-1).mean(axis=-1)
    expected = [
        f"In head 2.{head}, {moved[head]:.0%} of a query’s weight moves to other keys" for head in np.argsort(-moved)
    ]
    assert [chapter.text for chapter in single][:4] == expected
    assert len(single) == 6
    assert report.summary is not None
    assert [row[0].split()[0] for row in report.summary.rows][:4] == [f"2.{head}" for head in np.argsort(-moved)]


def test_remarks_are_left_out_whole_where_not_all_fit(causal_recording: Recording) -> None:
    long = replace(causal_recording, remarks=("A remark that goes on. " * 40, "A short one."))
    [title, slide] = slides(deck(long, heads="0.0"))
    for each in (title, slide):
        assert "A remark that goes on." in notes_of(each)
        assert "A remark that goes on." not in texts(each)
    assert "A short one." in texts(slide)
    assert "Hatched cells are masked" in texts(slide)
    assert "…" not in texts(title) + texts(slide)


def test_a_slide_of_one_head_has_a_true_sentence_as_its_title(recording: Recording) -> None:
    trained = open_reader(ModelSettings(model="trained")).record(Example("one two one two"), Selection())
    _, overview, *single = slides(deck(trained))
    assert [slide.shapes.title.text for slide in (overview, *single)] == [
        "What each token looks at in 4 heads",
        "Head 0.0 puts 100% of its weight on the previous token",
        "Beside special tokens, head 0.1 has its largest weight, 39%, from “one” (3) to “two” (2)",
        "Head 1.0 looks from repeated tokens to what followed them before: 100%",
        "Head 1.1 looks from repeated tokens to what followed them before: 100%",
    ]
    weights = dense(recording, 1).weights[2, 3]
    [_, row] = slides(deck(recording, heads="1.2", query="@3", style="text"))
    assert row.shapes.title.text == f"In head 1.2, “q3” looks most at “k{weights.argmax()}”: {weights.max():.0%}"
    [_, rest] = slides(deck(trained, heads="1.1", query="one", style="text"))
    assert rest.shapes.title.text == "In head 1.1, “one” looks most at “two” (2): 100%"


def test_maps_of_layers_by_heads_have_what_they_say_first_as_their_heading(tmp_path: Path) -> None:
    path = tmp_path / "heads.pptx"
    assert main(["heads", "the cat sat. the cat sat", "--model", "trained", "-o", str(path)]) == 0
    _, atlas = slides(path.read_bytes())
    assert atlas.shapes.title.text.startswith(
        "Metrics of 4 heads in the trained model; the clearest: induction 1.1 (1.00)"
    )


def test_what_a_word_looks_at_in_many_heads_is_a_slide_with_a_row_for_each() -> None:
    of_text = recording_of(6, 6, is_picture=False)
    options = ReportOptions(look=Look(query="@5"), medium=medium_of(".pptx", Look()))
    report = build_report(of_text, options)
    assert isinstance(report, DrawnReport)
    overview, *single = report.story
    assert overview.text.endswith("looks at in each of 36 heads")
    assert [panel.rows.labels for panel in overview.report.panels] == [
        tuple(f"{layer}.{head}" for layer in layers for head in range(6)) for layers in (range(3), range(3, 6))
    ]
    rows = np.concatenate([panel.values for panel in overview.report.panels])
    np.testing.assert_allclose(rows, np.concatenate([dense(of_text, layer).weights[:, 5] for layer in range(6)]))
    assert len(single) == 6


def test_same_recording_gives_same_bytes_without_a_date(recording: Recording) -> None:
    content = deck(recording, heads="0.0")
    assert content == deck(recording, heads="0.0")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert b"1980-01-01T00:00:00Z" in archive.read("docProps/core.xml")


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("</a:t><script>", "</a:t><script>"),
        ("a\x1b[31m\tb\vc", r"a\x1b[31m b c"),
        ("&amp; $x$ שלום 😀", "&amp; $x$ שלום 😀"),
    ],
)
def test_hostile_title_is_text(recording: Recording, title: str, expected: str) -> None:
    [first, _] = slides(deck(recording, heads="0.0", title=title))
    assert first.shapes.title.text == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_slide": 0}, "per_slide 0 is out of range; give 1 to 64"),
        ({"size": "60x40"}, "a slide of 60 x 40 inches is too large"),
        ({"size": "column"}, "size='column' is only a width, and slides need a height; use 16:9"),
    ],
)
def test_deck_that_cannot_be_is_refused(recording: Recording, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        deck(recording, **options)


def test_more_slides_than_anyone_shows_are_refused(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.render.figure.slides.MAX_SLIDES", 5)
    with pytest.raises(AttnvizError, match=r"7 slides are more than \d; choose heads with heads='3\.2,4\.5'"):
        deck(recording)


def test_missing_library_is_said(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pptx", None)
    with pytest.raises(AttnvizError, match=r"run pip install -c constraints.txt '\.\[slides\]'"):
        deck(recording, heads="0.0")


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_opens_the_deck_and_finds_every_slide(causal_recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "deck.pptx"
    path.write_bytes(deck(causal_recording, heads="0.0,1.2"))
    home = f"-env:UserInstallation=file://{tmp_path}/office"
    command = ["soffice", home, "--headless", "--convert-to", "pdf", "--outdir", str(tmp_path), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    content = (tmp_path / "deck.pdf").read_bytes()
    assert content.count(b"/Type/Page/") + content.count(b"/Type/Page\n") + content.count(b"/Type /Page\n") == 3


def test_picture_is_drawn_as_shapes_wherever_a_program_shows_svg(recording: Recording) -> None:
    with zipfile.ZipFile(io.BytesIO(deck(recording, heads="0.0"))) as parts:
        [vector] = [name for name in parts.namelist() if name.endswith(".svg")]
        shapes = parts.read(vector).decode()
        slide = parts.read("ppt/slides/slide2.xml").decode()
        relations = parts.read("ppt/slides/_rels/slide2.xml.rels").decode()
    [relation] = re.findall(r'svgBlip[^>]* r:embed="(\w+)"', slide)
    assert re.search(rf'Id="{relation}"[^>]*{Path(vector).name}|{Path(vector).name}"[^>]*Id="{relation}"', relations)
    assert "<text" not in shapes
    assert "<path" in shapes
