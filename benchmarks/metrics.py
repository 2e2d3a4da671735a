"""Measures every metric of 12 x 12 heads at 512 tokens against the forward pass of a model of BERT-base's size."""

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.call_metrics import measure
from attnviz.text.tokens import Tokens
from benchmarks.timing import pair_commands, pair_functions, report
from tests.conftest import random_maps

LAYERS, HEADS, TOKENS = 12, 12, 512
RUNS = 3
HOLD = "from benchmarks.metrics import random_recording; recording = random_recording()"
MEASURE = "; from attnviz.metrics.call_metrics import measure; [measure(cell_maps(maps)) for maps in recording.maps]"


def main() -> None:
    """Prints the ratio of time to the forward pass, and that of memory to the same recording without metrics."""
    recording = random_recording()
    measured = pair_functions(lambda: [measure(cell_maps(maps)) for maps in recording.maps], forward_pass(), runs=RUNS)
    report(f"every metric, {LAYERS} x {HEADS} heads, {TOKENS} tokens, to a forward pass", measured, 1.0)
    pair = pair_commands([sys.executable, "-c", HOLD + MEASURE], [sys.executable, "-c", HOLD], runs=RUNS)
    print(f"{'resident memory to the recording alone (at most 2)':58} {pair.memory:.2f}")


def random_recording() -> Recording:
    """Returns a causal recording of that size with repeated tokens, so that every metric applies."""
    random = np.random.default_rng(0)
    nothing = Tokens.numbered(TOKENS)
    tokens = replace(nothing, ids=random.integers(0, 200, TOKENS))
    maps = (random_maps(tokens, layer=layer, heads=HEADS, causal=True, seed=layer) for layer in range(LAYERS))
    return Recording(maps=tuple(maps), model="random")


def forward_pass() -> Callable[[], object]:
    """Returns a forward pass of torch's own encoder, with the shape of BERT-base."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(768, HEADS, 3072, activation="gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    features = torch.randn(1, TOKENS, 768)

    def forward() -> object:
        with torch.no_grad():
            return model(features)

    return forward
