"""Units of a text with their answer, and the heads whose later units agree on few earlier ones."""

from dataclasses import replace

import numpy as np

from attnviz.metrics.unit_attention import (
    largest_scores,
    outstanding_scores,
    receiver_scores,
    unit_attention,
    units_of_text,
)
from attnviz.text.groups import Groups
from attnviz.text.named_groups import with_generated_from
from attnviz.text.tokens import Tokens, tokenize
from tests.metrics.examples import maps_of

SIZES = np.array([3, 1, 7, 2, 5, 4])


def looking(at: dict[int, float], sizes: np.ndarray = SIZES) -> np.ndarray:
    """A head whose units give these weights to earlier units, ``(units, units)``."""
    weights = np.zeros((len(sizes), len(sizes)))
    for unit, weight in at.items():
        weights[unit + 1 :, unit] = weight
    return weights


def test_a_head_that_looks_at_one_unit_has_the_kurtosis_of_a_spike_and_an_even_head_none() -> None:
    even = looking(dict(enumerate((0.04 * SIZES).tolist())))
    scores = receiver_scores(np.stack([even, looking({2: 0.5}), looking({1: 0.1, 2: 0.7})]), SIZES)
    spike = 5 - 2 + 1 / 4  # of one number among five
    tie = (2 * 0.6**4 + 3 * 0.4**4) / 5 / 0.24**2  # of two among five, which are equal per token
    np.testing.assert_allclose(scores, [0, spike, tie], atol=1e-9)
    assert largest_scores(scores).tolist() == [1]


def test_the_three_units_after_one_do_not_count_in_a_long_text_and_few_units_have_no_kurtosis() -> None:
    sizes = np.full(12, 2)
    previous = np.eye(12, k=-1) * 0.9 + np.eye(12, k=-3) * 0.05
    assert receiver_scores(previous[None], sizes)[0] == 0
    assert receiver_scores(np.eye(11, k=-1)[None], sizes[:11])[0] > 1
    assert np.isnan(receiver_scores(looking({0: 0.5}, SIZES[:4])[None], SIZES[:4])).all()


def test_a_unit_stands_out_by_its_share_over_its_share_of_the_tokens() -> None:
    sizes = np.array([8, 1, 1])
    heads = np.stack([looking({0: 0.8}, sizes), looking({0: 0.4, 1: 0.4}, sizes)])
    np.testing.assert_allclose(outstanding_scores(heads, sizes), [0, 0.8], atol=1e-9)  # 0.4 of 0.1: two bits


def test_a_key_without_a_token_belongs_to_no_unit() -> None:
    units, _ = units_of_text(tokenize("One a. Two b.", "word"), "sentences")
    count = len(units.tokens)
    weights = np.tri(count) / np.arange(2, count + 2)[:, None]
    with_sink = np.concatenate([weights, 1 - weights.sum(axis=1, keepdims=True)], axis=1)[None]
    maps = maps_of(with_sink, units.tokens, key_tokens=Tokens.numbered(count + 1))
    is_first, is_second = (units.numbers == unit for unit in range(2))
    expected = [[weights[row][:, key].sum(1).mean() for key in (is_first, is_second)] for row in (is_first, is_second)]
    np.testing.assert_allclose(unit_attention(maps, units)[0], expected, atol=1e-6)


def test_what_a_model_wrote_begins_a_unit_and_is_the_answer() -> None:
    tokens = tokenize("One a. Two b went on. Three c.", "word")
    units, answer = units_of_text(tokens, "sentences")
    assert (units.labels, answer) == (("One a.", "Two b went on.", "Three c."), 2)
    units, answer = units_of_text(with_generated_from(tokens, 5), "sentences")
    assert (units.labels, answer) == (("One a.", "Two b", "went on.", "Three c."), 2)
    assert units.numbers[0] == -1  # the first token is the sink


def test_the_answer_of_a_chat_is_its_last_turn_and_marks_are_no_unit() -> None:
    turns = [-1, 0, 0, -1, 1, 1, -1, 2, 2, -1]
    tokens = replace(Tokens.numbered(10), groups={"turns": Groups(np.array(turns), ("1 user", "2 tool", "3 answer"))})
    units, answer = units_of_text(tokens, "turns")
    assert (units.labels, answer) == (("1 user", "2 tool", "3 answer"), 2)
    assert units.numbers.tolist() == turns
