"""Blocks of a long attention whose queries and keys are not known: exact as a whole, and known to be no more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.keys import press
from attnviz.browse.copying import figure_command
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.cli.commands import main
from attnviz.maps import pooled as maps_pooled
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.grouped import block_cells, join_window
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.pooled import PooledMaps, pool_heads
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load
from attnviz.metrics.call_metrics import all_metrics, measure
from attnviz.metrics.change import compare
from attnviz.streaming.overview import block_edges, pool_weights
from attnviz.text.groups import Groups
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.browse.examples import shown_text
from tests.conftest import random_maps
from tests.streams import Streams

QUERIES, KEYS, MOST, BLOCKS = 53, 70, 16, 14  # blocks of 4 x 5 tokens, of which 14 are enough


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks a side as few as are worth reading."""
    monkeypatch.setattr(maps_pooled, "MAX_BLOCKS_A_SIDE", MOST)


def whole_maps(causal: bool = True) -> DenseMaps:
    return random_maps(Tokens.numbered(QUERIES), Tokens.numbered(KEYS), causal=causal, peak=2)


def pooled_maps(maps: DenseMaps) -> PooledMaps:
    (fields,) = pool_heads((maps.weights[[head]], maps.visible[None]) for head in range(len(maps.heads)))
    common = {name: getattr(maps, name) for name in ("layer", "module", "heads", "query_tokens", "key_tokens", "kind")}
    return PooledMaps(**common, **fields)


