"""The wheel and the sdist: complete without the checkout, and with what a distribution must say of itself."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from attnviz.version import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def run(*command: str, folder: Path, **environment: str) -> str:
    """What a command prints; raises if it fails."""
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the checkout, and the wheel that was made from the sdist alone."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), folder=ROOT)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "source", filter="data")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), folder=next((folder / "source").iterdir()))
    return folder


@pytest.mark.parametrize(
    ("address", "made"),
    [
        (
            "https://host/o/a",
            "![A [CLS] map](https://host/o/a/raw/main/docs/a.png) [one](https://host/o/a/blob/main/b.md#c)",
        ),
        ("", "*A [CLS] map* one"),
    ],
)
def test_the_readme_of_an_index_has_no_relative_link(address: str, made: str) -> None:
    pytest.importorskip("hatchling")
    from hatch_build import readme_of_index

    assert readme_of_index("![A [CLS] map](docs/a.png) [one](b.md#c)", address) == made
    assert readme_of_index("[web](https://x.y) [part](#z)", address) == "[web](https://x.y) [part](#z)"


def test_the_metadata_have_the_readme_without_relative_links(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("METADATA"))).decode()
    assert "Description-Content-Type: text/markdown" in metadata
    assert "# attnviz" in metadata
    assert "](docs/" not in metadata


def test_the_wheel_of_the_sdist_runs_without_the_checkout(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    place = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"}
    where = run("-c", "import attnviz; print(attnviz.__file__)", folder=tmp_path, **place)
    assert Path(where.strip()).is_relative_to(tmp_path / "site")
    drawn = run("-m", "attnviz", "show", "sample:repeat", "--model", "trained", folder=tmp_path, **place)
    assert "induction" in drawn
    show = ("-m", "attnviz", "show", "a b", "--model", "trained", "-o", "view.html", "--force")
    run(*show, folder=tmp_path, **place)
    page = (tmp_path / "view.html").read_bytes()
    run(*show, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert page == (tmp_path / "view.html").read_bytes()


def test_the_wheel_holds_the_package_alone_and_says_what_it_needs(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        bill = json.loads(
            wheel.read(next(name for name in names if name.endswith(".dist-info/sboms/attnviz.cdx.json")))
        )
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    made = f"attnviz-{__version__}"
    assert {name.partition("/")[0] for name in names} == {"attnviz", f"{made}.dist-info", f"{made}.data"}
    assert f"{made}.data/data/share/man/man1/attnviz.1" in names
    assert bill["metadata"]["component"]["version"] == __version__
    required = {each["name"] for each in bill["components"] if each["scope"] == "required"}
    assert all(f"Requires-Dist: {name}" in metadata for name in required)
    assert {"torch", "numpy", "safetensors"} <= required
    optional = {each["name"] for each in bill["components"] if each["scope"] == "optional"}
    assert {"transformers", "gguf", "textual", "soundfile", "python-pptx"} <= optional
    assert not optional & {"pytest", "hatchling", "bertviz"}
    assert f"Version: {__version__}\n" in metadata


def test_the_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    assert citation["version"] == __version__
    assert f"version = {{{__version__}}}" in (ROOT / "docs" / "project.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*(ROOT / ".github").rglob("*.yml")], ids=lambda path: path.name)
def test_forms_and_workflows_are_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)
