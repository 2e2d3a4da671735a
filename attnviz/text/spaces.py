"""Finds the white space between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """Returns a character for the gap before each token: a newline, a space, or ``-`` if there is no gap.

    If the tokens have no text, every gap is a space.
    """
    stops = np.maximum.accumulate(tokens.offsets[:, 1])  # the largest so far, as tokens without characters end at 0
    previous_stops = np.concatenate([[0], stops])[:-1]
    characters = []
    for previous_stop, start in zip(previous_stops, tokens.offsets[:, 0], strict=True):
        gap = tokens.text[previous_stop:start]
        if "\n" in gap:
            characters.append("\n")
        else:
            characters.append(" " if gap or not tokens.text else "-")
    return "".join(characters)
