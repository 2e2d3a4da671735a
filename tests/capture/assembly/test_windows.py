"""Attention within windows, put back into the whole map, against where each window's tokens are known to stand."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.assembly.windows import attention_windows, joined_windows
from attnviz.capture.flow.moved_rows import Origin
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.pooled import PooledMaps

SIDE, WINDOW, WIDTH, HEADS = 8, 4, 12, 2


@pytest.fixture(autouse=True)
def quiet_torch() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def windowed(grid: Tensor, shift: int) -> Tensor:
    """Windows of a grid ``(..., side, side, features)``, ``(windows, tokens, features)``."""
    texts, side, _, features = grid.shape
    moved = grid.roll((-shift, -shift), (1, 2))
    split = moved.reshape(texts, side // WINDOW, WINDOW, side // WINDOW, WINDOW, features)
    return split.transpose(2, 3).reshape(-1, WINDOW**2, features)


class WindowedAttention(nn.Module):
    """Attention of tokens within their window, by hand or by the kernel; alike tokens tell nothing of their place."""

    num_heads = HEADS
    transposed = staticmethod(lambda keys: keys.transpose(-1, -2))
    visible: Tensor | None = None  # which cells of a window each head sees, ``(heads, tokens, tokens)``; none for all

    def __init__(self, shift: int, by_hand: bool) -> None:
        super().__init__()
        self.project, self.shift, self.by_hand = nn.Linear(WIDTH, 3 * WIDTH), shift, by_hand

    def forward(self, x: Tensor) -> Tensor:
        grid = x.view(len(x), SIDE, SIDE, WIDTH)
        queries, keys, values = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.project(windowed(grid, self.shift)).chunk(3, dim=-1)
        )
        if self.by_hand:
            mixed = (queries @ self.transposed(keys)).softmax(-1) @ values
        else:
            mixed = functional.scaled_dot_product_attention(queries, keys, values, self.visible)
        moved: Tensor = x + mixed.mean()
        return moved


class Embedded(nn.Module):
    """A stack of it, after an embedding."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList([WindowedAttention(shift, by_hand) for shift in (0, 2)])

    def forward(self, pixels: Tensor) -> Tensor:
        x: Tensor = self.embed(pixels)
        for layer in self.layers:
            x = layer(x)
        return x


class WholeAttention(WindowedAttention):
    """Attention of each token to all."""

    def forward(self, x: Tensor) -> Tensor:
        parts = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1))
        moved: Tensor = x + functional.scaled_dot_product_attention(*parts).mean()
        return moved


def places(side: int, shift: int) -> np.ndarray[Any, Any]:
    """Which token stands where in each window, ``(windows, tokens)``."""
    return windowed(torch.arange(side * side).view(1, side, side, 1), shift)[..., 0].numpy()


@torch.no_grad()
def test_windows_of_a_second_pass_are_joined_after_attention_without_windows() -> None:
    model, texts = Embedded(by_hand=False), [torch.randn(1, SIDE**2, 3) for _ in range(2)]
    model.layers.append(WholeAttention(0, by_hand=False))
    expected: list[LayerMaps] = []
    for pixels in texts:
        with attnviz.record(model) as alone:
            model(pixels)
        expected += alone.maps
    with attnviz.record(model) as recording:
        for pixels in texts:
            model(pixels)
    found = sorted(recording.maps, key=lambda maps: maps.item)
    assert [(maps.layer, maps.item, len(maps.key_tokens)) for maps in found] == [
        (layer, item, SIDE**2) for item in (0, 1) for layer in (0, 1, 2)
    ]
    for maps, other in zip(found, expected, strict=True):
        assert isinstance(maps, DenseMaps)
        assert isinstance(other, DenseMaps)
        assert np.array_equal(maps.visible, other.visible)
        np.testing.assert_array_equal(maps.weights, other.weights)


