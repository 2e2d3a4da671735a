"""Measures overviews, computed by the attention kernel with block indicators as values, against attention itself.

``python -m benchmarks indicators`` prints the ratios: with the CPU's kernel, and, where there is a CUDA device, on
that, with milliseconds and the share of the card's peak.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnviz.attention.mask import Mask
from attnviz.streaming.fused_pass import DeviceFactors, overview_by_indicators

PIXELS, RUNS, LIMIT = 512, 5, 1.0
ON_CPU = ((12, 4096, 64), (2, 16384, 64))  # heads, tokens, features
ON_CUDA = (32, 32768, 128)
# Dense bfloat16 TFLOP/s by the maker's data sheets, found by what the device's name holds.
PEAKS = {"B200": 2250, "H200": 989, "H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "A100": 312, "L40S": 362}


def main() -> None:
    """Prints every ratio: first for the CPU's kernel on one thread, then for the CUDA device's."""
    torch.set_num_threads(1)
    for shape in ON_CPU:
        compare(shape, "cpu", torch.float32, seconds)
    print_device()


def print_device() -> None:
    """Prints the ratios on the CUDA device in bfloat16, or that there is no device."""
    if torch.cuda.is_available():
        compare(ON_CUDA, "cuda", torch.bfloat16, device_seconds)
    else:
        print("indicators on CUDA: no device is at hand; the CPU's kernel stands in for it in the tests", flush=True)


def compare(
    shape: tuple[int, int, int], device: str, dtype: torch.dtype, clock: Callable[[Callable[[], object]], float]
) -> None:
    """Times the overview of random heads in turn with one forward of flash attention on them, full and causal."""
    heads, tokens, features = shape
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, *shape, dtype=dtype, device=device).unbind()
    for causal in (False, True):
        factors = DeviceFactors(queries, keys, tuple(range(heads)), features**-0.5, Mask(causal=causal))
        overview = partial(overview_by_indicators, factors, PIXELS, PIXELS)
        forward = partial(attend, queries[None], keys[None], values[None], causal)
        rounds = [(clock(overview), clock(forward)) for _ in range(RUNS + 1)][1:]
        ratio, call_seconds = (
            median(one / two for one, two in rounds),
            (median(each) for each in zip(*rounds, strict=True)),
        )
        work = 4 * heads * tokens**2 * features / (2 if causal else 1)  # two products over the visible cells
        both = "; ".join(
            f"{what} {speed_text(each, work)}" for what, each in zip(("overview", "forward"), call_seconds, strict=True)
        )
        name = f"indicators on {device}, {heads} x {tokens} x {features}, {'causal' if causal else 'full'}"
        limit = f"at most {LIMIT:g}, {'holds' if ratio <= LIMIT else 'MISSED'}; " if device == "cuda" else ""
        print(f"{name:58} {ratio:5.2f} ({limit}{both})", flush=True)


def attend(queries: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    """Returns the output of torch's flash attention, whatever kernel torch would choose."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)


def speed_text(call_seconds: float, work: float) -> str:
    """Returns milliseconds, TFLOP/s and, for a card of the table, the share of its peak as text."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    peak = next((peak for gpu, peak in PEAKS.items() if gpu in name), None)
    share = f", {work / call_seconds / 1e12 / peak:.0%} of the peak" if peak else ""
    return f"{call_seconds * 1e3:.1f} ms, {work / call_seconds / 1e12:.3g} TFLOP/s{share}"


def seconds(function: Callable[[], object]) -> float:
    """Returns the seconds of processor time of a call, which depend less on other load than elapsed time."""
    start = time.process_time()
    function()
    return time.process_time() - start


def device_seconds(function: Callable[[], object]) -> float:
    """Returns the seconds of a call on the device, between two CUDA events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3


if __name__ == "__main__":
    main()
