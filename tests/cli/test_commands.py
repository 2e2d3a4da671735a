import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from PIL import Image

from attnviz.cli.commands import main
from attnviz.text.samples import read_sample, sample_pictures, samples
from tests.patience import PATIENCE
from tests.streams import Streams

pytestmark = pytest.mark.slow

ATTNVIZ = [sys.executable, "-m", "attnviz"]
ROOT = Path(__file__).parents[2]


def test_show_draws_every_head_with_its_tokens_and_says_untrained(attnviz: Streams) -> None:
    out = attnviz.run("show", "Life is short")
    assert re.findall(r"head \d\.\d", out)[:4] == ["head 0.0", "head 0.1", "head 0.2", "head 0.3"]
    assert out.count("short") >= 4
    assert "an untrained seeded model" in out
    assert attnviz.err == ""


def test_show_draws_only_the_chosen_heads_of_the_chosen_layers(attnviz: Streams) -> None:
    out = attnviz.run("show", "Life is short", "--set", "num-layers=2", "--layers", "1", "--heads", "0,2-3")
    assert sorted(set(re.findall(r"head (\d\.\d)", out))) == ["1.0", "1.2", "1.3"]


def test_the_same_command_prints_the_same(attnviz: Streams) -> None:
    arguments = ("show", "Life is short", "--causal", "--set", "seed=7")
    assert attnviz.run(*arguments) == attnviz.run(*arguments)


def test_no_text_takes_the_first_sample_and_says_so(attnviz: Streams) -> None:
    assert "Life is short, eat dessert first" in attnviz.run("show")
    assert "using sample 'life'" in attnviz.err


def test_text_comes_from_a_file_a_sample_or_standard_input(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_folder / "notes.txt").write_text("Life is short", encoding="utf-8")
    expected = attnviz.run("show", "Life is short")
    assert attnviz.run("show", "--file", "notes.txt") == expected
    assert attnviz.run("show", "notes.txt") == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Life is short\n")))
    assert attnviz.run("show", "-") == expected
    assert "Life is short, eat" in attnviz.run("show", "sample:life")


def test_a_pipe_is_read_without_being_named(in_folder: Path) -> None:
    result = subprocess.run(
        [*ATTNVIZ, "show"], input=b"Two words", capture_output=True, cwd=ROOT, check=True, env=plain_environment()
    )
    assert result.stdout.startswith(b"Two words\n")


def test_tables_print_scores_and_weights(attnviz: Streams) -> None:
    out = attnviz.run("show", "Life is short", "--heads", "1", "--style", "both")
    assert "head 0.1 scores" in out
    assert "head 0.1 weights" in out
    assert len(re.findall(r"-?\d\.\d{4}", out)) >= 18


def test_a_file_gets_the_picture_and_standard_output_its_path(attnviz: Streams, in_folder: Path) -> None:
    for name in ("heads.png", "heads.svg", "heads.pdf", "heads.txt"):
        assert attnviz.run("show", "Life is short", "-o", name) == f"{name}\n"
    magic = {name: (in_folder / name).read_bytes()[:5] for name in ("heads.png", "heads.svg", "heads.pdf")}
    assert magic == {"heads.png": b"\x89PNG\r", "heads.svg": b"<?xml", "heads.pdf": b"%PDF-"}
    assert "head 0.3" in (in_folder / "heads.txt").read_text(encoding="utf-8")


def test_a_table_goes_into_a_file_too(attnviz: Streams, in_folder: Path) -> None:
    printed = attnviz.run("show", "Life is short", "--style", "scores")
    attnviz.run("show", "Life is short", "--style", "scores", "-o", "scores.txt")
    assert (in_folder / "scores.txt").read_text(encoding="utf-8") == printed


def test_an_existing_file_is_kept_unless_forced(attnviz: Streams, in_folder: Path) -> None:
    (in_folder / "heads.png").write_bytes(b"precious")
    assert "'heads.png' exists; --force replaces it" in attnviz.refused("show", "Life", "-o", "heads.png")
    assert (in_folder / "heads.png").read_bytes() == b"precious"
    attnviz.run("show", "Life", "-o", "heads.png", "--force")
    assert (in_folder / "heads.png").read_bytes() != b"precious"


