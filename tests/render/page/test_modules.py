"""The page's modules that need no browser, by the tests of node that lie in ``node``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def test_modules_pass_the_tests_of_node() -> None:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    folder = Path(__file__).with_name("node")
    files = sorted(map(str, folder.glob("*.test.js")))
    environment = os.environ | {"PYTHON": sys.executable}  # which prints the table of choices
    done = subprocess.run(
        [program, "--test", *files], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert files
    assert done.returncode == 0, done.stdout
