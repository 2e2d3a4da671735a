"""Finds the white space between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """Returns a character for the gap before each token: a newline, a space, or ``-`` if there is no gap.

    If the tokens have no text, every gap is a space.
    """
    ends = np.concatenate([[0], np.maximum.accumulate(tokens.offsets[:, 1])])[:-1]
    characters = []
    for end, start in zip(ends, tokens.offsets[:, 0], strict=True):
        gap = tokens.text[end:start]
        if "\n" in gap:
            characters.append("\n")
        else:
            characters.append(" " if gap or not tokens.text else "-")
    return "".join(characters)
