"""Measures of an output, against torch's own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_table import ANSWERED
from attnviz.effects.measures import (
    MEASURES,
    MeasuredRun,
    accuracy,
    cosine,
    default_metric,
    distance,
    divergence,
    features_of,
    find_measure,
    logit,
    logits_in,
    loss,
    remark_without_logits,
    token_mask,
)

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


def test_features_that_one_of_two_tokens_turns_have_half_the_cosine_and_distance_of_that_token(
    run: MeasuredRun,
) -> None:
    clean, changed = torch.tensor([[[[3.0, 4, 0], [1, 0, 0]]], [[[3.0, 4, 0], [0, 2, 0]]]])
    turned = replace(run, output=changed, clean=clean, positions=slice(None))
    assert cosine(turned) == pytest.approx((0 + 1) / 2)
    assert distance(turned) == pytest.approx((0 + 5**0.5) / 2)


@pytest.mark.parametrize(
    ("name", "token"), [*((name, None) for name in MEASURES if name != "logit"), *((name, 3) for name in ANSWERED)]
)
def test_padding_is_not_measured(run: MeasuredRun, name: str, token: int | None) -> None:
    run = replace(run, token=token, versus=None if token is None else 5)
    measure, lengths = find_measure(name), (TOKENS, TOKENS - 2)
    assert run.ids is not None
    sums, rows = 0.0, 0
    for text, length in enumerate(lengths):
        output, clean, ids = (tensor[text : text + 1, :length] for tensor in (run.output, run.clean, run.ids))
        alone = replace(run, output=output, clean=clean, ids=ids, positions=slice(0, length))
        count = length - (name in ANSWERED) if token is None else 1
        sums, rows = sums + measure(alone) * count, rows + count
    is_token = token_mask({"attention_mask": torch.arange(TOKENS) < torch.tensor(lengths)[:, None]})
    assert measure(replace(run, is_token=is_token)) == pytest.approx(sums / rows, rel=1e-5)
    assert token_mask({"attention_mask": torch.ones(BATCH, TOKENS)}) is None


def test_an_answer_is_measured_at_the_last_position(run: MeasuredRun) -> None:
    last = run.output[:, 3]
    for positions in (slice(1, 4), slice(-2, -1)):
        answered = replace(run, token=3, positions=positions)
        assert logit(answered) == pytest.approx(float(last[:, 3].mean()), rel=1e-5)
        assert logit(replace(answered, versus=5)) == pytest.approx(float((last[:, 3] - last[:, 5]).mean()), rel=1e-5)
        assert loss(answered) == pytest.approx(float(-last.log_softmax(-1)[:, 3].mean()), rel=1e-5)
        assert accuracy(answered) == pytest.approx(float((last.argmax(-1) == 3).float().mean()))
    for unknown in (replace(run, token=7), replace(run, token=3, versus=7)):
        with pytest.raises(AttnvizError, match="no token id or label 7 in the logits; choose 0 to 6"):
            logit(unknown)
    with pytest.raises(AttnvizError, match="metric='logit' is that of a token; give token"):
        logit(run)
    with pytest.raises(AttnvizError, match="no token follows the measured positions; give the answer there with token"):
        loss(replace(run, positions=slice(-1, None)))


@pytest.mark.parametrize("name", ["logit:", "logit:x", "7", "los"])
def test_unknown_measure_is_refused(name: str) -> None:
    with pytest.raises(AttnvizError, match="unknown"):
        find_measure(name)


@dataclass
class Output:
    logits: Tensor
    features: Tensor


# What a module may return around its logits.
FORMS: dict[str, Callable[[Tensor], Any]] = {
    "alone": lambda logits: logits,
    "before no loss": lambda logits: (logits, None),
    "after a loss": lambda logits: [torch.tensor(0.5), logits],
    "in a mapping": lambda logits: {"features": torch.zeros(1, 2, 3), "logits": logits},
    "in a dataclass": lambda logits: Output(logits, torch.zeros(1, 2, 3)),
    "in a mapping in a tuple": lambda logits: ({"logits": logits}, torch.zeros(1, 2, 3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_default_metric_follows_the_logits_wherever_they_are_in_the_output(form: str) -> None:
    logits, ids = torch.randn(BATCH, TOKENS, WORDS), torch.full((BATCH, TOKENS), WORDS - 1)
    output = FORMS[form](logits)
    assert logits_in(output) is logits
    assert default_metric(output, ids) == "loss"
    assert default_metric(output, ids + 1) == default_metric(output, ids[:, 1:]) == "cosine"
    assert default_metric(output, None) == default_metric({}, ids) == "cosine"
    assert default_metric(FORMS[form](logits[:, -1:]), ids) == "kl"
    for measure in (loss, accuracy):
        with pytest.raises(AttnvizError, match="logits of 1 tokens for an input of 5; use metric='kl', or give"):
            measure(MeasuredRun(FORMS[form](logits[:, -1:]), None, ids, slice(None)))
    with pytest.raises(AttnvizError, match="no logits at the measured positions"):
        divergence(MeasuredRun(logits[:, -1:], logits[:, -1:], ids, slice(2, 4)))


def test_a_text_without_logits_has_a_remark_on_what_is_measured() -> None:
    hidden, ids = torch.randn(BATCH, TOKENS, 3), torch.full((BATCH, TOKENS), WORDS)
    for output in (hidden, {"loss": torch.tensor(0.5), "hidden": hidden}, Output(hidden, hidden)):
        assert features_of(output) is hidden
        assert "the cosine of its first features, (2, 5, 3)" in remark_without_logits(output, ids)
    assert remark_without_logits(hidden, None) == ""
    assert remark_without_logits(SimpleNamespace(last_hidden_state=hidden), ids) == ""
