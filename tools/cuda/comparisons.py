"""Compares what attnviz computes on a device with what it computes on the CPU from the same parameters."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import attnviz
from attnviz.maps.cell_maps import DenseMaps
from tests.capture.architectures import ARCHITECTURES, Entry, build, inputs_of
from tools.cuda.findings import Finding

Compared = tuple[float, float, str]  # the difference, its limit, and what a reader must know beside them

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDING = 3  # times the error that the CPU itself makes in a format: other kernels round sums in another order
BACKENDS = (
    SDPBackend.MATH,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)
REHEARSED = 3  # architectures of a rehearsal


class OneCall(nn.Module):
    """Random queries, keys and values of four heads, and one call of torch's attention."""

    def __init__(self, dtype: torch.dtype, tokens: int = 64, features: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.factors = nn.Parameter(torch.randn(3, 1, 4, tokens, features).to(dtype), requires_grad=False)

    def forward(self, causal: bool = True) -> Tensor:
        """Returns the output ``(1, 4, tokens, features)``."""
        queries, keys, values = self.factors.unbind()
        return nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)


def architectures(device: str, small: bool) -> Iterator[Finding]:
    """Yields for every architecture and dtype how far its weights are from those on the CPU in float32."""
    for entry in ARCHITECTURES[:REHEARSED] if small else ARCHITECTURES:
        for dtype in DTYPES:
            yield measured(f"{entry.label}, {name_of(dtype)}", partial(of_entry, entry, dtype, device))


def of_entry(entry: Entry, dtype: torch.dtype, device: str) -> Compared:
    """Returns how far one architecture's weights are from float32 ones of the same parameters, and the limit.

    The limit is taken from the CPU's own error in this dtype.
    """
    model, inputs = build(entry).to(dtype), inputs_of(entry)
    converted = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    exact = recorded(deepcopy(model).float(), inputs, attention=entry.attention)
    error = difference(recorded(model, converted, attention=entry.attention), exact)
    moved = {name: each.to(device) for name, each in converted.items()}
    found = recorded(model.to(device), moved, attention=entry.attention)
    scores = max(float(np.abs(one.scores[:, one.visible]).max(initial=1)) for one in exact.maps)
    return difference(found, exact), ROUNDING * error + 1e-5 * scores, ""


def kernels(device: str, small: bool) -> Iterator[Finding]:
    """Yields how far weights are from float64 ones of the same factors, for every kernel of torch and every dtype."""
    for backend in BACKENDS:
        for dtype in DTYPES:
            name, module = f"kernel {backend.name.lower()}, {name_of(dtype)}", OneCall(dtype).to(device)
            with sdpa_kernel(backend):
                if runs_here(module):
                    yield measured(name, partial(of_kernel, module))
                else:
                    yield Finding(name, 0, None, "torch has no such kernel here")


def runs_here(module: nn.Module) -> bool:
    """True if a module runs with the kernel that is chosen, which depends on the device and the dtype."""
    try:
        module()
    except RuntimeError:
        return False
    return True


def of_kernel(module: OneCall) -> Compared:
    """Returns the largest difference of one call's weights from float64 ones, and the limit."""
    found = recorded(module, {})
    queries, keys, _ = module.factors.double().cpu().unbind()
    scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    weights = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
    return float(np.abs(weights_of(found) - weights[0].numpy()).max()), 1e-5, ""


def runs(device: str, small: bool) -> Iterator[Finding]:
    """Yields how weights differ from plain ones where a module is compiled, in another stream, or in a CUDA graph."""
    for name, run in {"torch.compile": compiled, "another stream": streamed, "CUDA graph": in_graph}.items():
        if device == "cpu" and name != "torch.compile":
            continue
        yield measured(name, partial(run, device))
    yield measured("a module on the meta device is refused", on_meta)


def compiled(device: str) -> Compared:
    """Compares a module whose compiled form has run before."""
    module = OneCall(torch.float32).to(device)
    plain = recorded(module, {})
    whole: Any = torch.compile(module, backend="eager" if device == "cpu" else "inductor")
    whole()
    return unless_refused(lambda: difference(recorded(whole, {}), plain))


