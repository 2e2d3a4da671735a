import fcntl
import io
import os
import pty
import resource
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from attnviz.base.signals import ENDING_SIGNALS
from attnviz.browse.first_screen import ENTER_SCREEN, first_screen
from attnviz.browse.session.session import Session
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from tests.patience import PATIENCE


def test_first_screen_is_the_overview_with_its_thumbnails(recording: Recording) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    screen = first_screen(Session(recording), console, (80, 24), ascii=False)
    assert "6 heads" in screen
    assert "▀" in screen
    assert screen.count("\r\n") == 23


def test_first_screen_without_colour_has_no_escapes(recording: Recording) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, no_color=True)
    screen = first_screen(Session(recording), console, (80, 24), ascii=True)
    assert "\x1b" not in screen
    assert screen.isascii()


FOOTER = b"49m quit\x1b[0m"  # as textual draws it


def read_until(terminal: int, sought: bytes) -> bytes:
    """What is written up to some bytes, or up to the end of the terminal's other side."""
    written = b""
    while sought not in written:
        assert select.select([terminal], [], [], PATIENCE)[0], written[-500:]
        try:
            written += os.read(terminal, 65_536)
        except OSError:  # how Linux says that the other end is closed
            break
    return written


def started(path: Path, term: str = "xterm-256color") -> tuple[int, int]:
    """The process of an inspector of that recording, and its terminal, whose characters are 8 x 16 pixels."""
    child, terminal = pty.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in ENDING_SIGNALS:  # not those of whoever runs the tests
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(TERM=term, COLORTERM="truecolor")
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 80 * 8, 24 * 16))
        os.execv(sys.executable, [sys.executable, "-m", "attnviz", "browse", str(path)])
    return child, terminal


@pytest.mark.parametrize("ending", ["early SIGHUP", "early SIGTERM", "late SIGTERM", "late SIGQUIT", "q"])
def test_terminal_is_given_back_however_it_ends(recording: Recording, tmp_path: Path, ending: str) -> None:
    path = tmp_path / "run.safetensors"
    save(recording, path)
    child, terminal = started(path)
    before = termios.tcgetattr(terminal)
    written = read_until(terminal, b"q quit")
    assert ENTER_SCREEN.encode() in written
    if not ending.startswith("early"):
        written += read_until(terminal, FOOTER)
    number = 0 if ending == "q" else getattr(signal, ending.split()[1])
    os.kill(child, number) if number else os.write(terminal, b"\xff\xc3q")  # bytes that are no UTF-8 are no keys
    written += read_until(terminal, b"never written")
    _, status = os.waitpid(child, 0)
    assert b"\x1b[?1049l" in written
    assert b"\x1b[?25h" in written
    assert written.rfind(b"\x1b[?1000l") >= written.rfind(b"\x1b[?1000h")
    assert b"Traceback" not in written
    assert termios.tcgetattr(terminal)[3] == before[3]
    assert os.waitstatus_to_exitcode(status) == -number
    os.close(terminal)


@pytest.mark.parametrize(
    ("term", "answer", "drawn"),
    [
        ("xterm-kitty", b"", b"\x1b_Ga=T,"),
        ("xterm-256color", b"\x1b[?62;4;22c", b'\x1bP0;1;0q"1;1;'),
        ("xterm-256color", b"\x1b[?62;22c", b""),
    ],
)
def test_pixels_are_drawn_where_the_terminal_says_it_has_them(
    recording: Recording, tmp_path: Path, term: str, answer: bytes, drawn: bytes
) -> None:
    path = tmp_path / "run.safetensors"
    save(recording, path)
    child, terminal = started(path, term)
    written = read_until(terminal, b"\x1b[c")
    os.write(terminal, answer)
    written += read_until(terminal, drawn or FOOTER)
    os.write(terminal, b"q")
    written += read_until(terminal, b"never written")
    os.waitpid(child, 0)
    os.close(terminal)
    if drawn:
        assert drawn in written
    else:
        assert not any(introduced in written for introduced in (b"\x1b_G", b"\x1bP"))


def test_enter_typed_at_the_first_screen_opens_a_head(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    save(recording, path)
    child, terminal = started(path)
    read_until(terminal, b"q quit")
    os.write(terminal, b"\r")
    assert b"zoom" in read_until(terminal, b"zoom")
    os.write(terminal, b"q")
    read_until(terminal, b"never written")
    os.waitpid(child, 0)
    os.close(terminal)


def test_it_ends_when_its_terminal_has_gone(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    save(recording, path)
    child, terminal = started(path)
    read_until(terminal, b"q quit")
    read_until(terminal, FOOTER)
    os.close(terminal)
    deadline = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == -signal.SIGHUP
