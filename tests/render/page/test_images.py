"""Pages of images, and of words beside them: what is drawn over an image, and what is said of it."""

import json
import re
from typing import Any

import pytest

from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from tests.conftest import dense
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import report_of
from tests.report.image_examples import image_recording, words_and_images_recording

WORDS = words_and_images_recording()
RED, SECOND = 15, 7  # the last word, and the first patch of the second image


def texts_of(recording: Recording) -> Any:
    """Returns the texts of the axes, as the page's data hold them."""
    data = re.search(rb'id="page-data">(.*?)</script>', draw(report_of(recording), ".html"), re.DOTALL)
    assert data is not None
    return json.loads(data[1])["texts"]


def color_of_patch(opened: Opened, image: int, patch: int, across: float = 0.5) -> Any:
    """Returns red, green and blue of a point of a patch, from its left, 0, to its right, 1, in the text on top."""
    return opened.evaluate(f"""(() => {{
        const {{ image, canvas }} = scene.strip.drawn[0].words.images[{image}];
        const [left, top, right, bottom] = image.boxes[{patch}];
        const size = canvas.width / image.width;
        const [x, y] = [Math.round((left + {across} * (right - left)) * size), Math.round((top + bottom) / 2 * size)];
        const pixel = contextOf(newCanvas(1, 1));
        pixel.drawImage(canvas, -x, -y);
        return Array.from(pixel.getImageData(0, 0, 1, 1).data.slice(0, 3));
    }})()""")


def blueness(color: list[int]) -> int:
    return color[2] - color[0]


def open_head(show: Opener, recording: Recording, **context: Any) -> Opened:
    opened = show(report_of(recording), **context)
    opened.open_head(0)
    opened.until("page.texts.every(({ images }) => images.every((image) => photoOf(image).naturalWidth))")
    opened.settle()
    return opened


def test_page_holds_each_image_once_with_the_tokens_that_are_its_patches() -> None:
    [text] = texts_of(WORDS)
    first, second = text["images"]
    assert (first["tokens"], second["tokens"]) == (list(range(6)), list(range(SECOND, SECOND + 6)))
    assert second["boxes"][1] == [30, 0, 60, 40]
    assert text["others"] == "words"
    assert first["src"].startswith("data:image/jpeg;base64,")
    assert first["src"] != second["src"]
    [alone] = texts_of(image_recording())
    assert [image["tokens"] for image in alone["images"]] == [list(range(1, 7))]
    assert alone["others"] == "tokens without a place"


def test_a_word_colours_its_patches_and_the_share_of_each_image_is_said(show: Opener) -> None:
    opened = open_head(show, WORDS)
    row = dense(WORDS).weights[0, RED]
    opened.page.get_by_role("button", name="red", exact=True).first.click()
    opened.until(f"state.pin?.query === {RED}")
    opened.settle()
    patch = int(row[SECOND : SECOND + 6].argmax())
    faint = int(row[SECOND : SECOND + 6].argmin())
    assert blueness(color_of_patch(opened, 1, patch)) > blueness(color_of_patch(opened, 1, faint))
    shares = row[:6].sum(), row[SECOND : SECOND + 6].sum()
    said = [f"{share:.0%} on image {number}" for number, share in enumerate(shares, 1)]
    assert opened.evaluate("Array.from(document.querySelectorAll('#text .share'), (part) => part.textContent)") == [
        *said,
        f"{1 - sum(shares):.0%} on words",
    ]


def test_a_run_of_patches_is_one_bracket_and_other_tokens_stay(show: Opener) -> None:
    opened = open_head(show, WORDS)
    assert opened.evaluate("Array.from(document.querySelectorAll('#text .token'), (token) => token.textContent)") == [
        "[image 1: 6 patches]",
        "<sep>",
        "[image 2: 6 patches]",
        "what",
        "is",
        "red",
    ]


def test_pointing_at_a_patch_shows_what_looks_at_it_and_frames_it(show: Opener) -> None:
    opened = open_head(show, WORDS)
    opened.evaluate("choose('direction', 'from')")
    opened.settle()
    bounds = opened.page.locator("#text canvas.patches-image").nth(1).bounding_box()
    opened.page.mouse.move(bounds["x"] + bounds["width"] * 45 / 120, bounds["y"] + bounds["height"] * 60 / 80)
    opened.until(f"state.mark?.key === {SECOND + 4}")  # the middle of the lower row
    opened.settle()
    assert opened.text("#text > .note").startswith("Shaded: what attends to “2:r1c1”")
    shares = opened.evaluate("Array.from(document.querySelectorAll('#text .share'), (part) => part.textContent.trim())")
    assert color_of_patch(opened, 1, 4, across=0) == [255, 255, 255]  # the frame
    assert color_of_patch(opened, 0, 4, across=0) != [255, 255, 255]
    assert shares == ["", "", ""]  # a column of weights has no sum that means something
    column = dense(WORDS).weights[0, :, SECOND + 4]
    strongest = WORDS.maps[0].query_tokens.labels[int(column.argmax())]
    assert strongest in opened.text("#pointed")


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (390, False)])
def test_words_stand_beside_images_or_below_them(show: Opener, width: int, beside: bool) -> None:
    opened = open_head(show, WORDS, viewport={"width": width, "height": 850})
    images = opened.page.locator("#text .patches-images").bounding_box()
    words = opened.page.locator("#text .patches-words").bounding_box()
    assert (words["x"] >= images["x"] + images["width"]) == beside
    assert (words["y"] >= images["y"] + images["height"]) != beside
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_the_smallest_patch_under_the_pointer_is_meant(show: Opener) -> None:
    opened = open_head(show, image_recording())
    found = opened.evaluate(
        "tokenAt({ width: 100, tokens: [7, 8, 9], boxes: [[0, 0, 50, 50], [0, 0, 10, 10], [0, 0, 90, 90]] },"
        " { target: { clientWidth: 200 }, offsetX: 10, offsetY: 10 })"
    )
    assert found == 8


def test_saved_text_has_images_shares_and_words(show: Opener) -> None:
    opened = open_head(show, WORDS)
    opened.open_head(0, "text")
    opened.evaluate(f"pin({{ query: {RED}, key: null }})")
    opened.settle()
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="SVG", exact=True).click()
    content = download.value.path().read_text(encoding="utf-8")
    assert content.count("<image") == 2
    assert "on image 1" in content
    assert "[image 2: 6 patches]" in content
