"""Changes the package at random places, and says which changes no test of the same room notices.

``python -m tools.mutations --room metrics --room maps --count 48 --seed 0`` draws comparisons, operators, constants and
branches. Each change is tried in a copy of the checkout: first by the tests of its file, then by those of its room.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 600  # for the tests of a room: a change that makes them hang is noticed
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
    for node in ast.walk(ast.parse(source)):
        changed = _changed_node(node)
        if changed is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        before = ast.get_source_segment(source, node)
        assert before is not None
        after = f"({ast.unparse(changed)})"
        yield Mutation(path, node.lineno, node.col_offset, node.end_col_offset, before, after)  # type: ignore[attr-defined]


def _changed_node(node: ast.AST) -> ast.AST | None:
    """Returns an expression with another comparison, operator, constant or branch; ``None`` for other nodes."""
    changed = deepcopy(node)
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


def drawn_mutations(rooms: list[str], count: int, seed: int) -> list[Mutation]:
    """Returns random changes of files of some rooms; each possible change is equally likely.

    Args:
        rooms: folders of the package.
        count: how many changes.
        seed: of the draw.
    """
    paths = sorted(path for room in rooms for path in (ROOT / "attnviz" / room).rglob("*.py"))
    all_mutations = [
        mutation
        for path in paths
        for mutation in mutations_of(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(all_mutations, min(count, len(all_mutations)))


def failing_tests(mutation: Mutation, copy: Path) -> str | None:
    """Returns the tests that fail with a change, those of its file or else of its room; ``None`` if none does."""
    path, room = copy / mutation.path, mutation.path.parts[1]
    source = path.read_text(encoding="utf-8")
    test_file = Path("tests", *mutation.path.parts[1:-1], f"test_{mutation.path.name}")
    path.write_text(mutation.apply(source), encoding="utf-8")
    try:
        tests = [path_of_tests for path_of_tests in (test_file, Path("tests", room)) if (copy / path_of_tests).exists()]
        return next((str(path_of_tests) for path_of_tests in tests if not _passes(path_of_tests, copy)), None)
    finally:
        path.write_text(source, encoding="utf-8")


def _passes(tests: Path, copy: Path) -> bool:
    """True if tests pass in a copy of the checkout within ``SECONDS``."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", "not slow", str(tests)]
    try:
        return subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Prints each change with the tests that notice it, and the number of changes that are noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", action="append", required=True, help="a folder of attnviz/; may be repeated")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    mutations = drawn_mutations(arguments.room, arguments.count, arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "node_modules", "build"))
        unnoticed = 0
        for mutation in mutations:
            tests = failing_tests(mutation, copy)
            unnoticed += tests is None
            print(f"{tests or 'NOT NOTICED'}  {mutation}", flush=True)
    print(f"{len(mutations) - unnoticed} of {len(mutations)} changes are noticed by the tests of their room")


if __name__ == "__main__":
    main()
