import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse import start as browse
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save


def test_without_a_terminal_it_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", "Life is short"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs a terminal; attnviz show" in said


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "find_spec", lambda name: None)
    with pytest.raises(AttnvizError, match=r"pip install 'attnviz\[browse\]'"):
        browse.refuse_browse()


def test_saved_recording_is_browsed_without_torch(recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path / "run.safetensors")
    code = (
        "import sys; from attnviz.browse import start as browse; from attnviz.cli import commands as cli; "
        "browse.refuse_browse = lambda: None;"
        "browse.browse = lambda *rest: __import__('attnviz.browse.app') and 0;"
        "cli.main(['browse', sys.argv[1]]);"
        "print([name for name in ('torch', 'transformers', 'matplotlib') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run.safetensors")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_options_that_browse_would_ignore_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    assert main(["browse", "Life is short", "--query", "is"]) == 1
    assert "--query changes nothing in browse" in capsys.readouterr().err
