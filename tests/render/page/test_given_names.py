"""Names that people give to heads, in pages."""

from pathlib import Path

import pytest

from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Report
from tests.render.page.conftest import Opener
from tests.render.page.examples import NUMBERS, sentence

pytestmark = pytest.mark.slow


def named_report(file: Path) -> Report:
    return build_report(sentence(), ReportOptions(medium=NUMBERS, look=Look(names=str(file))))


def test_given_name_stands_under_its_head_in_titles_and_is_found_by_a_filter(show: Opener, tmp_path: Path) -> None:
    file = tmp_path / "heads.txt"
    file.write_text("1.2 name mover? </script>\n")
    opened = show(named_report(file))
    assert opened.text(".thumb[data-number='6'] .names") == "“name mover? </script>”"
    assert "“" not in opened.text(".thumb[data-number='5']")
    opened.evaluate("location.hash = 'head=1.2'")
    opened.until("scene.current !== null")
    assert opened.text("#head-title").startswith("Head 1.2 · “name mover? </script>”")
    opened.evaluate("location.hash = 'filter=mover'")
    opened.until("state.head === null")
    assert opened.evaluate("listedHeads()") == [6]
    opened.evaluate("location.hash = 'query=it'")
    opened.until("scene.shown?.whole")
    assert opened.evaluate("scene.shown.queries.labels[6]").startswith("1.2 · “name mover?")
