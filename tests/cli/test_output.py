import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from attnviz.base import progress
from attnviz.cli.commands import main
from attnviz.corpus.saved import save_survey
from tests.corpus.surveys import numbers_of, survey_of
from tests.streams import Streams


@pytest.mark.parametrize(("command", "suffix"), [("show", "svg"), ("show", "png"), ("heads", "csv"), ("explain", "md")])
def test_standard_output_takes_the_bytes_of_a_file(
    capsysbinary: pytest.CaptureFixture[bytes], in_folder: Path, command: str, suffix: str
) -> None:
    assert main((command, "a b", "-o", f"file.{suffix}")) == 0
    assert capsysbinary.readouterr().out == f"file.{suffix}\n".encode()
    assert main((command, "a b", "-o", f"-.{suffix}")) == 0
    assert capsysbinary.readouterr().out == Path(f"file.{suffix}").read_bytes()


def test_a_suffix_after_the_hyphen_is_the_format_on_standard_output(attnviz: Streams) -> None:
    assert attnviz.run("show", "a b", "-o", "-.JSON") == attnviz.run("show", "a b", "-o", "-.json")
    assert attnviz.out == attnviz.run("show", "a b", "--json")


def test_a_format_that_holds_no_table_is_refused_before_the_work(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.cli.runs.read_texts", None)
    refusal = attnviz.refused("heads", "a b", "-o", "-.npz")
    assert refusal.startswith("attnviz: this command does not write .npz; use .txt, .png")


def test_bytes_that_no_terminal_shows_are_kept_from_one(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "a terminal cannot show .png" in attnviz.refused("show", "a b", "-o", "-.png")
    assert attnviz.run("show", "a b", "-o", "-.svg").startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "-"), "names no format; use -o -.svg"),
        (("--json", "-o", "-.svg"), "both name the output"),
        (("--open",), "--open opens the file that -o writes; add -o page.html"),
        (("-o", "-.sgv"), "'.sgv'"),
    ],
)
def test_what_names_no_output_is_refused(attnviz: Streams, arguments: tuple[str, ...], message: str) -> None:
    assert message in attnviz.refused("show", "a b", *arguments)


def test_open_opens_the_file_when_it_is_written(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def launch(path: str) -> int:
        opened.append(path)
        return int(not Path(path).is_file())

    monkeypatch.setattr("typer.launch", launch)
    assert attnviz.run("show", "a b", "-o", "-x.html", "--open") == "-x.html\n"
    assert opened == [str(Path("-x.html").absolute())]
    assert attnviz.err == ""


@pytest.mark.parametrize(("terminal", "said"), [(True, "e\\x1b[31m.svg\n"), (False, "e\x1b[31m.svg\n")])
def test_the_name_of_what_is_written_is_obeyed_by_no_terminal(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch, terminal: bool, said: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    assert attnviz.run("show", "a b", "-o", "e\x1b[31m.svg") == said


def test_a_system_that_opens_nothing_is_a_remark(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.launch", lambda path: 1)
    attnviz.run("show", "a b", "-o", "x.svg", "--open")
    assert attnviz.err == "attnviz: no program here opens 'x.svg'; the file is written\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("show", "a b"), "attnviz show sample:repeat --model trained"),
        (("info", "samples"), "attnviz show sample:pronoun"),
    ],
)
def test_somebody_at_a_terminal_is_told_what_could_be_typed_next(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], says: str
) -> None:
    attnviz.run(*command)
    assert attnviz.err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    attnviz.run(*command)
    [line] = attnviz.err.splitlines()
    assert says in line
    assert len(line) <= 80
    attnviz.run("show", "a b", "-o", "picture.svg")
    assert attnviz.err == ""


@pytest.mark.parametrize("command", [("show",), ("compare", "--with", "z y x w v u t s r q p o n m l k")])
def test_a_pipe_gets_the_screen_of_a_terminal_and_a_file_everything(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    name, *more = command
    given = (name, "a b c d e f g h i j k l m n o p", *more, "--set", "num-heads=4")
    whole = attnviz.run(*given, "--all")
    monkeypatch.setenv("LINES", "32")
    piped = attnviz.run(*given)
    assert len(piped.splitlines()) < 32 < len(whole.splitlines())
    assert attnviz.run(*given, "--all") == whole
    attnviz.run(*given, "-o", "x.txt")
    assert len(Path("x.txt").read_text(encoding="utf-8").splitlines()) > 32


def test_words_json_of_a_text_holds_the_numbers_of_its_maps(tmp_path: Path) -> None:
    for name in ("words.json", "numbers.json"):
        assert main(["show", "a cat", "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "words.json").read_bytes() == (tmp_path / "numbers.json").read_bytes()


@pytest.mark.parametrize(
    ("line", "inner", "said"),
    [
        (["heads", "SURVEY", "-o", "OUT.svg"], "survey.tables.survey_frame", "reading the numbers of the survey"),
        (["show", "SURVEY", "-o", "OUT.svg"], "survey.tables.survey_frame", "reading the numbers of the survey"),
        (["compare", "SURVEY", "--with", "SURVEY"], "survey.tables.survey_changes", "comparing the surveys"),
        (["heads", "a b c"], "heads.head_atlas.measurable_heads", "measuring heads"),
        (["show", "a b c"], "maps.head_panels.head_panels", "drawing"),
        (["compare", "a b c", "--causal"], "maps.comparison.compare", "comparing"),
    ],
)
def test_a_slow_report_says_what_it_does(
    line: list[str], inner: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_survey(survey_of(numbers_of(5, 0), 0), tmp_path / "survey.safetensors")
    lines = list[str]()
    module, _, name = f"attnviz.report.{inner}".rpartition(".")
    function = getattr(importlib.import_module(module), name)

    def heard(*arguments: Any, **options: Any) -> Any:
        lines.extend(progress.active_lines)
        return function(*arguments, **options)

    monkeypatch.setattr(f"{module}.{name}", heard)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    places = {"SURVEY": str(tmp_path / "survey.safetensors"), "OUT.svg": str(tmp_path / "out.svg")}
    assert main([places.get(word, word) for word in line]) == 0
    assert set(lines) == {f"attnviz: {said} …"}
