import shutil
import subprocess

import pytest

from tools.manual import MANUAL, escape, manual


def test_the_man_page_is_that_of_the_options() -> None:
    assert MANUAL.read_text(encoding="utf-8") == manual(), "python -m tools.manual writes it again"


def test_what_roff_would_obey_is_taken_literally() -> None:
    assert escape(".TH") == "\\&.TH"
    assert escape("a\\fB --x") == "a\\efB \\-\\-x"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_man_page_is_set_without_a_warning() -> None:
    run = subprocess.run(
        ["groff", "-K", "utf8", "-man", "-Tutf8", "-ww", str(MANUAL)],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert run.stderr == ""
    assert "--sort" in run.stdout
