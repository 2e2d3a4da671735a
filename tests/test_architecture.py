"""The house: a room imports only rooms before it, no circle of files, and heavy libraries stay where they belong."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "attnviz").rglob("*.py"))
ROOMS = """
version base text attention streaming maps metrics capture models report render api explain browse cli __init__ __main__
""".split()
ALLOWED = {
    ("attnviz.maps.recording", "attnviz.api"),  # a recording draws itself, in a notebook and by name
}
HEAVY = ("torch", "matplotlib", "transformers", "textual", "tokenizers", "pptx")


def module_of(path: Path) -> str:
    """The dotted name of a file: ``attnviz.maps.dense``, or ``attnviz.maps`` for the folder's own."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


def imported(module: str) -> Iterator[str]:
    """The modules of attnviz that a file imports anywhere: lazily, for types alone, and by a name in a string."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"attnviz(\.\w+)+(:\w+)?", str(node.value)):
            names = [str(node.value).partition(":")[0]]
        yield from (name for name in names if name in MODULES and name not in (module, "attnviz"))


def room_of(module: str) -> str:
    return (*module.split("."), "__init__")[1]


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_rooms_before_it(module: str) -> None:
    order = {room: place for place, room in enumerate(ROOMS)}
    later = {name for name in imported(module) if order[room_of(name)] > order[room_of(module)]}
    assert {name for name in later if (module, name) not in ALLOWED} == set()


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {module: {name for name in imported(module) if (module, name) not in ALLOWED} for module in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("module", MODULES)
def test_first_sentence_says_what_the_module_is_for(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    assert docstring or module == "attnviz.version"
    assert (docstring or ".").split("\n")[0].endswith((".", ",", ";"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["show", "--help"],
        ["samples"],
        ["show", "Life", "--embed-dim", "30", "--num-heads", "4"],
        ["show", "Life", "--heads", "9"],
        ["show", "Life", "--layers", "3"],
        ["show", "Life", "--queries", "7:9"],
        ["show", " "],
        ["show", "--file", "no-such-file.txt"],
        ["show", "Life", "-o", "x.gif"],
        ["show", "Life", "--theme", "pink"],
        ["compare", "Life"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_where_no_model_is_needed(arguments: list[str]) -> None:
    code = (
        "import sys; from attnviz.cli.commands import main; main(sys.argv[1:]);"
        f"print('HEAVY', *[name for name in {HEAVY[:-2] + HEAVY[-1:]} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "HEAVY"


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import attnviz; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in result.stdout.split()} & {*HEAVY, "numpy", "typer"}
