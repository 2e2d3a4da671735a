"""Starts the full-screen inspector on a recording or on a survey."""

import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from attnviz.base.errors import AttnvizError
from attnviz.base.signals import SIGNAL_EXIT_BASE
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.browse.session.session import Session
    from attnviz.browse.survey.app import OpenedText
    from attnviz.browse.survey.listing import SurveyView
    from attnviz.metrics.head_frame import HeadFrame


def refuse_browse() -> None:
    """Raises AttnvizError if there is no terminal or no textual; called before any long work."""
    if find_spec("textual") is None:
        raise AttnvizError("browse needs textual; install it: pip install 'attnviz[browse]'")
    if os.name != "posix":
        raise AttnvizError("browse needs a POSIX terminal; use WSL, or attnviz show")
    streams = sys.stdout, sys.stderr
    if not all(stream is not None and stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        raise AttnvizError(
            "browse needs a terminal; use attnviz show, which writes to pipes and, with -o FILE, to files"
        )


def browse(
    recording: Recording,
    other: Recording | None,
    selection: Selection,
    look: Look,
    file: Path | None = None,
    at: str | None = None,
    grouping: Grouping | None = None,
) -> int:
    """Shows a recording until the user quits.

    Args:
        recording: the recording.
        other: a recording to compare it with, of the same heads, queries and keys; ``None`` for no comparison.
        selection: the heads to show, and the queries and keys at which a head opens.
        look: the theme and colours, and how saved pictures are drawn.
        file: the file of the recording, for the command that draws the screen; ``None`` if it is not saved.
        at: the address of the first place; ``None`` for the overview.
        grouping: the units that tokens are joined to from the start; ``None`` leaves tokens single, and ``w`` joins
            words.

    Returns:
        The exit code.

    Raises:
        AttnvizError: if the two recordings do not correspond, there is no such place, or there is no terminal for
            the keys.
    """
    from attnviz.browse.first_screen import early_screen
    from attnviz.browse.process.terminal import tolerated_terminal
    from attnviz.browse.session.session import Session
    from attnviz.browse.session.state import Theme
    from attnviz.report.picture.colors import SEQUENTIAL

    theme: Theme = {"light": "light", "dark": "dark"}.get(look.theme or "", "terminal")  # type: ignore[assignment]
    saved = "" if file is None else str(file)
    added = _added(look, recording)
    joined = None if grouping is None else _joined_units(recording, grouping)
    session = Session(
        recording,
        other,
        selection,
        saved,
        at or "",
        theme,
        look.cmap or SEQUENTIAL,
        added,
        by="words" if joined is None else joined,
        begins_joined=joined is not None,
    )
    _refuse_place(session)
    _take_keys_from_terminal()
    ascii = look.ascii or not can_draw(sys.stderr)
    with tolerated_terminal(), early_screen(session, ascii):
        from attnviz.browse.app import Browser
        from attnviz.browse.save import save_picture

        browser = Browser(session, lambda screen, state, path: save_picture(screen, state, path, look), ascii)
        browser.run()
    return _ended(browser.return_code or 0)


def _joined_units(recording: Recording, grouping: Grouping) -> str | None:
    """Returns the name of the units that tokens are joined to from the start; ``None`` for single tokens.

    Raises:
        AttnvizError: if the recording has no such units.
    """
    from attnviz.maps.grouped import refuse_missing_units

    refuse_missing_units(recording.maps, grouping)
    return None if grouping.units == "tokens" else grouping.units


def _added(look: Look, recording: Recording) -> "tuple[HeadFrame, ...]":
    """Returns the effects in the file that the look names, or none.

    Raises:
        AttnvizError: if the file holds no effects of these heads.
    """
    if look.effects is None:
        return ()
    from attnviz.report.heads.added_numbers import read_effects

    heads = {(maps.layer, head) for maps in recording.maps for head in maps.heads}
    return (read_effects(look.effects, heads).frame,)


def browse_survey(
    view: "SurveyView", look: Look, file: Path, record: Callable[[str], Recording], line: int | None = None
) -> "tuple[OpenedText | None, int]":
    """Shows a survey until the user quits or opens one of its texts.

    Args:
        view: the survey, with the first order and filter of its heads.
        look: how saved pictures are drawn.
        file: the file of the survey, for the command that draws the screen.
        record: runs the surveyed model over a text.
        line: the line of the list whose head is opened first; ``None`` opens none.

    Returns:
        The text to open, ``None`` if the user quit, and the exit code.

    Raises:
        AttnvizError: if there is no terminal for the keys.
    """
    from attnviz.browse.process.terminal import tolerated_terminal
    from attnviz.browse.survey.app import SurveyBrowser

    _take_keys_from_terminal()
    with tolerated_terminal():
        browser = SurveyBrowser(view, str(file), record, look, line)
        opened = browser.run()
    return opened, _ended(browser.return_code or 0)


def _ended(code: int) -> int:
    """Returns the exit code of an application; if a signal ended it, raises the signal again for this process."""
    if code > SIGNAL_EXIT_BASE:
        signal.raise_signal(code - SIGNAL_EXIT_BASE)
    return code


def _refuse_place(session: "Session") -> None:
    """Raises AttnvizError if the first place does not exist in the recording."""
    if session.at:
        from attnviz.browse.moves.cursor import Screen
        from attnviz.browse.moves.place import start_state
        from attnviz.browse.session.state import Size

        start_state(Screen(session, Size(80, 24), 0))


def can_draw(terminal: TextIO) -> bool:
    """True if the terminal's encoding has the half blocks that thumbnails are drawn with."""
    try:
        "▀".encode(terminal.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _take_keys_from_terminal() -> None:
    """Makes the terminal the standard input if the text came through a pipe.

    Raises:
        AttnvizError: if there is no terminal.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise AttnvizError("browse needs a terminal for its keys; use attnviz show") from error
    os.dup2(terminal, 0)
    os.close(terminal)
