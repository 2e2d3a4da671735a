"""``python -m tests.maps.peak_memory words|sentences|mean``: megabytes that derived maps of 8,000 tokens add."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from attnviz.attention.mask import Mask
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.maps.grouped import regroup
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.combine import reduce_heads
from attnviz.streaming.overview import Factors
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens, tokens_of_pieces

TOKENS, HEADS = 8_000, 3


def peak_memory(derived: str) -> float:
    """Megabytes that drawing such maps takes at most, in a process of its own."""
    command = [sys.executable, "-m", __name__, derived]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return float(done.stdout)


def long_maps() -> FactoredMaps:
    """Causal maps of a text of 8,000 tokens, whose words have two each, and its sentences 100."""
    random = np.random.default_rng(0)
    queries, keys = (random.normal(size=(HEADS, TOKENS, 4)).astype(np.float32) for _ in range(2))
    tokens = _text()
    factors = Factors(
        queries=queries, keys=keys, key_heads=tuple(range(HEADS)), scale=0.5, mask=Mask(causal=True),
        logsumexp=np.full((HEADS, TOKENS), 9, dtype=np.float32),
    )  # fmt: skip
    return FactoredMaps(
        layer=0, module="m", heads=tuple(range(HEADS)), query_tokens=tokens, key_tokens=tokens, factors=factors
    )


def draw(derived: str) -> None:
    """A head of the maps as a picture of 64 x 64 pixels, and one row of its numbers."""
    maps: CellMaps = long_maps()
    if derived in ("words", "sentences"):
        joined = regroup(Recording(maps=(maps,), model="a test"), Selection(), Grouping(by=derived))
        maps = cell_maps(joined.maps[0])
    else:
        maps = reduce_heads([(maps, head) for head in maps.heads], derived)
    whole = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    maps.overview((0,), 64, 64, *whole)
    maps.window((0,), slice(5, 6), whole[1])


def _text() -> Tokens:
    offsets = [(start * 3 // 2, start * 3 // 2 + 1) for start in range(TOKENS)]
    text = ("ab " * 49 + "ab\n") * (TOKENS // 100)
    names = ["a", "b"] * (TOKENS // 2)
    return tokens_of_pieces(text, list(range(TOKENS)), names, offsets, np.zeros(TOKENS, dtype=bool))


if __name__ == "__main__":
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    draw(sys.argv[1])
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
