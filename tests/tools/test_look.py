"""The browser's look at the site: it names each fault that a page has, and is silent about a sound site."""

from pathlib import Path

import pytest

from tools.docs import look

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(look.CHROMIUM is None, reason="no chromium is installed")]

FOUND = '<ul id="search-results"><li>induction</li></ul>'
STYLE = """<style>
a { color: inherit }
@media (prefers-color-scheme: dark) { body { color: #ccc; background: #111 } .old { color: #222 } }
</style>"""
SCROLLED = '<div class="content" style="overflow-x: auto"><div style="width: 1500px">wide</div></div>'
FAR = '<div style="height: 9000px"></div>'
# A page with each fault, and the lines that name it.
FAULTS: dict[str, tuple[str, list[str]]] = {
    "wide": (
        '<div style="width: 800px">wide</div>',
        ["418 pixels wider than a screen of 390, light", "screen of 390, dark"],
    ),
    "scrolled": (SCROLLED, ["wider than a screen of 390", "wider than a screen of 1440"]),
    "picture": ('<img src="/none.png">', ["missing picture", "none.png: 404"]),
    "script": ("<script>throw Error('torn')</script>", ["script: torn"]),
    "console": ("<script>console.error('torn')</script>", ["console: torn"]),
    "elsewhere": ('<img src="https://example.org/a.png">', ["asks another machine for https://example.org/a.png"]),
    "faint": ('<p class="old">ink</p>', ["hard to read at 390, dark: ink (1.2)"]),
    "frame": (f'{FAR}<iframe loading="lazy" src="/gone/"></iframe>', ["gone/: 404"]),
}
SOUND = f'{FAR}<img loading="lazy" src="/dot.svg"><iframe loading="lazy" src="/page/"></iframe>'
UNLISTED = "lost"


def write(site: Path, **pages: str) -> Path:
    """Writes a page for each name, with a menu of all but the unlisted one, and returns the folder."""
    icon = '<link rel="icon" href="data:,">'
    links = "".join(f'<a href="/{name}/#part">{name}</a> ' for name in pages if name not in ("index", UNLISTED))
    for name, body in {"search": FOUND, **pages}.items():
        file = site / ("" if name == "index" else name) / "index.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        menu = f'<div class="sidebar-tree"><a href="/">home</a> {links}</div>'
        file.write_text(f"<!doctype html>{icon}{STYLE}<body>{menu}{body}", encoding="utf-8")
    return site


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines on a site that has a sound first page, a page with each fault, and one that no menu lists."""
    site = tmp_path_factory.mktemp("site")
    (site / "dot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    return look.faults(write(site, index=SOUND, page="", lost="", **{name: body for name, (body, _) in FAULTS.items()}))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_page_is_named(name: str, faults: list[str]) -> None:
    said = [fault for fault in faults if fault.startswith(f"{name}/: ")]
    assert all(any(line in fault for fault in said) for line in FAULTS[name][1]), faults


def test_a_sound_page_has_no_fault_and_one_that_no_menu_lists_is_named(faults: list[str]) -> None:
    assert {fault.partition(":")[0] for fault in faults} == {*(f"{name}/" for name in FAULTS), f"{UNLISTED}/"}
    assert f"{UNLISTED}/: no menu lists this page" in faults


def test_without_a_browser_the_site_is_left_alone_with_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(look, "CHROMIUM", None)
    assert look.faults(write(tmp_path, index="", lost="")) == []
    assert "was not looked at" in capsys.readouterr().err
