import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording, chosen_heads
from attnviz.text.selection import Selection
from tests.conftest import HEADS, KEYS, LAYERS, QUERIES


def test_without_a_choice_every_head_comes_whole_in_layer_order(recording: Recording) -> None:
    heads = chosen_heads(recording, Selection())
    assert [head.name for head in heads] == [f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)]
    assert {(str(head.queries), str(head.keys)) for head in heads} == {(str(slice(0, QUERIES)), str(slice(0, KEYS)))}


def test_pairs_come_in_the_order_chosen_with_the_maps_that_they_belong_to(recording: Recording) -> None:
    heads = chosen_heads(recording, Selection(pairs=((1, 2), (0, 1), (1, 0))))
    assert [head.name for head in heads] == ["1.2", "0.1", "1.0"]
    assert [head.maps for head in heads] == [recording.maps[1], recording.maps[0], recording.maps[1]]


def test_spans_count_from_the_end_of_their_own_axis(recording: Recording) -> None:
    [head] = chosen_heads(recording, Selection(pairs=((0, 1),), queries=(-2, None), keys=(None, -2)))
    assert (head.queries, head.keys) == (slice(QUERIES - 2, QUERIES), slice(0, KEYS - 2))


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(layers=(2,)), "no layer 2; there are 0-1"),
        (Selection(heads=(0, 3)), "no head in layer 0: 3; there are 0-2"),
        (Selection(queries=(5, 6)), "no tokens at queries='5:6'; there are 5"),
        (Selection(keys=(7, None)), "no tokens at keys='7:'; there are 7"),
    ],
)
def test_refuses_what_is_not_there_and_says_what_is(recording: Recording, selection: Selection, says: str) -> None:
    with pytest.raises(AttnvizError, match=says):
        chosen_heads(recording, selection)
