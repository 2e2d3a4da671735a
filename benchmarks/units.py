"""Measures the shares of units against torch's attention of the same rows, at 32,768 tokens.

``python -m benchmarks units`` prints the time of all shares of an answer of 256 rows and 8 heads, for maps of a live
model and of a file, what memory it adds, and the largest difference from float64. Seconds are those that the process
computes, so that a busy machine counts less.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from torch.nn import functional

from attnviz.attention.mask import Mask
from attnviz.base.arrays import Float64Array
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.metrics.unit_shares import UnitShares, unit_shares
from attnviz.streaming.overview import Factors
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens

TOKENS, ROWS, HEADS, KEY_HEADS, FEATURES, RUNS = 32768, 256, 8, 2, 64, 7
EDGES = (0, 1, 512, 3000, 3001, 9000, 15000, 15700, 21000, 27000, 31000, TOKENS - ROWS, TOKENS)
LIMIT, MEGABYTES = 1.2, 50


def main() -> None:
    """Prints every figure with its limit."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    queries, keys = torch.randn(HEADS, TOKENS, FEATURES), torch.randn(KEY_HEADS, TOKENS, FEATURES)
    maps, expected = inputs(queries, keys)
    visible = torch.arange(TOKENS)[None] <= torch.arange(TOKENS - ROWS, TOKENS)[:, None]

    def attention() -> object:
        rows = queries[None, :, -ROWS:]
        return functional.scaled_dot_product_attention(rows, keys[None], keys[None], attn_mask=visible, enable_gqa=True)

    result = shares(maps)
    whole = np.concatenate([result.shares, result.sink[:, None]], axis=1)
    error = np.abs(result.shares - expected[:, 1:]).max()
    print(
        f"shares of {len(EDGES) - 1} units: {error:.1e} from float64, sums {np.abs(whole.sum(1) - 1).max():.1e} from 1"
    )
    tracemalloc.start()
    shares(maps)
    grown = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    print(f"memory beside queries and keys: {grown:.0f} MB (at most {MEGABYTES}, {verdict(grown <= MEGABYTES)})")
    for name, each in (("a file", maps), ("a live model", on_device(maps))):
        ratio, seconds = ratio_of(lambda each=each: shares(each), attention)  # type: ignore[misc]
        limit = f"at most {LIMIT}, {verdict(ratio <= LIMIT)}"
        print(f"shares of {name}: {ratio:.2f} of the rows' attention ({limit}; {seconds:.3f} s)")


def verdict(holds: bool) -> str:
    """The word for a limit."""
    return "holds" if holds else "MISSED"


def inputs(queries: torch.Tensor, keys: torch.Tensor) -> tuple[FactoredMaps, Float64Array]:
    """Maps of random queries and keys with turns, and the shares of the units by float64, ``(heads, units)``."""
    logsumexp, expected = torch.zeros(HEADS, TOKENS), np.zeros((HEADS, len(EDGES) - 1))
    hidden = torch.arange(TOKENS)[None] > torch.arange(TOKENS - ROWS, TOKENS)[:, None]
    for head in range(HEADS):
        scores = (queries[head, -ROWS:].double() @ keys[head * KEY_HEADS // HEADS].double().T) * FEATURES**-0.5
        scores.masked_fill_(hidden, -torch.inf)
        logsumexp[head, -ROWS:] = scores.logsumexp(-1).float()
        weights = scores.softmax(-1)
        expected[head] = [float(weights[:, a:b].sum(-1).mean()) for a, b in pairwise(EDGES)]
    numbers = np.searchsorted(EDGES, np.arange(TOKENS), side="right") - 1
    groups = Groups(numbers.astype(np.int64), tuple(f"turn {number}" for number in range(len(EDGES) - 1)))
    tokens = replace(Tokens.numbered(TOKENS), groups={"turns": groups})
    factors = Factors(
        queries=queries.numpy(),
        keys=keys.numpy(),
        key_heads=tuple(head * KEY_HEADS // HEADS for head in range(HEADS)),
        scale=FEATURES**-0.5,
        logsumexp=logsumexp.numpy(),
        mask=Mask(causal=True),
    )
    maps = FactoredMaps(
        layer=0, module="", heads=tuple(range(HEADS)), query_tokens=tokens, key_tokens=tokens, factors=factors
    )
    return maps, expected


def on_device(maps: FactoredMaps) -> FactoredMaps:
    """The same maps as a model on the CPU gives them."""
    return replace(maps, factors=replace(maps.factors, device="cpu"))


def shares(maps: FactoredMaps) -> UnitShares:
    """The shares of the last turn."""
    result = unit_shares(maps, "turns")
    assert result is not None
    return result


def ratio_of(a: Callable[[], object], b: Callable[[], object]) -> tuple[float, float]:
    """The median ratio of the processor times of two functions, run in turn, and the median of the first."""
    pairs = [(seconds_of(a), seconds_of(b)) for _ in range(RUNS)]
    return median(one / two for one, two in pairs), median(one for one, _ in pairs)


def seconds_of(function: Callable[[], object]) -> float:
    """The processor time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start
