"""Runs command lines in the process of the tests."""

import pytest

from attnviz.cli.commands import main


class Streams:
    """Runs command lines in this process and keeps what they write."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a run that ends with this code."""
        assert main(arguments) == code, self.capture.readouterr().err
        self.out, self.err = self.capture.readouterr()
        return self.out

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The one line that a refusal says, nothing having been printed."""
        assert self.run(*arguments, code=code) == ""
        [line] = [line for line in self.err.splitlines() if "no text given" not in line]
        assert line.startswith("attnviz: ")
        return line
