"""Defines classes of tokens, built in or a user's, whose share of the weight a survey measures beside its metrics."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.metrics.grid import Cells, Grid
from attnviz.metrics.measure import NAME, Need
from attnviz.metrics.metrics import METRICS, OF_THOSE_SEEING, Metric
from attnviz.metrics.query_grid import TOKEN_NUMBERS, sentences_of
from attnviz.text.tokens import Tokens

OMITTED_METRICS = ("pair",)  # a corpus has single texts, no pairs
NEEDS_OF_TEXTS = {Need.SEQUENCE, Need.TOKEN_IDS, Need.SENTENCES, Need.PAIR, Need.CAUSAL_SCORES}
KINDS = ("punctuation", "digits", "whitespace")
SUCH_TOKEN = frozenset({Need.SUCH_TOKEN})
LONG_WORDS = frozenset({Need.LONG_WORDS})


def class_numbers_name(name: str) -> str:
    """Returns the key of a custom class in `TextBatch.token_numbers`; no built-in numbers have the same key."""
    return f"class {name}"


def kind_numbers(tokens: Tokens) -> IntArray:
    """Returns the index of each token's kind in `KINDS`, ``(tokens,)``; -1 for a token of no kind."""
    kinds = (kind_number(tokens.text[start:stop]) for start, stop in tokens.offsets.tolist())
    return np.fromiter(kinds, dtype=np.int64, count=len(tokens))


def sentence_starts(tokens: Tokens) -> BoolArray:
    """Returns a mask of the tokens that begin a sentence, ``(tokens,)``; tokens without a sentence begin none."""
    sentences = sentences_of(tokens)
    return np.asarray((sentences >= 0) & (np.diff(sentences, prepend=-1) != 0))


@cache
def kind_number(piece: str) -> int:
    """Returns the index in `KINDS` of a token with these characters, spaces around them aside; -1 for no kind."""
    characters = piece.strip()
    if not characters:
        return KINDS.index("whitespace") if piece else -1
    if all(unicodedata.category(character).startswith("P") for character in characters):
        return KINDS.index("punctuation")
    return KINDS.index("digits") if all(unicodedata.category(character) == "Nd" for character in characters) else -1


SURVEYED_NUMBERS: Mapping[str, Callable[[Tokens], NDArray[Any]]] = {
    **TOKEN_NUMBERS,
    "kinds": kind_numbers,
    "sentence starts": sentence_starts,
}


def punctuation(grid: Grid) -> Cells:
    """Returns the cells whose key consists of punctuation, apart from white space around it."""
    return grid.cells(grid.key_numbers("kinds") == KINDS.index("punctuation"))


def digits(grid: Grid) -> Cells:
    """Returns the cells whose key consists of decimal digits, apart from white space around them."""
    return grid.cells(grid.key_numbers("kinds") == KINDS.index("digits"))


def whitespace(grid: Grid) -> Cells:
    """Returns the cells whose key consists of white space."""
    return grid.cells(grid.key_numbers("kinds") == KINDS.index("whitespace"))


def sentence_start(grid: Grid) -> Cells:
    """Returns the cells whose key is the first token of a sentence."""
    return grid.cells(grid.key_numbers("sentence starts"))


def same_token(grid: Grid) -> Cells:
    """Returns the cells whose key is another copy of the query's token."""
    return grid.cells(grid.same_numbers("ids") & grid.is_other_token)


def same_word(grid: Grid) -> Cells:
    """Returns the cells whose key is another token of the query's word."""
    return grid.cells(grid.same_numbers("words") & grid.is_other_token)


CLASSES = (  # by the key alone
    Metric("punctuation", "punct.", "share", "on punctuation", SUCH_TOKEN, punctuation),
    Metric("digits", "digits", "share", "on digits", SUCH_TOKEN, digits),
    Metric("whitespace", "space", "share", "on white space", SUCH_TOKEN, whitespace),
    Metric("sentence-start", "sent.start", "share", "on the first token of a sentence", SUCH_TOKEN, sentence_start),
)
RELATIONS = (  # by query and key
    Metric(
        "same-token",
        "same tok.",
        "share",
        f"on other copies of the query's token, {OF_THOSE_SEEING}",
        SUCH_TOKEN,
        same_token,
        only_seeing=True,
    ),
    Metric(
        "same-word",
        "same word",
        "share",
        f"on other tokens of the query's word, {OF_THOSE_SEEING}",
        LONG_WORDS,
        same_word,
        only_seeing=True,
    ),
)


def picture_metrics() -> tuple[Metric, ...]:
    """Returns the metrics of a survey of pictures: those of `attnviz heads` that need no text."""
    return tuple(metric for metric in METRICS.values() if not metric.needs & NEEDS_OF_TEXTS)


def surveyed_metrics(custom_classes: Mapping[str, str]) -> tuple[Metric, ...]:
    """Returns the metrics of a survey of texts: those of `attnviz heads`, of token classes, and of the user's classes.

    The metrics of pairs of texts and of patches of images are left out.
    """
    metrics = tuple(
        metric for name, metric in METRICS.items() if name not in OMITTED_METRICS and Need.PATCHES not in metric.needs
    )
    shared_name = next((each.name for each in (*CLASSES, *RELATIONS) if each.name in METRICS), None)
    if shared_name is not None:
        raise AttnvizError(f"a survey has a {shared_name!r} already; give your metric another name")
    return (
        *metrics,
        *CLASSES,
        *RELATIONS,
        *(custom_class_metric(name, pattern) for name, pattern in custom_classes.items()),
    )


def custom_class_metric(name: str, pattern: str) -> Metric:
    """Returns the metric of a class that the user defined: the share of the weight that is on the class's tokens."""

    def cells_of_class(grid: Grid) -> Cells:
        return grid.cells(grid.key_numbers(class_numbers_name(name)))

    column_label = name[:9]  # tables have narrow columns
    return Metric(name, column_label, "share", f"on what {pattern!r} matches", SUCH_TOKEN, cells_of_class)


def parse_classes(definitions: Sequence[str]) -> dict[str, str]:
    r"""Returns the regular expression of each class by its name, given definitions such as ``numbers=\d+``.

    Returns ``{}`` if there are no definitions.
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
    """Returns for each text a mask ``(classes, tokens)``, True for tokens that share a character with a class's
    match.
    """
    if not classes:
        return [np.zeros((0, len(tokens)), dtype=bool) for tokens in texts]

    def find_matches() -> str:
        patterns = [re.compile(pattern) for pattern in classes.values()]
        spans = []
        for tokens in texts:
            spans.append([[match.span() for match in pattern.finditer(tokens.text)] for pattern in patterns])
        return json.dumps(spans)

    text_spans = json.loads(run_bounded(find_matches, f"looking for {' and '.join(classes)}"))
    masks = []
    for tokens, class_spans in zip(texts, text_spans, strict=True):
        starts, stops = tokens.offsets.T
        mask = np.zeros((len(classes), len(tokens)), dtype=bool)
        for class_mask, spans in zip(mask, class_spans, strict=True):
            is_matched = np.zeros(len(tokens.text) + 1, dtype=np.int64)
            for start, stop in spans:
                is_matched[start:stop] = 1
            matches_before = np.concatenate([[0], np.cumsum(is_matched)])
            class_mask[:] = matches_before[stops] > matches_before[starts]
        masks.append(mask)
    return masks
