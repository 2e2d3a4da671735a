"""What is attention is decided by what scores are made of and what weights multiply, and heads by their origin."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.recording import Recording

BATCH, TOKENS, WIDTH, COUNT = 2, 5, 12, 4


class Written(nn.Module):
    """Projections, and attention written as a function of them; no name says how many heads there are."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        return self.write(*self.qkv(x).chunk(3, -1))


def split(part: Tensor) -> Tensor:
    """``(batch, tokens, heads, features)``."""
    return part.reshape(*part.shape[:-1], COUNT, -1)


def folded(part: Tensor) -> Tensor:
    return split(part).transpose(1, 2).flatten(0, 1)


def heads_first(part: Tensor) -> Tensor:
    return split(part).permute(2, 0, 1, 3).flatten(0, 1)


def by_folded_heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.bmm(torch.bmm(folded(queries), folded(keys).transpose(1, 2)).softmax(-1), folded(values))


def by_heads_first(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.bmm(torch.bmm(heads_first(queries), heads_first(keys).mT).softmax(-1), heads_first(values))


def by_einsum(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    weights = torch.einsum("bqhd,bkhd->bqhk", split(queries), split(keys)).softmax(-1)
    return torch.einsum("bqhk,bkhd->bqhd", weights, split(values))


def by_keys_before_heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    weights = torch.einsum("bqhd,bkhd->bqkh", split(queries), split(keys)).softmax(2)
    return torch.einsum("bqkh,bkhd->bqhd", weights, split(values))


def by_keys_first(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2) for part in (queries, keys, values)]
    mixed: Tensor = (parts[1] @ parts[0].mT).softmax(-2).mT @ parts[2]
    return mixed


def by_five_axes(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2).reshape(BATCH, 2, 2, TOKENS, -1) for part in (queries, keys, values)]
    mixed: Tensor = (parts[0] @ parts[1].mT).softmax(-1) @ parts[2]
    return mixed


def by_broadcasting(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2) for part in (queries, keys, values)]
    weights = (parts[0].unsqueeze(-2) * parts[1].unsqueeze(-3)).sum(-1).softmax(-1)
    return (weights.unsqueeze(-1) * parts[2].unsqueeze(-3)).sum(-2)


def of_heads(normalise: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def write(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        parts = [split(part).transpose(1, 2) for part in (queries, keys, values)]
        return normalise(parts[0] @ parts[1].mT) @ parts[2]

    return write


def powers_by_their_sum(scores: Tensor) -> Tensor:
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def by_heads_first_in_place(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2).contiguous() for part in (queries, keys, values)]
    scores = (parts[0] @ parts[1].transpose_(-1, -2)).transpose_(0, dim1=1)
    mixed: Tensor = scores.softmax(-1).swapaxes_(0, 1) @ parts[2]
    return mixed


def by_one_more_axis_in_place(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2).contiguous().unsqueeze_(1) for part in (queries, keys, values)]
    mixed: Tensor = (parts[0] @ parts[1].mT).unsqueeze_(0).softmax(-1).squeeze_((0, 2)) @ parts[2].squeeze_()
    return mixed


def by_a_cache(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).transpose(1, 2) for part in (queries, keys, values)]
    cache, cached = parts[1].new_zeros(2, *parts[1].shape), torch.zeros(parts[2].shape)
    cache[0][:, :, :TOKENS] = parts[1]
    cached[:, :, :TOKENS].copy_(parts[2])
    mixed: Tensor = (parts[0] @ cache[0].mT).softmax(-1) @ cached
    return mixed


WAYS = {
    "a cache": by_a_cache,
    "heads first in place": by_heads_first_in_place,
    "one more axis in place": by_one_more_axis_in_place,
    "folded": by_folded_heads,
    "heads first": by_heads_first,
    "einsum": by_einsum,
    "softmax over the axis before the last": by_keys_before_heads,
    "keys first": by_keys_first,
    "five axes": by_five_axes,
    "broadcasting": by_broadcasting,
    "exp / sum": of_heads(powers_by_their_sum),
    "log_softmax": of_heads(lambda scores: scores.log_softmax(-1).exp()),
    "logsumexp": of_heads(lambda scores: (scores - scores.logsumexp(-1, keepdim=True)).exp()),
    "aten": of_heads(lambda scores: torch.ops.aten._softmax(scores, -1, False)),
}


