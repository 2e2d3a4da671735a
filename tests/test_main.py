"""The process: whatever it was started with or without, it ends with a result or one line, and leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from attnviz.__main__ import show_bug
from attnviz.cli.commands import main
from attnviz.cli.output import say_warning
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from tests.api.examples import word_tokenizer
from tests.capture.small_architectures import build
from tests.patience import PATIENCE
from tests.today import todays

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")]

ATTNVIZ = f"{sys.executable} -m attnviz"


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line of the shell, run in a folder; ``attnviz`` in it is this one."""
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("attnviz ", f"{ATTNVIZ} ")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.getcwd()} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_log_of_a_models_library_is_not_shown(tmp_path: Path) -> None:
    model: Any = build("qwen3_next", "narrow", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    model.save_pretrained(tmp_path / "model")
    word_tokenizer().save_pretrained(tmp_path / "model")
    result = run("attnviz ablate 'life is short life' --model ./model", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("attnviz info samples >&-", "attnviz: standard output is closed; use -o FILE to write a file\n"),
        ("attnviz show Life >&-", "attnviz: standard output is closed; use -o FILE to write a file\n"),
        ("attnviz show - <&-", "attnviz: standard input is closed; give a text or --file FILE\n"),
        ("attnviz show nowhere.safetensors <&- 2>&-", ""),
        ("attnviz show nowhere.safetensors 2>/dev/full", ""),
        ("attnviz browse Life >&-", "attnviz: browse needs a terminal; use attnviz show"),
        (
            "mkdir gone; cd gone; rmdir ../gone; attnviz info samples",
            "attnviz: the working folder no longer exists; cd to",
        ),
        ("ulimit -v 600000; attnviz show Life", "attnviz: torch needs more than the 586 MiB of memory"),
        ("ulimit -f 0; attnviz info samples > samples.txt", "attnviz: cannot write all of the output: File too large"),
    ],
)
def test_what_it_lacks_is_one_line(tmp_path: Path, command: str, said: str) -> None:
    result = run(command, tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == bool(said)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "value", todays(["9" * 22, "9" * 5000, "\u00b2", "-1", "many", ""], one_in=3), ids=lambda value: value[:22]
)
def test_the_size_of_a_terminal_is_a_number_or_not_read(recording: Recording, tmp_path: Path, value: str) -> None:
    save(recording, tmp_path / "run.safetensors")
    result = run("attnviz show run.safetensors", tmp_path, COLUMNS=value, LINES=value)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("shell", todays(["bash", "zsh", "fish", "pwsh"], one_in=2))
@pytest.mark.parametrize("typed", [{}, {"COMP_WORDS": "attnviz sh", "COMP_CWORD": "a"}, {"COMP_CWORD": "9" * 5000}])
def test_completion_without_what_was_typed_is_no_traceback(tmp_path: Path, shell: str, typed: dict[str, str]) -> None:
    result = run("attnviz ", tmp_path, _ATTNVIZ_COMPLETE=f"complete_{shell}", **typed)
    assert "Traceback" not in result.stderr


def test_ctrl_c_is_answered_while_native_code_runs(tmp_path: Path) -> None:
    code = (
        "import hashlib, attnviz.__main__ as process, attnviz.cli.commands as commands\n"
        "import signal, threading; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "said = threading.Timer(0.3, print, ['begun'], {'flush': True})\n"  # by then the main thread is in native code
        "commands.main = lambda: (said.start(), hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1))\n"
        "process.run()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=PATIENCE)
    assert (child.returncode, error) == (130, b"")


def test_file_never_gets_what_belongs_to_a_closed_stream(recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path / "run.safetensors")
    result = run("attnviz show run.safetensors -o x.csv <&- >&- 2>&-", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").startswith("layer,")


def test_matplotlib_with_no_home_and_a_backend_that_is_none_leaves_no_folder_and_no_word(
    recording: Recording, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    save(recording, tmp_path / "run.safetensors")
    environment = {"HOME": "/proc", "MPLBACKEND": "none", "TMPDIR": str(temporary), "XDG_CACHE_HOME": "/proc"}
    result = run("attnviz show run.safetensors --cmap twilight -o x.svg", tmp_path, **environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "x.svg\n", "")
    assert list(temporary.iterdir()) == []


def test_bug_is_shown_without_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    bug = ValueError("\x1b[31mred\nline")
    show_bug(ValueError, bug, None)
    assert capsys.readouterr().err == "ValueError: \\x1b[31mred\nline\n"


def test_a_title_or_a_models_name_commands_neither_a_terminal_nor_a_file(
    in_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    title = "\x1b]0;pwn\x07\x9b\u202e"
    for code, words in (
        (0, ["Life", "--title", title]),
        (0, ["Life", "--title", title, "-o", "x.png"]),
        (0, ["Life", "--title", title, "-o", "x.svg"]),
        (0, ["Life", "--title", title, "-o", "x.pdf"]),
        (0, [title, "--json"]),
        (1, ["Life", "--model", f"./{title}"]),
    ):
        assert main(["show", *words]) == code
        assert not set("\x1b\x07\x9b\u202e") & set("".join(capfd.readouterr()))
    ElementTree.parse(in_folder / "x.svg")


def test_a_warning_of_a_library_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    say_warning(UserWarning("Glyph 27 (\x1b) missing\nfrom font"), UserWarning, "file.py", 3)
    assert capfd.readouterr().err == "attnviz: Glyph 27 (\\x1b) missing from font\n"
