"""README is short, and a clean checkout is set up as it says; the rest is tested with the other documents."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:console|sh)\n(.*?)```", README, re.DOTALL)
LINES = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines()]
SETUP = [line for line in LINES if line.startswith("pip install")]


def test_two_commands_set_everything_up_and_the_clean_checkout_runs_them() -> None:
    assert len(SETUP) == 2
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("pip install -q", "pip install")
    assert [command for line in SETUP for command in line.split(" && ") if command not in script] == []


def test_it_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 150