@pytest.mark.parametrize("way", WAYS)
@torch.no_grad()
def test_texts_heads_and_queries_are_told_apart_however_attention_is_written(way: str) -> None:
    torch.manual_seed(0)
    written, x = Written(WAYS[way]), torch.randn(BATCH, TOKENS, WIDTH)
    model = nn.Sequential(written)
    with attnviz.record(model) as recording:
        model(x)
    queries, keys, _ = (split(part).transpose(1, 2).double() for part in written.qkv(x).chunk(3, -1))
    expected = (queries @ keys.mT).softmax(-1)
    assert [maps.item for maps in recording.maps] == [0, 1]
    scores = queries @ keys.mT
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        np.testing.assert_allclose(maps.weights, expected[maps.item], atol=1e-6)
        np.testing.assert_allclose(maps.scores, scores[maps.item], atol=1e-5)
        assert maps.fidelity is not None
        assert maps.fidelity < 1e-5


def powers_without_another_maximum(scores: Tensor) -> Tensor:
    powers = (scores - scores.relu().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


@torch.no_grad()
def recorded_with_scores(normalise: Callable[[Tensor], Tensor]) -> tuple[Recording, DenseMaps, Tensor]:
    """A recording of scores normalised so, its only maps, and these scores, ``(heads, queries, keys)``."""
    written, x = Written(of_heads(normalise)), torch.randn(1, TOKENS, WIDTH)
    model = nn.Sequential(written)
    with attnviz.record(model) as recording:
        model(x)
    queries, keys, _ = (split(part).transpose(1, 2) for part in written.qkv(x).chunk(3, -1))
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    return recording, maps, (queries @ keys.mT)[0]


def test_powers_by_their_sum_are_weights_whatever_was_subtracted() -> None:
    _, maps, scores = recorded_with_scores(powers_without_another_maximum)
    np.testing.assert_allclose(maps.weights, scores.softmax(-1), atol=1e-6)


@torch.no_grad()
def test_queries_and_keys_of_a_long_text_are_known_from_their_product_whichever_stands_first() -> None:
    model = nn.Sequential(Written(by_keys_first))
    with attnviz.record(model) as recording:
        model(torch.randn(1, 300, WIDTH))
    assert isinstance(recording.maps[0], FactoredMaps)


def linear_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return split(queries).softmax(-1).transpose(1, 2) @ (
        split(keys).permute(0, 2, 3, 1).softmax(-1) @ split(values).transpose(1, 2)
    )


def over_channels(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    parts = [split(part).permute(0, 2, 3, 1) for part in (queries, keys, values)]
    return (parts[0] @ parts[1].mT).softmax(-1) @ parts[2]


def rectified(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    products = queries.unsqueeze(-2) * keys.unsqueeze(-3)
    return products.relu().sum(-1).softmax(-1) @ values


def by_landmarks(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    landmarks = queries[:, :2], keys[:, :2]
    near, far = (queries @ landmarks[1].mT).softmax(-1), (landmarks[0] @ keys.mT).softmax(-1)
    return (near @ far) @ values


def summed_over_heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    weights = torch.einsum("bqhd,bkhd->bqkh", split(queries), split(keys)).softmax(2)
    return torch.einsum("bqkh,bkhd->bqd", weights, split(values))


def joined_to_others(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    weights = (queries @ keys.mT).softmax(-1)
    return torch.cat((weights, queries[..., :2]), dim=-1) @ torch.cat((values, values[:, :2]), dim=1)


def pooled(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    features = torch.cat((queries, queries.tanh()), dim=-1)
    return torch.nn.functional.linear(features, torch.ones(3, 2 * WIDTH)).mT.softmax(-1) @ values


def gate(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    experts = torch.stack([queries, keys, values], dim=-2)
    return (queries[..., :3].softmax(-1).unsqueeze(-2) @ experts).squeeze(-2)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (linear_attention, "no product of queries and keys gave"),
        (over_channels, "attention over channels"),
        (gate, "no attention call .* computes a softmax over features"),
        (lambda queries, keys, values: queries.softmax(-1), "no attention call in the forward pass"),
        (by_landmarks, "weights that multiply other weights"),
        (summed_over_heads, "computes no softmax over queries x keys"),
        (joined_to_others, "computes no softmax over queries x keys"),
        (pooled, "no product of queries and keys gave"),
        (rectified, "no product of queries and keys gave"),
    ],
)
@torch.no_grad()
def test_what_is_no_map_of_tokens_is_refused_and_named(other: Callable[..., Tensor], says: str) -> None:
    attention = nn.Sequential(Written(other))
    with pytest.raises(AttnvizError, match=says), attnviz.record(attention):
        attention(torch.randn(BATCH, TOKENS, WIDTH))


class OfInputs(nn.Module):
    """Linear attention of queries, keys and values that are its inputs."""

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return queries.softmax(-1) @ (keys.mT @ values)


@torch.no_grad()
def test_softmax_of_an_input_that_multiplies_a_product_of_keys_and_values_is_refused() -> None:
    model, x = OfInputs(), torch.randn(BATCH, TOKENS, WIDTH)
    with pytest.raises(AttnvizError, match="multiplies a product made of keys and values"), attnviz.record(model):
        model(x, x + 1, x + 2)


@pytest.mark.parametrize("hard", [True, False])
def test_a_softmax_with_noise_is_recorded_and_said(hard: bool) -> None:
    kept: list[Tensor] = []

    def noisy(scores: Tensor) -> Tensor:
        kept.append(functional.gumbel_softmax(scores, hard=hard))
        return kept[-1]

    recording, maps, _ = recorded_with_scores(noisy)
    assert isinstance(maps, DenseMaps)
    np.testing.assert_array_equal(maps.weights, kept[-1][0].detach())
    assert maps.visible.all()
    assert recording.remarks == (
        "In layer 0 the softmax adds noise to the scores (Gumbel), and the scores with it are unknown.",
    )


def test_sigmoids_that_multiply_values_are_recorded_and_said() -> None:
    recording, maps, scores = recorded_with_scores(torch.sigmoid)
    np.testing.assert_allclose(maps.weights, scores.sigmoid(), atol=1e-6)
    assert recording.remarks == ("In layer 0 the weights are sigmoids of the scores, and their rows do not sum to 1.",)


class Two(nn.Module):
    """Attention of one text to another, in a module whose name does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weights: Tensor = (self.queries(x) @ self.keys(y).mT / math.sqrt(WIDTH)).softmax(-1)
        return weights @ y


class Cached(Two):
    """The same with keys that are written into a buffer."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, TOKENS, WIDTH))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.cache[:, :] = self.keys(y)
        return torch.softmax(self.queries(x) @ self.cache.mT, -1) @ y


class InParts(Two):
    """The same with keys that are written into two parts of a new tensor, as in DeepSeek V3."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        keys = y.new_empty(1, TOKENS, WIDTH)
        keys[..., :2].copy_(self.keys(y)[..., :2])
        keys[..., 2:].copy_(self.keys(y)[..., 2:])
        return functional.scaled_dot_product_attention(self.queries(x)[:, None], keys[:, None], y[:, None])[:, 0]


class Joined(Two):
    """Attention to the other text and its own."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x, torch.cat((y, x), dim=1))


class Layers(nn.Module):
    """Two layers that look at the same other text."""

    def __init__(self, kind: type[Two]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([kind(), kind()])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, y)
        return x


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("of", [Two, Cached, InParts])
def test_keys_of_another_input_make_attention_cross_and_keys_of_the_same_self(of: type[Two], inference: bool) -> None:
    model, x = Layers(of), torch.randn(1, TOKENS, WIDTH)
    for other, kind in ((torch.randn(1, TOKENS, WIDTH), "cross"), (x, "self")):
        with torch.inference_mode(inference), torch.no_grad(), attnviz.record(model) as recording:
            model(x, other)
        assert [maps.kind for maps in recording.maps] == [kind, kind]


@torch.no_grad()
def test_keys_of_another_input_beside_the_same_make_attention_self() -> None:
    model, x = Layers(Joined), torch.randn(1, TOKENS, WIDTH)
    with attnviz.record(model) as recording:
        model(x, torch.randn(1, 3, WIDTH))
    assert [(maps.kind, len(maps.key_tokens)) for maps in recording.maps] == [("self", TOKENS + 3)] * 2


class Latents(nn.Module):
    """Attention of vectors that are parameters to a text, or of the text to such vectors, projected or not."""

    def __init__(self, latents: str, projected: bool, by_kernel: bool) -> None:
        super().__init__()
        self.latents, self.linear = nn.Parameter(torch.randn(1, 3, WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.of, self.projected, self.by_kernel = latents, projected, by_kernel

    def forward(self, x: Tensor) -> Tensor:
        latents = self.linear(self.latents) if self.projected else self.latents.expand(len(x), -1, -1)
        queries, keys = (latents, self.linear(x)) if self.of == "queries" else (self.linear(x), latents)
        if self.by_kernel:
            return functional.scaled_dot_product_attention(queries, keys, keys)
        mixed: Tensor = torch.einsum("bqf,bkf->bqk", queries, keys).softmax(-1) @ keys
        return mixed


@pytest.mark.parametrize("by_kernel", [True, False])
@pytest.mark.parametrize(("latents", "projected"), [("queries", True), ("queries", False), ("keys", True)])
@torch.no_grad()
def test_latents_that_are_parameters_have_no_place_in_the_text(latents: str, projected: bool, by_kernel: bool) -> None:
    model = Latents(latents, projected, by_kernel)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [maps.kind for maps in recording.maps] == ["cross"]
    assert np.isnan(recording.head_table()["distance"]).all()


@torch.no_grad()
def test_tokens_made_in_the_block_are_no_parameters_beside_a_cache_made_before_it() -> None:
    model, cache = Layers(Joined), torch.randn(1, 3, WIDTH)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH), cache)
    assert [maps.kind for maps in recording.maps] == ["self", "self"]


@torch.no_grad()
def test_latents_that_look_at_each_other_after_a_text_are_self_attention() -> None:
    class Resampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Parameter(torch.randn(1, 3, WIDTH))
            self.layers = nn.ModuleList([nn.MultiheadAttention(WIDTH, COUNT, batch_first=True) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            latents = self.latents + self.layers[0](self.latents, x, x)[0]
            mixed: Tensor = self.layers[1](latents, latents, latents)[0]
            return mixed

    model = Resampler()
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [maps.kind for maps in recording.maps] == ["cross", "self"]


class Pooled(nn.Module):
    """Self-attention to a few keys that each are made of all tokens."""

    def __init__(self, by_weights: bool) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mix, self.by_weights = nn.Parameter(torch.randn(2, TOKENS)), by_weights

    def forward(self, x: Tensor) -> Tensor:
        keys = self.keys(x)
        pooled = self.mix @ keys if self.by_weights else functional.adaptive_avg_pool1d(keys.mT, 2).mT
        return functional.scaled_dot_product_attention(self.queries(x), pooled, pooled)


@pytest.mark.parametrize("by_weights", [True, False])
@torch.no_grad()
def test_keys_that_stand_for_several_tokens_have_no_distance(by_weights: bool) -> None:
    model = Pooled(by_weights)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    table = recording.head_table()
    assert np.isnan([table[name] for name in ("distance", "self", "previous", "next", "locality")]).all()
    assert not np.isnan(table["entropy"]).any()


def with_sink(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = queries @ keys.mT
    return torch.cat((scores, torch.zeros(*scores.shape[:-1], 1)), dim=-1).softmax(-1)[..., :-1] @ values


@pytest.mark.parametrize("count", [1, TOKENS])
@torch.no_grad()
def test_keys_beside_a_sink_are_known_however_few_there_are(count: int) -> None:
    written, x = Written(with_sink), torch.randn(1, count, WIDTH)
    model = nn.Sequential(written)
    with attnviz.record(model) as recording:
        model(x)
    queries, keys, _ = written.qkv(x)[0].chunk(3, -1)
    powers = (queries @ keys.mT).exp()
    [maps] = recording.maps
    assert isinstance(maps, DenseMaps)
    shares = torch.cat([powers, torch.ones_like(powers[..., :1])], -1) / (1 + powers.sum(-1, keepdim=True))
    np.testing.assert_allclose(maps.weights[0], shares, atol=1e-6)


@torch.no_grad()
def test_copies_of_the_same_tokens_are_self_attention_with_their_labels() -> None:
    attention, norm = nn.MultiheadAttention(WIDTH, COUNT, batch_first=True), nn.LayerNorm(WIDTH)
    x = torch.randn(1, TOKENS, WIDTH)
    with attnviz.record(attention, tokens=list("abcde")) as recording:
        attention(norm(x), norm(x), norm(x), need_weights=False)
    [maps] = recording.maps
    assert maps.kind == "self"
    assert maps.key_tokens.labels == maps.query_tokens.labels == tuple("abcde")
