"""No file is opened but by the package ``base``: a reader that goes around it has no limit and no check."""

import ast

import pytest

from tools.imports import MODULES, package_of, tree_of

# What opens or reads a file, by the last name of the call; and parsers, whose input may be deep or long.
OPENING = set(
    "open fdopen read_text read_bytes memmap fromfile loadtxt genfromtxt safe_open load_file from_file open_stream "
    "memory_map ParquetFile read_table from_pretrained get_kernel".split()
)
QUALIFIED = set(
    "json.load json.loads tomllib.load tomllib.loads np.load numpy.load torch.load pickle.load pickle.loads".split()
)
OPENER = "base"
ALLOWED: dict[str, tuple[set[str], str]] = {
    "attnviz.__main__": ({"os.open"}, "os.devnull in place of closed streams"),
    "attnviz.arrays.file": (
        {"np.load", "zip_file.open", "safe_open", "memmap"},
        "regular files that fit into memory, and no pickles; safetensors has checked the file that is mapped",
    ),
    "attnviz.arrays.layers": ({"memmap"}, "the type of an array that the user has mapped"),
    "attnviz.browse.start": ({"os.open"}, "the terminal itself"),
    "attnviz.cli.commands": ({"os.open"}, "os.devnull, once the reader of the output has gone"),
    "attnviz.cli.help": ({"os.open"}, "os.devnull, once the reader of the output has gone"),
    "attnviz.corpus.saved": ({"json.loads"}, "a part of a survey that another process of this one sent"),
    "attnviz.corpus.survey_corpus": ({"json.loads"}, "what the first process of this one sent"),
    "attnviz.corpus.read": ({"ParquetFile", "memory_map", "open_stream"}, "pyarrow, behind open_file"),
    "attnviz.corpus.token_classes": ({"json.loads"}, "the result of bounded work"),
    "attnviz.media.image": ({"Pillow.open"}, "an image, behind open_file, of at most 100 megapixels"),
    "attnviz.models.huggingface.adapter": ({"load_file"}, "safetensors, behind refuse_unsafe_files"),
    "attnviz.models.huggingface.chat": ({"json.loads"}, "the result of bounded work"),
    "attnviz.models.huggingface.gguf_file": ({"path.open"}, "a temporary file, to be written"),
    "attnviz.models.huggingface.loading": ({"from_pretrained"}, "a folder that check_folder has passed"),
    "attnviz.render.film": ({"Image.open"}, "pictures that attnviz drew, in memory"),
    "attnviz.models.trained": ({"load_file"}, "the package's own weights"),
    "attnviz.models.trained_picture": ({"load_file"}, "the package's own weights"),
    "attnviz.render.data": ({"archive.open", "json.loads"}, "a member to be written; a constant"),
    "attnviz.render.page.scripts": ({"read_text"}, "the package's own scripts"),
    "attnviz.text.named_groups": ({"json.loads"}, "the result of bounded work"),
    "attnviz.text.samples": ({"read_text"}, "the package's own samples"),
    "attnviz.text.tokens": ({"from_file"}, "a tokenizer that refuse_expanding_tokenizer has read"),
}


def readings(tree: ast.Module) -> set[str]:
    """Returns what a module calls, or passes on, to open or parse files: ``open``, ``np.memmap``, ``read_text``."""
    found, called = set(), {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in OPENING and (node.attr != "open" or id(node) in called):  # a value may be called so
                found.add(f"{holder}.open" if node.attr == "open" and holder else node.attr)
            if f"{holder}.{node.attr}" in QUALIFIED:
                found.add(f"{holder}.{node.attr}")
        elif isinstance(node, ast.Name) and node.id in OPENING and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{each.name}" for each in node.names} & QUALIFIED
    return found


@pytest.mark.parametrize(
    "line",
    [
        "open('a')",
        "path.open('rb')",
        "Path('a').read_bytes()",
        "np.memmap('a')",
        "json.load(file)",
        "tomllib.loads(text)",
        "from tomllib import loads",
        "safe_open(name)",
        "list(map(Path.read_text, paths))",
    ],
)
def test_every_way_to_open_a_file_is_seen(line: str) -> None:
    assert readings(ast.parse(line))
    assert readings(ast.parse("read_text(path)")) == {"read_text"}


def test_no_reader_goes_around_the_door() -> None:
    around = {}
    for module in MODULES:
        if package_of(module) == OPENER:
            continue
        tree = tree_of(module)
        ours = {  # of names that are ``base``'s own
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"attnviz.{OPENER}.")
            for name in node.names
        }
        allowed = ALLOWED.get(module, (set(), ""))[0]
        if extra := readings(tree) - ours - allowed:
            around[module] = sorted(extra)
    assert around == {}


def test_the_exceptions_are_those_that_are_needed() -> None:
    unused = {module: names - readings(tree_of(module)) for module, (names, _) in ALLOWED.items()}
    assert {module: sorted(names) for module, names in unused.items() if names} == {}
