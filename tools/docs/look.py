"""Opens every page of the built site in headless Chromium, narrow and wide, light and dark, and lists what is wrong."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDTHS = (390, 1440)  # CSS pixels: a phone and a laptop
HEIGHT = 900
SCHEMES = ("light", "dark")
CONTRAST = 3.0  # the least that WCAG 2 accepts, for large text; below it, a colour belongs to the other scheme
SEARCHED = "induction"
GENERATED = {"genindex/", "search/"}  # pages of Sphinx that every page links to, but that no menu lists

LINKS = "[...document.querySelectorAll('.sidebar-tree a[href]')].map(a => a.href)"
LOAD_ALL = """Promise.all([...document.querySelectorAll('[loading=lazy]')].map(each => {
    const blank = each.contentDocument?.URL === 'about:blank';
    if (each.complete || (!blank && each.contentDocument?.readyState === 'complete')) return null;
    return new Promise(done => { each.onload = each.onerror = done; each.loading = 'eager'; });
}))"""
WIDER = """Math.max(...[...document.querySelectorAll('html, .content')].map(
    each => each.scrollWidth - each.clientWidth))"""
MISSING = "[...document.images].filter(each => !each.complete || !each.naturalWidth).map(each => each.src)"
FAINT = """least => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const linear = value => value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const luminance = color =>
        0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2]);
    const background = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = rgba(getComputedStyle(at).backgroundColor);
            if (color[3] > 250) return color;
        }
        return [255, 255, 255, 255];
    };
    const faint = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
        if (!text || !element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
        const ink = rgba(getComputedStyle(element).color);
        const [low, high] = [ink, background(element)].map(luminance).sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05), start = text.slice(0, 30);
        if (contrast < least) faint.set(element.className || element.tagName, `${start} (${contrast.toFixed(1)})`);
    }
    return [...faint.values()];
}"""


def faults(site: Path) -> list[str]:
    """Returns a line for each fault of the built site; no line, after a remark, if no Chromium is installed."""
    if CHROMIUM is None or find_spec("playwright") is None:
        print("the site was not looked at, as Chromium or playwright is not installed", file=sys.stderr)
        return []
    from playwright.sync_api import sync_playwright

    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        lines = list(site_faults(browser.new_page(), address, site))
        browser.close()
    return lines


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serves a folder on this machine alone, and gives its address."""
    handler = partial(QuietHandler, directory=str(site))
    with QuietServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class QuietServer(ThreadingHTTPServer):
    """Serves files, and accepts that the browser hangs up when it leaves a page that is still loading."""

    def handle_error(self, *_: Any) -> None:
        """Prints nothing: what did not arrive is missing on the page."""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def site_faults(page: Any, address: str, site: Path) -> Iterator[str]:
    """Yields the faults of every page of the menu, of pages that no menu lists, and of the search."""
    noted = notes(page, address)
    page.goto(address)
    listed = dict.fromkeys([address, *(link.partition("#")[0] for link in page.evaluate(LINKS))])
    built = {file.parent.relative_to(site).as_posix() + "/" for file in site.rglob("index.html")} - {"./"}
    for name in sorted(built - GENERATED - {link.removeprefix(address) for link in listed}):
        yield f"{name}: no menu lists this page"
    for link in listed:
        yield from (f"{link.removeprefix(address) or '/'}: {line}" for line in page_faults(page, link, noted))
    yield from search_faults(page, f"{address}search/?q={SEARCHED}")


def search_faults(page: Any, link: str) -> Iterator[str]:
    """Yields a line if the search finds nothing within ten seconds."""
    from playwright.sync_api import TimeoutError as NothingFound

    page.goto(link)
    try:
        page.wait_for_selector("#search-results li", timeout=10_000)
    except NothingFound:
        yield f"{link} finds nothing"


def notes(page: Any, address: str) -> list[str]:
    """Returns a list that grows with each error, failed request, or request to another machine, of a page."""
    noted: list[str] = []

    def ask(route: Any) -> None:
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
            return
        noted.append(f"asks another machine for {route.request.url}")
        route.abort()

    page.route("**/*", ask)
    page.on("console", lambda message: noted.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: noted.append(f"script: {error}"))
    page.on("response", lambda reply: noted.append(f"{reply.url}: {reply.status}") if reply.status >= 400 else None)
    return noted


def page_faults(page: Any, link: str, noted: list[str]) -> Iterator[str]:
    """Yields the faults of a page at every width in both colour schemes, and empties the list of its errors."""
    noted.clear()
    page.goto(link)
    page.evaluate(LOAD_ALL)  # which a reader does by scrolling
    for frame in page.frames:
        frame.wait_for_load_state()
    for width, scheme in product(WIDTHS, SCHEMES):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.emulate_media(color_scheme=scheme)
        if (excess := page.evaluate(WIDER)) > 0:
            yield f"{excess} pixels wider than a screen of {width}, {scheme}"
        yield from (f"hard to read at {width}, {scheme}: {text}" for text in page.evaluate(FAINT, CONTRAST))
    yield from (f"missing picture {name}" for name in page.evaluate(MISSING))
    yield from dict.fromkeys(noted)
