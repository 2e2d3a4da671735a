"""Finds the white space between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """Returns one character per token for the gap before it: a line end, a space, or ``-`` for no gap.

    Without a text every token is preceded by a space.
    """
    ends = np.concatenate([[0], np.maximum.accumulate(tokens.offsets[:, 1])])[:-1]
    gaps = (tokens.text[end:start] for end, start in zip(ends, tokens.offsets[:, 0], strict=True))
    return "".join("\n" if "\n" in gap else " " if gap or not tokens.text else "-" for gap in gaps)
