"""Names of heads are unique in a recording, and each, typed back, gives exactly its head, in every file and filter."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.browse.session.session import Session
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording, chosen_heads, head_name
from attnviz.maps.saved import load, save
from attnviz.metrics.call_metrics import filtered_heads
from attnviz.render.formats import draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.words.notes import read_names, write_name
from attnviz.text.head_name import HeadsOfCall, distinguishing_parts
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

Call = tuple[int, str, str]  # layer, module, kind
TOWERS: list[Call] = [(0, "image_blocks.0", "self"), (0, "text_blocks.0", "self"), (1, "text_blocks.1", "self")]
UNET: list[Call] = [
    (0, f"{block}.attentions.0.transformer_blocks.0.{name}", kind)
    for block in ("down_blocks.0", "down_blocks.1", "mid_block")
    for name, kind in (("attn1", "self"), ("attn2", "cross"))
]
DETR: list[Call] = [
    (0, "encoder.layers.0.self_attn", "self"),
    (1, "encoder.layers.1.self_attn", "self"),
    (0, "decoder.layers.0.self_attn", "self"),
    (0, "decoder.layers.0.encoder_attn", "cross"),
]
POOL: list[Call] = [(0, "blocks.0.attn", "self"), (1, "blocks.1.attn", "self"), (0, "attn_pool", "self")]
ONE_MODULE: list[Call] = [(0, "attn", "self"), (0, "attn", "cross"), (0, "", "self")]
ONE_WORD: list[Call] = [(0, "head", "self"), (0, "sink", "self"), (0, "Sink", "self"), (0, "a b,c", "self")]
MODELS = {"towers": TOWERS, "unet": UNET, "detr": DETR, "pool": POOL, "one module": ONE_MODULE, "words": ONE_WORD}


def recording_of(calls: list[Call], items: int = 1) -> Recording:
    """Two heads a call over 2 queries and 3 keys, each with weights of its own."""
    maps = []
    for number, (layer, module, kind) in enumerate(sorted(calls, key=lambda call: call[0])):
        for item in range(items):
            weights = np.random.default_rng(number + 100 * item).dirichlet(np.ones(3), (2, 2)).astype(np.float32)
            tokens = {"query_tokens": Tokens.numbered(2), "key_tokens": Tokens.numbered(3)}
            call = {"layer": layer, "module": module, "kind": kind, "heads": (0, 1), "item": item}
            maps.append(DenseMaps(**call, **tokens, scores=weights, weights=weights, visible=np.ones((2, 3), bool)))  # type: ignore[arg-type]
    return Recording(maps=tuple(maps), model="m")


def all_heads(recording: Recording) -> list[tuple[int, int]]:
    return [(id(maps), head) for maps in recording.maps for head in maps.heads]


def found(recording: Recording, **selection: str) -> list[tuple[int, int]]:
    return [(id(head.maps), head.head) for head in chosen_heads(recording, Selection.parse(**selection))]


@pytest.fixture(params=MODELS, scope="module")
def recording(request: pytest.FixtureRequest) -> Recording:
    return recording_of(MODELS[request.param])


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("towers", ["image_blocks:0.0", "text_blocks:0.0", "1.0"]),
        ("unet", [f"{b}.{a}:0.0" for b in ("down_blocks.0", "down_blocks.1", "mid_block") for a in ("attn1", "attn2")]),
        ("detr", ["encoder.self_attn:0.0", "decoder.self_attn:0.0", "decoder.encoder_attn:0.0", "1.0"]),
        ("pool", ["blocks.attn:0.0", "attn_pool:0.0", "1.0"]),
    ],
)
def test_a_part_is_named_where_the_number_alone_is_not_unique(model: str, names: list[str]) -> None:
    assert [head_name(maps, 0) for maps in recording_of(MODELS[model]).maps] == names


WORDS = st.sampled_from(["encoder", "decoder", "Encoder", "attn", "attn1", "0", "1", "head", "x y", "-a", "é"])
PATHS = st.lists(WORDS, max_size=4).map(".".join)


@given(st.lists(st.tuples(st.integers(0, 1), PATHS, st.sampled_from(["self", "cross"])), min_size=1, max_size=6))
def test_every_name_typed_back_gives_its_head_alone(calls: list[Call]) -> None:
    drawn = recording_of(calls)
    heads = [(maps, head) for maps in drawn.maps for head in maps.heads]
    names = [head_name(*head) for head in heads]
    assert len({name.lower() for name in names}) == len(names)
    for (maps, head), name in zip(heads, names, strict=True):
        assert found(drawn, heads=name) == [(id(maps), head)]
        kept = filtered_heads(chosen_heads(drawn, Selection()), f"head:{name}")
        assert (id(maps), head) in [(id(other.maps), other.head) for other in kept]
        assert len(kept) == 1 or ":" not in name


def test_names_are_the_same_in_every_file_and_in_a_part_of_the_recording(recording: Recording, tmp_path: Path) -> None:
    names = [head_name(maps, head) for maps in recording.maps for head in maps.heads]
    save(recording, tmp_path / "run.safetensors")
    assert [head_name(maps, head) for maps in load(tmp_path / "run.safetensors").maps for head in maps.heads] == names
    assert Session(recording).names == names

    options = ReportOptions(medium=medium_of(".csv", Look()))
    numbers = build_report(recording, options)
    with np.load(io.BytesIO(draw(numbers, ".npz"))) as archive:
        for (maps, head), name in zip([(m, h) for m in recording.maps for h in m.heads], names, strict=True):
            np.testing.assert_array_equal(archive[f"{name}.weight"], maps.weights[head])  # type: ignore[attr-defined]
    assert [head["name"] for head in json.loads(draw(numbers, ".json"))["heads"]] == names
    rows = list(csv.DictReader(io.StringIO(draw(numbers, ".csv").decode(), newline="")))
    keys = {tuple(row[name] for name in ("layer", "head", "module", "kind", "query", "key")) for row in rows}
    assert len(keys) == len(rows) == 6 * len(names)
    listed = json.loads(draw(heads_report((recording,), options), ".json"))["heads"]
    assert [row["head"] for row in listed] == names
    assert [row["module"] for row in listed] == [maps.module for maps in recording.maps for _ in maps.heads]

    file = str(tmp_path / "names.txt")
    for name in names:
        write_name(file, name, f"called {name}")
    assert read_names(file) == {name: f"called {name}" for name in names}


@pytest.mark.parametrize(
    ("model", "selection", "names"),
    [
        ("detr", {"heads": "encoder:0.1"}, ["encoder.self_attn:0.1"]),
        ("detr", {"heads": "cross:0.1,1.0"}, ["decoder.encoder_attn:0.1", "1.0"]),
        ("detr", {"heads": "decoder.layers.0.self_attn:0.0"}, ["decoder.self_attn:0.0"]),
        ("detr", {"heads": "encoder:1.1"}, ["1.1"]),
        ("detr", {"heads": "0", "layers": "decoder:0"}, ["decoder.self_attn:0.0", "decoder.encoder_attn:0.0"]),
        ("detr", {"heads": "0", "layers": "encoder:0-1"}, ["encoder.self_attn:0.0", "1.0"]),
        ("towers", {"heads": "1,0", "layers": "text_blocks:0"}, ["text_blocks:0.1", "text_blocks:0.0"]),
        ("towers", {"heads": "image_blocks:0.1,1.0", "layers": "0"}, ["image_blocks:0.1"]),
    ],
)
def test_a_part_may_be_written_by_any_words_that_fit(model: str, selection: dict[str, str], names: list[str]) -> None:
    chosen = chosen_heads(recording_of(MODELS[model]), Selection.parse(**selection))
    assert [head.name for head in chosen] == names


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ("0.0", "could be 3 heads; write encoder.self_attn:0.0, decoder.self_attn:0.0 or decoder.encoder_attn:0.0"),
        ("decoder:0.1", "could be 2 heads; write decoder.self_attn:0.1 or decoder.encoder_attn:0.1"),
        ("text:0.0", "'text:0.0' is in that part of the model; write encoder.self_attn:0.0, decoder"),
        ("encoder:0.7", "no head in layer 0: 7; there are 0-1"),
    ],
)
def test_refuses_a_name_of_several_heads_or_none_and_lists_those_that_work(heads: str, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        chosen_heads(recording_of(DETR), Selection.parse(heads=heads))


def test_a_head_has_one_name_in_all_texts_of_a_batch() -> None:
    batch = recording_of(TOWERS, items=2)
    assert len(found(batch, heads="text_blocks:0.1")) == 2
    assert len(set(all_heads(batch))) == 2 * len({head_name(maps, head) for maps in batch.maps for head in maps.heads})
    with np.load(
        io.BytesIO(draw(build_report(batch, ReportOptions(medium=medium_of(".csv", Look()))), ".npz"))
    ) as file:
        assert len([name for name in file.files if name.endswith(".weight")]) == 12


def test_two_calls_of_one_module_with_the_same_heads_are_told_apart() -> None:
    calls = [HeadsOfCall(0, "attn", "self", 0, heads) for heads in ((0,), (1,), (0, 1))]
    assert distinguishing_parts(calls[:2]) == ["", ""]
    assert distinguishing_parts(calls) == ["call0", "call0", "call1"]
