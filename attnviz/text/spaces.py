"""What stands between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """What stands before each token in the text, a character each: a line end, a space, or nothing (``-``)."""
    ends = np.concatenate([[0], np.maximum.accumulate(tokens.offsets[:, 1])])[:-1]
    gaps = (tokens.text[end:start] for end, start in zip(ends, tokens.offsets[:, 0], strict=True))
    return "".join("\n" if "\n" in gap else " " if gap or not tokens.text else "-" for gap in gaps)
