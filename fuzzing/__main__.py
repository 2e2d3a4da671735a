"""Runs the fuzzers: ``python -m fuzzing --minutes 60``, or some of them, ``python -m fuzzing options texts``.

A failure is shown with its simplest case, and fuzzing continues from the next seed.
"""

import argparse
import sys
import time
import traceback

from fuzzing.target import Target, fuzz
from fuzzing.targets import TARGETS


def main() -> int:
    """Runs every target for its share of the time, prints the number of cases, and returns the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; else all")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=0, help="the first; a failure names its own")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}; choose from {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in chosen.targets or TARGETS]
    return sum(fuzz_on(target, chosen.minutes * 60 / len(targets), chosen.seed) for target in targets)


def fuzz_on(target: Target, seconds: float, seed: int) -> int:
    """Fuzzes a target for its time, past any failure, and returns the number of failures."""
    end, cases, failures = time.monotonic() + seconds, 0, 0
    while (seconds_left := end - time.monotonic()) > 0:
        tried, seed, failure = fuzz(target, seconds_left, seed)
        cases += tried
        if failure is not None:
            failures += 1
            print(f"{target.name}, seed {seed - 1}:", file=sys.stderr)
            traceback.print_exception(failure)
    print(f"{target.name:12} {cases:8} cases, {failures} failures", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(min(main(), 100))
