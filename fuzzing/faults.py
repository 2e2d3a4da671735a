"""Ends processes in ways that nobody chose: signals at any moment, full disks, closed terminals.

``python -m fuzzing.faults kills 2000``, ``disks 200`` or ``terminals 50``; ``--seed`` chooses other moments. Each
prints the number of each kind of end. The promise: a target is unchanged or complete, nothing half-written stays
(except after SIGKILL), a failure is one line, and the modes of the terminal are reset.
"""

import argparse
import os
import pty
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attnviz.base.files import TEMPORARY_PREFIX
from attnviz.base.signals import ENDING_SIGNALS

FORMATS = ("csv", "json", "npz", "txt", "svg", "png", "pdf", "html", "pptx", "safetensors", "md", "atlas.html")
SIGNALS = tuple(map(signal.Signals, (*ENDING_SIGNALS, signal.SIGKILL)))
OLD = b"what was there before"
RECORDING = "run.safetensors"
PAGE = 4096  # bytes, of a file system in memory
PATIENCE = 300.0  # seconds until a process counts as hanging
REFUSED = 1
SAID = os.pipe()  # standard error of all processes: no disk can be too full for it


@dataclass(frozen=True)
class Command:
    """A command line that writes a file.

    Attributes:
        arguments: all but ``--force``.
        target: the file.
    """

    arguments: tuple[str, ...]
    target: str


def command_for(suffix: str) -> Command:
    """Returns the command that writes a file of that kind."""
    target = f"x.{suffix}"
    if suffix == "safetensors":
        return Command(("show", "Life is short", "-o", target), target)
    if suffix == "md":
        return Command(("explain", "Life is short", "-o", target), target)
    return Command(("heads" if suffix.startswith("atlas") else "show", RECORDING, "-o", target), target)


