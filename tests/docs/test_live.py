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
from transformers import LlamaConfig, LlamaForCausalLM

import attnviz
from tests import small_models

HEADS, TOKENS, WIDTH = 3, 7, 12


class Layer(nn.Module):
    """Attention with dropout before a classifier, with or without gradient checkpointing."""

    def __init__(self, repeats: str | None = None) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dropout=0.3)
        self.classes = nn.Linear(WIDTH, 5)
        self.repeats = repeats

    def forward(self, x: Tensor) -> Tensor:
        if self.repeats:
            return self.classes(checkpoint(self.attend, x, use_reentrant=self.repeats == "reentrant"))  # type: ignore[no-any-return]
        return self.classes(self.attend(x))  # type: ignore[no-any-return]

    def attend(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]  # type: ignore[no-any-return]


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


@pytest.mark.parametrize("repeats", [None, "reentrant", "recomputed"])
def test_a_pass_that_the_backward_repeats_is_not_counted_twice(repeats: str | None) -> None:
    model = Layer(repeats)
    with attnviz.record(model) as recording:
        model(torch.rand(2, TOKENS, WIDTH, requires_grad=True)).sum().backward()
    assert [maps.item for maps in recording.maps] == [0, 1]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # a newer name of the same method
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_attention_of_transformers_that_the_backward_repeats_is_not_counted_twice(use_reentrant: bool) -> None:
    settings: dict[str, Any] = {**small_models.GROUPED, "attn_implementation": "eager"}
    model: Any = LlamaForCausalLM(LlamaConfig(**settings))
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    ids = torch.tensor([[1, 2, 3], [3, 2, 1]])
    with attnviz.record(model) as recording:
        for _ in range(2):
            model.train()(ids, labels=ids).loss.backward()
    assert [(maps.item, maps.layer) for maps in recording.maps] == [
        (item, layer) for layer in (0, 1) for item in range(4)
    ]
    assert all(maps.heads == (0, 1, 2, 3) for maps in recording.maps)


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
