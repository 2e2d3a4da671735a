"""Changes a package at random places, and says which changes none of its tests notices.

``python -m tools.mutations --package metrics --package maps --count 48 --seed 0`` draws comparisons, operators,
constants and branches. Each change is tried in a copy of the checkout by the tests that call the changed function,
those of its file before others. All tests of its package try a change that no function or no called function contains.
Slow tests run only where no other test notices a change.

``python -m tools.mutations --package metrics --again LOG`` tries the changes again that no test noticed in an earlier
run, whose output LOG is.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.called_functions import VARIABLE

ROOT = Path(__file__).parents[1]
SECONDS = 1200  # for the tests of a change: one that makes them hang is noticed
MARKS = ("not slow", "slow")  # the tests that try a change, in this order
UNNOTICED = "NOT NOTICED"
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@dataclass(frozen=True)
class Mutation:
    """A change of one expression.

    Attributes:
        path: the file, from the root of the checkout.
        line: the line, from 1, and ``start`` and ``stop`` in bytes of it.
        start: see ``line``.
        stop: see ``line``.
        before: the expression.
        after: the expression in its place.
    """

    path: Path
    line: int
    start: int
    stop: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        """Returns a source with the change."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.after.encode() + line[self.stop :]).decode()
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def mutations_of(path: Path, source: str) -> Iterator[Mutation]:
    """Yields every change that can be drawn in a file.

    Args:
        path: of the file, for the changes.
        source: its text.
    """
    lines = [line.encode() for line in source.splitlines()]
    for node in ast.walk(ast.parse(source)):
        changed = _changed_node(node)
        if changed is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        line, start, stop = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        yield Mutation(path, line, start, stop, lines[line - 1][start:stop].decode(), f"({ast.unparse(changed)})")


def _changed_node(node: ast.AST) -> ast.AST | None:
    """Returns an expression with another comparison, operator, constant or branch; ``None`` for other nodes."""
    changed = copy(node)  # whose fields are replaced, never changed
    match changed:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            changed.ops = [COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in OPERATORS and not _is_text(changed):
            changed.op = OPERATORS[type(operator)]()
        case ast.BoolOp(op=operator):
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.Constant(value=bool(value)):
            changed.value = not value
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            changed.value = value + 1
        case ast.IfExp():
            changed.body, changed.orelse = changed.orelse, changed.body
        case _:
            return None
    return changed


def _is_text(node: ast.BinOp) -> bool:
    """True if a sum is of texts: a change of it is a type error, which mypy notices."""
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in ast.walk(node)
    )


def drawn_mutations(packages: list[str], count: int, seed: int) -> list[Mutation]:
    """Returns random changes of files of some packages; each possible change is equally likely.

    Args:
        packages: folders of attnviz/.
        count: how many changes.
        seed: of the draw.
    """
    mutations = all_mutations(packages)
    return random.Random(seed).sample(mutations, min(count, len(mutations)))


