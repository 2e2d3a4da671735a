"""Chunks of the queries of one call: together they are the map that the call in one piece has."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall
from attnviz.capture.flow.sites import CallingModule, CallSite
from attnviz.capture.hooks.chunks import Chunks
from attnviz.maps.layer_maps import cell_maps

TOKENS, HEADS, FEATURES, BATCH = 7, 3, 4, 2
SIZE = 3  # queries of a chunk: 3, 3 and 1


def by_hand(queries: Tensor, keys: Tensor, values: Tensor, first: int) -> Tensor:
    scores = queries @ keys.transpose(-1, -2) / FEATURES**0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(first + 1)
    weights: Tensor = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return weights @ values


def by_hand_and_overwritten(queries: Tensor, keys: Tensor, values: Tensor, first: int) -> Tensor:
    scores = queries @ keys.transpose(-1, -2) / FEATURES**0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(first + 1)
    weights: Tensor = scores.masked_fill_(hidden, float("-inf")).softmax(-1)
    mixed = weights @ values
    weights.zero_()
    scores.zero_()
    return mixed


def by_kernel(queries: Tensor, keys: Tensor, values: Tensor, first: int) -> Tensor:
    mask = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool).tril(first)
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def by_kernel_with_numbers(queries: Tensor, keys: Tensor, values: Tensor, first: int) -> Tensor:
    shown = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool).tril(first)
    mask = torch.zeros(shown.shape).masked_fill(~shown, float("-inf"))
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


class Chunked(nn.Module):
    """Causal self-attention, so many queries at once; with ``looks_back`` over no more keys than these see."""

    def __init__(self, size: int, attend: object = by_hand, looks_back: bool = False) -> None:
        super().__init__()
        self.num_heads, self.size, self.attend, self.looks_back = HEADS, size, attend, looks_back
        self.project = nn.Linear(HEADS * FEATURES, 3 * HEADS * FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).view(len(x), -1, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind(0)
        rows = []
        for number, chunk in enumerate(torch.split(queries, self.size, dim=2)):
            first = number * self.size
            seen = slice(0, first + chunk.shape[2]) if self.looks_back else slice(None)
            rows.append(self.attend(chunk, keys[:, :, seen], values[:, :, seen], first))  # type: ignore[operator]
        return torch.cat(rows, 2).transpose(1, 2).flatten(2)


class Layers(nn.Module):
    def __init__(self, **given: object) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Chunked(**given) for _ in range(2))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def recorded(stop: bool = False, layers: list[int] | None = None, **given: object) -> attnviz.Recording:
    torch.manual_seed(0)
    model = Layers(**given)
    torch.manual_seed(1)
    with torch.no_grad(), attnviz.record(model, layers=layers, stop=stop) as recording:
        model(torch.randn(BATCH, TOKENS, HEADS * FEATURES))
    return recording


@pytest.mark.parametrize("attend", [by_hand, by_hand_and_overwritten, by_kernel, by_kernel_with_numbers])
@pytest.mark.parametrize("looks_back", [False, True])
def test_chunks_are_the_map_of_the_whole_call(attend: object, looks_back: bool) -> None:
    whole, chunked = (
        recorded(size=size, attend=attend, looks_back=looks_back and size == SIZE) for size in (TOKENS, SIZE)
    )
    assert len(chunked.maps) == len(whole.maps) == 2 * BATCH
    for ours, expected in zip(chunked.maps, whole.maps, strict=True):
        one, other = (
            cell_maps(maps).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS)) for maps in (ours, expected)
        )
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        np.testing.assert_array_equal(one.visible, other.visible)
        seen = np.broadcast_to(other.visible, other.scores.shape)
        np.testing.assert_allclose(one.scores[seen], other.scores[seen], atol=1e-6)
        assert ours.layer == expected.layer
        assert ours.fidelity is not None
        assert ours.fidelity < 1e-6


def test_run_is_ended_after_the_last_chunk_and_not_before() -> None:
    recording = recorded(size=SIZE, layers=[0], stop=True)
    assert [len(maps.query_tokens) for maps in recording.maps] == [TOKENS] * BATCH


def test_layers_that_were_not_chosen_do_not_count_their_chunks() -> None:
    recording = recorded(size=SIZE, layers=[1])
    assert {maps.module for maps in recording.maps} == {"layers.1"}
    assert [len(maps.query_tokens) for maps in recording.maps] == [TOKENS] * BATCH


class CallsInChunks(nn.Module):
    """Calls its attention once for each of some queries and their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, rows: list[slice], keys: list[Tensor]) -> list[Tensor]:
        return [self.attention(x[:, part], each, each)[0] for part, each in zip(rows, keys, strict=True)]