def streamed(device: str) -> Compared:
    """Compares a module that runs in a stream of its own."""
    module = OneCall(torch.float32).to(device)
    plain = recorded(module, {})
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    return difference(recorded(module, {}, within=torch.cuda.stream(stream)), plain), 1e-6, ""


def in_graph(device: str) -> Compared:
    """Compares a module that is captured in a CUDA graph inside the block; a refusal is right, too."""
    module = OneCall(torch.float32).to(device)
    plain = recorded(module, {})

    def graphed() -> float:
        with torch.inference_mode(), attnviz.record(module) as recording:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                module()
            graph.replay()
        return difference(recording, plain)

    return unless_refused(graphed)


def on_meta() -> Compared:
    """Records a module without numbers, as it is where ``device_map`` leaves layers on the disk."""

    def found() -> float:
        recorded(OneCall(torch.float32).to("meta"), {})
        return 1.0

    return unless_refused(found)


def unless_refused(work: Callable[[], float]) -> Compared:
    """Returns a difference and its limit; 0 and the refusal if attnviz refuses."""
    try:
        return work(), 1e-6, ""
    except attnviz.AttnvizError as error:
        return 0.0, 1e-6, f"refused: {error}"


def commands(device: str, small: bool) -> Iterator[Finding]:
    """Yields how far numbers of heads, a survey, an ablation and contributions are from those on the CPU."""
    model, ids = language_model()
    for name, work in {
        "numbers of heads": numbers_of_heads,
        "survey": lambda module, ids: np.asarray(attnviz.survey(module, batches=[ids]).means),
        "ablation": lambda module, ids: np.array([row.mean for row in attnviz.ablate(module, ids, "loss").rows]),
        "contributions": lambda module, ids: weights_of(attnviz.contributions(module, ids)),
    }.items():
        yield measured(name, partial(on_both, work, model, ids, device))


def on_both(work: Callable[[nn.Module, Tensor], NDArray[Any]], model: nn.Module, ids: Tensor, device: str) -> Compared:
    """Returns the largest difference of some numbers between the CPU and the device, and the limit."""
    expected = work(model, ids)
    found = work(deepcopy(model).to(device), ids.to(device))
    size = max(1.0, float(np.nanmax(np.abs(expected))))
    return float(np.nanmax(np.abs(found - expected))), 1e-4 * size, ""


def numbers_of_heads(module: nn.Module, ids: Tensor) -> NDArray[Any]:
    """Returns the entropy of every row of every head."""
    recording = recorded(module, {"input_ids": ids})
    weights = weights_of(recording).astype(np.float64)
    return np.asarray(-(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1))


def language_model() -> tuple[nn.Module, Tensor]:
    """Returns a small random GPT-2 and token ids ``(1, 24)``."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=200, n_positions=64, n_embd=64, n_layer=3, n_head=4, bos_token_id=199, eos_token_id=199
    )
    model: Any = GPT2LMHeadModel(config)
    return model.eval(), torch.randint(0, 200, (1, 24))


def recorded(
    module: nn.Module, inputs: dict[str, Any], within: AbstractContextManager[Any] | None = None, **options: Any
) -> Any:
    """Returns the recording of one forward pass.

    Args:
        module: what runs.
        inputs: its keyword arguments.
        within: entered around the forward pass, as a stream is.
        options: those of ``attnviz.record``.
    """
    with torch.inference_mode(), attnviz.record(module, **options) as recording, within or nullcontext():
        module(**inputs)
    return recording


def weights_of(recording: Any) -> NDArray[Any]:
    """Returns the weights of all maps of one shape, ``(heads, queries, keys)``."""
    return np.concatenate([one.weights for one in recording.maps if isinstance(one, DenseMaps)])


def difference(found: Any, expected: Any) -> float:
    """Returns the largest difference of two recordings' weights; raises ValueError if they have other maps."""
    pairs = zip(found.maps, expected.maps, strict=True)
    return max(float(np.abs(one.weights - two.weights).max()) for one, two in pairs)


def measured(name: str, work: Callable[[], Compared]) -> Finding:
    """Returns the finding of a comparison, also where it raises."""
    try:
        return Finding(name, *work())
    except Exception as error:
        return Finding(name, None, None, f"{type(error).__name__}: {error}".splitlines()[0])


def name_of(dtype: torch.dtype) -> str:
    """Returns ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
