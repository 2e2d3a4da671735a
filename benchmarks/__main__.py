"""Runs a benchmark by its name: ``python -m benchmarks startup``."""

import sys
from importlib import import_module
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "__main__"))


def main() -> None:
    """Runs the named benchmarks, or says which there are."""
    runnable = [name for name in NAMES if name != "timing"]
    names = sys.argv[1:]
    if not names or not set(names) <= set(runnable):
        sys.exit(f"usage: python -m benchmarks NAME; there are {', '.join(runnable)}")
    for name in names:
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
