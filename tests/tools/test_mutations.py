"""The changes that try the tests."""

import ast
from pathlib import Path

import pytest

from tools import mutations
from tools.mutations import (
    ROOT,
    Mutation,
    calling_tests,
    drawn_mutations,
    line_of_function,
    mutations_of,
    unnoticed_in_package,
    unnoticed_mutations,
)

PATH = Path("attnviz/a.py")


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b", "(a <= b)"),
        ("a is None", "(a is not None)"),
        ("a + b", "(a - b)"),
        ("a and b", "(a or b)"),
        ("a if b else c", "(c if b else a)"),
        ("f(True)", "f((False))"),
        ("f('é', 3)", "f('é', (4))"),
    ],
)
def test_an_expression_is_changed_in_its_place(source: str, changed: str) -> None:
    [mutation] = mutations_of(PATH, source)
    assert mutation.apply(source) == changed


def test_text_is_left_as_it_is() -> None:
    assert list(mutations_of(PATH, "'a' + b")) == []


def test_a_draw_is_that_of_its_seed_and_every_change_can_be_parsed() -> None:
    some = drawn_mutations(["metrics", "maps"], 40, 3)
    assert some == drawn_mutations(["metrics", "maps"], 40, 3) != drawn_mutations(["metrics", "maps"], 40, 4)
    assert {mutation.path.parts[1] for mutation in some} == {"metrics", "maps"}
    for mutation in some:
        source = mutation.path.read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutation.apply(source))) != ast.dump(ast.parse(source))


def test_changes_that_no_test_noticed_are_tried_again_at_the_nearest_line(capsys: pytest.CaptureFixture[str]) -> None:
    today = list(mutations_of(PATH, "x = 1\n\n\n\ny = 1\nz = 2\n"))
    log = "NOT NOTICED  attnviz/a.py:4: 1  ->  (2)\ntests/test_a.py  attnviz/a.py:6: 2  ->  (3)\n"
    assert [str(mutation) for mutation in unnoticed_mutations(log, today)] == ["attnviz/a.py:5: 1  ->  (2)"]
    assert unnoticed_mutations(f"{log}{log}", today) == [today[1], today[0]]
    assert unnoticed_mutations(log.replace(": 1 ", ": 7 "), today) == []
    assert capsys.readouterr().out == "not there any more: attnviz/a.py:4: 7  ->  (2)\n"


def test_slow_tests_try_a_change_that_no_other_test_notices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing_tests(mutation: Mutation, copy: Path, functions: object, excluded: object, mark: str) -> str | None:
        return {("1", "not slow"): "tests/quick", ("2", "slow"): "tests/slow"}.get((mutation.before, mark))

    def calling_tests(tests: str, copy: Path, results: Path, mark: str) -> tuple[dict[str, list[str]], list[str]]:
        observed.append(mark)
        return {}, []

    observed: list[str] = []
    monkeypatch.setattr(mutations, "calling_tests", calling_tests)
    monkeypatch.setattr(mutations, "failing_tests", failing_tests)
    changes = list(mutations_of(Path("attnviz/maps/a.py"), "x = 1\ny = 2\nz = 3\nx = 1\n"))
    assert unnoticed_in_package("maps", changes, tmp_path) == 1
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "tests/quick",
        "tests/slow",
        "NOT NOTICED",
        "tests/quick",
        "maps: 3 of 4 are noticed",
    ]
    assert observed == ["not slow", "slow"]


def test_the_function_of_a_line_is_the_innermost_one_with_its_decorators() -> None:
    source = "a = 1\n\n@cache\n@other\ndef outer():\n    def inner():\n        return 1\n    return inner\n"
    assert [line_of_function(source, line) for line in range(1, 9)] == [0, 0, 3, 3, 3, 6, 6, 3]


@pytest.mark.slow
def test_tests_that_hypothesis_runs_are_among_those_that_call_a_function(tmp_path: Path) -> None:
    path = Path("attnviz/text/tokens.py")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    test = "tests/text/test_tokens.py::test_characters_joined_are_the_text"
    tests, failed_tests = calling_tests(test, ROOT, tmp_path / "called.json", "not slow")
    assert not failed_tests
    line = next(number for number, text in enumerate(lines, 1) if text.startswith("def tokenize("))
    assert tests[f"{path}:{line}"] == [test]


@pytest.mark.slow
def test_tests_that_fail_without_a_change_notice_none(tmp_path: Path) -> None:
    path = tmp_path / "test_failing.py"
    path.write_text("from attnviz.text.tokens import tokenize\n\n\ndef test_it():\n    assert not tokenize('a b')\n")
    tests, failed_tests = calling_tests(str(path), ROOT, tmp_path / "called.json", "not slow")
    assert [test.rpartition("::")[2] for test in failed_tests] == ["test_it"]
    assert not any(tests.values())
