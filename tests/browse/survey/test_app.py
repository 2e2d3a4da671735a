import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import DataTable, HelpPanel, Input, OptionList, Static

from attnviz.base.errors import AttnvizError
from attnviz.browse import start as browse
from attnviz.browse.survey.app import SurveyBrowser
from attnviz.browse.survey.listing import SurveyView
from attnviz.cli.commands import main
from attnviz.corpus.saved import load_survey
from attnviz.corpus.survey import Survey
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.report.survey.pictures import survey_title
from attnviz.text.selection import Selection
from tests.browse.player import after_play, shown, until
from tests.conftest import dense_maps
from tests.patience import PATIENCE
from tests.streams import Streams

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


def test_heads_are_sorted_filtered_and_found(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        every = ["0.0", "0.1", "1.0", "1.1"]
        assert listed(browser) == every
        assert said(browser, "#title") == f" {len(survey.heads)} heads  {survey_title(survey)}"
        assert "over texts.txt" in said(browser, "#title")
        await pilot.press("o")
        by_previous = listed(browser)
        assert by_previous[0] == browser.chosen_row.name == "0.0"  # looks at the token before each
        await pilot.press("r")
        assert listed(browser) == by_previous[::-1]
        assert said(browser).startswith(" sorted by previous")
        await pilot.press("f", *"previous>0.9", "enter")
        assert listed(browser) == ["0.0"]
        assert "1 of 4 heads" in said(browser, "#title")
        await pilot.press("f", "ctrl+a", *"nonsense>1", "enter")
        await pilot.pause()
        assert "nonsense" in said(browser)
        assert listed(browser) == ["0.0"], "what is no filter changes nothing"
        await pilot.press("escape")
        assert len(listed(browser)) == 4
        await pilot.press("slash", *"1.0", "enter")
        assert browser.chosen_row.name == "1.0"
        await pilot.press("slash", *"-ind", "enter")
        assert (browser.view.sort, browser.view.ascending) == ("induction", True)
        assert not browser.card_open
        await pilot.press("slash", *"layer", "enter")
        assert browser.view.sort is None
        await pilot.press("slash", *"zebra", "enter")
        await pilot.pause()
        assert "no head or metric 'zebra'" in said(browser)

    played(survey, play)
    chosen = SurveyView(survey, selection=Selection(layers=(1,)))
    assert [row.name for row in chosen.rows] == ["1.0", "1.1"]


def test_the_metric_that_sorts_is_the_first_column_of_numbers(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("slash", *"-entropy", "enter")
        await until(pilot, lambda: browser.view.sort == "entropy")
        labels = [str(column.label) for column in browser.query_one(DataTable).ordered_columns]
        assert labels[2] == "entropy ▴"
        assert len(set(labels)) == len(browser.view.numbers) + 2
        numbers = [float(str(browser.query_one(DataTable).get_row_at(place)[2])) for place in range(4)]
        assert numbers == sorted(numbers)

    played(survey, play, size=(80, 24))


def test_card_of_the_chosen_head_has_its_numbers_and_texts_by_any_metric(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("down")
        await pilot.pause()
        row = browser.chosen_row
        assert said(browser, "#does") == f"0.1 {row.pattern}  texts by previous"
        numbers = said(browser, "#numbers")
        assert f"{browser.view.table.value('0.1', 'entropy'):.2f}" in numbers
        assert "by offset" in numbers
        order = listed(browser)
        await pilot.press("enter", "o")
        await pilot.pause()
        metric = browser.view.example_metric(browser.chosen_row)
        assert metric != "previous"
        assert said(browser, "#does").endswith(f"texts by {metric}")
        assert listed(browser) == order, "heads keep their order"

    played(survey, play)


def test_narrow_terminal_shows_the_list_or_the_card_in_ascii(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        def is_shown() -> tuple[bool, bool]:
            return browser.query_one(DataTable).display, browser.query_one("#card").display

        assert is_shown() == (True, False)
        await pilot.press("enter")
        await pilot.pause()
        assert is_shown() == (False, True)
        assert said(browser, "#numbers").isascii()
        await pilot.press("escape")
        assert is_shown() == (True, False)
        await pilot.press("v")
        await pilot.pause()
        assert said(browser, "#points").isascii()

    played(survey, play, (80, 24), look=Look(ascii=True))


def test_model_that_cannot_be_run_is_said(survey: Survey) -> None:
    def refuse(text: str) -> Recording:
        raise AttnvizError("the model is not on this machine")

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: said(browser) == " the model is not on this machine")

    assert played(survey, play, record=refuse).return_value is None


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
    assert opened.address.startswith("head=0.0&query=")
    assert opened.line == 0


def test_points_are_of_two_numbers_and_arrows_choose_along_them(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("slash", *"previous,sink", "enter")
        await pilot.pause()
        assert browser.view.axes == ("previous", "sink")
        drawn = said(browser, "#points")
        assert "previous →" in drawn
        assert all(head in drawn for head in ("0.0", "0.1", "1.0", "1.1"))
        await pilot.press(*["right"] * 4)
        assert browser.chosen_row.name == "0.0"
        await pilot.press("left")
        assert browser.chosen_row.name != "0.0"

    played(survey, play)


def test_command_and_picture_are_of_what_is_seen(survey: Survey, tmp_path: Path) -> None:
    view = SurveyView(survey, sort="previous", filter="layer:0")
    assert view.command("my heads.safetensors", view.rows[0]) == (
        "attnviz show 'my heads.safetensors' --heads 0.0 --sort previous -o figure.svg"
    )
    assert view.command("a.safetensors", None) == (
        "attnviz show a.safetensors --style points:previous,special --filter layer:0 -o figure.svg"
    )

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        browser.save_as(tmp_path / "head.svg", None)
        browser.action_points()
        browser.save_as(tmp_path / "points.svg", None)
        browser.save_as(tmp_path / "points.svg", None)
        assert "exists; choose another name" in said(browser)

    played(survey, play)
    assert (tmp_path / "head.svg").read_bytes() != (tmp_path / "points.svg").read_bytes()


def test_text_that_is_opened_comes_back_to_its_head(
    file: Path, monkeypatch: pytest.MonkeyPatch, shell: Streams
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    monkeypatch.setattr(browse, "browse", lambda *given, address: len(shown.__iadd__([(*given, address)])))

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
    assert "--queries" in shell.refused("browse", str(file), "--queries", "0:2")
    for option, value in (("--at", "head=0.0"), ("--effects", "effects.json")):
        assert "do not apply to a survey" in shell.refused("browse", str(file), option, value)


@pytest.mark.parametrize("width", [120, 160])
def test_rows_of_the_card_fit_a_screen_of_two_panes(survey: Survey, width: int) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.pause()
        lines = said(browser, "#numbers").splitlines()
        start = next(place for place, line in enumerate(lines) if line.split()[:2] == ["metric", "mean"])
        assert lines[start].split()[-1] == "texts"
        first = [line.split()[0] for line in lines[start + 1 : start + 6]]
        assert set(first) <= set(browser.view.numbers), "each metric has one line"

    played(survey, play, (width, 40))


def test_keys_are_those_of_the_inspector_of_a_recording(survey: Survey) -> None:
    ours = {key for each in SurveyBrowser.BINDINGS if isinstance(each, Binding) for key in each.key.split(",")}
    meanings = {"enter", "escape", "backspace", "slash", "o", "O", "r", "f", "v", "y", "s", "q", "question_mark"}
    assert meanings <= ours
    assert not {"a", "p"} & ours, "these do something else there"

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.pause()
        hints = [hint.description for hint in browser.footer.hints]
        assert hints[:5] == ["open", "keys", "quit", "find", "sort"]
        assert "? keys q quit / find o sort" in shown(browser).split("\n")[-1]
        await pilot.press("question_mark")
        assert browser.query(HelpPanel)
        await pilot.press("q")
        assert browser.is_running
        assert not browser.query(HelpPanel), "q hides the list of keys first"

    played(survey, play, (80, 24))


def test_a_run_says_how_long_it_takes_and_q_comes_back(survey: Survey) -> None:
    released = threading.Event()

    def slow(text: str) -> Recording:
        assert released.wait(PATIENCE)
        return Recording(maps=(dense_maps(0),), model=text)

    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: "q goes back" in said(browser))
        assert "running" in said(browser)
        await pilot.press("q")
        await pilot.pause()
        assert "stopped" in said(browser)
        released.set()
        await browser.workers.wait_for_complete()
        await pilot.pause()
        assert browser.is_running, "what was left does not open"

    assert played(survey, play, record=slow).return_value is None


def test_escape_closes_the_prompt_alone_and_keys_typed_at_once_go_into_it(survey: Survey) -> None:
    async def play(pilot: "Pilot[Any]", browser: SurveyBrowser) -> None:
        field = browser.query_one(Input)
        for key, character in (("slash", "/"), ("s", "s"), ("i", "i"), ("n", "n"), ("k", "k")):
            browser.post_message(events.Key(key, character))  # none waits for the one before
        await pilot.pause()
        assert (field.display, field.value, browser.asked) == (True, "sink", "find")
        await pilot.press("slash")
        assert field.value == "sink/"
        await pilot.press("escape")
        assert not field.display
        assert browser.focused is browser.query_one(DataTable)
        await pilot.press("f", *"layer:1", "enter", "f", "escape")
        assert (field.display, browser.view.filter) == (False, "layer:1")

    played(survey, play)
