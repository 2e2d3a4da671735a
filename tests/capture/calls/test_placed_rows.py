"""Gathered rows stand at the places from which they were gathered, if these are known."""

import pytest
import torch
from torch import nn

from attnviz.capture.calls.attention_call import DenseCall
from attnviz.capture.calls.observed_calls import PlacedRows, places_of_gather, scatter_rows
from attnviz.capture.flow.moved_rows import RowGather

TOTAL = 5


@pytest.mark.parametrize(
    ("positions", "places", "are_known"),
    [
        ([0, 1, 2], [4, 0, 3], True),
        ([0, 2, 1], [4, 0, 3], False),  # the rows moved after they were gathered
        ([0, 1, 2], [4, 4, 3], False),  # one place twice
    ],
)
def test_places_are_known_of_rows_in_order_from_a_place_each(
    positions: list[int], places: list[int], are_known: bool
) -> None:
    module = nn.Module()
    numbers = (torch.tensor(positions) * TOTAL + torch.tensor(places))[None, None, :, None].expand(1, 1, 3, 2)
    found = places_of_gather(RowGather(numbers, TOTAL, module), numbers, module, 3)
    assert found.total == TOTAL
    assert (found.places is not None) == are_known
    if found.places is not None:
        assert found.places[0, 0].tolist() == places


def test_place_of_a_row_with_features_of_two_rows_is_unknown() -> None:
    module = nn.Module()
    numbers = torch.tensor([[4, 4], [5, 8]])[None, None]
    assert places_of_gather(RowGather(numbers, TOTAL, module), numbers, module, 2).places is None


def test_keys_stand_at_the_places_of_the_key_head_that_their_head_shares() -> None:
    weights = torch.tensor([0.25, 0.125, 0.625]).expand(1, 4, 1, 3)
    places = torch.tensor([[[0, 2, 3], [1, 0, 3]]])  # of two key heads
    call = scatter_rows(DenseCall(logits=weights.log(), probabilities=weights), None, PlacedRows(places, 4))
    assert isinstance(call, DenseCall)
    first, second = [0.25, 0.0, 0.125, 0.625], [0.125, 0.25, 0.0, 0.625]
    assert call.probabilities[0, :, 0].tolist() == [first, first, second, second]


def test_note_on_unknown_places_says_how_many_queries_and_how_many_keys_there_were() -> None:
    weights = torch.full((1, 1, 2, 3), 1 / 3)
    call = DenseCall(logits=weights.log(), probabilities=weights)
    note = scatter_rows(call, PlacedRows(None, 5), PlacedRows(None, 7)).note
    assert note.startswith("queries and keys were picked by an index from 5 and 7 tokens")
