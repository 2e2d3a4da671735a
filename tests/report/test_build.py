"""Reports of single heads and of one map that combines them."""

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.formats import options_for_medium
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Grouping
from tests.report.examples import drawn


def test_order_of_heads_that_one_map_combines_is_refused(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="sort='entropy' orders heads, and reduce='mean' makes one map of them"):
        build_report(recording, ReportOptions(reduce="mean", sort="entropy"))


def test_first_heads_of_an_order_are_combined(recording: Recording) -> None:
    first = drawn(build_report(recording, ReportOptions(reduce="mean", sort="entropy", top=1)))
    other = drawn(build_report(recording, ReportOptions(reduce="mean", sort="-entropy", top=1)))
    assert first.panels[0].title != other.panels[0].title


@pytest.mark.parametrize(
    ("suffix", "by", "said"), [(".html", "words", True), (".html", "tokens", False), (".png", "words", False)]
)
def test_a_page_of_units_says_how_to_see_single_tokens(recording: Recording, suffix: str, by: str, said: bool) -> None:
    options = options_for_medium(ReportOptions(grouping=Grouping(by=by)), suffix)
    remarks = build_report(recording, options).remarks
    assert ("Rows and columns are words; without by='words' the page has single tokens." in remarks) == said