@pytest.mark.parametrize("shape", [(14, 14), (7, 14), (2, 7), (1, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_overview_of_all_is_that_of_the_whole_maps(shape: tuple[int, int], causal: bool) -> None:
    maps = whole_maps(causal)
    pooled = pooled_maps(maps).overview((2, 0), *shape, slice(0, QUERIES), slice(0, KEYS))
    exact = pool_weights(maps.weights[[2, 0]], maps.visible, *shape)
    np.testing.assert_allclose(pooled.mean, exact.mean, atol=1e-7)
    np.testing.assert_array_equal(pooled.maximum, exact.maximum)
    np.testing.assert_array_equal(pooled.visible, exact.visible)


def test_a_part_is_made_of_the_blocks_that_touch_it() -> None:
    maps = whole_maps(causal=False)
    rows, columns = block_edges(QUERIES, BLOCKS), block_edges(KEYS, BLOCKS)
    part = slice(int(rows[3]) + 1, int(rows[5])), slice(int(columns[7]), int(columns[9]) + 1)
    pooled = pooled_maps(maps)
    assert pooled.resolution(*part) == (2, 3)
    seen = pooled.overview((1,), 2, 3, *part)
    for row, column in np.ndindex(2, 3):
        block = np.s_[rows[3 + row] : rows[4 + row], columns[7 + column] : columns[8 + column]]
        assert seen.mean[0, row, column] == pytest.approx(maps.weights[1][block].mean(), rel=1e-6)


def test_more_pixels_than_blocks_and_single_cells_are_refused() -> None:
    pooled = pooled_maps(whole_maps())
    whole = slice(0, QUERIES), slice(0, KEYS)
    for ask in (
        lambda: cell_maps(pooled),
        lambda: pooled.overview((0,), 15, 4, *whole),
        lambda: pooled.overview((0,), 4, 15, *whole),
    ):
        with pytest.raises(
            AttnvizError, match=r"pooled to blocks of 4 x 5 tokens .* or capture every cell with dense=True"
        ):
            ask()


def test_numbers_of_other_heads_or_keys_are_refused() -> None:
    maps = whole_maps()
    held = all_metrics(maps)
    assert replace(pooled_maps(maps), metrics=held).metrics is held
    for wrong in (
        replace(held, sinks=held.sinks[:-1]),
        replace(held, sinks=held.sinks + KEYS),
        replace(held, values=held.values[:, 1:]),
        replace(held, keys=held.keys + KEYS),
    ):
        with pytest.raises(AttnvizError, match=f"stored metrics do not fit {len(maps.heads)} heads over {KEYS} keys"):
            replace(pooled_maps(maps), metrics=wrong)


def test_metrics_of_maps_that_were_not_measured_are_refused() -> None:
    with pytest.raises(AttnvizError, match="its single cells are not known"):
        measure(pooled_maps(whole_maps()))


def own_cells() -> DenseMaps:
    """Maps of three heads: the first sees little, the others the same."""
    maps = whole_maps()
    seen = np.stack([maps.visible & (np.arange(KEYS) % 3 == 0), maps.visible, maps.visible])
    return replace(maps, weights=maps.weights * seen, visible=seen)


def pooled_with_own_cells(tmp_path: Path) -> PooledMaps:
    """The same pooled, saved, and opened again."""
    maps = own_cells()
    (fields,) = pool_heads((maps.weights[[head]], maps.visible[[head]]) for head in range(3))
    common = {name: getattr(maps, name) for name in ("layer", "module", "heads", "query_tokens", "key_tokens", "kind")}
    whole = PooledMaps(**common, **fields, metrics=all_metrics(maps))
    drawable(Recording(maps=(whole,), model="none")).save(tmp_path / "x.safetensors")
    [again] = load(tmp_path / "x.safetensors").maps
    assert isinstance(again, PooledMaps)
    return again


@pytest.mark.parametrize("shape", [(14, 14), (2, 7), (1, 1)])
@pytest.mark.parametrize("heads", [(0,), (2, 0), (1, 2)])
def test_heads_that_see_different_cells_are_pooled_over_their_own(
    heads: tuple[int, ...], shape: tuple[int, int], tmp_path: Path
) -> None:
    maps, pooled = own_cells(), pooled_with_own_cells(tmp_path)
    found, expected = (each.overview(heads, *shape, slice(0, QUERIES), slice(0, KEYS)) for each in (pooled, maps))
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
    np.testing.assert_array_equal(found.maximum, expected.maximum)
    np.testing.assert_array_equal(
        np.broadcast_to(found.visible, found.mean.shape), np.broadcast_to(expected.visible, expected.mean.shape)
    )
    assert pooled.head_groups((2, 0, 1)) == [(2, 1), (0,)]


def test_pooled_heads_count_their_own_keys_and_sum_to_their_own_rows(tmp_path: Path) -> None:
    maps, pooled = own_cells(), pooled_with_own_cells(tmp_path)
    [blocks] = [cell_maps(one) for one in block_cells([Recording(maps=(pooled,), model="none")], Selection())[0].maps]
    edges = block_edges(QUERIES, 14)
    for head in range(3):
        counts = np.add.reduceat(maps.visible[head].sum(1), edges[:-1]) / np.diff(edges)
        np.testing.assert_allclose(pooled.visible_key_counts(head, slice(0, QUERIES))[edges[:-1]], counts)
        window = blocks.window((head,), slice(0, 14), slice(0, 14))
        sums = np.add.reduceat(maps.weights[head].sum(1), edges[:-1]) / np.diff(edges)
        np.testing.assert_allclose(window.weights[0].sum(1), sums, atol=1e-6)
        np.testing.assert_array_equal(window.visible, pooled.counts[head] > 0)
    assert blocks.window((0, 1), slice(0, 14), slice(0, 14)).visible.shape == (2, 14, 14)


def test_arrays_that_do_not_fit_are_refused() -> None:
    maps = pooled_maps(whole_maps())
    with pytest.raises(AttnvizError, match="mean has shape"):
        replace(maps, mean=maps.mean[:2])
    with pytest.raises(AttnvizError, match="blocks are more than"):
        replace(maps, query_tokens=Tokens.numbered(9))


class Additive(nn.Module):
    """Attention that compares by a sum, so that no queries and keys multiply to its scores (Bahdanau et al. 2015)."""

    num_heads = 3

    def forward(self, features: Tensor) -> Tensor:
        scores = torch.tanh(features[:, :, :, None] + 2 * features[:, :, None]).sum(-1)
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ features


def recorded(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Recording:
    monkeypatch.setattr("attnviz.maps.layer_maps.LONG_MAP_TOKENS", 50)
    model = Additive()
    features = torch.randn(2, 3, 60, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), attnviz.record(model, **options) as recording:
        model(features)
    return recording


def test_long_attention_without_factors_is_pooled_as_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    pooled, dense = (recorded(monkeypatch, dense=dense) for dense in (None, True))
    whole = slice(0, 60), slice(0, 60)
    for ours, exact in zip(pooled.maps, dense.maps, strict=True):
        assert isinstance(ours, PooledMaps)
        assert isinstance(exact, DenseMaps)
        assert ours.item == exact.item
        seen, real = (maps.overview((0, 2), 5, 15, *whole) for maps in (ours, exact))
        np.testing.assert_allclose(seen.mean, real.mean, atol=1e-6)
        np.testing.assert_array_equal(seen.visible, real.visible)
        for measured, known in zip(measure(ours), measure(exact), strict=True):
            assert measured.values == pytest.approx(known.values, rel=1e-6, nan_ok=True)
            assert (measured.counts, measured.sink, measured.keys) == (known.counts, known.sink, known.keys)
    said = "blocks of 4 x 4 tokens were captured instead of single cells, because queries and keys are not known"
    assert any(said in remark for remark in pooled.remarks)
    assert not dense.remarks


def test_remark_names_the_block_of_each_pooled_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shortened(nn.Sequential):
        def forward(self, features: Tensor) -> Tensor:
            result: Tensor = self[1](self[0](features)[:, :, :56])
            return result

    monkeypatch.setattr("attnviz.maps.layer_maps.LONG_MAP_TOKENS", 50)
    monkeypatch.setattr("attnviz.maps.pooled.MAX_BLOCKS_A_SIDE", 28)
    model = Shortened(Additive(), Additive())
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, 3, 60, 4, generator=torch.Generator().manual_seed(1)))
    for layer, size in enumerate(("3 x 3", "2 x 2")):
        assert any(f"In layer {layer} blocks of {size} tokens" in remark for remark in recording.remarks)


def test_room_for_one_head_at_a_time_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    one = 2 * 2 * 60 * 60 * 4  # bytes of scores and weights of a head of two texts
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: one)
    monkeypatch.setattr("attnviz.capture.assembly.captured_call.MIN_CHECKED_BYTES", 0)
    assert isinstance(recorded(monkeypatch).maps[0], PooledMaps)
    with pytest.raises(AttnvizError, match="GB of memory"):
        recorded(monkeypatch, dense=True)


def test_pooled_recordings_are_saved_and_drawn_and_refuse_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Streams
) -> None:
    recording = recorded(monkeypatch)
    path = tmp_path / "run.safetensors"
    drawable(recording).save(path)
    for read, written in zip(load(path).maps, recording.maps, strict=True):
        assert isinstance(read, PooledMaps)
        assert isinstance(written, PooledMaps)
        for name in ("mean", "maximum", "counts"):
            np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
        for ours, real in zip(measure(read), measure(written), strict=True):
            assert ours.values == pytest.approx(real.values, nan_ok=True)
            assert (ours.counts, ours.sink) == (real.counts, real.sink)
    for suffix in ("png", "html", "svg", "pptx"):
        assert main(["show", str(path), "--heads", "0", "-o", str(tmp_path / f"map.{suffix}")]) == 0
    assert "entropy" in shell.run("heads", str(path), "--sort", "entropy")
    assert main(["show", str(path), "--sort", "entropy", "--top", "1"]) == 0
    shown = shell.run("show", str(path), "--heads", "0")
    assert "60 x 60 tokens in 15 x 15 cells" in " ".join(shown.split())
    assert "shows a part exactly" not in shown
    for command in (
        ["show", "--style", "weights"],
        ["show", "-o", str(tmp_path / "n.csv")],
        ["show", "--by", "words"],
        ["show", "--reduce", "mean"],
        ["compare", "--by", "words", "--with", str(path)],
    ):
        assert "pooled to blocks of 4 x 4 tokens" in shell.refused(command[0], str(path), *command[1:])
    assert not (tmp_path / "n.csv").exists()
    assert main(["compare", str(path), "--with", str(path), "-o", str(tmp_path / "change.svg")]) == 0
    shown = shell.words("compare", str(path), "--with", str(path))
    assert "a row is a block of 4 queries and a column a block of 4 keys, pooled at capture" in shown
    assert "shows a part exactly" not in shown


