"""Pages in Firefox: every view is drawn, and tokens stay text."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from tests.render.page.examples import HOSTILE, report_of, with_labels
from tests.render.page.firefox import FIREFOX, firefox

pytestmark = [pytest.mark.slow, pytest.mark.skipif(FIREFOX is None, reason="no firefox is installed")]

# Whether each picture has its labels, and cells that are painted or lines.
DRAWN = """[...document.querySelectorAll('.stage-view')].every((view) => {
    const canvas = view.querySelector('canvas');
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const isPainted = data.some((part) => part) || view.querySelectorAll('path').length > 5;
    return isPainted && view.querySelectorAll('text').length > 5;
})"""


def test_every_view_is_drawn_and_tokens_stay_text_in_firefox(tmp_path: Path) -> None:
    maps = with_labels(HOSTILE, HOSTILE).maps[0]
    two = tuple(replace(maps, layer=layer, module=f"layers.{layer}") for layer in range(2))
    page, profile = tmp_path / "page.html", tmp_path / "profile"
    page.write_bytes(draw(report_of(Recording(maps=two, model="a test")), ".html"))
    profile.mkdir()
    with firefox(profile) as browser:
        browser.open(page)
        browser.evaluate("location.hash = 'view=maps'")  # few heads begin side by side
        browser.until("document.querySelectorAll('.thumb canvas').length === 2")
        assert browser.evaluate("document.querySelector('.text-strip .token').textContent") == HOSTILE[0]
        shown = {
            "#head=1.0": "canvas.stage-base",
            "#head=1.0&view=arcs": "canvas.stage-base",
            "#head=1.0&view=text&key=0": ".text-large .token",
            "#head=1.0&view=table&query=0": "tbody tr",
            "#query=0": "canvas.stage-base",
            "#view=numbers": "tbody tr",
            "#heads=0.0,1.0&together=mean": "canvas.stage-base",
        }
        for address, selector in shown.items():
            browser.evaluate(f"location.hash = {address!r}")
            browser.until(f"location.hash === {address!r} && document.querySelector({selector!r}) && {DRAWN}")
            assert browser.evaluate("[document.images.length, document.querySelectorAll('script[src]').length]") == [
                0,
                0,
            ]
