"""Heads of a layer that see different cells: each is shown and measured as if recorded alone."""

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import attnviz
from attnviz.api.drawing import DrawOptions, report_options
from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError
from attnviz.browse.session.blocks import InspectedHead, pooled_blocks
from attnviz.browse.session.state import View
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.derived import contributions_of
from attnviz.maps.grouped import regroup
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load
from attnviz.metrics.call_metrics import measure
from attnviz.metrics.change import compare
from attnviz.metrics.combine import reduce_heads
from attnviz.report.build import build_report
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import tokenize
from tests.streams import Streams

TEXT = "to be, or not to be: that is"
HEADS, TEXTS, WIDTH = 4, 2, 20
TOKENS = replace(tokenize(TEXT), special=np.arange(10) == 9)
COUNT = len(TOKENS)


def masks(count: int = COUNT) -> Tensor:
    """Causal, one token to either side, random of the first keys alone, and the random ones again; ``(4, q, k)``."""
    places = torch.arange(count)
    random = torch.rand(count, count, generator=torch.Generator().manual_seed(3)) < 0.5
    random[:, 0], random[:, count - 3 :] = True, False
    away = places[:, None] - places
    return torch.stack([away >= 0, away.abs() <= 1, random, random])


class OwnMasks(nn.Module):
    """Attention whose heads have a mask each, given to a kernel or added before a softmax."""

    num_heads = HEADS

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.project, self.out = how, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = self.project(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return queries * 3, keys, values

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.split(x)
        visible = masks(x.shape[1])
        if self.how == "kernel":
            mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, visible)
        elif self.how == "added":
            added = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
            mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, added)
        else:
            scores = queries @ keys.mT * queries.shape[-1] ** -0.5
            mixed = scores.masked_fill(~visible, -1e9).softmax(-1) @ values
        output: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return output


WAYS = ("kernel", "added", "by hand")


