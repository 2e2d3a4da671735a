"""The page of two surveys: arrows from before to after, what surely changes, the numbers of a head, and its address."""

import io
from pathlib import Path
from typing import Any

import pytest

from attnviz.metrics.head_frame import HeadChanges, HeadRow, NumberChange
from attnviz.metrics.measure import Measure
from attnviz.render.page.draw import write
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import HeadList, Summary
from attnviz.text.head_name import HeadName
from tests.render.page.conftest import new_page

NUMBERS = {  # before, after and margin of the change
    ("0.0", "sink"): (0.2, 0.9, 0.1),
    ("0.0", "entropy"): (3.0, 2.9, 0.5),
    ("1.3", "sink"): (0.5, 0.45, 0.2),
    ("1.3", "entropy"): (1.0, 1.0, 0.0),
    ("2.1", "sink"): (0.1, 0.4, 0.05),
    ("2.1", "entropy"): (2.0, float("nan"), float("nan")),
}


def report() -> HeadList:
    changes = []
    for (name, metric), (before, after, margin) in NUMBERS.items():
        layer, head = map(int, name.split("."))
        measure = Measure(metric, metric, "share", "a number")
        row = HeadRow((HeadName(layer, head),))
        changes.append(NumberChange(row, measure, before, after, margin, (9, 9)))
    results = HeadChanges(tuple(changes), ("a remark",), {})
    return HeadList(
        title="Two <b>surveys</b>", caption="A caption.", remarks=("a remark",), look=Look(), results=results,
        summary=Summary(header=(), rows=()),
    )  # fmt: skip


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Any:
    with io.BytesIO() as file:
        write(report(), ".html", file)
        content = file.getvalue()
    path = tmp_path / "changes.html"
    path.write_bytes(content)
    page = new_page(browser, viewport={"width": 1000, "height": 800})
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    yield page
    page.context.close()
    assert wrong == []


@pytest.mark.slow
def test_arrows_go_from_before_to_after_of_heads_that_surely_change(opened: Any) -> None:
    assert opened.inner_text("h1") == "Two <b>surveys</b>"
    assert opened.locator(".arrow text").all_text_contents() == [
        "0.0"
    ]  # 2.1 lacks an entropy, 1.3 does not surely change
    assert "1 of 2 heads surely change in sink or entropy" in opened.inner_text("#note")
    line = opened.locator(".arrow line").first
    assert float(line.get_attribute("x2")) > float(line.get_attribute("x1"))
    assert float(line.get_attribute("y2")) > float(line.get_attribute("y1"))  # less entropy is lower down
    opened.check("#all")
    assert opened.locator(".arrow text").all_text_contents() == ["0.0", "1.3"]
    opened.select_option("#up", "sink")
    assert opened.locator(".arrow text").all_text_contents() == ["0.0", "1.3", "2.1"]
    assert opened.evaluate("location.hash") == "#across=sink&up=sink&all=1"


@pytest.mark.slow
def test_clearest_changes_stand_first_and_a_click_shows_every_number_of_a_head(opened: Any) -> None:
    rows = [row.split("\t") for row in opened.inner_text("#changes tbody").splitlines() if "\t" in row]
    assert [row[0].strip() for row in rows] == ["0.0", "2.1", "1.3", "0.0"]
    assert rows[0][1:] == ["sink", "0.200", "0.900", "+0.700", "0.100", "13.7"]
    opened.click(".arrow circle >> nth=1")
    assert opened.inner_text("#changes h2") == "Head 0.0"
    assert opened.locator("#changes tbody tr").count() == 2
    opened.keyboard.press("Escape")
    assert opened.inner_text("#changes h2") == "The 4 clearest changes"


@pytest.mark.slow
def test_address_names_axes_and_head(opened: Any) -> None:
    opened.evaluate("location.hash = 'across=entropy&up=sink&head=1.3'")
    opened.wait_for_timeout(100)
    assert opened.inner_text("#changes h2") == "Head 1.3"
    assert [opened.input_value("#across"), opened.input_value("#up")] == ["entropy", "sink"]
