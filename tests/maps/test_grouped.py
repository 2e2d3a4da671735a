"""Maps over words, and without special tokens: each number worked out by hand."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.grouped import GroupedMaps, Units, join_window, regroup
from attnviz.maps.recording import Recording
from attnviz.text.groups import Groups
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens, tokenize, tokens_of_pieces
from tests.conftest import cells
from tests.maps.peak_memory import peak_memory


def tokens() -> Tokens:
    """[CLS] un | able | it: the middle two are one word."""
    special = np.array([True, False, False, False])
    return tokens_of_pieces(
        "unable it", [1, 2, 3, 4], ["[CLS]", "a", "b", "c"], [(0, 0), (0, 2), (2, 6), (7, 9)], special
    )


WEIGHTS = [[0.4, 0.1, 0.2, 0.3], [0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0]]


def recording() -> Recording:
    weights = np.array([WEIGHTS, np.array(WEIGHTS)[::-1]], dtype=np.float32)
    maps = DenseMaps(
        layer=1,
        module="m",
        heads=(3, 5),
        query_tokens=tokens(),
        key_tokens=tokens(),
        scores=np.log(weights + 1).astype(np.float32),
        weights=weights,
        visible=np.ones((4, 4), dtype=bool),
    )
    return Recording(maps=(maps,), model="a test")


def regrouped(selection: Selection | None = None, **how: Any) -> tuple[DenseMaps, Recording]:
    grouped = regroup(recording(), selection or Selection(), Grouping(**how))
    maps = grouped.maps[0]
    assert isinstance(maps, DenseMaps)
    return maps, grouped


def test_weight_to_a_word_is_summed_over_its_keys_and_averaged_over_its_queries() -> None:
    maps, grouped = regrouped(words=True)
    assert maps.query_tokens.labels == ("[CLS]", "unable", "it")
    np.testing.assert_allclose(maps.weights[0], [[0.4, 0.3, 0.3], [0.4, 0.35, 0.25], [0.0, 1.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    assert "summed over the tokens of a word as keys" in grouped.remarks[0]


def test_special_tokens_are_hidden_and_rows_keep_what_is_left() -> None:
    maps, grouped = regrouped(special=False)
    np.testing.assert_allclose(maps.weights[0], np.array(WEIGHTS)[1:, 1:], atol=1e-6)
    np.testing.assert_allclose(maps.scores[0], np.log(np.array(WEIGHTS)[1:, 1:] + 1), atol=1e-6)
    assert "[CLS]" in grouped.remarks[0]
    assert "no longer sum to 100%" in grouped.remarks[0]


def test_rows_are_renormalized_only_by_asking() -> None:
    maps, grouped = regrouped(special=False, renormalize=True)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(maps.weights[0, 0], np.array([0.1, 0.1, 0.1]) / 0.3, atol=1e-6)
    assert "divided by their new sum" in grouped.remarks[0]


def test_only_chosen_heads_are_regrouped() -> None:
    maps, _ = regrouped(words=True, selection=Selection(pairs=((1, 5),)))
    assert maps.heads == (5,)
    np.testing.assert_allclose(maps.weights[0, 0], [0.0, 1.0, 0.0], atol=1e-6)


def test_nothing_asked_changes_nothing() -> None:
    one = recording()
    assert regroup(one, Selection(), Grouping()) is one


def test_paragraphs_are_joined_as_words_are() -> None:
    maps, grouped = regrouped(by="paragraphs")
    assert maps.query_tokens.labels == ("[CLS]", "unable it")
    np.testing.assert_allclose(maps.weights[0], [[0.4, 0.6], [(0.7 + 0.1) / 3, (0.3 + 0.9 + 1) / 3]], atol=1e-6)
    assert np.isnan(maps.scores).all()
    assert grouped.remarks[0] == (
        "Paragraphs: weights are summed over the tokens of a paragraph as keys and averaged over them as queries."
    )


def test_parts_begin_where_a_pattern_matches() -> None:
    maps, grouped = regrouped(by="it$")
    assert maps.query_tokens.labels == ("[CLS]", "unable", "it")
    assert grouped.remarks[0].startswith("Parts that begin at 'it$': weights are summed over the tokens of a part")


def test_groups_that_tokens_were_given_are_summed_wherever_they_stand() -> None:
    turns = {"speakers": Groups(np.array([-1, 0, 1, 0]), ("user", "model"))}
    maps = replace(recording().maps[0], query_tokens=replace(tokens(), groups=turns))
    grouped = regroup(replace(recording(), maps=(maps,)), Selection(), Grouping(by="speakers"))
    assert grouped.maps[0].query_tokens.labels == ("[CLS]", "user", "model")
    assert grouped.remarks[0].startswith("Speakers: weights are summed over the tokens of a part")
    window = cells(grouped).window((3,), slice(0, 3), slice(0, 4))
    np.testing.assert_allclose(window.weights[0, 1], (np.array(WEIGHTS[1]) + WEIGHTS[3]) / 2, atol=1e-6)


def test_tokens_outside_of_every_turn_are_named() -> None:
    labelled = replace(tokens(), groups={"turns": Groups(np.array([-1, 0, 1, 1]), ("1 user", "2 assistant"))})
    maps = replace(recording().maps[0], query_tokens=labelled, key_tokens=labelled)
    grouped = regroup(replace(recording(), maps=(maps,)), Selection(), Grouping(by="turns"))
    assert any("1 token of the chat template (“[CLS]”)" in remark for remark in grouped.remarks)
    outside = replace(labelled, groups={"turns": Groups(np.array([-1, 0, 1, -1]), ("1 user", "2 assistant"))})
    maps = replace(maps, key_tokens=outside)
    grouped = regroup(replace(recording(), maps=(maps,)), Selection(), Grouping(by="turns"))
    assert any("2 tokens of the chat template (“[CLS]”, “it”), " in remark for remark in grouped.remarks)


def test_words_are_a_short_form() -> None:
    short, long, of_word = (regrouped(**how) for how in ({"words": True}, {"by": "words"}, {"by": "word"}))
    for other in (long, of_word):
        np.testing.assert_array_equal(other[0].weights, short[0].weights)
        assert other[1].remarks == short[1].remarks


def test_tokens_are_joined_to_nothing_else_by_their_name() -> None:
    assert Grouping(by="tokens") == Grouping(by="token")
    assert Grouping(by="tokens").keeps_tokens
    assert not Grouping(by="tokens", special=False).keeps_tokens


def test_refuses_words_and_others_together() -> None:
    assert Grouping(words=True, by="words").units == "words"
    with pytest.raises(AttnvizError, match="by='lines' and words=True join different tokens; choose one of them"):
        Grouping(words=True, by="lines")


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("texts", "matches nothing in the text"),
        ("Chapter", "matches nothing in the text"),
        ("(", "is not a regular expression"),
    ],
)
def test_refuses_units_that_are_not_there_and_says_what_are(by: str, reason: str) -> None:
    with pytest.raises(AttnvizError, match=f"by[= ]'{re.escape(by)}' {reason}.*lines"):
        regrouped(by=by)


def test_nothing_is_said_to_be_hidden_where_no_special_token_is() -> None:
    plain = replace(recording().maps[0], query_tokens=tokenize("a b c d"), key_tokens=tokenize("a b c d"))
    grouped = regroup(replace(recording(), maps=(plain,)), Selection(), Grouping(special=False))
    assert grouped.remarks == ("There are no special tokens to hide.",)


def test_refuses_to_leave_nothing_of_a_text_of_special_tokens() -> None:
    special = replace(tokens(), special=np.ones(4, dtype=bool))
    maps = replace(recording().maps[0], query_tokens=special, key_tokens=special)
    with pytest.raises(AttnvizError, match="only special tokens, and special=False would hide them all"):
        regroup(replace(recording(), maps=(maps,)), Selection(), Grouping(special=False))


def test_only_units_of_one_token_have_scores() -> None:
    units = Units.of(tokens(), "words")
    joined = join_window(cells(recording()).window((3,), slice(0, 4), slice(0, 4)), units, units)
    assert np.isnan(joined.scores[0, 1]).all()
    np.testing.assert_allclose(joined.scores[0, 0], [np.log(1.4), np.nan, np.log(1.3)], rtol=1e-6)


@pytest.mark.parametrize(
    "how", [Grouping(words=True), Grouping(special=False), Grouping(words=True, renormalize=True)], ids=str
)
def test_maps_too_large_to_hold_are_joined_as_they_are_read(how: Grouping, monkeypatch: pytest.MonkeyPatch) -> None:
    held = regroup(recording(), Selection(), how).maps[0]
    assert isinstance(held, DenseMaps)
    monkeypatch.setattr("attnviz.maps.derived.MAX_KEPT_CELLS", 1)
    monkeypatch.setattr("attnviz.maps.derived.MAX_BAND_CELLS", 3)
    read = regroup(recording(), Selection(), how).maps[0]
    assert isinstance(read, GroupedMaps)
    count = len(held.query_tokens)
    for queries, keys in ((slice(0, count), slice(0, count)), (slice(1, 2), slice(1, 3)), (slice(2, 3), slice(0, 1))):
        one, other = (maps.window((5, 3), queries, keys) for maps in (held, read))
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(one.visible, other.visible)
    pooled, expected = (maps.overview((3, 5), 2, 2, slice(0, count), slice(0, 3)) for maps in (read, held))
    np.testing.assert_allclose(pooled.mean, expected.mean, rtol=1e-6)
    np.testing.assert_array_equal(pooled.maximum, expected.maximum)
    np.testing.assert_array_equal(pooled.visible, expected.visible)


@pytest.mark.parametrize("by", ["words", "sentences"])
def test_groups_of_8_000_tokens_take_less_memory_than_one_whole_map(by: str) -> None:
    assert peak_memory(by) < 200  # one array of a head's weights over tokens has 244 MB
