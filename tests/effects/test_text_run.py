"""Runs of many sets of heads in one batch, of models that take texts otherwise than others do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.effects import text_run

TEXTS, TOKENS, WIDTH, HEADS = 2, 6, 12, 3


def refuse_more_texts(module: nn.Module, args: tuple[Tensor, ...]) -> None:
    assert len(args[0]) <= TEXTS


class Layers(nn.Module):
    """Two layers of attention with residuals, which may put the tokens first or refuse more texts than two.

    Args:
        tokens_first: True to give the attention modules ``(tokens, texts, features)``.
        limited: what refuses a batch of more than `TEXTS` texts, as models with a state of a text do: the ``model``,
            its ``first layer``, or nothing.
    """

    def __init__(self, *, tokens_first: bool = False, limited: str = "nothing") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attentions = nn.ModuleList(
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=not tokens_first) for _ in range(2)
        )
        self.tokens_first, self.limited = tokens_first, limited
        if limited == "first layer":  # which a run that resumes after it does not call
            self.attentions[0].register_forward_pre_hook(refuse_more_texts)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.limited == "model" and len(tokens) > TEXTS:
            raise RuntimeError("the state is that of two texts")
        states = tokens.transpose(0, 1) if self.tokens_first else tokens
        for attention in self.attentions:
            states = states + attention(states, states, states, need_weights=False)[0]
        return states.transpose(0, 1) if self.tokens_first else states


def effects(model: nn.Module, by: Tensor | str, *, pairs: bool = False) -> list[float]:
    tokens = torch.randn(TEXTS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    return [row.mean for row in attnviz.ablate(model.eval(), tokens, "distance", replace_by=by, pairs=pairs).rows]


def other_texts() -> Tensor:
    return torch.randn(TEXTS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("by", ["zero", "mean", "other texts"])
def test_tokens_or_texts_may_come_first(by: str) -> None:
    replacement = other_texts() if by == "other texts" else by
    texts_first, tokens_first = (effects(Layers(tokens_first=first), replacement) for first in (False, True))
    assert max(texts_first) > 1e-3
    assert tokens_first == pytest.approx(texts_first, rel=1e-4)


@pytest.mark.parametrize("limited", ["model", "first layer"])
@pytest.mark.parametrize("run_tokens", [512, 2 * TEXTS * TOKENS])  # sets of heads in a batch: many, or two
def test_a_model_that_takes_no_larger_batch_runs_whole_for_each_set(
    limited: str, run_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_run, "MAX_RUN_TOKENS", run_tokens)
    limited_effects, expected = (effects(model, "zero", pairs=True) for model in (Layers(limited=limited), Layers()))
    assert limited_effects == pytest.approx(expected, rel=1e-4)


class Predictions:
    """An output of a class of the user's own, in which no library finds the tensor."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Language(nn.Module):
    def __init__(self, wrapped: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layers, self.wrapped = Layers(), wrapped
        self.embedding, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 20)

    def forward(self, ids: Tensor) -> Any:
        return self.wrapped(self.head(self.layers(self.embedding(ids))))


class Durations(nn.Module):
    """Attention over tokens, each of which its own output repeats or not."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return states.repeat(1, 1 + int(states.abs().sum() > 0), 1)


def test_features_of_another_number_of_frames_are_refused() -> None:
    with pytest.raises(attnviz.AttnvizError, match=r"the shape \(1, 4, 12\), with all \(1, 8, 12\).*give a function"):
        attnviz.ablate(Durations().eval(), torch.ones(1, 4, WIDTH), "cosine", sets=["0.0+0.1+0.2"])


def mean_logit(output: Any) -> float:
    logits: Tensor = output.logits if isinstance(output, Predictions) else output
    return float(logits.mean())


@pytest.mark.parametrize("metric", ["loss", "kl", mean_logit])
def test_sets_of_heads_are_told_apart_in_an_output_of_any_class(metric: Any) -> None:
    ids = torch.arange(TEXTS * TOKENS).view(TEXTS, TOKENS)
    changes = []
    for wrapped in (Predictions, lambda logits: logits):
        result = attnviz.ablate(Language(wrapped).eval(), ids, metric)
        changes.append([row.mean for row in result.rows])
    assert min(map(abs, changes[0])) > 1e-7
    assert changes[0] == pytest.approx(changes[1], abs=1e-6)
