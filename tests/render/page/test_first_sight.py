"""What a reader of the page sees before anything is touched: structure beside sinks, and a sentence of links."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.patterns import Pattern
from attnviz.render.formats import draw
from attnviz.text.tokens import Tokens
from tests.conftest import dense, random_maps
from tests.render.page.conftest import ARGUMENTS, CHROMIUM, USUAL, Opener, new_page
from tests.render.page.examples import large, report_of, sentence

LABELS = ("[CLS]", "the", "fox", "saw", "it", "and", "ran", "[SEP]")
COLUMNS = """[...document.querySelectorAll('.main .thumb canvas')].map((canvas) => {
  const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const [rows, columns] = [canvas.height, canvas.width].map((count) => [...Array(count).keys()]);
  return columns.filter((column) => rows.every((row) => !data[4 * (row * canvas.width + column) + 3]));
})"""


def resting(heads: int = 8, share: float = 0.8) -> Recording:
    """Heads that rest on [CLS] with most of their weight; the first looks at the previous token beside it."""
    count = len(LABELS)
    weights = np.random.default_rng(0).dirichlet(np.full(count, 0.5), (heads, count)).astype(np.float32)
    weights[:, :, 0] = 0
    weights *= (1 - share) / weights.sum(axis=-1, keepdims=True)
    weights[:, :, 0] = share
    weights[0] = np.eye(count, k=-1)
    weights[0, 0, 0] = 1
    weights[1, 4] = [0.1, 0, 0.8, 0, 0.1, 0, 0, 0]  # “it” looks at “fox”
    special = np.isin(np.arange(count), (0, count - 1))
    tokens = replace(Tokens.numbered(count), labels=LABELS, special=special)
    maps = DenseMaps(
        layer=0,
        module="layers.0",
        heads=tuple(range(heads)),
        query_tokens=tokens,
        key_tokens=tokens,
        scores=np.log(weights + 1e-6),
        weights=weights,
        visible=np.ones((count, count), dtype=bool),
    )
    return Recording(maps=(maps,), model="a test")


def test_small_maps_leave_out_where_most_weight_rests_until_the_reader_brings_it_back(show: Opener) -> None:
    opened = show(report_of(resting()))
    opened.settle()
    assert opened.text("#over-maps").startswith("[CLS] and [SEP] are left out: the median head puts 83% of its weight")
    assert opened.evaluate(COLUMNS) == [[0, 7]] * 8
    high = opened.evaluate("thumbnailScale(1).high")
    opened.page.click("#over-maps button")
    assert opened.evaluate("location.hash") == "#special=shown"
    opened.settle()
    assert opened.evaluate(COLUMNS) == [[]] * 8
    assert opened.text("#over-maps").startswith("[CLS] and [SEP] are shown: the median head puts 83%")
    opened.press("t")
    opened.settle()
    assert opened.evaluate(COLUMNS) == [[0, 7]] * 8
    assert opened.evaluate("thumbnailScale(1).high") == high
    opened.open_head(1)
    assert opened.evaluate("scene.shown.at(4, 0)") == pytest.approx(0.1)


def test_open_head_shows_every_key_though_small_maps_leave_some_out(show: Opener) -> None:
    opened = show(report_of(resting()))
    opened.open_head(1)
    assert opened.evaluate("[scene.shown.rows, scene.shown.columns]") == [8, 8]
    opened.press("t")
    opened.until("scene.current.stage.picture.shown.columns === 6")


def shaped(layers: int, heads: int, tokens: int = 12) -> Recording:
    """A recording of so many layers and heads."""
    text = Tokens.numbered(tokens)
    maps = [random_maps(text, layer=layer, heads=heads, seed=layer) for layer in range(layers)]
    return Recording(maps=tuple(maps), model="a test")


def test_small_maps_take_the_room_of_notes_that_no_head_of_a_layer_has(show: Opener) -> None:
    first = dense(resting(12))
    weights, scores = (np.concatenate([array[1:2], array[1:]]) for array in (first.weights, first.scores))
    others = [replace(first, layer=layer, weights=weights, scores=scores) for layer in range(1, 6)]
    opened = show(report_of(Recording(maps=(first, *others), model="a test")))
    sides = {}
    for special in ("hidden", "shown"):
        opened.evaluate(f"location.hash = 'special={special}'")
        opened.until(f"state.special === '{special}'")
        opened.settle()
        sides[special] = opened.evaluate("document.querySelector('.thumb .picture').offsetHeight")
        assert opened.page.locator(".thumb .names").count() == {"hidden": 1, "shown": 72}[special]
        assert opened.evaluate("document.querySelector('.thumb:last-child').getBoundingClientRect().bottom") <= 850
    assert sides["hidden"] > sides["shown"]


@pytest.mark.parametrize(
    ("layers", "heads", "least"), [(18, 4, 72), (12, 12, 44), (6, 12, 60), (2, 72, 44), (48, 3, 44)]
)
def test_up_to_144_heads_are_seen_at_once_in_every_shape(show: Opener, layers: int, heads: int, least: int) -> None:
    opened = show(report_of(shaped(layers, heads)), viewport={"width": 1440, "height": 900})
    opened.settle()
    boxes = opened.evaluate("""[...document.querySelectorAll('.main .picture')].map((picture) => {
      const { left, right, top, bottom } = picture.getBoundingClientRect();
      return { left, right, top, bottom };
    })""")
    assert len(boxes) == layers * heads
    assert max(box["bottom"] for box in boxes) <= 900
    assert max(box["right"] for box in boxes) <= 1440
    assert min(box["right"] - box["left"] for box in boxes) >= least
    corners = {(box["left"], box["top"]) for box in boxes}
    assert len(corners) == len(boxes)


@pytest.mark.parametrize(("heads", "least"), [(12, 44), (40, 24)])
def test_small_maps_of_a_phone_are_as_large_as_a_finger_hits(show: Opener, heads: int, least: int) -> None:
    opened = show(report_of(shaped(6, heads)), viewport={"width": 390, "height": 844})
    opened.settle()
    sides = opened.evaluate("[...document.querySelectorAll('.main .picture')].map((picture) => picture.offsetWidth)")
    assert len(sides) == 6 * heads
    assert min(sides) >= least
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


def test_word_under_the_pointer_lights_its_row_in_every_small_map_and_shades_what_it_looks_at(show: Opener) -> None:
    recording = resting()
    opened = show(report_of(recording))
    opened.evaluate("pointTo({ query: 4, key: null })")
    lit = "getComputedStyle(document.querySelector('.thumb:nth-of-type(3) .picture'), '::after').backgroundImage"
    opened.until("document.querySelector('#overview.lit')")
    assert "50%" in opened.evaluate(lit)  # the fifth of eight rows begins there
    assert "62.5%" in opened.evaluate(lit)
    means = dense(recording).weights[:, 4].mean(axis=0)
    shaded = opened.evaluate("[...scene.strip.drawn[0].words.shading.values]")
    assert shaded[1:7] == pytest.approx(means[1:7].tolist(), abs=0.01)
    assert shaded[0] < 0  # left out, as in the maps
    assert opened.text("#keys-hint").startswith("“it” looks at “saw” 14.62%, “fox” 11.48%")
    opened.evaluate("pointTo(null)")
    opened.until("!document.querySelector('#overview.lit')")
    assert opened.evaluate(lit) == "none"
    assert opened.evaluate("scene.strip.drawn[0].words.shading.values") is None


def test_phrases_of_the_first_sentence_lead_to_what_they_say(show: Opener) -> None:
    opened = show(report_of(resting()))
    said = "1 previous-token head, 7 sinks on [CLS]; clearest head: 0.0; “it” looks most at “fox” (head 0.1, 80%)."
    assert opened.text(".answer") == said
    for phrase, heads in (("7 sinks on [CLS]", 7), ("1 previous-token head", 1)):
        opened.page.click(f".answer a:text-is('{phrase}')")
        opened.until(f"document.querySelectorAll('.thumb').length === {heads} && listedHeads().length === {heads}")
    opened.page.click(".answer a >> nth=-1")
    opened.until("state.head === 1 && scene.shown && state.pin")
    assert opened.evaluate("[state.pin.query, state.pin.key]") == [4, 2]
    opened.page.click(".answer a:text-is('0.0')")
    opened.until("state.head === 0")


AT_LOAD = """addEventListener("load", () => window.mapsAtLoad = document.querySelectorAll(".stage-base").length);"""
WITHOUT_ANSWERS = """window.Worker = class { postMessage() {} };
const later = window.setTimeout;
window.setTimeout = (act, time) => later(act, Math.min(time, 20));"""


def test_page_is_loaded_when_what_its_address_opens_is_drawn_so_that_it_can_be_printed(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(draw(report_of(shaped(3, 4)), ".html"))
    page = new_page(browser, **USUAL)
    page.add_init_script(AT_LOAD)
    for address, maps in (("head=1.2", 1), ("heads=0.1,1.2&together=side", 2), ("view=maps", 0)):
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}#{address}")
        assert page.evaluate("mapsAtLoad") == maps, address
        assert page.query_selector("iframe") is None
    page.add_init_script(WITHOUT_ANSWERS)
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#head=1.2")
    assert page.evaluate("mapsAtLoad") == 0, "a page whose workers are forbidden is loaded without its map"
    page.context.close()


NOTES = """([name, token]) => {
  const number = 2, [place] = page.metrics.of[number];
  page.metrics.patterns[place] = [name, token];
  return [99, 13, 8].map((most) => {
    const note = shortNoteOf(number, (text) => text.length <= most);
    return [note.words, note.number].filter(Boolean).join(" ");
  });
}"""
BESIDE_A_SINK = """(token) => {
  const { of, patterns, values } = page.metrics;
  of[2].push(patterns.push(["sink", token]) - 1);
  values[2].push(0.55);
  const text = patternOf(2).split(", ").at(-1);
  of[2].pop();
  values[2].pop();
  return text;
}"""
CUT_WORDS = """[...document.querySelectorAll('.names .does')].filter((words) =>
  words.scrollWidth > words.clientWidth + 1).map((words) => words.parentElement.textContent)"""


def test_share_under_a_small_map_has_a_whole_word_on_the_page_and_in_a_file(show: Opener) -> None:
    (maps,) = resting(4).maps
    tokens = replace(maps.key_tokens, labels=("<|startoftext|>", *LABELS[1:]))
    maps = replace(maps, query_tokens=tokens, key_tokens=tokens)
    recording = Recording(maps=tuple(replace(maps, layer=layer) for layer in range(18)), model="a test")
    opened = show(report_of(recording), viewport={"width": 1440, "height": 900})
    opened.settle()
    assert opened.page.locator(".thumb .names").count() == 18, (
        "one head of four does more than the sink that is said of all"
    )
    opened.press("t")
    opened.settle()
    assert opened.evaluate(CUT_WORDS) == []
    assert opened.text(".thumb .names >> nth=2").split() == ["sink", "0.80"]
    saved = opened.evaluate("headsFigure().tree.map((each) => textIn(each))")
    assert "sink 0.80" in saved
    assert [text for text in saved if "…" in text] == []
    for pattern, notes in (
        (("sink", "<s>"), ["sink: <s> 0.80", "sink 0.80", "sink"]),
        (("own sentence", ""), ["own sentence 0.80", "sentence 0.80", "sentence"]),
        (("other sentence", ""), ["other sentence 0.80", "other 0.80", "other"]),
        (("own token", ""), ["own 0.80", "own 0.80", "own 0.80"]),
        (("mixed", ""), ["", "", ""]),
    ):
        assert opened.page.evaluate(NOTES, pattern) == notes
    for token, said in (("␣the", "on “the”"), ("<s>", "on <s>"), ("first token", "on first token"), ("", "")):
        beside = opened.page.evaluate(BESIDE_A_SINK, token)
        assert beside == str(Pattern("sink", 0.55, token, is_beside=True)) == f"sink 0.55 {said}".strip()


LEGEND = """(() => {
  const boxOf = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect();
  };
  const [tick, swatch] = ['.ticks span:last-child', '.swatch'].map((name) => document.querySelector(`#legend ${name}`));
  const [colour, word] = [swatch.getBoundingClientRect(), boxOf(swatch.nextSibling)];
  return [colour.left - boxOf(tick).right, word.left - colour.right, Math.abs(word.top - colour.top)];
})()"""


def test_legend_keeps_the_masked_swatch_beside_its_word_and_off_the_last_number(show: Opener) -> None:
    opened = show(report_of(large(21, heads=4)))
    opened.show_maps()
    opened.evaluate("set({ steps: 'lift', limits: 'head' })")  # whose name is long
    for width in (1440, 1000, 800, 390):
        opened.resize(width, 900)
        from_number, from_colour, down = opened.evaluate(LEGEND)
        assert from_number >= 8, width
        assert 0 < from_colour < 10, width
        assert down < 10, width


def test_scroll_bar_of_the_window_covers_no_cell_of_the_map_with_which_a_page_begins(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(draw(report_of(large(21, heads=4)), ".html"))
    with_bars = browser.browser_type.launch(
        executable_path=CHROMIUM, args=ARGUMENTS, ignore_default_args=["--hide-scrollbars"]
    )
    page = new_page(with_bars, **USUAL)
    page.goto(f"{path.as_uri()}#head=0.1")
    assert page.evaluate("innerWidth - document.documentElement.clientWidth") > 0, "a bar takes room"
    assert page.evaluate("document.documentElement.scrollHeight > innerHeight"), "the page scrolls"
    drawn, seen = page.evaluate("(({ whole, element }) => [whole.width, element.clientWidth])(scene.current.stage)")
    assert 0.9 * seen < drawn <= seen + 1  # of rounding
    with_bars.close()


# Of each frame between the page's script and the first view: whether the sign of work is seen.
FRAMES_BEFORE = """window.frames_before = [];
const look = () => {
    const sign = document.getElementById("loading");
    if (performance.getEntriesByName("first view drawn").length) return;
    if (typeof start === "function") window.frames_before.push(sign.offsetWidth > 0);
    requestAnimationFrame(look);
};
requestAnimationFrame(look);"""


def test_page_of_much_data_shows_that_it_is_being_drawn_until_it_is(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    html = draw(report_of(large(200, heads=40)), ".html")
    beginning = b'id="page-data">'
    assert html.count(beginning) == 1
    path.write_bytes(html.replace(beginning, beginning + b" " * 5_000_000))  # blanks of JSON count as data
    page = new_page(browser)
    page.add_init_script(FRAMES_BEFORE)
    page.goto(path.as_uri())
    assert True in page.evaluate("window.frames_before")
    assert page.locator("#loading").is_hidden()
    assert page.get_attribute("#main", "aria-busy") == "false"

    page.evaluate("void (window.answerTo = () => new Promise(() => {}))")  # a head that is never read
    page.evaluate("location.hash = 'number=3'")
    page.locator("#loading").wait_for()
    assert page.get_attribute("#main", "aria-busy") == "true"
    page.evaluate("location.hash = 'view=maps'")
    page.locator("#loading").wait_for(state="hidden")
    page.context.close()


PAINTED = """[...document.querySelectorAll('.thumb canvas')].filter((canvas) =>
  canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((part) => part > 0)).length"""


def test_heads_are_painted_when_a_larger_window_gives_each_a_canvas_of_its_own(show: Opener) -> None:
    opened = show(report_of(sentence(6, 12)), viewport={"width": 800, "height": 500})
    opened.settle()
    assert opened.evaluate("document.querySelectorAll('.thumb canvas').length") == 0  # one canvas behind them all
    opened.resize(1600, 1200)
    assert opened.evaluate("document.querySelectorAll('.thumb canvas').length") == 72
    assert opened.evaluate(PAINTED) == 72


def test_a_phone_shows_the_first_map_in_its_upper_half_and_what_orders_heads_behind_a_button(show: Opener) -> None:
    opened = show(report_of(sentence()), viewport={"width": 390, "height": 844})
    opened.settle()
    top = "document.querySelector('.thumb').getBoundingClientRect().top"
    assert opened.evaluate(top) < 350
    assert opened.evaluate("!one('sort').checkVisibility()")
    opened.press("f")
    opened.page.keyboard.type("layer:1")
    opened.until("document.querySelectorAll('.thumb').length === 4")
    assert opened.text("#look-name") == "Sort, look (layer:1)"
    assert opened.page.locator(".caption").bounding_box()["y"] > opened.evaluate(top)
    opened.resize(1280, 850)
    opened.until("one('filter').closest('details') === null && one('sort').checkVisibility()")
    opened.resize(390, 844)
    opened.until("one('filter').closest('details') !== null")
