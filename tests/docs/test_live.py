"""What the page on live use says of recording in a training step, and of its memory.

Hooks after a block, threads, nested blocks and ``stop`` are tested in `tests/capture/test_capture_block.py` and
`tests/api/test_record.py`; the code of the page runs in `tests/docs/test_documents.py`.
"""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnviz

HEADS, TOKENS, WIDTH = 3, 7, 12


class ByHand(nn.Module):
    """Attention that is written with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        mixed: Tensor = (heads @ heads.mT).softmax(-1) @ heads
        return mixed.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """Attention with dropout before a classifier, with or without gradient checkpointing."""

    def __init__(self, repeats: str | None = None, by_hand: bool = False) -> None:
        super().__init__()
        multi_head = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dropout=0.3)
        self.attention: nn.Module = ByHand() if by_hand else multi_head
        self.classes = nn.Linear(WIDTH, 5)
        self.repeats = repeats

    def forward(self, x: Tensor) -> Tensor:
        if self.repeats:
            return self.classes(checkpoint(self.attend, x, use_reentrant=self.repeats == "reentrant"))  # type: ignore[no-any-return]
        return self.classes(self.attend(x))  # type: ignore[no-any-return]

    def attend(self, x: Tensor) -> Tensor:
        result: Tensor = self.attention(x) if isinstance(self.attention, ByHand) else self.attention(x, x, x)[0]
        return result


def train(steps: int, recorded: Any) -> list[Tensor]:
    """The weights after some steps, those at the indices in ``recorded`` inside a block."""
    torch.manual_seed(0)
    model = Layer()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x, classes = torch.rand(4, TOKENS, WIDTH), torch.randint(0, 5, (4 * TOKENS,))

        def run(x: Tensor = x, classes: Tensor = classes) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x).flatten(0, 1), classes).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        if step in recorded:
            with attnviz.record(model):
                run()
        else:
            run()
    return [parameter.detach() for parameter in model.parameters()]


def test_recorded_training_ends_at_the_same_weights_to_the_bit() -> None:
    bare, recorded = train(6, ()), train(6, (0, 3, 4))
    assert all(map(torch.equal, bare, recorded))


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("repeats", [None, "reentrant", "recomputed"])
def test_a_pass_that_the_backward_repeats_is_not_counted_twice(repeats: str | None, by_hand: bool) -> None:
    model = Layer(repeats, by_hand)
    with attnviz.record(model) as recording:
        for _ in range(2):
            model(torch.rand(2, TOKENS, WIDTH, requires_grad=True)).sum().backward()
    assert [(maps.item, len(maps.heads)) for maps in recording.maps] == [(item, HEADS) for item in range(4)]


def test_a_loop_holds_the_memory_of_the_recordings_that_it_keeps() -> None:
    model = Layer().eval()
    x = torch.rand(1, TOKENS, WIDTH)
    held = []
    for _ in range(4):
        with attnviz.record(model) as recording, torch.no_grad():
            model(x)
        held.append(weakref.ref(recording.maps[0]))
    [maps] = recording.maps
    assert maps.weights.nbytes + maps.scores.nbytes == 8 * HEADS * TOKENS * TOKENS  # type: ignore[attr-defined]
    gc.collect()
    assert [reference() is None for reference in held] == [True, True, True, False]
    del recording, maps
    gc.collect()
    assert held[-1]() is None
    tensor = weakref.ref(x)
    del x
    gc.collect()
    assert tensor() is None  # neither does torch or the module hold what was observed


def test_only_chosen_heads_take_memory() -> None:
    model = Layer().eval()
    with attnviz.record(model, heads=[2]) as recording, torch.no_grad():
        model(torch.rand(1, TOKENS, WIDTH))
    assert recording.maps[0].weights.shape == (1, TOKENS, TOKENS)  # type: ignore[attr-defined]