class HeadModules(nn.Module):
    """The same attention with a module for each head, as lectures write it."""

    def __init__(self, whole: OwnMasks) -> None:
        super().__init__()
        self.heads = nn.ModuleList([HeadModule(whole, head) for head in range(HEADS)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class HeadModule(nn.Module):
    """One of these heads."""

    def __init__(self, whole: OwnMasks, head: int) -> None:
        super().__init__()
        self.is_whole_map, self.head = [whole], head

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (each[:, self.head] for each in self.is_whole_map[0].split(x))
        scores = queries @ keys.mT * queries.shape[-1] ** -0.5
        mixed: Tensor = scores.masked_fill(~masks(x.shape[1])[self.head], float("-inf")).softmax(-1) @ values
        return mixed


def read(count: int = COUNT) -> Tensor:
    return torch.randn(TEXTS, count, WIDTH, generator=torch.Generator().manual_seed(5))


@cache
def recorded(how: str, head: int | None = None, values: bool = False, size: float = 1) -> Recording:
    """All heads, or one alone, of features ``size`` times as large."""
    model, chosen = OwnMasks(how).eval(), None if head is None else [head]
    with torch.no_grad(), attnviz.record(model, tokens=[TOKENS] * TEXTS, heads=chosen, values=values) as recording:
        model(read() * size)
    return Recording(**vars(recording))


def truth(how: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Scores and weights in float64, ``(texts, heads, queries, keys)``, and the masks."""
    queries, keys, _ = (each.detach().double().numpy() for each in OwnMasks(how).split(read()))
    scores, seen = queries @ keys.swapaxes(-1, -2) * queries.shape[-1] ** -0.5, masks().numpy()
    powers = np.where(seen, np.exp(scores), 0)
    return scores, powers / powers.sum(-1, keepdims=True), seen


def dense(maps: LayerMaps) -> DenseMaps:
    assert isinstance(maps, DenseMaps)
    return maps


def whole(maps: CellMaps) -> tuple[slice, slice]:
    return slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))


@pytest.mark.parametrize("how", WAYS)
def test_each_head_has_its_own_cells(how: str) -> None:
    recording, (scores, weights, seen) = recorded(how), truth(how)
    assert not any("see different cells" in remark for remark in recording.remarks)
    for maps in map(dense, recording.maps):
        np.testing.assert_array_equal(maps.visible, seen)
        np.testing.assert_allclose(maps.weights, weights[maps.item], atol=1e-6)
        np.testing.assert_allclose(maps.scores[seen], scores[maps.item][seen], atol=1e-5)
        for head in range(HEADS):
            window = maps.window((head,), slice(2, 7), slice(1, 9))
            np.testing.assert_array_equal(window.visible, seen[head, 2:7, 1:9])
            np.testing.assert_array_equal(maps.visible_key_counts(head, slice(2, 7)), seen[head, 2:7].sum(-1))
        np.testing.assert_array_equal(maps.window((3, 1), *whole(maps)).visible, seen[[3, 1]])
        np.testing.assert_array_equal(maps.window((2, 3), *whole(maps)).visible, seen[2])
        assert maps.head_groups((3, 1, 0, 2)) == [(3, 2), (1,), (0,)]


def test_modules_of_one_head_each_have_their_own_cells() -> None:
    model, (_, weights, seen) = HeadModules(OwnMasks("by hand")), truth("by hand")
    with torch.no_grad(), attnviz.record(model) as recording:
        model(read())
    for maps in map(dense, recording.maps):
        np.testing.assert_array_equal(maps.visible, seen)
        np.testing.assert_allclose(maps.weights, weights[maps.item], atol=1e-6)


def test_heads_that_see_the_same_hold_it_once() -> None:
    model = OwnMasks("kernel")
    with torch.no_grad(), attnviz.record(model, heads=[3, 2]) as recording:
        model(read())
    for maps in map(dense, recording.maps):
        np.testing.assert_array_equal(maps.visible, masks()[2])


@pytest.mark.parametrize("how", WAYS)
def test_relative_entropy_is_over_the_keys_that_the_head_itself_sees(how: str) -> None:
    _, weights, seen = truth(how)
    counts = seen.sum(-1)
    for maps in recorded(how).maps:
        own = weights[maps.item]
        entropy = -np.sum(own * np.log2(np.where(own > 0, own, 1)), axis=-1)
        for head, numbers in enumerate(measure(maps)):
            is_padding = np.arange(COUNT) > np.flatnonzero(seen[head].any(axis=0))[-1]  # for this head
            rows = (counts[head] > 1) & ~is_padding
            expected = (entropy[head][rows] / np.log2(counts[head][rows])).mean()
            assert numbers.values["relative-entropy"] == pytest.approx(expected, abs=1e-5)
            assert numbers.keys == seen[head].any(0).sum()
            assert numbers.head == head


Reader = Callable[[Recording, int], Any]


def metrics(recording: Recording, head: int) -> list[Any]:
    found = [one for maps in recording.maps for one in measure(maps) if one.head == head]
    return [list(vars(one).values()) for one in found]


def words(recording: Recording, head: int) -> list[Any]:
    grouped = regroup(recording, Selection(), Grouping(words=True))
    windows = [maps.window(maps.heads, *whole(maps)) for maps in map(cell_maps, grouped.maps)]
    assert all(len(window.weights) == len(recording.maps[0].heads) for window in windows)
    return [*arrays(grouped, head), *metrics(grouped, head)]


def arrays(recording: Recording, head: int) -> list[Any]:
    windows = [maps.window((head,), *whole(maps)) for maps in map(cell_maps, recording.maps)]
    return [array for window in windows for array in (window.weights, window.visible)]


def contributions(recording: Recording, head: int) -> list[Any]:
    return [*arrays(contributions_of(recording), head), *metrics(contributions_of(recording), head)]


def without_special(recording: Recording, head: int) -> list[Any]:
    grouped = regroup(recording, Selection(), Grouping(special=False, renormalize=True))
    return arrays(grouped, head)


def inspected(recording: Recording, head: int) -> list[Any]:
    blocks = []
    for maps in map(cell_maps, recording.maps):
        heads = [InspectedHead(maps, each) for each in maps.heads]
        blocks.append(pooled_blocks(heads, View(), *whole(maps), 3, 4)[maps.heads.index(head)])
    return [array for block in blocks for array in (block.values, block.visible)]


def first_text(recording: Recording) -> Recording:
    maps = replace(recording.maps[0], fidelity=0.0)  # of all recorded heads, and rounding alone
    return replace(recording, maps=(maps,), remarks=())


def drawn(suffix: str, **options: Any) -> Reader:
    return lambda recording, head: attnviz.draw(first_text(recording), suffix, heads=f"0.{head}", **options)


def panels(**options: Any) -> Reader:
    def reader(recording: Recording, head: int) -> list[Any]:
        chosen = cast("DrawOptions", {"heads": f"0.{head}", **options})
        report = build_report(first_text(recording), report_options(chosen))
        assert isinstance(report, DrawnReport)
        names = ("values", "visible", "levels", "visible_key_counts", "scale")
        return [getattr(panel, name) for panel in report.panels for name in names]

    return reader


READERS: dict[str, Reader] = {
    "metrics": metrics,
    "words": words,
    "contributions": contributions,
    "renormalized": without_special,
    "inspector": inspected,
    "csv": drawn(".csv"),
    "json": drawn(".json"),
    "heatmap": panels(),
    "lift": panels(color_scale="lift"),
    "arcs": panels(style="arcs"),
    "text": panels(style="text", query="not"),
    "page": drawn(".html"),
    "words csv": drawn(".csv", words=True),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_head_reads_as_if_it_had_been_recorded_alone(reader: str) -> None:
    for head in range(HEADS):
        found, expected = (
            READERS[reader](recorded("by hand", only, reader == "contributions"), head) for only in (None, head)
        )
        same(found, expected)


def same(found: Any, expected: Any) -> None:
    if isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(found, np.ndarray):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    elif isinstance(found, dict):
        assert found == pytest.approx(expected, nan_ok=True, abs=1e-6)
    else:
        assert found == expected


def test_files_hold_each_heads_cells_and_say_so_only_where_heads_differ(tmp_path: Path) -> None:
    for name, recording in (("own", recorded("added")), ("alone", recorded("added", 1))):
        path = tmp_path / f"{name}.safetensors"
        drawable(recording).save(path)
        again = load(path)
        assert again.remarks == recording.remarks
        assert again.doubts == ()
        assert (b"by_head" in path.read_bytes()) == (name == "own")
        for one, other in zip(map(dense, again.maps), map(dense, recording.maps), strict=True):
            for array in ("scores", "weights", "visible"):
                np.testing.assert_array_equal(getattr(one, array), getattr(other, array))
            same(
                [list(vars(each).values()) for each in measure(one)],
                [list(vars(each).values()) for each in measure(other)],
            )


def test_cells_of_another_shape_than_the_maps_are_refused() -> None:
    maps = dense(recorded("kernel").maps[0])
    with pytest.raises(AttnvizError, match=r"visible has shape \(3, 10, 10\), not \(4, 10, 10\)"):
        replace(maps, visible=maps.visible[:3])
    with pytest.raises(AttnvizError, match=r"visible has shape \(9, 10\), not \(10, 10\)"):
        replace(maps, visible=maps.visible[0, :9])


def test_comparing_is_of_each_heads_own_cells() -> None:
    one, other = ([recorded("kernel", head, size=size) for head in (None, 0, 1, 2, 3)] for size in (1, 2))
    together, *alone = (compare(a, b) for a, b in zip(one, other, strict=True))
    assert [row.name for row in together.rows] == [
        row.name for rows in zip(*(each.rows for each in alone), strict=True) for row in rows
    ]
    expected = np.stack([each.values for each in alone], axis=1).reshape(together.values.shape)
    assert (together.column("variation_mean") > 0.01).all()
    np.testing.assert_allclose(together.values, expected, rtol=1e-6, atol=1e-5)


def test_heads_combined_are_means_over_those_that_see_the_cell() -> None:
    maps, (_, weights, seen) = dense(recorded("kernel").maps[1]), truth("kernel")
    heads: list[tuple[CellMaps, int]] = [(maps, head) for head in range(HEADS)]
    mean = reduce_heads(heads, "mean")
    window = mean.window((0,), *whole(mean))
    np.testing.assert_allclose(window.weights[0], weights[1].sum(0) / np.maximum(seen.sum(0), 1), atol=1e-6)
    np.testing.assert_array_equal(window.visible, seen.any(0))


@pytest.mark.parametrize("how", ["kernel", "by hand"])
def test_long_heads_that_see_different_cells_are_pooled_each_over_its_own_and_said(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.maps.layer_maps.LONG_MAP_TOKENS", 50)
    monkeypatch.setattr("attnviz.maps.pooled.MAX_BLOCKS_A_SIDE", 20)
    count, model = 60, OwnMasks(how)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(read(count))
    assert recording.remarks[0] == (
        "In layer 0 blocks of 3 x 3 tokens were captured instead of single cells, because its heads see different "
        "cells: edges are exact to one block; use a dense recording for every cell."
    )
    with torch.no_grad(), attnviz.record(model, dense=True) as exact:
        model(read(count))
    for maps, cells in zip(recording.maps, map(dense, exact.maps), strict=True):
        assert isinstance(maps, PooledMaps)
        assert maps.head_groups(maps.heads) == [(0,), (1,), (2, 3)]
        assert cells.visible.shape == (HEADS, count, count)
        for head in range(HEADS):
            found, expected = (one.overview((head,), 20, 10, *whole(cells)) for one in (maps, cells))
            np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
            np.testing.assert_array_equal(found.visible, expected.visible)
            np.testing.assert_allclose(maps.visible_key_counts(head, slice(0, count)).sum(), masks(count)[head].sum())
        for found_numbers, numbers in zip(measure(maps), measure(cells), strict=True):
            assert found_numbers.values == pytest.approx(numbers.values, rel=1e-5, nan_ok=True)


def test_pooled_texts_of_a_batch_keep_their_own_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Padded(nn.Module):
        num_heads = HEADS

        def forward(self, features: Tensor) -> Tensor:
            scores = torch.tanh(features[:, :, :, None] + features[:, :, None]).sum(-1)
            return scores.masked_fill(~real[:, None, None], float("-inf")).softmax(-1) @ features

    def refuse(needed_bytes: int, subject: str, remedy: str) -> None:
        checked.append((needed_bytes, subject))

    checked: list[tuple[int, str]] = []
    monkeypatch.setattr("attnviz.capture.assembly.captured_call.refuse_without_memory", refuse)
    monkeypatch.setattr("attnviz.capture.assembly.captured_call.MIN_CHECKED_BYTES", 0)
    monkeypatch.setattr("attnviz.maps.layer_maps.LONG_MAP_TOKENS", 50)
    real = torch.arange(60) < torch.tensor([[60], [41]])
    model = Padded()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(TEXTS, HEADS, 60, 5))
    for maps, keys in zip(recording.maps, (60, 41), strict=True):
        assert isinstance(maps, PooledMaps)
        assert maps.counts.sum() == 60 * keys
    # scores and weights of one head of both texts, in float32
    assert checked == [(2 * TEXTS * 60 * 60 * 4, "1 head of layer 0 over 60 tokens")]


def test_chosen_heads_are_kept_by_their_own_rows_that_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, visible)

    monkeypatch.setattr("attnviz.capture.assembly.captured_call.MAX_DENSE_CELLS", 100)
    visible = torch.ones(1, 3, 20, 20, dtype=torch.bool).tril()
    visible[0, 1:, 7], visible[0, 0, 11] = False, False
    model = Empty()
    with torch.no_grad(), attnviz.record(model, heads=[2, 1]) as recording:
        model(torch.randn(1, 3, 20, 4))
    [maps] = recording.maps
    assert isinstance(maps, FactoredMaps)
    window = maps.window((2, 1), *whole(maps))
    np.testing.assert_array_equal(window.visible, visible[0, 1])
    np.testing.assert_allclose(window.weights.sum(-1)[0], np.arange(20) != 7, atol=1e-6)
    logsumexp = np.asarray(maps.factors.logsumexp)
    np.testing.assert_array_equal(logsumexp[:, 7], -np.inf)
    assert np.isfinite(np.delete(logsumexp, 7, axis=1)).all()


@pytest.mark.parametrize("how", WAYS)
def test_chosen_heads_that_see_the_same_are_kept_as_factors(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.maps.layer_maps.LONG_MAP_TOKENS", 50)
    monkeypatch.setattr("attnviz.capture.assembly.captured_call.MAX_DENSE_CELLS", 50**2)
    model = OwnMasks(how)
    found = []
    for is_dense in (None, True):
        with torch.no_grad(), attnviz.record(model, heads=[3, 2], dense=is_dense) as recording:
            model(read(60))
        found.append(recording)
    for maps, cells in zip(found[0].maps, map(dense, found[1].maps), strict=True):
        assert isinstance(maps, FactoredMaps)
        one, other = (each.window((3, 2), *whole(cells)) for each in (maps, cells))
        np.testing.assert_array_equal(one.visible, masks(60)[2])
        np.testing.assert_array_equal(other.visible, masks(60)[2])
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_commands_take_such_a_file(tmp_path: Path, shell: Streams) -> None:
    drawable(recorded("by hand")).save(tmp_path / "own.safetensors")
    drawable(recorded("by hand", 1)).save(tmp_path / "alone.safetensors")
    found = {}
    for name in ("own", "alone"):
        file, table = str(tmp_path / f"{name}.safetensors"), tmp_path / f"{name}.csv"
        assert main(["heads", file, "-o", str(table)]) == 0
        rows = [row for row in csv.DictReader(table.read_text().splitlines()) if row["head"] == "1"]
        found[name] = rows, shell.run("show", file, "--heads", "0.1", "--style", "weights")
    assert found["own"] == found["alone"]
    assert found["own"][1].count("·") > 100
