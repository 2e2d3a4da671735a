"""Maps of long inputs against torch's own attention on the same queries and keys, on one thread.

``python -m tests.bench length`` prints the ratios up to 16,384 tokens and the exponents of time and memory.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.masks import Mask
from attnviz.streaming import NUMBERS, Factors, stream
from tests.bench.timing import pair_functions, report

HEADS, FEATURES, PIXELS = 12, 64, 512
LIMITS = {4096: 0.75, 16384: 0.65}
EVERYTHING = 1.0
MEGABYTES = 150
GROWTH = (2048, 4096, 8192)


def main() -> None:
    """Prints every ratio with its limit."""
    torch.set_num_threads(1)
    for tokens, limit in LIMITS.items():
        for causal in (False, True):
            compare(tokens, causal, limit)
    print_growth()
    print_memory()


def compare(tokens: int, causal: bool, limit: float) -> None:
    """The overview alone, and with every number, against one forward of attention."""
    queries, keys, values = inputs(tokens)
    factors = Factors(queries, keys, tuple(range(HEADS)), FEATURES**-0.5, Mask(causal=causal))
    attend = partial(functional.scaled_dot_product_attention, queries[None], keys[None], values[None], is_causal=causal)
    runs = 5 if tokens < 10_000 else 3
    what = f"{tokens} tokens, {'causal' if causal else 'full'}: "
    overview = pair_functions(partial(stream, factors, PIXELS, PIXELS, maximum=False), attend, runs)
    report(f"{what}overview / attention", overview, limit)
    everything = pair_functions(partial(stream, factors, PIXELS, PIXELS, numbers=NUMBERS), attend, runs)
    report(f"{what}overview and all numbers / attention", everything, EVERYTHING)


def print_growth() -> None:
    """How time grows with the tokens: the exponent between the shortest and the longest."""
    seconds = []
    for tokens in GROWTH:
        queries, keys, _ = inputs(tokens)
        factors = Factors(queries, keys, tuple(range(HEADS)), FEATURES**-0.5)
        seconds.append(median(timed(partial(stream, factors, PIXELS, PIXELS)) for _ in range(3)))
    print(f"time grows as tokens to the power of {exponent(seconds):.2f} (2.0 ± 0.1)", flush=True)


def print_memory() -> None:
    """What the overview of 12 heads adds to the queries and keys, each length in a process of its own."""
    added = [added_megabytes(tokens) for tokens in (8192, 32768)]
    power = math.log(added[1] / added[0], 4)
    holds = "holds" if added[1] <= MEGABYTES else "MISSED"
    print(f"memory added at 32,768 tokens: {added[1]:.0f} MB (at most {MEGABYTES}, {holds}); power of {power:.2f}")


def added_megabytes(tokens: int) -> float:
    """The growth of the largest resident size while one head after another is streamed."""
    code = f"from tests.bench.length import measure_memory; measure_memory({tokens})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_memory(tokens: int) -> None:
    """Prints the megabytes added; of the twelve heads two are streamed, the rest only held, as all take the same."""
    torch.set_num_threads(1)
    queries, keys, _ = inputs(tokens)
    stream(Factors(queries[:1, :600], keys[:1, :600], (0,), 1.0), PIXELS, PIXELS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mask = Mask(causal=True)
    stream(Factors(queries[:2], keys[:2], (0, 1), FEATURES**-0.5, mask), PIXELS, PIXELS, numbers=NUMBERS)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found = (HEADS - 2) * (2 * PIXELS**2 + (1 + len(NUMBERS)) * tokens) * 4  # of the heads not streamed
    print(kilobytes / 1000 + found / 1e6)


def inputs(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and values, each ``(heads, tokens, features)``."""
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, HEADS, tokens, FEATURES).unbind()
    return queries, keys, values


def exponent(seconds: list[float]) -> float:
    """The power of the tokens with which the times grow."""
    return math.log(seconds[-1] / seconds[0]) / math.log(GROWTH[-1] / GROWTH[0])


def timed(function: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
