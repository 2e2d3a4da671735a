"""Landmarks of a text: at which token each begins, what it is called, and where a picture writes it."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.grouped import landmarks
from attnviz.maps.recording import Recording
from attnviz.render.figure.draw import figure
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.named_groups import compile_mark
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import random_maps
from tests.report.examples import drawn

TEXT = "Chapter 1\nIt was so.\n\nChapter 2\nNo more."  # tokens: Chapter 1 | It was so . | Chapter 2 | No more .


def report_of(text: str, suffix: str, selection: Selection | None = None, **look: Any) -> DrawnReport:
    recording = Recording(maps=(random_maps(tokenize(text), heads=1),), model="a model")
    return drawn(
        build_report(
            recording, options_for_medium(ReportOptions(selection=selection or Selection(), look=Look(**look)), suffix)
        )
    )


def test_a_pattern_marks_the_first_token_of_each_match() -> None:
    assert landmarks(tokenize(TEXT), r"^Chapter \d") == ((0, "Chapter 1"), (6, "Chapter 2"))
    assert landmarks(tokenize(TEXT), "was|more") == ((3, "was"), (9, "more"))


def test_a_match_within_a_token_marks_that_token() -> None:
    assert landmarks(tokenize("whaleship ahead"), "ship") == ((0, "ship"),)


def test_lines_and_paragraphs_are_counted_from_one() -> None:
    assert landmarks(tokenize(TEXT), "lines") == ((0, "line 1"), (2, "line 2"), (6, "line 3"), (8, "line 4"))
    assert landmarks(tokenize(TEXT), "paragraphs") == ((0, "¶ 1"), (6, "¶ 2"))


def test_tokens_that_stand_for_no_text_are_never_marked() -> None:
    tokens = tokenize(TEXT)
    special = replace(
        tokens.padded(len(tokens) + 1),
        places=np.vstack([[[0, 0]], tokens.offsets]),
        labels=("[CLS]", *tokens.labels),
    )
    assert landmarks(special, "paragraphs") == ((1, "¶ 1"), (7, "¶ 2"))


@settings(max_examples=25)  # each search is a fork
@given(st.text(), st.sampled_from(["lines", "paragraphs", r"\w+", "."]))
def test_landmarks_stand_in_the_order_of_the_text_at_tokens_of_their_own(text: str, mark: str) -> None:
    if not text.strip() or any("\ud800" <= character <= "\udfff" for character in text):
        return
    tokens = tokenize(text, "char")
    marks = landmarks(tokens, mark)
    places = [place for place, _ in marks]
    assert places == sorted(set(places))
    assert all(0 <= place < len(tokens) for place in places)
    assert all(label.isprintable() for _, label in marks)


def test_a_pattern_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.bounded.MAX_SECONDS", 0.3)
    with pytest.raises(AttnvizError, match=r"the search for mark '\(a\+\)\+\$' does not end in 0\.3 seconds"):
        landmarks(tokenize("a" * 40 + "!", "char"), "(a+)+$")


@pytest.mark.parametrize(
    "mark", ["(" * 5000, "(" * 200 + ")" * 200 + "[", "a{99999999999}"], ids=["open", "deep", "many"]
)
def test_a_pattern_beyond_the_engine_is_one_line(mark: str) -> None:
    with pytest.raises(AttnvizError, match="is not a regular expression"):
        compile_mark(mark)


def test_a_pattern_that_python_may_read_otherwise_some_day_is_no_warning() -> None:
    assert compile_mark("[[x]]").search("[]")


def test_a_broken_pattern_is_refused_in_one_line() -> None:
    with pytest.raises(AttnvizError, match=r"mark '\(' is not a regular expression: .*; try lines, paragraphs or"):
        Look(mark="(")


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(AttnvizError, match="mark 'Verse' matches nothing in the text shown"):
        report_of(TEXT, ".txt", mark="Verse")
    numbered = Recording(maps=(random_maps(Tokens.numbered(2), tokenize("a b")),), model="a model")
    with pytest.raises(AttnvizError, match="matches nothing"):
        build_report(numbered, options_for_medium(ReportOptions(look=Look(mark="1")), ".txt"))


@pytest.mark.parametrize("suffix", [".html", ".csv", ".npz"])
def test_marks_are_refused_where_no_axis_would_carry_them(suffix: str) -> None:
    with pytest.raises(AttnvizError, match=r"mark cannot label axes in \.\w+ files"):
        report_of(TEXT, suffix, mark="lines")


def test_a_figure_writes_landmarks_at_their_tokens() -> None:
    report = report_of(TEXT, ".svg", mark="^Chapter.*")
    axes = figure(report).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Chapter 1", "Chapter 2"]
    assert axes.get_yticks().tolist() == [0, 6]
    assert axes.get_xticks().tolist() == [0, 6]
    assert "Labels: 2 matches of ^Chapter.*, each at its first token." in report.remarks


def test_a_figure_thins_out_landmarks_that_would_touch_and_says_so() -> None:
    text = "\n".join(f"line{number} and more" for number in range(300))
    axes = figure(report_of(text, ".png", mark="lines", size="8x6")).axes[0]
    places = axes.get_yticks()
    assert 10 < len(places) < 60
    heights = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(heights))
    assert f"queries, {len(places)} of 300 marks" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("colors", [0, 2**24])
def test_a_terminal_writes_landmarks_at_their_rows_also_where_two_share_a_line(colors: int) -> None:
    text = "\n".join(f"Part {number} with words in it" for number in range(40))
    report = report_of(text, ".txt", mark="Part [0-9]+", width=60, colors=colors)
    lines = draw(report, ".txt").decode().split("\n")[2:]
    said = [match[1] for line in lines if (match := re.match(r" *(Part \d+) ", line))]
    shown = [label for label in report.panels[0].rows.mark_labels() if label]
    assert said == (shown if not colors else [label for label in shown if label in said])
    assert len(said) > len(shown) / 2


def test_a_window_shows_the_landmarks_within_it() -> None:
    report = report_of(TEXT, ".txt", Selection.parse(queries="3:"), mark="^Chapter.*")
    assert report.panels[0].rows.marks == ((6, "Chapter 2"),)
    assert report.panels[0].rows.mark_labels() == ("", "", "", "Chapter 2", "", "", "", "")
