"""The inspector played by keys, and how long each takes."""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from textual import app as app_module
from textual import events
from textual import pilot as pilot_module
from textual.app import App
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.app import Browser
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.browse.view.graphics import Protocol
from attnviz.maps.recording import Recording
from tests.patience import PATIENCE

Play = Callable[["Pilot[int]", Browser], Coroutine[Any, Any, None]]
Application = TypeVar("Application", bound=App[Any])
FRAMES = 2  # that are drawn after a key: the second one has what is called after the first
CHARACTER = 8, 16  # width and height in pixels
KEYS = [*"pp", "plus", "down", "right", "end", "home", "enter", "down", "right", "plus", "plus", "plus", "plus"]
KEYS += ["down", "right", "g", "tab", *"vvlcw", "minus", "0", "x", "escape", "c", "down"]


def no_save(screen: Screen, state: State, path: Path, size: str | None) -> None:
    raise AttnvizError("nothing is saved here")


def played(
    recording: Recording,
    play: Play,
    size: tuple[int, int] = (80, 24),
    other: Recording | None = None,
    save: Callable[[Screen, State, Path, str | None], None] = no_save,
    protocol: Protocol | None = None,
) -> Browser:
    """The inspector after ``play`` has pressed its keys, on a terminal that draws pixels where a protocol is given."""
    browser = Browser(Session(recording, other), save)
    browser.protocol = protocol
    browser.character_size = lambda: CHARACTER  # type: ignore[method-assign]
    return after_play(browser, play, size)


def shown(browser: "App[Any]") -> str:
    """What is on the screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in strips(browser))


def strips(browser: "App[Any]") -> list[Strip]:
    """The lines of the screen, as textual sends them."""
    return browser.screen._compositor.render_strips()


async def until(pilot: "Pilot[Any]", holds: Callable[[], bool]) -> None:
    """Waits until work aside has made something true."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        await pilot.pause(0.02)


def after_play(
    browser: Application, play: Callable[["Pilot[Any]", Application], Coroutine[Any, Any, None]], size: tuple[int, int]
) -> Application:
    """The application after ``play`` has pressed its keys in a terminal of this size."""

    async def answer_all(*seconds: float) -> None:
        """Waits until nothing is left to do but what a timer or a thread brings."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(FRAMES):
            browser.screen._on_timer_update()
            await asyncio.sleep(0)
            while ready:
                await asyncio.sleep(0)

    async def run() -> None:
        async with browser.run_test(size=size) as pilot:
            await pilot.pause()
            await play(pilot, browser)

    with pytest.MonkeyPatch.context() as patch:  # textual asks the processor, which is idle on a busy machine, too
        for module in (pilot_module, app_module):
            patch.setattr(module, "wait_for_idle", answer_all)
        asyncio.run(run())
    return browser


def key_times(
    recording: Recording,
    keys: list[str],
    size: tuple[int, int] = (120, 40),
    clock: Callable[[], float] = time.process_time,
    protocol: Protocol | None = None,
) -> dict[str, float]:
    """Seconds from each key to its picture, by the key's place and name."""
    times: dict[str, float] = {}

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        painted = asyncio.Event()
        show = browser.show

        paint = browser.canvas.render_lines

        def show_and_note(state: State) -> None:
            before = browser.canvas.drawn.lines
            show(state)
            if browser.canvas.drawn.lines == before:
                painted.set()

        def paint_and_note(crop: Region) -> list[Strip]:
            painted.set()
            return paint(crop)

        browser.show = show_and_note  # type: ignore[method-assign]
        browser.canvas.render_lines = paint_and_note  # type: ignore[method-assign]
        gc.collect()
        gc.freeze()  # as the application does where it has a terminal
        for number, key in enumerate(keys):
            painted.clear()
            start = clock()
            browser.post_message(events.Key(key, key if len(key) == 1 else None))
            await asyncio.wait_for(painted.wait(), timeout=PATIENCE)
            times[f"{number} {key}"] = clock() - start

    try:
        played(recording, play, size, protocol=protocol)
    finally:
        gc.unfreeze()
    return times
