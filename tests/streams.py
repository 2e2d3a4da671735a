"""Runs command lines in the process of the tests."""

import json
from typing import Any

import pytest

from attnviz.cli.commands import main


class Streams:
    """Runs command lines in this process and keeps what they write."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a run that ends with this code."""
        self.capture.readouterr()
        assert main(arguments) == code, self.capture.readouterr().err
        self.out, self.err = self.capture.readouterr()
        return self.out

    def words(self, *arguments: str) -> str:
        """The same, on one line: a terminal wraps sentences."""
        return " ".join(self.run(*arguments).split())

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The one line that a refusal says, nothing having been printed."""
        assert self.run(*arguments, code=code) == ""
        [line] = [line for line in self.err.splitlines() if "no text given" not in line]
        assert line.startswith("attnviz: ")
        return line
