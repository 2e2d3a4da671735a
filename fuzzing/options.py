"""Fuzzes the command line: every command, with random options of it and values of every kind."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import typer
from hypothesis import strategies as st

from attnviz.cli.commands import app, main
from attnviz.cli.defaults import settable_options
from fuzzing.command_line import attempt, streams
from fuzzing.target import Target

COMMANDS = ("show", "heads", "compare", "explain", "info")
TEXTS = ("Life is short", "a", "", " ", "-", "run.safetensors", "no.safetensors", "\x1b[31mred", "東京 🎉", "a " * 40)
WORDS = """
mean max min sum viridis magma Blues twilight none log linear head shared 0:0.5 dark light heatmap arcs text
both scores weights 16:9 8x6 1920x1080 10MB 1kb word char byte seeded trained ./missing cpu cuda cuda:7 auto
float16 bfloat16 float64 entropy previous first composition rollout mean,max 0 1 0.0 0.1 0-3 0,2 1: :2 0:2 -1
-1: 2:1 9.9 0-9999999 1e999 nan inf x.txt x.svg x.png x.pdf x.html x.json x.csv x.npz x.pptx x.md x.safetensors
x.gif none/x.svg folder.svg there.svg . /
""".split()
MODELS = ("seeded", "trained", "./missing")  # never a name that would be looked up on the hub
FILES = ("given.txt", "binary.txt", "latin.txt", "empty.txt", "missing.txt", ".")
PATTERNS = ("(a+)+$", "[", "(" * 200, "[bold]x [[x]]", "a{999999}", "\\d+|\\s", "(?i)life", "\x1b")


@cache
def options_of(command: str) -> tuple[tuple[str, bool], ...]:
    """Returns the options of a command as they are written, and if each takes a value."""
    group: Any = typer.main.get_command(app)
    named = [option for option in group.commands[command].params if option.opts[0].startswith("-")]
    return tuple(
        (name, not option.is_flag) for option in named for name in (*option.opts, *option.secondary_opts) if name[1:]
    )


def values(name: str) -> st.SearchStrategy[str]:
    """Returns values for an option: some valid, most not."""
    if name in ("--model", "--with-model"):
        return st.sampled_from(MODELS)
    if name in ("--file", "--batch"):
        return st.sampled_from(FILES)
    if name in ("-o", "--output"):
        return st.sampled_from(
            ["-"] + [word for word in WORDS if word.startswith("x.")] + WORDS[-4:] + ["x" * 300 + ".svg"]
        )
    free = st.text(st.characters(exclude_characters="\0"), max_size=20)
    numbers = st.one_of(st.integers(), st.integers(-2, 9), st.floats(), st.just(10**30)).map(str)
    sampled = st.sampled_from([*WORDS, *PATTERNS, *TEXTS])
    return st.one_of(sampled, sampled, numbers, free).filter(lambda value: not Path(value).is_absolute())


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Draws a command line: a command, perhaps a text, and up to four options."""
    command = draw(st.sampled_from(COMMANDS[:1] * 3 + COMMANDS))
    arguments = [command]
    command_options = options_of(command)
    if command not in ("samples", "devices"):
        arguments += draw(st.lists(st.sampled_from(TEXTS), max_size=2 if command == "compare" else 1))
    for name, takes_value in draw(st.lists(st.sampled_from(command_options), max_size=4)) if command_options else ():
        arguments += [name, draw(values(name))] if takes_value else [name]
    return arguments


def attempt_options(arguments: list[str]) -> None:
    """Runs the command line among files of every kind, none of which may change without ``--force``."""
    make_files()
    attempt(arguments, b"piped text" if "-" in arguments else None)
    if "--force" not in arguments:
        assert Path("there.svg").read_bytes() == b"<old/>"


def make_files() -> None:
    """Makes a text, a binary file, a folder, an existing output and a recording."""
    Path("given.txt").write_text("Life is short\nArt is long\n", encoding="utf-8")
    Path("binary.txt").write_bytes(bytes(range(32)) * 9)
    Path("latin.txt").write_bytes("café".encode("latin-1"))
    Path("empty.txt").touch()
    Path("folder.svg").mkdir()
    Path("there.svg").write_bytes(b"<old/>")
    Path("run.safetensors").write_bytes(saved_recording())


@cache
def saved_recording() -> bytes:
    """Returns the bytes of a recording of three tokens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        with streams(None):
            assert main(["show", "Life is short", "-o", str(path)]) == 0
        return path.read_bytes()


OTHER_KEYS = ("color-scale", "tool", "tool.attnviz", "[tool.attnviz]\na", "no-such", "a.b")
keys = st.sampled_from([*settable_options(), *OTHER_KEYS])
literals = st.one_of(
    st.sampled_from(WORDS).map(repr),
    st.sampled_from(
        (
            "true",
            "[]",
            "{}",
            "[[1]]",
            "1e999",
            "nan",
            "-1",
            "9" * 40,
            "1979-05-27",
            "[" * 3_000,
            "'\x1b'",
            '"\\u001b[2J"',
        )
    ),
    st.one_of(st.integers(), st.floats()).map(str),
    st.text(st.characters(codec="utf-8"), max_size=12).map(repr),
)
default_files = st.tuples(
    st.sampled_from(("attnviz.toml", "pyproject.toml")),
    st.lists(st.tuples(keys, literals).map(" = ".join), max_size=4).map("\n".join),
    st.sampled_from(
        (["show", "Life is short"], ["config"], ["heads", "run.safetensors"], ["explain", "Life is short"])
    ),
)


def attempt_defaults(case: tuple[str, str, list[str]]) -> None:
    """Runs a command in a folder whose file sets defaults."""
    name, content, arguments = case
    make_files()
    Path(name).write_text(content, encoding="utf-8")
    attempt(arguments)


TARGETS = (
    Target("options", command_lines(), attempt_options),
    Target("defaults", default_files, attempt_defaults),
)
