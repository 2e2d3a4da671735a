from pathlib import Path

import pytest

from tests.streams import Streams


@pytest.fixture
def attnviz(shell: Streams, monkeypatch: pytest.MonkeyPatch, in_folder: Path) -> Streams:
    """A terminal of 80 columns in an empty folder, into which nothing is piped."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "1000")
    monkeypatch.setattr("attnviz.cli.runs.is_piped", lambda: False)
    return shell
