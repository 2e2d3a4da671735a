"""Measures recordings of arrays in files against plain reading of the files, with 144 heads of 1,024 tokens.

``python -m benchmarks arrays`` prints the time of `read_arrays` over that of numpy or safetensors. Seconds are those
that the process computes, the least of several runs, because the system takes from 0.1 to 1 s to make large pages of
memory. Files of queries and keys hold 64 features.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from attnviz.arrays.file import read_arrays
from attnviz.base.arrays import FloatArray
from benchmarks.units import seconds_of, verdict

LAYERS, HEADS, TOKENS, FEATURES = 12, 12, 1024, 64
LIMIT, RUNS = 1.2, 7


def main() -> None:
    """Prints the ratio of each kind of file with its limit."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, is_causal in (("weights", False), ("causal weights", True)):
            measure(name, {f"{layer}.weights": rows_of(random, is_causal) for layer in range(LAYERS)}, Path(folder))
        shape = LAYERS, HEADS, TOKENS, FEATURES
        factors = {field: random.standard_normal(shape, dtype=np.float32) for field in ("queries", "keys")}
        measure("queries and keys", factors, Path(folder))


def rows_of(random: np.random.Generator, is_causal: bool) -> FloatArray:
    """Returns the weights of a layer, ``(heads, queries, keys)``; 0 above the diagonal if causal."""
    weights = random.random((HEADS, TOKENS, TOKENS), dtype=np.float32)
    weights = np.tril(weights) if is_causal else weights
    return np.asarray(weights / weights.sum(-1, keepdims=True), dtype=np.float32)


def measure(name: str, arrays: dict[str, FloatArray], folder: Path) -> None:
    """Prints the ratios of files that hold these arrays."""
    np.savez(folder / "a.npz", **arrays)  # type: ignore[arg-type]
    save_file(arrays, folder / "a.safetensors")
    readers: dict[str, Callable[[Path], object]] = {".npz": read_npz, ".safetensors": load_file}
    if len(arrays) == LAYERS:
        np.save(folder / "a.npy", np.stack(list(arrays.values())))
        readers[".npy"] = np.load
    for suffix, read in readers.items():
        path = (folder / "a").with_suffix(suffix)
        pairs = [(seconds_of(lambda: read_arrays(path)), seconds_of(lambda: read(path))) for _ in range(RUNS)]  # noqa: B023
        seconds, reading_seconds = (min(times) for times in zip(*pairs, strict=True))
        ratio = seconds / reading_seconds
        print(
            f"{name}, {suffix}: {ratio:.2f} of reading (at most {LIMIT}, {verdict(ratio <= LIMIT)}; {seconds:.3f} s)",
            flush=True,
        )


def read_npz(path: Path) -> dict[str, FloatArray]:
    """Returns every array of a .npz file."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}
