import io
import os
import pty
import signal
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from attnviz.browse.first_screen import ENTER_SCREEN, first_screen
from attnviz.browse.session import Session
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save


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


def read_until(terminal: int, sought: bytes, seconds: float = 20) -> bytes:
    written, end = b"", time.monotonic() + seconds
    while sought not in written and time.monotonic() < end:
        try:
            written += os.read(terminal, 65_536)
        except OSError:  # how Linux says that the other end is closed
            break
    return written


@pytest.mark.parametrize("ending", ["early", "late", "q"])
def test_terminal_is_given_back_however_it_ends(recording: Recording, tmp_path: Path, ending: str) -> None:
    path = tmp_path / "run.safetensors"
    save(recording, path)
    child, terminal = pty.fork()
    if not child:
        os.environ.update(TERM="xterm-256color")
        termios.tcsetwinsize(0, (24, 80))
        os.execv(sys.executable, [sys.executable, "-m", "attnviz", "browse", str(path)])
    before = termios.tcgetattr(terminal)
    written = read_until(terminal, b"q quits")
    assert ENTER_SCREEN.encode() in written
    if ending != "early":
        written += read_until(terminal, b"q quits")
    os.write(terminal, b"q") if ending == "q" else os.kill(child, signal.SIGTERM)
    written += read_until(terminal, b"never written")
    _, status = os.waitpid(child, 0)
    assert b"\x1b[?1049l" in written
    assert b"\x1b[?25h" in written
    assert termios.tcgetattr(terminal)[3] == before[3]
    assert os.waitstatus_to_exitcode(status) == (0 if ending == "q" else 128 + signal.SIGTERM)
    os.close(terminal)
