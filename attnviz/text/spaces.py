"""Finds the white space between the tokens of a text."""

import numpy as np

from attnviz.text.tokens import Tokens


def spaces_before(tokens: Tokens) -> str:
    """Returns a character for the gap before each token: a newline, a space, or ``-`` if there is no gap.

    A token that ends in a line end, such as a newline that is a token itself, stands at the end of its line.
    If the tokens have no text, every gap is a space.
    """
    stops = np.maximum.accumulate(tokens.offsets[:, 1])  # the largest so far, as tokens without characters end at 0
    previous_stops = np.concatenate([[0], stops])[:-1]
    characters = []
    previous_blanks = ""  # at the end of the token before
    for previous_stop, (start, stop) in zip(previous_stops, tokens.offsets, strict=True):
        gap = tokens.text[previous_stop:start]
        if "\n" in gap or "\n" in previous_blanks:
            characters.append("\n")
        else:
            characters.append(" " if gap or not tokens.text else "-")
        if stop > start:
            characters_of_token = tokens.text[start:stop]
            previous_blanks = characters_of_token[len(characters_of_token.rstrip()) :]
        else:
            previous_blanks = ""
    return "".join(characters)
