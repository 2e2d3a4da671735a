"""Cuts a text that is longer than a model reads into windows."""

from dataclasses import replace

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.media.text import Text
from attnviz.text.tokens import Tokens


def windows_of(tokens: Tokens, window: int | None, limit: int | None) -> list[Tokens]:
    """Cuts tokens into windows; each window begins and ends with the special tokens of the whole text.

    Returns:
        The windows: one if the text fits into a window; none if special tokens alone fill a window, or if ``window`` is
        ``None`` and the text is longer than ``limit``.
    """
    if window is None:
        return [tokens] if limit is None or len(tokens) <= limit else []
    if len(tokens) <= window:
        return [tokens]
    leading_count, trailing_count = _leading_special(tokens.special), _leading_special(tokens.special[::-1])
    step = window - leading_count - trailing_count
    if step < 1:
        return []
    end = len(tokens) - trailing_count
    leading, trailing = np.arange(leading_count), np.arange(end, len(tokens))
    token_indices = [
        np.r_[leading, start : min(start + step, end), trailing] for start in range(leading_count, end, step)
    ]
    return [with_covered_text(tokens.take(indices)) for indices in token_indices]


def with_covered_text(tokens: Tokens) -> Tokens:
    """Returns the tokens with their text cut to the range of characters that tokens cover.

    Returns the tokens unchanged if none covers a character.
    """
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
