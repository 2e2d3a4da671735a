"""Words and single tokens as units: where they end, what they are called, and their cells."""

from dataclasses import replace

import numpy as np

from attnviz.text.units import reduce_units, unit_ends, unit_label
from tests.browse.test_units import made_tokens


def test_reduction_skips_what_is_left_out() -> None:
    ends = unit_ends(made_tokens(), words=True, special=False)
    assert reduce_units(np.add, np.array([[1, 10, 100]]), *ends, axis=1).tolist() == [[11, 100]]


def test_reduction_over_a_gap_in_the_middle() -> None:
    middle = replace(made_tokens(), special=np.array([False, False, True, False, False]))
    ends = unit_ends(middle, words=False, special=False)
    assert reduce_units(np.add, np.arange(5)[None], *ends, axis=1).tolist() == [[0, 1, 3, 4]]


def test_a_word_never_takes_a_special_token_in() -> None:
    tokens = replace(made_tokens(), words=np.zeros(5, dtype=np.int64))
    starts, stops = unit_ends(tokens, words=True, special=True)
    assert (starts.tolist(), stops.tolist()) == ([0, 1, 4], [1, 4, 5])


def test_a_word_without_text_is_called_by_its_tokens() -> None:
    assert unit_label(made_tokens(), 1, 3) == "playing"
    assert unit_label(replace(made_tokens(), text=""), 1, 4) == "playingcards"


def test_no_unit_is_left_of_special_tokens_alone() -> None:
    only = replace(made_tokens(), special=np.ones(5, dtype=bool))
    assert not unit_ends(only, words=False, special=False)[0].size
