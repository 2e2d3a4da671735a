"""Finds landmarks: tokens at which groups begin, whose labels replace those of tokens on the axes of long texts."""

from functools import lru_cache

from attnviz.text.named_groups import (
    NAMES,
    NUMBERED,
    TOKENS,
    Mark,
    labelled_matches,
    marked_tokens,
    named_groups,
    plural,
)
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units


@lru_cache(maxsize=8)
def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """Returns the token and the label of each landmark, in the order of the tokens; empty if there are none.

    Raises:
        AttnvizError: if the mark is neither a name nor a regular expression, or its search takes too long.
    """
    name = plural(mark)
    if name in NUMBERED or name not in (*tokens.groups, *NAMES):
        return tuple(marked_tokens(tokens, labelled_matches(tokens.text, name, "mark")))
    if name != TOKENS and named_groups(tokens, name) is None:
        return ()
    units = Units.of(tokens, name, special=False)
    return tuple(zip(units.starts.tolist(), units.labels, strict=True))
