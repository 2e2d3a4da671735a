"""Where tokens stood after functions that moved them, and queries and keys that a module picked by an index."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import InformerConfig, InformerModel

import attnviz
from attnviz.capture.flow.axes import unknown_axes
from attnviz.capture.flow.functions import TorchCall
from attnviz.capture.flow.moved_rows import GatheredRows, TokenPlaces
from attnviz.capture.flow.nodes import Node
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LayerMaps

TOKENS, HEADS, FEATURES = 7, 2, 6
WIDTH = HEADS * FEATURES
LABELS = list("abcdefg")
PICKED = torch.tensor([4, 1, 6])
OF_HEADS = torch.tensor([[[4, 1, 6], [0, 5, 2]]])
Pick = Callable[[Tensor], Tensor]


def along_features(picked: Tensor) -> Tensor:
    return picked[..., None].expand(*picked.shape, FEATURES)


ALIKE: dict[str, Pick] = {
    "index_select": lambda x: x.index_select(2, PICKED),
    "index": lambda x: x[:, :, PICKED],
    "list": lambda x: x[:, :, PICKED.tolist()],
    "twice": lambda x: x[:, :, torch.tensor([6, 0, 4, 1])][:, :, torch.tensor([2, 3, 0])],
    "of transposed": lambda x: x.mT.contiguous()[..., PICKED].mT,
}
BY_HEAD: dict[str, Pick] = {
    "gather": lambda x: x.gather(2, along_features(OF_HEADS)),
    "take_along_dim": lambda x: x.take_along_dim(OF_HEADS[..., None], 2),
    "indices": lambda x: x[torch.arange(1)[:, None, None], torch.arange(HEADS)[None, :, None], OF_HEADS],
    "indices of heads as texts": lambda x: x.flatten(0, 1)[torch.arange(HEADS)[:, None], OF_HEADS[0]][None],
}


class Picking(nn.Module):
    """Attention of picked queries, keys or both."""

    num_heads = HEADS

    def __init__(self, queries: Pick | None = None, keys: Pick | None = None, by_kernel: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.queries, self.keys, self.by_kernel = queries, keys, by_kernel

    def parts(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.parts(x)
        queries = queries if self.queries is None else self.queries(queries)
        keys, values = (each if self.keys is None else self.keys(each) for each in (keys, values))
        if self.by_kernel:
            return functional.scaled_dot_product_attention(queries, keys, values)
        mixed: Tensor = (queries @ keys.mT * FEATURES**-0.5).softmax(-1) @ values
        return mixed


def recorded(model: nn.Module, x: Tensor) -> tuple[LayerMaps, tuple[str, ...]]:
    """The only maps of a module, and what is said of them."""
    whole = nn.Sequential(model)
    with torch.no_grad():
        bare = whole(x)
        with attnviz.record(whole, tokens=LABELS) as recording:
            assert torch.equal(whole(x), bare)
    (maps,) = recording.maps
    return maps, recording.remarks


def assert_rows_are(maps: LayerMaps, expected: Tensor, rows: list[list[int]]) -> None:
    """Whether these rows of each head are the expected ones, and the others empty."""
    assert isinstance(maps, DenseMaps)
    assert maps.weights.shape == expected.shape
    assert tuple(maps.query_tokens.labels) == tuple(maps.key_tokens.labels) == tuple(LABELS)
    for weights, reference, own in zip(maps.weights, expected, rows, strict=True):
        assert sorted(np.flatnonzero(weights.any(-1))) == sorted(own)
        np.testing.assert_allclose(weights[own], reference[own], atol=1e-6)
    assert maps.fidelity is not None
    assert maps.fidelity < 1e-5


def whole_map(model: Picking, x: Tensor, keys: Tensor | None = None) -> Tensor:
    """The weights of every query, over all or some of the keys."""
    queries, all_keys, _ = (part.double() for part in model.parts(x))
    scores = queries @ all_keys.mT * FEATURES**-0.5
    if keys is not None:
        absent = torch.ones(HEADS, 1, TOKENS, dtype=torch.bool).scatter_(2, keys.expand(HEADS, -1)[:, None], False)
        scores = scores.masked_fill(absent, -torch.inf)
    weights: Tensor = scores.softmax(-1).float().detach()[0]
    return weights


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize("way", [*ALIKE, *BY_HEAD])
def test_picked_queries_stand_at_their_own_rows(way: str, by_kernel: bool) -> None:
    model, x = Picking(queries=(ALIKE | BY_HEAD)[way], by_kernel=by_kernel), torch.randn(1, TOKENS, WIDTH)
    maps, remarks = recorded(model, x)
    assert_rows_are(maps, whole_map(model, x), OF_HEADS[0].tolist() if way in BY_HEAD else [PICKED.tolist()] * HEADS)
    assert (
        "In layer 0 only 3 of 7 queries were picked; each is at its place, and the rows of the others are hidden."
        in (remarks)
    )


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize("way", [*ALIKE, *BY_HEAD])
def test_picked_keys_stand_at_their_own_columns(way: str, by_kernel: bool) -> None:
    model, x = Picking(keys=(ALIKE | BY_HEAD)[way], by_kernel=by_kernel), torch.randn(1, TOKENS, WIDTH)
    maps, remarks = recorded(model, x)
    keys = OF_HEADS[0] if way in BY_HEAD else PICKED[None]
    assert_rows_are(maps, whole_map(model, x, keys), [list(range(TOKENS))] * HEADS)
    assert (
        "In layer 0 only 3 of 7 keys were picked; each is at its place, and the columns of the others are hidden."
        in (remarks)
    )


def test_tokens_in_another_order_stand_where_they_were() -> None:
    order = torch.randperm(TOKENS)
    model, x = Picking(queries=lambda q: q[:, :, order], keys=lambda k: k[:, :, order]), torch.randn(1, TOKENS, WIDTH)
    maps, remarks = recorded(model, x)
    assert_rows_are(maps, whole_map(model, x), [list(range(TOKENS))] * HEADS)
    assert remarks == ()


def test_tokens_put_back_in_order_are_not_picked() -> None:
    order = torch.randperm(TOKENS)
    model = Picking(queries=lambda q: q[:, :, order][:, :, order.argsort()])
    x = torch.randn(1, TOKENS, WIDTH)
    maps, remarks = recorded(model, x)
    assert_rows_are(maps, whole_map(model, x), [list(range(TOKENS))] * HEADS)
    assert remarks == ()


class Pruned(nn.Module):
    """A layer of the tokens that a step before it has picked."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attention = nn.Linear(WIDTH, WIDTH), Picking()

    def forward(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.embed(x)
        return self.attention(embedded[:, PICKED])  # type: ignore[no-any-return]


def test_tokens_that_were_picked_before_are_said_to_be() -> None:
    maps, remarks = recorded(Pruned(), torch.randn(1, TOKENS, WIDTH))
    assert maps.query_tokens.labels == ("0", "1", "2")
    assert remarks == (
        "Not used: the labels in tokens of text 0: 7 labels for 3 tokens.",
        "In layer 0 queries and keys were picked by an index from 7 tokens, and are numbered in the order of the "
        "index.",
    )


@pytest.mark.parametrize("factor", [1, 5])
@torch.no_grad()
def test_rows_of_informer_are_those_of_the_queries_that_it_picked(factor: int) -> None:
    torch.manual_seed(0)
    config = InformerConfig(
        prediction_length=4, context_length=16, lags_sequence=[1], d_model=12, encoder_layers=2, decoder_layers=1,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=8, decoder_ffn_dim=8,
        num_time_features=1, sampling_factor=factor, distil=False,
    )  # fmt: skip
    model: Any = InformerModel(config)
    model.eval()
    past = {"past_values": torch.randn(2, 17), "past_time_features": torch.randn(2, 17, 1)}
    kept: dict[str, Tensor] = {}
    layers = [*model.encoder.layers, *model.decoder.layers]
    for number, layer in enumerate(layers):
        for part in ("q_proj", "k_proj"):
            getattr(layer.self_attn, part).register_forward_hook(
                lambda module, given, result, name=f"{number} {part}": kept.update({name: result})
            )
    with attnviz.record(model) as recording:
        model(
            **past,
            past_observed_mask=torch.ones(2, 17),
            future_values=torch.randn(2, 4),
            future_time_features=torch.randn(2, 4, 1),
        )
    own = [maps for maps in recording.maps if maps.kind == "self"]
    assert len(own) == 2 * len(layers)
    for maps in own:
        assert isinstance(maps, DenseMaps)
        number = maps.layer + (len(model.encoder.layers) if "decoder" in maps.module else 0)
        queries, keys = (
            kept[f"{number} {part}"][maps.item].reshape(-1, HEADS, 6).transpose(0, 1) for part in ("q_proj", "k_proj")
        )
        scores = queries @ keys.mT * config.d_model**-0.5 * HEADS**0.5
        if "decoder" in maps.module:
            scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -torch.inf)
        assert maps.weights.shape == scores.shape
        picked = maps.weights.any(-1)
        count = scores.shape[-1]
        assert (picked.sum(-1) == min(factor * int(np.ceil(np.log1p(count))), count)).all()
        np.testing.assert_allclose(maps.weights[picked], scores.softmax(-1).numpy()[picked], atol=1e-5)
    assert any("queries were picked" in remark for remark in recording.remarks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_rows_that_are_gathered_from_integers_are_not_followed(dtype: torch.dtype) -> None:
    source, rows = torch.zeros(5, 4, dtype=dtype), torch.tensor([3, 1])
    result = source.index_select(0, rows)
    gathered = GatheredRows()
    call = TorchCall("index_select", Tensor.index_select, (source, 0, rows), {}, result)
    gathered.follow(call, lambda _: [0], lambda: None)
    assert (gathered.of(result) is not None) == source.is_floating_point()


TEXTS, COUNT, TOKEN_WIDTH = 2, 6, 3
Function = Callable[..., Any]


def followed(places: TokenPlaces, name: str, function: Function, *args: Any) -> Any:
    result = function(*args)
    if places.follows(name):
        places.follow(TorchCall(name, function, args, {}, result))
    return result


def embedded(places: TokenPlaces) -> Tensor:
    tokens: Tensor = followed(
        places, "linear", functional.linear, torch.ones(TEXTS, COUNT, 5), torch.ones(TOKEN_WIDTH, 5)
    )
    return tokens


def of_inputs() -> TokenPlaces:
    """The places in a model of which each tensor that no function computed is an input."""
    return TokenPlaces(lambda tensor: Node(unknown_axes(tensor.shape), is_unobserved=True))


def numbers(places: TokenPlaces, tensor: Tensor) -> list[list[int]] | None:
    """The tokens counted from 0 through all texts; padding is -1."""
    origin = places.of(tensor)
    if origin is None:
        return None
    first = origin.numbers[..., 0].contiguous()
    ranks = torch.searchsorted(torch.unique(first[first >= 0]), first)
    return ranks.masked_fill(first < 0, -1).tolist()


def test_tokens_are_counted_through_all_texts_and_move_with_their_tensor() -> None:
    places = of_inputs()
    tokens = embedded(places)
    assert numbers(places, tokens) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    rolled = followed(places, "roll", torch.roll, tokens, 1, 1)
    assert numbers(places, rolled) == [[5, 0, 1, 2, 3, 4], [11, 6, 7, 8, 9, 10]]
    added = followed(places, "add", torch.add, rolled, 1)
    assert numbers(places, added) == numbers(places, rolled)
    padded = followed(places, "pad", functional.pad, tokens, (0, 0, 0, 1))
    assert numbers(places, padded) == [[0, 1, 2, 3, 4, 5, -1], [6, 7, 8, 9, 10, 11, -1]]


def test_tensor_that_is_written_over_has_no_known_places() -> None:
    places = of_inputs()
    tokens = embedded(places)
    followed(places, "copy_", Tensor.copy_, tokens, torch.zeros_like(tokens))
    assert places.of(tokens) is None


def test_other_functions_lose_the_places() -> None:
    places = of_inputs()
    assert places.of(followed(places, "cumsum", torch.cumsum, embedded(places), 1)) is None


def test_function_that_cannot_take_numbers_ends_the_following() -> None:
    places = of_inputs()
    places.follow(TorchCall("unfold", lambda *args: 1 / 0, (embedded(places),), {}, torch.ones(1)))
    assert not places.is_active


def test_rows_that_mix_two_tokens_are_new_tokens_after_a_linear_map() -> None:
    places = of_inputs()
    tokens = embedded(places)
    rolled = followed(places, "roll", torch.roll, tokens, 1, 1)
    parts = [
        followed(places, "narrow", Tensor.narrow, tensor, 2, 0, size) for tensor, size in ((rolled, 2), (tokens, 1))
    ]
    joined = followed(places, "cat", torch.cat, parts, -1)
    assert numbers(places, joined) == numbers(places, rolled)  # by the first feature
    assert numbers(places, followed(places, "linear", functional.linear, joined, torch.ones(4, TOKEN_WIDTH))) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
    ]
