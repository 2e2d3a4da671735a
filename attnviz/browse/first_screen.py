"""Draws the first screen before textual is imported, since the import takes longer than the drawing."""

import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.color import ColorSystem
from rich.console import Console

from attnviz.base.errors import AttnvizError
from attnviz.base.signals import cleanup_on_signals
from attnviz.browse.drawing.draw import draw_screen
from attnviz.browse.drawing.pixels import COLORS, style_of
from attnviz.browse.moves.cursor import Screen, first_state
from attnviz.browse.moves.layout import tiles
from attnviz.browse.process.terminal import ASK_ATTRIBUTES
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.render.terminal.lines import Line

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H"  # the alternate screen, without a cursor
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
# Switches off every mode that textual may have switched on: key and paste escapes, mouse, focus, sizes, frames.
ASK_NOTHING = "\x1b[<u" + "".join(f"\x1b[?{mode}l" for mode in (1000, 1003, 1004, 1006, 1015, 1016, 2004, 2026, 2048))
ASK_NOTHING += "\x1b[?7h"
MAX_THUMBNAIL_SECONDS = 0.1  # of work before the first screen: no delay that a user feels
SYSTEMS = {"truecolor": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "standard": ColorSystem.STANDARD}


@contextmanager
def early_screen(session: Session, ascii: bool) -> Iterator[None]:
    """Shows the overview until textual draws, and restores the terminal afterwards, whatever happens.

    Raises:
        AttnvizError: if the terminal is closed.
    """
    terminal = sys.__stderr__
    assert terminal is not None
    try:
        before = termios.tcgetattr(0)
    except termios.error as error:
        raise AttnvizError("browse needs a terminal, and this one is closed") from error

    def give_back() -> None:
        """Restores the terminal; writes to the descriptor, since a signal may interrupt a write to the stream."""
        with suppress(OSError):
            os.write(terminal.fileno(), (ASK_NOTHING + LEAVE_SCREEN).encode())
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)

    stopped = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # only textual can suspend: it restores the screen first
    with cleanup_on_signals(give_back):
        try:
            tty.setcbreak(0, termios.TCSANOW)  # keys are not echoed, and wait for textual
            size = os.get_terminal_size(terminal.fileno())
            terminal.write(ENTER_SCREEN + first_screen(session, Console(file=terminal), size, ascii) + ASK_ATTRIBUTES)
            terminal.flush()
            yield
        except BaseException:
            give_back()
            raise
        finally:
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, before)
            signal.signal(signal.SIGTSTP, stopped)


def first_screen(session: Session, console: Console, size: tuple[int, int], ascii: bool) -> str:
    """Returns the text that draws the first screen, with as many thumbnails as ``MAX_THUMBNAIL_SECONDS`` allow.

    Args:
        session: the recording.
        console: the terminal's colours.
        size: columns and lines.
        ascii: draw with ASCII characters only.
    """
    name = None if ascii or console.no_color else console.color_system
    screen = Screen(session, Size(*size), COLORS.get(name or "", 0))
    state = _start_state(screen) if session.at else first_state(screen)
    if screen.size.enough and not state.opened and not state.lens:
        grid = tiles(session, state, screen.size)
        end = time.monotonic() + MAX_THUMBNAIL_SECONDS
        while time.monotonic() < end and session.thumbnails.compute(grid.on_screen(0), state.view, grid.pixels):
            pass
    return "\r\n".join(encoded(line, SYSTEMS.get(name or "")) for line in draw_screen(screen, state, ascii))


def _start_state(screen: Screen) -> State:
    from attnviz.browse.moves.place import start_state

    return start_state(screen)


def encoded(line: Line, system: ColorSystem | None) -> str:
    """Returns a line with the escape sequences of its styles."""
    return "".join(
        style_of(span.ink, span.paper, span.style).render(span.text, color_system=system) if system else span.text
        for span in line
    )
