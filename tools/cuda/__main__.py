"""Runs every test, comparison and bench that needs a card: ``python -m tools.cuda`` (at most eight minutes).

It needs torch, numpy, transformers, pytest and this checkout. ``--rehearse`` runs the same on the CPU with small sizes,
so that no minute of a card is lost to a mistake. ``-o FOLDER`` is where the two files go; the default is docs/cards.
"""

import argparse
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers

from tools.cuda import comparisons, figures
from tools.cuda.findings import Finding, write

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "cards"
SECONDS = 8 * 60
TESTED = ("tests/streaming/test_fused_pass.py", "tests/attention", "tests/models/test_seeded.py")  # run more on a card
PARTS: tuple[Callable[[str, bool], Iterable[Finding]], ...] = (
    figures.overviews,  # what was never seen comes first, as time may run out
    comparisons.kernels,
    figures.captures,
    comparisons.architectures,
    comparisons.runs,
    comparisons.commands,
    figures.corpora,
    figures.ablations,
)


def main() -> int:
    """Runs all parts, writes the two files, and returns the number of findings that do not hold."""
    options = argparse.ArgumentParser(prog="python -m tools.cuda", description=__doc__)
    options.add_argument("--rehearse", action="store_true", help="run on the CPU with small sizes")
    options.add_argument("-o", dest="folder", type=Path, default=FOLDER, help="where the JSON and the text go")
    given = options.parse_args()
    if not (given.rehearse or torch.cuda.is_available()):
        sys.exit("this machine has no CUDA device; --rehearse runs the same on the CPU")
    device = "cpu" if given.rehearse else "cuda"
    found = []
    for finding in run(device, given.rehearse):
        print(finding.line, flush=True)
        found.append(finding)
    for path in write(given.folder, machine(device), found):
        print(path)
    return sum(finding.verdict in ("MISSED", "FAILED") for finding in found)


def run(device: str, small: bool) -> Iterator[Finding]:
    """Yields the findings of every part; a part that breaks is a finding, and one after the time is up is not begun.

    Args:
        device: ``cuda`` or ``cpu``.
        small: True for small sizes, as in a rehearsal.
    """
    start = time.monotonic()
    yield from tests(small)
    for part in PARTS:
        if time.monotonic() - start > SECONDS:
            yield Finding(part.__name__, None, None, f"not begun, since {SECONDS} s were over")
            continue
        try:
            yield from part(device, small)
        except Exception as error:
            traceback.print_exc()
            yield Finding(part.__name__, None, None, f"{type(error).__name__}: {error}".splitlines()[0])


def tests(small: bool) -> Iterator[Finding]:
    """Runs the tests that compute on a card where there is one; the value is the exit status."""
    files = TESTED[:1] if small else TESTED
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = (ran.stdout.strip() or ran.stderr.strip()).splitlines()[-1]
    yield Finding("tests that compute on the card", ran.returncode, 0, last)


def machine(device: str) -> dict[str, str]:
    """Returns the facts that a reader of the figures needs."""
    card = torch.cuda.get_device_name() if device == "cuda" else "rehearsal on a CPU"
    return {
        "card": card,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
