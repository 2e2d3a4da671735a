"""Times two things in turn, A, B, A, B, so that a change of the machine's speed affects both."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

RUNS = 9


@dataclass(frozen=True)
class Pair:
    """Ratios of A to B, medians over the runs of pairs.

    Attributes:
        time: of elapsed seconds.
        memory: of the largest resident size; NaN for functions.
        seconds: median elapsed of A and of B.
    """

    time: float
    memory: float
    seconds: tuple[float, float]


def pair_commands(a: Sequence[str], b: Sequence[str], runs: int = RUNS) -> Pair:
    """Measures two commands as whole processes, after a first run of each that is not counted."""
    _process(a)
    _process(b)
    results = [(_process(a), _process(b)) for _ in range(runs)]
    return Pair(
        time=median(one[0] / two[0] for one, two in results),
        memory=median(one[1] / two[1] for one, two in results),
        seconds=(median(one[0] for one, _ in results), median(two[0] for _, two in results)),
    )


def pair_functions(a: Callable[[], object], b: Callable[[], object], runs: int = RUNS) -> Pair:
    """Measures two functions in this process, after a first call of each that is not counted."""
    _call(a)
    _call(b)
    results = [(_call(a), _call(b)) for _ in range(runs)]
    return Pair(
        time=median(one / two for one, two in results),
        memory=float("nan"),
        seconds=(median(one for one, _ in results), median(two for _, two in results)),
    )


def report(what: str, measured: Pair, limit: float, memory_limit: float | None = None) -> None:
    """Prints one line: the ratio, its limit, and if it holds."""
    holds = "holds" if measured.time <= limit else "MISSED"
    line = f"{what:58} time {measured.time:5.2f} (at most {limit:g}, {holds}; {measured.seconds[0]:.3f} s)"
    if memory_limit is not None:
        holds = "holds" if measured.memory <= memory_limit else "MISSED"
        line += f"  memory {measured.memory:5.2f} (at most {memory_limit:g}, {holds})"
    print(line, flush=True)


def _process(command: Sequence[str]) -> tuple[float, int]:
    """Returns elapsed seconds and peak resident size (in the system's unit) of one run of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - start, usage.ru_maxrss


def _call(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