def in_chunks(x: Tensor, rows: list[slice], keys: list[Tensor]) -> tuple[CallsInChunks, attnviz.Recording]:
    torch.manual_seed(0)
    model = CallsInChunks()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(x, rows, keys)
    return model, recording


def test_module_that_is_called_chunk_by_chunk_is_one_call() -> None:
    x = torch.randn(1, 6, 8)
    model, recording = in_chunks(x, [slice(0, 4), slice(4, 6)], [x, x])
    with torch.no_grad():
        expected = model.attention(x, x, x, average_attn_weights=False)[1]
    (maps,) = recording.maps
    weights = cell_maps(maps).window((0, 1), slice(0, 6), slice(0, 6)).weights
    np.testing.assert_allclose(weights, expected[0], atol=1e-6)


def test_part_of_the_queries_alone_is_shown_as_it_is() -> None:
    x = torch.randn(1, 6, 8)
    _, recording = in_chunks(x, [slice(0, 1)], [x])
    assert [(len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps] == [(1, 6)]


def test_chunks_over_other_keys_are_calls_of_their_own() -> None:
    x, others = torch.randn(1, 6, 8), torch.randn(2, 1, 5, 8)
    _, recording = in_chunks(x, [slice(0, 3), slice(3, 6)], list(others))
    assert [len(maps.query_tokens) for maps in recording.maps] == [3, 3]


class HalfOfTheTexts(nn.Module):
    """Attention of the first texts of a batch, and then, unless it is left out, of the others."""

    def __init__(self, further: bool = True) -> None:
        super().__init__()
        self.num_heads, self.further = HEADS, further
        self.project = nn.Linear(HEADS * FEATURES, 3 * HEADS * FEATURES)
        self.end = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).view(len(x), -1, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4).unbind(0)
        halves = [slice(len(x) // 2), slice(len(x) // 2, None)]
        rows = [by_hand(queries[half], keys[half], values[half], 0) for half in halves[: 1 + self.further]]
        ended: Tensor = self.end(torch.cat(rows))
        return ended


def test_parts_of_the_texts_are_no_chunks_of_queries_although_there_are_as_many() -> None:
    model = HalfOfTheTexts()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(6, 3, HEADS * FEATURES))
    assert [(len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps] == [(3, 3)] * 6


def test_run_goes_on_after_a_part_of_the_texts_since_a_loop_may_bring_the_others() -> None:
    model, ended = HalfOfTheTexts(further=False), []
    model.end.register_forward_hook(lambda *given: ended.append(given))
    with torch.no_grad(), attnviz.record(model, layers=[0], stop=True) as recording:
        model(torch.randn(4, TOKENS, HEADS * FEATURES))
    assert len(recording.maps) == 2
    assert ended


class Blocks(nn.Module):
    """Attention in blocks of tokens, each over its own keys and so many before and after it."""

    def __init__(self, kernel: bool, around: int) -> None:
        super().__init__()
        self.num_heads, self.kernel, self.around = HEADS, kernel, around
        self.project = nn.Linear(HEADS * FEATURES, 3 * HEADS * FEATURES)

    def parts(self, x: Tensor) -> Tensor:
        return self.project(x).view(len(x), -1, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.parts(x).unbind(0)
        rows = []
        for first in range(0, x.shape[1], SIZE):
            seen = slice(max(first - self.around, 0), first + SIZE + self.around)
            given = queries[:, :, first : first + SIZE], keys[:, :, seen], values[:, :, seen]
            attended = functional.scaled_dot_product_attention(*given) if self.kernel else by_hand(*given, TOKENS)
            rows.append(attended)
        return torch.cat(rows, 2).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize(("around", "texts"), [(0, BATCH), (1, BATCH), (1, SIZE)])
def test_blocks_over_keys_of_their_own_stand_at_their_places(kernel: bool, around: int, texts: int) -> None:
    torch.manual_seed(0)
    model, x = Blocks(kernel, around), torch.randn(texts, TOKENS, HEADS * FEATURES)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(x)
    queries, keys, _ = model.parts(x).unbind(0)
    places = torch.arange(TOKENS)
    first = places[:, None] // SIZE * SIZE
    shown = (places >= first - around) & (places < first + SIZE + around)
    scores = queries @ keys.transpose(-1, -2) / FEATURES**0.5
    expected = scores.masked_fill(~shown, float("-inf")).softmax(-1).detach().numpy()
    assert len(recording.maps) == texts
    for text, maps in enumerate(recording.maps):
        window = cell_maps(maps).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
        np.testing.assert_allclose(window.weights, expected[text], atol=1e-6)
        np.testing.assert_array_equal(window.visible, shown.numpy())
        assert maps.fidelity is not None
        assert maps.fidelity < 1e-6
    assert "each over other keys" in recording.remarks[0]


class Additive(nn.Module):
    """Attention of one query, by a sum of it and each key."""

    def __init__(self) -> None:
        super().__init__()
        self.of_query, self.of_keys, self.of_sum = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.of_sum(torch.tanh(self.of_query(query) + self.of_keys(keys))).squeeze(2).unsqueeze(1)
        weights = scores.softmax(-1)
        return weights @ keys, weights


class StepByStep(nn.Module):
    """A recurrent decoder that attends to its context with each state."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.cell = Additive(), nn.GRUCell(8, 8)

    def forward(self, state: Tensor, context: Tensor, steps: int) -> Tensor:
        rows = []
        for _ in range(steps):
            mixed, weights = self.attention(state[:, None], context)
            state = self.cell(mixed[:, 0], state)
            rows.append(weights)
        return torch.cat(rows, 1)


def test_steps_of_additive_attention_are_the_rows_of_one_map() -> None:
    torch.manual_seed(0)
    model, state, context = StepByStep(), torch.randn(BATCH, 8), torch.randn(BATCH, TOKENS, 8)
    with torch.no_grad(), attnviz.record(model) as recording:
        expected = model(state, context, 4)
    assert [(maps.item, maps.kind, maps.layer) for maps in recording.maps] == [(0, "cross", 0), (1, "cross", 0)]
    for text, maps in enumerate(recording.maps):
        window = cell_maps(maps).window((0,), slice(0, 4), slice(0, TOKENS))
        np.testing.assert_array_equal(window.weights[0], expected[text].numpy())


class OfState(nn.Module):
    """Attention of a decoder's state, by its product with each key."""

    def forward(self, state: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        weights = (state * keys).sum(-1).softmax(-1).unsqueeze(1)
        return weights @ keys, weights


class Decoder(nn.Module):
    """A decoder that reads its own words, or those that it is given, and attends with each state."""

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.words, self.cell, self.step = nn.Embedding(9, 8), nn.GRUCell(8, 8), step
        self.attention, self.choose = OfState(), nn.Linear(16, 9)

    def forward(self, context: Tensor, given: Tensor | None) -> Tensor:
        state, word, rows = context[:, -1], torch.zeros(len(context), dtype=torch.long), []
        for at in range(4):
            word = word if given is None else given[:, at]
            state = (self.step or self.cell)(self.words(word), state)
            mixed, weights = self.attention(state[:, None], context)
            word = self.choose(torch.cat([state, mixed[:, 0]], -1)).argmax(-1)
            rows.append(weights)
        return torch.cat(rows, 1)


@pytest.mark.parametrize("given", [None, torch.randint(9, (BATCH, 4))])
def test_steps_of_a_recurrent_decoder_are_the_rows_of_one_map(given: Tensor | None) -> None:
    torch.manual_seed(0)
    model, context = Decoder(), torch.randn(BATCH, TOKENS, 8)
    with torch.no_grad(), attnviz.record(model) as recording:
        expected = model(context, given)
    assert [(maps.item, maps.kind, maps.layer) for maps in recording.maps] == [(0, "cross", 0), (1, "cross", 0)]
    for text, maps in enumerate(recording.maps):
        window = cell_maps(maps).window((0,), slice(0, 4), slice(0, TOKENS))
        np.testing.assert_array_equal(window.weights[0], expected[text].numpy())


def test_one_query_of_a_module_that_runs_again_may_be_a_step() -> None:
    torch.manual_seed(0)
    model = Decoder(step=lambda word, state: torch.tanh(word + state))
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, 8), None)
    assert [maps.layer for maps in recording.maps] == [0, 1, 2, 3]
    assert recording.remarks == (
        "attention ran more than once in one pass: its further runs are layers 1-3, or steps of one text.",
    )


def test_a_single_further_run_is_named_in_the_singular() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = self.attention(x, x, x)[0]
            return x

    model = Twice()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, 8))
    assert recording.remarks == ("attention ran more than once in one pass: its further run is layer 1.",)