def pooled_recording(maps: DenseMaps) -> Recording:
    return Recording(maps=(replace(pooled_maps(maps), metrics=all_metrics(maps)),), model="a model")


def test_blocks_are_cells_whose_rows_are_those_of_the_tokens_joined() -> None:
    maps = whole_maps()
    [blocks] = block_cells([pooled_recording(maps)], Selection())
    rows, columns = (
        Groups(np.repeat(np.arange(BLOCKS), np.diff(block_edges(count, BLOCKS)))) for count in (QUERIES, KEYS)
    )
    joined = join_window(maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS)), rows, columns)
    window = cell_maps(blocks.maps[0]).window(maps.heads, slice(0, BLOCKS), slice(0, BLOCKS))
    np.testing.assert_allclose(window.weights, joined.weights, atol=1e-6)
    np.testing.assert_array_equal(window.visible, joined.visible)
    assert np.isnan(window.scores).all()
    assert "a block of 4 queries and a column a block of 5 keys" in blocks.remarks[0]
    part = cell_maps(blocks.maps[0]).window((2,), slice(3, 9), slice(1, 4))
    np.testing.assert_array_equal(part.weights[0], window.weights[2, 3:9, 1:4])


def test_numbers_of_blocks_are_those_of_their_tokens() -> None:
    maps = whole_maps()
    [blocks] = block_cells([pooled_recording(maps)], Selection())
    for ours, real in zip(measure(blocks.maps[0]), measure(maps), strict=True):
        assert ours.values == pytest.approx(real.values, rel=1e-6, nan_ok=True)
        assert ours.sink_label == real.sink_label


