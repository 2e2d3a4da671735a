"""The architecture: imports point down, and heavy libraries stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "attnviz"
# From the bottom up; a module may import those before it.
ORDER = """
version errors progress subnormal
tokens units landmarks selection masks bias colors look maps tiles devices
kernels streaming_factors streaming_indicators streaming_plan streaming_space streaming_head streaming
pooling maps_factored maps_pooled samples
grid rows metrics patterns heads reduce cells codes payload_factors payload tensors factored_file files projections
softmax attention factoring
panels report_options scales captions chosen styles report
words atlas combined steps worked teller composition explain_* explain compare source
figure_* terminal_*
capture_calls capture_sites capture_rules capture_factors capture_kept
capture_arguments capture_torch capture_transformers capture source_* render_*
training
render browse*
api
options
__init__
cli_output
cli_input
cli_record
cli_settings
cli
__main__
""".split()
HEAVY = ("torch", "matplotlib", "transformers", "textual", "tokenizers", "pptx")


def rank(module: str) -> int:
    prefixes = [name for name in ORDER if name.endswith("*") and module.startswith(name[:-1])]
    assert module in ORDER or prefixes, f"say in ORDER where {module} stands"
    return ORDER.index(module if module in ORDER else prefixes[0])


def imported(path: Path) -> set[str]:
    """The modules of attnviz that a file imports anywhere, those for types alone left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in for_types]
    return {str(node.module).partition(".")[2] or "__init__" for node in froms if str(node.module)[:7] == "attnviz"}


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_imports_point_down(path: Path) -> None:
    upward = {name for name in imported(path) if rank(name) > rank(path.stem)}
    assert not upward


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_first_sentence_says_what_the_module_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring
    assert docstring.split("\n")[0].endswith((".", ",", ";"))


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
