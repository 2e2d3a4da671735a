"""A text that is longer than a model reads at once, cut into windows."""

from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.media.text import Text
from attnviz.text.tokens import Tokens


def windows_of(tokens: Tokens, window: int | None, limit: int | None) -> list[Tokens]:
    """The tokens in parts, each between the special tokens that are around the whole; none where they are too many.

    Args:
        tokens: of the whole text.
        window: how many tokens a part has at most; ``None`` for one part.
        limit: the most that the model reads; ``None`` for any number.
    """
    if window is None:
        return [tokens] if limit is None or len(tokens) <= limit else []
    if len(tokens) <= window:
        return [tokens]
    before, after = _run_of(tokens.special), _run_of(tokens.special[::-1])
    step, count = window - before - after, len(tokens)
    if step < 1:
        return []
    frame = np.arange(before), np.arange(count - after, count)
    starts = range(before, count - after, step)
    places = [np.r_[frame[0], start : min(start + step, count - after), frame[1]] for start in starts]
    return [part_of(tokens.at(each)) for each in places]


def part_of(tokens: Tokens) -> Tokens:
    """The tokens with that part of their text alone that they stand in."""
    inside = tokens.offsets[:, 1] > tokens.offsets[:, 0]
    if not inside.any():
        return tokens
    start, stop = int(tokens.offsets[inside, 0].min()), int(tokens.offsets[inside, 1].max())
    if (start, stop) == (0, len(tokens.text)):
        return tokens
    offsets = np.clip(tokens.offsets - start, 0, stop - start)
    return replace(tokens, media=(Text(tokens.text[start:stop]),), places=offsets)


def _run_of(special: BoolArray) -> int:
    """How many are special before the first that is not."""
    return int(np.argmin(special)) if not special.all() else 0
