"""A text as a medium: which places lie in it, and what a file holds of it."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import MemoryTensors
from attnviz.media.medium import read_medium
from attnviz.media.text import Text


@pytest.mark.parametrize(("place", "inside"), [((0, 5), True), ((5, 5), True), ((0, 6), False), ((3, 2), False)])
def test_places_are_characters_of_the_text(place: tuple[int, int], inside: bool) -> None:
    assert Text("short").contains(np.array([(0, 0), place])) is inside


def test_text_comes_back_from_what_a_file_holds() -> None:
    [stored] = stored_media({"medium": "text", "content": "שלום"})
    assert read_medium(stored) == Text("שלום")


def test_refuses_a_medium_that_is_not_known() -> None:
    [stored] = stored_media({"medium": "smell"})
    with pytest.raises(AttnvizError, match="a medium of the unknown kind 'smell'"):
        read_medium(stored)


def test_refuses_text_that_no_file_can_hold() -> None:
    with pytest.raises(AttnvizError, match="not valid UTF-8"):
        Text("\ud800")


def stored_media(*about: dict[str, str]) -> list:  # type: ignore[type-arg]
    return MemoryTensors({"media": list(about)}, {}, "a file").stored_entries("media")


def test_the_longer_text_is_chosen_and_the_first_of_two_equally_long_ones() -> None:
    assert Text("ab").longer_of(Text("abc")) == Text("abc")
    assert Text("ab").longer_of(Text("cd")) == Text("ab")
