"""Pages of images, and of words beside them: what is drawn over an image, and what is said of it."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.reading.media_tokens import image_tokens
from attnviz.render.formats import draw
from attnviz.report.build import build_report
from attnviz.report.picture.colors import SEQUENTIAL, ColorScale, on_paper
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, Report
from attnviz.text.selection import Selection
from tests.conftest import dense, random_maps
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import NUMBERS, blueness
from tests.report.image_examples import (
    HEIGHT,
    WIDTH,
    image_recording,
    spectrogram_recording,
    words_and_images_recording,
)

WORDS = words_and_images_recording()
RED, SECOND = 15, 7  # the last word, and the first patch of the second image


def report_of(recording: Recording, max_size: str = "50MB") -> Report:
    return build_report(recording, ReportOptions(medium=NUMBERS, look=Look(max_size=max_size)))


def texts_of(recording: Recording, max_size: str = "50MB") -> Any:
    """Returns the texts of the axes, as the data of a page of at most so many bytes hold them."""
    page = draw(report_of(recording, max_size), ".html")
    data = re.search(rb'id="page-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    return json.loads(data[1])["texts"]


def open_head(show: Opener, recording: Recording, max_size: str = "50MB", **context: Any) -> Opened:
    opened = show(report_of(recording, max_size), **context)
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


def many_patches(side: int) -> Recording:
    """Returns random maps of one head over ``side`` x ``side`` patches of 4 x 4 pixels and a token without a place."""
    image = Image(np.zeros((4 * side, 4 * side, 3), dtype=np.uint8), 4 * side, 4 * side)
    corners = [(4 * column, 4 * row) for row in range(side) for column in range(side)]
    places = np.array([*((left, top, left + 4, top + 4) for left, top in corners), (0, 0, 0, 0)])
    return Recording(maps=(random_maps(image_tokens(image, places), heads=1, peak=2),), model="a ViT")


def test_blocks_of_patches_are_drawn_over_the_image_without_those_that_hold_other_tokens(show: Opener) -> None:
    recording = many_patches(18)
    [text] = texts_of(recording, max_size="100kB")
    assert text["edges"][:3] == [0, 1, 3]
    [image] = text["images"]
    assert image["tokens"][:3] == [0, 1, 1]
    assert len(image["boxes"]) == 323  # the last patch is in a block with the token without a place
    opened = open_head(show, recording, max_size="100kB")
    opened.evaluate("pin({ query: 5, key: null })")
    opened.settle()
    assert opened.text("#text .patches-words").startswith("[image: 323 patches]")
    assert not opened.text("#text figcaption").strip()  # the means of blocks have no sum


def test_a_word_colours_its_patches_and_the_share_of_each_image_is_said_and_outlined_as_in_figures(
    show: Opener,
) -> None:
    opened = open_head(show, WORDS)
    row = dense(WORDS).weights[0, RED]
    marked = opened.page.locator("#text .token.marked")
    assert marked.all_inner_texts() == ["red"], "the last word, which the shares are of while nothing is chosen"
    opened.page.get_by_role("button", name="red", exact=True).first.click()
    opened.until(f"state.pin?.query === {RED}")
    opened.settle()
    patch = int(row[SECOND : SECOND + 6].argmax())
    faint = int(row[SECOND : SECOND + 6].argmin())
    assert blueness(opened.color_of_patch(1, patch)) > blueness(opened.color_of_patch(1, faint))
    shares = row[:6].sum(), row[SECOND : SECOND + 6].sum()
    options = ReportOptions(selection=Selection.parse(heads="0.0"), look=Look(query="red"))
    figure = build_report(WORDS, options)
    assert isinstance(figure, DrawnReport)
    outlined = [", 60% of it in the outline" if panel.inside is not None else "" for panel in figure.panels]
    assert outlined[0] < outlined[1]
    said = [f"{share:.0%} on image {image + 1}{outlined[image]}" for image, share in enumerate(shares)]
    assert opened.evaluate("Array.from(document.querySelectorAll('#text .share'), (part) => part.textContent)") == [
        *said,
        f"{1 - sum(shares):.0%} on words",
    ]


def test_means_of_queries_that_see_different_keys_have_neither_shares_nor_an_outline(show: Opener) -> None:
    opened = open_head(show, WORDS)  # causal, so that the first keys get more than one query gives
    opened.evaluate("page.texts.forEach((text) => (text.asked = -1)); scene.strip.drawOver()")
    assert not opened.text("#text figcaption").strip()
    assert opened.evaluate("scene.strip.drawn[0].words.shading.row") is None


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


def test_a_spectrogram_has_seconds_below_it_and_bands_in_its_corners(show: Opener) -> None:
    opened = open_head(show, spectrogram_recording())
    said = "Array.from(document.querySelectorAll('#text figcaption'), (part) => part.textContent)"
    opened.until(f"{said}[0].includes('% on spectrogram') || {said}[0].trim() === ''")
    seconds = opened.page.locator("#text .patches-axis text").all_text_contents()
    assert seconds == [f"{second} s" for second in range(len(seconds))]
    assert len(seconds) >= 3
    opened.open_head(0, "text")
    assert len(re.findall(r">[\d.]+ s</text>", opened.evaluate("svgOfView()"))) >= 3


def test_pointing_at_a_patch_shows_what_looks_at_it_and_frames_it(show: Opener) -> None:
    opened = open_head(show, WORDS)
    opened.evaluate("choose('direction', 'from')")
    opened.settle()
    bounds = opened.page.locator("#text canvas.patches-image").nth(1).bounding_box()
    opened.page.mouse.move(bounds["x"] + bounds["width"] * 45 / 120, bounds["y"] + bounds["height"] * 60 / 80)
    opened.until(f"state.mark?.key === {SECOND + 4}")  # the middle of the lower row
    opened.settle()
    assert opened.text("#text > .note").partition(": ")[2].startswith("what attends to “2:r1c1”")
    shares = opened.evaluate("Array.from(document.querySelectorAll('#text .share'), (part) => part.textContent.trim())")
    assert opened.color_of_patch(1, 4, across=0) == [255, 255, 255]  # the frame
    assert opened.color_of_patch(0, 4, across=0) != [255, 255, 255]
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


def test_a_chosen_word_shows_each_head_over_the_images_with_its_share(show: Opener) -> None:
    opened = show(report_of(WORDS))
    opened.show_maps()
    opened.evaluate(f"pin({{ query: {RED}, key: null }})")
    opened.until("state.list === 'lens' && scene.shown?.whole")
    opened.settle()
    rows = dense(WORDS).weights[:, RED]
    shares = [row[:6].sum() + row[SECOND : SECOND + 6].sum() for row in rows]
    captions = opened.page.locator("#overview .thumb .names").all_inner_texts()
    assert [" ".join(caption.split()) for caption in captions] == [
        f"0.{head} {share:.0%} on images" for head, share in enumerate(shares)
    ]
    in_second = rows[:, SECOND : SECOND + 6]
    strongest, weakest = in_second.argmax(axis=1), in_second.argmin(axis=1)
    bright = [opened.page.evaluate(PATCH_IN_LENS, [head, int(strongest[head])]) for head in range(3)]
    faint = [opened.page.evaluate(PATCH_IN_LENS, [head, int(weakest[head])]) for head in range(3)]
    ink = [blue - green for _, green, blue in bright]
    assert int(np.argmax(ink)) == int(in_second.max(axis=1).argmax())  # one scale for all heads
    assert all(blue - green < most for (_, green, blue), most in zip(faint, ink, strict=True))
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="SVG", exact=True).click()
    content = download.value.path().read_text(encoding="utf-8")
    assert content.count("<image") == 3, "the images of three heads"
    assert all(f">0.{head} {share:.0%} on images</text>" in content for head, share in enumerate(shares))
    opened.page.locator("#overview .thumb").nth(1).click()
    opened.until(f"state.head === 1 && state.pin?.query === {RED}")


def test_a_picture_opens_as_its_heads_over_the_images_for_the_last_word(show: Opener) -> None:
    opened = show(report_of(WORDS))
    opened.until("scene.shown?.whole && scene.shown.lines.size === 3")
    opened.settle()
    assert opened.evaluate("[state.list, state.pin, scene.shown.place]") == ["lens", None, RED]
    assert opened.evaluate("document.querySelector('#overview').parentElement.id") == "main"
    rows = dense(WORDS).weights[:, RED, SECOND : SECOND + 6]
    inks = [[opened.page.evaluate(PATCH_IN_LENS, [head, patch]) for patch in range(6)] for head in range(3)]
    strength = np.array([[blue - green for _, green, blue in patches] for patches in inks])
    assert strength.argmax() == rows.argmax()
    assert opened.text("#text > .note").partition(": ")[2].startswith("what “red” attends to")
    opened.press("1")
    opened.until("state.list === 'maps'")
    opened.settle()
    assert "on images" not in opened.text("#overview")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bar_and_large_picture_have_the_mixture_that_figures_draw(show: Opener, theme: str) -> None:
    [maps] = WORDS.maps
    grey = Image(np.full((HEIGHT, WIDTH, 3), 100, dtype=np.uint8), WIDTH, HEIGHT, "grey.png")
    tokens = replace(maps.key_tokens, media=(maps.key_tokens.media[0], grey, grey))
    recording = replace(WORDS, maps=(replace(maps, query_tokens=tokens, key_tokens=tokens),))
    opened = show(report_of(recording), color_scheme=theme)
    opened.until("scene.shown?.whole && scene.shown.lines.size === 3")
    opened.settle()
    scale = ColorScale(0, 1, on_paper(SEQUENTIAL, theme), "sqrt", grey=128.0)  # an image of one grey is in the middle
    bar = opened.evaluate("""(() => {
        const pixels = contextOf(document.querySelector("#legend canvas")).getImageData(0, 0, 256, 1).data;
        return [0, 64, 255].map((place) => Array.from(pixels.slice(4 * place, 4 * place + 3)));
    })()""")
    np.testing.assert_allclose(bar, scale.colors[[0, 64, 255]], atol=1.5)
    opened.open_head(0)
    opened.evaluate(f"pin({{ query: {RED}, key: null }})")
    opened.settle()
    row = dense(WORDS).weights[0, RED]
    seen = [opened.color_of_patch(1, patch, across=0.7) for patch in range(6)]  # beside the outline
    np.testing.assert_allclose(seen, scale.rgb(row[SECOND : SECOND + 6] / row.max()), atol=3)


def test_a_pointer_on_a_head_over_the_images_names_the_patch_and_the_head(show: Opener) -> None:
    opened = show(report_of(WORDS))
    opened.show_maps()
    opened.evaluate(f"pin({{ query: {RED}, key: null }})")
    opened.until("state.list === 'lens' && scene.shown?.whole")
    opened.settle()
    bounds = opened.page.locator("#overview .thumb canvas").nth(2).bounding_box()
    [_, second] = [image.width / image.height for image in WORDS.maps[0].key_tokens.media if isinstance(image, Image)]
    left = bounds["x"] + bounds["width"] - second * bounds["height"]  # where the second image begins
    opened.page.mouse.move(left + second * bounds["height"] * 15 / 120, bounds["y"] + bounds["height"] * 60 / 80)
    opened.until(f"state.mark?.head === 2 && state.mark.key === {SECOND + 3}")
    assert "2:r1c0" in opened.text("#pointed")


PATCH_IN_LENS = """([number, patch]) => {
    const [canvas, image] = [canvasOf(number), textOf(number, "key").images[1]];
    const width = canvas.height * image.width / image.height; // of the second image, which ends where the canvas does
    const [left, top, right, bottom] = image.boxes[patch];
    const size = canvas.height / image.height;
    const pixel = contextOf(newCanvas(1, 1));
    const [x, y] = [canvas.width - width + size * (left + right) / 2, size * (top + bottom) / 2];
    pixel.drawImage(canvas, -Math.round(x), -Math.round(y));
    return Array.from(pixel.getImageData(0, 0, 1, 1).data.slice(0, 3));
}"""


def test_patches_of_tiles_are_drawn_over_those_of_the_whole_image() -> None:
    tokens = WORDS.maps[0].query_tokens
    places = tokens.places.copy()
    places[1] = (0, 0, 120, 80)
    maps = random_maps(replace(tokens, places=places), heads=1)
    [text] = texts_of(Recording(maps=(maps,), model="a model of tiles"))
    assert text["images"][0]["tokens"] == [1, 0, 2, 3, 4, 5]
