from pathlib import Path

import pytest

from tests.cli.streams import Streams


@pytest.fixture
def attnviz(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, in_folder: Path) -> Streams:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "1000")
    monkeypatch.setattr("attnviz.cli.input.is_piped", lambda: False)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    return Streams(capsys)
