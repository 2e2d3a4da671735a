import re
import shlex

import pytest

from attnviz.cli.help import EXAMPLES, PANELS
from attnviz.explain.explain import STEPS
from attnviz.metrics.metrics import METRICS
from tests.streams import Streams

COMMANDS = (
    "show", "heads", "compare", "explain", "ablate", "why", "browse", "survey", "info",
)  # fmt: skip


@pytest.mark.parametrize("command", [(), *[(command,) for command in COMMANDS]])
def test_short_help_fits_a_screen(attnviz: Streams, command: tuple[str, ...]) -> None:
    lines = attnviz.run(*command, "-h").splitlines()
    assert len(lines) < (24 if command else 27)  # the program lists a line for each command
    assert max(map(len, lines)) <= 80


def test_help_of_the_program_lists_every_command(attnviz: Streams) -> None:
    out = attnviz.run("--help")
    assert re.findall(r"^  (\w+)  +[A-Z]", out, re.MULTILINE)[: len(COMMANDS)] == list(COMMANDS)
    assert attnviz.run("-h") == out


def test_help_is_asked_for_by_a_word_too(attnviz: Streams) -> None:
    assert attnviz.run("help") == attnviz.run("--help")
    assert attnviz.run("help", "show") == attnviz.run("show", "--help")
    assert "no command 'shwo'; did you mean show?" in attnviz.refused("help", "shwo", code=2)


def test_a_text_without_a_command_is_told_how_it_is_drawn(attnviz: Streams) -> None:
    assert "attnviz show 'Life is short' draws a text" in attnviz.refused("Life is short", code=2)


def test_the_bare_program_prints_its_help_and_nothing_else(attnviz: Streams) -> None:
    out = attnviz.run(code=2)
    assert attnviz.err == ""
    assert out == attnviz.run("--help")


def test_long_help_starts_with_examples_and_ends_with_the_settings(attnviz: Streams) -> None:
    headings = re.findall(r"^([A-Z].*):$", attnviz.run("show", "--help"), re.MULTILINE)
    assert headings[0] == "Examples"
    assert headings[1 : 1 + len(PANELS)] == list(PANELS)
    settings = attnviz.out.partition("\nSettings for --set:\n")[2]
    assert re.findall(r"^  (num-heads|dpi|--set NAME=VALUE) ", settings, re.MULTILINE) == [
        "--set NAME=VALUE",
        "num-heads",
        "dpi",
    ]


def test_short_help_lists_fewer_options_and_names_the_long_one(attnviz: Streams) -> None:
    short, long = (
        set(re.findall(r"^  .*?(--[a-z-]+)", attnviz.run("show", name), re.MULTILINE)) for name in ("-h", "--help")
    )
    assert {"--model", "--heads", "--output"} < short < long
    assert "attnviz show --help lists all options." in attnviz.run("show", "-h")


@pytest.mark.parametrize("command", COMMANDS)
def test_long_help_shows_no_default_of_what_must_be_given(attnviz: Streams, command: str) -> None:
    assert "<class" not in attnviz.run(command, "--help")


def test_names_are_listed_where_they_are_used(attnviz: Streams) -> None:
    out = attnviz.run("heads", "--help").partition("Names for --sort:")[2]
    assert all(f"  {metric.name} " in out for metric in METRICS.values())
    out = attnviz.run("explain", "--help").partition("Names for --step:")[2]
    assert all(f"  {step} " in out for step in STEPS)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines if "./" not in line])
def test_examples_of_the_help_run(attnviz: Streams, line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "attnviz"
    if arguments[0] == "browse":
        assert "needs a terminal" in attnviz.refused(*arguments)
    elif not {"before.safetensors", "survey.safetensors"}.isdisjoint(arguments):
        assert "there is no file" in attnviz.refused(*arguments)
    else:
        assert attnviz.run(*arguments)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show", ()),
        ("heads", ()),
        ("compare", ("--causal",)),
        ("explain", ()),
        ("why", ()),
        ("why", ("--by", "words")),
    ],
)
def test_defaults_in_the_help_are_those_of_the_command(attnviz: Streams, command: str, words: tuple[str, ...]) -> None:
    page, _, _ = attnviz.run(command, "--help").partition("Settings for --set:")
    declared = re.findall(r"^  (--[a-z-]+) [A-Z]\S*((?:(?!^  -).)*?) \[([^\]\s]+)\]$", page, re.MULTILINE | re.DOTALL)
    unread = ("--limits",) if command == "why" else ()  # refused wherever it is typed for changes
    spelled_out = [word for name, _, default in declared if name not in unread for word in (name, default)]
    assert {"--model", "--device", "--dtype"} <= set(spelled_out)
    usual = attnviz.run(command, "the cat sat. the cat", *words)
    assert usual
    said = attnviz.run(command, "the cat sat. the cat", *words, *spelled_out)
    assert re.sub(r"No model was given.*?repeats\.\n", "", usual, flags=re.DOTALL) == said
