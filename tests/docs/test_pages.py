"""The documents are true: every command and option that one names exists, and what one links to is there."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from attnviz.cli.commands import app, main

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
GENERATED = {"reference/command-line.md", "reference/python.md"}  # by tools.docs, whose build checks the links to them
KNOWN = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def commands(page: str) -> list[list[str]]:
    """The attnviz commands of the blocks of a page, each split into words."""
    blocks = re.findall(r"^```(\S*).*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    lines = [
        line.removeprefix("$ ")
        for kind, block in blocks
        if kind in ("console", "sh", "")
        for line in block.replace("\\\n", " ").splitlines()
        if re.search(r"^\$ attnviz " if kind == "console" else r"\battnviz [a-z-]", line)
    ]
    words = [shlex.split(line, comments=True) for line in lines]
    return [each[at + 1 :] for each in words for at, word in enumerate(each) if word == "attnviz"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_exists(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        assert words[0] in KNOWN or words[0].startswith("--"), words
        params = KNOWN.get(words[0], KNOWN["show"]).params
        options = {name for param in params for name in (*param.opts, *param.secondary_opts)}
        assert {word for word in words[1:] if re.match(r"--?[a-z]", word)} <= options, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = {link for link in links if not (page.parent / link).exists()}
    assert missing <= GENERATED


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_folder_that_the_page_on_vision_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    recipe = re.search(
        r"^```python\n(from transformers import ViTConfig.*?)^```",
        (ROOT / "docs" / "vision.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert recipe is not None
    monkeypatch.chdir(tmp_path)
    exec(recipe[1], {})  # the recipe of this repository
    photo = str(ROOT / "sample_pictures" / "digits.png")
    assert main(["show", photo, "--model", "./vit", "--heads", "11.3", "--query", "r3c7", "-o", "patch.png"]) == 0
    assert Path("patch.png").stat().st_size > 0
