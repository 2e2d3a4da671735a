"""The browser's look at the site: it names each fault that a page has, and is silent about a sound site."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.docs import look

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(look.CHROMIUM is None, reason="no chromium is installed")]

MENU = '<div class="sidebar-tree"><a href="/">home</a> <a href="/page/#part">page</a></div>'
FOUND = '<ul id="search-results"><li>induction</li></ul>'
STYLE = """<style>
a { color: inherit }
@media (prefers-color-scheme: dark) { body { color: #ccc; background: #111 } .old { color: #222 } }
</style>"""


def write(site: Path, **pages: str) -> Path:
    """Writes a page with the menu for each name, and returns the folder."""
    icon = '<link rel="icon" href="data:,">'
    for name, body in {"search": FOUND, "page": "", **pages}.items():
        file = site / ("" if name == "index" else name) / "index.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"<!doctype html>{icon}{STYLE}<body>{MENU}{body}", encoding="utf-8")
    return site


def test_a_sound_site_has_no_fault(tmp_path: Path) -> None:
    dot = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    (tmp_path / "dot.svg").write_text(dot)
    far = '<div style="height: 9000px"></div><img loading="lazy" src="/dot.svg">'
    assert look.faults(write(tmp_path, index=far + '<iframe loading="lazy" src="/page/"></iframe>')) == []


def bodies() -> Iterator[tuple[str, list[str]]]:
    """Yields what a page may have, and the lines that name it."""
    yield (
        '<div style="width: 800px">wide</div>',
        ["page/: 418 pixels wider than a screen of 390, light", "screen of 390, dark"],
    )
    scrolled = '<div class="content" style="overflow-x: auto"><div style="width: 1500px">wide</div></div>'
    yield scrolled, ["wider than a screen of 390", "wider than a screen of 1440"]
    yield '<img src="/none.png">', ["missing picture", "none.png: 404"]
    yield "<script>throw Error('torn')</script>", ["script: torn"]
    yield "<script>console.error('torn')</script>", ["console: torn"]
    yield '<img src="https://example.org/a.png">', ["asks another machine for https://example.org/a.png"]
    yield '<p class="old">ink</p>', ["hard to read at 390, dark: ink (1.2)"]
    yield '<div style="height: 9000px"></div><iframe loading="lazy" src="/lost/"></iframe>', ["lost/: 404"]


@pytest.mark.parametrize(("body", "lines"), bodies())
def test_a_fault_of_a_page_is_named(body: str, lines: list[str], tmp_path: Path) -> None:
    faults = look.faults(write(tmp_path, index="", page=body))
    assert all(any(line in fault for fault in faults) for line in lines), faults
    assert all(fault.startswith("page/: ") for fault in faults), faults


def test_a_page_that_no_menu_lists_is_named(tmp_path: Path) -> None:
    assert look.faults(write(tmp_path, index="", lost="")) == ["lost/: no menu lists this page"]


def test_without_a_browser_the_site_is_left_alone_with_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(look, "CHROMIUM", None)
    assert look.faults(write(tmp_path, index="", lost="")) == []
    assert "was not looked at" in capsys.readouterr().err
