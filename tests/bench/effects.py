"""What removing heads and contributions cost: ratios to the model's own forward passes, on a model of GPT-2's size."""

from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import attnviz
from attnviz.capture.record import record
from tests.bench.timing import Pair, pair_functions, report

LAYERS, HEADS, WIDTH, TOKENS = 12, 12, 768, 128
ABLATION_LIMIT, PREDICTING_LIMIT = 0.55, 0.7
ONE_HEAD_LIMIT, ALL_HEADS_LIMIT = 1.1, 1.3
ROUNDS, FORWARDS = 2, 12


def main() -> None:
    """Prints the ratios, each with its limit."""
    torch.manual_seed(0)
    config: Any = transformers.GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH)
    predicts: Any = transformers.GPT2LMHeadModel(config)
    predicts.eval()
    ids = torch.randint(0, config.vocab_size, (1, TOKENS))
    features = predicts.get_submodule("transformer")
    _contributions(features, ids)
    _ablation(features, ids, "distance", ABLATION_LIMIT, "without the unembedding")
    _ablation(predicts, ids, "loss", PREDICTING_LIMIT, "with it")


def _run(model: nn.Module, ids: Tensor, times: int = 1) -> None:
    with torch.no_grad():
        for _ in range(times):
            model(input_ids=ids, use_cache=False)


def _ablation(model: nn.Module, ids: Tensor, metric: str, limit: float, said: str) -> None:
    """All heads against as many forward passes."""
    inputs, count = {"input_ids": ids, "use_cache": False}, LAYERS * HEADS
    measured = pair_functions(
        lambda: attnviz.ablate(model, inputs, metric), lambda: _run(model, ids, FORWARDS), runs=ROUNDS
    )
    times = measured.time * FORWARDS / count
    report(f"removing {count} heads, {said}", Pair(times, float("nan"), measured.seconds), limit)


def _contributions(model: nn.Module, ids: Tensor) -> None:
    """Contributions kept in a run against the run alone."""

    def recorded(heads: list[int] | None, layers: list[int] | None) -> None:
        with record(model, layers=layers, heads=heads, values=True):
            _run(model, ids)

    alone = partial(_run, model, ids)
    report("contributions of one head", pair_functions(partial(recorded, [3], [5]), alone), ONE_HEAD_LIMIT)
    report("contributions of all heads", pair_functions(partial(recorded, None, None), alone), ALL_HEADS_LIMIT)
