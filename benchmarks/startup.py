"""Measures the short commands against the imports that they need."""

import sys
import tempfile
from pathlib import Path

from benchmarks.timing import pair_commands, report

ATTNVIZ = [sys.executable, "-m", "attnviz"]
LIGHT = [sys.executable, "-c", "import typer, rich, numpy"]
TORCH = [sys.executable, "-c", "import torch"]
FIGURE = [sys.executable, "-c", "import torch, matplotlib.figure, matplotlib.backends.backend_agg"]
REFUSALS = (
    ["show", "Life", "--set", "embed-dim=30", "--set", "num-heads=4"],
    ["show", "   "],
    ["show", "--file", "missing.txt"],
    ["show", "Life", "--heads", "9"],
    ["show", "Life", "-o", "x.gif"],
    ["compare", "Life"],
    ["show", "--no-such-option"],
)


def main() -> None:
    """Prints each ratio and its limit."""
    report("attnviz --help", pair_commands([*ATTNVIZ, "--help"], LIGHT), 1.3)
    for refusal in REFUSALS:
        report(f"refused: attnviz {' '.join(refusal)}", pair_commands([*ATTNVIZ, *refusal], LIGHT), 1.3)
    show = [*ATTNVIZ, "show", "Life is short"]
    report('attnviz show "Life is short"', pair_commands(show, TORCH), 0.85, 1.15)
    with tempfile.TemporaryDirectory() as folder:
        figure = [*show, "-o", str(Path(folder) / "head.png"), "--heads", "0", "--force"]
        report("the same, -o head.png --heads 0", pair_commands(figure, FIGURE), 1.25)


if __name__ == "__main__":
    main()
