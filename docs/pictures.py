"""Makes README's pictures from the sample texts: ``python docs/pictures.py``; the same command makes the same bytes."""

import os
from pathlib import Path

from attnviz.cli.commands import main

HERE = Path(__file__).parent
PICTURES = {
    "pronoun.png": ["show", "--sample", "pronoun", "--causal", "--heads", "1", "--dpi", "120"],
    "pronoun-dark.png": ["show", "--sample", "pronoun", "--causal", "--heads", "1", "--dpi", "120", "--theme", "dark"],
    "heads.png": ["show", "--num-heads", "8", "--embed-dim", "64", "--size", "16:9", "--dpi", "100"],
    "difference.png": ["compare", "--causal", "--heads", "0,1", "--dpi", "100"],
    "arcs.png": ["show", "--sample", "pronoun", "--causal", "--style", "arcs", "--heads", "0-2", "--dpi", "100"],
    "text.png": ["show", "--sample", "pronoun", "--causal", "--style", "text", "--query", "she", "--dpi", "100"],
    "overview.png": [
        *("show", "--sample", "repeat", "--causal", "--num-layers", "12", "--num-heads", "12", "--embed-dim", "96"),
        *("--dpi", "100"),
    ],
}


def redraw() -> None:
    """Draws every picture into this folder."""
    os.environ["COLUMNS"] = "80"
    for name, arguments in PICTURES.items():
        sample = [] if "--sample" in arguments else ["--sample", "life"]
        if main([*arguments, *sample, "-o", str(HERE / name), "--force"]) != 0:
            raise SystemExit(f"{name} was not drawn")


if __name__ == "__main__":
    redraw()
