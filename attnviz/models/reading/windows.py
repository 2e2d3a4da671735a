"""Cuts a text that is longer than a model reads into windows."""

from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.media.text import Text
from attnviz.text.tokens import Tokens


def windows_of(tokens: Tokens, window: int | None, limit: int | None) -> list[Tokens]:
    """Cuts tokens into windows, each framed by the special tokens of the whole text.

    Args:
        tokens: the tokens of the whole text.
        window: the most tokens of a window, including special ones; ``None`` for one window.
        limit: the most tokens that the model reads; ``None`` for any number.

    Returns:
        The windows; none if the text is too long for one window, or a window has only as many tokens as are special.
    """
    if window is None:
        return [tokens] if limit is None or len(tokens) <= limit else []
    if len(tokens) <= window:
        return [tokens]
    before, after = _leading_special(tokens.special), _leading_special(tokens.special[::-1])
    step, count = window - before - after, len(tokens)
    if step < 1:
        return []
    frame = np.arange(before), np.arange(count - after, count)
    starts = range(before, count - after, step)
    places = [np.r_[frame[0], start : min(start + step, count - after), frame[1]] for start in starts]
    return [with_covered_text(tokens.at(window_places)) for window_places in places]


def with_covered_text(tokens: Tokens) -> Tokens:
    """Returns the tokens with their text cut to the part that they cover; unchanged if they cover all or none of it."""
    has_text = tokens.offsets[:, 1] > tokens.offsets[:, 0]
    if not has_text.any():
        return tokens
    start, stop = int(tokens.offsets[has_text, 0].min()), int(tokens.offsets[has_text, 1].max())
    if (start, stop) == (0, len(tokens.text)):
        return tokens
    offsets = np.clip(tokens.offsets - start, 0, stop - start)
    return replace(tokens, media=(Text(tokens.text[start:stop]),), places=offsets)


def _leading_special(special: BoolArray) -> int:
    """Returns the number of special tokens before the first ordinary one; 0 if all are special."""
    return int(np.argmin(special)) if not special.all() else 0
