"""Checks the working tree as CI does: ``python -m tools.check``, or some of it: ``python -m tools.check lint types``.

``fast`` runs only the tests that are not marked slow, ``settings`` runs tests as other machines would.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = [sys.executable, "-m"]
NPM = ["npm", "--silent", "--prefix", "tools/page"]
CHECKS = {
    "format": [[*PYTHON, "ruff", "format", "--check", "."]],
    "lint": [[*PYTHON, "ruff", "check", "."]],
    "types": [[*PYTHON, "mypy"]],
    "page": [
        [*NPM, "ci"],
        [*NPM, "run", "check"],
        [*NPM, "test"],
    ],  # the page's scripts: their types, and without a browser
    "docs": [[*PYTHON, "tools.docs"]],
    "tests": [[*PYTHON, "pytest", "-q"]],
    "fast": [[*PYTHON, "pytest", "-q", "-m", "not slow"]],
    "settings": [[*PYTHON, "tools.settings"]],
}
DEFAULT = [name for name in CHECKS if name not in ("fast", "settings")]


def main() -> int:
    """Runs the named checks, or the default ones, prints which failed, and returns the number of failures."""
    names = sys.argv[1:] or DEFAULT
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        sys.exit(f"unknown check {unknown[0]!r}; choose from {', '.join(CHECKS)}")
    failed = [name for name in names if not all(map(passes, CHECKS[name]))]
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(names)}")
    return len(failed)


def passes(command: list[str]) -> bool:
    """Runs a command in the checkout; True if it succeeds.

    True also if the program is not installed, which is printed.
    """
    if shutil.which(command[0]) is None:
        print(f"left out, as {command[0]} is not installed: {' '.join(command)}", file=sys.stderr)
        return True
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
