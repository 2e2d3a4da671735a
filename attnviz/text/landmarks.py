"""Landmarks: where groups of tokens begin, which label axes instead of tokens."""

from functools import lru_cache

from attnviz.text.named_groups import NAMES, NUMBERED, TOKENS, Mark, matches, named_groups, plural, tokens_at
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units


@lru_cache(maxsize=8)
def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """The token at which each group of a name begins and what the group is called, in the order of the tokens.

    Args:
        tokens: of an axis.
        mark: the name, as `named_groups` takes it: a match of a regular expression is called by what it matched.
    """
    name = plural(mark)
    if name in NUMBERED or name not in (*tokens.groups, *NAMES):
        return tuple(tokens_at(tokens, matches(tokens.text, name, "mark")))
    if name != TOKENS and named_groups(tokens, name) is None:
        return ()
    units = Units.of(tokens, name, special=False)
    return tuple(zip(units.starts.tolist(), units.labels, strict=True))
