"""What a recording says of modules that attend in a way that is no map of queries and keys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.metrics.call_metrics import measure
from tests.conftest import cells

WIDTH, TOKENS, PLACES = 8, 6, 3


class Sampled(nn.Module):
    """Sums up what stands at places that each token chooses, by a softmax that sees none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.weights = nn.Linear(WIDTH, PLACES), nn.Linear(WIDTH, PLACES)

    def forward(self, x: Tensor) -> Tensor:
        places = (self.places(x).sigmoid() * (TOKENS - 1)).long()
        chosen = torch.stack([text[at] for text, at in zip(x, places, strict=True)])
        summed: Tensor = (self.weights(x).softmax(-1)[..., None] * chosen).sum(2)
        return summed


class SampledAttention(Sampled):
    """The same, called attention."""


class Layer(nn.Module):
    def __init__(self, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.MultiheadAttention(WIDTH, 2, batch_first=True), second

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.second(self.first(x, x, x)[0])
        return mixed


@pytest.mark.parametrize(
    ("second", "remarks"),
    [
        (
            SampledAttention(),
            ("Left out: second computes no softmax over queries x keys, but a softmax over features (2, 6, 3).",),
        ),
        (Sampled(), ()),
    ],
    ids=["attention", "another softmax"],
)
@torch.no_grad()
def test_module_that_is_called_attention_and_makes_no_map_is_said(second: nn.Module, remarks: tuple[str, ...]) -> None:
    model = Layer(second)
    with attnviz.record(model) as recording:
        model(torch.randn(2, TOKENS, WIDTH))
    assert [maps.module for maps in recording.maps] == ["first", "first"]
    assert recording.remarks == remarks


HEADS = 2


class Aside(nn.Module):
    """Attention by torch's kernel, whose weights are also computed by hand."""

    def __init__(self, kept: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.kept = nn.Linear(WIDTH, 3 * WIDTH), kept
        self.visible = torch.ones(HEADS, TOKENS, TOKENS).tril(1).bool()

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = queries @ keys.mT * queries.shape[-1] ** -0.5
        self.weights = scores.masked_fill(~self.visible, -torch.inf).softmax(-1)
        self.aside = self.kept(self.weights)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.visible)
        return mixed.transpose(1, 2).flatten(2)


@torch.no_grad()
def test_softmax_kept_aside_does_not_hide_the_attention_of_its_module() -> None:
    model = nn.Sequential(Aside(lambda weights: weights), Aside(lambda weights: weights.mean(1)))
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [(maps.layer, maps.module, maps.heads) for maps in recording.maps] == [(0, "0", (0, 1)), (1, "1", (0, 1))]
    for number, layer in enumerate(model):
        window = cells(recording, number).window((0, 1), slice(0, TOKENS), slice(0, TOKENS))
        assert isinstance(layer, Aside)
        np.testing.assert_allclose(window.weights, layer.weights[0], atol=1e-6)
    assert recording.remarks == (
        "Not shown: a softmax beside the attention of 0 and 1 other module; it multiplies no observed values.",
    )


@torch.no_grad()
def test_unused_softmax_over_a_single_row_of_scores_is_said() -> None:
    class Row(Aside):
        def forward(self, x: Tensor) -> Tensor:
            output = super().forward(x)
            powers = (x[0] @ x[0, 0]).exp()
            self.row = powers / powers.sum(0)
            return output

    model = Row(lambda weights: weights)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert recording.layers == (0,)
    assert recording.remarks[0].startswith("Not shown: a softmax beside the attention of the model itself")


@torch.no_grad()
def test_softmax_of_another_shape_beside_attention_still_is_attention_that_was_not_seen() -> None:
    model = Aside(lambda weights: weights[..., :3].softmax(-1))
    with pytest.raises(AttnvizError, match=r"multiplies no observed values \(1, 2, 6, 3\)"):  # noqa: SIM117
        with attnviz.record(model):
            model(torch.randn(1, TOKENS, WIDTH))


class HidingRows(nn.Module):
    """Attention whose mask hides all keys of the last queries, as padding on the wrong axis does."""

    def __init__(self, number: float, by_kernel: bool) -> None:
        super().__init__()
        self.project, self.by_kernel = nn.Linear(WIDTH, 3 * WIDTH), by_kernel
        self.mask = torch.zeros(TOKENS, TOKENS)
        self.mask[-2:] = number

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.by_kernel:
            return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask)
        mixed: Tensor = (queries @ keys.mT * queries.shape[-1] ** -0.5 + self.mask).softmax(-1) @ values
        return mixed


@pytest.mark.parametrize(("number", "by_kernel"), [(-1e4, True), (-1e4, False), (-torch.inf, True)])
@torch.no_grad()
def test_rows_that_hide_all_keys_by_finite_numbers_are_said_to_average_them(number: float, by_kernel: bool) -> None:
    model = HidingRows(number, by_kernel)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    said = ("In layer 0 some queries see no key; the model averages the values of all keys there, which is not shown.",)
    assert recording.remarks == (said if number > -torch.inf else ())


class PooledQueries(nn.Module):
    """Attends from pooled queries to all tokens, or from new tokens to these and earlier ones, as in a cache."""

    def __init__(self, pool: Callable[[Tensor], Tensor] | nn.Module, cached: int = 0) -> None:
        super().__init__()
        self.pool, self.cached = pool, cached
        self.queries, self.keys = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pool(x.mT).mT
        earlier = torch.rand(len(x), self.cached, WIDTH)  # which no function of this pass computed from the input
        keys = torch.cat([earlier, self.keys(x)], 1)[:, None]
        return functional.scaled_dot_product_attention(self.queries(pooled)[:, None], keys, keys)


POOLS: dict[str, Callable[[Tensor], Tensor] | nn.Module] = {
    "largest": lambda x: functional.max_pool1d(x, 2),
    "mean": nn.AvgPool1d(2),
    "mean in two axes": lambda x: functional.adaptive_avg_pool2d(x, (WIDTH, 3)),
    "convolution": nn.Conv1d(WIDTH, WIDTH, 2, 2),
}


@pytest.mark.parametrize("name", POOLS)
@torch.no_grad()
def test_pooled_queries_have_no_places_among_the_keys(name: str, tmp_path: Path) -> None:
    model = PooledQueries(POOLS[name])
    with attnviz.record(model, tokens=list("abcdef")) as recording:
        model(torch.rand(1, TOKENS, WIDTH))
    recording.save(tmp_path / "run.safetensors")
    for maps in (recording.maps[0], attnviz.load(tmp_path / "run.safetensors").maps[0]):
        assert maps.kind == "self"
        assert not maps.has_common_places
        assert (maps.query_tokens.labels, maps.key_tokens.labels) == (("0", "1", "2"), tuple("abcdef"))
        values = measure(cell_maps(maps))[0].values
        assert np.isnan([values["distance"], values["previous"], values["self"]]).all()
        assert values["entropy"] > 0


@pytest.mark.parametrize("pool", [nn.Conv1d(WIDTH, WIDTH, 3, padding=1), lambda x: x[..., -2:]], ids=["mixed", "last"])
@torch.no_grad()
def test_fewer_queries_that_are_single_tokens_have_places_among_the_keys(pool: Any) -> None:
    model = PooledQueries(pool, cached=3)
    with attnviz.record(model) as recording:
        model(torch.rand(1, TOKENS, WIDTH))
    [maps] = recording.maps
    assert len(maps.query_tokens) < len(maps.key_tokens)
    assert maps.has_common_places
    assert not np.isnan(measure(cell_maps(maps))[0].values["distance"])
