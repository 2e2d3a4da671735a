"""Fuzzes the inspector: keys, clicks, pastes and sizes in any order, and bytes that a terminal may send."""

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser
from textual.pilot import Pilot

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import Screen, first_state, settle
from attnviz.browse.actions.keys import BY_KEY, press
from attnviz.browse.app import Browser
from attnviz.browse.process.terminal import KeyDecoder
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.recording import Recording
from fuzzing.command_line import refuse_obeyed
from fuzzing.target import Target
from tests.browse.examples import long_recording, other_recording, shown_text, wide_recording, worded_recording
from tests.browse.player import strips
from tests.conftest import LAYERS, dense_maps

KEYS = sorted({*BY_KEY, "escape", "x", "f1", "ctrl+d", "�"})
RECORDINGS: dict[str, Callable[[], tuple[Recording, Recording | None]]] = {
    "two": lambda: (Recording(maps=tuple(dense_maps(n) for n in range(LAYERS)), model="a"), other_recording()),
    "words": lambda: (worded_recording(), None),
    "wide": lambda: (wide_recording(3, 5, 40), None),
    "one": lambda: (wide_recording(1, 1, 1), None),
    "long": lambda: (long_recording(600), None),
}
SEQUENCES = (
    *(b"\x1b[A", b"\x1b[B", b"\x1b[1;2C", b"\r", b"\x1b", b"\x1b[200~", b"\x1b[201~", b"\x1b[<0;9;9M"),
    *(b"\x1b[<64;1;1M", b"\xff", b"\xc3", b"\xf0\x9f", b"\x1b[", b"\x1b]0;", b"\x1b[?2026;2$y"),
    *(b"\x1b[48;24;80;480;800t", b"\x00", b"\x1b[I", b"\x1b[O", b"\x1b[97;5u", b"\x1b[99999999999999999999u"),
    *(b"\x1b[<9999999;0;0m", b"s/", b"?", b"o"),
)
SIZES = st.tuples(st.integers(1, 200), st.integers(1, 60))

key_cases = st.tuples(
    st.sampled_from(sorted(RECORDINGS)), SIZES, st.lists(st.one_of(st.sampled_from(KEYS), SIZES), max_size=30)
)
sent = st.lists(st.one_of(st.sampled_from(SEQUENCES), st.binary(max_size=6), st.sampled_from(KEYS)), max_size=25)
byte_cases = st.tuples(st.sampled_from(("two", "words", "one")), SIZES, sent)


@cache
def recordings(name: str) -> tuple[Recording, Recording | None]:
    """Returns the recording to inspect and one to compare it with."""
    return RECORDINGS[name]()


def attempt_keys(case: tuple[str, tuple[int, int], list[str | tuple[int, int]]]) -> None:
    """Presses the keys and checks the screen after each."""
    name, size, steps = case
    screen = Screen(Session(*recordings(name)), Size(*size), colors=256)
    state = first_state(screen)
    for step in steps:
        if isinstance(step, tuple):
            screen = Screen(screen.session, Size(*step), colors=256)
            state = settle(screen, state) if screen.size.is_large_enough else state  # as the inspector does
        else:
            state = press(screen, state, step)
        refuse_screen(screen, state)


def refuse_screen(screen: Screen, state: State) -> None:
    """Raises AssertionError if a line of the screen holds terminal controls."""
    if screen.size.is_large_enough:
        refuse_obeyed(shown_text(screen, state), "the screen")


def attempt_bytes(case: tuple[str, tuple[int, int], list[bytes | str]]) -> None:
    """Sends bytes to the inspector through the parser that it uses for a terminal."""
    name, size, parts = case
    browser = Browser(Session(*recordings(name)), refuse_save)

    async def play() -> None:
        async with browser.run_test(size=size) as pilot:
            for event in sent_events(parts):
                browser.post_message(event)
                await settled(pilot)
                if not browser.is_running:
                    break
            assert {strip.cell_length for strip in strips(browser)} <= {size[0]}

    asyncio.run(play())


async def settled(pilot: "Pilot[int]") -> None:
    """When the event has been answered."""
    await pilot.pause(0)


def sent_events(parts: list[bytes | str]) -> list[events.Event]:
    """Returns the events that textual makes of bytes and keys."""
    decoder, parser = KeyDecoder(lambda: None), XTermParser(False)
    key_events: list[events.Event] = []
    for part in parts:
        if isinstance(part, str):
            key_events.append(events.Key(part, part if len(part) == 1 else None))
        elif text := decoder.decode(part):  # no text at all would end the parser
            key_events += [event for event in parser.feed(text) if isinstance(event, events.Event)]
    return [event for event in key_events if isinstance(event, events.Key | events.Paste)]


def refuse_save(screen: Screen, state: State, path: Path, size: str | None) -> NoReturn:
    """Raises AttnvizError instead of writing, since the typed path may be any."""
    raise AttnvizError("nothing is saved here")


TARGETS = (Target("keys", key_cases, attempt_keys), Target("bytes", byte_cases, attempt_bytes))
