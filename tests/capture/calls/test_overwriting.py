"""Scores and weights that a model overwrites in place are recorded as they were, or said to be unknown."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.calls.overwriting import restored_softmax
from tests.conftest import cells

HEADS, TOKENS, WIDTH = 3, 5, 12


class Attention(nn.Module):
    """Attention by hand whose softmax, and what follows it, can be chosen."""

    num_heads = HEADS

    def __init__(self, softmax: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.softmax, self.drop = nn.Linear(WIDTH, 3 * WIDTH), softmax, nn.Dropout(0.5, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        self.scores: Tensor = (queries @ keys.transpose(-1, -2)).detach().clone()
        mixed: Tensor = self.softmax(queries @ keys.transpose(-1, -2)) @ values
        return mixed.transpose(1, 2).flatten(2)


def over_itself(scores: Tensor) -> Tensor:
    torch.softmax(scores, -1, out=scores)
    return scores


def masked(scores: Tensor) -> Tensor:
    weights = scores.softmax(-1)
    weights.masked_fill_(torch.eye(TOKENS, dtype=torch.bool), 0)
    return weights


def written_to(scores: Tensor) -> Tensor:
    weights = scores.softmax(-1)
    weights[..., 0] = 0
    weights *= 0.5
    return weights


def scores_reused(scores: Tensor) -> Tensor:
    weights = torch.softmax(scores, -1)
    scores.zero_()
    return weights


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "over itself": over_itself,
    "dropout": lambda scores: functional.dropout(scores.softmax(-1), 0.5, True, inplace=True),
    "masked": masked,
    "written to": written_to,
    "scores reused": scores_reused,
}


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_overwritten_in_place_is_recorded_as_it_was(name: str, inference: bool) -> None:
    torch.manual_seed(0)
    attention, x = Attention(IN_PLACE[name]), torch.randn(1, TOKENS, WIDTH)
    model = nn.Sequential(attention)
    with torch.inference_mode(inference), torch.no_grad(), attnviz.record(model) as recording:
        torch.manual_seed(1)
        output = model(x)
    torch.manual_seed(1)
    with torch.no_grad():
        assert torch.equal(output, model(x))
    scores = attention.scores
    window = cells(recording).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_array_equal(window.scores, scores[0])
    np.testing.assert_array_equal(window.weights, scores.softmax(-1)[0])


@pytest.mark.parametrize("lost", ["weights", "scores"])
def test_what_is_overwritten_unseen_is_computed_again_or_unknown_and_said(lost: str) -> None:
    def unseen(scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        (weights if lost == "weights" else scores).numpy()[..., 2] = 0.25
        return weights

    torch.manual_seed(0)
    attention, x = Attention(unseen), torch.randn(1, TOKENS, WIDTH)
    model = nn.Sequential(attention)
    with torch.inference_mode(), attnviz.record(model) as recording:
        model(x)
    scores = attention.scores
    window = cells(recording).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_allclose(window.weights, scores.softmax(-1)[0], atol=1e-7)
    assert recording.remarks[0].startswith(f"In layer 0 the {lost} were overwritten in place after the softmax")
    assert np.isnan(window.scores).all() == (lost == "scores")


def test_rows_that_see_nothing_are_no_sign_of_overwriting() -> None:
    scores = torch.randn(2, 3, TOKENS, 7)
    scores[..., 1, :] = float("-inf")
    weights = scores.softmax(-1)
    assert restored_softmax(scores, weights) == (scores, weights, "")
    half = scores.bfloat16()
    assert restored_softmax(half, half.softmax(-1))[2] == ""
