"""Times attnviz on a device against the bare work of the model there, in turn, as ratios of medians."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import attnviz
from attnviz.attention.mask import Mask
from attnviz.streaming.fused_pass import DeviceFactors, overview_by_indicators
from benchmarks.indicators import attend
from tools.cuda.findings import Finding

ROUNDS = 7
PIXELS = 512
MEBIBYTE = 2**20


def overviews(device: str, small: bool) -> Iterator[Finding]:
    """Yields the time of an overview of long maps in one forward of flash attention over them: 0.7 is the aim."""
    heads, tokens, features = (2, 256, 64) if small else (32, 32_768, 128)
    dtype = torch.float32 if small else torch.bfloat16
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, heads, tokens, features, dtype=dtype, device=device).unbind()
    for causal in (False, True):
        factors = DeviceFactors(queries, keys, tuple(range(heads)), features**-0.5, Mask(causal=causal))
        yield ratio(
            f"overview of {heads} x {tokens} x {features}, {'causal' if causal else 'full'} / flash forward",
            partial(overview_by_indicators, factors, PIXELS, PIXELS),
            partial(attend, queries[None], keys[None], values[None], causal),
            device,
            1.0,
        )


def captures(device: str, small: bool) -> Iterator[Finding]:
    """Yields time and memory of a recording in those of the bare forward, for one head and for all."""
    for tokens in (64, 128) if small else (512, 2048):
        model, ids = language_model(tokens, small)
        forward = partial(model.to(device), input_ids=ids.to(device), use_cache=False)
        yield from capture(
            f"one head, {tokens} tokens", model, forward, device, (1.1, 1.1), {"layers": [1], "heads": [1]}
        )
        yield from capture(f"all heads, {tokens} tokens", model, forward, device, (1.3, 1.3), {})


def capture(
    name: str,
    model: nn.Module,
    forward: Callable[[], object],
    device: str,
    limits: tuple[float, float],
    options: dict[str, Any],
) -> Iterator[Finding]:
    """Yields the time and, on a card, the memory of one kind of recording.

    Args:
        name: of the findings.
        model: what is recorded.
        forward: runs the model once.
        device: ``cuda`` or ``cpu``.
        limits: of time and of memory, in those of the bare forward.
        options: those of ``attnviz.record``.
    """

    def bare() -> None:
        with torch.inference_mode():
            forward()

    def recorded() -> None:
        with attnviz.record(model, **options):
            bare()

    yield ratio(f"{name} / forward", recorded, bare, device, limits[0])
    if device == "cuda":
        memory = added_memory(recorded) / added_memory(bare)
        yield Finding(f"{name}: peak of the card's memory / forward", memory, limits[1])


def corpora(device: str, small: bool) -> Iterator[Finding]:
    """Yields the time of a survey in that of its batched forward, and its tokens a minute."""
    texts, tokens = (2, 16) if small else (64, 128)
    model, _ = language_model(tokens, small)
    model.to(device)
    torch.manual_seed(1)
    batches = [torch.randint(0, 200, (texts, tokens), device=device) for _ in range(2)]

    def forward() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(input_ids=batch, use_cache=False)

    found = ratio(
        f"survey of {2 * texts} texts of {tokens} / batched forward",
        lambda: attnviz.survey(model, batches=batches),
        forward,
        device,
        1.3,
    )
    yield found
    seconds = min(clock(lambda: attnviz.survey(model, batches=batches), device) for _ in range(3))
    per_minute = 60 * 2 * texts * tokens / seconds
    millions = sum(each.numel() for each in model.parameters()) / 1e6
    yield Finding(f"tokens surveyed a minute, {millions:.0f} M parameters", per_minute, None, "a million is the aim")


def ablations(device: str, small: bool) -> Iterator[Finding]:
    """Yields the time of ablating every head in that of as many forwards."""
    model, ids = language_model(32 if small else 128, small)
    model.to(device)
    ids = ids.to(device)
    layers, heads = shape_of(small)

    def forwards() -> None:
        with torch.inference_mode():
            for _ in range(layers * heads):
                model(input_ids=ids, use_cache=False)

    inputs = {"input_ids": ids, "use_cache": False}
    yield ratio(
        f"{layers * heads} ablations / as many forwards",
        lambda: attnviz.ablate(model, inputs, "loss"),
        forwards,
        device,
        0.6,
        rounds=3,
    )


def shape_of(small: bool) -> tuple[int, int]:
    """Returns the number of layers and of heads in each."""
    return (2, 2) if small else (12, 12)


def language_model(tokens: int, small: bool) -> tuple[nn.Module, Tensor]:
    """Returns a random GPT-2 of its real size, or a small one, and token ids ``(1, tokens)``, on the CPU."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads = shape_of(small)
    torch.manual_seed(0)
    words = 200 if small else 50_257
    config = GPT2Config(
        vocab_size=words,
        n_positions=tokens,
        n_layer=layers,
        n_head=heads,
        n_embd=64 * heads,
        bos_token_id=words - 1,
        eos_token_id=words - 1,
    )
    model: Any = GPT2LMHeadModel(config)
    return model.eval(), torch.randint(0, 200, (1, tokens))


def ratio(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    device: str,
    limit: float,
    rounds: int = ROUNDS,
) -> Finding:
    """Times two functions in turn, after a first call of each that is not counted, and returns their ratio.

    Args:
        name: of the finding.
        ours: what attnviz does.
        theirs: what it is compared with.
        device: ``cuda`` or ``cpu``.
        limit: the largest ratio on a card.
        rounds: how many pairs are timed on a card; one in a rehearsal.
    """
    rounds = rounds if device == "cuda" else 1
    pairs = [(clock(ours, device), clock(theirs, device)) for _ in range(rounds + 1)][1:]
    note = f"{median(one for one, _ in pairs) * 1e3:.2f} / {median(two for _, two in pairs) * 1e3:.2f} ms"
    return Finding(name, median(one / two for one, two in pairs), limit if device == "cuda" else None, note)


def clock(function: Callable[[], object], device: str) -> float:
    """Returns the elapsed seconds of a call, until the device has done its work."""
    wait: Callable[[], object] = partial(torch.cuda.synchronize) if device == "cuda" else int
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


def added_memory(function: Callable[[], object]) -> float:
    """Returns the peak of the card's memory during a call, the model's parameters included, in MiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / MEBIBYTE
