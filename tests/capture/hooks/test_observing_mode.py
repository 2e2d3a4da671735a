"""What the observing mode sees of torch's own attention: flex_attention, and multi-head attention that it enters."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.hooks.torch_functions import Observer
from tests.conftest import cells

HEADS, TOKENS, WIDTH = 4, 5, 16
Modify = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
PLACES = torch.arange(TOKENS)
AWAY = (PLACES[:, None] - PLACES).abs()
SLOPES = torch.tensor([0.1, 0.2, 0.4, 0.8])


def causal(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return torch.where(query >= key, score, -float("inf"))


def by_distance(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score - (query - key).abs() * SLOPES[head]


def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


CASES: dict[str, tuple[Modify | None, Callable[[Tensor], Tensor]]] = {
    "no score_mod": (None, lambda scores: scores),
    "causal": (causal, lambda scores: scores.masked_fill(PLACES[:, None] < PLACES, -torch.inf)),
    "by distance": (by_distance, lambda scores: scores - AWAY * SLOPES[:, None, None]),
    "soft cap": (capped, lambda scores: 2 * torch.tanh(scores / 2)),
}


class Flexible(nn.Module):
    """Attention by flex_attention, with fewer key heads where that is asked for, and a mask_mod or none."""

    def __init__(self, modify: Modify | None, groups: int, masked: bool) -> None:
        super().__init__()
        self.queries, self.pair = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH // groups)
        self.modify, self.groups, self.masked = modify, groups, masked

    def forward(self, x: Tensor) -> Tensor:
        features = WIDTH // HEADS
        parts = (self.queries(x), *self.pair(x).chunk(2, -1))
        queries, keys, values = (part.unflatten(-1, (-1, features)).transpose(1, 2) for part in parts)
        self.scores = queries @ keys.repeat_interleave(self.groups, 1).mT * features**-0.5
        mask = None
        if self.masked:
            mask = flex.create_block_mask(
                lambda batch, head, query, key: query - key < 2, None, None, TOKENS, TOKENS, "cpu"
            )
        mixed: Tensor = flex.flex_attention(
            queries, keys, values, score_mod=self.modify, block_mask=mask, enable_gqa=self.groups > 1
        )
        return mixed.transpose(1, 2).flatten(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "groups", "masked"), [*((name, 1, False) for name in CASES), ("by distance", 2, True)]
)
def test_weights_and_scores_are_those_after_score_mod_and_mask_mod(name: str, groups: int, masked: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    modify, expected = CASES[name]
    model, x = Flexible(modify, groups, masked), torch.randn(2, TOKENS, WIDTH)
    with torch.no_grad():
        bare = model(x)
        with attnviz.record(model) as recording:
            observed = model(x)
        scores = expected(model.scores)
    if masked:
        scores = scores.masked_fill(PLACES[:, None] - PLACES >= 2, -torch.inf)
    assert torch.equal(bare, observed)
    assert [(maps.layer, maps.item, maps.heads) for maps in recording.maps] == [
        (0, item, (0, 1, 2, 3)) for item in (0, 1)
    ]
    for item in (0, 1):
        window = cells(recording, item).window((0, 1, 2, 3), slice(0, TOKENS), slice(0, TOKENS))
        visible = torch.isfinite(scores[item]).numpy()
        np.testing.assert_array_equal(np.broadcast_to(window.visible, visible.shape), visible)
        np.testing.assert_allclose(window.weights, scores[item].softmax(-1), atol=1e-6)
        np.testing.assert_allclose(window.scores[visible], scores[item].numpy()[visible], atol=1e-5)
    fidelity = recording.maps[0].fidelity
    assert fidelity is not None
    assert fidelity < 1e-6


class Crossing(nn.Module):
    """Torch's multi-head attention of one sequence over another."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, context, context)[0]
        return mixed


def test_error_before_multi_head_attention_leaves_the_pass_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise ValueError("boom")

    monkeypatch.setattr(Observer, "have_different_inputs", fail)
    model, x, context = Crossing(), torch.randn(2, 3, WIDTH), torch.randn(2, 4, WIDTH)
    bare = model(x, context)
    with pytest.raises(AttnvizError, match=r"a fault in attnviz: ValueError: boom"), attnviz.record(model):
        observed = model(x, context)
    assert torch.equal(bare, observed)


def test_multi_head_attention_under_vmap_runs_and_is_said_to_be_unreadable() -> None:
    model, x, context = Crossing(), torch.randn(2, 3, 5, WIDTH), torch.randn(2, 3, 5, WIDTH)
    bare = torch.vmap(model)(x, context)
    unreadable = r"attention computes it on tensors of torch\.vmap or torch\.func"
    with pytest.raises(AttnvizError, match=unreadable), attnviz.record(model):
        observed = torch.vmap(model)(x, context)
    assert torch.equal(bare, observed)
