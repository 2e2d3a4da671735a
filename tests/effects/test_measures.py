"""Measures of an output, against torch's own."""

import pytest
import torch
from torch.nn import functional

from attnviz.base.errors import AttnvizError
from attnviz.effects.measures import MeasuredRun, accuracy, default_metric, divergence, find_measure, loss

BATCH, TOKENS, WORDS = 2, 5, 7


@pytest.fixture
def run() -> MeasuredRun:
    changed, clean = torch.randn(2, BATCH, TOKENS, WORDS)
    return MeasuredRun(changed, clean, torch.randint(WORDS, (BATCH, TOKENS)), slice(0, TOKENS))


def test_divergence_is_from_the_clean_predictions(run: MeasuredRun) -> None:
    logs = [each.log_softmax(-1).flatten(0, 1) for each in (run.output, run.clean)]
    expected = functional.kl_div(logs[0], logs[1], reduction="batchmean", log_target=True)
    assert divergence(run) == pytest.approx(float(expected), rel=1e-5)


def test_loss_and_accuracy_are_of_the_next_token(run: MeasuredRun) -> None:
    assert run.ids is not None
    logits, following = run.output[:, :-1].flatten(0, 1), run.ids[:, 1:].flatten()
    assert loss(run) == pytest.approx(float(functional.cross_entropy(logits, following)), rel=1e-5)
    assert accuracy(run) == pytest.approx(float((logits.argmax(-1) == following).float().mean()))


def test_logit_is_named_with_the_number_of_its_token(run: MeasuredRun) -> None:
    assert find_measure("logit:3")(run) == pytest.approx(float(run.output[:, -1, 3].mean()), rel=1e-5)
    with pytest.raises(AttnvizError, match="no token id or label 7 in the logits; choose 0 to 6"):
        find_measure("logit:7")(run)


@pytest.mark.parametrize("name", ["logit:", "logit:x", "7", "los"])
def test_unknown_measure_is_refused(name: str) -> None:
    with pytest.raises(AttnvizError, match="unknown"):
        find_measure(name)


def test_default_is_the_loss_if_the_output_has_a_logit_of_every_id() -> None:
    logits = torch.randn(BATCH, TOKENS, WORDS)
    ids = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    ids[0, 0] = WORDS - 1
    assert default_metric(logits, ids) == "loss"
    ids[0, 0] = WORDS
    assert default_metric(logits, ids) == "cosine"
    assert default_metric(logits, ids[:, 1:]) == default_metric(logits, None) == default_metric({}, ids) == "cosine"