def test_rows_that_leave_a_gap_are_calls_of_their_own() -> None:
    x = torch.randn(1, 6, 8)
    _, recording = in_chunks(x, [slice(0, 3), slice(4, 6)], [x, x])
    assert [len(maps.query_tokens) for maps in recording.maps] == [3, 2]


class OnItsOwn(nn.Module):
    """A model whose attention is called without it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)


def called_alone(rows: list[slice], x: Tensor) -> tuple[OnItsOwn, list[Tensor], attnviz.Recording]:
    torch.manual_seed(0)
    model = OnItsOwn()
    with torch.no_grad(), attnviz.record(model) as recording:
        given = [model.attention(x[:, part], x, x, average_attn_weights=False)[1][0] for part in rows]
    return model, given, recording


@pytest.mark.parametrize("ends", [(3, 6), (4, 6), (2, 4, 6), (1, 2, 3, 4, 5, 6)])
def test_part_of_a_model_that_is_called_alone_chunk_by_chunk_is_one_call(ends: tuple[int, ...]) -> None:
    x = torch.randn(1, 6, 8)
    _, given, recording = called_alone([slice(*both) for both in itertools.pairwise((0, *ends))], x)
    (maps,) = recording.maps
    weights = cell_maps(maps).window((0, 1), slice(0, 6), slice(0, 6)).weights
    np.testing.assert_allclose(weights, torch.cat(given, 1), atol=1e-6)
    assert recording.remarks == ()


@pytest.mark.parametrize("rows", [[slice(0, 4), slice(2, 6)], [slice(0, 3), slice(4, 6)], [slice(3, 6), slice(0, 3)]])
def test_rows_of_calls_that_do_not_follow_each_other_are_all_kept(rows: list[slice]) -> None:
    _, given, recording = called_alone(rows, torch.randn(1, 6, 8))
    assert [maps.item for maps in recording.maps] == [0, 1]
    for maps, expected in zip(recording.maps, given, strict=True):
        window = cell_maps(maps).window((0, 1), slice(0, expected.shape[1]), slice(0, 6))
        np.testing.assert_allclose(window.weights, expected, atol=1e-6)


def test_whole_calls_after_a_chunk_are_texts_of_their_own() -> None:
    _, _, recording = called_alone([slice(0, 3), slice(0, 6), slice(0, 6)], torch.randn(1, 6, 8))
    assert [len(maps.query_tokens) for maps in recording.maps] == [3, 6, 6]


@pytest.mark.parametrize("first_columns", [(0, 0), (0, 4)])
def test_windows_of_chunks_count_positions_within_each_chunk(first_columns: tuple[int, int]) -> None:
    keys = torch.randn(1, 1, 8, FEATURES)
    axis = (0, 0, 1, 8)
    width = 8 if first_columns == (0, 0) else 4
    calls: list[AttentionCall] = [
        FactoredCall(
            queries=torch.randn(1, 1, 4, FEATURES), keys=keys[:, :, column : column + width], scale=1.0, window=2
        )
        for column in first_columns
    ]
    starts = [{axis: column} for column in first_columns]
    site = CallSite(layer=0, head=None, module="attention", kind="self", stack="", part="encoder")
    caller = CallingModule(nn.Identity(), "attention", cross=False)
    joined = Chunks(site, caller, torch.Size([]), calls, (), starts, is_over_same=width == 8).joined()
    expected = torch.zeros(8, 8)
    for number, (call, column) in enumerate(zip(calls, first_columns, strict=True)):
        rows = slice(4 * number, 4 * number + 4)
        expected[rows, column : column + width] = call.weights([0], slice(None))[0, 0]
    torch.testing.assert_close(joined.weights([0], slice(None))[0, 0], expected)
