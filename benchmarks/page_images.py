"""Measures the page of an image: its bytes for 24 x 24 patches in 144 heads, and pointing at a patch of 32 x 32."""

import tempfile
from pathlib import Path

import numpy as np

from attnviz.api.drawing import draw
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.reading.media_tokens import image_tokens
from attnviz.text.tokens import Tokens
from benchmarks.page import AT_REST, HOVER, PEAK, busy, opened, say
from tests.conftest import random_maps

LAYERS, HEADS, SIDE, LARGE_SIDE, PATCH = 12, 12, 24, 32, 16
LIMITS = {"bytes": 5e6, "hover": 16}
VIEWS = ("matrix", "text")
STEPS = 72  # patches that are pointed at, one after the other

POINTED = """async (steps) => {
    const canvas = document.querySelector("canvas.patches-image");
    const {left, top, width, height} = canvas.getBoundingClientRect();
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const times = [];
    for (let step = 0; step < steps; step++) {
        const [x, y] = [left + ((step * 37) % 97 + 1) / 99 * width, top + ((step * 53) % 89 + 1) / 91 * height];
        const event = new PointerEvent("pointermove", {clientX: x, clientY: y, bubbles: true, pointerType: "mouse"});
        await frame();
        const start = performance.now();
        canvas.dispatchEvent(event);
        document.body.offsetHeight;
        canvas.getContext("2d").getImageData(0, 0, 1, 1); // waits until the canvas is painted
        times.push(performance.now() - start);
    }
    return times.sort((one, two) => one - two);
}"""


def main() -> None:
    """Prints each figure and its limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        for name, peak in (("even", 0.5), ("peaked", PEAK)):
            write_page(path, SIDE, LAYERS, HEADS, peak)
            say(f"{SIDE} x {SIDE} patches, 144 heads, {name}: MB", path.stat().st_size / 1e6, LIMITS["bytes"] / 1e6)
        write_page(path, LARGE_SIDE, 1, 2, PEAK)
        show_pointing(path)


def write_page(path: Path, side: int, layers: int, heads: int, peak: float) -> None:
    """Writes the page of random heads over ``[CLS]`` and ``side`` x ``side`` patches."""
    tokens = patches(side)
    maps = [random_maps(tokens, layer=layer, heads=heads, peak=peak, seed=layer) for layer in range(layers)]
    path.write_bytes(draw(Recording(maps=tuple(maps), model="random scores"), ".html"))


def patches(side: int) -> Tokens:
    """Returns ``[CLS]`` and the patches of a grey image of ``side`` x ``side`` patches."""
    pixels = side * PATCH
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 1), dtype=np.uint8)
    image = Image(np.tile(noise.repeat(PATCH, 0).repeat(PATCH, 1), 3), pixels, pixels, "noise")
    corners = [(column * PATCH, row * PATCH) for row in range(side) for column in range(side)]
    places = np.array([(0, 0, 0, 0), *((left, top, left + PATCH, top + PATCH) for left, top in corners)])
    return image_tokens(image, places)


def show_pointing(path: Path) -> None:
    """Moves a pointer over the patches of a head, and times each move until the image is painted."""
    with opened(path) as page:
        if page is None:
            return
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for view in VIEWS:
            page.evaluate(HOVER, [view, 1])
            page.wait_for_timeout(AT_REST)
            before = busy(session)
            times = page.evaluate(POINTED, STEPS)
            name = f"pointing at a patch of {LARGE_SIDE**2}, {view}"
            say(f"{name}, processor time: ms", (busy(session) - before) / STEPS, LIMITS["hover"])
            say(f"{name}, median: ms", times[STEPS // 2], LIMITS["hover"])
            say(f"{name}, slowest of {STEPS}: ms", times[-1], LIMITS["hover"])


if __name__ == "__main__":
    main()
