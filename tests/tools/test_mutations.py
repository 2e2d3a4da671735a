"""The changes that try the tests."""

import ast
from pathlib import Path

import pytest

from tools.mutations import drawn_mutations, mutations_of

PATH = Path("attnviz/a.py")


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b", "(a <= b)"),
        ("a is None", "(a is not None)"),
        ("a + b", "(a - b)"),
        ("a and b", "(a or b)"),
        ("a if b else c", "(c if b else a)"),
        ("f(True)", "f((False))"),
        ("f('é', 3)", "f('é', (4))"),
    ],
)
def test_an_expression_is_changed_in_its_place(source: str, changed: str) -> None:
    [mutation] = mutations_of(PATH, source)
    assert mutation.apply(source) == changed


def test_text_is_left_as_it_is() -> None:
    assert list(mutations_of(PATH, "'a' + b")) == []


def test_a_draw_is_that_of_its_seed_and_every_change_can_be_parsed() -> None:
    some = drawn_mutations(["metrics", "maps"], 40, 3)
    assert some == drawn_mutations(["metrics", "maps"], 40, 3) != drawn_mutations(["metrics", "maps"], 40, 4)
    assert {mutation.path.parts[1] for mutation in some} == {"metrics", "maps"}
    for mutation in some:
        source = mutation.path.read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutation.apply(source))) != ast.dump(ast.parse(source))
