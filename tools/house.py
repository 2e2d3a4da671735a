"""Reads the rooms of the package from its imports, for the tests, a picture (``build/house.svg``) and counts.

``python -m tools.house`` draws and counts.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "build" / "house.svg"
# A room imports only rooms before it.
ROOMS = """
version base media text attention streaming maps arrays metrics capture effects models corpus battery report render api
explain browse cli __init__ __main__
""".split()
# A room inside a room imports only those before it; files that lie directly in the room come last.
INNER_ROOMS = {
    "capture": ["flow", "calls", "assembly", "hooks"],
    "browse": ["session", "moves", "view", "drawing", "process", "survey"],
    "report": ["picture", "words", "heads", "maps", "decoding", "survey"],
    "models": ["reading", "huggingface"],
    "corpus": ["sums", "texts", "measuring"],
}

CELL, LABELS, TOP = 36, 190, 110  # pixels: of a cell's side, of the column of names, of the row of names
PAPER, INK, FAINT, HATCHED, ODD = "#ffffff", "#1f2933", "#8895a3", "#eef1f4", "#d9822b"


def module_of(path: Path) -> str:
    """Returns the dotted name of a file: ``attnviz.maps.dense``, or ``attnviz.maps`` for ``__init__.py``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted((ROOT / "attnviz").rglob("*.py"))}


@cache
def tree_of(module: str) -> ast.Module:
    """Returns the syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def named_by(node: ast.AST) -> list[str]:
    """Returns the dotted names that a syntax node may import, in a statement or in a string."""
    if isinstance(node, ast.ImportFrom):
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Constant) and re.fullmatch(r"attnviz(\.\w+)+(:\w+)?", str(node.value)):
        return [str(node.value).partition(":")[0]]
    return []


def imported(module: str) -> set[str]:
    """Returns the modules of the package that a module imports: lazily, for types only, or by name in a string too."""
    names = {name for node in ast.walk(tree_of(module)) for name in named_by(node)}
    return names & set(MODULES) - {module, "attnviz"}


def room_of(module: str) -> str:
    """Returns the room of a module; a module directly in the package's folder is a room by itself."""
    return (*module.split("."), "__init__")[1]


def inner_place(module: str) -> int:
    """Returns the place of a module among the inner rooms of its room; files directly in the room come last."""
    room, inner = (*module.split("."), "", "")[1:3]
    rooms = INNER_ROOMS.get(room, [])
    return rooms.index(inner) if inner in rooms else len(rooms)


def arrows() -> Counter[tuple[str, str]]:
    """Returns the number of imports between files of two rooms, by the names of the rooms."""
    pairs = ((room_of(module), room_of(name)) for module in MODULES for name in imported(module))
    return Counter(pair for pair in pairs if pair[0] != pair[1])


def floors() -> int:
    """Returns the number of rooms on the longest path of imports."""
    below: dict[str, int] = {}
    for room in ROOMS:
        below[room] = 1 + max((below[two] for one, two in arrows() if one == room and two in below), default=0)
    return max(below.values())


def draw() -> str:
    """Returns the picture as SVG: a row and a column for each room, and in each cell the number of imports."""
    rooms = [room for room in ROOMS if not room.startswith("__")]
    counts, files = arrows(), Counter(map(room_of, MODULES))
    width, height = LABELS + CELL * len(rooms) + 20, TOP + CELL * len(rooms) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="13" fill="{INK}">',
        "<title>The rooms of attnviz: each row imports only rooms before it</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        *(_name(room, place, files[room]) for place, room in enumerate(rooms)),
        *(_cell(rooms.index(one), rooms.index(two), counts[one, two]) for one, two in product(rooms, rooms)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _name(room: str, place: int, files: int) -> str:
    """Returns the labels of a room: its name and number of files beside its row, its name over its column."""
    middle, across = TOP + CELL * (place + 0.5), LABELS + CELL * (place + 0.5)
    noun = "file" if files == 1 else "files"
    return (
        f'<text x="14" y="{middle + 5:g}" font-weight="bold">{escape(room)}</text>'
        f'<text x="{LABELS - 14}" y="{middle + 5:g}" text-anchor="end" fill="{FAINT}">{files} {noun}</text>'
        f'<text transform="translate({across + 4:g} {TOP - 10}) rotate(-50)">{escape(room)}</text>'
    )


def _cell(row: int, column: int, count: int) -> str:
    """Returns a cell: darker for more imports, grey where imports are forbidden, orange where there are some anyway."""
    x, y = LABELS + CELL * column, TOP + CELL * row
    shade = min(1, math.log2(1 + count) / 7)
    fill = (
        HATCHED
        if column >= row
        else "rgb({:.0f},{:.0f},{:.0f})".format(*(255 - shade * part for part in (215, 140, 70)))
    )
    fill = ODD if count and column >= row else fill
    ink = PAPER if shade > 0.55 or fill == ODD else INK
    square = f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" fill="{fill}"/>'
    if not count:
        return square
    return (
        square + f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 5:g}" text-anchor="middle" fill="{ink}">{count}</text>'
    )


def functions() -> Iterator[int]:
    """Yields the number of lines of every function and method."""
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def main() -> None:
    """Draws the picture and prints the counts."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values()]
    ninth = quantiles(functions(), n=10)[-1]
    print(f"{len(MODULES)} files, {sum(lengths)} lines, median {median(lengths):g} and at most {max(lengths)}")
    print(f"{len(arrows())} arrows between {len(ROOMS)} rooms on {floors()} floors")
    print(f"functions: median {median(functions()):g} lines, ninth decile {ninth:g}, longest {max(functions())}")


if __name__ == "__main__":
    main()
