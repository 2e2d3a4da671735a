"""The full-screen inspector: all heads of a recording, one of them, and every cell of it."""

import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from attnviz.base.errors import AttnvizError
from attnviz.base.signals import SIGNALLED
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.browse.session.session import Session
    from attnviz.browse.survey.app import OpenedText
    from attnviz.browse.survey.listing import SurveyView
    from attnviz.metrics.head_frame import HeadFrame


def refuse_browse() -> None:
    """Raises AttnvizError where nothing full-screen can be shown, before any work is done."""
    if find_spec("textual") is None:
        raise AttnvizError("browse needs textual; pip install 'attnviz[browse]' adds it")
    if os.name != "posix":
        raise AttnvizError("browse needs a POSIX terminal; WSL has one, and attnviz show works anywhere")
    streams = sys.stdout, sys.stderr
    if not all(stream is not None and stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        raise AttnvizError("browse needs a terminal; attnviz show writes to a pipe, and to a file with -o FILE")


def browse(
    recording: Recording,
    other: Recording | None,
    selection: Selection,
    look: Look,
    file: Path | None = None,
    at: str | None = None,
    grouping: Grouping | None = None,
) -> int:
    """Shows the recording until the user quits, and returns the exit code.

    Args:
        recording: what is shown.
        other: what it may be compared with, of the same heads, queries and keys.
        selection: the heads to show.
        look: that of saved pictures.
        file: where the recording is saved, for the command that draws it.
        at: the place that is shown first.
        grouping: which units tokens are joined to; ``None`` for words, once a key is pressed.

    Raises:
        AttnvizError: if the two do not correspond, there is no such place, or there is no terminal for the keys.
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
    """The units that tokens are joined to from the beginning; ``None`` for tokens by themselves.

    Raises:
        AttnvizError: if the recording has no such units.
    """
    from attnviz.maps.grouped import refuse_missing_units

    refuse_missing_units(recording.maps, grouping)
    return None if grouping.units == "tokens" else grouping.units


def _added(look: Look, recording: Recording) -> "tuple[HeadFrame, ...]":
    """The effects of heads that the look names a file of.

    Raises:
        AttnvizError: for a file that holds no effects of these heads.
    """
    if look.effects is None:
        return ()
    from attnviz.report.heads.added_numbers import read_effects

    heads = {(maps.layer, head) for maps in recording.maps for head in maps.heads}
    return (read_effects(look.effects, heads).frame,)


def browse_survey(
    view: "SurveyView", look: Look, file: Path, record: Callable[[str], Recording], line: int | None = None
) -> "tuple[OpenedText | None, int]":
    """Shows a survey until the user quits or opens one of its texts: that text, and the exit code.

    Args:
        view: the survey, as it is looked at first.
        look: that of saved pictures.
        file: where it is saved, for the commands that draw it.
        record: runs the surveyed model over a text.
        line: of the list, whose head is opened first; ``None`` opens none.

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
    """The exit code of an application; a signal that ended it may now do what it does to every process."""
    if code > SIGNALLED:
        signal.raise_signal(code - SIGNALLED)
    return code


def _refuse_place(session: "Session") -> None:
    """Raises AttnvizError where the place that is to be shown first is none."""
    if session.at:
        from attnviz.browse.moves.cursor import Screen
        from attnviz.browse.moves.place import start_state
        from attnviz.browse.session.state import Size

        start_state(Screen(session, Size(80, 24), 0))


def can_draw(terminal: TextIO) -> bool:
    """Whether the terminal's encoding has the blocks that thumbnails are drawn with."""
    try:
        "▀".encode(terminal.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _take_keys_from_terminal() -> None:
    """Where the text came through a pipe, standard input becomes the terminal itself."""
    if sys.stdin is not None and sys.stdin.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise AttnvizError("browse needs a terminal for its keys; attnviz show needs none") from error
    os.dup2(terminal, 0)
    os.close(terminal)
