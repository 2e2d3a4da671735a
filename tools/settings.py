"""Runs tests as other machines would: ``python -m tools.settings``, or as some: ``python -m tools.settings threads``.

Other kernels and threads add float32 numbers in another order. A busy machine reveals tests that wait for a clock, and
another order of the tests those that need the leftovers of an earlier one.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUSY_PROCESSES = 4
COMPUTING = "attention battery capture corpus effects explain maps metrics models streaming".split()
WAITING = "base browse capture cli models render streaming".split()


class Setting(NamedTuple):
    """A way to run tests: the packages to test, and the environment in which they run.

    Attributes:
        packages: folders of ``tests``.
        environment: what torch, MKL, oneDNN and OpenMP read.
        options: of pytest.
        busy: True to keep the processors busy with other processes meanwhile.
    """

    packages: list[str]
    environment: dict[str, str]
    options: tuple[str, ...] = ()
    busy: bool = False


SETTINGS = {
    "plain": Setting(COMPUTING, {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "avx2": Setting(
        COMPUTING,
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "4"},
    ),
    "threads": Setting(COMPUTING, {"OMP_NUM_THREADS": "2"}, ("--shuffle", "1")),
    "busy": Setting(WAITING, {}, ("--shuffle", "2"), busy=True),
}


def main() -> int:
    """Runs the tests under each setting and returns the number of settings that fail."""
    names = sys.argv[1:] or list(SETTINGS)
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        sys.exit(f"unknown setting {unknown[0]!r}; choose from {', '.join(SETTINGS)}")
    failed = [name for name in names if not passes(SETTINGS[name])]
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(names)}")
    return len(failed)


def passes(setting: Setting) -> bool:
    """True if all tests pass under this setting."""
    folders = [f"tests/{package}" for package in setting.packages]
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), *setting.options, *folders]
    variables = " ".join(f"{name}={value}" for name, value in setting.environment.items())
    print(f"$ {variables} {' '.join(command)}", flush=True)
    with busy_processes(BUSY_PROCESSES if setting.busy else 0):
        return subprocess.run(command, cwd=ROOT, env=os.environ | setting.environment, check=False).returncode == 0


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keeps the processors busy with ``count`` processes until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(9999))"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
