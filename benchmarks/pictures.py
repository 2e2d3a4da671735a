"""Measures the overview of a model's heads as a PNG against a grid of matplotlib axes of the same arrays."""

import io
import sys
import tempfile
from pathlib import Path

import numpy as np

from attnviz.api import drawing
from attnviz.api.recording import drawable
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.text.tokens import Tokens
from benchmarks.timing import pair_commands, pair_functions, report
from tests.conftest import random_maps

LAYERS, HEADS, TOKENS = 12, 12, 128
RUNS = 5
SUBPLOTS = """
import sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

def draw(weights, file):
    figure, grid = plt.subplots(*weights.shape[:2], figsize=(16, 16))
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            axes.imshow(weights[layer, head])
            axes.set_title(f"{layer}.{head}")
    figure.savefig(file, format="png")
    plt.close(figure)
"""
WHOLE = SUBPLOTS + "\ndraw(np.load(sys.argv[1]), sys.argv[2])\n"


def main() -> None:
    """Prints two ratios: for drawing alone, and for the whole process that reads the numbers from a file."""
    recording = random_recording()
    weights = np.stack([maps.weights for maps in recording.maps if isinstance(maps, DenseMaps)])
    scope: dict[str, object] = {}
    exec(SUBPLOTS, scope)
    subplots = scope["draw"]
    assert callable(subplots)
    measured = pair_functions(
        lambda: drawing.draw(recording, ".png"), lambda: subplots(weights, io.BytesIO()), runs=RUNS
    )
    report("overview of 12 x 12 heads at 128 tokens, PNG", measured, 1 / 25)
    with tempfile.TemporaryDirectory() as folder:
        saved, arrays = Path(folder) / "run.safetensors", Path(folder) / "weights.npy"
        drawable(recording).save(saved)
        np.save(arrays, weights)
        ours = [sys.executable, "-m", "attnviz", "show", str(saved), "-o", f"{folder}/ours.png", "--force"]
        theirs = [sys.executable, "-c", WHOLE, str(arrays), f"{folder}/theirs.png"]
        report("the same, whole process", pair_commands(ours, theirs, runs=RUNS), 1 / 8)


def random_recording() -> Recording:
    """Returns peaked maps of every head, from a seed."""
    tokens = Tokens.numbered(TOKENS)
    maps = tuple(random_maps(tokens, layer=layer, heads=HEADS, peak=3, seed=layer) for layer in range(LAYERS))
    return Recording(maps=maps, model="random numbers")


if __name__ == "__main__":
    main()