def test_changes_between_pooled_recordings_are_those_of_their_blocks() -> None:
    one, other = pooled_recording(whole_maps()), pooled_recording(whole_maps(causal=False))
    first = compare(one, other).numbers_of(0)
    whole = slice(0, BLOCKS), slice(0, BLOCKS)
    before, after = (cell_maps(each.maps[0]).window((0,), *whole) for each in block_cells([one, other], Selection()))
    variation = np.abs(after.weights - before.weights).sum() / 2 / BLOCKS
    assert first["variation_mean"] == pytest.approx(float(variation), rel=1e-6)
    assert first["entropy_a"] == pytest.approx(measure(one.maps[0])[0].values["entropy"])
    assert compare(one, one).column("variation_max")[0] == 0


def test_blocks_are_refused_beside_cells_and_of_a_part() -> None:
    maps = whole_maps()
    pooled = pooled_recording(maps)
    with pytest.raises(AttnvizError, match="was pooled to blocks of 4 x 5"):
        compare(pooled, Recording(maps=(maps,), model="a model"))
    with pytest.raises(AttnvizError, match="pooled to blocks; leave it out"):
        compare(pooled, pooled, Selection.parse(keys="0:3"))
    with pytest.raises(AttnvizError, match="was pooled to blocks of 4 x 5"):
        block_cells([Recording(maps=(pooled_maps(maps),), model="a model")], Selection())  # was not measured


def test_inspector_shows_blocks_and_says_so() -> None:
    maps = whole_maps()
    session = Session(pooled_recording(maps), file="run.safetensors")
    screen = Screen(session, Size(100, 40), 2**24)
    state = press(screen, State(), "enter")
    lines = shown_text(screen, state)
    assert "every cell is a block of 4 x 5 tokens" in lines
    assert "no scores are kept" in press(screen, state, "v").message
    session.ranking.name_patterns([0])
    assert session.ranking.frame.column("entropy")[0] == pytest.approx(measure(maps)[0].values["entropy"], rel=1e-6)
    small = Screen(session, Size(40, 12), 2**24)
    zoomed = press(small, press(small, press(small, State(), "enter"), "plus"), "plus")
    assert "--queries 0:18 --keys 0:30" in figure_command(small, zoomed)[0]  # 5 and 6 blocks
