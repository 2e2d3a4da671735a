"""A share of the ends that nobody chose: a target is as it was or complete, and nothing half-written stays."""

import os
import subprocess
import sys

import pytest

from tests.today import SEED

KEPT = {"ended", "done before", "refused", "had room", "left after KILL"}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")]


@pytest.mark.parametrize("kind", ["kills", "disks"])
def test_files_are_whole_or_not_there_however_a_process_ends(kind: str) -> None:
    command = [sys.executable, "-m", "fuzzing.faults", kind, "5", "--seed", str(SEED)]
    command += ["--formats", "csv,html,safetensors"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    results = [line.split(maxsplit=1)[1].rsplit(maxsplit=1) for line in run.stdout.splitlines()]
    assert {how.strip() for how, _ in results} <= KEPT, run.stdout
    assert sum(int(number) for _, number in results) == 5
