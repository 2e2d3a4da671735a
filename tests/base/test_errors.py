"""A message speaks the language of who reads it: the names of Python, or the flags of the command line."""

import ast
import pickle
import re
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import (
    AttnvizError,
    MessageOption,
    Value,
    argument,
    did_you_mean,
    flag,
    format_options,
    install,
    number_ranges,
    option,
    parts_of,
    without_options,
)
from attnviz.report.picture.look import Look
from tools.imports import MODULES, package_of, tree_of

FORGED = b'["all", null]'.hex()
FLAG = re.compile(r"(^|[^\w-])--[a-z]")


@pytest.mark.parametrize(
    ("name", "value", "python", "command_line"),
    [
        ("limits", "0:0.5", "limits='0:0.5'", "--limits 0:0.5"),
        ("num_heads", 4, "num_heads=4", "--set num-heads=4"),
        ("dense", True, "dense=True", "--set dense=true"),
        ("dense", False, "dense=False", "--set dense=false"),
        ("bias", False, "bias=False", "--set bias=false"),
        ("dropout", 0, "dropout=0", "--set dropout=0"),
        ("max_size", None, "max_size", "max-size"),
        ("causal", False, "causal=False", "--no-causal"),
        ("words", True, "words=True", "--by words"),
        ("table", "both", "table='both'", "--style both"),
        ("axes", "sink,peak", "axes='sink,peak'", "--style points:sink,peak"),
        ("residual", 0.3, "residual=0.3", "--reduce rollout:0.3"),
    ],
)
def test_an_option_is_said_in_the_language_of_who_reads_it(
    name: str, value: Value, python: str, command_line: str
) -> None:
    error = AttnvizError(f"no such thing; {option(name, value)} works, {option(name, value)} too")
    assert str(error) == f"no such thing; {python} works, {python} too"
    assert repr(error) == f'AttnvizError("{error}")' if "'" in python else f"AttnvizError('{error}')"
    assert error.message_with(flag) == f"no such thing; {command_line} works, {command_line} too"


@given(st.text(), st.text())
def test_what_a_user_wrote_is_said_as_it_was(before: str, value: str) -> None:
    error = AttnvizError(f"{before!r} {option('title', value)}")
    assert str(error) == f"{before!r} title={value!r}"
    assert error.message_with(flag) == f"{before!r} --title {value}"


@pytest.mark.parametrize(
    "name",
    [
        "\x0elimits=(\x0f",
        "\x0elimits=0\x0f",
        "\x0eall\x0f",
        "\x0e0\x0f",
        f"\x0e{FORGED}\x0f",
        f"\x0e0123456789abcdef:{FORGED}\x0f",
        "{}",
        "%s",
    ],
)
@pytest.mark.parametrize("name_option", [flag, argument])
def test_what_a_stranger_wrote_is_never_read_as_an_option(name: str, name_option: Callable[[str, Value], str]) -> None:
    error = AttnvizError(f"no {name}; use {option('limits', name)}{option('all')}")
    assert error.parts == (f"no {name}; use ", MessageOption("limits", name), "", MessageOption("all", None), "")
    assert error.message_with(name_option) == f"no {name}; use {name_option('limits', name)}{name_option('all', None)}"
    assert format_options(f"{name}{option('all')}", name_option) == f"{name}{name_option('all', None)}"


def test_options_leave_nothing_behind() -> None:
    tracemalloc.start()
    try:
        for number in range(10_000):
            assert parts_of(option("top", number)) == ("", MessageOption("top", number), "")
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_an_error_is_the_same_in_another_process() -> None:
    error = AttnvizError(f"use {option('top', 1)} or {option('top', True)}")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "use top=1 or top=True"
    assert copy.message_with(flag) == "use --top 1 or --top"


def refusals(module: str) -> Iterator[str]:
    """Every piece of text in what a file raises or makes an AttnvizError of."""
    for node in ast.walk(tree_of(module)):
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "AttnvizError"
        if made or isinstance(node, ast.Raise):
            yield from (str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant))


def test_no_refusal_below_the_command_line_speaks_of_its_flags() -> None:
    said = [(module, text) for module in MODULES if package_of(module) != "cli" for text in refusals(module)]
    assert [pair for pair in said if FLAG.search(pair[1])] == []


def spoken(node: ast.AST) -> Iterator[str]:
    """Every piece of text below a node, but docstrings and what describes an option of the command line."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Option":
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Constant):
        yield str(node.value)
    for child in ast.iter_child_nodes(node):
        yield from spoken(child)


def test_no_remark_of_a_report_or_a_renderer_speaks_of_flags() -> None:
    # A whole command may stand in a remark.
    flags = re.compile(r"(?<!attnviz explain )(?<!attnviz show )(?<![\w(-])--[a-z]")
    said = {
        module: text
        for module in MODULES
        if package_of(module) in ("report", "render")
        for text in spoken(tree_of(module))
        if flags.search(text) and ":root" not in text
    }
    assert said == {}


def test_a_report_names_options_as_its_reader_writes_them() -> None:
    remark = f"{option('all', True)} draws every head, {option('heads', '0.1')} one."
    assert Look().format_options(remark) == "all=True draws every head, heads='0.1' one."
    assert Look(for_command_line=True).format_options(remark) == "--all draws every head, --heads 0.1 one."


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ('{"url": "file:///home/ann/attnviz"}', "pip install -c constraints.txt '.[hf]' in the folder of attnviz"),
        (None, "pip install 'attnviz[hf]'"),
    ],
)
def test_an_extra_is_installed_from_where_attnviz_came(
    source: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.PathDistribution.read_text", lambda *_: source)
    assert install("hf") == command


def test_the_nearest_name_is_proposed_and_none_that_is_far() -> None:
    assert did_you_mean("drak", ("light", "Dark")) == "did you mean Dark? "
    assert did_you_mean("xyz", ("light", "dark")) == ""


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [([], "none"), ([4], "4"), ([3, 0, 1, 2, 7, 7], "0-3, 7"), ([1, 3, 5], "1, 3, 5"), ([8, 9], "8-9")],
)
def test_neighbouring_numbers_are_written_as_ranges(numbers: list[int], ranges: str) -> None:
    assert number_ranges(numbers) == ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nearly even: no patch has more; {} shows which have.", "Nearly even: no patch has more."),
        ("Showing layer 2; {} draws all. Rows are queries.", "Showing layer 2. Rows are queries."),
        ("Use {} to open one head. Rows are queries.", "Rows are queries."),
        ("{} has no effect: every cell is one weight.", ""),
        ("Without a place: [CLS], [extra 1] … (5 tokens).", "Without a place: [CLS], [extra 1] … (5 tokens)."),
        ("Rows, 5 of 7", "Rows, 5 of 7"),
    ],
)
def test_what_an_audience_is_told_names_no_option(text: str, expected: str) -> None:
    assert without_options(text.format(option("heads", "0.1"))) == expected
