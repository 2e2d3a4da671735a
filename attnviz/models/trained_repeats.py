"""The repeats that the trained model was checked on, which it has not seen."""

import torch
from torch import Tensor

HELD_OUT_SEED = 10**6
HELD_OUT_TEXTS, HELD_OUT_TOKENS = 64, 64


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
