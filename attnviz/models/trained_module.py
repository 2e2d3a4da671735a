"""The trained model as one module, from numbers of tokens to logits; and the repeats that it was checked on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HELD_OUT_SEED = 10**6
HELD_OUT_TEXTS, HELD_OUT_TOKENS = 64, 64


class TrainedModel(nn.Module):
    """The model that travels with the package.

    Args:
        parts: embedding, layers and unembedding.
        run: what they make of numbers of tokens, the logits first.
    """

    def __init__(self, parts: nn.ModuleDict, run: Callable[[nn.ModuleDict, Tensor], tuple[Tensor, Any]]) -> None:
        super().__init__()
        self.parts, self.run = parts, run

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of each next token, ``(batch, tokens)`` to ``(batch, tokens, vocabulary)``."""
        return self.run(self.parts, ids)[0]


def held_out_repeats(start: int, texts: int = HELD_OUT_TEXTS, segment: int = HELD_OUT_TOKENS) -> tuple[Tensor, slice]:
    """Segments of different bytes, each said twice after the start token, and where the next byte can be known.

    Args:
        start: the number of the start token.
        texts: how many.
        segment: how many bytes each has.

    Returns:
        Ids, ``(texts, 2 * segment + 1)``, and the positions in the second half whose successor was said before.
    """
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    segments = torch.rand(texts, 256, generator=random).argsort(-1)[:, :segment]
    return torch.cat([torch.full((texts, 1), start), segments, segments], dim=1), slice(segment + 1, 2 * segment)
