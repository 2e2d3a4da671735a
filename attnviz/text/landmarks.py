"""Finds landmarks: the tokens at which groups begin, which label the axes of long texts instead of tokens."""

from functools import lru_cache

from attnviz.text.named_groups import NAMES, NUMBERED, TOKENS, Mark, matches, named_groups, plural, tokens_at
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units


@lru_cache(maxsize=8)
def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """Returns the first token of each group and the group's label, in the order of the tokens.

    Args:
        tokens: the tokens of an axis.
        mark: a name or a regular expression, as in `named_groups`; a match is labelled by the matching text.
    """
    name = plural(mark)
    if name in NUMBERED or name not in (*tokens.groups, *NAMES):
        return tuple(tokens_at(tokens, matches(tokens.text, name, "mark")))
    if name != TOKENS and named_groups(tokens, name) is None:
        return ()
    units = Units.of(tokens, name, special=False)
    return tuple(zip(units.starts.tolist(), units.labels, strict=True))
