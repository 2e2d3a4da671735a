"""Classes of tokens whose share of the weight a survey counts, beside the metrics of every head."""

import unicodedata
from collections.abc import Mapping
from functools import cache

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.metrics.query_grid import sentences_of
from attnviz.text.tokens import Tokens

LEFT_OUT = ("pair",)  # metrics that no text of a corpus has: its texts are single ones
NEEDS = "texts with such a token"
CLASSES = (  # by what a key is
    Metric("punctuation", "punct.", "share", "on punctuation", needs=NEEDS),
    Metric("digits", "digits", "share", "on digits", needs=NEEDS),
    Metric("whitespace", "space", "share", "on white space", needs=NEEDS),
    Metric("sentence-start", "sent.start", "share", "on the first token of a sentence", needs=NEEDS),
)
RELATIONS = (  # by what a key is to the query
    Metric("same-token", "same tok.", "share", "on other copies of the query's token", needs=NEEDS),
    Metric("same-word", "same word", "share", "on other tokens of the query's word", needs="words of several tokens"),
)


def surveyed_metrics(own: Mapping[str, str]) -> tuple[Metric, ...]:
    """What a survey counts for each head: the metrics, the classes, and the user's own ones.

    Args:
        own: the expression of each of the user's own classes, by its name.
    """
    metrics = tuple(metric for name, metric in METRICS.items() if name not in LEFT_OUT)
    named = (
        Metric(name, name[:9], "share", f"on what {pattern!r} matches", needs=NEEDS) for name, pattern in own.items()
    )
    return (*metrics, *CLASSES, *RELATIONS, *named)


def class_masks(tokens: Tokens) -> dict[str, BoolArray]:
    """Which tokens are of each class of `CLASSES`, ``(tokens,)`` by name."""
    kinds = [kind_of(tokens.text[start:stop]) for start, stop in tokens.offsets.tolist()]
    sentences = sentences_of(tokens)
    starts = (sentences >= 0) & (np.diff(sentences, prepend=-1) != 0)
    return {name: np.array([kind == name for kind in kinds], dtype=bool) for name in KINDS} | {"sentence-start": starts}


KINDS = ("punctuation", "digits", "whitespace")


@cache
def kind_of(piece: str) -> str:
    """Of which class a token is by its characters; "" for none."""
    stripped = piece.strip()
    if not stripped:
        return "whitespace" if piece else ""
    if all(unicodedata.category(character).startswith("P") for character in stripped):
        return "punctuation"
    return "digits" if all(unicodedata.category(character) == "Nd" for character in stripped) else ""
