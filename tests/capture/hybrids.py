"""A small hybrid model, in which some layers attend."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

WIDTH = 8


class GatedMixer(nn.Module):
    """Mixes tokens by a running mean, without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the gated mean of the tokens so far."""
        return torch.sigmoid(self.gate(inputs)) * inputs.cumsum(1)


class Block(nn.Module):
    """A layer of attention or of a mixer."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        if attends:
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        else:
            self.mixer = GatedMixer()

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs with what the layer adds."""
        normed = self.norm(inputs)
        mixed = self.attention(normed, normed, normed)[0] if hasattr(self, "attention") else self.mixer(normed)
        added: Tensor = self.mlp(mixed)
        return inputs + added


class Hybrid(nn.Module):
    """A stack in which some layers attend."""

    def __init__(self, attends: list[bool], words: list[str] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Block, attends))
        if words is not None:
            self.config = SimpleNamespace(layer_types=words, stages=["a"] * len(words))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs after all layers."""
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


MIXED = [False, True, False, False, True]
LINEAR, FULL = "linear_attention", "full_attention"
