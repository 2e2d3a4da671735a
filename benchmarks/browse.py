"""Measures how fast the inspector starts, against drawing the same recording, and how fast it answers a key."""

import os
import pty
import sys
import tempfile
import termios
import time
from pathlib import Path
from statistics import median

from attnviz.browse.view.graphics import Protocol
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from benchmarks.timing import Pair, report
from tests.browse.examples import long_recording, wide_recording
from tests.browse.player import KEYS, key_times

LIMIT = 0.1  # seconds to answer a key
LIMITS = {"processor": 0.05, "clock": 0.15}  # seconds to answer a key on a long map
LONG = (8192, 32_768)  # tokens
RUNS = 9
SIZES = ((1, 4, 12), (6, 12, 40), (12, 12, 512))
LAST_WORD = b"q quit"  # of the first screen, and of the picture no word at all


def main() -> None:
    """Prints the ratio for recordings of several sizes, and the slowest key."""
    os.environ["COLORTERM"] = "truecolor"  # most terminals have it; with 16 colours a map is drawn in shades
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        for layers, heads, tokens in SIZES:
            path = Path(folder) / f"{layers}-{heads}-{tokens}.safetensors"
            save(wide_recording(layers, heads, tokens), path)
            report(f"browse against show, {layers} x {heads} heads, {tokens} tokens", pair_starts(path), 1.0)
    answer_keys(wide_recording(12, 12, 512))
    for tokens in LONG:
        zoom(tokens)


def pair_starts(path: Path) -> Pair:
    """Returns the time until the first screen against the time until the picture is printed, both in a terminal."""
    results = [(started("browse", path), started("show", path)) for _ in range(RUNS + 1)][1:]
    seconds = median(one for one, _ in results), median(two for _, two in results)
    return Pair(time=median(one / two for one, two in results), memory=float("nan"), seconds=seconds)


def started(command: str, path: Path) -> float:
    """Returns the seconds until the command's last word or byte is on the terminal; then quits the inspector."""
    start = time.perf_counter()
    child, terminal = pty.fork()
    if not child:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        termios.tcsetwinsize(0, (24, 80))
        os.execv(sys.executable, [sys.executable, "-m", "attnviz", command, str(path)])
    written, word_seconds = b"", 0.0
    while part := _read(terminal):
        written += part
        if not word_seconds and LAST_WORD in written:
            word_seconds = time.perf_counter() - start
            os.write(terminal, b"q")
    os.waitpid(child, 0)
    os.close(terminal)
    return word_seconds or time.perf_counter() - start


def answer_keys(recording: Recording) -> None:
    """Prints the slowest key, each timed as the fastest of three."""
    runs = [key_times(recording, KEYS) for _ in range(3)]
    times = {key: min(run[key] for run in runs) for key in runs[0]}
    slowest = max(times, key=times.__getitem__)
    holds = "holds" if times[slowest] <= LIMIT else "MISSED"
    print(f"slowest of {len(KEYS)} keys: {slowest!r} {times[slowest]:.3f} s (at most {LIMIT:g}, {holds})", flush=True)


def zoom(tokens: int) -> None:
    """Prints the slowest step of a zoom from a whole long map to its cells, across them, and back."""
    deeper = ["plus"] * 14
    keys = ["enter", *deeper, "down", "pagedown", "end", "g", "tab", *["minus"] * 14, "down", "shift+down", "v", "v"]
    keys += ["a", "down", "right", "o", "pagedown", "r", "o", "end", "enter", "x", "b", "escape"]
    keys += [
        "home",
        "space",
        "right",
        "space",
        "equals_sign",
        "down",
        "escape",
        "escape",
        "space",
        "m",
        "down",
        "escape",
    ]
    protocols: tuple[Protocol | None, ...] = (None, "kitty", "sixel")
    for protocol in protocols:
        for name, clock in (("processor", time.thread_time), ("clock", time.perf_counter)):
            runs = [key_times(long_recording(tokens), keys, clock=clock, protocol=protocol) for _ in range(3)]
            times = {key: min(run[key] for run in runs) for key in runs[0]}
            slowest = max(times, key=times.__getitem__)
            holds = "holds" if times[slowest] <= LIMITS[name] else "MISSED"
            told = f"{slowest!r} {times[slowest]:.3f} s, median {median(times.values()):.3f} s"
            drawn = f"{tokens} tokens, {protocol or 'blocks'}, by {name}"
            print(
                f"slowest of {len(keys)} keys at {drawn}: {told} (at most {LIMITS[name]:g}, {holds})",
                file=sys.__stdout__,
                flush=True,
            )


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux raises it once the other end is closed
        return b""


if __name__ == "__main__":
    main()
