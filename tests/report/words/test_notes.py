"""Names of heads: read, written, and shown wherever a head's pattern is."""

import os
import zipfile
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.options import declared_options
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.render.formats import options_for_medium
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.report.words.notes import read_names, write_name


def test_names_that_are_written_are_read_back(tmp_path: Path) -> None:
    file = str(tmp_path / "heads.txt")
    write_name(file, "4.11", "name mover")
    write_name(file, "0.2", "the one\tbefore \x1b[31m")
    assert read_names(file)["4.11"] == "name mover"
    assert read_names(file)["0.2"].isprintable(), "what a file holds never reaches a terminal as it is"
    write_name(file, "4.11", " ")
    assert list(read_names(file)) == ["0.2"], "an empty name takes it away"
    assert read_names(None) == {}


@pytest.mark.parametrize("line", ["4 name", "mover", "4.11", "4.11.2 x"])
def test_a_line_that_is_no_name_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "heads.txt"
    file.write_text(f"0.1 first\n{line}\n")
    with pytest.raises(AttnvizError, match=r"line 2 is not a head and a name; write it as '4\.11 name mover'"):
        read_names(str(file))


@pytest.fixture
def names(tmp_path: Path) -> str:
    file = tmp_path / "heads.txt"
    file.write_text("0.1 pronoun finder\n1.2 mover\n9.9 of another model\n")
    return str(file)


def test_lists_titles_and_filters_have_the_names(recording: Recording, names: str) -> None:
    look = Look(names=names)
    listed = heads_report((recording,), options_for_medium(ReportOptions(look=look, all=True), ".txt"))
    assert isinstance(listed, HeadList)
    shown = {row[0]: row[1] for row in listed.summary.rows}
    assert "“pronoun finder”" in shown["0.1 cross"]
    assert not any("“" in pattern for head, pattern in shown.items() if head not in ("0.1 cross", "1.2 cross"))
    options = options_for_medium(ReportOptions(look=look, filter="pronoun"), ".txt")
    found = heads_report((recording,), options)
    assert isinstance(found, HeadList)
    assert [row[0] for row in found.summary.rows] == ["0.1 cross"]
    maps = build_report(recording, options_for_medium(ReportOptions(look=look, sort="entropy"), ".png"))
    assert isinstance(maps, DrawnReport)
    assert maps.kind == "maps"
    [title] = [panel.title for panel in maps.panels if panel.title.startswith("head 1.2")]
    assert "· “mover”, entropy " in title


def test_names_are_options_of_media_that_show_them() -> None:
    media = declared_options(Look)["names"].option.media
    assert {"terminal", "figure", "page"} <= set(media)


@pytest.mark.skipif(os.name == "nt", reason="Windows names no open files")
@pytest.mark.parametrize(
    ("line", "option", "written"),
    [
        (["show", "a b c", "--heads", "0.0"], "names", "0.0 mover"),
        (["heads", "a b c"], "names", "0.0 mover"),
        (["heads", "a b c", "-o", "OUT.html"], "names", "0.0 mover"),
        (["compare", "a b c", "--causal"], "names", "0.0 mover"),
        (["show", "a b c", "-o", "OUT.html"], "notes", "#head=0.0 mover"),
        (["show", "a b c", "-o", "OUT.pptx"], "notes", "#head=0.0 mover"),
    ],
)
def test_names_and_notes_come_through_a_pipe(
    line: list[str], option: str, written: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, written.encode())
    os.close(write_end)
    try:
        words = [word.replace("OUT", str(tmp_path / "out")) for word in line]
        assert main([*words, f"--{option}", f"/dev/fd/{read_end}"]) == 0
    finally:
        os.close(read_end)
    said = capfd.readouterr().out
    for path in tmp_path.iterdir():
        if path.suffix == ".pptx":
            with zipfile.ZipFile(path) as slides:
                said += "".join(slides.read(name).decode() for name in slides.namelist() if name.endswith(".xml"))
        else:
            said += path.read_text()
    assert "mover" in said
