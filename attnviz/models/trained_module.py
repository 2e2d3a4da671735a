"""The trained model as one module, from numbers of tokens to logits; and the repeats that it was checked on."""

import torch
from torch import Tensor, nn

from attnviz.models.trained import START_TOKEN, load_model, run_model

HELD_OUT_SEED = 10**6
HELD_OUT_TEXTS, HELD_OUT_TOKENS = 64, 64


class TrainedModel(nn.Module):
    """The model that travels with the package."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = load_model()

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of each next token, ``(batch, tokens)`` to ``(batch, tokens, vocabulary)``."""
        return run_model(self.parts, ids)[0]


def held_out_repeats(texts: int = HELD_OUT_TEXTS, segment: int = HELD_OUT_TOKENS) -> tuple[Tensor, slice]:
    """Segments of different bytes, each said twice after the start token, and where the next byte can be known.

    Returns:
        Ids, ``(texts, 2 * segment + 1)``, and the positions in the second half whose successor was said before.
    """
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    segments = torch.rand(texts, 256, generator=random).argsort(-1)[:, :segment]
    start = torch.full((texts, 1), START_TOKEN)
    return torch.cat([start, segments, segments], dim=1), slice(segment + 1, 2 * segment)
