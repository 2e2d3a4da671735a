"""A pattern finds the files that the standard library's finds, and ends whatever the folders are."""

import os
from glob import glob
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import matching_files

FILES = "a.txt b.txt c.md sub/d.txt sub/deep/e.txt sub/.hidden.txt .dots/f.txt odd[1]/g.txt two/deep/h.txt".split()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.txt", "**/*.txt", "**", "**/deep/*", "sub/**", "*/*.txt", "./*.txt", "[ab].txt", "[!a].txt", "?.md"),
        *("sub/.*.txt", ".*/*", "odd[[]1]/*", "**/**/e.txt", "nowhere/*", "a.txt", "a.txt/*", "**/deep/**", ""),
        *("sub/../*.txt", "s*/**/e.txt"),
    ],
)
@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_pattern_finds_what_the_standard_library_finds(tree: Path, pattern: str, is_absolute: bool) -> None:
    whole_pattern = f"{tree}/{pattern}" if is_absolute else pattern
    expected = {Path(name) for name in glob(whole_pattern, recursive=True) if Path(name).is_file()}
    assert matching_files(whole_pattern, 100, "it") == sorted(expected)


def test_folders_that_link_to_themselves_are_read_once(tree: Path) -> None:
    for name in ("x", "y"):
        os.symlink(".", tree / "sub" / name)
        os.symlink("..", tree / "sub" / "deep" / name)
    files = matching_files("sub/**/*.txt", 100, "it")
    assert {os.path.realpath(file) for file in files} >= {str(tree / "sub/d.txt"), str(tree / "sub/deep/e.txt")}
    assert len(files) <= len(FILES)


def test_counts_are_compared_before_they_grow(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert matching_files("**/" * 2000 + "a.txt", 1, "it") == [Path("a.txt")]
    with pytest.raises(AttnvizError, match="it matches more than 2 files; give a pattern that matches fewer"):
        matching_files("**/*.txt", 2, "it")
    with pytest.raises(AttnvizError, match="it has more than 100 folders; give a shorter pattern"):
        matching_files("*/" * 101, 2, "it")
    monkeypatch.setattr("attnviz.base.reading.MAX_ENTRIES", 3)
    with pytest.raises(AttnvizError, match="it leads through more than 3 files; give a narrower pattern"):
        matching_files("**/*.txt", 100, "it")
