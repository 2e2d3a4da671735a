import os
from pathlib import Path

import pytest

from attnviz.cli.defaults import settable_options
from tests.streams import Streams


@pytest.fixture(autouse=True)
def no_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "configuration"
    (folder / "attnviz").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder / "attnviz" / "attnviz.toml"


def drawn_dark(attnviz: Streams, *arguments: str) -> bool:
    """Whether a figure is drawn as with ``--theme dark``."""
    attnviz.run("show", "a b", "--force", "-o", "given.svg", *arguments)
    attnviz.run("show", "a b", "--force", "-o", "dark.svg", "--theme", "dark")
    attnviz.run("show", "a b", "--force", "-o", "light.svg", "--theme", "light")
    dark, light, given = (Path(f"{name}.svg").read_bytes() for name in ("dark", "light", "given"))
    assert dark != light
    assert given in (dark, light)
    return given == dark


def test_a_file_here_or_above_sets_defaults(attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not drawn_dark(attnviz)
    Path("attnviz.toml").write_text('theme = "dark"\n')
    assert drawn_dark(attnviz)
    assert not drawn_dark(attnviz, "--theme", "light")
    (below := in_folder / "below").mkdir()
    monkeypatch.chdir(below)
    assert drawn_dark(attnviz)


def test_a_project_the_user_and_a_variable_set_defaults_and_the_nearest_wins(
    attnviz: Streams, no_file_of_the_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_file_of_the_user.write_text('theme = "dark"\n')
    assert drawn_dark(attnviz)
    Path("pyproject.toml").write_text('[tool.attnviz]\ntheme = "light"\n')
    assert not drawn_dark(attnviz)
    monkeypatch.setenv("ATTNVIZ_THEME", "dark")
    assert drawn_dark(attnviz)


def test_config_lists_what_is_set_and_where(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    unset = attnviz.run("info", "config")
    assert unset.startswith("No defaults are set.\n")
    assert all(name.replace("_", "-") in unset for name in settable_options())
    Path("attnviz.toml").write_text('dpi = 300\n"color-scale" = "log"\n')
    monkeypatch.setenv("ATTNVIZ_WORDS", "yes")
    rows = [line.split() for line in attnviz.run("info", "config").splitlines()[:3]]
    assert [row[:2] for row in rows] == [["dpi", "300"], ["color-scale", "log"], ["words", "True"]]
    assert rows[0][2].endswith("attnviz.toml")
    assert rows[2][2] == "ATTNVIZ_WORDS"


def test_a_model_in_a_file_is_found_from_its_folder(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()
    Path("attnviz.toml").write_text('model = "empty"\n')
    (below := Path("below")).mkdir()
    monkeypatch.chdir(below)
    attnviz.run("show", "a b", code=1)
    said, line = attnviz.err.splitlines()
    assert said.endswith(f"is set in {Path('..').resolve() / 'attnviz.toml'}")
    assert f"{Path('..').resolve() / 'empty'}" in line


def test_a_default_that_the_model_has_no_use_for_is_left_out(attnviz: Streams) -> None:
    plain = attnviz.run("show", "abcabc", "--model", "trained")
    Path("attnviz.toml").write_text("num-heads = 2\n")
    assert attnviz.run("show", "abcabc", "--model", "trained") == plain
    assert "head 0.2" not in attnviz.run("show", "a b")
    assert "num-heads does not apply" in attnviz.refused("show", "a", "--model", "trained", "--set", "num-heads=2")


def test_a_command_without_a_model_takes_defaults_too(attnviz: Streams) -> None:
    Path("attnviz.toml").write_text('theme = "dark"\n')
    assert "a film shows two recordings or more" in attnviz.refused("show", "run.safetensors", "-o", "film.gif")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('them = "dark"', "sets 'them', which cannot have a default; did you mean theme?"),
        ('colour-scale = "log"', "did you mean color-scale?"),
        ('output = "x.svg"', "sets 'output', which cannot have a default; set an option of a model or of the look"),
        ('theme = "drak"', "unknown --theme 'drak'; did you mean dark? Choose light or dark"),
        ("dpi = true", "dpi is True; give a whole number"),
        ("words = 3", "words is 3; give true or false"),
        ("dpi = 5", "dpi 5 is out of range"),
        ("theme = ", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
        ("theme = " + "[" * 9_999, "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_that_names_it(attnviz: Streams, content: str, message: str) -> None:
    Path("attnviz.toml").write_text(content)
    line = attnviz.refused("show", "a b")
    assert message in line
    assert "attnviz.toml" in line
    assert attnviz.run("--help")


def test_what_is_wrong_in_a_variable_names_the_variable(attnviz: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNVIZ_DPI", "many")
    assert attnviz.refused("show", "a b") == "attnviz: ATTNVIZ_DPI: dpi is 'many'; give a whole number"


def test_a_message_says_where_an_option_was_set_that_was_not_typed(attnviz: Streams) -> None:
    Path("attnviz.toml").write_text('size = "1x1"\n')
    assert attnviz.refused("show", "a b", "-o", "x.svg").endswith("attnviz.toml)")
    assert "attnviz.toml" not in attnviz.refused("show", "a b", "-o", "x.svg", "--size", "1x1")


def test_what_a_terminal_would_obey_is_written_out(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := in_folder / "\x1b[31m").mkdir()
    monkeypatch.chdir(folder)
    Path("attnviz.toml").write_text('tokenizer = "\\u202e\\u001b[2J"\n')
    listed = attnviz.run("info", "config")
    assert "\\u202e\\x1b[2J" in listed
    assert not {"\x1b", "\u202e"} & {*listed}


def test_a_file_in_a_folder_has_no_model_fetched_but_a_user_and_a_variable_may(
    attnviz: Streams, no_file_of_the_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("attnviz.models.huggingface.folder._is_online", lambda: False)
    assert attnviz.run("show", "a b", "-o", "run.safetensors")
    Path("attnviz.toml").write_text('model = "someone/nothing"\n')
    line = attnviz.refused("show", "a b")
    assert (
        "names the model 'someone/nothing', which is not on this machine; use --model someone/nothing to fetch it once"
        in line
    )
    assert attnviz.run("show", "run.safetensors")
    monkeypatch.setenv("ATTNVIZ_MODEL", "someone/nothing")
    assert "the hub is out of reach" in attnviz.refused("show", "a b")
    monkeypatch.delenv("ATTNVIZ_MODEL")
    no_file_of_the_user.write_text('model = "someone/nothing"\n')
    Path("attnviz.toml").unlink()
    assert "the hub is out of reach" in attnviz.refused("show", "a b")


def test_a_file_too_long_is_refused_and_not_cut(attnviz: Streams) -> None:
    Path("attnviz.toml").write_text("#" * 1_000_001)
    assert "longer than 256 kB" in attnviz.refused("info", "config")


def test_no_default_can_name_what_is_written_or_read() -> None:
    assert not {"output", "force", "text", "file", "query", "title"} & set(settable_options())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_file_or_no_table_sets_nothing_and_is_not_waited_for(attnviz: Streams) -> None:
    os.mkfifo("attnviz.toml")
    assert attnviz.run("info", "config").startswith("No defaults are set.\n")
    Path("pyproject.toml").write_text("tool = 'attnviz'\n")
    assert "tool.attnviz is not a table" in attnviz.refused("info", "config")


def test_a_model_of_a_folder_above_is_said_and_one_of_this_folder_is_not(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("attnviz.toml").write_text('model = "trained"\n')
    attnviz.run("show", "a b")
    assert attnviz.err == ""
    (below := in_folder / "below").mkdir()
    monkeypatch.chdir(below)
    attnviz.run("show", "a b")
    assert attnviz.err == f"attnviz: --model trained is set in {in_folder / 'attnviz.toml'}\n"
    attnviz.run("show", "a b", "--model", "seeded")
    assert "attnviz.toml" not in attnviz.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize(("mode", "user", "read"), [(0o1777, 0, False), (0o755, 0, True), (0o755, 1234, False)])
def test_a_file_of_another_user_is_not_read(
    attnviz: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int, user: int, read: bool
) -> None:
    (shared := in_folder / "shared").mkdir()
    (shared / "attnviz.toml").write_text('theme = "drak"\n')
    os.chown(shared / "attnviz.toml", 4321, 4321)
    shared.chmod(mode)
    monkeypatch.chdir(shared)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    attnviz.run("show", "a b", code=int(read))


def test_keys_of_many_parts_are_refused_at_once(attnviz: Streams) -> None:
    for part in ("a", '"a b"', "'.'", "a "):
        Path("attnviz.toml").write_text(f"{part}." * 40_000 + "a = 1\n")
        assert "a key of more than 32 parts" in attnviz.refused("show", "a b")
    Path("attnviz.toml").write_text("size = " + "{a = " * 150 + "1" + "}" * 150 + "\n")
    assert "nested too deeply" in attnviz.refused("show", "a b")
