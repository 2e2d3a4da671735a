import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError, number_ranges, or_list
from attnviz.text.selection import Selection, parse_numbers, refuse_missing, resolve_span


def test_lists_and_ranges_keep_their_order() -> None:
    assert parse_numbers("7,0-1, 3", "layers") == (7, 0, 1, 3)


def test_pairs_choose_their_layers_and_the_heads_within() -> None:
    selection = Selection.parse(heads="4.11,9.6,4.2")
    assert selection.chosen_layers == (4, 9)
    assert selection.heads_of(4) == (11, 2)


def test_refuses_heads_of_layers_that_were_not_chosen() -> None:
    with pytest.raises(AttnvizError, match=r"heads='1\.1,2\.0' are in none of layers='0'; leave out one of the two"):
        Selection.parse(layers="0", heads="1.1,2.0")
    assert Selection.parse(layers="0-1", heads="1.1,2.0").chosen_layers == (1,)


def test_plain_heads_are_chosen_in_every_layer() -> None:
    assert Selection.parse(heads="0,2").heads_of(5) == (0, 2)


@pytest.mark.parametrize(
    ("text", "span"), [("10:40", (10, 40)), (":20", (None, 20)), ("-5:", (-5, None)), ("3", (3, 4)), ("-1", (-1, None))]
)
def test_spans_may_leave_out_either_end_or_name_one_token(text: str, span: tuple[int | None, int | None]) -> None:
    assert Selection.parse(queries=text).queries == span


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1..2", "1,,2", "0x1", "٣", "3-1"])
def test_refuses_what_is_no_list_of_numbers(text: str) -> None:
    with pytest.raises(AttnvizError, match="; write "):
        Selection.parse(layers=text)


@pytest.mark.parametrize("text", ["3-4", "a:b", "1:2:3", ""])
def test_refuses_what_is_no_range(text: str) -> None:
    with pytest.raises(AttnvizError, match="; write 5, 10:40 or :20"):
        Selection.parse(keys=text)


def test_refuses_pairs_mixed_with_plain_heads() -> None:
    with pytest.raises(AttnvizError, match="is not a list of heads in one form; write"):
        Selection.parse(heads="1.2,3")


def test_refuses_a_range_that_ends_after_the_last_token() -> None:
    with pytest.raises(
        AttnvizError, match="queries='4:9' ends after the last token; there are 5, so use 0:5 or a part of it"
    ):
        resolve_span((4, 9), 5, "queries")


@pytest.mark.parametrize("span", [(6, 9), (3, 3), (5, None)])
def test_refuses_tokens_that_are_not_there_and_says_how_many_are(span: tuple[int | None, int | None]) -> None:
    with pytest.raises(AttnvizError, match="there are 5, so use 0:5 or a part of it"):
        resolve_span(span, 5, "queries")


def test_negative_ends_count_from_the_last_token() -> None:
    assert resolve_span((-2, None), 5, "keys") == slice(3, 5)


def test_refuses_missing_numbers_and_says_which_are_there() -> None:
    with pytest.raises(AttnvizError, match=r"no layer 4, 6-7; there are 0-3 \(counted from 0\)"):
        refuse_missing((0, 4, 6, 7), (0, 1, 2, 3), "layer")
    with pytest.raises(AttnvizError, match=r"no layer 3; there is only 2$"):
        refuse_missing((3,), (2,), "layer")


@given(st.lists(st.integers(0, 10_000), min_size=1, unique=True))
def test_number_ranges_are_read_back_as_the_same_numbers(numbers: list[int]) -> None:
    assert set(parse_numbers(number_ranges(numbers), "heads")) == set(numbers)


def test_or_list_reads_as_a_list() -> None:
    assert [or_list(names) for names in ("", "a", "ab", "abc")] == ["none", "a", "a or b", "a, b or c"]


def test_a_range_that_counts_backwards_is_turned_round() -> None:
    with pytest.raises(AttnvizError, match="queries='2:1' counts backwards; write 1:2"):
        resolve_span((2, 1), 5, "queries")
