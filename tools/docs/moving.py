"""Draws the moving picture of a page that README shows: a word is clicked, the heads are sorted, and one opens."""

import io
from pathlib import Path

from PIL import Image, ImageDraw, ImageSequence
from playwright.sync_api import Locator, Page, sync_playwright

from tools.docs.look import CHROMIUM
from tools.docs.sameness import difference
from tools.docs.stills import MOUSE

SIZE = (960, 640)
COLORS = 128
SETTLED = 700  # milliseconds, after which no part of the page moves any more
LOOK, MOVE, PRESS = 2200, 60, 350  # milliseconds that a frame stays: to be read, while the mouse moves, on a click
STEPS = 6  # frames of a way of the mouse
ARROW = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]  # pixels


class _Camera:
    """Takes pictures of a page with the mouse in them."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.mouse = (SIZE[0] * 0.6, SIZE[1] * 0.55)
        self.frames: list[tuple[Image.Image, int]] = []  # each with its milliseconds

    def take(self, milliseconds: int) -> None:
        """Adds a frame that shows the page as it is now."""
        with Image.open(io.BytesIO(self.page.screenshot())) as shot:
            picture = shot.convert("RGB")
        x, y = self.mouse
        ImageDraw.Draw(picture).polygon([(x + dx, y + dy) for dx, dy in ARROW], fill="black", outline="white")
        self.frames.append((picture, milliseconds))

    def go(self, target: Locator) -> None:
        """Moves the mouse to the middle of an element."""
        box = target.bounding_box()
        assert box is not None
        start, end = self.mouse, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for step in range(1, STEPS + 1):
            share = step / STEPS
            self.mouse = (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
            self.page.mouse.move(*self.mouse)
            self.take(MOVE if step < STEPS else PRESS)

    def click(self, target: Locator) -> None:
        """Moves the mouse to an element, clicks, and shows long enough to be read what the page becomes."""
        self.go(target)
        self.page.mouse.click(*self.mouse)
        self.look()

    def look(self) -> None:
        """Waits until the page has settled, and shows it long enough to be read."""
        self.page.wait_for_timeout(SETTLED)
        self.take(LOOK)


def film(file: Path, target: Path) -> None:
    """Writes a GIF of what a reader does on the gallery's page: clicks "it", sorts the heads, opens the head 2.8."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", MOUSE])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(file.absolute().as_uri())
        camera = _Camera(page)
        camera.look()
        camera.click(page.locator("button.token >> text=/^it$/"))
        camera.go(page.locator("#sort"))
        page.select_option("#sort", label="by weight")
        camera.look()
        camera.click(page.get_by_text("2.8", exact=True).first)
        browser.close()
    pictures = [picture for picture, _ in camera.frames]
    durations = [milliseconds for _, milliseconds in camera.frames]
    scenes = [picture for picture, milliseconds in camera.frames if milliseconds == LOOK]
    sheet = Image.new("RGB", (SIZE[0], SIZE[1] * len(scenes)))
    for number, scene in enumerate(scenes):
        sheet.paste(scene, (0, SIZE[1] * number))
    palette = sheet.quantize(COLORS, Image.Quantize.MAXCOVERAGE, kmeans=3)  # one for all frames: nothing flickers
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    first.save(target, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)


def scenes(film: Path) -> list[Image.Image]:
    """Returns the frames that stay long enough to be read."""
    with Image.open(film) as picture:
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(picture)]
    return [frame for frame, milliseconds in frames if milliseconds == LOOK]


def is_todays(film: Path, today: Path) -> bool:
    """True if two films show the same scenes."""
    before, after = scenes(film), scenes(today)
    return len(before) == len(after) and all(difference(*pair) is None for pair in zip(before, after, strict=True))
