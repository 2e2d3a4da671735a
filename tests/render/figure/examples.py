"""Recordings and what is read off figures, for the tests of figures."""

from typing import Any

from matplotlib.text import Text

from attnviz.maps.recording import Recording
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps

WORDS = ["the", "cat", "that", "sat", "on", "a", "mat", "extraordinarily", ",", "or", "so", "it", "seemed"]


def tokens_of(labels: list[str]) -> Tokens:
    """Tokens with these labels."""
    numbered = Tokens.numbered(len(labels))
    return Tokens(**{**vars(numbered), "labels": tuple(labels)})


def recorded(heads: int, queries: list[str], keys: list[str], causal: bool = False, seed: int = 0) -> Recording:
    """Random peaked maps of one layer over these labels."""
    maps = random_maps(tokens_of(queries), tokens_of(keys), layer=3, heads=heads, causal=causal, peak=2, seed=seed)
    return Recording(maps=(maps,), model="a test", untrained=True, seed=7)


def words(count: int) -> list[str]:
    """So many words, the same again after a while."""
    return [WORDS[place % len(WORDS)] for place in range(count)]


def shown_texts(drawn: Any) -> list[Text]:
    """Every text that a figure shows."""
    return [text for text in drawn.findobj(Text) if text.get_text() and text.get_visible()]
