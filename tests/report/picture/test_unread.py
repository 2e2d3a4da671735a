"""Every option of the look acts in every picture, or is refused there in one line by one table."""

from dataclasses import fields

import numpy as np
import pytest

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.base.options import declared_options
from attnviz.render.formats import KINDS
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import (
    UNREAD,
    ReportOptions,
    look_of,
    picture_of_style,
    refuse_changed,
    refuse_unread_of,
)
from attnviz.text.selection import Grouping, Selection


def test_the_table_names_options_and_kinds_of_media_that_exist() -> None:
    groups = (Look, Selection, Grouping, ReportOptions)
    names = {field.name for group in groups for field in fields(group)}
    assert {name for row in UNREAD for name in row.unread.split()} <= names
    assert {kind for row in UNREAD for kind in row.kinds} <= set(KINDS)


@pytest.mark.parametrize(
    ("style", "query", "picture"),
    [
        (None, None, ""),
        ("heatmap", None, ""),
        ("arcs", None, "arcs"),
        ("overlay", None, "arcs"),
        ("text", None, "a shaded text"),
        (None, "b", "a shaded text"),
        ("overlay", "b", "a shaded text of several heads"),
    ],
)
def test_a_style_and_a_query_alone_decide_the_picture(style: str | None, query: str | None, picture: str) -> None:
    assert picture_of_style(style, query) == picture


def test_an_option_is_refused_only_in_the_media_of_its_row() -> None:
    refuse_unread_of("an overview", "figure", ["mark", "names"])
    refuse_unread_of("an overview", "terminal", ["theme"])
    with pytest.raises(AttnvizError, match=r"names has no effect in an overview; choose heads, such as heads='0\.0'"):
        refuse_unread_of("an overview", "terminal", ["names"])


def test_a_command_takes_the_options_of_the_look_that_act_in_some_medium() -> None:
    assert set(look_of("an overview")) == set(declared_options(Look))  # its unread options act in a page
    assert set(look_of("an atlas")) - set(look_of("results of heads")) == {"names"}
    assert set(look_of("a film")) - set(look_of("an explained prediction")) == {"style", "pool", "mark", "names"}


def test_an_option_whose_value_is_not_its_default_is_refused_with_the_reason_of_its_row() -> None:
    refuse_changed("a survey", ReportOptions(top=2, sort="previous"))
    for options in (
        ReportOptions(grouping=Grouping(by="words")),
        ReportOptions(selection=Selection(keys=(0, 2))),
        ReportOptions(look=Look(pool="max")),
    ):
        with pytest.raises(AttnvizError, match=r"needs the maps of one input, but a survey holds means"):
            refuse_changed("a survey", options)


def test_tables_of_effects_are_compared_without_any_option_that_selects() -> None:
    row = next(row for row in UNREAD if row.picture == "tables of effects")
    selecting = {field.name for group in (ReportOptions, Selection, Grouping) for field in fields(group)}
    assert selecting - {"selection", "grouping", "look", "medium", "pairs"} <= set(row.unread.split())
    with pytest.raises(AttnvizError, match="heads does not apply to tables of effects, which are compared whole"):
        refuse_changed("tables of effects", ReportOptions(selection=Selection(pairs=((0, 1),))))


@pytest.mark.parametrize(
    ("suffix", "options", "refusal"),
    [
        (
            ".svg",
            {"style": "arcs", "cmap": "magma"},
            "cmap has no effect in arcs; .* or use style='heatmap'",
        ),
        (".svg", {"query": "b", "annotate": True}, "annotate has no effect in a shaded text"),
        (".svg", {"table": "weights", "annotate": True}, "annotate has no effect in a table of numbers"),
        (".svg", {"reduce": "mean", "names": "names.txt"}, "names single heads, and reduce='mean' makes one map"),
        (".svg", {"reduce": "mean", "residual": 0.3}, "residual has no effect on reduce='mean'; leave it out"),
    ],
)
def test_python_is_refused_what_changes_nothing(suffix: str, options: dict[str, object], refusal: str) -> None:
    recording = attnviz.from_arrays(weights=np.full((2, 3, 3), 1 / 3), tokens=["a", "b", "c"])
    assert attnviz.draw(recording, suffix, style="arcs", font_size=9.0)
    with pytest.raises(AttnvizError, match=refusal):
        attnviz.draw(recording, suffix, **options)  # type: ignore[arg-type]