def all_mutations(packages: list[str]) -> list[Mutation]:
    """Returns every change that can be drawn in some packages."""
    paths = sorted(path for package in packages for path in (ROOT / "attnviz" / package).rglob("*.py"))
    return [
        mutation
        for path in paths
        for mutation in mutations_of(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]


def unnoticed_mutations(log: str, mutations: list[Mutation]) -> list[Mutation]:
    """Returns the changes that no test noticed in an earlier run, and prints those that are not there any more.

    Args:
        log: the output of the run. Lines may have moved since: of equal changes of a file the nearest one is meant.
        mutations: all changes of today.
    """
    lines = [line.removeprefix(f"{UNNOTICED}  ") for line in log.splitlines() if line.startswith(UNNOTICED)]
    again: dict[Mutation, None] = {}
    for earlier in lines:
        path, line, change = earlier.split(":", 2)
        same = [mutation for mutation in mutations if str(mutation) == f"{path}:{mutation.line}:{change}"]
        same = [mutation for mutation in same if mutation not in again]  # two of one line look alike
        if same:
            again[min(same, key=lambda mutation: abs(mutation.line - int(line)))] = None
        else:
            print(f"not there any more: {earlier}", flush=True)
    return list(again)


def calling_tests(tests: str, copy: Path, results: Path, mark: str) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the tests that call each function, by ``file:line``, and the tests that fail; runs all of them once.

    A test that fails without a change, perhaps because it is observed, is not among those that call a function.

    Args:
        tests: a file or folder of tests, from the root of the checkout.
        copy: a copy of the checkout.
        results: a file that is written.
        mark: which tests, as pytest's ``-m``.
    """
    arguments = ["--maxfail", "0", "-p", "tools.called_functions", tests]
    _passes(arguments, copy, mark, {VARIABLE: str(results)}, seconds=None)
    observed = json.loads(results.read_text(encoding="utf-8"))
    return observed["tests_by_function"], observed["failed_tests"]


def failing_tests(
    mutation: Mutation, copy: Path, tests_by_function: Mapping[str, list[str]], excluded: list[str], mark: str
) -> str | None:
    """Returns the tests that fail with a change: of its file, function or package; ``None`` if none does.

    Tests that do not call the changed function cannot notice the change. So all tests of the package run only for a
    change outside of functions, or in a function that no test calls directly (a fixture of many tests may).

    Args:
        mutation: the change.
        copy: the copy of the checkout.
        tests_by_function: the tests that call each function, by ``file:line``.
        excluded: tests that fail without the change.
        mark: which tests, as pytest's ``-m``.
    """
    path = copy / mutation.path
    source = path.read_text(encoding="utf-8")
    test_file = str(Path("tests", *mutation.path.parts[1:-1], f"test_{mutation.path.name}"))
    tests = tests_by_function.get(f"{mutation.path}:{line_of_function(source, mutation.line)}", [])
    of_file = [test for test in tests if test.startswith(f"{test_file}::")]
    others = [test for test in tests if test not in of_file]
    path.write_text(mutation.apply(source), encoding="utf-8")
    try:
        groups = {test_file: of_file, "tests that call it": others}
        if not tests:
            deselected = [argument for test in excluded for argument in ("--deselect", test)]
            groups["its package"] = [*deselected, f"tests/{mutation.path.parts[1]}"]
        return next((name for name, group in groups.items() if group and not _passes(group, copy, mark)), None)
    finally:
        path.write_text(source, encoding="utf-8")


class PackageTests:
    """The tests of a package, each kind of which is observed once, before it tries its first change."""

    def __init__(self, package: str, copy: Path) -> None:
        self.package = package
        self.copy = copy
        self.observed: dict[str, tuple[dict[str, list[str]], list[str]]] = {}

    def failing(self, mutation: Mutation, mark: str) -> str | None:
        """Returns the tests with a mark that fail with a change; ``None`` if none does."""
        if mark not in self.observed:
            self.observed[mark] = calling_tests(f"tests/{self.package}", self.copy, self.copy / "called.json", mark)
            for test in self.observed[mark][1]:
                print(f"fails without a change, left out: {test}", flush=True)
        return failing_tests(mutation, self.copy, *self.observed[mark], mark)


def line_of_function(source: str, line: int) -> int:
    """Returns the first line of the innermost function that contains a line, with its decorators; 0 if none does."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    lines = [
        (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno or 0)
        for node in functions
    ]
    return max((first for first, last in lines if first <= line <= last), default=0)


def _passes(
    tests: list[str], copy: Path, mark: str, variables: Mapping[str, str] | None = None, seconds: float | None = SECONDS
) -> bool:
    """True if tests pass in a copy of the checkout within the time, or if none has the mark.

    Args:
        tests: files, folders or names of tests, after further options of pytest.
        copy: the copy.
        mark: which of the tests, as pytest's ``-m``.
        variables: further variables of the environment.
        seconds: the time; ``None`` for any.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", mark, *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
    try:
        result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return result.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> None:
    """Prints each change with the tests that notice it, and the number of changes that are noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", action="append", required=True, help="a folder of attnviz/; may be repeated")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--again", type=Path, metavar="LOG", help="the output of a run whose unnoticed changes are tried"
    )
    arguments = parser.parse_args()
    if arguments.again is None:
        mutations = drawn_mutations(arguments.package, arguments.count, arguments.seed)
    else:
        mutations = unnoticed_mutations(arguments.again.read_text(encoding="utf-8"), all_mutations(arguments.package))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "node_modules", "build"))
        unnoticed = sum(unnoticed_in_package(package, mutations, copy) for package in arguments.package)
    print(f"{len(mutations) - unnoticed} of {len(mutations)} changes are noticed by the tests of their package")


def unnoticed_in_package(package: str, mutations: list[Mutation], copy: Path) -> int:
    """Prints the changes of a package with the tests that notice each, and returns the number that no test notices.

    Args:
        package: a folder of attnviz/.
        mutations: changes, also of other packages, which are left out.
        copy: a copy of the checkout.
    """
    in_package = [mutation for mutation in mutations if mutation.path.parts[1] == package]
    if not in_package:
        return 0
    package_tests = PackageTests(package, copy)
    unnoticed = 0
    for mutation in in_package:
        tests = next(filter(None, (package_tests.failing(mutation, mark) for mark in MARKS)), None)
        unnoticed += tests is None
        print(f"{tests or UNNOTICED}  {mutation}", flush=True)
    print(f"{package}: {len(in_package) - unnoticed} of {len(in_package)} are noticed", flush=True)
    return unnoticed


if __name__ == "__main__":
    main()
