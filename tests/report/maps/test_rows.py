"""Rows of weights: arcs, texts shaded by one query, and images under what it looks at."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import Window, cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.metrics.combine import reduce_heads
from attnviz.render.figure.media import images_content
from attnviz.render.figure.page import arrange_tokens
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import options_for_medium
from attnviz.report.build import build_report
from attnviz.report.build import build_report as build_whole_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.maps.combined import combined_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.maps.rows import MAX_SCREEN_IMAGES, mass_mask
from attnviz.report.maps.text_rows import CONTEXT_TOKENS, MAX_KEYS
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.overlays import query_box
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import cells, dense, random_maps
from tests.maps.examples import factored
from tests.report.examples import drawn
from tests.report.image_examples import WIDTH, image_recording, words_and_images_recording

LONG = 700


def report_of(
    recording: Recording, suffix: str = ".txt", selection: Selection | None = None, **look: Any
) -> DrawnReport:
    return drawn(
        build_report(
            recording, options_for_medium(ReportOptions(selection=selection or Selection(), look=Look(**look)), suffix)
        )
    )


def long_recording(strong: dict[int, float], count: int = LONG) -> Recording:
    """One head whose last query attends to a few keys, and a little to all others."""
    weights = np.full((1, count, count), 1e-6, dtype=np.float32)
    for key, weight in strong.items():
        weights[0, -1, key] = weight
    maps = DenseMaps(
        layer=0,
        module="layers.0",
        heads=(0,),
        query_tokens=Tokens.numbered(count, "w"),
        key_tokens=Tokens.numbered(count, "w"),
        scores=weights,
        weights=weights.copy(),
        visible=np.tri(count, dtype=bool),
    )
    return Recording(maps=(maps,), model="a model")


def test_a_query_alone_asks_for_the_text_that_it_attends_to(recording: Recording) -> None:
    report = report_of(recording, query="q3")
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    assert report.panels[0].title == "head 0.0: “q3” (3) attends to"
    assert np.array_equal(
        report.panels[0].values[0], cells(recording).window((0,), slice(3, 4), slice(0, 7)).weights[0, 0]
    )


def test_a_query_has_no_place_in_a_style_that_draws_every_query() -> None:
    with pytest.raises(AttnvizError, match="query shades a text, and style='arcs' draws every query; use one of them"):
        Look(style="arcs", query="3")


def test_a_long_text_becomes_the_strongest_places_with_their_surroundings() -> None:
    report = report_of(long_recording({40: 0.25, 500: 0.5, 44: 0.125, 300: 0.0625}), query=str(LONG - 1))
    assert [panel.title for panel in report.panels[:3]] == [
        "head 0.0: “w699” (699) attends 50% to “w500” (500)",
        "head 0.0: “w699” (699) attends 25% to “w40” (40), 12% to “w44” (44)",
        "head 0.0: “w699” (699) attends 6% to “w300” (300)",
    ]
    shown = range(500 - CONTEXT_TOKENS, 500 + CONTEXT_TOKENS + 1)
    assert report.panels[0].columns.labels == tuple(f"w{place}" for place in shown)
    assert float(report.panels[0].values[0, CONTEXT_TOKENS]) == 0.5
    assert len({panel.scale for panel in report.panels}) == 1
    assert report.caption == (
        "What “w699” (699) attends to among 700 keys, in head 0.0 of a model; "
        "the largest weight is 50%, to “w500” (500)."
    )
    assert f"only the {MAX_KEYS} keys with the largest weights are shown" in report.remarks[0]
    assert "w697 w698 [w699]" in report.remarks[0]


def test_places_at_the_ends_of_a_text_have_the_tokens_that_there_are() -> None:
    panels = report_of(long_recording({0: 0.5, LONG - 1: 0.25}), query="699").panels
    assert panels[0].columns.labels == tuple(f"w{place}" for place in range(CONTEXT_TOKENS + 1))
    assert panels[1].columns.labels == tuple(f"w{place}" for place in range(LONG - 1 - CONTEXT_TOKENS, LONG))


def test_places_lie_within_the_chosen_keys() -> None:
    recording = long_recording({10: 0.5, 650: 0.25})
    report = report_of(recording, selection=Selection.parse(keys="20:640"), query=str(LONG - 1))
    shown = {int(label[1:]) for panel in report.panels for label in panel.columns.labels}
    assert shown <= set(range(20, 640))


def test_a_query_that_sees_nothing_says_so() -> None:
    recording = long_recording({})
    recording.maps[0].visible.setflags(write=True)  # type: ignore[attr-defined]
    recording.maps[0].visible[-1] = False  # type: ignore[attr-defined]
    [panel] = report_of(recording, query="699").panels
    assert panel.title == "head 0.0: “w699” (699) attends to no key"


def test_the_places_of_factors_are_those_of_the_row_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.report.maps.text_rows.MAX_SCREEN_TOKENS", 60)
    maps, asked = factored(), []
    window = FactoredMaps.window

    def counted(self: FactoredMaps, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        asked.append((queries.stop - queries.start) * (keys.stop - keys.start))
        return window(self, heads, queries, keys)

    row = maps.window((5,), slice(33, 34), slice(0, 90)).weights[0, 0]
    monkeypatch.setattr(FactoredMaps, "window", counted)
    report = report_of(Recording(maps=(maps,), model="a model"), selection=Selection(heads=(5,)), query="33")
    assert f"to “k{row.argmax()}” ({row.argmax()})" in report.panels[0].title
    assert max(asked) == 90


def test_the_query_of_a_text_is_one_of_the_chosen_ones(recording: Recording) -> None:
    report = report_of(recording, selection=Selection(queries=(1, 3)), style="text")
    assert report.caption.startswith("What “q2” (2) attends to")
    with pytest.raises(AttnvizError, match=r"query 4 is not among queries='1:3'; leave queries out"):
        report_of(recording, selection=Selection(queries=(1, 3)), query="q4")


@pytest.mark.parametrize(("suffix", "style"), [(".txt", "text"), (".svg", "arcs")])
def test_a_way_to_pool_has_no_effect_where_nothing_is_pooled(recording: Recording, suffix: str, style: str) -> None:
    said = "Nothing is pooled: every cell is one weight."
    assert said in report_of(recording, suffix, style=style, pool="max").remarks
    assert said not in report_of(recording, suffix, style=style).remarks


@pytest.mark.parametrize(("suffix", "place"), [(".txt", "the terminal"), (".csv", ".csv files")])
def test_arcs_need_a_picture(suffix: str, place: str) -> None:
    line = f"style='arcs' draws a picture, which {place} cannot hold; use -o arcs.svg (.png .svg .pdf .html .pptx)"
    with pytest.raises(AttnvizError, match=re.escape(line)):
        options_for_medium(ReportOptions(look=Look(style="arcs")), suffix)


def test_arcs_of_too_many_tokens_are_refused_with_the_number_of_the_chosen_ones() -> None:
    recording = Recording(maps=(random_maps(Tokens.numbered(400), heads=1),), model="a model")
    options = ReportOptions(look=Look(style="arcs"), selection=Selection(queries=(250, 400), keys=(200, 400)))
    with pytest.raises(AttnvizError, match="draws up to 120 tokens, not 200; use"):
        build_report(recording, options)


def test_the_last_query_of_each_text_of_a_batch_is_shown_and_never_padding() -> None:
    texts = tokenize("one two three"), tokenize("one").padded(3)
    maps = tuple(replace(random_maps(tokens, heads=2), item=item) for item, tokens in enumerate(texts))
    report = report_of(Recording(maps=maps, model="a model"), style="text")
    assert [panel.title for panel in report.panels][1:3] == [
        "head 0.1, text 0: “three” (2) attends to",
        "head 0.0, text 1: “one” (0) attends to",
    ]
    assert report.caption.startswith(
        "What one query of each text attends to among 3 keys, in 2 heads of a model for 2 texts; the largest weight is"
    )


@pytest.mark.parametrize(("look", "asked"), [(Look(style="arcs"), "style='arcs'"), (Look(query="a"), "query")])
def test_a_style_or_query_is_refused_where_no_single_head_is_drawn(
    recording: Recording, look: Look, asked: str
) -> None:
    options = ReportOptions(look=look)
    refusal = f"{asked} needs single heads of one recording; leave it out to draw a .* heatmap"
    with pytest.raises(AttnvizError, match=refusal):
        combined_report(recording, options, "mean", 0.5)
    with pytest.raises(AttnvizError, match=refusal):
        comparison_report(recording, recording, "nothing", options)
    with pytest.raises(AttnvizError, match=refusal):
        heads_report((recording,), options)


def test_a_number_stays_behind_a_token_from_right_to_left() -> None:
    recording = Recording(maps=(random_maps(tokenize("שלום עולם"), heads=1),), model="a model")
    assert report_of(recording, style="text").panels[0].title == "head 0.0: “עולם”\u200e (1) attends to"


def test_arcs_say_below_which_weight_there_is_no_line(recording: Recording) -> None:
    look = Look(style="arcs", limits="0.2:1")
    said = build_report(recording, options_for_medium(ReportOptions(look=look), ".svg")).remarks[0]
    assert "A weight of 20% or less has no line." in said
    usual = drawn(build_report(recording, options_for_medium(ReportOptions(look=Look(style="arcs")), ".svg")))
    assert "A weight of 14% or less (no preference) has no line." in usual.remarks[0]
    assert {panel.scale.low for panel in usual.panels} == {1 / 7}


def test_arcs_of_a_head_without_preference_have_all_lines() -> None:
    maps = random_maps(Tokens.numbered(4, "t"), heads=1)
    even = replace(maps, scores=np.zeros_like(maps.scores), weights=np.full_like(maps.weights, 0.25))
    options = options_for_medium(ReportOptions(look=Look(style="arcs")), ".svg")
    said = drawn(build_report(Recording(maps=(even,), model="a test"), options))
    assert said.panels[0].scale.low == 0
    assert "has none" not in said.remarks[0]


def test_a_special_token_that_takes_the_rollout_is_named_with_what_leaves_it_out() -> None:
    tokens = tokenize("[CLS] the cat sat")
    special = np.arange(len(tokens)) == 0
    weights = np.full((1, len(tokens), len(tokens)), 0.3 / (len(tokens) - 1), dtype=np.float32)
    weights[..., 0] = 0.7
    for marked in (special, np.zeros_like(special)):
        held = replace(tokens, special=marked)
        maps = replace(random_maps(held, held, heads=1), scores=weights * 0, weights=weights)
        report = combined_report(Recording(maps=(maps,), model="a test"), ReportOptions(), "mean", 0.5)
        said = " are 70% on average; special=False leaves such tokens out."
        assert any(remark.endswith(said) for remark in report.remarks) == marked.any()


def image_report_of(recording: Recording, suffix: str = ".png", heads: str | None = None, **look: Any) -> DrawnReport:
    options = ReportOptions(selection=Selection.parse(heads=heads), look=Look(**look))
    report = build_report(recording, options_for_medium(options, suffix))
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    return report


def test_without_a_query_the_class_token_looks_at_the_patches() -> None:
    recording = image_recording()
    [panel] = image_report_of(recording, heads="0.1").panels
    row = dense(recording).weights[1, 0]
    np.testing.assert_allclose(panel.values[0], row, rtol=1e-6)
    assert panel.visible[0].tolist() == [False] + [True] * 6  # [CLS] has no place to be drawn at
    assert panel.title == f"head 0.1 · {row[1:].sum():.0%} on image"
    assert query_box(panel) is None


def test_without_a_class_token_all_queries_look_in_the_mean() -> None:
    recording = image_recording(classes=False)
    report = image_report_of(recording, heads="0.2")
    weights = dense(recording).weights[2]
    np.testing.assert_allclose(report.panels[0].values[0], weights.mean(axis=0), rtol=1e-6)
    assert "the mean query" in report.caption


@pytest.mark.parametrize("query", ["r1c2", "6", "@89,79", "@60,40"])
def test_a_query_is_named_by_its_label_its_number_or_a_pixel(query: str) -> None:
    recording = image_recording()
    [panel] = image_report_of(recording, heads="0.0", query=query).panels
    np.testing.assert_allclose(panel.values[0], dense(recording).weights[0, 6], rtol=1e-6)
    assert query_box(panel) == (60, 40, 90, 80)


def test_a_word_that_patches_look_at_is_drawn_over_their_picture_by_its_column() -> None:
    random = np.random.default_rng(0)
    weights = random.dirichlet([1.0] * 3, size=(2, 2, 6))  # (layers, heads, patches, words)
    picture = attnviz.patches(np.zeros((40, 60, 3), dtype=np.uint8), grid=(2, 3))
    words = attnviz.tokens(["a", "fox", "fox"])
    recording = attnviz.from_arrays(weights=list(weights), query_tokens=picture, tokens=words)
    report = image_report_of(recording, query="fox")
    assert [panel.heading.head for panel in report.panels] == ["head 0.0", "head 0.1", "head 1.0", "head 1.1"]
    columns = weights[:, :, :, 1].reshape(4, 6)
    np.testing.assert_allclose([panel.values[0] for panel in report.panels], columns, rtol=1e-6)
    assert report.panels[0].columns.places is not None
    assert report.panels[0].columns.places.tolist() == picture.places.tolist()
    strongest = f"r{columns.argmax() % 6 // 3}c{columns.argmax() % 3}"
    assert report.caption.startswith("What looks at “fox” (1) in the image, in 4 heads of arrays; ")
    assert f"({strongest})" in report.caption
    words_of_patch = image_report_of(recording, query="r1c2", heads="0.0")  # a patch is a query
    np.testing.assert_allclose(words_of_patch.panels[0].values[0], weights[0, 0, 5], rtol=1e-6)
    with pytest.raises(AttnvizError, match="'fox' is a key, and a page begins with a query; leave query out: a click"):
        attnviz.draw(recording, ".html", query="fox")
    with pytest.raises(AttnvizError, match="no query 'cat' among the tokens"):
        image_report_of(recording, query="cat")


def test_refuses_a_pixel_that_the_model_does_not_read() -> None:
    with pytest.raises(AttnvizError, match="no patch at pixel 90,10; the model reads x 0 to 89, y 0 to 79"):
        image_report_of(image_recording(), query="@90,10")


def test_a_screen_shows_the_last_layer_and_says_so() -> None:
    recording = image_recording(layers=MAX_SCREEN_IMAGES // 3 + 1)
    report = image_report_of(recording, ".txt", height=24)
    assert {panel.group for panel in report.panels} == {"layer 4"}
    assert any(remark.startswith("Showing layer 4;") for remark in report.remarks)
    assert len(image_report_of(recording).panels) == len(recording.maps) * 3


def test_another_style_draws_the_matrix_of_patches() -> None:
    options = ReportOptions(look=Look(style="heatmap"))
    assert drawn(build_report(image_recording(), options_for_medium(options, ".png"))).kind == "maps"


@pytest.mark.parametrize(
    ("side", "peak", "color_scale", "said"),
    [
        (7, 0.0, None, ["Nearly even: no patch has more than 1.0 times an even share of the weight"]),
        (7, 0.0, "lift", []),
        (7, 9.0, None, []),
        (3, 0.0, None, []),
    ],
)
def test_a_head_that_looks_nearly_everywhere_is_said_to_and_how_its_differences_are_seen(
    side: int, peak: float, color_scale: str | None, said: list[str]
) -> None:
    tokens = attnviz.patches(np.zeros((70, 70, 3), dtype=np.uint8), grid=(side, side), extra=1)
    recording = Recording(maps=(random_maps(tokens, heads=1, peak=peak),), model="a ViT")
    report = build_report(recording, ReportOptions(look=Look(color_scale=color_scale)))
    remarks = [remark.partition(";")[0] for remark in report.remarks if remark.startswith("Nearly even")]
    assert remarks == said


@pytest.mark.parametrize(
    ("suffix", "count", "outlined"),
    [(".pptx", 3, [0]), (".png", 12, [0, 3, 6, 9]), (".png", 15, []), (".txt", 3, [])],
)
def test_figures_and_slides_of_few_heads_outline_where_most_weight_is_on_few_patches_and_say_so(
    suffix: str, count: int, outlined: list[int]
) -> None:
    recording = image_recording()
    maps = dense(recording, 0)
    weights = maps.weights.copy()
    weights[:, 0] = np.array(  # of [CLS], on itself and six patches: on one of them, elsewhere, and everywhere
        [[0.1, 0.65, 0.05, 0.05, 0.05, 0.05, 0.05], [0.55, 0.4, 0.01, 0.01, 0.01, 0.01, 0.01], [0.1] + [0.15] * 6]
    )
    layers = tuple(replace(maps, layer=layer, weights=weights) for layer in range(count // 3))
    report = image_report_of(replace(recording, maps=layers), suffix)
    assert [index for index, panel in enumerate(report.panels) if panel.inside is not None] == outlined
    said = any("60% of the weight on patches; heads without a line look elsewhere" in each for each in report.remarks)
    assert said == bool(outlined)


@given(st.integers(2, 40), st.integers(0, 2**16))
def test_outline_encloses_the_patches_of_the_mask_that_dino_published(count: int, seed: int) -> None:
    row = torch.softmax(torch.randn(1, count, generator=torch.Generator().manual_seed(seed)), dim=1)
    assert mass_mask(row[0].numpy()).tolist() == mask_of_dino(row)


def mask_of_dino(attentions: torch.Tensor, threshold: float = 0.6) -> list[bool]:
    """Returns the mask of facebookresearch/dino, ``visualize_attention.py``, line by line, of one head."""
    val, idx = torch.sort(attentions)
    val /= torch.sum(val, dim=1, keepdim=True)
    cumval = torch.cumsum(val, dim=1)
    th_attn = cumval > (1 - threshold)
    idx2 = torch.argsort(idx)
    return [bool(each) for each in th_attn[0][idx2[0]]]


def test_rollout_is_a_row_over_the_image_and_a_matrix_if_asked() -> None:
    recording = image_recording(layers=2)
    options = options_for_medium(ReportOptions(reduce="rollout", look=Look(query="r1c2")), ".png")
    report = build_whole_report(recording, options)
    assert isinstance(report, DrawnReport)
    assert report.kind == "text"
    [panel] = report.panels
    heads = [(cell_maps(maps), head) for maps in recording.maps for head in maps.heads]
    [[expected]] = cell_maps(reduce_heads(heads, "rollout")).window((0,), slice(6, 7), slice(0, 7)).weights
    np.testing.assert_allclose(panel.values[0], expected, rtol=1e-6)
    name = "rollout of heads 0.0, 0.1, 0.2, 1.0, 1.1, 1.2"
    assert panel.title.startswith(f"{name} · ")
    assert f"What the patch at the lower middle (r1c2) looks at in the image, in the {name} of a ViT" in report.caption
    assert report.remarks[0].startswith("Rollout: the share of each input token")
    matrix = build_whole_report(recording, replace(options, look=Look(style="heatmap")))
    assert isinstance(matrix, DrawnReport)
    assert matrix.kind == "maps"


def test_images_of_different_shapes_keep_their_shapes_in_a_figure() -> None:
    recording = words_and_images_recording()
    [maps] = recording.maps
    tokens = maps.key_tokens
    other = tokens.media[2]
    assert isinstance(other, Image)
    upright = replace(other, width=WIDTH // 4)
    tokens = replace(tokens, media=(*tokens.media[:2], upright), places=np.minimum(tokens.places, (30, 80, 30, 80)))
    report = image_report_of(
        replace(recording, maps=(replace(maps, query_tokens=tokens, key_tokens=tokens),)), heads="0.1"
    )
    boxes = [
        image.box
        for image in arrange_tokens(picture_of(report), images_content, Ruler(("DejaVu Sans",))).content.panels
    ]
    assert [box.width / box.height for box in boxes] == pytest.approx([120 / 80, 30 / 80])
    assert "in the images" in report.caption
