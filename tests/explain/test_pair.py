"""Why one query attends to one key: the shares of the features are those of q·k, and sum to the score."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.explain.explain import explain
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded import SeededReader


def test_shares_of_the_features_are_sorted_and_sum_to_the_score() -> None:
    numbers = SeededReader(ModelSettings(embed_dim=64, num_heads=4)).compute(Example("Life is short"), 0)
    [step] = explain(numbers, 2, pair=("is", "2")).steps
    [table] = step.tables
    shares = numbers.queries[2, 1] * numbers.keys[2, 2] * numbers.scale
    order = np.argsort(-np.abs(shares))
    assert [row.split()[1] for row in table.rows[:11]] == [str(feature) for feature in order[:11]]
    np.testing.assert_allclose(table.values[:11, 2], shares[order[:11]], atol=1e-6)
    assert np.nansum(table.values[:, 2]) == pytest.approx(numbers.scores[2, 1, 2], abs=1e-5)
    assert f"the score of this pair ({numbers.scores[2, 1, 2]:.4f})" in step.examples[0]


def test_command_tells_the_pair_and_refuses_another_step_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "Life is short", "--pair", "Life", "short"]) == 0
    assert "the score of “Life” and “short” by feature" in capsys.readouterr().out
    assert main(["explain", "Life is short", "--pair", "Life", "short", "--step", "scores"]) == 1
    assert "give one of them" in capsys.readouterr().err
    computation = SeededReader(ModelSettings()).compute(Example("Life is short"), 0)
    for pair, said in (
        (("Life", "9"), "no key 9 among 3"),
        (("is", "zzz"), "no key 'zzz'"),
        (("zzz", "is"), "no query 'zzz'"),
    ):
        with pytest.raises(AttnvizError, match=said):
            explain(computation, pair=pair)