def test_compare_draws_both_and_the_change_and_a_table(attnviz: Streams) -> None:
    out = attnviz.run("compare", "--causal", "--heads", "2")
    assert re.search(r"0\.2 without --causal +0\.2 with --causal +0\.2 with − without", out)
    assert "after (B) --causal" in out
    assert re.search(r"^ *0\.2( +\d\.\d{4}){6}$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "change",
    [("--set", "scale=none"), ("--set", "seed=3"), ("--with", "Time is money , eat dessert now"), ("--causal",)],
)
def test_each_change_can_be_compared(attnviz: Streams, change: tuple[str, ...]) -> None:
    assert "changes most" in attnviz.run("compare", *change)


def test_two_texts_are_compared_over_the_same_picture(attnviz: Streams, in_folder: Path) -> None:
    Image.new("RGB", (24, 24), "white").save(in_folder / "white.png")
    words = "compare", "top-left", "--with", "top-right", "white.png", "--model", "trained-picture"
    assert "sample picture" not in attnviz.run(*words)


def test_comparing_dropout_says_that_the_first_layer_cannot_change(attnviz: Streams) -> None:
    assert "no weight changes" in attnviz.run("compare", "--set", "dropout=0.5").replace("\n", " ")
    assert "Dropout comes after the weights" in attnviz.out.replace("\n", " ")
    assert "changes most" in attnviz.run("compare", "--set", "dropout=0.5", "--set", "num-layers=2")


def test_samples_and_devices_and_version_are_listed(attnviz: Streams) -> None:
    out = attnviz.run("info", "samples")
    assert [line.split()[0] for line in out.splitlines()] == [*samples(), *sample_pictures()]
    devices = attnviz.run("info", "devices")
    assert re.search(r"^cpu ", devices, re.MULTILINE)
    assert attnviz.run("info") == f"samples:\n{out}devices:\n{devices}config:\n{attnviz.run('info', 'config')}"
    assert re.fullmatch(r"attnviz \d+\.\d+\.\d+\n", attnviz.run("--version"))


@pytest.mark.parametrize("arguments", [("show", "--top", "many"), ("show", "--colour"), ("paint",), ("show", "a", "b")])
def test_usage_errors_end_with_two(attnviz: Streams, arguments: tuple[str, ...]) -> None:
    assert "--help" in attnviz.refused(*arguments, code=2)


