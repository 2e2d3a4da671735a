"""The figure of why: the shaded text, routes, and bars whose lengths are the numbers beside them."""

import io
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from pptx import Presentation
from pptx.enum.shapes import MSO_SHAPE_TYPE

import attnviz
from attnviz.effects.why import Why
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.trained import TrainedReader
from attnviz.render.figure.arcs_and_text import arrange_text
from attnviz.render.figure.page import Page, Word
from attnviz.render.figure.picture import picture_of
from attnviz.render.figure.words import Ruler
from attnviz.render.formats import options_for_medium
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.report.why import why_report
from tests.report.examples import drawn

pytestmark = pytest.mark.slow

RULER = Ruler(("DejaVu Sans",))


@pytest.fixture(scope="module")
def why() -> Why:
    """An answer whose heads lose 8 nats, and 4 controls -2, 0, 2 and 6."""
    answer = TrainedReader(ModelSettings(model="trained", device="cpu")).why(Example("the cat sat. the cat"))
    heads, source = answer.checks
    heads = replace(heads, losses=np.array([8.0]), losses_of_controls=np.array([[-2.0], [0.0], [2.0], [6.0]]))
    return replace(
        answer, checks=(heads, replace(source, losses=np.array([4.0]), losses_of_controls=np.array([[0.5]])))
    )


def report_of(why: Why, **look: Any) -> DrawnReport:
    return drawn(why_report(why, options_for_medium(ReportOptions(look=Look(**look)), ".svg")))


def page_of(why: Why, **look: Any) -> Page:
    return arrange_text(picture_of(report_of(why, **look)), RULER)


def test_routes_stand_under_the_tables_and_each_line_between_tokens_has_its_words(why: Why) -> None:
    content = page_of(why).content
    lowest = min(word.y for word in content.words if word.faint)
    places = {word.text: (word.x, word.y) for word in content.words if word.y < lowest}
    columns, _, positive, *_ = content.strokes[-3:]
    start, end = positive.ends[int(positive.strengths.argmax())]
    assert positive.strengths.max() <= 1
    for place, label in ((start, "sat"), (end, "cat (6)")):
        x, y = places[label]
        assert x < place[0] < x + RULER.width(label, content.points)
        assert y < place[1]
        assert place[0] in columns.ends[:, 0, 0]
    assert start[1] < end[1]
    moves = {text for text in places if ": " in text}
    assert "sat → cat (6): 1.0, 1.1 +20.2" in moves
    assert len(moves) == sum(len(strokes.ends) for strokes in content.strokes[-2:])


def test_bars_of_losses_and_of_controls_are_as_long_as_their_numbers(why: Why) -> None:
    content = page_of(why).content
    rows = {word.text: word for word in content.words}

    def bar(name: str) -> Word:
        row = rows[name]
        return min(
            (word for word in content.words if not word.text and word.y == row.y and word.x > row.x),
            key=lambda word: word.x,
        )

    def length(name: str) -> float:
        box = bar(name).box
        assert box is not None
        return box.width

    nat = length("without heads 1.0 and 1.1") / 8
    assert length("head 1.0") / length("head 1.1") == pytest.approx(10.67 / 9.50, rel=1e-3)
    # of several controls, that which loses most
    for name, lost in (
        ("“sat” hidden", 4),
        ("control: each other set of 2 heads", 6),
        ("control: the only other token", 0.5),
    ):
        assert length(name) == pytest.approx(lost * nat, rel=1e-3)
        assert rows[name].faint == name.startswith("control")
    greys = {bar(name).fill for name in rows if name.startswith("control")}
    assert len(greys) == 1
    assert greys.isdisjoint({bar("head 1.0").fill, bar("embedding").fill})
    assert "at most 6.00" in rows
    assert "0.50" in rows


def test_the_rows_of_the_sum_add_up_to_it(why: Why) -> None:
    table, _ = report_of(why).charts
    *parts, total = [float(row[1]) for row in table.rows]
    assert sum(parts) == pytest.approx(total, abs=0.01 * len(parts))


@pytest.mark.parametrize("size", [None, "16:9", "4:3", "1:1", "page", "column"])
def test_nothing_overlaps_or_leaves_the_page(why: Why, size: str | None) -> None:
    page = page_of(why, **({} if size is None else {"size": size}))

    def corners(word: Word) -> tuple[float, float, float, float]:
        points = word.points or page.content.points
        width = RULER.width(word.text, points)
        left, top = word.x - width * (word.align == "right"), word.y + points / 72 / 2
        if word.box is not None:
            left, width = word.box.x, word.box.width
        return left, word.y - points / 72 / 2, left + width, top

    boxes = [(corners(word), word.text) for word in page.content.words]
    for line in page.content.lines:
        right = line.x + RULER.width(line.text, line.points, bold=line.bold)
        boxes.append(((line.x, line.y - line.points / 72, right, line.y), line.text))
    for (left, bottom, right, top), text in boxes:
        assert left >= -0.01, text
        assert bottom >= 0, text
        assert right <= page.width + 0.01, text
        assert top <= page.height, text
    for (one, text), (other, other_text) in combinations(boxes, 2):
        overlap = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
        assert min(overlap) < 0.02, (text, other_text)


def test_a_figure_says_doubts_and_the_prediction_and_its_file_everything(why: Why) -> None:
    doubted = replace(why, checks=(replace(why.checks[0], losses=np.array([0.0])), why.checks[1]))
    report = report_of(doubted)
    first, second = report.answer.splitlines()
    assert first.startswith("Contributions and checks disagree: heads 1.0 and 1.1 add most")
    assert second.startswith("After “cat” (6) the trained model predicts “sat”")
    assert "Head 1.0 looks from “cat” (6) at “sat” (3)" in report.caption
    assert "the log-probability of “sat”" in report.caption
    bare = picture_of(report_of(doubted, bare=True))
    assert (bare.answer, bare.remarks) == ("", ())
    assert "Contributions and checks disagree" in bare.caption


def test_a_deck_begins_with_the_answer_and_draws_it_on_one_slide(why: Why) -> None:
    deck = Presentation(io.BytesIO(attnviz.draw(why, ".pptx")))
    first, second = deck.slides
    texts = [" ".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame) for slide in deck.slides]
    assert "After “cat” (6) the trained model predicts “sat” 100%." in texts[0]
    assert "falls by" not in texts[0]
    assert texts[1].startswith("What the model adds up: the logit of “sat”")
    assert "the log-probability of “sat” falls by 8.00 nats" in first.notes_slide.notes_text_frame.text
    assert [shape.shape_type for shape in second.shapes].count(MSO_SHAPE_TYPE.PICTURE) == 1
