"""Attention built to have each pattern is called by its name, and no other."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.metrics.call_metrics import measure
from attnviz.metrics.patterns import MIXED, Pattern, pattern_counts
from attnviz.text.tokens import Tokens, tokenize
from tests.metrics.examples import maps_of

COUNT = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DISTINCT = tokenize(" ".join(LETTERS[:COUNT]))
REPEATED = tokenize(" ".join(LETTERS[: COUNT // 2] * 2))
CAUSAL = np.tri(COUNT, dtype=bool)


def pattern_of(weights: np.ndarray, tokens: Tokens = DISTINCT, visible: np.ndarray | None = None) -> str:
    """The name of a head with these weights, each row scaled to sum to one over what is visible."""
    seen = np.ones(weights.shape, dtype=bool) if visible is None else visible
    shares = np.where(seen, weights + 1e-9, 0)
    maps: DenseMaps = maps_of((shares / shares.sum(axis=-1, keepdims=True))[None], tokens, seen)
    return ", ".join(map(str, measure(maps)[0].patterns))


def blurred(cells: np.ndarray, share: float) -> np.ndarray:
    """Rows with this share on the given cells and the rest spread evenly."""
    return np.asarray(cells * share + (1 - share) / cells.shape[-1])


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (np.eye(COUNT, k=-1), "previous token 0.90"),
        (np.eye(COUNT, k=1), "next token 0.90"),
        (np.eye(COUNT), "own token 0.90"),
        (np.eye(COUNT)[[3] * COUNT], "sink: d 0.90"),
    ],
)
def test_pattern_is_named_with_its_share(cells: np.ndarray, name: str) -> None:
    assert pattern_of(blurred(cells, 0.9)) == name


@pytest.mark.parametrize("offset", [-1, 1])
def test_pattern_with_less_than_half_of_the_weight_is_not_named(offset: int) -> None:
    assert pattern_of(blurred(np.eye(COUNT, k=offset), 0.4)) == "mixed"


def beside(cells: np.ndarray, sink_share: float, share: float, sink: int = 0) -> np.ndarray:
    """Causal rows with one share on a sink and another on the given cells, the rest spread evenly."""
    rows = cells * share + (1 - share - sink_share) / COUNT
    rows[:, sink] += sink_share
    return np.asarray(rows)


COPIES = np.eye(COUNT, k=1 - COUNT // 2) * (np.arange(COUNT) >= COUNT // 2)[:, None]
BEFORE, SELF = np.eye(COUNT, k=-1), np.eye(COUNT)


@pytest.mark.parametrize(
    ("cells", "sink_share", "share", "tokens", "pattern"),
    [
        (BEFORE, 0.73, 0.2, DISTINCT, r"previous token 0\.2\d, sink 0\.7\d on “a”"),
        (SELF, 0.6, 0.25, DISTINCT, r"own token 0\.2\d, sink 0\.6\d on “a”"),
        (COPIES, 0.5, 0.4, REPEATED, r"induction 0\.4\d, sink 0\.7\d on “a”"),
        (COPIES, 0.5, 0.1, REPEATED, r"sink: a 0\.7\d"),  # induction is a fifth of the rest
        (np.eye(COUNT), 0.6, 0, DISTINCT, r"uniform, sink 0\.7\d on “a”"),
        (BEFORE, 0.86, 0.12, DISTINCT, r"previous token 0\.1\d, sink 0\.8\d on “a”"),
        (BEFORE, 0.93, 0.06, DISTINCT, r"sink: a 0\.9\d"),  # the sink takes nearly all
        (BEFORE, 0.1, 0.3, DISTINCT, "mixed"),  # no sink, and a clear share of nothing
    ],
)
def test_head_is_named_by_what_it_does_beside_its_sink(
    cells: np.ndarray, sink_share: float, share: float, tokens: Tokens, pattern: str
) -> None:
    found = pattern_of(beside(cells, sink_share, share), tokens, CAUSAL)
    assert re.fullmatch(pattern, found), found


def test_induction_of_few_queries_is_named_though_the_sink_takes_nearly_all() -> None:
    tokens = tokenize(" ".join([*LETTERS[: COUNT - 3], *LETTERS[:3]]))
    cells, others = np.eye(COUNT, k=4 - COUNT), np.arange(COUNT) < COUNT - 3
    weights = beside(cells * ~others[:, None], 0.99, 0) * others[:, None] + beside(cells, 0.3, 0.65) * ~others[:, None]
    assert re.fullmatch(r"induction 0\.6\d, sink 0\.9\d on “a”", pattern_of(weights, tokens, CAUSAL))


def test_induction_looks_at_the_token_after_the_earlier_copy() -> None:
    cells = np.eye(COUNT, k=1 - COUNT // 2)
    cells[: COUNT // 2, 0] = 1
    assert pattern_of(blurred(cells, 0.95), REPEATED, CAUSAL).startswith("induction 0.9")


def test_duplicate_looks_at_the_earlier_copy() -> None:
    cells = np.eye(COUNT, k=-COUNT // 2)
    assert pattern_of(blurred(cells, 0.9), REPEATED).startswith("duplicate token 0.9")


def test_even_rows_are_uniform_with_and_without_a_causal_mask() -> None:
    assert pattern_of(np.ones((COUNT, COUNT))) == "uniform"
    assert pattern_of(np.ones((COUNT, COUNT)), visible=CAUSAL) == "uniform"


def test_even_rows_over_the_nearest_tokens_are_local() -> None:
    distances = np.abs(np.arange(COUNT)[:, None] - np.arange(COUNT))
    assert pattern_of((distances <= 3).astype(float)) == "local 1.00"


def test_even_rows_over_the_own_sentence_are_said_so() -> None:
    tokens = tokenize("One two three four. Five six seven eight.")
    sentences = np.repeat([0, 1], 5)
    assert pattern_of((sentences[:, None] == sentences).astype(float), tokens) == "own sentence 1.00"


def test_random_rows_are_mixed() -> None:
    assert pattern_of(np.random.default_rng(0).exponential(size=(COUNT, COUNT))) == "mixed"


def test_short_text_names_nothing() -> None:
    weights = np.array([[1.0, 0], [1, 0]])
    assert pattern_of(weights, tokenize("a b")) == ""


@pytest.mark.parametrize(("text", "is_named"), [("a b c d e a f", False), ("a b c d e a b", True)])
def test_two_copies_name_induction_and_a_single_one_does_not(text: str, is_named: bool) -> None:
    weights = np.full((7, 7), 1 / 7)
    weights[5:] = np.eye(7, k=-4)[5:]
    assert ("induction" in pattern_of(weights, tokenize(text))) == is_named


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (Pattern("sink", 0.83, "[CLS]"), "sink: [CLS] 0.83"),
        (Pattern("sink", 0.55, "␣the", is_beside=True), "sink 0.55 on “the”"),
        (Pattern("sink", 0.55, "<s>", is_beside=True), "sink 0.55 on <s>"),
        (Pattern("sink", 0.55, is_beside=True), "sink 0.55"),  # texts differ in it
    ],
)
def test_sink_names_its_token(pattern: Pattern, said: str) -> None:
    assert str(pattern) == said


def test_counts_tell_heads_apart_that_have_more_weight_on_a_sink() -> None:
    before, beside = Pattern("previous token", 0.4), Pattern("sink", 0.55, "[CLS]", is_beside=True)
    heads = [(before,), (before, beside), (replace(before, value=0.7), replace(beside, value=0.3)), (MIXED,), ()]
    assert pattern_counts(heads) == "3 previous token (1 beside a sink), 2 mixed"
    induction = replace(before, name="induction")
    assert pattern_counts([(induction, beside), (Pattern("sink", 0.9, "[CLS]"),)]) == (
        "1 induction (beside a sink), 1 sink on [CLS]"
    )