def forked(arguments: tuple[str, ...], before: Callable[[], object] = lambda: None, out: str = os.devnull) -> int:
    """Runs a command line in a copy of this process, which has imported everything, and returns its process id.

    Signals act on it as on a new process.
    """
    from attnviz.cli.commands import main

    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)  # the copy must not unwind as its parent would
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        return child
    code = 70
    try:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.dup2(SAID[1], 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        before()
        code = main(arguments)
    except KeyboardInterrupt:  # before the command line began
        code = 130
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def error_output() -> str:
    """Returns what the processes wrote to standard error since the last call."""
    parts = []
    while select.select([SAID[0]], [], [], 0)[0]:
        parts.append(os.read(SAID[0], 65_536))
    return b"".join(parts).decode()


def ended(child: int, until: Callable[[], bool] = lambda: False) -> int | None:
    """Returns the exit code of the process, below 0 for a signal; ``None`` as soon as ``until`` is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ended_child, status = os.waitpid(child, os.WNOHANG)
        if ended_child:
            return os.waitstatus_to_exitcode(status)
        if until():
            return None
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError("it does not end")


def left_behind() -> list[Path]:
    """Returns the temporary files that are being written or were left."""
    return list(Path().glob(f"{TEMPORARY_PREFIX}*"))


def prepare(suffixes: tuple[str, ...]) -> dict[str, tuple[bytes, float]]:
    """Makes the recording; returns the bytes that each command writes, and its seconds."""
    assert ended(forked(("show", "Life is short", "-o", RECORDING))) == 0
    whole = {}
    for suffix in suffixes:
        command = command_for(suffix)
        run_here(command)
        start = time.monotonic()
        assert ended(forked(command.arguments)) == 0, error_output()
        whole[suffix] = Path(command.target).read_bytes(), time.monotonic() - start
        Path(command.target).unlink()
    return whole


def run_here(command: Command) -> None:
    """Runs the command in this process once, so that copies of the process have its imports."""
    from fuzzing.command_line import run

    assert run([*command.arguments, "--force"]).code == 0
    Path(command.target).unlink()


def kill(suffix: str, number: signal.Signals, draw: random.Random, whole: tuple[bytes, float]) -> str:
    """Ends a process by a signal while it works or writes, and returns the outcome in words."""
    command, replaces = command_for(suffix), draw.random() < 0.5
    target = Path(command.target)
    if replaces:
        target.write_bytes(OLD)
    child = forked((*command.arguments, *(["--force"] if replaces else [])))
    moment = time.monotonic() + draw.uniform(0, whole[1])
    while_writing = draw.random() < 0.5
    try:
        code = ended(child, lambda: bool(left_behind()) if while_writing else time.monotonic() > moment)
        if code is None:
            if while_writing:
                time.sleep(draw.uniform(0, 0.02 * whole[1]))
            os.kill(child, number)
            code = ended(child)
    except TimeoutError:
        return "hangs"
    content = target.read_bytes() if target.exists() else None
    remains = left_behind()
    for path in (*remains, target):
        path.unlink(missing_ok=True)
    if content not in (whole[0], OLD if replaces else None):
        return "target broken"
    if remains:
        return "left after KILL" if number == signal.SIGKILL else "left behind"
    if code not in (0, 130 if number == signal.SIGINT else -number):
        return f"code {code}"
    return "done before" if code == 0 else "ended"


def kills(count: int, draw: random.Random, suffixes: tuple[str, ...]) -> Counter[tuple[str, str]]:
    """Returns the number of kills of each outcome, by signal."""
    whole = prepare(suffixes)
    results: Counter[tuple[str, str]] = Counter()
    for turn in range(count):
        suffix, number = suffixes[turn % len(suffixes)], SIGNALS[turn // len(suffixes) % len(SIGNALS)]
        results[number.name, kill(suffix, number, draw, whole[suffix])] += 1
    return results


def limit_files(size: int) -> Callable[[], None]:
    """Returns a function that limits the size of the files of its process to ``size`` bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fill(suffix: str, draw: random.Random, whole: bytes, small: Path | None) -> str:
    """Writes where the whole file does not fit, under a limit or on a small file system; returns the outcome."""
    room = draw.randrange(len(whole))
    replaces, printed = draw.random() < 0.5, suffix in ("json", "txt") and draw.random() < 0.5
    command = command_for(suffix)
    folder = small if small is not None else Path()
    target = folder / command.target
    if replaces or printed:
        target.write_bytes(OLD)
    if small is not None:
        leave_free(small, room)
    if printed:
        arguments: tuple[str, ...] = ("show", RECORDING, *(["--json"] if suffix == "json" else []))
        child = forked(arguments, limit_files(room) if small is None else lambda: None, str(target))
    else:
        arguments = (*command.arguments[:-1], str(target), *(["--force"] if replaces else []))
        child = forked(arguments, limit_files(room) if small is None else lambda: None)
    code, line = ended(child), error_output()
    content = target.read_bytes() if target.exists() else None
    remains = [*left_behind(), *folder.glob(f"{TEMPORARY_PREFIX}*")]
    for path in (*remains, target, folder / "ballast"):
        path.unlink(missing_ok=True)
    if code == 0:
        return "had room" if small is not None and content is not None else "claims success"
    if code != REFUSED or line.count("\n") != 1 or "cannot write" not in line:
        return f"code {code}: {line[-200:]}"
    if remains:
        return "left behind"
    return "refused" if printed or content == (OLD if replaces else None) else "target broken"


def leave_free(folder: Path, room: int) -> None:
    """Fills a file system up to ``room`` bytes, rounded to a page."""
    free = os.statvfs(folder).f_bavail * PAGE
    with (folder / "ballast").open("wb") as file:
        file.write(b"\0" * max(0, free - room // PAGE * PAGE))


def disks(count: int, draw: random.Random, suffixes: tuple[str, ...]) -> Counter[tuple[str, str]]:
    """Returns the number of full disks of each outcome: limits of file size in turn with a small file system."""
    whole = prepare(suffixes)
    results: Counter[tuple[str, str]] = Counter()
    small = mounted()
    try:
        for turn in range(count):
            suffix, on = suffixes[turn // 2 % len(suffixes)], small if turn % 2 else None
            results["limit" if on is None else "disk", fill(suffix, draw, whole[suffix][0], on)] += 1
    finally:
        if small is not None:
            subprocess.run(["umount", "--lazy", str(small)], check=True)
    return results


def mounted() -> Path | None:
    """Mounts a file system of two megabytes in memory and returns its folder; ``None`` if this user may not."""
    folder = Path("small")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "attnviz", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    return folder.resolve() if done else None


def terminal(how: str, moment: float, sent: bytes) -> str:
    """Ends an inspector by a signal or by closing its terminal, ``moment`` seconds after its start."""
    child, screen = pty.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        termios.tcsetwinsize(0, (24, 80))
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "attnviz", "browse", RECORDING])
    before, written = termios.tcgetattr(screen), b""
    end = time.monotonic() + moment
    while time.monotonic() < end:
        written += read_ready(screen)
    os.write(screen, sent)
    if how == "close":
        os.close(screen)
    else:
        os.kill(child, signal.Signals[how])
    try:
        code = ended(child)
    except TimeoutError:
        return "hangs"
    expected = {"close": -signal.SIGHUP, "SIGINT": 130}.get(how) or -signal.Signals[how]
    if how == "close":
        return "ended" if code in (expected, 130, -signal.SIGINT) else f"code {code}"
    while part := read_ready(screen):
        written += part
    given_back = termios.tcgetattr(screen)[:4] == before[:4]
    os.close(screen)
    if b"Traceback" in written and not (how == "SIGINT" and b"1049h" not in written):
        return "traceback"
    if not given_back or not left_screen(written):
        return "terminal not given back"
    return "ended" if code in (expected, -signal.Signals[how]) else f"code {code}"


def read_ready(screen: int) -> bytes:
    """Returns what can be read from a terminal now."""
    try:
        return os.read(screen, 65_536) if select.select([screen], [], [], 0.02)[0] else b""
    except OSError:
        return b""


def left_screen(written: bytes) -> bool:
    """True if every terminal mode that was set was reset."""
    modes = (b"1049", b"1000", b"1003", b"1004", b"1006", b"2004")
    taken_back = all(written.rfind(b"\x1b[?%bh" % mode) <= written.rfind(b"\x1b[?%bl" % mode) for mode in modes)
    return taken_back and written.rfind(b"\x1b[?25l") <= written.rfind(b"\x1b[?25h")


def terminals(count: int, draw: random.Random, suffixes: tuple[str, ...]) -> Counter[tuple[str, str]]:
    """Returns the number of ends of an inspector of each outcome: every signal, in turn with closing its terminal."""
    assert ended(forked(("show", "Life is short", "-o", RECORDING))) == 0
    results: Counter[tuple[str, str]] = Counter()
    hows = [name for number in ENDING_SIGNALS for name in ("close", signal.Signals(number).name)]
    for turn in range(count):
        how = hows[turn % len(hows)]
        sent = draw.choice([b"", b"\r", b"o", b"\xff\xfe", b"\x1b[200~\xc3"])
        results[how, terminal(how, draw.uniform(0.05, 4), sent)] += 1
    return results


KINDS: dict[str, Callable[[int, random.Random, tuple[str, ...]], Counter[tuple[str, str]]]] = {
    "kills": kills,
    "disks": disks,
    "terminals": terminals,
}


def main() -> None:
    """Prints the outcomes of one kind of fault."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing.faults", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default=",".join(FORMATS), help="of the files that are written")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # a forked process has no threads of its parent
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = KINDS[chosen.kind](chosen.count, random.Random(chosen.seed), tuple(chosen.formats.split(",")))
    for (what, how), number in sorted(results.items()):
        print(f"{what:10} {how:16} {number:6}")


if __name__ == "__main__":
    main()
