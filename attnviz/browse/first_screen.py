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
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import ANSI_COLORS, tiles
from attnviz.browse.actions.visited import start_state
from attnviz.browse.process.terminal import ASK_ATTRIBUTES
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size
from attnviz.browse.view.cells import COLORS
from attnviz.browse.view.parts import padded_line, styled, words
from attnviz.browse.view.screen import whole

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H"  # switches to the alternate screen and hides the cursor
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
# Resets every mode that textual may have set: key and paste escapes, mouse, focus, sizes, frames.
RESET_MODES = "\x1b[<u" + "".join(f"\x1b[?{mode}l" for mode in (1000, 1003, 1004, 1006, 1015, 1016, 2004, 2026, 2048))
RESET_MODES += "\x1b[?7h"
MAX_THUMBNAIL_SECONDS = 0.1  # of work before the first screen; users do not notice the delay
COLOR_SYSTEMS = {"truecolor": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "standard": ColorSystem.STANDARD}


@contextmanager
def early_screen(session: Session, ascii: bool) -> Iterator[None]:
    """Shows the first screen until textual draws; restores the terminal's mode at the end of the block.

    After an exception or a signal it also leaves the alternate screen. Ctrl-Z is ignored until textual starts.
    """
    terminal = sys.__stderr__
    assert terminal is not None
    try:
        terminal_mode = termios.tcgetattr(0)
    except termios.error as error:
        raise AttnvizError("browse needs a terminal, and this one is closed; run it in another") from error

    def restore_terminal() -> None:
        """Leaves the alternate screen and restores the terminal's modes."""
        with suppress(OSError):
            os.write(terminal.fileno(), (RESET_MODES + LEAVE_SCREEN).encode())
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, terminal_mode)

    suspend_handler = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # textual suspends, after it restores the screen
    with cleanup_on_signals(restore_terminal):
        try:
            tty.setcbreak(0, termios.TCSANOW)  # without echo, so that keys wait for textual
            modes = termios.tcgetattr(0)
            modes[0] &= ~termios.ICRNL  # an Enter that waits stays Enter and becomes no line feed
            termios.tcsetattr(0, termios.TCSANOW, modes)
            size = os.get_terminal_size(terminal.fileno())
            terminal.write(ENTER_SCREEN + first_screen(session, Console(file=terminal), size, ascii) + ASK_ATTRIBUTES)
            terminal.flush()
            yield
        except BaseException:
            restore_terminal()
            raise
        finally:
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, terminal_mode)
            signal.signal(signal.SIGTSTP, suspend_handler)


def first_screen(session: Session, console: Console, size: tuple[int, int], ascii: bool) -> str:
    """Returns the first screen as text with escape sequences.

    In the overview, first computes missing thumbnails, for about ``MAX_THUMBNAIL_SECONDS`` at most.
    """
    color_system = None if ascii or console.no_color else console.color_system
    screen_size = Size(*size, text_lines=session.text_lines(size[0]), has_images=session.has_images)
    screen = Screen(session, screen_size, COLORS.get(color_system or "", 0))
    state = start_state(screen)
    if not screen.size.is_large_enough:
        return ""
    if not state.has_open_head and not state.lens:
        grid = tiles(session, state, screen.size)
        shown_heads, deadline = grid.on_screen(top=0), time.monotonic() + MAX_THUMBNAIL_SECONDS
        while time.monotonic() < deadline and session.thumbnails.compute(shown_heads, state.view, grid.pixels):
            pass
    drawn, _ = whole(screen, state)
    theme = state.theme if screen.colors > ANSI_COLORS else "terminal"
    system = COLOR_SYSTEMS.get(color_system or "")
    return "\r\n".join(
        "".join(
            style.render(text, color_system=system) if system else text
            for text, style in styled(padded_line(line, screen.size.width), theme, ascii)
        )
        for line in (*drawn.lines[:-1], [words("? keys q quit", style="dim")])
    )
