"""Contacts: scores of pairs by the formula of the papers, their comparison with known pairs, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.metrics.contacts import KnownPairs, contacts_frame, read_pairs

TOKENS = 9
LINKED = (1, 8)  # indices among all tokens, of which the first is special


def recording(linked: tuple[int, int] = LINKED) -> Any:
    """Two heads over a special token and nine others: the second head links two of them."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(2, TOKENS + 1, TOKENS + 1))
    logits[1][linked] += 5
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    axis = attnviz.tokens(["[CLS]", *"EVQLVSGGG"], special=[0])
    return attnviz.from_arrays(weights=weights.astype(np.float32), tokens=axis)


def test_scores_are_attention_in_both_directions_less_the_product_of_the_sums() -> None:
    weights = recording().maps[0].window((0, 1), slice(0, 10), slice(0, 10)).weights.astype(float)
    both = np.array([[(weights[1, i, j] + weights[1, j, i]) for j in range(1, 10)] for i in range(1, 10)])
    expected = [[both[i, j] - both[i].sum() * both[:, j].sum() / both.sum() for j in range(9)] for i in range(9)]
    assert attnviz.contacts(recording(), "0.1") == pytest.approx(np.array(expected), abs=1e-12)
    mean = (weights[0] + weights[1])[1:, 1:] / 2
    both = mean + mean.T
    expected = both - np.outer(both.sum(0), both.sum(0)) / both.sum()
    assert attnviz.contacts(recording()) == pytest.approx(expected, abs=1e-6)


def test_the_linked_pair_is_first_in_its_head_and_the_numbers_follow_from_the_ranks() -> None:
    maps = recording().maps[0]
    frame = contacts_frame([(maps, 0), (maps, 1)], KnownPairs(np.array([LINKED, (2, 4)])))  # 2 4 are too near to count
    share, chance, rank = frame.values[1]
    assert (share, rank) == (1, 1)
    assert chance == pytest.approx(1 / 2)  # two pairs of tokens are seven apart
    scores = attnviz.contacts(recording(), "0.0")
    far = [(scores[i, j], (i + 1, j + 1)) for i in range(9) for j in range(i + 6, 9)]
    ranked = [pair for _, pair in sorted(far, reverse=True)]
    assert frame.values[0][2] == ranked.index(LINKED) + 1
    two = contacts_frame([(maps, 1)], KnownPairs(np.array([LINKED, LINKED, (9, 3)]))).values[
        0
    ]  # two pairs, one given twice
    scores = attnviz.contacts(recording(), "0.1")
    ranked = [pair for _, pair in sorted(((scores[i - 1, j - 1], (i, j)) for _, (i, j) in far), reverse=True)]
    assert two[0] == len({LINKED, (3, 9)} & set(ranked[:2])) / 2
    assert two[2] == np.mean([ranked.index(LINKED) + 1, ranked.index((3, 9)) + 1])


def test_heads_are_sorted_by_the_pairs_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording().save(tmp_path / "run.safetensors")
    (tmp_path / "known.pairs").write_text("# one bond\n1 8\n\n", encoding="utf-8")
    words = ["heads", str(tmp_path / "run.safetensors"), "--reference", str(tmp_path / "known.pairs")]
    assert main([*words, "--sort", "pair-rank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("head"))
    assert header.split()[:4] == ["head", "pattern", "pair", "rank"]
    assert next(line for line in lines if line.startswith("0.")).split()[0] == "0.1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 8\n2\n", "line 2: '2' is no pair; give two numbers"),
        ("0 8", "line 1: '0 8' is no pair"),
        ("1 ²", "is no pair"),
        ("# nothing", "has no pairs; give two numbers"),
        ("1 10", "a pair with token 10, and there are 9"),
        ("1 3", "no pair of the reference is 6 tokens apart"),
    ],
)
def test_a_file_that_holds_no_usable_pairs_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "known.pairs").write_text(content, encoding="utf-8")
    with pytest.raises(AttnvizError, match=message):
        read_pairs(tmp_path / "known.pairs").among(TOKENS)


def test_contacts_need_a_reference_and_one_sequence(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["heads", "a b", "--sort", "contacts"]) == 1
    assert "give --reference known.pairs" in capfd.readouterr().err
    weights = np.full((1, 2, 3), 1 / 3, dtype=np.float32)
    cross = attnviz.from_arrays(weights=weights, tokens=list("abc"), query_tokens=list("de"))
    with pytest.raises(AttnvizError, match="choose heads of self-attention over one text"):
        attnviz.contacts(cross)
