"""The page that tells the way of one call through capture quotes the lines that it goes through."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_page_quotes_the_lines_of_the_functions_that_it_names() -> None:
    page = (ROOT / "docs/architecture.md").read_text().partition("## One call through capture")[2].partition("\n## ")[0]
    quoted_lines = 0
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        source = ""
        for line in block.splitlines():
            if line.startswith("# "):
                path, name = line.removeprefix("# ").split(", ")
                source = source_of(ROOT / "attnviz" / path, name)
            else:
                quoted_lines += 1
                assert line in map(str.strip, source.splitlines()), f"{line} is no line of {path}"
    assert quoted_lines == 14


def source_of(path: Path, name: str) -> str:
    """The source of a method, by its class and its own name."""
    text = path.read_text()
    class_name, function_name = name.split(".")
    [owner] = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == class_name]
    [function] = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == function_name]
    source = ast.get_source_segment(text, function)
    assert source is not None
    return source
