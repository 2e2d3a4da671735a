"""Draws the first screen before textual is imported (importing takes longer)."""

import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.color import ColorSystem
from rich.console import Console

from attnviz.browse.cursor import Screen, first_state
from attnviz.browse.layout import tiles
from attnviz.browse.pixels import COLORS, style_of
from attnviz.browse.screen import draw_screen
from attnviz.browse.session import Session
from attnviz.browse.state import Size
from attnviz.render.terminal.lines import Line

ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H", "\x1b[?25h\x1b[?1049l"  # the other screen, without a cursor
MAX_THUMBNAIL_SECONDS = 0.1  # seconds
SYSTEMS = {"truecolor": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "standard": ColorSystem.STANDARD}


@contextmanager
def early_screen(session: Session, ascii: bool) -> Iterator[None]:
    """The overview on the terminal until something else draws there; whatever happens, all is as it was after."""
    terminal = sys.__stderr__
    assert terminal is not None
    before = termios.tcgetattr(0)
    ended = signal.signal(signal.SIGTERM, _end)
    try:
        tty.setcbreak(0, termios.TCSANOW)  # a key pressed now is not echoed, and waits for textual
        size = os.get_terminal_size(terminal.fileno())
        terminal.write(ENTER_SCREEN + first_screen(session, Console(file=terminal), size, ascii))
        terminal.flush()
        yield
    except BaseException:
        terminal.write(LEAVE_SCREEN)
        terminal.flush()
        raise
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)
        signal.signal(signal.SIGTERM, ended)


def first_screen(session: Session, console: Console, size: tuple[int, int], ascii: bool) -> str:
    """The overview, with thumbnails where that takes no time that is felt, as the terminal takes it."""
    name = None if ascii or console.no_color else console.color_system
    screen = Screen(session, Size(*size), COLORS.get(name or "", 0))
    state = first_state(screen)
    if screen.size.enough and not state.opened:
        grid = tiles(session, state, screen.size)
        end = time.monotonic() + MAX_THUMBNAIL_SECONDS
        while time.monotonic() < end and session.compute_thumbnails(grid.on_screen(0), state.view, grid.pixels):
            pass
    return "\r\n".join(encoded(line, SYSTEMS.get(name or "")) for line in draw_screen(screen, state, ascii))


def encoded(line: Line, system: ColorSystem | None) -> str:
    """A line with its escapes."""
    return "".join(
        style_of(span.ink, span.paper, span.style).render(span.text, color_system=system) if system else span.text
        for span in line
    )


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
