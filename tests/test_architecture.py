"""A package imports only packages before it, no circle of files, and heavy libraries stay where they belong."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.imports import (
    MODULES,
    PACKAGES,
    ROOT,
    SUBPACKAGES,
    imported_names,
    imports_of,
    package_of,
    subpackage_index,
    tree_of,
)

HEAVY = ("torch", "matplotlib", "transformers", "textual", "tokenizers", "pptx")


def test_a_package_imports_only_packages_before_it() -> None:
    pairs = [(module, name) for module in MODULES for name in imports_of(module)]
    assert [pair for pair in pairs if PACKAGES.index(package_of(pair[1])) > PACKAGES.index(package_of(pair[0]))] == []


def test_a_subpackage_imports_only_subpackages_before_it() -> None:
    pairs = (
        (module, name) for module in MODULES for name in imports_of(module) if package_of(module) == package_of(name)
    )
    assert [pair for pair in pairs if subpackage_index(pair[1]) > subpackage_index(pair[0])] == []


def test_every_folder_of_a_package_has_its_place_in_the_order() -> None:
    folders: dict[str, set[str]] = {}
    for path in (ROOT / "attnviz").glob("*/*/__init__.py"):
        package, inner = path.parts[-3:-1]
        folders.setdefault(package, set()).add(inner)
    assert folders == {package: set(inner) for package, inner in SUBPACKAGES.items()}


def test_no_files_import_each_other_in_a_circle() -> None:
    graphlib.TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()  # raises CycleError


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_no_test_file_imports_another() -> None:
    files = sorted(Path(__file__).parent.rglob("*.py"))
    imports = {(file.name, name) for file in files for node in ast.walk(_parsed(file)) for name in imported_names(node)}
    assert {pair for pair in imports if re.match(r"tests\.(.*\.)?test_", pair[1])} == set()


def _parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def test_first_sentence_says_what_the_module_is_for() -> None:
    docstrings = {module: ast.get_docstring(tree_of(module)) or "" for module in MODULES if module != "attnviz.version"}
    first_lines = {module: docstring.partition("\n")[0] for module, docstring in docstrings.items()}
    assert {module: line for module, line in first_lines.items() if not line.endswith((".", ",", ";"))} == {}


LIGHT_LINES = (
    "--help", "--version", "show --help", "info samples", "show Life --set embed-dim=30 --set num-heads=4",
    "show Life --heads 9", "show Life --layers 3", "show Life --queries 7:9", "show ' '", "show --file gone.txt",
    "show Life -o x.gif", "show Life --theme pink", "compare Life",
)  # fmt: skip


def test_nothing_heavy_is_imported_where_no_model_is_needed() -> None:
    code = (
        "import shlex, sys; from attnviz.cli.commands import main\n"
        f"for line in {LIGHT_LINES}:\n"
        "    main(shlex.split(line))\n"
        f"    print('\\nHEAVY', line, *[name for name in {HEAVY[:-2] + HEAVY[-1:]} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [line for line in result.stdout.splitlines() if line.startswith("HEAVY")]
    assert found == [f"HEAVY {line}" for line in LIGHT_LINES]


def test_packages_that_a_first_picture_does_not_need_are_not_imported() -> None:
    code = (
        "import sys; from attnviz.cli.commands import main; main(sys.argv[1:]);"
        "print('PACKAGES', *sorted({name.split('.')[1] for name in sys.modules if name.startswith('attnviz.')}))"
    )
    command = [sys.executable, "-c", code, "show", "Life is short"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    packages = result.stdout.splitlines()[-1].split()
    assert packages[0] == "PACKAGES"
    assert not set(packages) & {"metrics", "capture", "corpus", "effects", "battery", "explain", "browse"}


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import attnviz; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in result.stdout.split()} & {*HEAVY, "numpy", "typer"}


@pytest.mark.parametrize(
    ("heading", "lines"),
    [
        ("One call through capture", 16),
        ("One picture, from the command line to the bytes", 21),
        ("Heads removed, from the command line to the list", 11),
    ],
)
def test_page_quotes_the_lines_of_the_functions_that_it_names(heading: str, lines: int) -> None:
    page = (ROOT / "docs/architecture-walks.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    quoted_lines = 0
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        source = ""
        for line in block.splitlines():
            if line.startswith("# "):
                path, name = line.removeprefix("# ").split(", ")
                source = source_of(ROOT / "attnviz" / path, name)
            else:
                quoted_lines += 1
                assert line in map(str.strip, source.splitlines()), f"{line} is no line of {name} in {path}"
    assert quoted_lines == lines


def source_of(path: Path, name: str) -> str:
    """The source of a function, or of a method by its class and its own name."""
    text = path.read_text()
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        members = (child for child in ast.iter_child_nodes(node) if getattr(child, "name", "") == part)
        node = next(members)
    source = ast.get_source_segment(text, node)
    assert source is not None
    return source
