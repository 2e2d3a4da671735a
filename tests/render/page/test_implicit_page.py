"""The page of implicit attention: numbers of either sign, in percent of the largest, and no scores."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recurrent import RecurrentMaps
from attnviz.render.page.packing import report_in_percent
from attnviz.report.picture.report import ExactNumbers
from tests.maps.examples import implicit_recording
from tests.render.page.conftest import Opener
from tests.render.page.examples import report_of


@pytest.mark.slow
def test_page_draws_the_numbers_with_their_signs_around_the_paper(show: Opener) -> None:
    recording = implicit_recording()
    [maps] = recording.maps
    assert isinstance(maps, RecurrentMaps)
    opened = show(report_of(recording))
    opened.evaluate("location.hash = 'head=0.1&query=5'")
    opened.until("scene.shown?.number === 1 && scene.current !== null")
    row = np.array(opened.evaluate("[...scene.shown.line('query', 5)]"))
    assert row[:6] == pytest.approx(maps.weights[1, 5, :6] / maps.largest, abs=1e-6)
    assert row[6] == -2  # absent: a later token
    assert opened.text("#legend").startswith("implicit attention")
    assert opened.evaluate("scene.shown.scale.change") is True
    numbers = opened.evaluate("quantitiesOf(scene.shown).map(({ name, text }) => [name, text(5, 0)])")
    number = f"{maps.weights[1, 5, 0] / maps.largest:+.2%}".replace("-", "−")
    assert numbers == [["implicit attention", number]]
    opened.evaluate("location.hash = 'head=0.1&view=table'")
    opened.until("document.querySelector('table') !== null")
    assert number in opened.text("body")
    assert "Scores" not in opened.text("body")


def test_page_of_a_long_text_is_refused() -> None:
    report = report_of(implicit_recording(2049, heads=1, features=2))
    assert isinstance(report, ExactNumbers)
    with pytest.raises(AttnvizError, match="a page draws implicit attention of single tokens, at most 2048"):
        report_in_percent(report)
