"""Numbers of heads: rows chosen, columns joined, frames compared, and the interval of a mean."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.metrics.head_frame import HeadFrame, HeadRow, frame_of_samples, number_changes
from attnviz.metrics.measure import NORMAL_95, Measure, Need, margin_of_mean
from attnviz.metrics.patterns import Pattern
from attnviz.text.head_name import HeadName

LOSS = Measure("loss", "loss", "nats", "how much is lost", needs=frozenset({Need.REPEAT}))
SCORE = Measure("score", "score", "share", "how much of a type")
HEADS = (HeadName(0, 1), HeadName(1, 0), HeadName(1, 2))
VALUES = np.array([[0.5, 0.9], [np.nan, 0.1], [-2.0, 0.3]])


def frame(**more: np.ndarray) -> HeadFrame:
    rows = tuple(HeadRow((head,), patterns=(Pattern("induction", 0.9),) * (head == HEADS[0])) for head in HEADS)
    return HeadFrame(rows=rows, measures=(LOSS, SCORE), values=VALUES.copy(), **more)  # type: ignore[arg-type]


def names(table: HeadFrame) -> list[str]:
    return [row.name for row in table.rows]


def test_a_set_of_heads_is_named_by_all_of_them() -> None:
    assert HeadRow((HeadName(0, 1), HeadName(2, 3))).name == "0.1+2.3"
    assert HeadRow((HeadName(0, 1),), kind="cross").title == "0.1 cross"


def test_rows_are_chosen_by_filter_order_and_number() -> None:
    assert names(frame().with_selected_rows(sort="loss")) == ["0.1", "1.2", "1.0"]
    assert names(frame().with_selected_rows(sort="-score", top=2)) == ["1.0", "1.2"]
    assert names(frame().with_selected_rows(filter="score>0.2 layer:1")) == ["1.2"]
    assert names(frame().with_selected_rows(filter="induction")) == ["0.1"]


def test_places_are_sorted_with_unknown_numbers_last_and_equal_ones_as_they_were() -> None:
    assert frame().sorted_rows([2, 1, 0], "loss") == [0, 2, 1]
    assert frame().sorted_rows([1, 0, 2], "-loss") == [2, 0, 1]
    equal = HeadFrame(rows=frame().rows, measures=(SCORE,), values=np.full((3, 1), 0.5))
    assert equal.sorted_rows([2, 0, 1], "score") == equal.sorted_rows([2, 0, 1], "-score") == [2, 0, 1]


def test_a_filter_may_leave_no_row() -> None:
    assert frame().filtered_rows("score>0.2 layer:1") == [2]
    assert frame().filtered_rows("score>2") == []


def test_a_choice_knows_how_many_rows_there_were_and_what_all_of_them_lack() -> None:
    chosen = frame().with_selected_rows(filter="1.0")
    assert chosen.total_rows == 3
    assert chosen.applicable == (LOSS, SCORE)
    assert frame().take([1]).with_selected_rows().total_rows == 3


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"sort": "los"}, "unknown metric 'los'; did you mean loss"),
        ({"filter": "score>2"}, "leaves none of 3 heads"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choice: dict[str, object], said: str) -> None:
    with pytest.raises(AttnvizError, match=said):
        frame().selected_rows(**choice)  # type: ignore[arg-type]
    with pytest.raises(AttnvizError, match="no head has the metric 'loss' here: it needs a repeat"):
        frame().take([1]).selected_rows(sort="loss")


def test_columns_of_another_frame_stand_first_matched_by_heads() -> None:
    moved = Measure("moved", "moved", "norm", "what is moved")
    other = HeadFrame(
        rows=(HeadRow((HeadName(1, 2),)), HeadRow((HeadName(9, 9),))),
        measures=(moved,),
        values=np.array([[7.0], [8.0]]),
    )
    joined = frame(spreads=np.ones((3, 2))).with_columns_of(other)
    assert joined.names == ("moved", "loss", "score")
    np.testing.assert_array_equal(joined.column("moved"), [np.nan, np.nan, 7.0])
    np.testing.assert_array_equal(joined.column("score"), VALUES[:, 1])
    np.testing.assert_array_equal(joined.column("moved", "spreads"), [np.nan] * 3)


def test_a_difference_is_of_what_both_have_and_its_margin_the_root_of_squares() -> None:
    before = frame(margins=np.full((3, 2), 0.3))
    after = HeadFrame(
        rows=(HeadRow((HeadName(1, 2),)), HeadRow((HeadName(0, 1),))),
        measures=(SCORE,),
        values=np.array([[0.5], [0.5]]),
        margins=np.full((2, 1), 0.4),
    )
    change = after - before
    assert names(change) == ["0.1", "1.2"]
    assert change.names == ("score",)
    np.testing.assert_allclose(change.values[:, 0], [-0.4, 0.2])
    np.testing.assert_allclose(change.column("score", "margins"), 0.5)
    first, second = number_changes(before, after)
    assert (first.name, first.before, first.after) == ("0.1", 0.9, 0.5)
    assert second.clearness == pytest.approx(0.2 * NORMAL_95 / 0.5)


def test_means_of_samples_leave_out_texts_without_a_number() -> None:
    found = frame_of_samples((SCORE,), [{HEADS[0]: np.array([0.2, np.nan, 0.6]), HEADS[1]: np.array([1.0])}])
    assert found.value("0.1", "score") == pytest.approx(0.4)
    assert found.column("score", "margins")[0] == pytest.approx(12.7062 * 0.2, abs=1e-4)  # t of one degree of freedom
    assert np.isnan(found.column("score", "margins")[1])


def test_the_interval_of_a_mean_is_by_students_t() -> None:
    numbers = np.array([1.0, 3.0, 5.0, 7.0])
    assert margin_of_mean(numbers) == pytest.approx(3.18245 * numbers.std(ddof=1) / 2, rel=1e-5)
    assert np.isnan(margin_of_mean(numbers[:1]))


def test_numbers_of_another_shape_are_refused_and_none_can_be_written_over() -> None:
    with pytest.raises(ValueError, match=r"margins of shape \(2, 3\) for 3 rows and 2 measures"):
        frame(margins=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="read-only"):
        frame().values[0, 0] = 1.0


def test_given_names_reach_the_rows_that_a_filter_left_out() -> None:
    named = frame().with_names({"1.0": "late"})
    assert [row.given_name for row in named.rows] == ["", "late", ""]
    chosen = frame().with_selected_rows(filter="score>0.2").with_names({"1.0": "late"})
    assert [row.given_name for row in chosen.rows] == ["", ""]
    assert chosen.full_frame is not None
    assert [row.given_name for row in chosen.full_frame.rows] == ["", "late", ""]


def test_columns_of_selected_rows_are_unknown_for_the_others() -> None:
    wider = frame().take([1]).with_columns((Measure("new", "new", "share", "new"),), np.ones((1, 1)))
    assert [measure.name for measure in wider.applicable] == ["new", "loss", "score"]
    assert wider.total_rows == len(HEADS)
    assert wider.full_frame is not None
    np.testing.assert_equal(wider.full_frame.column("new"), np.array([np.nan, 1, np.nan]))
