"""Finds the white space between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """Returns a character for the gap before each token: a newline, a space, or ``-`` if there is no gap.

    If the tokens have no text, every gap is a space.
    """
    ends = np.concatenate([[0], np.maximum.accumulate(tokens.offsets[:, 1])])[:-1]
    gaps = (tokens.text[end:start] for end, start in zip(ends, tokens.offsets[:, 0], strict=True))
    return "".join("\n" if "\n" in gap else " " if gap or not tokens.text else "-" for gap in gaps)
