"""Which pieces of longer tensors a tensor is known to be."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    MAX_PIECES,
    NOTHING,
    Lineage,
    Piece,
    cut_axis,
    leading_piece,
    merged_lineage,
    piece_along,
)

WHOLE = torch.zeros(4, 6, 5)


@pytest.mark.parametrize(
    ("cut", "axis"),
    [
        (lambda x: x[:, 2:5], 1),
        (lambda x: x[1:], 0),
        (lambda x: x[..., :2], 2),
        (lambda x: x[:, 3], 1),
        (lambda x: x[2], 0),
        (lambda x: x[:, ::2], None),
        (lambda x: x[1:, :3], None),
        (lambda x: x[1, 2], None),
        (lambda x: x[:, :0], None),
        (lambda x: x, None),
    ],
    ids=["middle", "texts", "last", "one", "first", "every other", "two axes", "two gone", "nothing", "whole"],
)
def test_axis_that_is_cut_is_that_of_which_neighbours_remain(cut: Callable[[Tensor], Tensor], axis: int | None) -> None:
    assert cut_axis(WHOLE, cut(WHOLE)) == axis


def test_piece_says_where_it_begins_and_which_follows_it() -> None:
    first, second, last = (piece_along(WHOLE, WHOLE[:, part], 1) for part in (slice(2), slice(2, 5), slice(5, 6)))
    assert first is not None
    assert second is not None
    assert last is not None
    assert [(piece.start, piece.rows, piece.end) for piece in (first, second, last)] == [
        (0, 2, 2),
        (2, 3, 5),
        (5, 1, 6),
    ]
    assert first.is_followed_by(second)
    assert not first.is_followed_by(last)
    assert (first.is_first, second.is_first, second.is_last, last.is_last) == (True, False, False, True)


def test_piece_of_another_tensor_does_not_follow() -> None:
    pieces = [piece_along(tensor, tensor[:, part], 1) for tensor, part in ((WHOLE, slice(2)), (WHOLE[1:], slice(2, 4)))]
    assert pieces[0] is not None
    assert pieces[1] is not None
    assert not pieces[0].is_followed_by(pieces[1])


def test_what_is_computed_from_several_has_the_roots_of_all_and_the_greatest_depth() -> None:
    one, other = Lineage(0b01, 3, (piece(0),)), Lineage(0b10, 1, (piece(1),), recurrent=True)
    assert merged_lineage([one, NOTHING, other]) == Lineage(0b11, 3, (piece(0), piece(1)), recurrent=True)
    assert merged_lineage([one, NOTHING, one]) is one
    assert merged_lineage([NOTHING]) is NOTHING


def test_so_many_pieces_are_known_the_latest_ones() -> None:
    lineage = Lineage(1)
    for start in range(MAX_PIECES + 2):
        lineage = lineage.part(piece(start))
    assert [each.start for each in lineage.pieces] == [5, 4, 3, 2]
    assert lineage.part(piece(3)).pieces[0].start == 3
    assert len(lineage.part(piece(3)).pieces) == MAX_PIECES


def piece(start: int) -> Piece:
    return Piece((0, 0, 1, 20), start, 2)


@pytest.mark.parametrize(
    ("size", "offset", "is_known"),
    [((2, 3), 6, True), ((2, 3), 9, True), ((2, 4), 9, False), ((2, 6), 9, False), ((2, 3), 0, True)],
)
def test_leading_rows_are_a_piece_if_each_lies_in_a_row_of_the_source(
    size: tuple[int, int], offset: int, is_known: bool
) -> None:
    source = torch.arange(24).view(4, 6)
    piece = leading_piece(source, source.as_strided(size, (6, 1), offset))
    assert (None if piece is None else (piece.start, piece.rows)) == ((offset // 6, 2) if is_known else None)


def test_view_that_begins_before_a_tensor_is_no_piece_of_it() -> None:
    rows = torch.arange(24).view(4, 6)
    assert leading_piece(rows[2:], rows[:1]) is None
    assert leading_piece(rows[:1].expand(4, 6), rows[:1]) is None
