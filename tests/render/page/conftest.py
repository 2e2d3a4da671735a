"""A browser for the tests of pages: opens reports and notes everything that goes wrong in them."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from attnviz.report.picture.report import Report
from tests.patience import PATIENCE
from tests.render.page.examples import report_of, sentence

Make = Callable[[], Recording | Report]
Shared = Callable[[Make], "Opened"]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
USUAL: dict[str, Any] = {"viewport": {"width": 1280, "height": 850}, "accept_downloads": True}


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, for all tests of this folder."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def window(browser: Any) -> Any:
    """A page of the usual settings, which one test after another takes: a new one costs more than most tests."""
    return new_page(browser, **USUAL)


@dataclass
class Opened:
    """A page in the browser, and what went wrong in it."""

    page: Any
    wrong: list[str] = field(default_factory=list)
    listeners: list[tuple[str, Any]] = field(default_factory=list)

    def listen(self, event: str, listener: Any) -> None:
        self.listeners.append((event, listener))
        self.page.on(event, listener)

    def forget(self) -> None:
        """Leaves the window as it was before."""
        for event, listener in self.listeners:
            self.page.remove_listener(event, listener)
        self.let_go()

    def begin_again(self) -> None:
        """Shows what the page began with: nothing that a reader has chosen, opened or pointed at is left."""
        self.let_go()
        self.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
        self.evaluate("(document.activeElement.blur(), scrollTo(0, 0), set(begun))")
        self.settle()

    def let_go(self) -> None:
        assert self.page.context.pages == [self.page], "a page behind another one draws one frame a second"
        self.page.mouse.up()
        self.page.mouse.move(-1, -1)
        self.page.emulate_media(media="null")
        self.page.set_viewport_size(USUAL["viewport"])

    def open_head(self, number: int = 0, view: str = "matrix") -> None:
        self.page.evaluate(f"location.hash = 'head=x&number={number}&view={view}'")
        self.until(f"scene.current && scene.shown.number === {number} && state.view === '{view}'")

    def show_maps(self) -> None:
        """Shows all heads as maps, where few heads begin side by side."""
        self.page.evaluate("location.hash = 'view=maps'")
        self.until("state.head === null && state.together === null && state.list === 'maps'")
        self.settle()

    def show_why(self) -> None:
        """Shows the answer with which the page of an explained prediction begins."""
        self.page.evaluate("location.hash = ''")
        self.until("state.list === 'why' && state.pin === null && document.querySelector('.why-view')")
        self.settle()

    def until(self, condition: str) -> None:
        """Waits for a condition; the page's policy forbids the browser to do so by itself."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never: {condition}"
            self.page.wait_for_timeout(10)

    def settle(self) -> None:
        """Waits until what was asked for is drawn: for the frame that draws it, and the next one."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def resize(self, width: int, height: int) -> None:
        """Sets the window's size and waits until the page is laid out for it."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.until(f"innerWidth === {width} && innerHeight === {height}")
        self.settle()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def middle_of_cell(self, query: int, key: int) -> tuple[float, float]:
        place = self.evaluate(f"scene.current.stage.picture.placeOf({{query: {query}, key: {key}}})")
        bounds = self.page.locator(".stage-over").bounding_box()
        return bounds["x"] + place["x"] + place["width"] / 2, bounds["y"] + place["y"] + place["height"] / 2

    def color_of_patch(self, image: int, patch: int, across: float = 0.5) -> Any:
        """Returns red, green and blue of a point of a patch, from its left, 0, to its right, 1, in the text on top."""
        return self.evaluate(f"""(() => {{
            const {{ image, canvas }} = scene.strip.drawn[0].words.images[{image}];
            const [left, top, right, bottom] = image.boxes[{patch}];
            const size = canvas.width / image.width;
            const [x, y] = [left + {across} * (right - left), (top + bottom) / 2].map((at) => Math.round(at * size));
            const pixel = contextOf(newCanvas(1, 1));
            pixel.drawImage(canvas, -x, -y);
            return Array.from(pixel.getImageData(0, 0, 1, 1).data.slice(0, 3));
        }})()""")


def new_page(browser: Any, **settings: Any) -> Any:
    """An empty page, which waits as long as a busy machine may take."""
    context = browser.new_context(**settings)
    context.set_default_timeout(1000 * PATIENCE)
    return context.new_page()


@dataclass
class Opener:
    """Opens reports as pages."""

    browser: Any
    folder: Path
    window: Any = None  # a page that is there already, for the first report of the usual settings
    opened: list[Opened] = field(default_factory=list)
    shared: dict[Make, Opened] = field(default_factory=dict)

    def __call__(self, report: Report, **context: Any) -> Opened:
        path = self.folder / f"page-{len(self.opened)}.html"
        path.write_bytes(draw(report, ".html"))
        takes_window = self.window is not None and not self.opened and not context.keys() - {"viewport"}
        opened = Opened(self.window if takes_window else new_page(self.browser, **USUAL | context))
        self.opened.append(opened)
        if takes_window and "viewport" in context:
            opened.page.set_viewport_size(context["viewport"])
        opened.listen("console", lambda message: opened.wrong.append(f"console: {message.text}"))
        opened.listen("pageerror", lambda error: opened.wrong.append(f"error: {error}"))
        opened.listen("dialog", lambda dialog: opened.wrong.append(f"dialog: {dialog.message}"))
        allowed = (path.as_uri(), "data:,", "blob:")
        opened.listen(
            "request",
            lambda request: None if request.url.startswith(allowed) else opened.wrong.append(f"request: {request.url}"),
        )
        opened.page.goto(path.as_uri())
        if takes_window and "viewport" in context:  # a busy browser tells the page of its size when it can
            opened.resize(**context["viewport"])
        return opened

    def close(self) -> None:
        """No page may have complained or asked for anything."""
        for opened in self.opened:
            if opened.page is self.window:
                opened.forget()
            else:
                opened.page.context.close()
            assert opened.wrong == []


@pytest.fixture
def show(browser: Any, window: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens reports as pages; afterwards no page may have complained or asked for anything."""
    opener = Opener(browser, tmp_path, window)
    yield opener
    opener.close()


@pytest.fixture(scope="module")
def show_to_all(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Opens reports as pages that several tests of a file look at, each in a window of its own."""
    opener = Opener(browser, tmp_path_factory.mktemp("pages"))
    yield opener
    opener.close()


@pytest.fixture
def shared(show_to_all: Opener) -> Iterator[Shared]:
    """The page of what a function makes, as it begins: opened once for all tests of a file that ask for it."""
    used: list[Opened] = []

    def page_of(make: Make) -> Opened:
        if make not in show_to_all.shared:
            made = make()
            show_to_all.shared[make] = show_to_all(report_of(made) if isinstance(made, Recording) else made)
        used.append(show_to_all.shared[make])
        return used[-1]

    yield page_of
    for opened in used:
        opened.begin_again()
        assert opened.wrong == []


@pytest.fixture(scope="package")
def sentence_page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A page of a sentence for all tests of this folder: a page of its own costs a test more than most claims."""
    opener = Opener(browser, tmp_path_factory.mktemp("sentence"))
    yield opener(report_of(sentence()))
    opener.close()


@pytest.fixture
def page(sentence_page: Opened) -> Iterator[Opened]:
    """The page of a sentence, as it begins; afterwards it may not have complained or asked for anything."""
    yield sentence_page
    sentence_page.begin_again()
    assert sentence_page.wrong == []
