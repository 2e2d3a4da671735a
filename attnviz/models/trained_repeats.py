"""Generates the repeated segments on which the trained model is tested, held out from its training."""

import torch
from torch import Tensor

HELD_OUT_SEED = 10**6
BYTE_VALUES = 256
HELD_OUT_TEXTS, HELD_OUT_TOKENS = 64, 64


def held_out_repeats(
    start_token: int, text_count: int = HELD_OUT_TEXTS, segment_length: int = HELD_OUT_TOKENS
) -> tuple[Tensor, slice]:
    """Returns texts of a start token and two copies of a segment of distinct bytes, and their predictable positions.

    Every call returns the same texts.

    Returns:
        Ids, ``(texts, 2 * segment_length + 1)``, and the positions in the second copy whose next byte the first copy
        tells.
    """
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    segments = torch.rand(text_count, BYTE_VALUES, generator=random).argsort(-1)[:, :segment_length]
    ids = torch.cat([torch.full((text_count, 1), start_token), segments, segments], dim=1)
    return ids, slice(segment_length + 1, 2 * segment_length)
