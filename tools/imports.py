"""Reads the imports between packages, for tests and for a picture: ``python -m tools.imports`` draws it."""

import ast
import math
import re
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "build" / "imports.svg"
# A package imports only packages before it.
PACKAGES = """
version base media text attention streaming maps arrays metrics capture effects models corpus battery report render api
explain browse cli __init__ __main__
""".split()
# A subpackage imports only those before it; files that lie directly in the package come last.
SUBPACKAGES = {
    "capture": ["flow", "calls", "assembly", "hooks"],
    "browse": ["session", "actions", "view", "process", "survey"],
    "report": ["picture", "words", "heads", "maps", "survey"],
    "models": ["reading", "places", "huggingface"],
    "render": ["terminal", "figure", "page"],
}

CELL, LABELS, TOP = 36, 190, 110  # pixels: of a cell's side, of the column of names, of the row of names
PAPER, INK, FAINT, HATCHED, ODD = "#ffffff", "#1f2933", "#8895a3", "#eef1f4", "#d9822b"


MODULES = {  # by dotted name: ``attnviz.maps.cell_maps``, or ``attnviz.maps`` for ``__init__.py``
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "attnviz").rglob("*.py"))
}


@cache
def tree_of(module: str) -> ast.Module:
    """Returns the syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported_names(node: ast.AST) -> list[str]:
    """Returns the dotted names that a syntax node may import, as a statement or as a string."""
    if isinstance(node, ast.ImportFrom):
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("attnviz."):
        return [node.value.partition(":")[0]] if re.fullmatch(r"attnviz(\.\w+)+(:\w+)?", node.value) else []
    return []


@cache
def imports_of(module: str) -> set[str]:
    """Returns the modules of the package that a module imports: also in functions, for types only, or by a string."""
    names = {name for node in ast.walk(tree_of(module)) for name in imported_names(node)}
    return names & set(MODULES) - {module, "attnviz"}


def package_of(module: str) -> str:
    """Returns the package of a module; a module directly in ``attnviz/`` counts as one of its own."""
    return (*module.split("."), "__init__")[1]


def subpackage_index(module: str) -> int:
    """Returns the index of a module's subpackage in its package; the last index for a file directly in the package."""
    package, inner = (*module.split("."), "", "")[1:3]
    packages = SUBPACKAGES.get(package, [])
    return packages.index(inner) if inner in packages else len(packages)


def imports_between_packages() -> Counter[tuple[str, str]]:
    """Returns the number of imports from files of one package to files of another, by pair of packages."""
    pairs = ((package_of(module), package_of(name)) for module in MODULES for name in imports_of(module))
    return Counter(pair for pair in pairs if pair[0] != pair[1])


def draw() -> str:
    """Returns the picture as SVG: a row and a column for each package, and the number of imports in each cell."""
    packages = [package for package in PACKAGES if not package.startswith("__")]
    counts, files = imports_between_packages(), Counter(map(package_of, MODULES))
    width, height = LABELS + CELL * len(packages) + 20, TOP + CELL * len(packages) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="13" fill="{INK}">',
        "<title>The packages of attnviz: each row imports only packages before it</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        *(_name(package, index, files[package]) for index, package in enumerate(packages)),
        *(
            _cell(packages.index(row_package), packages.index(column_package), counts[row_package, column_package])
            for row_package, column_package in product(packages, packages)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _name(package: str, index: int, files: int) -> str:
    """Returns the labels of a package: its name and number of files at its row, and its name over its column."""
    center_of_row, center = TOP + CELL * (index + 0.5), LABELS + CELL * (index + 0.5)
    noun = "file" if files == 1 else "files"
    return (
        f'<text x="14" y="{center_of_row + 5:g}" font-weight="bold">{escape(package)}</text>'
        f'<text x="{LABELS - 14}" y="{center_of_row + 5:g}" text-anchor="end" fill="{FAINT}">{files} {noun}</text>'
        f'<text transform="translate({center + 4:g} {TOP - 10}) rotate(-50)">{escape(package)}</text>'
    )


def _cell(row: int, column: int, count: int) -> str:
    """Returns a cell: darker for more imports, grey where imports are forbidden, orange if they exist there."""
    x, y = LABELS + CELL * column, TOP + CELL * row
    shade = min(1, math.log2(1 + count) / 7)
    fill = (
        HATCHED
        if column >= row
        else "rgb({:.0f},{:.0f},{:.0f})".format(*(255 - shade * part for part in (215, 140, 70)))
    )
    fill = ODD if count and column >= row else fill
    text_color = PAPER if shade > 0.55 or fill == ODD else INK
    square = f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" fill="{fill}"/>'
    if not count:
        return square
    return (
        square
        + f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 5:g}" text-anchor="middle" fill="{text_color}">{count}</text>'
    )


def main() -> None:
    """Writes the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
