"""Classifies tokens by the user's regular expressions: a token is in a class if it shares a character with a match."""

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.texts.token_classes import surveyed_metrics
from attnviz.metrics.head_filter import NAME
from attnviz.text.tokens import Tokens


def parse_classes(definitions: Sequence[str]) -> dict[str, str]:
    r"""Returns the regular expression of each class by its name, given definitions such as ``numbers=\d+``.

    Returns ``{}`` if there are no definitions.

    Raises:
        AttnvizError: if a definition is malformed, its name is that of a metric or of another class, or its regular
            expression does not compile.
    """
    classes: dict[str, str] = {}
    metric_names = {metric.name for metric in surveyed_metrics({})}
    for definition in definitions:
        name, sign, pattern = definition.partition("=")
        if not sign or not pattern or not re.fullmatch(NAME, name):
            raise AttnvizError(
                f"{option('token_class', definition)} is not a class; "
                f"write it as {option('token_class', 'years=[0-9]{4}')}"
            )
        if name in metric_names or name in classes:
            raise AttnvizError(f"{option('token_class', definition)}: there already is a {name!r}; choose another name")
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise AttnvizError(f"{option('token_class', definition)} is not a regular expression: {reason}") from error
        classes[name] = pattern
    return classes


def class_masks(texts: Sequence[Tokens], classes: Mapping[str, str]) -> list[BoolArray]:
    """Returns for each text a mask ``(classes, tokens)``, True for tokens that share a character with a class's match.

    Raises:
        AttnvizError: if a search takes longer than its limit.
    """
    if not classes:
        return [np.zeros((0, len(tokens)), dtype=bool) for tokens in texts]

    def find_matches() -> str:
        """Returns the spans of all matches of the enclosing function's ``classes`` in its ``texts``, as JSON."""
        patterns = [re.compile(pattern) for pattern in classes.values()]
        spans = []
        for tokens in texts:
            spans.append([[match.span() for match in pattern.finditer(tokens.text)] for pattern in patterns])
        return json.dumps(spans)

    text_spans = json.loads(run_bounded(find_matches, f"looking for {' and '.join(classes)}"))
    return [
        np.stack([_overlaps(tokens, spans) for spans in class_spans])
        for tokens, class_spans in zip(texts, text_spans, strict=True)
    ]


def _overlaps(tokens: Tokens, spans: Sequence[tuple[int, int]]) -> BoolArray:
    """Returns a mask of the tokens that share a character with a match, ``(tokens,)``."""
    is_matched = np.zeros(len(tokens.text) + 1, dtype=np.int64)
    for start, stop in spans:
        is_matched[start:stop] = 1
    matches_before = np.concatenate([[0], np.cumsum(is_matched)])
    starts, stops = tokens.offsets.T
    return np.asarray(matches_before[stops] > matches_before[starts])
