"""Kills surveys at random moments, in one and in two processes, and checks that resumed ones have the same bytes.

``ATTNVIZ_MOMENTS`` sets the number of moments; the survey takes some seconds with the small trained model.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

MOMENTS = int(os.environ.get("ATTNVIZ_MOMENTS", "20"))
TEXTS = 6000
SURVEY = """
import sys
from attnviz.corpus import survey_corpus
from attnviz.corpus import batches
batches.CHUNK_TEXTS, survey_corpus.CHECKPOINT_SECONDS = 500, 0.2
from attnviz.cli.commands import main
sys.exit(main(sys.argv[1:]))
"""


def main() -> None:
    """Prints how many of the resumed surveys have the bytes of the uninterrupted one."""
    random.seed(0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = np.random.default_rng(0)
        lines = (" ".join(f"w{word}" for word in words.integers(0, 99, words.integers(3, 40))) for _ in range(TEXTS))
        (folder / "texts.txt").write_text("\n".join(lines))
        (folder / "survey.py").write_text(SURVEY)
        whole = folder / "whole.safetensors"
        started = time.perf_counter()
        finish(command(folder, whole, 1))
        seconds = time.perf_counter() - started
        for processes in (1, 2):
            equal, checkpoints = 0, 0
            for number in range(MOMENTS):
                path = folder / f"{processes}-{number}.safetensors"
                checkpoints += kill(command(folder, path, processes), random.uniform(0.2, 1) * seconds, path)
                finish([*command(folder, path, processes), *(["--force"] if path.exists() else []), "--resume"])
                equal += path.read_bytes() == whole.read_bytes()
            note = f"{checkpoints} of them after a checkpoint; {'holds' if equal == MOMENTS else 'MISSED'}"
            print(f"killed in {processes} process(es) and resumed: {equal} of {MOMENTS} equal ({note})", flush=True)


def command(folder: Path, path: Path, processes: int) -> list[str]:
    """Returns the command of a survey that is written to a file."""
    run = [sys.executable]
    if processes > 1:
        run += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*run, str(folder / "survey.py"), "survey", str(folder / "texts.txt"), "--model", "trained", "-o", str(path)]


def kill(arguments: list[str], seconds: float, path: Path) -> bool:
    """Kills a survey and all of its processes after ``seconds``; True if it had a checkpoint."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=one_thread())
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        for number in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()
    return path.with_name(path.name + ".checkpoint").exists()


def descendants(process: int) -> list[int]:
    """Returns the child processes of a process, and theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    children = [number for number, parent in pairs if parent == process]
    return children + [each for child in children for each in descendants(child)]


def finish(arguments: list[str]) -> None:
    """Runs a survey to its end."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=one_thread())
    if done.returncode:
        sys.exit(done.stderr[-2000:])


def one_thread() -> dict[str, str]:
    """Returns the environment with one thread per process, since sums within a text depend on the number of threads."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
