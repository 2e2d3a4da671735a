"""Lists every sentence that users read, by file, so that all can be read at once.

``python -m tools.messages`` prints the list; two lists, before and after a change, make a diff of the words.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "attnviz"
SPEAKING_PACKAGES = ("report", "render", "cli", "explain", "browse")  # every sentence of these is read by a user
NAMED_CALLS = {"AttnvizError": "refusal", "Option": "option"}  # calls whose strings users read, in any package
MIN_WORDS = 2  # of a sentence; shorter literals are keys, names and formats


class Message(NamedTuple):
    """A sentence that users read.

    Attributes:
        line: its line in the file.
        kind: ``command`` for the help of a command, ``option`` for that of an option, ``refusal``, or ``text``.
        text: the sentence, with the code of inserted values in braces.
    """

    line: int
    kind: str
    text: str


def messages(source: str, speaking: bool) -> list[Message]:
    """Returns the messages of a module in the order of its lines.

    Args:
        source: the module's code.
        speaking: True if users read every sentence of the module, False if only its refusals and options.
    """
    tree = ast.parse(source)
    helps = _command_helps(tree)
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings: set[ast.expr] = {value for value in statements if isinstance(value, ast.Constant)}
    return sorted({*helps, *_literals(tree, "text" if speaking else "", docstrings)})


def _command_helps(tree: ast.Module) -> Iterator[Message]:
    """Yields the help of each command: the docstring of a function that a ``command`` decorates."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            "command" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            yield Message(node.lineno, "command", ast.get_docstring(node) or "")


def _literals(node: ast.AST, kind: str, docstrings: set[ast.expr]) -> Iterator[Message]:
    """Yields the sentences in literals below a node; if ``kind`` is "", only those in calls of ``NAMED_CALLS``."""
    if node in docstrings:
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        kind = NAMED_CALLS.get(node.func.id, kind)
    text = _text(node)
    if text is not None:
        if kind and len(text.split()) >= MIN_WORDS:
            yield Message(node.lineno, kind, text)  # type: ignore[attr-defined]
        return
    annotation = getattr(node, "returns", None)  # a type in quotes
    for child in ast.iter_child_nodes(node):
        if child is not annotation:
            yield from _literals(child, kind, docstrings)


def _text(node: ast.AST) -> str | None:
    """Returns the text of a string, with the code of inserted values in braces; ``None`` for any other node."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    return ast.unparse(node) if isinstance(node, ast.JoinedStr) else None


def main() -> None:
    """Prints the messages of the package, under the name of each file."""
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        sentences = messages(path.read_text(), path.relative_to(PACKAGE).parts[0] in SPEAKING_PACKAGES)
        if sentences:
            print(f"\n{path}")
        for _, kind, text in sentences:
            print(f"  {kind:8} {' '.join(text.split())}")


if __name__ == "__main__":
    main()