def test_a_refusal_never_sends_what_it_quotes(attnviz: Streams) -> None:
    assert "\x1b" not in attnviz.refused("show", "--file", "\x1b[31mred\nline")


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("attnviz.cli.runs.record", lambda *_: 1 / 0)
    assert "cannot write to the folder '.'" in attnviz.refused("show", "Life", "-o", "x.png")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "attnviz: not enough memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), "enough memory"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "not enough memory"),
        (OSError(36, "File name too long", "x" * 9_000), "File name too long: 'xxx"),
        (OSError("no folder for a cache"), "attnviz: no folder for a cache"),
    ],
)
def test_what_the_machine_cannot_do_is_one_line_that_is_not_long(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("attnviz.cli.runs.read_input", fail)
    line = attnviz.refused("show", "Life")
    assert said in line
    assert len(line) < 1_100


def test_a_bug_gets_its_traceback(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.cli.runs.read_input", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["show", "Life"])


def test_a_closed_pipe_is_silent() -> None:
    command = f"{sys.executable} -m attnviz show sample:pronoun --style both | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, cwd=ROOT, env=plain_environment(), check=False)
    assert result.stdout.decode() == f"{read_sample('pronoun')}\n"
    assert result.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_does_not_fit_is_one_line() -> None:
    for arguments in (["--version"], ["info", "samples"], ["show", "Life is short"]):
        with open("/dev/full", "wb") as full:
            command = [*ATTNVIZ, *arguments]
            result = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=plain_environment(), check=False
            )
        assert result.returncode == 1
        assert result.stderr == b"attnviz: cannot write all of the output: No space left on device; it is incomplete\n"


def opened_to_write(pipe: Path) -> int:
    """The pipe's end, once the other one is open to read."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_interrupt_that_a_library_answers_with_an_error_ends_with_130(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_report: object, _suffix: str, _file: IO[bytes]) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("Can't close the ZIP file while there is an open writing handle on it")

    monkeypatch.setattr("attnviz.render.figure.slides.write", write)
    assert attnviz.run("show", "Life is short", "-o", "a.pptx", code=130) == ""
    assert (list(in_folder.iterdir()), attnviz.err) == ([], "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_interrupting_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "text"
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and by its children
    process = subprocess.Popen(
        [*ATTNVIZ, "show", "--file", str(pipe)], stderr=subprocess.PIPE, cwd=ROOT, env=plain_environment()
    )
    signal.signal(signal.SIGINT, before)
    end, deadline = opened_to_write(pipe), time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    os.close(end)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in error


@pytest.mark.parametrize(
    ("environment", "escape"),
    [
        ({"FORCE_COLOR": "1", "COLORTERM": "truecolor"}, "48;2;"),
        ({"FORCE_COLOR": "1", "TERM": "xterm-256color"}, "48;5;"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1", "COLORTERM": "truecolor"}, None),
        ({}, None),
    ],
)
def test_colour_follows_the_environment(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], escape: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = attnviz.run("show", "Life is short")
    assert (escape in out) if escape else ("\x1b" not in out)


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "COLOR" not in name} | {"COLUMNS": "80"}


@pytest.mark.parametrize("command", ["show", "heads"])
def test_an_existing_file_is_refused_before_any_work(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (in_folder / "run.csv").write_bytes(b"precious")
    monkeypatch.setattr("attnviz.cli.runs.record", lambda *_: 1 / 0)
    assert "'run.csv' exists; --force replaces it" in attnviz.refused(command, "Life is short", "-o", "run.csv")


def test_text_of_a_file_that_ends_like_a_recording_is_text(attnviz: Streams, in_folder: Path) -> None:
    (in_folder / "notes.txt").write_text("I saved run.safetensors", encoding="utf-8")
    assert "run.safetensors" in attnviz.run("show", "--file", "notes.txt")


def test_a_text_of_one_token_says_that_its_weight_must_be_one(attnviz: Streams) -> None:
    assert "Every query sees one key" in attnviz.run("show", "a")
    assert "Every query sees one key" not in attnviz.run("show", "a b", "--causal")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show 'a b' --notes /dev/zero -o x.html", "is longer than 10 MB"),
        ("heads 'a b' --effects /dev/zero", "is a pipe or a device; give a JSON file"),
        ("heads --batch many.txt", "holds 10001 texts, and at most 10000 are run; attnviz survey"),
        ("survey two.txt --model trained --window 1 -o s.safetensors", "--window 1 is out of range"),
        (f"survey two.txt --model trained --token-class 'x={'(' * 5000}' -o s.safetensors", "nested too deeply"),
        (
            "survey two.txt --model trained --token-class 'x=a{99999999999999999999}' -o s.safetensors",
            "is not a regular",
        ),
        (f"heads 'a b' --filter={'-' * 3000}>1", "is no test of a head"),
        ("survey '' --model trained -o s.safetensors", "an empty name is not a corpus"),
    ],
)
def test_what_has_no_end_is_refused_in_one_line(
    in_folder: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("many.txt").write_text("a b\n" * 10_001)
    Path("two.txt").write_text("a b\na b a\n")
    limit = sys.getrecursionlimit()  # which a library may have raised
    sys.setrecursionlimit(1000)
    try:
        assert main(shlex.split(line)) == 1
    finally:
        sys.setrecursionlimit(limit)
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err
    assert found.err.count("\n") == 1


def test_a_reader_that_has_gone_ends_a_command_without_a_word(in_folder: Path) -> None:
    command = [sys.executable, "-m", "attnviz", "show", "a b c", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
