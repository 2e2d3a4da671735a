"""Passes that call the same functions as the two before them: only their attention is observed, and it is right."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.maps.cell_maps import DenseMaps

WIDTH, HEADS, PROMPT, STEPS = 8, 2, 3, 6


class Layer(nn.Module):
    """Causal attention that keeps its keys and values; ``by_hand`` computes it from products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.past: tuple[Tensor, Tensor] | None = None
        self.by_hand = False

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = (
            linear(tokens).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear in (self.queries, self.keys, self.values)
        )
        if self.past is not None:
            key, value = torch.cat([self.past[0], key], 2), torch.cat([self.past[1], value], 2)
        self.past = key, value
        if self.by_hand:
            mixed = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1) @ value
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)
        written: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return tokens + written


class Decoder(nn.Module):
    """Two layers; ``order`` is the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList([Layer(), Layer()])
        self.order = [0, 1]

    def forward(self, tokens: Tensor) -> Tensor:
        for index in self.order:
            tokens = self.layers[index](tokens)
        return tokens


@pytest.fixture
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval()


def inputs() -> Iterator[Tensor]:
    """A prompt, and then one token after another."""
    random = torch.Generator().manual_seed(1)
    yield torch.randn(1, PROMPT, WIDTH, generator=random)
    for _ in range(STEPS):
        yield torch.randn(1, 1, WIDTH, generator=random)


def last_row(layer: Layer, tokens: Tensor, keys: Tensor) -> Tensor:
    """The weights of the last of a layer's tokens on the keys, ``(heads, keys)``."""
    query: Tensor = layer.queries(tokens[:, -1:]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    weights: Tensor = (query @ keys.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
    return weights[0, :, 0]


def run(decoder: Decoder, change_at: int, *, by_hand: bool = False, order: tuple[int, int] = (0, 1)) -> list[int]:
    """Records all passes, checks the weights of each, and returns the number of functions that each pass follows.

    Args:
        decoder: the model.
        change_at: the pass from which on the next two arguments hold.
        by_hand: True if the first layer then computes its attention by hand.
        order: the order in which the layers then run.
    """
    followed_counts, layer_inputs, keys = [0], list[list[Tensor]](), list[list[Tensor]]()
    for layer in decoder.layers:
        layer_inputs.append([])
        keys.append([])
        layer.register_forward_pre_hook(lambda _, args, kept=layer_inputs[-1]: kept.append(args[0]))
        layer.register_forward_hook(lambda layer, *_, kept=keys[-1]: kept.append(layer.past[0]))
    follow_call = DataFlow.follow_call

    def counted_follow_call(*args: object) -> object:
        followed_counts[-1] += 1
        return follow_call(*args)  # type: ignore[arg-type]

    passes = list(inputs())
    with pytest.MonkeyPatch.context() as patch, torch.no_grad(), attnviz.record(decoder) as recording:
        patch.setattr(DataFlow, "follow_call", counted_follow_call)
        for number, tokens in enumerate(passes):
            if number == change_at:
                decoder.layers[0].by_hand, decoder.order = by_hand, list(order)
            followed_counts.append(0)
            decoder(tokens)
    for maps in recording.maps:
        assert isinstance(maps, DenseMaps)
        index = int(maps.module.rpartition(".")[2])
        for number in range(STEPS + 1):
            row = last_row(decoder.layers[index], layer_inputs[index][number], keys[index][number])
            weights = maps.weights[:, PROMPT - 1 + number, : PROMPT + number]
            np.testing.assert_allclose(weights, row.detach().numpy(), atol=1e-6)
    return followed_counts[1:]


def test_functions_of_a_repeated_pass_are_not_followed_and_its_weights_are_exact(decoder: Decoder) -> None:
    counts = run(decoder, change_at=STEPS + 1)
    assert min(counts[:3]) > 0
    assert counts[3:] == [0] * (STEPS - 2)


def test_a_pass_that_computes_attention_otherwise_is_followed_from_there_on(decoder: Decoder) -> None:
    counts = run(decoder, change_at=4, by_hand=True)
    assert counts[3] == 0
    assert min(counts[4:]) > 0


def test_a_pass_in_which_other_modules_attend_is_followed(decoder: Decoder) -> None:
    counts = run(decoder, change_at=4, order=(1, 0))
    assert counts[3] == 0
    assert min(counts[4:6]) > 0


def test_attention_outside_the_model_between_its_passes_is_not_taken_for_its_own(decoder: Decoder) -> None:
    with torch.no_grad(), attnviz.record(decoder) as recording:
        for tokens in inputs():
            decoder(tokens)
            functional.scaled_dot_product_attention(tokens, tokens, tokens)
    shapes = [(len(maps.query_tokens), len(maps.key_tokens)) for maps in recording.maps]
    assert shapes == [(PROMPT + STEPS, PROMPT + STEPS)] * len(decoder.layers)
    assert all((maps.fidelity or 0) < 1e-6 for maps in recording.maps)
