"""Starts the full-screen inspector on a recording or on a survey."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from attnviz.base.errors import AttnvizError, install
from attnviz.base.signals import SIGNAL_EXIT_BASE
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.browse.survey.app import OpenedText
    from attnviz.browse.survey.listing import SurveyView
    from attnviz.metrics.head_frame import HeadFrame
    from attnviz.report.words.notes import HeadNames


def refuse_browse() -> None:
    """Raises AttnvizError if the inspector cannot run: without textual, outside POSIX, or without a terminal.

    Both standard output and standard error must be a terminal, and ``TERM`` must not be ``dumb``. Callers check this
    before they run a model, which takes long.
    """
    if find_spec("textual") is None:
        raise AttnvizError(f"browse needs textual; run {install('browse')}")
    if os.name != "posix":
        raise AttnvizError("browse needs a POSIX terminal; use WSL, or attnviz show")
    draws_here, draws_errors_here = (stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    if draws_here and not draws_errors_here:
        raise AttnvizError("browse draws on standard error too, and it is redirected; leave out 2>")
    if not draws_here or os.environ.get("TERM") == "dumb":
        raise AttnvizError(
            "browse needs a terminal; use attnviz show, which writes to pipes and, with -o FILE, to files"
        )


def browse(
    recording: Recording,
    other: Recording | None,
    selection: Selection,
    look: Look,
    file: Path | None = None,
    address: str | None = None,
    grouping: Grouping | None = None,
) -> int:
    """Shows a recording in the full-screen inspector until the user quits.

    Returns:
        The exit code.
    """
    from attnviz.browse.actions.cursor import Screen
    from attnviz.browse.actions.visited import start_state
    from attnviz.browse.first_screen import early_screen
    from attnviz.browse.process.terminal import tolerated_terminal
    from attnviz.browse.session.session import Session
    from attnviz.browse.session.state import Size, State, Theme
    from attnviz.maps.grouped import has_few_turns, refuse_missing_units
    from attnviz.report.picture.colors import SEQUENTIAL
    from attnviz.text.groups import WORDS
    from attnviz.text.named_groups import TOKENS, TURNS

    theme: Theme = {"light": "light", "dark": "dark"}.get(look.theme or "", "terminal")  # type: ignore[assignment]
    grouping = grouping or Grouping()
    refuse_missing_units(recording.maps, grouping)
    unit_name, begins_joined = grouping.units, grouping.units != TOKENS
    if not begins_joined:
        is_chat = grouping.by is None and has_few_turns(recording.maps, least=2)
        unit_name = TURNS if is_chat else WORDS
        # A chat opens by turns, as its page does, unless the user names a part of it or a place, which are of tokens.
        # With a picture it opens as a picture.
        opens_whole = selection.queries == selection.keys == (None, None) and not address
        has_turns = all(maps.quantity == "weight" and not maps.key_tokens.image_indices for maps in recording.maps)
        begins_joined = is_chat and opens_whole and has_turns
    effect_frames: tuple[HeadFrame, ...] = ()
    if look.effects is not None:
        from attnviz.report.heads.head_numbers import read_effects

        heads = {maps.known_head(head).name for maps in recording.maps for head in maps.heads}
        effect_frames = (read_effects(look.effects, heads).frame,)
    session = Session(
        recording,
        other,
        selection,
        "" if file is None else str(file),
        address or "",
        theme,
        look.cmap or SEQUENTIAL,
        effect_frames,
        unit_name=unit_name,
        begins_joined=begins_joined,
        given_names=names_to_begin_with(look),
        names_file=look.names or "",
    )
    if session.address:  # refused before the terminal is taken, if it is not a place in the recording
        any_size, colors = Size(80, 24), 0  # neither changes which addresses are refused
        start_state(Screen(session, any_size, colors))
    _take_keys_from_terminal()
    uses_ascii = look.ascii or not has_half_blocks(sys.stderr)
    with tolerated_terminal(), early_screen(session, uses_ascii):
        from attnviz.browse.app import Browser
        from attnviz.browse.save import save_picture

        def save(screen: Screen, state: State, path: Path, size: str | None) -> None:
            save_picture(screen, state, path, replace(look, size=size or look.size))

        browser = Browser(session, save, uses_ascii)
        browser.run()
    return _exit_code(browser.return_code or 0)


def names_to_begin_with(look: Look) -> "HeadNames":
    """Returns the names of heads in the look's file of names; an empty mapping if there is no such file."""
    from attnviz.report.words.notes import read_names

    return read_names(look.names) if look.names is not None and Path(look.names).exists() else {}


def browse_survey(
    view: "SurveyView", look: Look, file: Path, record: Callable[[str], Recording], line: int | None = None
) -> "tuple[OpenedText | None, int]":
    """Shows a survey until the user quits or opens one of its examples.

    Returns:
        The example to open, or ``None`` if the user quit; and the exit code.
    """
    from attnviz.browse.process.terminal import tolerated_terminal
    from attnviz.browse.survey.app import SurveyBrowser

    _take_keys_from_terminal()
    with tolerated_terminal():
        browser = SurveyBrowser(view, str(file), record, look, line)
        opened_text = browser.run()
    return opened_text, _exit_code(browser.return_code or 0)


def _exit_code(return_code: int) -> int:
    """Returns the exit code of an application that returned ``return_code``."""
    if return_code > SIGNAL_EXIT_BASE:
        signal.raise_signal(return_code - SIGNAL_EXIT_BASE)
    return return_code


def has_half_blocks(terminal: TextIO) -> bool:
    """True if the terminal's encoding has the half block ``▀``, the character that thumbnails are drawn with."""
    try:
        "▀".encode(terminal.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _take_keys_from_terminal() -> None:
    """Replaces the standard input by the terminal, unless the standard input is a terminal already."""
    if sys.stdin is not None and sys.stdin.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise AttnvizError("browse needs a terminal for its keys; use attnviz show") from error
    os.dup2(terminal, 0)  # 0 is the standard input
    os.close(terminal)
