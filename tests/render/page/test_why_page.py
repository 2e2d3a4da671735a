"""The page that begins with why a model predicts a token: bars that close, shades, routes that lead to cells, units."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.effects.routes import Edge, Routes
from attnviz.effects.unit_effects import UnitEffects
from attnviz.effects.why import Candidate, Check, Why
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from attnviz.render.page.descriptions import AxisTexts
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.packing import PagePlan
from attnviz.render.page.why_data import about_answer
from attnviz.report.picture.report import ExactNumbers, Report, WhyAnswer
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps
from tests.render.page.conftest import Opener, Shared
from tests.render.page.examples import HOSTILE, SENTENCE, blueness, labelled, report_of, sentence
from tests.report.image_examples import words_and_images_recording

LAYERS, HEADS, TOKENS = 3, 4, len(SENTENCE)
LAST, CAT, IT = TOKENS - 1, 1, 4
TERMS = np.random.default_rng(5).normal(size=(LAYERS * HEADS, TOKENS)) / 4
TERMS[6, CAT] = 5  # head 1.2
TERMS[9, CAT] = 3  # head 2.1
TERMS[2, IT] = -4  # head 0.2
EDGES = (("2.1", LAST, CAT, 5.0), ("1.2", LAST, CAT, 2.5), ("0.0", CAT, 0, -1.0), ("1.2", IT, IT, 0.3))


def prediction() -> Why:
    """An answer about the token after the sentence, whose heads are those of its recording."""
    recording = sentence(LAYERS, HEADS)
    parts = [
        LogitPart(f"{layer}.{head}", "head", float(terms.sum()), layer, head, terms, f"layers.{layer}")
        for (layer, head), terms in zip(np.ndindex(LAYERS, HEADS), TERMS, strict=True)
    ]
    parts += [LogitPart("0.mlp", "mlp", 7.5, 0), LogitPart("embedding", "embedding", -0.25)]
    total = sum(part.adds for part in parts)
    edges = tuple(
        Edge(name, int(name[0]), int(name[2]), query, key, adds, f"layers.{name[0]}")
        for name, query, key, adds in EDGES
    )
    stays = np.zeros((LAYERS, TOKENS))
    stays[1, CAT] = 4
    return Why(
        tokens=recording.maps[0].query_tokens,
        probability=0.75,
        candidates=(Candidate(7, "cat", 0.75, 9.0), Candidate(8, "dog", 0.0002, 2.0)),
        target=LogitParts(
            parts=tuple(parts), logit=total + 1e-7, difference=1e-7, token=7, position=LAST, frozen=(), label="cat"
        ),
        checks=(
            Check("heads", ("1.2", "2.1"), np.array([2.0]), np.array([0.25, -0.75, 0.8])[:, None]),
            Check("source", ("cat",), np.array([3.5]), np.array([0.0])[:, None], source=CAT),
        ),
        routes=Routes(
            position=LAST, layers=(0, 1, 2), logit=20.0, stream=np.vstack([stays, np.zeros(TOKENS)]), stays=stays,
            sources={"mlp": np.zeros((LAYERS, TOKENS))}, edges=edges, share=0.01, kept=0.8,
        ),
    )  # fmt: skip


def units() -> UnitEffects:
    attention = np.tril(np.full((3, 3), 0.25))
    lost = np.array([[np.nan, np.nan, np.nan], [1.5, np.nan, np.nan], [-0.5, 2.25, np.nan]])
    return UnitEffects(
        by="sentences", units=("the cat sat", "because it was", "tired and"), spans=((0, 3), (3, 6), (6, 12)),
        sizes=np.array([3, 3, 6]), answer=2, heads=("1.2", "2.1"), heads_by="receivers", kurtosis=np.zeros(2),
        attention=attention, lost=lost, divergence=lost, log_probability=np.zeros(3), passes=4,
    )  # fmt: skip


def answered(answer: WhyAnswer) -> Report:
    return replace(report_of_heads(), answered=answer)


def report_of_heads() -> ExactNumbers:
    report = report_of(sentence(LAYERS, HEADS))
    assert isinstance(report, ExactNumbers)
    return report


def explained() -> Report:
    sentences = ("Heads 1.2 and 2.1 copy “cat” of 1.25.", "Without them it falls by 2.00 nats.")
    return answered(WhyAnswer(prediction(), sentences))


def rests() -> Report:
    return answered(WhyAnswer(None, ("The last sentence rests on the second one.",), units()))


def number(text: str) -> float:
    return float(text.replace("−", "-"))


ROUTES = """() => [...document.querySelectorAll('.route')].map((link) =>
  [link.getAttribute('href'), link.getAttribute('aria-label')])"""
WIDTHS = """[...document.querySelectorAll('.route path:last-child')].map((path) =>
  Number(path.getAttribute('stroke-width')))"""
SPANS = """() => [...document.querySelectorAll('.why-parts b')].map(({ style }) =>
  [parseFloat(style.marginLeft), parseFloat(style.marginLeft) + parseFloat(style.width)])"""
ROWS = """(selector) => [...document.querySelectorAll(`${selector} .row`)].map((row) =>
  [row.querySelector("bdi").textContent, row.querySelector("span").textContent, row.getAttribute("href")])"""


def test_bars_close_at_the_logit_and_those_of_a_token_at_what_it_adds(shared: Shared) -> None:
    opened, why = shared(explained), prediction()
    opened.show_why()
    rows = opened.page.evaluate(ROWS, ".why-parts")
    assert rows[-1][:2] == ["logit", f"{why.target.logit:.2f}"]
    assert sum(number(text) for _, text, _ in rows[:-1]) == pytest.approx(why.target.logit, abs=0.005 * len(rows))
    assert [name for name, _, _ in rows[:2]] == [part.name for part in why.target.sorted() if part.kind == "head"][:2]
    assert {"MLPs", "embedding", "rounding", "4 other heads"} <= {name for name, _, _ in rows}
    spans = opened.page.evaluate(SPANS)  # percent of the row, in the order of the rows
    position = spans[-1][0]
    for (start, end), (_, text, _) in zip(spans, rows, strict=True):
        if text == rows[-1][1]:
            assert position == pytest.approx(end, abs=0.01), "the last part ends where the logit does"
        else:
            assert position == pytest.approx(start if number(text) >= 0 else end, abs=0.01), text
            position = end if number(text) >= 0 else start

    opened.page.click(".token >> nth=1")
    rows = opened.page.evaluate(ROWS, ".why-parts")
    assert [row[0] for row in rows[:2]] == ["1.2", "2.1"]
    assert rows[0] == ["1.2", "+5.00", "#head=1.2&query=on&key=cat"]
    assert rows[-1][:2] == ["together", f"{TERMS[:, CAT].sum():+.2f}"]
    assert sum(number(text) for _, text, _ in rows[:-1]) == pytest.approx(TERMS[:, CAT].sum(), abs=0.05)
    assert opened.text("#text .note").startswith(f"“cat” adds {TERMS[:, CAT].sum():+.2f}: 1.2 +5.00, 2.1 +3.00")
    assert opened.evaluate("location.hash") == "#view=why&query=cat"
    opened.press("Escape")
    assert opened.evaluate("[location.hash, state.list, state.pin]") == ["", "why", None]


def test_text_is_shaded_by_what_tokens_add_around_the_paper_without_the_sink(shared: Shared) -> None:
    opened = shared(explained)
    opened.show_why()
    values, high = opened.evaluate(
        "(({ values, scale }) => [[...values], scale.high])(scene.strip.drawn[0].words.shading)"
    )
    sums = TERMS.sum(axis=0)
    assert values[1:] == pytest.approx(sums[1:], abs=1e-4)
    assert values[0] == opened.evaluate("ABSENT")  # the first token is a sink
    assert high == pytest.approx(np.abs(sums[1:]).max(), abs=1e-4)
    hues = opened.evaluate(
        f"[{CAT}, {IT}].map((place) => hueOf(scene.strip.drawn[0].words.shading.values[place], scene.shown.scale))"
    )
    assert hues == ["more", "less"]


def test_checks_stand_beside_the_control_that_loses_most(shared: Shared) -> None:
    opened = shared(explained)
    opened.show_why()
    rows = opened.page.evaluate(ROWS, ".why-view > div:nth-child(2) > section")
    assert [row[:2] for row in rows] == [
        ["without heads 1.2, 2.1", "−2.00"], ["control: 2 other heads, at most", "−0.80"],
        ["without “cat”", "−3.50"], ["control: another token", "0.00"],
    ]  # fmt: skip
    assert opened.page.get_attribute(".row.control", "title") == "−0.80 to +0.75; 3 draws, p = 0.25 (least)"


def test_each_route_leads_to_its_head_at_its_cell(shared: Shared) -> None:
    opened = shared(explained)
    opened.show_why()
    assert opened.page.evaluate(ROUTES) == [  # the strongest one last, over the others
        ["#head=1.2&query=it&key=it", "head 1.2 from it to it: +0.30"],
        ["#head=0.0&query=cat&key=@0", "head 0.0 from the to cat: −1.00"],
        ["#head=1.2&query=on&key=cat", "head 1.2 from cat to on: +2.50"],
        ["#head=2.1&query=on&key=cat", "head 2.1 from cat to on: +5.00"],
    ]
    held = "of all that heads move. A line leads to its head."
    assert opened.text(".why-routes .hint") == f"4 of 4 edges, 80% {held}"
    widths = opened.evaluate(WIDTHS)
    assert widths == sorted(widths)
    opened.page.click("#choose-share button:text-is('2%')")
    assert opened.text(".why-routes .hint") == f"3 of 4 edges, 77% {held}"
    opened.page.click("#choose-share button:text-is('10%')")
    assert opened.evaluate("location.hash") == "#share=10"
    assert opened.page.locator(".route").count() == 2

    opened.page.focus(".route >> nth=1")
    opened.until("state.mark?.query === 11 && state.mark.key === 1")
    opened.press("Enter")
    opened.until("state.head !== null && scene.shown && state.pin")
    assert opened.evaluate("[page.heads[state.head].name, state.pin.query, state.pin.key]") == ["2.1", LAST, CAT]
    assert opened.page.locator(".answer >> nth=1").is_hidden(), "the first sentence stays over an open head"
    opened.page.click("#back")
    opened.until("state.list === 'why' && document.querySelector('.why-view')")


def test_sentences_lead_to_the_heads_that_they_name(shared: Shared) -> None:
    opened = shared(explained)
    opened.show_why()
    assert opened.evaluate("[...document.querySelectorAll('.answer a')].map((link) => link.getAttribute('href'))") == [
        "#head=1.2&query=on", "#head=2.1&query=on",
    ]  # fmt: skip
    weights = "[...document.querySelectorAll('.why-answer')].map((line) => getComputedStyle(line).fontWeight)"
    assert opened.evaluate(weights) == ["600", "400"], "the first sentence does not stand out"
    opened.press("1")
    opened.until("state.list === 'maps' && location.hash === '#view=maps'")
    opened.press("4")
    opened.until("state.list === 'why' && location.hash === ''")
    opened.page.focus("body")
    opened.press("ArrowLeft")
    assert opened.evaluate("state.mark") == {"query": LAST - 1, "key": None}
    assert opened.text("#spoken").startswith(f"“ran” adds {TERMS[:, LAST - 1].sum():+.2f}".replace("-", "−"))


@pytest.mark.parametrize("size", [(1280, 850), (390, 844)])
def test_the_answer_is_seen_at_once_and_no_part_is_wider_than_the_window(shared: Shared, size: tuple[int, int]) -> None:
    opened = shared(explained)
    opened.resize(*size)
    opened.show_why()
    assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]
    if size[0] == 1280:
        assert opened.evaluate("document.querySelector('.why-view').getBoundingClientRect().bottom") <= size[1]


def test_cell_of_two_units_marks_both_in_the_text(shared: Shared) -> None:
    opened = shared(rests)
    opened.show_why()
    assert opened.evaluate("scene.current.stages.map(({ picture }) => [...picture.shown.values])") == pytest.approx(
        np.array([[-2, -2, -2, 0.25, -2, -2, 0.25, 0.25, -2], [-2, -2, -2, 1.5, -2, -2, -0.5, 2.25, -2]])
    )
    opened.evaluate("pin(scene.current.stages[1].picture.shown.markOf({ query: 2, key: 1 }))")
    assert opened.text("#text .note") == "“2 because it was” → “3 tired and”: attention 25.0%, lost +2.25 nats"
    marked = opened.evaluate("[...scene.strip.drawn[0].words.shading.values].map((value) => value > 0)")
    assert marked == [False] * 3 + [True] * 9
    earlier, later = opened.evaluate("[3, 6].map((place) => scene.strip.drawn[0].words.shading.colors[place])")
    assert [earlier, later] == opened.evaluate("[theme().arc, theme().accent]")


def test_saved_figure_has_the_text_the_bars_and_the_routes(shared: Shared) -> None:
    opened = shared(explained)
    opened.show_why()
    svg = opened.evaluate("svgOfView()")
    for text in ("because", "2.1", "4 other heads", "logit", "MLPs", "“cat”"):
        assert text in svg, text
    assert len(re.findall(r"<path[^>]*C", svg)) == 8  # each route, and where a pointer finds it


def test_command_of_an_answer_explains_the_same_again() -> None:
    why = prediction()
    contrast = replace(why.target, versus=9, versus_label="␣the dog", token=8, label="dog", position=5)
    about = [
        about_answer(answer, report_of_heads().heads, AxisTexts(PagePlan(PRECISIONS[-1], 1)))["options"]
        for answer in (WhyAnswer(why, ()), WhyAnswer(replace(why, target=contrast), ()), WhyAnswer(None, (), units()))
    ]
    assert about == ["", "--token dog --versus '␣the dog' --queries 5", "--by sentences"]


def test_link_and_command_of_an_answer_begin_with_why(shared: Shared) -> None:
    opened = shared(rests)
    opened.show_why()
    line = opened.evaluate("commandOf().line")
    assert line.startswith("attnviz why ")
    assert line.endswith(" --by sentences -o figure.svg")


def test_saved_figure_of_units_has_both_maps_under_their_titles(shared: Shared) -> None:
    opened = shared(rests)
    opened.show_why()
    svg = opened.evaluate("svgOfView()")
    for text in ("attention of 2 heads to earlier sentences", "lost without earlier sentences", "2 because it was"):
        assert text in svg, text


def test_usual_page_carries_nothing_of_an_answer() -> None:
    assert b"routesFigure" not in draw(report_of(sentence()), ".html")
    assert b"routesFigure" in draw(explained(), ".html")


def test_hostile_labels_of_tokens_stay_text(show: Opener) -> None:
    why = prediction()
    candidates = tuple(replace(why.candidates[0], label=label) for label in HOSTILE)
    hostile = replace(why, candidates=candidates, tokens=labelled((*HOSTILE, *SENTENCE[len(HOSTILE) :])))
    opened = show(answered(WhyAnswer(hostile, HOSTILE)))
    opened.settle()
    assert [row[0] for row in opened.page.evaluate(ROWS, ".why-view > div > section")][: len(HOSTILE)] == [
        f"“{label}”" for label in HOSTILE
    ]


def small_answer(tokens: Tokens, parts: list[LogitPart], context: Tokens | None = None) -> WhyAnswer:
    target = LogitParts(
        parts=tuple(parts), logit=sum(part.adds for part in parts), difference=0, token=1, position=len(tokens) - 1,
        frozen=(), label="red",
    )  # fmt: skip
    candidates = (Candidate(1, "red", 0.5, 4.0),)
    return WhyAnswer(
        Why(tokens=tokens, probability=0.5, candidates=candidates, target=target, context_tokens=context),
        ("Head cross 0.0 reads it.",),
    )


def test_sources_of_cross_attention_are_shaded_in_their_own_text_and_the_address_names_them(show: Opener) -> None:
    tokens = labelled(("<s>", "le", "chat", "dort"))
    context = replace(labelled(("the", "cat", "sleeps", "now", "</s>")), special=np.arange(5) == 4)
    own = replace(random_maps(tokens, heads=2, causal=True), module="decoder.self")
    cross = replace(random_maps(tokens, context, heads=2), module="decoder.cross", kind="cross")
    self_terms, cross_terms = np.array([3.0, 1.5, 2.5, -0.5]), np.array([0.5, 4.0, -2.0, 0.25, 1.0])
    parts = [
        LogitPart("0.1", "head", 6.5, 0, 1, self_terms, "decoder.self"),
        LogitPart("cross 0.0", "head", 3.75, 0, 0, cross_terms, "decoder.cross"),
    ]
    report = report_of(Recording(maps=(random_maps(context, heads=2), own, cross), model="a test"))
    assert isinstance(report, ExactNumbers)
    opened = show(replace(report, answered=small_answer(tokens, parts, context)))
    opened.settle()
    shaded = opened.evaluate("scene.strip.drawn.map(({ axis, words }) => [axis, [...words.shading.values]])")
    assert opened.page.get_attribute(".answer a", "href") == "#head=decoder.cross:0.0&query=dort"
    masked = opened.evaluate("ABSENT")
    assert shaded == [["query", [masked, 1.5, 2.5, -0.5]], ["key", [0.5, 4, -2, 0.25, masked]]]
    assert opened.evaluate("scene.shown.moved({ query: null, key: 1 }, 0, 1)") == {"query": None, "key": 2}
    for click, address, link in (
        (".token >> nth=2", "#view=why&query=chat", "#head=decoder.self:0.1&query=dort&key=chat"),
        (".token >> nth=5", "#view=why&key=cat", "#head=decoder.cross:0.0&query=dort&key=cat"),
    ):
        opened.page.click(click)
        assert opened.evaluate("location.hash") == address
        [(_, _, written), _] = opened.page.evaluate(ROWS, ".why-parts")
        assert written == link
        kept = opened.evaluate("({ ...state.pin })")
        opened.evaluate("followAddress()")
        assert opened.evaluate("({ ...state.pin })") == kept
        opened.page.keyboard.press("Escape")


def test_patches_are_shaded_over_their_picture(show: Opener) -> None:
    recording = words_and_images_recording()
    tokens = recording.maps[0].query_tokens
    terms = np.where(np.arange(len(tokens)) == 3, 4.0, -0.5)
    part = LogitPart("0.1", "head", float(terms.sum()), 0, 1, terms, "layers.0")
    report = report_of(recording)
    assert isinstance(report, ExactNumbers)
    opened = show(replace(report, answered=small_answer(tokens, [part])))
    opened.settle()
    opened.until("scene.strip.drawn[0].words.images.every(({ image }) => photoOf(image).naturalWidth)")
    opened.settle()
    more, less = (opened.color_of_patch(0, patch) for patch in (3, 1))
    assert blueness(more) < 0 < blueness(less) < -blueness(more)
    opened.evaluate("pin({ query: 3, key: null })")
    assert opened.text("#text .note") == f"“{tokens.labels[3]}” adds +4.00: 0.1 +4.00"


def test_sources_of_blocks_are_sums_and_routes_keep_their_tokens() -> None:
    report = explained()
    assert isinstance(report, ExactNumbers)
    assert report.answered is not None
    texts = AxisTexts(PagePlan(PRECISIONS[-1], 5))
    about = about_answer(report.answered, report.heads, texts)
    [axis] = about["axes"]
    assert texts.descriptions[axis["text"]]["edges"] == [0, 4, 8, 12]
    assert axis["adds"] == pytest.approx(TERMS.sum(axis=0).reshape(3, 4).sum(axis=1), rel=1e-5)
    largest, adds = axis["heads"][0][0]
    assert (about["heads"][largest][0], adds) == ("1.2", pytest.approx(TERMS[6, :4].sum(), rel=1e-5))
    assert about["position"] == 2
    assert about["routes"]["tokens"] == [[0, 0, "the"], [CAT, 0, "cat"], [IT, 1, "it"], [LAST, 2, "on"]]


def test_graph_begins_with_the_least_share_of_which_all_routes_can_be_read() -> None:
    routes = prediction().routes
    assert routes is not None
    weak = [Edge("0.1", 0, 1, IT, CAT, 0.41, "layers.0")] * 27 + [Edge("0.1", 0, 1, IT, CAT, 0.3, "layers.0")] * 4
    for edges, begun in ((routes.edges, "1"), ((*routes.edges[:-1], *weak), "2"), ((*routes.edges, *weak, *weak), "5")):
        sorted_edges = tuple(sorted(edges, key=lambda edge: -abs(edge.adds)))
        why = replace(prediction(), routes=replace(routes, edges=sorted_edges))
        report = answered(WhyAnswer(why, ()))
        assert isinstance(report, ExactNumbers)
        assert report.answered is not None
        about = about_answer(report.answered, report.heads, AxisTexts(PagePlan(PRECISIONS[-1], 1)))
        assert about["routes"]["begun"] == begun
