"""What is said of a picture in words."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium
from attnviz.report.picture.panels import Axis, Heading
from attnviz.report.words.captions import part_caption, part_title
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import KEYS, QUERIES, dense, random_maps
from tests.report.examples import report_of
from tests.report.image_examples import image_recording, tokens_of_image


def test_more_tokens_than_cells_are_pooled_to_their_means_and_said(recording: Recording) -> None:
    report = report_of(recording, medium=Medium(max_cells=3))
    panel = report.panels[0]
    assert panel.values.shape == (3, 3)
    assert panel.values[0, 0] == pytest.approx(dense(recording).weights[0, :1, :2].mean())
    assert panel.columns.labels == ("0", "2", "4")
    assert "Pooled: 5 x 7 tokens in 3 x 3 cells" in " ".join(report.remarks)


def test_masked_cells_are_said_where_there_are_any(recording: Recording, causal_recording: Recording) -> None:
    assert not report_of(recording).remarks
    assert "Blank cells are masked" in report_of(causal_recording).remarks[0]


def test_untrained_weights_are_called_so_in_remark_and_caption(recording: Recording) -> None:
    report = report_of(replace(recording, untrained=True, seed=7, model="seeded model"))
    assert "Untrained: random weights from seed 7" in report.remarks[0]
    assert "an untrained seeded model" in report.caption


def test_caption_names_the_largest_weight_and_its_ends(recording: Recording) -> None:
    weights = np.zeros((1, QUERIES, KEYS), dtype=np.float32)
    weights[0, 3, 5] = 0.75
    maps = replace(dense(recording), heads=(2,), weights=weights, scores=weights, layer=4)
    caption = report_of(Recording(maps=(maps,), model="a model")).caption
    assert caption == (
        "Cross-attention of head 4.2 in a model, 5 queries (rows) over 7 keys (columns); "
        "the largest weight is 75%, head 4.2, from “q3” to “k5”."
    )


def test_caption_places_the_largest_weight_that_it_says_and_not_one_that_is_so_by_definition() -> None:
    weights = np.array([[[1, 0, 0], [0.4, 0.6, 0], [0.3, 0.3, 0.4]]], dtype=np.float32)
    maps = replace(random_maps(tokenize("a b c")), heads=(0,), weights=weights, scores=weights)
    maps = replace(maps, visible=np.tri(3, dtype=bool))
    for look, end in ((Look(), "from “b” to “b”."), (Look(query="1"), "to “b” (1).")):
        caption = report_of(Recording(maps=(maps,), model="a model"), look=look).caption
        assert caption.endswith(end), caption
        assert "60%" in caption


def test_only_a_token_that_comes_twice_is_numbered_where_the_largest_weight_is_said() -> None:
    weights = np.array([[[1, 0, 0], [0.5, 0.5, 0], [0.1, 0.7, 0.2]]], dtype=np.float32)
    maps = replace(random_maps(tokenize("a b a")), heads=(0,), weights=weights, scores=weights)
    maps = replace(maps, visible=np.tri(3, dtype=bool))
    caption = report_of(Recording(maps=(maps,), model="a model")).caption
    assert caption.endswith("from “a” (2) to “b”."), caption


def test_a_text_of_one_token_never_has_the_largest_weight_of_a_batch() -> None:
    maps = [replace(random_maps(tokenize(text), causal=True), item=item) for item, text in enumerate(("a b c", "d"))]
    assert "text 0, from" in report_of(Recording(maps=tuple(maps), model="a model")).caption


def test_title_is_the_text_made_visible_and_short(recording: Recording) -> None:
    from attnviz.report.words.captions import text_title
    from attnviz.text.tokens import tokenize

    def titled(text: str) -> str:
        tokens = tokenize(text, "char")
        count = len(tokens)
        maps = replace(
            dense(recording),
            query_tokens=tokens,
            key_tokens=tokens,
            heads=(0,),
            scores=np.zeros((1, count, count), dtype=np.float32),
            weights=np.zeros((1, count, count), dtype=np.float32),
            visible=np.ones((count, count), dtype=bool),
        )
        return text_title(Recording(maps=(maps,), model="a model"))

    assert titled("two\nlines\x1b[31m") == "two lines\\x1b[31m"
    assert titled("word " * 50).endswith("word word…")
    assert len(titled("word " * 50)) <= 200


def test_title_of_tokens_without_a_text_is_the_tokens_and_of_positions_the_model(recording: Recording) -> None:
    from attnviz.report.words.captions import text_title
    from attnviz.text.tokens import Tokens

    def titled(*labels: str) -> str:
        tokens = replace(Tokens.numbered(len(labels)), labels=labels)
        return text_title(Recording(maps=(random_maps(tokens),), model="GPT2LMHeadModel"))

    assert titled("The", "cat", "sit", "##s") == "The cat sits"
    assert titled("0", "1", "2") == titled("k0", "k1") == "GPT2LMHeadModel"


def test_title_of_masks_that_look_at_a_picture_is_the_pictures_whichever_layer_comes_first() -> None:
    from attnviz.report.words.captions import text_title

    masks = replace(Tokens.numbered(3), labels=("quality", "mask 0", "mask 1"))
    alone, over_picture = random_maps(masks), random_maps(masks, tokens_of_image(), layer=1)
    assert text_title(Recording(maps=(alone,), model="SAM")) == "quality mask 0 mask 1"
    for maps in ((alone, over_picture), (over_picture, replace(alone, layer=2))):
        assert text_title(Recording(maps=maps, model="SAM")) == "photo.png"


def test_an_article_in_a_models_name_is_not_said_twice(recording: Recording) -> None:
    caption = report_of(replace(recording, untrained=True, seed=7, model="a made-up model")).caption
    assert " in an untrained made-up model, " in caption


def test_a_caption_over_blocks_never_calls_a_mean_the_largest_weight(recording: Recording) -> None:
    weights = np.zeros((1, QUERIES, KEYS), dtype=np.float32)
    weights[0, 3, 5] = 0.9  # with query 4 and key 6 in one of 3 x 3 blocks: rows 0, 1-2, 3-4 and keys 0-1, 2-3, 4-6
    maps = replace(dense(recording), heads=(2,), weights=weights, scores=weights, layer=4)
    pooled = Recording(maps=(maps,), model="a model")
    mean = report_of(pooled, medium=Medium(max_cells=3)).caption
    most = report_of(pooled, medium=Medium(max_cells=3), look=Look(pool="max")).caption
    assert mean.endswith("; the largest mean of a block is 15%, head 4.2, around query 3 and key 5.")
    assert most.endswith("; the largest weight is 90%, head 4.2, around query 3 and key 5.")


def test_a_map_pooled_to_maxima_shows_them_and_says_so(recording: Recording) -> None:
    report = report_of(recording, medium=Medium(max_cells=3), look=Look(pool="max"))
    assert report.panels[0].values[2, 2] == dense(recording).weights[0, 3:, 4:].max()
    assert "each the largest weight of its block" in " ".join(report.remarks)


def test_an_overview_names_its_strongest_head_as_one(recording: Recording) -> None:
    heads = tuple(range(40))
    weights = np.zeros((40, QUERIES, KEYS), dtype=np.float32)
    weights[33, 1, 2] = 0.6
    maps = replace(dense(recording), heads=heads, weights=weights, scores=weights)
    assert ", head 0.33, from “q1” to “k2”." in report_of(Recording(maps=(maps,), model="a model")).caption


def test_cross_attention_is_told_from_self_attention_where_both_are_there(recording: Recording) -> None:
    both = replace(recording, maps=(recording.maps[0], replace(dense(recording, 1), kind="self")))
    assert [panel.title for panel in report_of(both).panels][2:4] == ["head 0.2 cross", "head 1.0"]
    assert report_of(both).caption.startswith("Attention of")
    assert [panel.title for panel in report_of(recording).panels][2:4] == ["head 0.2", "head 1.0"]
    assert report_of(recording).caption.startswith("Cross-attention of")


@pytest.mark.parametrize("query", [None, "0"])
def test_a_very_long_token_is_cut_in_a_sentence(query: str | None) -> None:
    tokens = tokenize("w" * 3000)
    caption = report_of(Recording(maps=(random_maps(tokens),), model="a test"), look=Look(query=query)).caption
    assert f"“{'w' * 59}…”" in caption
    assert "w" * 60 not in caption


def test_a_single_query_is_called_so(recording: Recording) -> None:
    caption = report_of(recording, selection=Selection(queries=(2, 3), keys=(1, 4))).caption
    assert ", 1 query (rows) over 3 keys (columns); " in caption


def test_a_head_over_several_texts_is_counted_once_and_the_texts_are_said(recording: Recording) -> None:
    short = replace(random_maps(Tokens.numbered(4), Tokens.numbered(6)), kind="cross", item=1)
    batch = replace(recording, maps=(dense(recording), short))
    said = "Cross-attention of 3 heads of layer 0 in a test for 2 texts, up to 5 queries (rows) over up to 7 keys"
    assert report_of(batch).caption.startswith(said)


def test_tiles_of_a_picture_and_pictures_of_a_batch_are_not_called_texts() -> None:
    whole = dense(image_recording())
    tokens = whole.key_tokens
    moved = replace(tokens, places=np.where(tokens.medium[:, None] >= 0, tokens.places // 2, 0))
    for second, noun in ((moved, "tile"), (tokens, "picture")):
        maps = whole, replace(whole, query_tokens=second, key_tokens=second, item=1)
        report = report_of(replace(image_recording(), maps=maps), look=Look(style="heatmap"))
        assert f" for 2 {noun}s, " in report.caption
        assert report.panels[-1].heading.name.endswith(f", {noun} 1")


def test_parts_are_called_heads_only_if_they_are_and_counted_in_the_plural(recording: Recording) -> None:
    report = report_of(recording)
    panels = [replace(report.panels[0], heading=Heading(f"0.{head}", "head")) for head in range(7)]
    rows = Axis("heads", ("0.1", "0.2"), (0, 1, 2))
    assert part_title(replace(report, panels=tuple(panels))) == "7 heads, 0.0 to 0.6"
    metrics = tuple(
        replace(panel, heading=Heading(f"metric {number}"), rows=rows) for number, panel in enumerate(panels)
    )
    assert part_caption(replace(report, panels=metrics)).startswith(
        "7 panels, metric 0 to metric 6: 2 heads (rows) over 7 keys (columns)"
    )


def test_heads_of_two_attention_calls_in_one_layer_are_told_apart_and_counted(recording: Recording) -> None:
    both = replace(recording, maps=(replace(dense(recording), kind="self"), dense(recording)))
    assert report_of(both).caption.startswith("Attention of 6 heads of layer 0 in a test, 5 queries (rows)")


def test_worst_fidelity_is_said_and_of_which_layers_it_is_not_known(recording: Recording) -> None:
    first, second = recording.maps
    known = replace(recording, maps=(replace(first, fidelity=2e-7), second))
    assert report_of(known).remarks[-1] == (
        "Checked: weights @ values equal the model's own attention output within 2e-07; not checked in layer 1."
    )
    doubted = replace(recording, maps=(replace(first, fidelity=0.5), second))
    layers_of_warning = [
        any(
            remark.startswith("Warning: in layer 0 ")
            for remark in report_of(doubted, selection=Selection(layers=(layer,))).remarks
        )
        for layer in (0, 1)
    ]
    assert layers_of_warning == [True, False], "it stands only where its layer is drawn"
