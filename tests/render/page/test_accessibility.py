"""What axe finds in every view of the page: nothing. It is taken from where it is installed, and else not asked."""

import os
from pathlib import Path

import pytest

from tests.render.page.conftest import Opener
from tests.render.page.examples import report_of, sentence

pytestmark = pytest.mark.slow

INSTALLED = Path(__file__).parents[3] / "tools" / "page" / "node_modules" / "axe-core" / "axe.min.js"
AXE = Path(os.environ.get("AXE", INSTALLED))
VIEWS = (
    *("", "view=numbers", "query=it", "heads=0.1,0.2&together=side"),
    *(f"head=1.2&query=it&view={view}" for view in ("matrix", "arcs", "text", "table")),
)
DIALOGS = ("share-open", "notes-open", "help-open")
FOUND = (
    "axe.run().then(({violations, passes}) => [violations.map(({id, nodes}) => [id, nodes[0].html]), passes.length])"
)


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm install --prefix tools/page axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_view_or_dialog(show: Opener, scheme: str) -> None:
    opened = show(report_of(sentence()), color_scheme=scheme, bypass_csp=True)
    opened.evaluate(AXE.read_text(encoding="utf-8"))
    for view in VIEWS:
        opened.evaluate(f"followAddress('#{view}')")
        opened.settle()
        found, passed = opened.evaluate(FOUND)
        assert found == [], view
        assert passed > 10
    for dialog in DIALOGS:
        opened.page.click(f"#{dialog}")
        assert opened.evaluate(FOUND)[0] == [], dialog
        opened.press("Escape")


def test_first_tab_skips_to_the_heads_and_escape_from_one_token_leaves_the_focus_on_them(show: Opener) -> None:
    opened = show(report_of(sentence()))
    opened.until("scene.strip !== null")
    opened.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the heads"
    opened.press("Enter")
    assert opened.evaluate("document.activeElement.dataset.number") == "0"
    opened.evaluate("location.hash = 'query=it'")
    opened.until("scene.shown?.whole")
    opened.evaluate("document.activeElement.blur()")
    opened.press("Escape")
    opened.until("state.list === 'maps' && document.activeElement.matches('.thumb')")


@pytest.mark.parametrize("width", [1280, 390])
def test_letters_of_twice_the_size_stay_in_the_window_and_are_not_cut(show: Opener, width: int) -> None:
    opened = show(report_of(sentence()), viewport={"width": width, "height": 850})
    opened.evaluate("document.documentElement.style.fontSize = '200%'")
    for view in VIEWS:
        opened.evaluate(f"followAddress('#{view}')")
        opened.evaluate("dispatchEvent(new Event('resize'))")
        opened.until("state.list !== 'lens' || state.head !== null || scene.shown?.whole")
        opened.settle()
        assert opened.evaluate("document.documentElement.scrollWidth") <= width, view
        assert opened.evaluate(CUT) == [], view


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_has_letters_of_less_than_11_pixels(show: Opener, width: int) -> None:
    opened = show(report_of(sentence()), viewport={"width": width, "height": 850})
    for view in (*VIEWS, "heads=0.0,0.1,0.2,1.2&together=side", "heads=0.1,0.2&together=difference"):
        opened.evaluate(f"followAddress('#{view}')")
        opened.until("state.list !== 'lens' || state.head !== null || scene.shown?.whole")
        opened.settle()
        assert opened.evaluate(SMALL) == [], view


SMALL = """[...document.body.querySelectorAll("*")]
    .filter((element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()))
    .filter((element) => element.checkVisibility() && parseFloat(getComputedStyle(element).fontSize) < 11)
    .map((element) => element.outerHTML)"""

# The controls and sentences outside of pictures that are cut, or beyond the window.
CUT = """[...document.querySelectorAll(".tools > *, .bar > *, .maps-head > *, .text > .note, .keys-hint, .list bdi")]
    .filter((element) => element.offsetWidth && !element.matches(".skip, .found") && (element.scrollWidth >
        element.clientWidth + 2 || element.getBoundingClientRect().right > innerWidth + 1))
    .map((element) => element.outerHTML)"""
