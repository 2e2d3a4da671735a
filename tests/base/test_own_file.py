"""Functions of a user's file: run once, with what lies beside it; what is not there is one line, its errors its own."""

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.own_file import call_own, is_own_file, own_function, own_traceback

SOURCE = """\
from beside import VALUE
from dataclasses import dataclass
print("the file runs")
limit = 3


@dataclass
class Given:
    number: "int" = VALUE


def build():
    print("it builds")
    return Given()


def fails():
    return inner()


def inner():
    raise RuntimeError("my own")
"""


@pytest.fixture
def mine(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a second one beside it."""
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("attnviz.base.own_file._modules", {})
    (in_folder / "beside.py").write_text("VALUE = 7\n")
    path = in_folder / "mine.py"
    path.write_text(SOURCE)
    yield path
    sys.modules.pop("beside", None)


def test_a_file_runs_once_and_prints_beside_the_result(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = own_function("model", "mine.py:build")
    assert call_own(build).number == 7
    assert own_function("metric", str(mine) + ":build") is build
    assert capsys.readouterr() == ("", "the file runs\nit builds\n")
    assert sys.path.index(str(mine.parent)) == len(sys.path) - 1  # beside.py takes no library's place


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("mime.py:build", "there is no file 'mime.py'; did you mean mine.py"),
        (
            "mine.py:biuld",
            "'mine.py' has no function 'biuld'; did you mean build[?] Choose Given, build, fails or inner",
        ),
        ("mine.py:limit", "'limit' of 'mine.py' is of type int; give a function"),
        ("mine.py", "model='mine.py' names no function of a Python file; write model='mine.py:FUNCTION'"),
        ("mine.py:", "write model='mine.py:FUNCTION'"),
        ("mine.txt:build", "names no function of a Python file"),
        ("folder.py:build", "'folder.py' is a folder; give a Python file"),
    ],
)
def test_what_is_not_there_is_one_line(mine: Path, address: str, match: str) -> None:
    Path("folder.py").mkdir()
    with pytest.raises(AttnvizError, match=match):
        own_function("model", address)


def test_a_traceback_begins_in_the_users_file(mine: Path) -> None:
    fails = own_function("model", "mine.py:fails")
    with pytest.raises(RuntimeError) as caught:
        call_own(fails)
    lines = own_traceback(caught.value)
    assert lines is not None
    assert [line.strip().split(", ")[1:] for line in lines.splitlines() if line.startswith("  File")] == [
        ["line 18", "in fails"],
        ["line 22", "in inner"],
    ]
    assert lines.endswith("RuntimeError: my own\n")
    assert "own_file" in "".join(traceback.format_exception(caught.value))


def test_a_syntax_error_shows_its_line(mine: Path) -> None:
    mine.write_text("def build():\n    return (\n")
    with pytest.raises(SyntaxError) as caught:
        own_function("model", "mine.py:build")
    lines = own_traceback(caught.value)
    assert lines is not None
    assert f'File "{mine}", line 2' in lines
    assert "attnviz" not in lines.replace(str(mine), "")


def test_an_error_of_ours_has_no_traceback_of_the_user(mine: Path) -> None:
    own_function("model", "mine.py:build")
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    assert own_traceback(caught.value) is None


@pytest.mark.parametrize(
    ("value", "is_own"),
    [
        ("mine.py:build", True),
        ("a/b.py:build", True),
        ("mine.py", True),
        ("bert-base", False),
        ("org/model.pyx", False),
    ],
)
def test_what_has_the_form_of_a_function_of_a_file(value: str, is_own: bool) -> None:
    assert is_own_file(value) == is_own