@pytest.mark.parametrize("way", ["transpose", "mT", "kernel"])
@pytest.mark.parametrize("alike", [True, False])
@torch.no_grad()
def test_windows_stand_at_their_places_in_the_whole_map(way: str, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "mT":
        monkeypatch.setattr(WindowedAttention, "transposed", staticmethod(lambda keys: keys.mT))
    by_hand = way != "kernel"
    model, pixels = Embedded(by_hand), torch.randn(2, SIDE**2, 3)
    pixels = pixels[:, :1].expand_as(pixels) if alike else pixels
    bare = model(pixels)
    with attnviz.record(model) as recording:
        assert torch.equal(model(pixels), bare)
    assert [(maps.layer, maps.item, len(maps.query_tokens)) for maps in recording.maps] == [
        (layer, item, SIDE**2) for layer in (0, 1) for item in (0, 1)
    ]
    assert recording.remarks == (
        "Layers 0-1 attend within windows, 4 per text, each at its place in the whole map; "
        "cells between windows are hidden.",
    )
    x = model.embed(pixels)
    for layer, shift in enumerate((0, 2)):
        queries, keys, _ = model.layers[layer].project(x).chunk(3, dim=-1)  # type: ignore[operator]
        queries, keys = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (queries, keys))
        together = np.zeros((SIDE**2, SIDE**2), dtype=bool)
        for window in places(SIDE, shift):
            together[np.ix_(window, window)] = True
        scale = 1 if by_hand else (WIDTH // HEADS) ** -0.5
        scores = (queries @ keys.transpose(-1, -2) * scale).masked_fill(~torch.from_numpy(together), float("-inf"))
        for maps in recording.maps[2 * layer : 2 * layer + 2]:
            assert isinstance(maps, DenseMaps)
            assert np.array_equal(maps.visible, together)
            np.testing.assert_allclose(maps.weights, scores.softmax(-1)[maps.item], atol=1e-6)
        x = model.layers[layer](x)


@torch.no_grad()
def test_heads_that_see_different_cells_of_a_window_have_their_own_in_the_whole_map() -> None:
    model, seen = Embedded(by_hand=False), torch.rand(HEADS, WINDOW**2, WINDOW**2) < 0.6
    seen[..., 0] = True
    model.layers[1].visible = seen
    with attnviz.record(model) as recording:
        model(torch.randn(2, SIDE**2, 3))
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        together = np.zeros((HEADS, SIDE**2, SIDE**2), dtype=bool)
        for window in places(SIDE, 2 * maps.layer):
            together[:, *np.ix_(window, window)] = seen if maps.layer else True
        assert np.array_equal(maps.visible, together if maps.layer else together[0])
        assert not maps.weights[~together].any()


SWIN: dict[str, Any] = {"patch_size": 4, "embed_dim": WIDTH, "num_heads": [2, 3], "window_size": WINDOW}
MODELS: dict[str, Callable[[], Any]] = {
    "swin": lambda: transformers.SwinModel(transformers.SwinConfig(image_size=32, depths=[2, 1], **SWIN)),
    "swin 2": lambda: transformers.Swinv2Model(transformers.Swinv2Config(image_size=32, depths=[2, 1], **SWIN)),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_windows_of_a_model_are_those_that_it_returns(name: str) -> None:
    model = MODELS[name]().eval()
    if name == "swin":
        model.set_attn_implementation("eager")
    pixels = torch.randn(2, 3, 32, 32)
    returned: list[Tensor] = []
    hooks = [
        block.attention.register_forward_hook(lambda *called: returned.append(called[2][1]))
        for block in model.encoder.layers[0].blocks
    ]
    with attnviz.record(model) as recording:
        model(pixels, output_attentions=True)
    for hook in hooks:
        hook.remove()
    for layer, shift in ((0, 0), (1, WINDOW // 2)):
        windows = returned[layer].reshape(2, 4, -1, WINDOW**2, WINDOW**2)
        for maps in [maps for maps in recording.maps if maps.layer == layer]:
            assert isinstance(maps, DenseMaps)
            for number, window in enumerate(places(SIDE, shift)):
                shown = maps.weights[:, window][:, :, window]
                np.testing.assert_allclose(shown, windows[maps.item, number], atol=1e-6)


class Grouped(nn.Module):
    """Attends within groups of tokens that follow each other, or are sorted."""

    def __init__(self, sort: bool, group: int) -> None:
        super().__init__()
        self.sort, self.group = sort, group
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        groups = (x.sort(dim=1).values if self.sort else x).reshape(-1, self.group, WIDTH)
        output: Tensor = self.attention(groups, groups, groups)[0]
        return output


@pytest.mark.parametrize(
    ("model", "tokens", "groups", "why"),
    [
        (Grouped(True, WINDOW), 12, 3, "whose places are not known"),
        (Grouped(False, 300), 2100, 7, "whose whole map would be too large"),
    ],
    ids=["sorted", "long"],
)
@torch.no_grad()
def test_windows_that_are_not_put_together_are_said_to_be_shown_apart(
    model: Grouped, tokens: int, groups: int, why: str
) -> None:
    with attnviz.record(model, heads=[0]) as recording:
        model(torch.randn(2, tokens, WIDTH))
    assert len(recording.maps) == 2 * groups
    assert recording.remarks == (
        f"Layer 0 attends within windows or groups of tokens, {groups} per text, {why}; each is shown as a "
        "separate text, those of the first text first.",
    )


ROWS, COLUMNS = 3, 4


class AlongAxis(nn.Module):
    """Attention along the rows of a grid of tokens, or along its columns, transposed before the projection."""

    num_heads = HEADS

    def __init__(self, columns: bool) -> None:
        super().__init__()
        self.project, self.columns = nn.Linear(WIDTH, 3 * WIDTH), columns

    def forward(self, grid: Tensor) -> Tensor:
        lines = grid.transpose(1, 2) if self.columns else grid
        parts = self.project(lines.flatten(0, 1)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(lines.shape)
        return mixed.transpose(1, 2) if self.columns else mixed


class Axial(nn.Module):
    """Layers along axes of a grid, which is the input itself, or is made of it."""

    def __init__(self, made_by: str, columns: list[bool], residual: bool) -> None:
        super().__init__()
        self.made_by, self.residual = made_by, residual
        self.layers = nn.ModuleList(map(AlongAxis, columns))
        self.linear, self.words = nn.Linear(WIDTH, WIDTH), nn.Embedding(9, WIDTH)
        self.convolution, self.class_token = nn.Conv2d(3, WIDTH, 2, stride=2), nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        made_by: dict[str, Callable[[], Tensor]] = {
            "nothing": lambda: x,
            "linear": lambda: self.linear(x),
            "embedding": lambda: self.words(x),
            "convolution": lambda: self.convolution(x).flatten(2).transpose(1, 2),
            "patches": lambda: self.linear(x.reshape(-1, 3, ROWS, 2, COLUMNS, 2).permute(0, 2, 4, 1, 3, 5).flatten(3)),
            "a token in front": lambda: self.linear(torch.cat((self.class_token.expand(len(x), -1, -1), x), 1))[:, 1:],
        }
        grid = made_by[self.made_by]().reshape(-1, ROWS, COLUMNS, WIDTH)
        for layer in self.layers:
            grid = grid + layer(grid) if self.residual else layer(grid)
        return grid


def inputs_made_by(name: str) -> Tensor:
    if name == "embedding":
        return torch.randint(0, 9, (2, ROWS * COLUMNS))
    is_image = name in ("convolution", "patches")
    return torch.randn(2, 3, 2 * ROWS, 2 * COLUMNS) if is_image else torch.randn(2, ROWS * COLUMNS, WIDTH)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("made_by", ["nothing", "linear", "embedding", "convolution", "patches", "a token in front"])
@torch.no_grad()
def test_places_along_an_axis_are_claimed_only_where_every_step_was_followed(made_by: str, residual: bool) -> None:
    rows, columns = np.divmod(np.arange(ROWS * COLUMNS), COLUMNS)
    model = Axial(made_by, [True, False, True], residual)
    with attnviz.record(model) as recording:
        model(inputs_made_by(made_by))
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        if residual or maps.layer == 0:  # without a residual, nothing follows the tokens through the first layer
            along = rows if maps.layer == 1 else columns
            assert np.array_equal(maps.visible, along[:, None] == along)
        else:
            assert maps.visible.shape[-1] in (ROWS, COLUMNS)
    said = " ".join(recording.remarks)
    assert ("whose places are not known" in said) == (not residual)


@torch.no_grad()
def test_padding_that_takes_a_share_of_windows_is_said() -> None:
    sizes = {**SWIN, "embed_dim": 8, "num_heads": [2]}
    model = transformers.SwinModel(transformers.SwinConfig(image_size=24, depths=[2], **sizes)).eval()  # type: ignore[no-untyped-call]
    with attnviz.record(model) as recording:
        model(torch.randn(1, 3, 24, 24))
    weights = cell_maps(recording.maps[0]).window((0,), slice(0, 36), slice(0, 36)).weights
    assert (weights.sum(-1) < 0.99).any()
    assert any("windows were padded" in remark for remark in recording.remarks)


def origin(*windows: list[int], texts: int = 2, tokens: int = 4) -> Origin:
    """Tokens of these numbers, window by window, with two features each."""
    return Origin(torch.tensor(windows)[..., None].expand(-1, -1, 2), texts, tokens)


HALVES = [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_windows_are_known_by_the_numbers_of_their_tokens() -> None:
    found = attention_windows(origin(*HALVES), origin(*HALVES))
    assert found is not None
    assert found.texts.tolist() == [0, 0, 1, 1]
    assert found.keys.tolist() == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert found.shape == (2, 4, 4)


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (origin(*HALVES), origin([0], [2], [4], [6])),
        (origin([0, 1], [1, 2], [4, 5], [5, 6]), origin(*HALVES)),
        (origin([0, 1, 2, 3], [4, 5, 6, 7]), origin([0, 1, 2, 3], [4, 5, 6, 7])),
        (origin(*HALVES), origin([0, 4], [1, 5], [2, 6], [3, 7])),
        (origin(*HALVES), origin(*HALVES[::-1])),
        (origin(*HALVES), origin(*HALVES, [0, 1])),
        (origin(*HALVES), origin([0, 1], [2, 3], [5, 6], [7, 8], tokens=5)),
    ],
    ids=["one key each", "queries twice", "whole texts", "keys of two texts", "other texts", "more windows", "unlike"],
)
def test_other_parts_of_texts_are_no_windows(queries: Origin, keys: Origin) -> None:
    assert attention_windows(queries, keys) is None


@pytest.mark.parametrize(
    ("shape", "map_type", "largest"),
    [((3, HEADS, 2, 2), DenseMaps, 4), ((4, HEADS, 2, 2), PooledMaps, 4), ((4, HEADS, 2, 2), DenseMaps, 3)],
    ids=["other windows", "no cells", "large"],
)
def test_windows_without_a_whole_map_of_cells_are_not_joined(
    shape: tuple[int, ...], map_type: type, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.capture.assembly.windows.LONG_MAP_TOKENS", largest)
    windows = attention_windows(origin(*HALVES), origin(*HALVES))
    assert windows is not None
    call: Any = SimpleNamespace(shape=shape, map_type=map_type)
    assert joined_windows(call, windows) is None
