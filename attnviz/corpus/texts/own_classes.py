"""Classifies tokens by the user's regular expressions: a token is of a class if a match covers a character of it."""

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.texts.token_classes import surveyed_metrics
from attnviz.text.tokens import Tokens

NAME = re.compile(r"[a-z][a-z0-9-]*")


def parse_classes(given: Sequence[str]) -> dict[str, str]:
    r"""Returns the regular expression of each class by its name, given definitions such as ``numbers=\d+``.

    Raises:
        AttnvizError: if a definition is malformed, or its name is already used.
    """
    own: dict[str, str] = {}
    builtin = {metric.name for metric in surveyed_metrics({})}
    for each in given:
        name, sign, pattern = each.partition("=")
        if not sign or not pattern or not NAME.fullmatch(name):
            raise AttnvizError(
                f"{option('token_class', each)} is not a class; write it as {option('token_class', 'years=[0-9]{4}')}"
            )
        if name in builtin or name in own:
            raise AttnvizError(f"{option('token_class', each)}: there already is a {name!r}; choose another name")
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise AttnvizError(f"{option('token_class', each)} is not a regular expression: {reason}") from error
        own[name] = pattern
    return own


def own_masks(texts: Sequence[Tokens], own: Mapping[str, str]) -> list[BoolArray]:
    """Returns the tokens of each class in each text, ``(classes, tokens)``.

    Raises:
        AttnvizError: if a search takes longer than its limit.
    """
    if not own:
        return [np.zeros((0, len(tokens)), dtype=bool) for tokens in texts]

    def work() -> str:
        patterns = [re.compile(pattern) for pattern in own.values()]
        return json.dumps([[[m.span() for m in each.finditer(tokens.text)] for each in patterns] for tokens in texts])

    found = json.loads(run_bounded(work, f"looking for {' and '.join(own)}"))
    return [
        np.stack([_overlaps(tokens, spans) for spans in of_classes])
        for tokens, of_classes in zip(texts, found, strict=True)
    ]


def _overlaps(tokens: Tokens, spans: Sequence[tuple[int, int]]) -> BoolArray:
    """True for tokens that share a character with a match, ``(tokens,)``."""
    marked = np.zeros(len(tokens.text) + 1, dtype=np.int64)
    for start, stop in spans:
        marked[start:stop] = 1
    reached = np.concatenate([[0], np.cumsum(marked)])
    starts, stops = tokens.offsets.T
    return np.asarray(reached[stops] > reached[starts])
