"""Measures ablation and contributions against forward passes of a model of GPT-2's size.

Memory is that of whole processes, each of which builds and runs the model.
"""

import sys
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import attnviz
from attnviz.api.record import record
from benchmarks.timing import Pair, pair_commands, pair_functions, report

LAYERS, HEADS, WIDTH, TOKENS = 12, 12, 768, 128
ABLATION_LIMIT, PREDICTING_LIMIT = 0.55, 0.7
ONE_HEAD_LIMIT, ALL_HEADS_LIMIT = 1.1, 1.3
MEMORY_LIMIT = 2  # times a process that runs the model alone
REMOVED = [f"{layer}.{head}" for layer in (0, LAYERS - 1) for head in range(4)]  # where most, and least, is run at once
ROUNDS, FORWARDS = 2, 12


def main() -> None:
    """Prints the ratios, each with its limit."""
    for metric, label in (("distance", "without the unembedding"), ("loss", "with it")):
        _memory(metric, label)
    predicts, ids = _model()
    features = predicts.get_submodule("transformer")
    _contributions(features, ids)
    _ablation(features, ids, "distance", ABLATION_LIMIT, "without the unembedding")
    _ablation(predicts, ids, "loss", PREDICTING_LIMIT, "with it")


def _model() -> tuple[nn.Module, Tensor]:
    """Returns a language model of GPT-2's size and its input."""
    torch.manual_seed(0)
    config: Any = transformers.GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH)
    predicts: Any = transformers.GPT2LMHeadModel(config)
    predicts.eval()
    ids = torch.randint(0, config.vocab_size, (1, TOKENS))
    return predicts, ids


def run_process(metric: str, removes: bool) -> None:
    """Runs the model, then once more or without each of some heads, in a process that is measured."""
    predicts, ids = _model()
    model = predicts if metric == "loss" else predicts.get_submodule("transformer")
    _run(model, ids, 2)
    if removes:
        attnviz.ablate(model, {"input_ids": ids, "use_cache": False}, metric, heads=REMOVED)
    else:
        _run(model, ids)


def _memory(metric: str, label: str) -> None:
    """Prints the peak memory of a process that removes heads, against one that does not; runs before this one grows."""
    removing, alone = (
        [sys.executable, "-c", f"from benchmarks.effects import run_process; run_process({metric!r}, {removes})"]
        for removes in (True, False)
    )
    ratio = pair_commands(removing, alone, runs=1).memory
    holds = "holds" if ratio <= MEMORY_LIMIT else "MISSED"
    print(f"memory of removing heads, {label}: {ratio:.2f} (at most {MEMORY_LIMIT:g}, {holds})", flush=True)


def _run(model: nn.Module, ids: Tensor, times: int = 1) -> None:
    with torch.no_grad():
        for _ in range(times):
            model(input_ids=ids, use_cache=False)


def _ablation(model: nn.Module, ids: Tensor, metric: str, limit: float, label: str) -> None:
    """Prints the time to remove every head against that of as many forward passes."""
    inputs, count = {"input_ids": ids, "use_cache": False}, LAYERS * HEADS
    measured = pair_functions(
        lambda: attnviz.ablate(model, inputs, metric), lambda: _run(model, ids, FORWARDS), runs=ROUNDS
    )
    times = measured.time * FORWARDS / count
    report(f"removing {count} heads, {label}", Pair(times, float("nan"), measured.seconds), limit)


def _contributions(model: nn.Module, ids: Tensor) -> None:
    """Prints the time of contributions against a bare run: if the run ends after the layer, and if it goes on."""
    inputs, alone = {"input_ids": ids, "use_cache": False}, partial(_run, model, ids)

    def kept(heads: list[int] | None, layers: list[int] | None) -> None:
        with record(model, layers=layers, heads=heads, values=True):
            alone()

    for layer, label in ((LAYERS // 2, "in the middle"), (LAYERS - 1, "of the last layer")):
        asked = partial(attnviz.contributions, model, inputs, layers=[layer], heads=[3])
        report(f"contributions of one head {label}", pair_functions(asked, alone), ONE_HEAD_LIMIT)
    report(
        "contributions of one head, in a run that goes on",
        pair_functions(partial(kept, [3], [5]), alone),
        ONE_HEAD_LIMIT,
    )
    report("contributions of all heads", pair_functions(partial(kept, None, None), alone), ALL_HEADS_LIMIT)
