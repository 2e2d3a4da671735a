from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, OptionList, Static

from attnviz.base.errors import AttnvizError
from attnviz.browse import start as browse
from attnviz.browse.survey.app import SurveyBrowser
from attnviz.browse.survey.listing import SurveyView
from attnviz.cli.commands import main
from attnviz.corpus.saved import load_survey
from attnviz.corpus.sums.survey import Survey
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from tests.browse.player import after_play
from tests.conftest import dense_maps

TEXTS = ["the cat sat. the cat sat", "Life is short", "to be or not to be", "again and again", "one two three"]
Play = Callable[["Pilot[Any]", SurveyBrowser], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survey")
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    path = folder / "heads.safetensors"
    assert main(["survey", str(folder / "texts.txt"), "--model", "trained", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def survey(file: Path) -> Survey:
    return load_survey(file)


def played(
    survey: Survey,
    play: Play,
    size: tuple[int, int] = (130, 40),
    record: Callable[[str], Recording] = lambda text: Recording(maps=(dense_maps(0),), model=text),
    look: Look | None = None,
) -> SurveyBrowser:
    """The inspector of a survey after ``play`` has pressed its keys."""
    browser = SurveyBrowser(SurveyView(survey), "heads.safetensors", record, look or Look())
    return after_play(browser, play, size)


def said(browser: SurveyBrowser, place: str = "#status") -> str:
    return str(browser.query_one(place, Static).render())


def listed(browser: SurveyBrowser) -> list[str]:
    table = browser.query_one(DataTable)
    return [str(table.get_row_at(place)[0]) for place in range(table.row_count)]


def test_heads_are_sorted_by_a_number_and_reversed(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        assert listed(browser) == ["0.0", "0.1", "1.0", "1.1"]
        await pilot.press("o")
        by_previous = listed(browser)
        assert by_previous[0] == "0.0"  # looks at the token before each
        assert browser.row.name == "0.0"
        await pilot.press("r")
        assert listed(browser) == by_previous[::-1]
        assert said(browser).startswith(" sorted by previous")

    played(survey, play)


def test_filter_keeps_heads_and_escape_has_all_again(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("f", *"previous>0.9", "enter")
        assert listed(browser) == ["0.0"]
        assert "1 of 4 heads" in said(browser, "#title")
        await pilot.press("escape")
        assert len(listed(browser)) == 4

    played(survey, play)


def test_filter_that_is_none_is_said_and_changes_nothing(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("f", *"nonsense>1", "enter")
        await pilot.pause()
        assert "nonsense" in said(browser)
        assert len(listed(browser)) == 4

    played(survey, play)


def test_card_of_the_chosen_head_stands_beside_the_list(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("down")
        await pilot.pause()
        row = browser.row
        assert row.name == "0.1"
        assert said(browser, "#does") == f"0.1 {row.pattern}".rstrip()
        numbers = said(browser, "#numbers")
        assert f"{browser.view.table.value('0.1', 'entropy'):.2f}" in numbers
        assert "by offset" in numbers

    played(survey, play)


def test_narrow_terminal_shows_the_list_or_the_card(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        assert not browser.query_one("#card").display
        await pilot.press("enter")
        assert browser.query_one("#card").display
        assert not browser.query_one(DataTable).display
        await pilot.press("escape")
        assert browser.query_one(DataTable).display

    played(survey, play, (80, 24))


def test_text_of_a_card_opens_at_its_head_and_query(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(browser.focused, OptionList)
        await pilot.press("enter")
        await browser.workers.wait_for_complete()

    opened = played(survey, play).return_value
    assert opened is not None
    assert opened.recording.model in TEXTS
    assert opened.at.startswith("head=0.0&query=")
    assert opened.line == 0


def test_model_that_cannot_be_run_is_said(survey: Survey) -> None:
    def refuse(text: str) -> Recording:
        raise AttnvizError("the model is not on this machine")

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("enter")
        await browser.workers.wait_for_complete()
        await pilot.pause()
        assert said(browser) == " the model is not on this machine"

    assert played(survey, play, record=refuse).return_value is None


def test_points_are_of_two_numbers_and_arrows_choose_along_them(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("a", *["ctrl+u"], *"previous,sink", "enter")
        await pilot.pause()
        assert browser.view.axes == ("previous", "sink")
        drawn = said(browser, "#points")
        assert "previous →" in drawn
        assert all(head in drawn for head in ("0.0", "0.1", "1.0", "1.1"))
        await pilot.press(*["right"] * 4)
        assert browser.row.name == "0.0"
        await pilot.press("left")
        assert browser.row.name != "0.0"

    played(survey, play)


def test_command_and_picture_are_of_what_is_seen(survey: Survey, tmp_path: Path) -> None:
    view = SurveyView(survey, sort="previous", filter="layer:0")
    assert view.command("my heads.safetensors", view.rows[0]) == (
        "attnviz show 'my heads.safetensors' --heads 0.0 --sort previous -o figure.svg"
    )
    assert view.command("a.safetensors", None) == (
        "attnviz show a.safetensors --axes previous,special --filter layer:0 -o figure.svg"
    )

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        browser.save_as(tmp_path / "head.svg")
        browser.action_points()
        browser.save_as(tmp_path / "points.svg")
        browser.save_as(tmp_path / "points.svg")
        assert "exists; choose another name" in said(browser)

    played(survey, play)
    assert (tmp_path / "head.svg").read_bytes() != (tmp_path / "points.svg").read_bytes()


def test_ascii_has_no_other_character_in_what_is_drawn(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("p")
        await pilot.pause()
        assert said(browser, "#points").isascii()
        assert said(browser, "#numbers").isascii()

    played(survey, play, look=Look(ascii=True))


def test_text_that_is_opened_comes_back_to_its_head(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    monkeypatch.setattr(browse, "browse", lambda *given: len(shown.__iadd__([given])))

    def fake(view: SurveyView, look: Look, path: Path, record: Callable[[str], Recording], line: int | None) -> Any:
        shown.append(line)
        if line is not None:
            return None, 0
        from attnviz.browse.survey.app import OpenedText

        return OpenedText(record("Life is short"), "head=0.0&query=1", view, 2), 0

    monkeypatch.setattr(browse, "browse_survey", fake)
    assert main(["browse", str(file)]) == 0
    assert shown[0] is None
    assert shown[1][0].maps[0].query_tokens.text == "Life is short"
    assert shown[1][-1] == "head=0.0&query=1"
    assert shown[2] == 2
    assert main(["browse", str(file), "--queries", "0:2"]) == 1
    assert "--queries" in capsys.readouterr().err
    for option, value in (("--at", "head=0.0"), ("--effects", "effects.json")):
        assert main(["browse", str(file), option, value]) == 1
        assert "do not apply to a survey" in capsys.readouterr().err
