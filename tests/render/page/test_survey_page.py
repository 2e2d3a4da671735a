"""The page of a survey in a browser: points chosen and brushed, cards, shaded texts, and hostile words as text."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.metrics.measure import Need
from attnviz.render.formats import draw, format_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import SurveyedHeads
from attnviz.report.survey.tables import survey_card_report
from attnviz.report.words.choices import key_table
from attnviz.text.head_name import HeadName
from attnviz.text.tokens import tokenize
from tests.corpus.surveys import numbers_of, survey_of
from tests.render.page.conftest import Opener, Shared

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> {{style}} --> 'quoted'"
SURVEY = survey_of(numbers_of(40, 1), 0)
LISTED = "[...document.querySelectorAll('#chosen tbody th')].map((cell) => cell.textContent)"


def report_with(weights: str = "whole") -> SurveyedHeads:
    """A page of heads whose first text looks hostile, and whose examples have weights."""
    texts = {number: replace(text, tokens=tokenize(HOSTILE)) for number, text in SURVEY.examples.texts.items()}
    survey = replace(SURVEY, examples=replace(SURVEY.examples, texts=texts), model=HOSTILE, corpus=(HOSTILE,))
    found = survey_card_report(survey, ReportOptions(medium=format_of(".html").medium(Look())))
    assert isinstance(found, SurveyedHeads)
    count = len(found.texts[0].labels)
    rows = np.eye(count, dtype=np.float32)[::-1] if weights == "whole" else np.eye(count, dtype=np.float32)[1:2]
    examples = tuple(
        tuple(replace(each, weights=rows, query=0 if weights == "whole" else None) for each in of_head)
        for of_head in found.examples
    )
    return replace(found, examples=examples, title=HOSTILE)


@pytest.fixture(scope="module")
def report() -> SurveyedHeads:
    return report_with()


def test_a_click_on_a_point_opens_its_card_and_the_address_keeps_it(shared: Shared, report: SurveyedHeads) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('#plot circle').length === 3")
    box = opened.page.locator("#plot circle:not(.here)").nth(0).bounding_box()
    assert sorted(opened.evaluate(LISTED)) == sorted(row.name for row in report.frame.rows)
    opened.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    name = opened.text(".card-head h2").removeprefix("Head ")
    assert f"head={name}" in opened.evaluate("location.hash")
    assert opened.text("#chosen tr[aria-current] th") == name
    opened.page.locator(".card-head button").nth(1).click()
    assert opened.text(".card-head h2") != f"Head {name}"


def test_a_drag_brushes_heads_and_escape_lets_go(shared: Shared) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('#plot circle').length === 3")
    boxes = [opened.page.locator("#plot circle").nth(place).bounding_box() for place in range(3)]
    one = boxes[0]
    opened.page.mouse.move(one["x"] - 6, one["y"] - 6)
    opened.page.mouse.down()
    opened.page.mouse.move(one["x"] + one["width"] + 6, one["y"] + one["height"] + 6)
    opened.page.mouse.up()
    assert 1 <= opened.page.locator("#chosen tbody tr").count() < 3
    assert "brushed" in opened.text("#hint")
    opened.press("Escape")
    assert opened.page.locator("#chosen tbody tr").count() == 3


def test_axes_are_chosen_and_numbers_are_the_means(shared: Shared, report: SurveyedHeads) -> None:
    opened = shared(report_with)
    opened.until("document.querySelector('#axis-across')")
    opened.page.select_option("#axis-across", "entropy")
    means = report.frame.column("entropy")
    rows = opened.page.locator("#chosen tbody tr").all_inner_texts()
    order = np.argsort(-means)
    assert [row.split()[0] for row in rows] == [report.frame.rows[head].name for head in order]
    assert [f"{means[head]:.2f}" in row for head, row in zip(order, rows, strict=True)] == [True] * 3


def test_long_numbers_beside_the_plot_leave_its_name_free_and_intervals_stay_inside(
    show: Opener, report: SurveyedHeads
) -> None:
    frame = report.frame
    assert frame.margins is not None
    near_means, wide = 0.99478 + frame.values * 1e-6, np.full_like(frame.margins, 0.9)
    opened = show(replace(report, frame=replace(frame, values=near_means, margins=wide)))
    opened.until("document.querySelector('#plot .spread')")
    name = opened.page.locator("#plot .axis").nth(1).bounding_box()
    ticks = [text.bounding_box() for text in opened.page.locator("#plot text[text-anchor=end]:not(.name)").all()]
    assert len(ticks) > 1
    assert all(tick["x"] > name["x"] + name["width"] for tick in ticks)
    ground = opened.page.locator("#plot .back").bounding_box()
    for spread in (line.bounding_box() for line in opened.page.locator("#plot .spread").all()):
        assert ground["x"] - 1 <= spread["x"] <= spread["x"] + spread["width"] <= ground["x"] + ground["width"] + 1
        assert ground["y"] - 1 <= spread["y"] <= spread["y"] + spread["height"] <= ground["y"] + ground["height"] + 1


def test_tokens_are_text_and_are_shaded_by_what_the_pointed_one_looks_at(shared: Shared, report: SurveyedHeads) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('.example').length === 20")
    tokens = opened.page.locator(".example").nth(0).locator(".token")
    assert tokens.all_inner_texts() == list(report.texts[0].labels)
    labels = report.texts[0].labels
    said = "document.querySelector('.example .shades').textContent"
    assert opened.evaluate(said) == f"shaded: what {labels[0]} looks at"
    tokens.nth(1).hover()
    assert opened.evaluate(said) == f"shaded: what {labels[1]} looks at"
    tokens.nth(1).click()  # which keeps it, so that others say their weight
    tokens.nth(len(labels) - 2).hover()
    assert opened.evaluate(said) == f"shaded: what {labels[1]} looks at; at {labels[-2]} 100%"
    assert opened.evaluate("document.querySelector('.example .token.chosen').dataset.place") == "1"
    assert HOSTILE.split(maxsplit=1)[0] in opened.text("h1")


def test_examples_of_a_survey_of_pictures_are_called_pictures(show: Opener, report: SurveyedHeads) -> None:
    first, *others = report.frame.measures
    pictured = replace(report.frame, measures=(replace(first, needs=frozenset({Need.PATCHES})), *others))
    opened = show(replace(report, frame=pictured))
    opened.until("document.querySelectorAll('.example').length === 20")
    assert opened.text("#card section:has(.example) h3").startswith("Pictures, by ")
    assert opened.text("#card th:last-child") == "pictures"


def test_one_row_of_weights_is_enough(show: Opener) -> None:
    opened = show(report_with("mean"))
    opened.until("document.querySelectorAll('.example').length === 20")
    opened.page.locator(".example").nth(0).locator(".token").nth(1).hover()
    assert opened.text(".example .shades").startswith("shaded: what all tokens look at on average; at ")
    assert opened.text(".example .shades").endswith(" 100%")


def test_the_same_survey_gives_the_same_page_without_anything_from_elsewhere(report: SurveyedHeads) -> None:
    page = draw(report, ".html")
    assert page == draw(report, ".html")
    assert b"default-src 'none'" in page
    assert b"http" not in page.replace(b"http-equiv", b"").replace(b"http://www.w3.org/2000/svg", b"")
    assert page.count(b"</script>") == 5


def test_page_of_1024_heads_with_twenty_examples_each_takes_less_than_ten_megabytes(report: SurveyedHeads) -> None:
    random, side = np.random.default_rng(0), 32
    names = [HeadName(layer, head) for layer in range(side) for head in range(side)]
    frame = report.frame

    def numbers(of: Any, listed: tuple[str, ...]) -> dict[str, Any]:
        return {name: random.random((len(names), *getattr(of, name).shape[1:])) for name in listed}

    rows = random.dirichlet(np.full(len(report.texts[0].labels), 0.1), (len(names), 20, 1)).astype(np.float32)
    examples = tuple(
        tuple(replace(report.examples[0][0], weights=row, query=1, value=float(row.max())) for row in of_head)
        for of_head in rows
    )
    heads = tuple(replace(frame.rows[0], heads=(name,)) for name in names)
    frame = replace(frame, rows=heads, **numbers(frame, ("values", "margins", "spreads", "counts", "deciles")))
    arrays = numbers(report, ("weights", "scores", "entropies"))
    shown_by = report.shown_by[:1] * len(names)
    large = replace(report, frame=frame, shown_by=shown_by, examples=examples, more_examples=(), **arrays)
    assert len(draw(large, ".html")) < 10e6


def test_the_list_is_filtered_and_sorted_as_the_heads_page_and_the_address_keeps_it(
    shared: Shared, report: SurveyedHeads
) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('#chosen tbody tr').length === 3")
    names, means = [row.name for row in report.frame.rows], report.frame.column("entropy")
    opened.page.select_option("#axis-up", "entropy")
    opened.page.click("#chosen th button:text('entropy')")
    assert opened.evaluate(LISTED) == [names[head] for head in np.argsort(-means)]
    opened.page.click("#chosen th button:text('entropy')")
    assert opened.evaluate(LISTED) == [names[head] for head in np.argsort(means)]
    assert opened.page.get_attribute("#chosen th[aria-sort]", "aria-sort") == "ascending"
    opened.page.locator("#plot").click(position={"x": 3, "y": 3})
    opened.press("f")
    middle = float(np.median(means))
    opened.page.keyboard.type(f"entropy>{middle - 1e-4:.6f}")
    fewer = [names[head] for head in np.argsort(means) if means[head] > middle - 1e-4]
    assert opened.evaluate(LISTED) == fewer
    assert opened.page.locator("#plot circle.out").count() == 3 - len(fewer)
    assert "sort=-entropy" in opened.evaluate("location.hash")
    opened.page.reload()
    opened.until(f"document.querySelectorAll('#chosen tbody tr').length === {len(fewer)}")
    assert opened.evaluate(LISTED) == fewer
    opened.page.fill("#filter", "entropy>")
    assert "is no test of a head" in opened.text("#wrong")
    opened.press("Escape", "?")
    assert opened.page.is_visible("#help")


def test_steps_go_along_the_list_and_links_of_before_are_read(shared: Shared) -> None:
    opened = shared(report_with)
    opened.until("document.querySelector('.card-head')")
    listed = opened.evaluate(LISTED)
    for name in (*listed[1:], listed[0]):
        opened.press("]")
        assert opened.text(".card-head h2") == f"Head {name}"
    opened.evaluate(f"location.hash = 'head={listed[2]}&across=entropy&up=sink&size=&colour=layer'")
    opened.until(f"document.querySelector('.card-head h2').textContent === 'Head {listed[2]}'")
    assert opened.evaluate("document.querySelector('#axis-across').value") == "entropy"
    opened.evaluate(f"location.hash = 'brushed={listed[0]},{listed[1]}'")
    opened.until("document.querySelectorAll('#chosen tbody tr').length === 2")
    assert "2 of 3 heads are brushed" in opened.text("#hint")


def test_links_to_what_a_survey_has_not_show_the_head_and_say_so(shared: Shared) -> None:
    opened = shared(report_with)
    opened.until("document.querySelector('.card-head')")
    name = opened.evaluate(LISTED)[1]
    for address, said in (
        (f"head={name}&query=cat", "no query “cat”"),
        ("view=lens&key=3", "no view lens"),
        ("heads=0.0,0.1", "no heads together"),
    ):
        opened.evaluate(f"location.hash = '{address}'")
        opened.until(f"document.querySelector('#wrong').textContent.includes('{said}')")
        assert opened.text(".card-head h2").startswith("Head "), address
        assert opened.page.locator("#plot").is_visible(), address
        if "head=" in address:
            assert opened.text(".card-head h2") == f"Head {name}"
    opened.page.goto(opened.page.url.partition("#")[0] + "#query=cat")
    opened.page.reload()
    opened.until("document.querySelector('.card-head')")
    assert "no query “cat”" in opened.text("#wrong")


def test_keys_of_a_survey_are_those_of_the_table(shared: Shared) -> None:
    opened = shared(report_with)
    opened.until("document.querySelector('.card-head')")
    opened.press("?")
    rows = opened.page.locator("#keys tr").all()
    listed = {tuple(cell.strip() for cell in row.locator("td").all_inner_texts()) for row in rows}
    assert ("f", "filter heads: sink>0.5") in listed
    assert listed < set(key_table("page"))
    opened.press("Escape", "o")
    first = opened.evaluate("METRIC_NAMES[0]")
    assert opened.evaluate("state.sort") == first
    opened.press("r")
    assert opened.evaluate("state.sort") == f"-{first}"
    for key, shown in (("2", "numbers"), ("3", "points"), ("1", "maps")):
        opened.press(key)
        assert opened.evaluate("state.list") == shown
        assert opened.page.locator("#lists [aria-pressed=true]").inner_text().lower() == shown


@pytest.mark.parametrize("width", [1600, 1280, 390])
def test_letters_of_charts_are_eleven_pixels_or_larger(show: Opener, report: SurveyedHeads, width: int) -> None:
    opened = show(report, viewport={"width": width, "height": 850})
    opened.until("document.querySelectorAll('#plot text').length && document.querySelectorAll('.chart text').length")
    sizes = opened.evaluate("""[...document.querySelectorAll('#plot text, .chart text')].map((text) => {
        const svg = text.ownerSVGElement;
        const times = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        return times * parseFloat(getComputedStyle(text).fontSize);
    })""")
    assert min(sizes) >= 11


def test_heads_stand_by_layers_in_the_colours_of_the_points(shared: Shared, report: SurveyedHeads) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('#plot circle').length === 3")
    assert opened.page.input_value("#axis-colour") == "layer"
    opened.press("1")
    opened.until("document.querySelectorAll('#overview .thumb').length === 3")
    # By layers, the colour of the layer would say nothing.
    assert opened.page.input_value("#axis-colour") == opened.evaluate("state.across")
    assert opened.page.locator("#axis-colour option[value=layer]").count() == 0
    opened.press("3")
    opened.page.select_option("#axis-colour", "entropy")
    points = opened.evaluate("[...document.querySelectorAll('#plot circle')].map((mark) => mark.getAttribute('fill'))")
    opened.press("Escape", "1")
    opened.until("document.querySelectorAll('#overview .thumb').length === 3")
    painted = opened.evaluate("""[...document.querySelectorAll('#overview .thumb')].map((thumb) => {
        const context = thumb.querySelector('canvas').getContext('2d');
        const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
        return [thumb.dataset.number, `rgb(${red}, ${green}, ${blue})`];
    })""")
    heads = [(row.layer, row.head) for row in report.frame.rows]
    in_layers = [str(heads.index(head)) for head in sorted(heads)]
    assert [number for number, _ in painted] == in_layers
    assert sorted(colour for _, colour in painted) == sorted(points)
    opened.page.locator("#overview .thumb").nth(2).click()
    assert opened.text(".card-head h2") == f"Head {report.frame.rows[int(in_layers[2])].name}"
    assert "view=maps" in opened.evaluate("location.hash")
    opened.press("2")
    measured = len(report.frame.applicable)
    assert opened.page.locator("#chosen thead th").count() == 2 + measured
    assert not opened.page.is_visible("#overview")


def test_notes_are_pinned_and_stepped_through_as_on_the_page_of_heads(show: Opener, report: SurveyedHeads) -> None:
    opened = show(report)
    opened.until("document.querySelectorAll('#chosen tbody tr').length === 3")
    opened.press("]")
    shown = opened.text(".card-head h2")
    opened.page.click("#notes-open")
    opened.page.fill("#notes textarea", HOSTILE)
    opened.page.click("#notes button:text('Pin a note')")
    opened.page.click("#notes button:text('Close')")
    opened.press("]")
    assert opened.text(".card-head h2") != shown
    opened.page.click("#notes-open")
    opened.page.click("#notes button:text('Step through')")
    opened.until(f"document.querySelector('.card-head h2').textContent === '{shown}'")
    assert HOSTILE in opened.text("#story")
    opened.press("Escape")
    assert not opened.page.is_visible("#story")


def test_texts_of_a_head_are_listed_by_any_metric(shared: Shared, report: SurveyedHeads) -> None:
    opened = shared(report_with)
    opened.until("document.querySelectorAll('.example').length === 20")
    name = next(each.metric for each in report.more_examples[0] if each.metric != "entropy")
    opened.page.focus("#texts-by")
    opened.page.select_option("#texts-by", name)
    opened.until("document.querySelectorAll('.example').length === 3")
    head = [row.name for row in report.frame.rows].index(opened.text(".card-head h2").removeprefix("Head "))
    values = [each.value for each in report.more_examples[head] if each.metric == name]
    said = opened.page.locator(".example .why span:nth-child(2)").all_inner_texts()
    assert [float(words.removeprefix(f"{name} ")) for words in said] == pytest.approx(values, abs=0.051)
    assert f"texts={name}" in opened.evaluate("location.hash")
    assert opened.evaluate("document.activeElement.id") == "texts-by"
