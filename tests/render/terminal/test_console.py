"""The size of the screen: a pipe gets the view of the terminal that it was started in, else one of 24 lines."""

import os

import pytest

from attnviz.render.terminal.lines import look_of_terminal
from attnviz.report.picture.look import Look


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.isatty", lambda _: False)
    monkeypatch.setattr("os.get_terminal_size", lambda _: (_ for _ in ()).throw(OSError))


@pytest.mark.usefixtures("no_terminal")
def test_a_log_has_the_size_of_a_plain_terminal() -> None:
    look = look_of_terminal(Look(), reserved_lines=2)
    assert (look.width, look.height, look.moves_cursor) == (80, 22, False)


def test_a_pipe_has_the_size_of_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.isatty", lambda stream: stream == 2)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((131, 43)))
    look = look_of_terminal(Look())
    assert (look.width, look.height, look.moves_cursor) == (131, 43, False)


@pytest.mark.usefixtures("no_terminal")
def test_lines_sets_the_height(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "50")
    assert look_of_terminal(Look()).height == 50


@pytest.mark.parametrize(
    ("colors", "chosen", "theme"),
    [
        ("", None, "dark"),
        ("15;0", None, "dark"),
        ("0;15", None, "light"),
        ("0;default;7", None, "light"),
        ("15;0", "light", "light"),
    ],
)
def test_theme_is_that_of_the_terminal_unless_it_is_chosen(
    colors: str, chosen: str | None, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", colors)
    assert look_of_terminal(Look(theme=chosen)).theme == theme


@pytest.mark.parametrize("chosen", [None, "dark"])
def test_a_notebook_is_light_unless_dark_is_chosen(chosen: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert look_of_terminal(Look(theme=chosen)).theme == (chosen or "light")
