"""What a recording says of modules that attend in a way that is no map of queries and keys."""

import pytest
import torch
from torch import Tensor, nn

import attnviz

WIDTH, TOKENS, PLACES = 8, 6, 3


class Sampled(nn.Module):
    """Sums up what stands at places that each token chooses, by a softmax that sees none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.weights = nn.Linear(WIDTH, PLACES), nn.Linear(WIDTH, PLACES)

    def forward(self, x: Tensor) -> Tensor:
        places = (self.places(x).sigmoid() * (TOKENS - 1)).long()
        chosen = torch.stack([text[at] for text, at in zip(x, places, strict=True)])
        summed: Tensor = (self.weights(x).softmax(-1)[..., None] * chosen).sum(2)
        return summed


class SampledAttention(Sampled):
    """The same, called attention."""


class Layer(nn.Module):
    def __init__(self, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.MultiheadAttention(WIDTH, 2, batch_first=True), second

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.second(self.first(x, x, x)[0])
        return mixed


@pytest.mark.parametrize(
    ("second", "remarks"),
    [
        (
            SampledAttention(),
            (
                "Left out: one module computes no softmax over queries x keys, such as second with a softmax over "
                "features (2, 6, 3).",
            ),
        ),
        (Sampled(), ()),
    ],
    ids=["attention", "another softmax"],
)
@torch.no_grad()
def test_module_that_is_called_attention_and_makes_no_map_is_said(second: nn.Module, remarks: tuple[str, ...]) -> None:
    model = Layer(second)
    with attnviz.record(model) as recording:
        model(torch.randn(2, TOKENS, WIDTH))
    assert [maps.module for maps in recording.maps] == ["first", "first"]
    assert recording.remarks == remarks
