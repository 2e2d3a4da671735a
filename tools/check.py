"""Checks the working tree as CI does: ``python -m tools.check``, or some of it: ``python -m tools.check lint types``.

``fast`` stands for the tests that take no more than two seconds each.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "tests": ["pytest", "-q"],
    "fast": ["pytest", "-q", "-m", "not slow"],
}
USUAL = [name for name in CHECKS if name != "fast"]


def main() -> int:
    """Runs the checks, says which failed, and returns how many did."""
    wanted = sys.argv[1:] or USUAL
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        sys.exit(f"unknown check {unknown[0]!r}; {', '.join(CHECKS)} work")
    failed = [name for name in wanted if not passes(CHECKS[name])]
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(wanted)}")
    return len(failed)


def passes(command: list[str]) -> bool:
    """Runs a program of this environment; whether it ended well."""
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
