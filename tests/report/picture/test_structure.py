"""What overviews leave out, and the sentence that a reader sees first."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording, chosen_heads
from attnviz.metrics.call_metrics import measured_frame
from attnviz.report.picture.structure import first_sentence, left_out_keys, row_of_last_token
from attnviz.text.groups import WORDS, Groups
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import dense
from tests.report.image_examples import image_recording, tokens_of_image

LABELS = ("[CLS]", "the", "fox", "saw", "it", "[SEP]")


def heads_with(
    shares: list[float], key: int, special: tuple[int, ...] = (), causal: bool = False, count: int = len(LABELS)
) -> Recording:
    """A head for each share, which puts so much of every row on one key and the rest evenly on the others it sees."""
    visible = np.tri(count, dtype=bool) if causal else np.ones((count, count), dtype=bool)
    weights = np.zeros((len(shares), count, count), dtype=np.float32)
    for head, share in enumerate(shares):
        for query in range(count):
            others = [other for other in np.flatnonzero(visible[query]).tolist() if other != key]
            weights[head, query, others] = (1 - share) / max(1, len(others))
            weights[head, query, key] = share if others else 1
    is_special = np.isin(np.arange(count), special)
    tokens = replace(Tokens.numbered(count), labels=LABELS[:count], special=is_special)
    maps = DenseMaps(
        layer=0,
        module="layers.0",
        heads=tuple(range(len(shares))),
        query_tokens=tokens,
        key_tokens=tokens,
        scores=np.zeros_like(weights),
        weights=weights,
        visible=visible,
    )
    return Recording(maps=(maps,), model="a test")


@pytest.mark.parametrize(
    ("recording", "sentence"),
    [
        (
            heads_with([0.9, 0.8, 0.1], key=0, special=(0, 5)),
            "[CLS] and [SEP] are left out: the median head puts 84% of its weight on them.",  # 0.8 + 0.2 / 5
        ),
        (
            heads_with([0.9, 0.8, 0.1], key=0, causal=True),
            "The first token, “[CLS]”, is left out: the median head puts 80% of its weight on it.",
        ),
        (heads_with([0.9, 0.8, 0.7], key=2, special=(0, 5)), None),  # a sink in the middle that no rule names
        (heads_with([0.9, 0.2, 0.2], key=0, special=(0, 5)), None),  # one head of three is not the median
        (
            heads_with([1 / 3, 1 / 3, 1 / 3], key=0, causal=True, count=3),
            None,
        ),  # the first rows see little else than the first token
    ],
    ids=["special tokens", "first token", "another token", "one head", "even rows"],
)
def test_overviews_leave_out_where_the_median_head_rests(recording: Recording, sentence: str | None) -> None:
    left_out = left_out_keys(chosen_heads(recording, Selection()))
    assert (left_out and left_out.sentence) == sentence


def test_left_out_keys_are_those_of_a_part_of_the_text() -> None:
    recording = heads_with([0.9, 0.8, 0.7], key=0, special=(0, 5))
    heads = chosen_heads(recording, Selection())
    left_out = left_out_keys(heads)
    assert left_out is not None
    tokens = heads[0].maps.key_tokens
    assert left_out.among(tokens, slice(0, 6)).tolist() == [True, False, False, False, False, True]
    assert left_out.among(tokens, slice(2, 6)).tolist() == [False, False, False, True]
    assert left_out.among(tokens, slice(5, 6)).tolist() == [False]  # nothing else would be left
    later = replace(left_out, special=False, first=True)
    assert not later.among(tokens, slice(2, 6)).any()  # the text's first token is no part of it


def test_the_first_sentence_counts_heads_as_the_filter_does_and_names_the_strongest_look() -> None:
    recording = heads_with([0.2, 0.2, 0.95], key=0, special=(0, 5))
    weights = dense(recording).weights.copy()
    weights[0] = np.eye(6, k=-1)
    weights[0, 0] = 1 / 6
    weights[1, 4] = [0, 0, 0.7, 0, 0.3, 0]  # “it” looks at “fox”
    maps = replace(dense(recording), weights=weights)
    heads = chosen_heads(replace(recording, maps=(maps,)), Selection())
    phrases = first_sentence(heads, measured_frame([(head.maps, head.head) for head in heads]), None)
    said = "1 previous-token head, 1 sink on [CLS]; clearest head: 0.0; “it” looks most at “fox” (head 0.1, 70%)."
    assert "".join(phrase.text for phrase in phrases) == said
    assert [phrase.address for phrase in phrases if phrase.address] == [
        "filter=previous%20token",
        "filter=sink%3A",
        "head=0.0",
        "head=0.1&query=it&key=fox",
    ]


@pytest.mark.parametrize(
    ("query", "key", "words", "is_said"),
    [
        (4, 2, None, True),
        (3, 2, None, False),  # a pattern by distance says that
        (4, 2, (-1, 0, 1, 2, 2, -1), False),  # “it” is the second piece of a word
        (4, 2, (-1, 0, 0, 1, 2, -1), False),  # “fox” is
        (4, 2, (-1, 0, 1, 1, 2, -1), True),  # “saw” is
        (5, 2, None, False),  # a special token
    ],
)
def test_the_first_sentence_names_a_look_from_a_word_to_a_distant_word(
    query: int, key: int, words: tuple[int, ...] | None, is_said: bool
) -> None:
    recording = heads_with([0.2], key=0, special=(0, 5))
    weights = dense(recording).weights.copy()
    weights[0, query] = np.eye(6)[key]
    tokens = dense(recording).key_tokens
    if words is not None:
        tokens = replace(tokens, groups={**tokens.groups, WORDS: Groups(np.array(words))})
    maps = replace(dense(recording), weights=weights, query_tokens=tokens, key_tokens=tokens)
    heads = chosen_heads(replace(recording, maps=(maps,)), Selection())
    phrases = first_sentence(heads, measured_frame([(head.maps, head.head) for head in heads]), None)
    assert any("looks most at" in phrase.text for phrase in phrases) == is_said


def test_the_first_sentence_names_no_patch_as_a_word_that_looks() -> None:
    tokens = tokens_of_image()
    weights = np.full((1, 7, 7), 1 / 7, dtype=np.float32)
    weights[0, 5] = np.eye(7)[1]
    for query, is_said in ((tokens, False), (replace(tokens, medium=np.full(7, -1)), True)):
        given = dense(image_recording())
        maps = replace(given, heads=(0,), weights=weights, scores=weights, value_norms=None, query_tokens=query)
        heads = chosen_heads(replace(image_recording(), maps=(maps,)), Selection())
        phrases = first_sentence(heads, measured_frame([(head.maps, head.head) for head in heads]), None)
        assert any("looks most at" in phrase.text for phrase in phrases) == is_said


def test_the_first_sentence_is_empty_where_nothing_stands_out() -> None:
    heads = chosen_heads(heads_with([0.2, 0.2, 0.2], key=0), Selection())
    assert first_sentence(heads, measured_frame([(head.maps, head.head) for head in heads]), None) == ()


@pytest.mark.parametrize(
    ("rows", "special", "said"),
    [
        (  # half of the weight on the sink; two heads at one word, one at another, one too little, one most at itself
            [[0.5, 0, 0.5, 0, 0], [0.6, 0, 0.4, 0, 0], [0.4, 0.6, 0, 0, 0], [0.61, 0.39, 0, 0, 0], [0.3, 0, 0, 0, 0.7]],
            (0,),
            "“it”, the last token, puts 48% of its weight on [CLS] on average; beside that, 2 of 5 heads look most at "
            "“fox” with 40% or more (50% in 0.0, 40% in 0.1), 1 at “the” (60% in 0.2).",
        ),
        (
            [[0, 1, 0, 0, 0]],
            (0,),
            "“it”, the last token: 1 of 1 heads looks most at “the” with 40% or more (100% in 0.0).",
        ),
        (
            [[0.2] * 5, [0.2] * 5],
            (),
            "“it”, the last token, puts 20% of its weight on the first token on average; beside that, none of 2 "
            "heads singles out a token further back.",
        ),
    ],
    ids=["heads agree", "no sink", "even rows"],
)
def test_a_causal_text_is_told_of_by_its_last_token(
    rows: list[list[float]], special: tuple[int, ...], said: str
) -> None:
    recording = heads_with([0.5] * len(rows), key=0, special=special, causal=True, count=5)
    weights = dense(recording).weights.copy()
    weights[:, -1] = rows
    weights[:, -2, :4] = np.eye(4)[1]  # another row, which must not count
    heads = chosen_heads(replace(recording, maps=(replace(dense(recording), weights=weights),)), Selection())
    row = row_of_last_token(heads)
    assert row is not None
    assert row.text() == said
    phrases = first_sentence(heads, measured_frame([(head.maps, head.head) for head in heads]), None, row)
    assert "".join(phrase.text for phrase in phrases).startswith(said)
    linked = {phrase.address for phrase in phrases if "query=" in phrase.address}
    assert linked >= {"query=it"}


@pytest.mark.parametrize(
    "recording",
    [
        heads_with([0.5], key=0),
        heads_with([0.5], key=0, causal=True, count=1),
        heads_with([0.5], key=0, causal=True, count=3),
        image_recording(),
    ],
    ids=["an encoder", "one token", "none further back", "a picture"],
)
def test_no_other_maps_begin_with_the_row_of_the_last_token(recording: Recording) -> None:
    assert row_of_last_token(chosen_heads(recording, Selection())) is None


def test_heads_that_see_other_keys_have_a_mean_row_that_sums_to_one() -> None:
    recording = heads_with([0.5, 0.5], key=0, causal=True)
    sliding = replace(
        dense(recording), heads=(0,), weights=dense(recording).weights[:1], scores=dense(recording).scores[:1]
    )
    window = np.tri(6, dtype=bool) & ~np.tri(6, k=-3, dtype=bool)
    sliding = replace(
        sliding,
        layer=1,
        visible=window,
        weights=np.where(window, 1 / window.sum(1, keepdims=True), 0)[None].astype(np.float32),
    )
    heads = chosen_heads(replace(recording, maps=(*recording.maps, sliding)), Selection())
    row = row_of_last_token(heads)
    assert row is not None
    assert row.mean.sum() == pytest.approx(1)
    np.testing.assert_allclose(row.mean[:4], [1 / 3, 1 / 15, 1 / 15, (0.2 + 1 / 3) / 3], atol=1e-6)
