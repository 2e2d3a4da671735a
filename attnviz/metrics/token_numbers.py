"""Provides the numbers of tokens that metrics compare: ids, words, sentences, segments of a pair, special tokens."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import IntArray
from attnviz.metrics.patch_lattice import ImagePatches
from attnviz.text.characters import SENTENCES
from attnviz.text.named_groups import named_groups
from attnviz.text.tokens import Tokens


def sentences_of(tokens: Tokens) -> IntArray:
    """Returns the index of each token's sentence, ``(tokens,)``, from 0; -1 for special tokens.

    All tokens are in one sentence if the sentences are unknown.
    """
    sentences = named_groups(tokens, SENTENCES)
    return np.where(tokens.special, -1, 0 if sentences is None else sentences.numbers).astype(np.int64)


def is_sequence(tokens: Tokens) -> bool:
    """True if the tokens are in a sequence, so that before, after and near are defined."""
    return tokens.order == "sequence"


# Each function returns ``(tokens,)``: integers, negative for tokens without a number, or booleans.
TOKEN_NUMBERS: Mapping[str, Callable[[Tokens], NDArray[Any]]] = {
    "ids": lambda tokens: tokens.ids,
    "words": lambda tokens: tokens.words,
    "segments": lambda tokens: tokens.segments,
    "special": lambda tokens: tokens.special,
    "sentences": sentences_of,
}


class NumberedTokens:
    """Tokens with the columns of `TOKEN_NUMBERS`, each computed once."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def patches(self) -> ImagePatches:
        """The patches of images among the tokens."""
        return ImagePatches.of(self.tokens)

    def column(self, name: str) -> NDArray[Any]:
        """Returns the column of `TOKEN_NUMBERS` with this name, ``(tokens,)``."""
        if name not in self._columns:
            self._columns[name] = TOKEN_NUMBERS[name](self.tokens)
        return self._columns[name]
